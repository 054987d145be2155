/* SPDX-License-Identifier: Apache-2.0 */
/* A file that a scheduler has made for people. The scheduler does not write the file itself,
 * because ranks wait while it runs. profile_dump.c writes the file. */
#ifndef HARPE_SERVER_SCHEDULER_SCHEDULER_FILE_H
#define HARPE_SERVER_SCHEDULER_SCHEDULER_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Initialise it with zeros. If path is NULL, there is no file. Free it with
 * harpe_scheduler_file_free. */
typedef struct harpe_scheduler_file {
    char *path, *text;
    size_t length;
    char *directory;  /* directory to create first; NULL: `path` may be anywhere, and other programs
                         may write it */
    bool is_repeated; /* the scheduler made it before a restart too, so the file may exist */
} harpe_scheduler_file;

void harpe_scheduler_file_free(harpe_scheduler_file *file); /* leaves it empty */

#endif
