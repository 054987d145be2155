/* SPDX-License-Identifier: Apache-2.0 */
/* The files of dumps. File processes make all calls on them, because the directory may be on a file
 * server that does not answer. This file knows no job. */
#ifndef HARPE_SERVER_ENGINE_DUMP_FILES_H
#define HARPE_SERVER_ENGINE_DUMP_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/file_processes.h"

/* What is to be done, in this order. */
typedef struct harpe_dump_order {
    const char *directory; /* made first, with those above it, for the server's user alone; NULL:
                              none */
    bool only_looks;       /* makes and writes nothing */
    bool cleans;           /* removes incomplete files of an earlier server from the directory */
    const char *path;      /* NULL: no file */
    const char *text;      /* what the file gets, as a whole; NULL: it is not written */
    size_t length;
    bool unless_there, unless_same; /* does not write if the file exists, or has this text */
    bool sweeps;                    /* removes incomplete files of this path */
    bool leaves_cache;              /* nobody reads the file soon */
    /* Does nothing else but harpe_dump_bounds_keep; `text` names the forgotten jobs. */
    bool bounds;
    int64_t most_bytes, most_age_s;
} harpe_dump_order;

typedef struct harpe_dump_finding {
    bool is_there;    /* the file existed before */
    mode_t open_mode; /* see harpe_open_mode; of the directory, if the order only looks */
} harpe_dump_finding;

/* Call it on a worker. The order names a directory or a path. */
harpe_status harpe_dump_files_do(harpe_file_processes *files, const harpe_dump_order *order,
                                 harpe_dump_finding *finding, harpe_error *error);
/* What a file process does. */
harpe_status harpe_dump_files_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                   harpe_error *error);
/* Returns the mode of a directory if other users may read it. Otherwise, or if it does not exist,
 * returns 0. */
mode_t harpe_open_mode(const char *directory);

#endif
