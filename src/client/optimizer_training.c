/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer on the training thread: what an instruction's begin and end do to the GPU's clock
 * and to the profiler. No lock, no allocation, no system call, no log line: all that is left to the
 * optimizer's own thread. */
#include "base/error.h"
#include "client/optimizer_parts.h"

/* ---- What happens, now or when the stream comes there ---------------------------------------- */

static void begin_instruction(harpe_pipeline *optimizer, const harpe_marked_event *event) {
    if (event->set_mhz > 0) {
        harpe_frequency_controller *controller =
            atomic_load_explicit(&optimizer->controller, memory_order_acquire);
        if (controller) harpe_frequency_controller_set(controller, event->set_mhz);
    }
    if (event->is_measured) {
        harpe_instruction_profiler_begin(optimizer->profiler, event->name, event->asked_mhz);
    }
}

void harpe_pipeline_carry_out(void *user, const harpe_marked_event *event) {
    harpe_pipeline *optimizer = user;
    switch (event->kind) {
    case HARPE_MARKED_BEGIN_STEP:
        harpe_instruction_profiler_begin_step(optimizer->profiler, event->series);
        break;
    case HARPE_MARKED_END_STEP: harpe_instruction_profiler_end_step(optimizer->profiler); break;
    case HARPE_MARKED_CANCEL_STEP:
        harpe_instruction_profiler_cancel_step(optimizer->profiler);
        break;
    case HARPE_MARKED_BEGIN: begin_instruction(optimizer, event); break;
    case HARPE_MARKED_END: harpe_instruction_profiler_end(optimizer->profiler); break;
    }
}

static void mark(harpe_pipeline *optimizer, const harpe_marked_event *event) {
    if (!optimizer->marks) {
        harpe_pipeline_carry_out(optimizer, event);
    } else if (!harpe_marks_send(optimizer->marks, event)) {
        optimizer->training.has_lost_marks = true;
        atomic_store_explicit(&optimizer->has_lost_marks, true, memory_order_relaxed);
    }
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void synchronize(const harpe_pipeline *optimizer) {
    if (optimizer->options.mark == HARPE_MARK_SYNCHRONIZED) {
        optimizer->options.synchronize(optimizer->options.synchronize_user);
    }
}

static void stop_measuring(harpe_pipeline *optimizer) {
    if (!optimizer->training.is_measuring) return;
    optimizer->training.is_measuring = false;
    mark(optimizer, &(harpe_marked_event){.kind = HARPE_MARKED_CANCEL_STEP});
}

static void note_misfit(harpe_pipeline *optimizer, const harpe_misfit *misfit) {
    harpe_pipeline_training *training = &optimizer->training;
    if (!training->measures_misfits) stop_measuring(optimizer);
    atomic_store_explicit(&optimizer->misfits, ++training->misfits, memory_order_relaxed);
    if (training->first_misfit.kind == HARPE_MISFIT_NONE) training->first_misfit = *misfit;
    harpe_misfit_note *note = &optimizer->note;
    if (atomic_load_explicit(&note->is_full, memory_order_acquire)) return;
    note->misfit = *misfit;
    atomic_store_explicit(&note->is_full, true, memory_order_release);
}

void harpe_pipeline_frequency_on_step_begin(harpe_pipeline_frequency_optimizer *optimizer) {
    if (harpe_pipeline_is_elsewhere(optimizer)) return;
    synchronize(optimizer);
    harpe_pipeline_training *training = &optimizer->training;
    stop_measuring(optimizer); /* a step that was not ended */
    harpe_follower_begin_step(&training->follower, &optimizer->exchange);
    atomic_store_explicit(&optimizer->steps, ++training->steps, memory_order_relaxed);
    training->has_lost_marks = false;
    const harpe_followed_schedule *schedule = training->follower.schedule;
    bool is_lost = harpe_follower_is_lost(&training->follower);
    bool is_warm = training->follower.fitting_steps >= (size_t)optimizer->options.warmup_iterations;
    if (!schedule || (!is_warm && !is_lost)) return;
    if (schedule->series != atomic_load_explicit(&optimizer->measured_series, memory_order_relaxed))
        return;
    training->is_measuring = true;
    training->measures_misfits = is_lost;
    mark(optimizer,
         &(harpe_marked_event){.kind = HARPE_MARKED_BEGIN_STEP, .series = schedule->series});
}

void harpe_pipeline_frequency_on_step_end(harpe_pipeline_frequency_optimizer *optimizer) {
    if (harpe_pipeline_is_elsewhere(optimizer)) return;
    synchronize(optimizer);
    harpe_pipeline_training *training = &optimizer->training;
    harpe_misfit misfit;
    if (!training->follower.is_in_step) return;
    if (!harpe_follower_end_step(&training->follower, &misfit)) note_misfit(optimizer, &misfit);
    if (training->has_lost_marks) stop_measuring(optimizer);
    if (!training->is_measuring) return;
    training->is_measuring = false;
    mark(optimizer, &(harpe_marked_event){.kind = HARPE_MARKED_END_STEP});
}

/* ---- Instructions ---------------------------------------------------------------------------- */

void harpe_pipeline_frequency_on_instruction_begin(harpe_pipeline_frequency_optimizer *optimizer,
                                                   const char *instruction) {
    if (harpe_pipeline_is_elsewhere(optimizer)) return;
    synchronize(optimizer);
    harpe_pipeline_training *training = &optimizer->training;
    int frequency_mhz;
    harpe_misfit misfit;
    if (!harpe_follower_next(&training->follower, instruction, &frequency_mhz, &misfit)) {
        note_misfit(optimizer, &misfit);
    }
    if (frequency_mhz > 0) training->asked_mhz = frequency_mhz;
    if (frequency_mhz == 0 && !training->is_measuring) return;
    mark(optimizer, &(harpe_marked_event){.kind = HARPE_MARKED_BEGIN,
                                          .is_measured = training->is_measuring,
                                          .set_mhz = frequency_mhz,
                                          .asked_mhz = training->asked_mhz,
                                          .name = instruction});
}

void harpe_pipeline_frequency_on_instruction_end(harpe_pipeline_frequency_optimizer *optimizer,
                                                 const char *instruction) {
    (void)instruction; /* instructions of a rank do not overlap */
    if (harpe_pipeline_is_elsewhere(optimizer)) return;
    synchronize(optimizer);
    if (!optimizer->training.is_measuring) return;
    mark(optimizer, &(harpe_marked_event){.kind = HARPE_MARKED_END});
}

harpe_status harpe_pipeline_frequency_check(harpe_pipeline_frequency_optimizer *optimizer,
                                            harpe_error *error) {
    if (harpe_pipeline_is_elsewhere(optimizer) || !optimizer->options.is_strict) return HARPE_OK;
    harpe_misfit *first = &optimizer->training.first_misfit;
    if (first->kind == HARPE_MISFIT_NONE) return HARPE_OK;
    char line[512];
    harpe_misfit_describe(first, line, sizeof line);
    first->kind = HARPE_MISFIT_NONE;
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
