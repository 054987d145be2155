/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees the pipeline frequency optimizer, and returns its status. Other files do the
 * work: optimizer_training.c follows a schedule on the training thread, optimizer_thread.c talks to
 * the server, optimizer_gpu.c keeps the GPU's controller alive, and the instruction profiler
 * measures. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "client/optimizer_internal.h"

const harpe_pipeline_timeouts harpe_pipeline_usual_timeouts = {.trial_alone_s = 10,
                                                               .trial_stagnant_s = 600,
                                                               .held_s = 600,
                                                               .answer_s = 30,
                                                               .report_s = 20,
                                                               .meeting_s = 3,
                                                               .end_notice_s = 1,
                                                               .first_pause_s = 0.1,
                                                               .longest_pause_s = 5,
                                                               .first_controller_pause_s = 1,
                                                               .measuring_period_s = 0.02};

void harpe_pipeline_say(const harpe_pipeline *optimizer, harpe_log_level level, const char *format,
                        ...) {
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix,
                   "pipeline frequency optimizer, rank %d: ", optimizer->options.rank);
    va_list arguments;
    va_start(arguments, format);
    harpe_log_prefixed_line(&optimizer->options.log, level, prefix, format, arguments);
    va_end(arguments);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Makes a page of memory that becomes zero in a forked child, so that the child recognises itself
 * without a system call. Kernels before 4.14 do not support such pages; there, a child that calls
 * the optimizer is treated like its parent. */
static harpe_status make_here(harpe_pipeline *optimizer, harpe_error *error) {
    unsigned char *page =
        mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return harpe_fail_memory(error);
    (void)madvise(page, page_size(), MADV_WIPEONFORK);
    *page = 1;
    optimizer->here = page;
    return HARPE_OK;
}

/* Opens the GPU. In strict mode a GPU that is missing or cannot be controlled is an error;
 * otherwise it is logged. */
static harpe_status take_gpu(harpe_pipeline *optimizer, harpe_error *error) {
    bool wants_clocks = !optimizer->options.leave_clocks_alone;
    harpe_error reason;
    harpe_status status = harpe_pipeline_find_gpu(optimizer, &reason);
    if (status == HARPE_OK && wants_clocks) {
        status = harpe_pipeline_start_controller(optimizer, &reason);
        optimizer->care.is_wanted = true;
    }
    if (status == HARPE_OK) return HARPE_OK;
    if (optimizer->options.is_strict)
        return harpe_fail(error, status, "pipeline frequency: %.900s", reason.message);
    optimizer->care.told = status;
    harpe_pipeline_plan_next_start(optimizer);
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                       "clocks are not controlled, training continues: %s", reason.message);
    return HARPE_OK;
}

/* Makes the profiler. If energy cannot be measured, the profiler measures only times. */
static harpe_status make_profiler(harpe_pipeline *optimizer, harpe_error *error) {
    harpe_instruction_profiler_options how = {.gpus = optimizer->gpus,
                                              .gpu = optimizer->options.device_id,
                                              .sample_period_s =
                                                  optimizer->timeouts.sample_period_s,
                                              .event_capacity = optimizer->timeouts.event_capacity,
                                              .log = optimizer->options.log};
    harpe_error reason;
    harpe_status status = harpe_instruction_profiler_new(&how, &optimizer->profiler, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    if (!how.gpus || optimizer->options.is_strict)
        return harpe_fail(error, status, "pipeline frequency: %.900s", reason.message);
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING, "only times are measured, without energy: %s",
                       reason.message);
    how.gpus = NULL;
    return harpe_instruction_profiler_new(&how, &optimizer->profiler, error);
}

static void make_stream_events(harpe_pipeline *optimizer) {
    if (optimizer->options.mark != HARPE_MARK_STREAM) return;
    optimizer->stream_events = harpe_stream_events_new(optimizer->options.cuda_stream,
                                                       harpe_pipeline_carry_out, optimizer);
    if (!optimizer->stream_events) {
        harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                           "this process has not loaded CUDA: instructions are marked when they "
                           "are enqueued");
    }
}

