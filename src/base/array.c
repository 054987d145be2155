/* SPDX-License-Identifier: Apache-2.0 */
/* Checked allocation and growing arrays. Every size is a count times an element size, and the
 * product is checked before memory is allocated. This file reports no errors. Its callers do. */
#include "base/array.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST_CAPACITY = 8 };

void *harpe_calloc(size_t count, size_t element_size) {
    if (count == 0 || element_size == 0) return calloc(1, 1);
    return calloc(count, element_size); /* calloc checks the product itself */
}

void *harpe_realloc(void *memory, size_t count, size_t element_size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, element_size, &bytes)) return NULL;
    return realloc(memory, bytes > 0 ? bytes : 1);
}

int harpe_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int harpe_compare_uint32(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

double harpe_median(double *values, size_t count) {
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, harpe_compare_doubles);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

bool harpe_array_reserve(void **items, size_t *capacity, size_t needed, size_t element_size) {
    if (needed <= *capacity) return true;
    size_t grown = *capacity <= SIZE_MAX / 2 ? *capacity + *capacity / 2 : SIZE_MAX;
    if (grown < SMALLEST_CAPACITY) grown = SMALLEST_CAPACITY;
    if (grown < needed) grown = needed;
    /* The caller's pointer is a T*, not a void*, so it is copied as bytes and never accessed as
     * void*. */
    void *memory;
    memcpy(&memory, items, sizeof memory);
    memory = harpe_realloc(memory, grown, element_size);
    if (!memory) return false;
    memcpy(items, &memory, sizeof memory);
    *capacity = grown;
    return true;
}

/* ---- Arenas ---------------------------------------------------------------------------------- */

/* The arena takes many small pieces of memory from a few large blocks and frees all pieces
 * together. A piece cannot be freed or grown on its own. Objects that can grow use arrays. */

enum { FIRST_BLOCK_BYTES = 4096, LARGEST_BLOCK_BYTES = 1 << 20 };

struct harpe_arena_block {
    struct harpe_arena_block *next;
    size_t used;
    size_t size;
    alignas(max_align_t) unsigned char bytes[];
};

/* Adds a block of at least `bytes`. Each block is twice as large as the block before it, up to a
 * limit. The new block becomes the first in the list, and the next pieces come from it. The rest of
 * the older block stays unused. */
static bool add_block(harpe_arena *arena, size_t bytes) {
    size_t size = arena->blocks ? arena->blocks->size * 2 : FIRST_BLOCK_BYTES;
    if (size > LARGEST_BLOCK_BYTES) size = LARGEST_BLOCK_BYTES;
    if (size < bytes) size = bytes;
    size_t total;
    if (__builtin_add_overflow(size, sizeof(struct harpe_arena_block), &total)) return false;
    struct harpe_arena_block *block = calloc(1, total);
    if (!block) return false;
    block->size = size;
    block->next = arena->blocks;
    arena->blocks = block;
    return true;
}

void *harpe_arena_alloc(harpe_arena *arena, size_t count, size_t element_size) {
    size_t bytes;
    bool is_too_large = __builtin_mul_overflow(count, element_size, &bytes) ||
                        __builtin_add_overflow(bytes, alignof(max_align_t) - 1, &bytes);
    bytes &= ~(alignof(max_align_t) - 1);
    if (bytes == 0) bytes = alignof(max_align_t);
    bool has_room =
        !is_too_large && arena->blocks && arena->blocks->size - arena->blocks->used >= bytes;
    if (is_too_large || (!has_room && !add_block(arena, bytes))) {
        arena->has_failed = true;
        return NULL;
    }
    void *piece = arena->blocks->bytes + arena->blocks->used;
    arena->blocks->used += bytes;
    arena->total_bytes += bytes;
    return piece;
}

char *harpe_arena_strdup(harpe_arena *arena, const char *text, size_t length) {
    if (length == SIZE_MAX) return NULL;
    char *copy = harpe_arena_alloc(arena, length + 1, 1);
    if (!copy) return NULL;
    if (length > 0) memcpy(copy, text, length);
    return copy; /* blocks contain zeros, so the copy ends in NUL */
}

void harpe_arena_free(harpe_arena *arena) {
    while (arena->blocks) {
        struct harpe_arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->total_bytes = 0;
    arena->has_failed = false;
}
