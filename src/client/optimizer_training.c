/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the optimizer that the training thread calls. When an instruction begins or
 * ends, they request the GPU's clock and tell the profiler. They take no lock, allocate no memory,
 * make no system call and write no log line. The optimizer's own thread does such work. With
 * HARPE_MARK_STREAM, the first mark may set up the memory and the thread of the marks, CUDA may
 * allocate memory, and a mark may wake the thread. */
#include "base/error.h"
#include "client/control.h"
#include "client/optimizer_internal.h"

/* ---- Effects of an event --------------------------------------------------------------------- */

/* An event takes effect at once. With HARPE_MARK_STREAM, it takes effect when the CUDA stream
 * reaches it. */

static void begin_instruction(harpe_pipeline *optimizer, const harpe_stream_event *event) {
    harpe_frequency_controller *controller =
        atomic_load_explicit(&optimizer->controller, memory_order_acquire);
    if (event->set_mhz > 0 || harpe_controller_wants_ends(controller))
        harpe_controller_begin_instruction(controller, event->set_mhz, event->series,
                                           event->position);
    if (event->is_measured)
        harpe_instruction_profiler_begin(optimizer->profiler, event->name, event->asked_mhz);
}

static void end_instruction(harpe_pipeline *optimizer, const harpe_stream_event *event) {
    harpe_controller_end_instruction(
        atomic_load_explicit(&optimizer->controller, memory_order_acquire));
    if (event->is_measured) harpe_instruction_profiler_end(optimizer->profiler);
}

void harpe_pipeline_carry_out(void *user, const harpe_stream_event *event) {
    harpe_pipeline *optimizer = user;
    switch (event->kind) {
    case HARPE_STREAM_EVENT_BEGIN_STEP:
        harpe_instruction_profiler_begin_step(optimizer->profiler, event->series);
        break;
    case HARPE_STREAM_EVENT_END_STEP:
        harpe_instruction_profiler_end_step(optimizer->profiler);
        break;
    case HARPE_STREAM_EVENT_CANCEL_STEP:
        harpe_instruction_profiler_cancel_step(optimizer->profiler);
        break;
    case HARPE_STREAM_EVENT_BEGIN: begin_instruction(optimizer, event); break;
    case HARPE_STREAM_EVENT_END: end_instruction(optimizer, event); break;
    }
}

