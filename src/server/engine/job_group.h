/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a job's metadata, and which clients may see and change the job. */
#ifndef HARPE_SERVER_ENGINE_JOB_GROUP_H
#define HARPE_SERVER_ENGINE_JOB_GROUP_H

#include "server/engine/job_state.h"

/* Finds the group that a job's metadata names with the word fleet_group=NAME. Returns false if
 * memory runs out. `*group` is NULL if the metadata names no group; otherwise free it with free().
 */
bool harpe_metadata_group(const char *metadata, char **group);

/* Sets `words` from the metadata. At most 64 bytes of a word are kept. Returns false if memory runs
 * out. */
bool harpe_job_read_words(harpe_job *job);

/* Returns true if the scope covers the job's group. */
bool harpe_job_is_in_scope(const harpe_job *job, const char *scope);

/* Answers 403: the client's token is not for the group of this job. */
void harpe_reply_out_of_scope(harpe_call *call, const harpe_job *job, const char *scope);
/* Answers 403: the client's token cannot register a job of this group (NULL: of no group). */
void harpe_reply_wrong_group(harpe_call *call, const char *group, const char *scope);

#endif
