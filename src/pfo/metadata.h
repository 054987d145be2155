/* SPDX-License-Identifier: Apache-2.0 */
/* The words NAME=VALUE in the metadata of a job, and the id that is made of it. White space,
 * commas, semicolons and plus signs separate words. */
#ifndef HARPE_PFO_METADATA_H
#define HARPE_PFO_METADATA_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include <harpe/pfo.h>

#define HARPE_METADATA_SEPARATORS " \t\r\n,;+"

/* The words that say who runs a job, where, and with which model. The client adds the first
 * HARPE_ADDED_WORDS of them. */
enum {
    HARPE_WORD_USER,
    HARPE_WORD_SLURM_JOB,
    HARPE_WORD_NODE,
    HARPE_WORD_NODES,
    HARPE_ADDED_WORDS,
    HARPE_WORD_MODEL = HARPE_ADDED_WORDS,
    HARPE_WORDS,
};
extern const char *const harpe_word_names[HARPE_WORDS];

/* Finds the next word with this name in the text at `*place`. Returns its value, stores the length
 * of the value, and moves `*place` past the word. Returns NULL if there is no such word. */
const char *harpe_metadata_next(const char **place, const char *name, size_t *length);

/* Makes the id of a job that registered at local time `when` with `scheduler`:
 * YYYY-MM-DD-HH-MM-SS+dpD+ppP+tpT+SCHEDULER[+METADATA]. `repetition` 1 adds nothing, 2 adds ".2"
 * after the time, and so on. Characters of scheduler and metadata outside [A-Za-z0-9._:=,@-] become
 * '_', and at most 128 characters of each of the two are kept. The caller frees the id with free();
 * NULL when out of memory. */
char *harpe_job_id_make(const harpe_job_info *job, const char *scheduler, time_t when,
                        int repetition);
/* Returns true if `id` has the form of Harpe's ids: 1 to 512 characters of [A-Za-z0-9._:=,@+-], of
 * which the first is not '.'. Only such an id may become a path. */
bool harpe_job_id_is_valid(const char *id);

#endif
