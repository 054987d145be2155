/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds the files of dumps by age and size, and removes those of jobs that the server has
 * forgotten. A file process calls it. Only files that the server writes are removed. */
#ifndef HARPE_SERVER_ENGINE_DUMP_BOUNDS_H
#define HARPE_SERVER_ENGINE_DUMP_BOUNDS_H

#include <stdbool.h>
#include <stdint.h>

/* Removes the dumps of the jobs in `forgotten`, one id per line. Then removes files that are older
 * than `age_s`, and the oldest ones beyond `bytes`. `bytes` 0: removes only forgotten jobs. A file
 * counts with the space that it has on the disk. */
void harpe_dump_bounds_keep(const char *path, const char *forgotten, int64_t bytes, int64_t age_s);
/* Returns true for the name of an incomplete file, which an earlier server has left. */
bool harpe_dump_is_left_over(const char *name);

#endif
