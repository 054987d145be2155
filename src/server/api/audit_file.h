/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the audit log. File processes use it, because it may be on a file server that does
 * not answer. Call these functions on a worker. */
#ifndef HARPE_SERVER_API_AUDIT_FILE_H
#define HARPE_SERVER_API_AUDIT_FILE_H

#include <stddef.h>

#include "base/file_processes.h"

/* Appends the text and puts it on disk. First renames a file that would become too long to
 * `old_path`. */
harpe_status harpe_audit_file_append(harpe_file_processes *files, const char *path,
                                     const char *old_path, const char *text, size_t length,
                                     harpe_error *error);
/* Reads the newest `limit` (at least 0) records as a JSON list, newest first. `json` must be empty
 * before. */
harpe_status harpe_audit_file_read(harpe_file_processes *files, const char *path,
                                   const char *old_path, int limit, harpe_text *json,
                                   harpe_error *error);
/* What a file process does. */
harpe_status harpe_audit_file_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                   harpe_error *error);

#endif