static harpe_status start_thread(harpe_pipeline *optimizer, harpe_error *error) {
    int code = harpe_thread_start(&optimizer->thread, "harpe-pfo", harpe_pipeline_run, optimizer);
    if (code) return harpe_fail_errno(error, code, "pipeline frequency: starting a thread");
    optimizer->has_thread = true;
    return HARPE_OK;
}

static harpe_status build(harpe_pipeline *optimizer,
                          const harpe_pipeline_frequency_options *options, harpe_error *error) {
    harpe_status status = harpe_pipeline_take_options(optimizer, options, error);
    if (status == HARPE_OK) status = make_here(optimizer, error);
    if (status != HARPE_OK) {
        harpe_pipeline_miss_meeting(options);
        return status;
    }
    /* This comes before any step that may fail on one rank alone, because the other ranks wait in
     * the broadcast. */
    status = harpe_pipeline_agree_on_job(optimizer, error);
    if (status == HARPE_OK) status = take_gpu(optimizer, error);
    if (status == HARPE_OK) status = harpe_pipeline_format_rank(optimizer, error);
    if (status == HARPE_OK) status = make_profiler(optimizer, error);
    if (status != HARPE_OK) return status;
    make_stream_events(optimizer);
    harpe_connection_options how = {.server_url = optimizer->options.server_url,
                                    .token = optimizer->options.token,
                                    .ca_file = optimizer->options.ca_file,
                                    .answer_limit_s = optimizer->timeouts.answer_s,
                                    .held_s = optimizer->timeouts.held_s,
                                    .go_on = harpe_pipeline_go_on,
                                    .user = optimizer};
    status = harpe_connection_new(&how, &optimizer->conversation.connection, error);
    return status != HARPE_OK ? status : start_thread(optimizer, error);
}

static harpe_pipeline *make_empty(void) {
    harpe_pipeline *optimizer = harpe_calloc(1, sizeof *optimizer);
    if (!optimizer) return NULL;
    (void)pthread_cond_init(&optimizer->changed, NULL);
    (void)pthread_mutex_init(&optimizer->lock, NULL);
    optimizer->round = optimizer->conversation.round = -1;
    optimizer->measured_series = -1;
    return optimizer;
}

harpe_status harpe_pipeline_new_with(const harpe_pipeline_frequency_options *options,
                                     const harpe_pipeline_timeouts *timeouts, harpe_pipeline **out,
                                     harpe_error *error) {
    if (!options || !out) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: no options were given");
    }
    harpe_pipeline *optimizer = make_empty();
    if (!optimizer) return harpe_fail_memory(error);
    optimizer->timeouts = *timeouts;
    harpe_status status = build(optimizer, options, error);
    if (status != HARPE_OK) {
        harpe_pipeline_frequency_free(optimizer);
        return status;
    }
    *out = optimizer;
    return HARPE_OK;
}

