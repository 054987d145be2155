/* SPDX-License-Identifier: Apache-2.0 */
/* What the training thread notes for a controller that asks for clocks early: the position of each
 * instruction of the schedule. Instructions at 0 MHz, which leave the clock as it is, are noted as
 * well. There is no controller process; the test reads the slot. */
#include "test.h"

#include "client/control.h"
#include "client/optimizer_internal.h"

enum { LENGTH = 3, SERIES = 5 };

static const harpe_scheduled_instruction instructions[LENGTH] = {
    {"load", 0}, {"forward", 1200}, {"reduce", 0}};
static const unsigned char here = 1;

typedef struct training {
    harpe_pipeline *optimizer;
    harpe_frequency_controller *controller;
} training;

static training start(bool wants_ends) {
    training t = {calloc(1, sizeof *t.optimizer), calloc(1, sizeof *t.controller)};
    harpe_frequency_schedule schedule = {0};
    assert_non_null(t.optimizer);
    assert_non_null(t.controller);
    t.controller->slot = aligned_alloc(128, sizeof *t.controller->slot);
    assert_non_null(t.controller->slot);
    memset(t.controller->slot, 0, sizeof *t.controller->slot);
    atomic_store(&t.controller->slot->wants_ends, wants_ends);
    harpe_frequency_schedule given = {.instructions = instructions, .instruction_count = LENGTH};
    assert_works(harpe_frequency_schedule_copy(&given, &schedule, &failure));
    t.optimizer->here = &here;
    atomic_store(&t.optimizer->measured_series, -1);
    atomic_store(&t.optimizer->controller, t.controller);
    harpe_followed_schedule *followed = harpe_followed_schedule_new(&schedule);
    assert_non_null(followed);
    followed->series = SERIES;
    harpe_schedule_post(&t.optimizer->exchange, followed);
    return t;
}

static void stop(training *t) {
    harpe_followed_schedule_free(t->optimizer->training.follower.schedule);
    free(t->controller->slot);
    free(t->controller);
    free(t->optimizer);
}

static void run_step(training *t) {
    harpe_pipeline_frequency_on_step_begin(t->optimizer);
    for (int i = 0; i < LENGTH; i++) {
        harpe_pipeline_frequency_on_instruction_begin(t->optimizer, instructions[i].instruction);
        harpe_pipeline_frequency_on_instruction_end(t->optimizer, instructions[i].instruction);
    }
    harpe_pipeline_frequency_on_step_end(t->optimizer);
}

TEST(every_position_is_noted_for_a_controller_that_asks_early) {
    training t = start(true);
    run_step(&t);
    const harpe_controller_slot *slot = t.controller->slot;
    assert_int_equal(atomic_load(&slot->note_count), 2 * LENGTH);
    for (uint32_t i = 0; i < LENGTH; i++) {
        assert_int_equal(atomic_load(&slot->notes[2 * i].what),
                         harpe_position_make(true, SERIES, i, instructions[i].frequency_mhz));
        assert_int_equal(atomic_load(&slot->notes[2 * i + 1].what),
                         harpe_position_make(false, 0, 0, 0));
    }
    assert_int_equal(atomic_load(&slot->clock_requests), 1);
    assert_int_equal(harpe_clock_request_mhz(atomic_load(&slot->request)), 1200);
    stop(&t);
}

/* Without early requests, an instruction that leaves the clock as it is costs nothing. */
TEST(nothing_is_noted_at_0_mhz_for_another_controller) {
    training t = start(false);
    run_step(&t);
    assert_int_equal(atomic_load(&t.controller->slot->note_count), 1);
    assert_int_equal(atomic_load(&t.controller->slot->clock_requests), 1);
    stop(&t);
}
