/* SPDX-License-Identifier: Apache-2.0 */
/* Which changes of the clock the controller watches to learn how long they take. */
#include "test.h"

#include "client/control.h"
#include "gpu/gpus_internal.h"

enum { NEW_MHZ = 2000, LEARNT_MHZ = 1000, MEASURED_TWICE_MHZ = 1001 };

static int64_t one_second(const void *state) {
    (void)state;
    return 1000000000;
}

/* Returns whether a change is watched, although none is due. `known` entries of the table are
 * used. */
static bool watches(size_t known, uint32_t mhz) {
    static harpe_controller_slot slot;
    static harpe_obedience obedience;
    const harpe_backend backend = {.clock_ns = one_second};
    harpe_gpus gpus = {.backend = &backend};
    const harpe_controller_gpu gpu = {.gpus = &gpus};
    slot = (harpe_controller_slot){0};
    for (uint32_t i = 0; i < known; i++) {
        harpe_switch_entry entry = {.mhz = LEARNT_MHZ + i, .samples = HARPE_SWITCH_ENOUGH};
        if (entry.mhz == MEASURED_TWICE_MHZ) entry.samples = 2;
        atomic_store(&slot.switch_table.word[i], harpe_switch_pack(&entry));
    }
    obedience = (harpe_obedience){
        .slot = &slot, .gpu = &gpu, .has_thread = true, .next_watch_us = UINT64_MAX};
    harpe_obedience_ask(&obedience, mhz);
    return atomic_load(&obedience.has_change);
}

TEST(changes_are_watched_until_they_are_known) {
    assert_true(watches(2, NEW_MHZ));
    assert_true(watches(2, MEASURED_TWICE_MHZ));
    assert_false(watches(2, LEARNT_MHZ));
    /* A full table has no room for another clock. */
    assert_false(watches(HARPE_SWITCH_TARGETS, NEW_MHZ));
    assert_true(watches(HARPE_SWITCH_TARGETS, MEASURED_TWICE_MHZ));
    assert_false(watches(HARPE_SWITCH_TARGETS, LEARNT_MHZ));
}
