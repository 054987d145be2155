/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of jobs that are sorted and searched. */
#ifndef HARPE_SERVER_ENGINE_JOB_QUERY_H
#define HARPE_SERVER_ENGINE_JOB_QUERY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct harpe_jobs harpe_jobs;

/* The most rows of an answer. The loop writes them all at once. */
enum { HARPE_QUERY_ROWS = 200 };

/* The keys by which a list can be sorted. */
#define HARPE_SORT_KEYS \
    "start, seen, name, state, user, group, node, slurm_job, gpus, round, power, power_cap, " \
    "energy, saved, time_lost"

/* Returns true if a list can be sorted by `text`: a key, with '-' in front for the reverse order.
 */
bool harpe_jobs_can_sort(const char *text);

/* Returns the rows of the jobs in which every word of the search occurs. `query` is the sort key, a
 * line feed, and the search. Jobs without a value for the key come last. Skips `offset` jobs, and
 * has at most `limit`, and at most HARPE_QUERY_ROWS. Shows only jobs of the groups of `scope`.
 *
 * The text is like that of harpe_jobs_list. Its first line is "COUNT TOTAL - REST": TOTAL counts
 * the jobs that match, and REST are members for the end of the answer: the number of all jobs, and
 * sums over the jobs that match. Returns NULL if memory runs out. */
char *harpe_jobs_query(const harpe_jobs *jobs, const char *scope, const char *query, size_t offset,
                       size_t limit);

#endif