static void send_event(harpe_pipeline *optimizer, const harpe_stream_event *event) {
    if (!optimizer->stream_events) {
        harpe_pipeline_carry_out(optimizer, event);
    } else if (!harpe_stream_events_send(optimizer->stream_events, event)) {
        optimizer->training.has_lost_events = true;
        atomic_store_explicit(&optimizer->has_lost_events, true, memory_order_relaxed);
    }
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void synchronize(const harpe_pipeline *optimizer) {
    if (optimizer->options.mark == HARPE_MARK_SYNCHRONIZED)
        optimizer->options.synchronize(optimizer->options.synchronize_user);
}

static void stop_measuring(harpe_pipeline *optimizer) {
    if (!optimizer->training.is_measuring) return;
    optimizer->training.is_measuring = false;
    send_event(optimizer, &(harpe_stream_event){.kind = HARPE_STREAM_EVENT_CANCEL_STEP});
}

static void note_mismatch(harpe_pipeline *optimizer, const harpe_mismatch *mismatch) {
    harpe_pipeline_training *training = &optimizer->training;
    if (!training->measures_mismatches) stop_measuring(optimizer);
    atomic_store_explicit(&optimizer->mismatches, ++training->mismatches, memory_order_relaxed);
    if (training->first_mismatch.kind == HARPE_MISMATCH_NONE) training->first_mismatch = *mismatch;
    harpe_mismatch_note *note = &optimizer->note;
    if (atomic_load_explicit(&note->is_full, memory_order_acquire)) return;
    note->mismatch = *mismatch;
    atomic_store_explicit(&note->is_full, true, memory_order_release);
}

/* The most steps of a series that are not measured because the GPU did not obey. A GPU that never
 * obeys, for example because its power limit is too low for its highest clock, is measured as it
 * is. */
enum { MOST_SPOILED = 10 };

static uint64_t count_disobeyed(const harpe_pipeline *optimizer) {
    const harpe_frequency_controller *controller =
        atomic_load_explicit(&optimizer->controller, memory_order_acquire);
    return controller ? atomic_load_explicit(&controller->slot->disobeyed, memory_order_relaxed)
                      : 0;
}

static bool has_disobeyed(const harpe_pipeline *optimizer) {
    return count_disobeyed(optimizer) != optimizer->training.disobeyed_before;
}

/* Returns true if the step must not be measured, because the GPU had another clock than it was
 * asked for. */
static bool is_spoiled(harpe_pipeline *optimizer) {
    harpe_pipeline_training *training = &optimizer->training;
    int64_t series = training->follower.schedule ? training->follower.schedule->series : -1;
    if (!has_disobeyed(optimizer)) return false;
    if (series != training->spoiled_series) training->spoiled_in_series = 0;
    training->spoiled_series = series;
    if (training->spoiled_in_series == MOST_SPOILED) return false;
    training->spoiled_in_series++;
    atomic_fetch_add_explicit(&optimizer->spoiled_steps, 1, memory_order_relaxed);
    return true;
}

/* Takes the newest schedule. It is this thread's own from now on, and the caller may change it. */
static void take_schedule(harpe_pipeline *optimizer) {
    const harpe_pipeline_frequency_options *options = &optimizer->options;
    harpe_follower *follower = &optimizer->training.follower;
    int64_t before = follower->schedule ? follower->schedule->series : -1;
    harpe_follower_begin_step(follower, &optimizer->exchange);
    const harpe_followed_schedule *found = follower->schedule;
    if (options->take_schedule && found && found->series != before)
        options->take_schedule(options->take_schedule_user,
                               (harpe_scheduled_instruction *)found->schedule.instructions,
                               found->schedule.instruction_count);
}

void harpe_pipeline_frequency_on_step_begin(harpe_pipeline_frequency_optimizer *optimizer) {
    if (harpe_pipeline_is_elsewhere(optimizer)) return;
    synchronize(optimizer);
    harpe_pipeline_training *training = &optimizer->training;
    stop_measuring(optimizer); /* if the caller has not ended the step before */
    take_schedule(optimizer);
    atomic_store_explicit(&optimizer->steps, ++training->steps, memory_order_relaxed);
    training->has_lost_events = false;
    training->was_measuring = false;
    training->disobeyed_before = count_disobeyed(optimizer);
    const harpe_followed_schedule *schedule = training->follower.schedule;
    bool is_lost = harpe_follower_is_lost(&training->follower);
    bool is_warm = training->follower.fitting_steps >= (size_t)optimizer->options.warmup_iterations;
    if (!schedule || (!is_warm && !is_lost)) return;
    if (schedule->series != atomic_load_explicit(&optimizer->measured_series, memory_order_relaxed))
        return;
    training->is_measuring = training->was_measuring = true;
    training->measures_mismatches = is_lost;
    send_event(optimizer, &(harpe_stream_event){.kind = HARPE_STREAM_EVENT_BEGIN_STEP,
                                                .series = schedule->series});
}

/* One step that has ended. */
typedef struct step_conduct {
    bool fits;    /* its instructions fitted the schedule */
    bool obeyed;  /* no look has shown another clock than the set one */
    bool is_lost; /* events of the step were lost */
    bool was_to_be_measured, is_measured;
    uint32_t wanted_mhz, held_mhz; /* if it has not obeyed */
} step_conduct;

static void add(_Atomic int64_t *count, bool counts) {
    if (!counts) return;
    int64_t value = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, value + 1, memory_order_relaxed);
}

/* Counting takes a few stores and no lock, because the training waits for it. */
static void count_conduct(harpe_conduct_counts *counts, const step_conduct *step) {
    add(&counts->steps, true);
    add(&counts->as_planned, step->fits && step->obeyed);
    add(&counts->misfits, !step->fits);
    add(&counts->misfits_measured, !step->fits && step->is_measured);
    add(&counts->disobeyed, !step->obeyed);
    add(&counts->lost, step->is_lost);
    add(&counts->left_out, step->was_to_be_measured && !step->is_measured);
    if (step->obeyed) return;
    atomic_store_explicit(&counts->wanted_mhz, step->wanted_mhz, memory_order_relaxed);
    atomic_store_explicit(&counts->held_mhz, step->held_mhz, memory_order_relaxed);
}

/* Counts the step for the report of its conduct. Steps without a schedule do not count. */
static void count_step(harpe_pipeline *optimizer, bool is_measured) {
    const harpe_pipeline_training *training = &optimizer->training;
    if (!training->follower.schedule) return;
    step_conduct step = {.fits = training->follower.fits,
                         .obeyed = !has_disobeyed(optimizer),
                         .is_lost = training->was_measuring && training->has_lost_events,
                         .was_to_be_measured = training->was_measuring,
                         .is_measured = is_measured};
    if (!step.obeyed) {
        const harpe_controller_slot *slot =
            atomic_load_explicit(&optimizer->controller, memory_order_acquire)->slot;
        step.wanted_mhz = atomic_load_explicit(&slot->disobeyed_wanted_mhz, memory_order_relaxed);
        step.held_mhz = atomic_load_explicit(&slot->disobeyed_held_mhz, memory_order_relaxed);
    }
    count_conduct(&optimizer->conduct, &step);
}

