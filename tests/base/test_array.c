/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays and the arena: contents survive growth, sizes that overflow are refused without
 * harm, and pieces of an arena are zeroed, aligned and separate. Also tests the clock. */
#include "test.h"

#include <stdalign.h>

#include "base/array.h"
#include "base/clock.h"

TEST(count_of_zero_gives_memory_that_can_be_freed) {
    void *memory = harpe_calloc(0, sizeof(int));
    assert_non_null(memory);
    free(memory);
    memory = harpe_realloc(NULL, 0, sizeof(int));
    assert_non_null(memory);
    memory = harpe_realloc(memory, 0, sizeof(int));
    assert_non_null(memory);
    free(memory);
}

TEST(overflowing_size_gives_null) {
    assert_null(harpe_calloc(SIZE_MAX / 2, 4));
    assert_null(harpe_realloc(NULL, SIZE_MAX / 2, 4));
}

TEST(array_keeps_its_items_while_it_grows) {
    owned_array int *items = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 10000; i++) {
        assert_true(HARPE_ARRAY_RESERVE(items, capacity, (size_t)i + 1));
        assert_true(capacity >= (size_t)i + 1);
        items[i] = i;
    }
    for (int i = 0; i < 10000; i++)
        assert_int_equal(items[i], i);
    assert_true(capacity <= 15001); /* grows by half, not to double the size */
}

TEST(reserve_within_capacity_does_not_move) {
    owned_array double *items = NULL;
    size_t capacity = 0;
    assert_true(HARPE_ARRAY_RESERVE(items, capacity, 100));
    double *before = items;
    assert_true(HARPE_ARRAY_RESERVE(items, capacity, 100));
    assert_true(HARPE_ARRAY_RESERVE(items, capacity, 0));
    assert_ptr_equal(items, before);
}

TEST(failed_reserve_changes_nothing) {
    owned_array int64_t *items = NULL;
    size_t capacity = 0;
    assert_true(HARPE_ARRAY_RESERVE(items, capacity, 3));
    items[2] = 42;
    int64_t *before = items;
    size_t capacity_before = capacity;
    assert_false(HARPE_ARRAY_RESERVE(items, capacity, SIZE_MAX / 4));
    assert_ptr_equal(items, before);
    assert_int_equal(capacity, capacity_before);
    assert_int_equal(items[2], 42);
}

TEST(arena_pieces_are_zeroed_aligned_and_apart) {
    enum { PIECES = 3000 };
    AT_END(harpe_arena_free) harpe_arena arena = {0};
    unsigned char *pieces[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        size_t size = 1 + i % 37;
        pieces[i] = harpe_arena_alloc(&arena, size, 1);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % alignof(max_align_t), 0);
        for (size_t k = 0; k < size; k++)
            assert_int_equal(pieces[i][k], 0);
        memset(pieces[i], (int)(i % 251) + 1, size);
    }
    for (size_t i = 0; i < PIECES; i++) {
        assert_int_equal(pieces[i][0], i % 251 + 1);
        assert_int_equal(pieces[i][i % 37], i % 251 + 1);
    }
    assert_true(arena.total_bytes >= (size_t)PIECES);
}

TEST(arena_gives_pieces_larger_than_any_block) {
    AT_END(harpe_arena_free) harpe_arena arena = {0};
    char *small = harpe_arena_alloc(&arena, 10, 1);
    char *large = harpe_arena_alloc(&arena, 5 << 20, 1);
    assert_non_null(small);
    assert_non_null(large);
    large[(5 << 20) - 1] = 1;
    assert_non_null(harpe_arena_alloc(&arena, 10, 1));
}

TEST(arena_refuses_overflow_and_stays_usable) {
    harpe_arena arena = {0};
    assert_null(harpe_arena_alloc(&arena, SIZE_MAX / 2, 4));
    assert_null(harpe_arena_alloc(&arena, SIZE_MAX, 1));
    assert_null(harpe_arena_alloc(&arena, SIZE_MAX - 64, 1));
    assert_null(harpe_arena_strdup(&arena, "", SIZE_MAX));
    assert_int_equal(arena.total_bytes, 0);
    assert_non_null(harpe_arena_alloc(&arena, 0, 8));
    harpe_arena_free(&arena);
    assert_non_null(harpe_arena_alloc(&arena, 1, 8));
    harpe_arena_free(&arena);
}

TEST(arena_copies_text_of_given_length) {
    AT_END(harpe_arena_free) harpe_arena arena = {0};
    assert_string_equal(harpe_arena_strdup(&arena, "forward,rest", 7), "forward");
    assert_string_equal(harpe_arena_strdup(&arena, NULL, 0), "");
}

TEST(median_is_in_the_middle) {
    double odd[] = {3, 1, 2}, even[] = {4, 1, 8, 2};
    assert_true(harpe_median(odd, 3) == 2 && odd[0] == 1);
    assert_true(harpe_median(even, 4) == 3);
    assert_true(harpe_median(even, 0) == 0);
}

TEST(clock_never_runs_backwards) {
    int64_t last_ns = harpe_clock_ns();
    assert_true(last_ns > 0);
    for (int i = 0; i < 1000; i++) {
        int64_t now_ns = harpe_clock_ns();
        assert_true(now_ns >= last_ns);
        last_ns = now_ns;
    }
    assert_true(harpe_clock_s() - (double)last_ns * 1e-9 < 60.0);
    assert_true(harpe_clock_s() - (double)last_ns * 1e-9 >= -1e-6);
}
