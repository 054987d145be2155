/* SPDX-License-Identifier: Apache-2.0 */
/* The words NAME=VALUE in the metadata of a job. White space, commas, semicolons and plus signs
 * separate words. */
#ifndef HARPE_PFO_METADATA_H
#define HARPE_PFO_METADATA_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