void harpe_pipeline_frequency_on_step_end(harpe_pipeline_frequency_optimizer *optimizer) {
    if (harpe_pipeline_is_elsewhere(optimizer)) return;
    synchronize(optimizer);
    harpe_pipeline_training *training = &optimizer->training;
    harpe_mismatch mismatch;
    if (!training->follower.is_in_step) return;
    if (!harpe_follower_end_step(&training->follower, &mismatch))
        note_mismatch(optimizer, &mismatch);
    if (training->has_lost_events) stop_measuring(optimizer);
    if (training->is_measuring && is_spoiled(optimizer)) stop_measuring(optimizer);
    count_step(optimizer, training->is_measuring);
    if (!training->is_measuring) return;
    training->is_measuring = false;
    send_event(optimizer, &(harpe_stream_event){.kind = HARPE_STREAM_EVENT_END_STEP});
}

/* ---- Instructions ---------------------------------------------------------------------------- */

/* Returns the position of the instruction that has just begun. */
static uint32_t position_now(const harpe_follower *follower) {
    bool is_known = follower->schedule && follower->is_in_step && follower->fits &&
                    follower->position > 0 && follower->position <= HARPE_POSITION_LOST;
    return is_known ? (uint32_t)follower->position - 1 : HARPE_POSITION_LOST;
}

void harpe_pipeline_frequency_on_instruction_begin(harpe_pipeline_frequency_optimizer *optimizer,
                                                   const char *instruction) {
    if (harpe_pipeline_is_elsewhere(optimizer)) return;
    synchronize(optimizer);
    harpe_pipeline_training *training = &optimizer->training;
    int frequency_mhz;
    harpe_mismatch mismatch;
    if (!harpe_follower_next(&training->follower, instruction, &frequency_mhz, &mismatch))
        note_mismatch(optimizer, &mismatch);
    if (frequency_mhz > 0) training->asked_mhz = frequency_mhz;
    const harpe_followed_schedule *schedule = training->follower.schedule;
    if (frequency_mhz == 0 && !training->is_measuring &&
        !harpe_controller_wants_ends(
            atomic_load_explicit(&optimizer->controller, memory_order_acquire)))
        return;
    send_event(optimizer, &(harpe_stream_event){.kind = HARPE_STREAM_EVENT_BEGIN,
                                                .is_measured = training->is_measuring,
                                                .set_mhz = frequency_mhz,
                                                .asked_mhz = training->asked_mhz,
                                                .series = schedule ? schedule->series : 0,
                                                .position = position_now(&training->follower),
                                                .name = instruction});
}

void harpe_pipeline_frequency_on_instruction_end(harpe_pipeline_frequency_optimizer *optimizer,
                                                 const char *instruction) {
    (void)instruction; /* instructions of a rank do not overlap */
    if (harpe_pipeline_is_elsewhere(optimizer)) return;
    synchronize(optimizer);
    bool is_measuring = optimizer->training.is_measuring;
    if (!is_measuring && !harpe_controller_wants_ends(
                             atomic_load_explicit(&optimizer->controller, memory_order_acquire)))
        return;
    send_event(optimizer,
               &(harpe_stream_event){.kind = HARPE_STREAM_EVENT_END, .is_measured = is_measuring});
}

harpe_status harpe_pipeline_frequency_check(harpe_pipeline_frequency_optimizer *optimizer,
                                            harpe_error *error) {
    if (harpe_pipeline_is_elsewhere(optimizer) || !optimizer->options.is_strict) return HARPE_OK;
    harpe_mismatch *first = &optimizer->training.first_mismatch;
    if (first->kind == HARPE_MISMATCH_NONE) return HARPE_OK;
    char line[512];
    harpe_mismatch_describe(first, line, sizeof line);
    first->kind = HARPE_MISMATCH_NONE;
    return harpe_fail(error, HARPE_INVALID_INPUT, "%s", line);
}

/* ---- As a callback --------------------------------------------------------------------------- */

static void step_begin(void *user) { harpe_pipeline_frequency_on_step_begin(user); }

static void step_end(void *user) { harpe_pipeline_frequency_on_step_end(user); }

static void instruction_begin(void *user, const char *instruction) {
    harpe_pipeline_frequency_on_instruction_begin(user, instruction);
}

static void instruction_end(void *user, const char *instruction) {
    harpe_pipeline_frequency_on_instruction_end(user, instruction);
}

harpe_training_callback
harpe_pipeline_frequency_callback(harpe_pipeline_frequency_optimizer *optimizer) {
    return (harpe_training_callback){.user = optimizer,
                                     .on_step_begin = step_begin,
                                     .on_step_end = step_end,
                                     .on_instruction_begin = instruction_begin,
                                     .on_instruction_end = instruction_end};
}
