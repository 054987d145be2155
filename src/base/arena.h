/* SPDX-License-Identifier: Apache-2.0 */
/* An arena holds many small pieces of memory that are freed together. Not thread-safe. */
#ifndef HARPE_BASE_ARENA_H
#define HARPE_BASE_ARENA_H

#include <stddef.h>

/* Memory that is freed all at once. Initialise it with zeros before use. */
typedef struct harpe_arena {
    struct harpe_arena_block *blocks;
    size_t total_bytes; /* bytes handed out so far */
} harpe_arena;

/* Returns zeroed memory that is aligned for any type, or NULL when out of memory. */
void *harpe_arena_alloc(harpe_arena *arena, size_t count, size_t element_size);
char *harpe_arena_strdup(harpe_arena *arena, const char *text, size_t length);
void harpe_arena_free(harpe_arena *arena); /* leaves the arena empty and usable */

#endif
