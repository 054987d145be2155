/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays and an arena: the two ways memory is held in Harpe. Sizes are checked for
 * overflow; a failed call leaves everything as it was. Not thread-safe. */
#ifndef HARPE_BASE_ARRAY_H
#define HARPE_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* calloc / realloc of `count` elements with an overflow check; NULL when it cannot be had. A count
 * of 0 gives a non-NULL pointer that can be freed. */
void *harpe_calloc(size_t count, size_t element_size);
void *harpe_realloc(void *memory, size_t count, size_t element_size);

/* Makes room for at least `needed` elements in a typed array: `items` is a T*, `capacity` a
 * size_t lvalue. Grows by half. False (and nothing changed) when out of memory. */
#define HARPE_ARRAY_RESERVE(items, capacity, needed) \
    harpe_array_reserve((void **)&(items), &(capacity), (needed), sizeof *(items))
bool harpe_array_reserve(void **items, size_t *capacity, size_t needed, size_t element_size);

/* Memory that is freed all at once. Zero-initialise, then use. */
typedef struct harpe_arena {
    struct harpe_arena_block *blocks;
    size_t total_bytes; /* handed out so far */
} harpe_arena;

/* Zeroed memory aligned for any type, or NULL. */
void *harpe_arena_alloc(harpe_arena *arena, size_t count, size_t element_size);
char *harpe_arena_strdup(harpe_arena *arena, const char *text, size_t length);
void harpe_arena_free(harpe_arena *arena); /* leaves it empty and usable */

#endif
