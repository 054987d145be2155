/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays, and arenas. Sizes are checked for overflow. A failed call changes nothing. */
#ifndef HARPE_BASE_ARRAY_H
#define HARPE_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Allocate `count` elements like calloc and realloc, with an overflow check. Return NULL on
 * failure. A count of 0 gives a non-NULL pointer that can be freed. */
void *harpe_calloc(size_t count, size_t element_size);
void *harpe_realloc(void *memory, size_t count, size_t element_size);

/* Compare two numbers for qsort, the least first. */
int harpe_compare_doubles(const void *a, const void *b);
int harpe_compare_uint32(const void *a, const void *b);

/* Sorts numbers, and returns their median. If their count is even, this is the mean of the two in
 * the middle. The median of no numbers is 0. */
double harpe_median(double *values, size_t count);

/* Makes room for at least `needed` elements in a typed array. `items` is a T*, and `capacity` is a
 * size_t lvalue. The capacity grows by half. Returns false and changes nothing when out of memory.
 */
#define HARPE_ARRAY_RESERVE(items, capacity, needed) \
    harpe_array_reserve((void **)&(items), &(capacity), (needed), sizeof *(items))
bool harpe_array_reserve(void **items, size_t *capacity, size_t needed, size_t element_size);

/* ---- Arenas ---------------------------------------------------------------------------------- */

/* Many small pieces of memory that are freed together. Not thread-safe. Initialise it with zeros
 * before use. */
typedef struct harpe_arena {
    struct harpe_arena_block *blocks;
    size_t total_bytes; /* bytes handed out so far */
    bool has_failed;    /* a piece could not be had; ask once for all pieces of a step */
} harpe_arena;

/* Returns zeroed memory that is aligned for any type, or NULL when out of memory. */
void *harpe_arena_alloc(harpe_arena *arena, size_t count, size_t element_size);
char *harpe_arena_strdup(harpe_arena *arena, const char *text, size_t length);
void harpe_arena_free(harpe_arena *arena); /* leaves the arena empty and usable */

#endif
