/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file of a fleet (harpe-fleet(5)). */
#ifndef HARPE_FLEET_FLEET_JSON_H
#define HARPE_FLEET_FLEET_JSON_H

#include "fleet/fleet_file.h"

/* Read a file from JSON, of at most 256 MiB. Free with harpe_fleet_file_free. Errors are like those
 * of harpe_fleet_read_json. harpe_fleet_file_fleet checks the plans of the jobs. */
harpe_status harpe_fleet_file_parse(const char *text, size_t length, const char *name,
                                    harpe_fleet_file *out, harpe_error *error);
harpe_status harpe_fleet_file_read(const char *path, harpe_fleet_file *out, harpe_error *error);

#endif
