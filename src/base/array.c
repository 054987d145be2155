/* SPDX-License-Identifier: Apache-2.0 */
/* Checked allocation and growing arrays. Every size is a count times an element size, and the
 * product is checked before memory is allocated. This file reports no errors. Its callers do. */
#include "base/array.h"

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
