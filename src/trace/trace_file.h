/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace file of any known format. */
#ifndef HARPE_TRACE_TRACE_FILE_H
#define HARPE_TRACE_TRACE_FILE_H

#include "trace/trace.h"

typedef enum harpe_trace_format {
    HARPE_TRACE_ANY,
    HARPE_TRACE_CHAKRA,
    HARPE_TRACE_KINETO,
} harpe_trace_format;

typedef struct harpe_trace_request {
    harpe_trace_format format; /* HARPE_TRACE_ANY: whatever the file contains */
    int64_t step;              /* of a Kineto trace; see kineto.h */
    harpe_kernel_names *names; /* which kernels communicate; must stay valid */
} harpe_trace_request;

/* Reads a file of at most 512 MiB, also after it is unpacked (gzip). If the trace does not say
 * which rank it belongs to, this is the number after "rank" in the file's name, or else the last
 * number there, or else `position`. `path` must stay valid. Free `out` with harpe_trace_free, also
 * after a failure. */
harpe_status harpe_trace_file_read(const char *path, int64_t position,
                                   const harpe_trace_request *request, harpe_trace *out,
                                   harpe_error *error);
/* Does the same with bytes in memory that are not packed. `name` replaces the path. */
harpe_status harpe_trace_file_parse(const char *bytes, size_t length, const char *name,
                                    int64_t position, const harpe_trace_request *request,
                                    harpe_trace *out, harpe_error *error);

#endif
