/* SPDX-License-Identifier: Apache-2.0 */
/* What a run in a world writes: a line for each event, and what did not hold. */
#ifndef HARPE_TESTS_WORLD_NOTES_H
#define HARPE_TESTS_WORLD_NOTES_H

#include <stdio.h>

#include <harpe/callback.h>

enum { WORLD_FAULT_SIZE = 1024 };

typedef struct world_notes {
    FILE *trace; /* gets the lines; NULL: nobody wants them */
    char *fault; /* WORLD_FAULT_SIZE bytes; "": all holds */
} world_notes;

/* Writes a line with the virtual time. */
void world_tell(const world_notes *notes, const char *format, ...) HARPE_PRINTF(2, 3);
/* Says what does not hold. Only the first such line is kept in `fault`. */
void world_accuse(const world_notes *notes, const char *format, ...) HARPE_PRINTF(2, 3);

#endif