harpe_status harpe_pipeline_frequency_new(const harpe_pipeline_frequency_options *options,
                                          harpe_pipeline_frequency_optimizer **out,
                                          harpe_error *error) {
    return harpe_pipeline_new_with(options, &harpe_pipeline_usual_timeouts, out, error);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void end_thread(harpe_pipeline *optimizer) {
    if (!optimizer->has_thread) return;
    harpe_lock(&optimizer->lock);
    atomic_store(&optimizer->is_stopping, true);
    harpe_broadcast(&optimizer->changed);
    harpe_unlock(&optimizer->lock);
    harpe_connection_wake(optimizer->conversation.connection);
    harpe_thread_join(optimizer->thread);
}

void harpe_pipeline_frequency_free(harpe_pipeline_frequency_optimizer *optimizer) {
    /* A child has neither the threads nor the right to use the GPU. Its memory is freed when it
     * ends. */
    if (!optimizer || (optimizer->here && !*optimizer->here)) return;
    end_thread(optimizer);
    harpe_stream_events_free(optimizer->stream_events);
    harpe_frequency_controller_stop(atomic_load(&optimizer->controller));
    harpe_instruction_profiler_free(optimizer->profiler);
    harpe_connection_free(optimizer->conversation.connection);
    if (optimizer->owns_gpus) harpe_gpus_close(optimizer->gpus);
    harpe_schedule_exchange_clear(&optimizer->exchange);
    harpe_followed_schedule_free(optimizer->training.follower.schedule);
    free(optimizer->conversation.report);
    free(optimizer->clocks_mhz);
    harpe_pipeline_forget_options(optimizer);
    if (optimizer->here) (void)munmap((void *)optimizer->here, page_size());
    (void)pthread_cond_destroy(&optimizer->changed);
    (void)pthread_mutex_destroy(&optimizer->lock);
    free(optimizer);
}

/* ---- Status ---------------------------------------------------------------------------------- */

harpe_pipeline_frequency_status
harpe_pipeline_frequency_get_status(harpe_pipeline_frequency_optimizer *optimizer) {
    harpe_pipeline_frequency_status status = {.state = HARPE_PFO_OFF, .round = -1};
    if (harpe_pipeline_is_elsewhere(optimizer)) return status;
    harpe_lock(&optimizer->lock);
    status.state = optimizer->state;
    status.round = optimizer->round;
    status.reconnects = optimizer->reconnects;
    memcpy(status.job_id, optimizer->job_id, sizeof status.job_id);
    harpe_unlock(&optimizer->lock);
    status.steps = atomic_load_explicit(&optimizer->steps, memory_order_relaxed);
    status.misfits = atomic_load_explicit(&optimizer->mismatches, memory_order_relaxed);
    const harpe_frequency_controller *controller =
        atomic_load_explicit(&optimizer->controller, memory_order_acquire);
    if (controller) status.controller = harpe_frequency_controller_count(controller);
    return status;
}

uint64_t
harpe_pipeline_frequency_spoiled_steps(const harpe_pipeline_frequency_optimizer *optimizer) {
    if (harpe_pipeline_is_elsewhere(optimizer)) return 0;
    return atomic_load_explicit(&optimizer->spoiled_steps, memory_order_relaxed);
}

harpe_status
harpe_pipeline_frequency_set_tokens_per_step(harpe_pipeline_frequency_optimizer *optimizer,
                                             int64_t tokens, harpe_error *error) {
    if (tokens < 0 || tokens > HARPE_TOKENS_MAX) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "tokens per step: expected 1 to %d, or 0 for not known",
                          HARPE_TOKENS_MAX);
    }
    if (harpe_pipeline_is_elsewhere(optimizer)) return HARPE_OK;
    atomic_store_explicit(&optimizer->tokens_per_step, tokens, memory_order_relaxed);
    return HARPE_OK;
}

harpe_pipeline_frequency_status
harpe_pipeline_frequency_look(harpe_pipeline_frequency_optimizer *optimizer) {
    return harpe_pipeline_frequency_get_status(optimizer);
}

static harpe_status wait_for_round(harpe_pipeline *optimizer, int64_t round, int64_t until_ns) {
    harpe_status status = HARPE_OK;
    harpe_lock(&optimizer->lock);
    while (status == HARPE_OK && optimizer->round < round) {
        bool is_over = optimizer->state == HARPE_PFO_OFF ||
                       !harpe_wait_until(&optimizer->changed, &optimizer->lock, until_ns);
        if (is_over && optimizer->round < round) status = HARPE_UNAVAILABLE;
    }
    harpe_unlock(&optimizer->lock);
    return status;
}

harpe_status harpe_pipeline_frequency_wait_for_round(harpe_pipeline_frequency_optimizer *optimizer,
                                                     int64_t round, double at_most_s,
                                                     harpe_error *error) {
    if (harpe_pipeline_is_elsewhere(optimizer) || !(at_most_s >= 0)) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: no optimizer, or a negative time to wait");
    }
    double longest_s = 1e9; /* some 30 years; a larger value could overflow */
    int64_t until_ns =
        harpe_clock_ns() + (int64_t)((at_most_s < longest_s ? at_most_s : longest_s) * 1e9);
    if (wait_for_round(optimizer, round, until_ns) == HARPE_OK) return HARPE_OK;
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "pipeline frequency: rank %d has no schedule of round %lld yet: have all "
                      "ranks started, and does the log say anything of the server?",
                      optimizer->options.rank, (long long)round);
}
