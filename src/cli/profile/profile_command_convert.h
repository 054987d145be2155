/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe profile convert` makes a profile from a server's dump of a job. */
#ifndef HARPE_CLI_PROFILE_PROFILE_COMMAND_CONVERT_H
#define HARPE_CLI_PROFILE_PROFILE_COMMAND_CONVERT_H

#include <stdbool.h>

#include <harpe/status.h>

typedef struct harpe_convert_request {
    const char *directory;
    const char *output_path; /* NULL: stdout */
    bool force;
    bool json;
} harpe_convert_request;

harpe_status harpe_profile_convert(const harpe_convert_request *request, harpe_error *error);

#endif
