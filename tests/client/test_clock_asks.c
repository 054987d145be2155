/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of requests in the slot. The copied requests are the newest ones, without gaps and in
 * order, also if the writer overtakes the reader. */
#include "test.h"

#include <pthread.h>

#include "client/control.h"

static harpe_controller_slot *slot;
static harpe_clock_ask *asks;

static int start(void **state) {
    (void)state;
    slot = aligned_alloc(_Alignof(harpe_controller_slot), sizeof *slot);
    asks = calloc(HARPE_CONTROLLER_ASKS, sizeof *asks);
    if (!slot || !asks) return -1;
    *slot = (harpe_controller_slot){0};
    return 0;
}

static int end(void **state) {
    (void)state;
    free(slot);
    free(asks);
    return 0;
}

/* Request i: its time is i, and its clock follows from i. */
static uint32_t mhz_of(uint64_t i) { return (uint32_t)(1 + i % 65521); }
static void add(uint64_t i) { harpe_clock_asks_add(slot, i, mhz_of(i)); }

/* Checks that the `count` copied requests follow each other. Returns the time of the first. */
static uint64_t assert_consecutive(size_t count) {
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(asks[i].asked_us, asks[0].asked_us + i);
        assert_int_equal(asks[i].mhz, mhz_of(asks[i].asked_us));
    }
    return asks[0].asked_us;
}

TEST_WITH(the_newest_requests_are_copied, start, end) {
    bool has_lost = true;
    uint64_t made = 0;
    assert_int_equal(harpe_clock_asks_copy(slot, asks, &has_lost), 0);
    assert_false(has_lost);
    for (; made < HARPE_CONTROLLER_ASKS - 1; made++)
        add(made);
    assert_int_equal(harpe_clock_asks_copy(slot, asks, &has_lost), made);
    assert_false(has_lost);
    assert_int_equal(assert_consecutive(made), 0);
    for (; made < 3 * HARPE_CONTROLLER_ASKS + 17; made++)
        add(made);
    size_t count = harpe_clock_asks_copy(slot, asks, &has_lost);
    assert_int_equal(count, HARPE_CONTROLLER_ASKS - 1);
    assert_true(has_lost);
    assert_int_equal(assert_consecutive(count) + count, made);
}

static atomic_bool is_over;

static void *write_without_pause(void *ignored) {
    for (uint64_t i = 0; !atomic_load(&is_over); i++)
        add(i);
    return ignored;
}

/* Copies until the writer has overtaken the reader during LAPPED copies. */
TEST_WITH(a_writer_that_laps_the_reader_leaves_no_disorder, start, end) {
    enum { LAPPED = 5 };
    pthread_t writer;
    int lapped = 0;
    atomic_store(&is_over, false);
    assert_int_equal(pthread_create(&writer, NULL, write_without_pause, NULL), 0);
    while (lapped < LAPPED) {
        bool has_lost;
        uint64_t before = atomic_load(&slot->ask_count);
        size_t count = harpe_clock_asks_copy(slot, asks, &has_lost);
        if (count > 0) {
            uint64_t first = assert_consecutive(count);
            assert_int_equal(has_lost, first > 0);
            assert_true(first + count >= before);
        }
        if (before >= HARPE_CONTROLLER_ASKS && count < HARPE_CONTROLLER_ASKS - 1) lapped++;
    }
    atomic_store(&is_over, true);
    assert_int_equal(pthread_join(writer, NULL), 0);
}
