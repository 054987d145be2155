/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's GPU: lists its clocks, keeps a frequency controller alive, and reports at which
 * clocks the instructions of a round really ran. This file sets no clocks. Without a GPU, or
 * without permission, training and measuring continue. */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "client/clock_shares.h"
#include "client/control.h"
#include "client/optimizer_internal.h"
#include "client/profiler_internal.h"
#include "gpu/gpus.h"
#include "lease/lease.h"
#include "pfo/rank_clocks.h"

#define LONGEST_PAUSE_S 30.0
#define LOOK_NS INT64_C(100000000)         /* between two looks at the controller */
#define TELL_AGAIN_NS INT64_C(60000000000) /* at first; each time twice as long */
#define TELL_AGAIN_MOST_NS INT64_C(3600000000000)

enum { ENOUGH_LOOKS = 3 }; /* a clock that differs only once is not logged */

/* ---- Clocks ---------------------------------------------------------------------------------- */

/* Returns the range of clocks that the node agent allows. The server must not plan other clocks. */
static harpe_lease_terms read_limits(const harpe_pipeline *optimizer) {
    const harpe_pipeline_frequency_options *options = &optimizer->options;
    harpe_lease_terms limits = {.is_lease = 0};
    harpe_zeusd_address zeusd;
    char agent[HARPE_LEASE_SOCKET_SIZE];
    if (options->leave_clocks_alone ||
        harpe_zeusd_find(options->controller.zeusd_socket, &zeusd, NULL) != HARPE_OK ||
        harpe_zeusd_is_given(&zeusd.place) || !harpe_lease_find_agent(optimizer->gpus, agent))
        return limits;
    const char *uuid = harpe_gpu_info_at(optimizer->gpus, options->device_id)->uuid;
    harpe_lease_read_limits(agent, uuid, &limits);
    return limits;
}

static harpe_status list_clocks(harpe_pipeline *optimizer, harpe_error *error) {
    uint32_t memory_mhz;
    uint32_t *graphics = NULL;
    size_t count = 0;
    harpe_status status = harpe_gpus_full_speed_clocks(
        optimizer->gpus, optimizer->options.device_id, &memory_mhz, &graphics, &count, error);
    if (status != HARPE_OK) return status;
    harpe_lease_terms limits = read_limits(optimizer);
    uint32_t lowest_mhz = (uint32_t)optimizer->options.lowest_clock_mhz;
    uint32_t offered_mhz = graphics[0];
    int *clocks = harpe_calloc(count, sizeof *clocks);
    size_t used = 0;
    for (size_t i = 0; clocks && i < count; i++)
        if (graphics[i] >= limits.lowest_mhz && graphics[i] >= lowest_mhz &&
            (limits.highest_mhz == 0 || graphics[i] <= limits.highest_mhz))
            clocks[used++] = (int)graphics[i];
    free(graphics);
    if (!clocks) return harpe_fail_memory(error);
    optimizer->clocks_mhz = clocks;
    optimizer->clock_count = used;
    if (used > 0) return HARPE_OK;
    if (lowest_mhz > 0)
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "GPU %d: no clock that this job may use is at or above its lowest_clock_mhz, "
            "%u; the GPU's highest clock is %u MHz",
            optimizer->options.device_id, lowest_mhz, offered_mhz);
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "GPU %d: the node agent's rules allow none of its clocks",
                      optimizer->options.device_id);
}

harpe_status harpe_pipeline_find_gpu(harpe_pipeline *optimizer, harpe_error *error) {
    const harpe_pipeline_frequency_options *options = &optimizer->options;
    optimizer->gpus = options->gpus;
    if (!optimizer->gpus) {
        harpe_gpus_options how = {.log = options->log};
        harpe_status status = harpe_gpus_open(&how, &optimizer->gpus, error);
        if (status != HARPE_OK) return status;
        optimizer->owns_gpus = true;
    }
    int count = harpe_gpus_count(optimizer->gpus);
    if (options->device_id < count) return list_clocks(optimizer, error);
    if (optimizer->owns_gpus) harpe_gpus_close(optimizer->gpus);
    optimizer->owns_gpus = false;
    optimizer->gpus = NULL;
    return harpe_fail(error, HARPE_NOT_FOUND,
                      "there is no GPU %d: device_id counts the %d visible GPUs from 0",
                      options->device_id, count);
}

/* ---- Controller ------------------------------------------------------------------------------ */

harpe_status harpe_pipeline_start_controller(harpe_pipeline *optimizer, harpe_error *error) {
    harpe_frequency_controller_options how = optimizer->options.controller;
    how.gpus = optimizer->gpus;
    how.gpu = optimizer->options.device_id;
    how.log = optimizer->options.log;
    harpe_frequency_controller *controller = NULL;
    harpe_status status =
        harpe_frequency_controller_start_unless(&how, &optimizer->is_stopping, &controller, error);
    if (status != HARPE_OK) return status;
    atomic_store_explicit(&optimizer->controller, controller, memory_order_release);
    return HARPE_OK;
}

void harpe_pipeline_plan_next_start(harpe_pipeline *optimizer) {
    harpe_controller_care *care = &optimizer->care;
    double first_s = optimizer->timeouts.first_controller_pause_s;
    care->pause_s = care->pause_s == 0 ? first_s : care->pause_s * 2;
    if (care->pause_s > LONGEST_PAUSE_S) care->pause_s = LONGEST_PAUSE_S;
    care->next_try_ns = harpe_clock_ns() + (int64_t)(care->pause_s * 1e9);
}

/* Logs one line when a failure begins or changes, and one line when it ends. */
static void tell(harpe_pipeline *optimizer, harpe_status status, const char *reason) {
    harpe_controller_care *care = &optimizer->care;
    if (status == care->told) return;
    care->told = status;
    if (status != HARPE_OK) {
        harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                           "clocks are not controlled, training continues: %s", reason);
    } else {
        harpe_pipeline_say(optimizer, HARPE_LOG_INFO, "clocks are controlled again");
    }
}

/* Handles the status of a living controller. The controller reports a refused call only once, so a
 * later HARPE_OK does not prove that calls succeed again. A new written frequency proves it. */
static void tend_living(harpe_pipeline *optimizer, const harpe_frequency_controller *controller,
                        harpe_status status, const char *reason) {
    harpe_controller_care *care = &optimizer->care;
    if (harpe_clock_ns() > care->next_try_ns) care->pause_s = 0;
    if (status == HARPE_OK && care->told == HARPE_OK) return;
    uint64_t written = harpe_frequency_controller_count(controller).written;
    if (status != HARPE_OK) {
        care->written_before = written;
        tell(optimizer, status, reason);
    } else if (written != care->written_before) {
        tell(optimizer, HARPE_OK, NULL);
    }
}

/* Describes the reasons of the driver, which are NVML's bits. */
static const char *describe_reasons(uint64_t reasons) {
    if (reasons & 0x04) return "its power limit";
    if (reasons & (0x20 | 0x40)) return "its temperature";
    if (reasons & 0x80) return "the power brake of the machine";
    if (reasons & 0x08) return "a slowdown by the hardware";
    if (reasons & 0x10) return "a group of GPUs with one clock (sync boost)";
    return "no reason that the driver names; another program may set clocks, or an administrator "
           "has locked them";
}

/* Logs that the GPU has another clock than the requested one: once, and again after a minute, two
 * minutes, and so on up to an hour. A GPU at its power limit may do so for the whole training. */
static void tell_disobedience(harpe_pipeline *optimizer,
                              const harpe_frequency_controller *controller) {
    harpe_controller_care *care = &optimizer->care;
    harpe_frequency_controller_obedience now = harpe_frequency_controller_obeys(controller);
    bool is_new = now.disobeyed >= care->told_disobeyed + ENOUGH_LOOKS;
    if (!now.disobeys || !is_new || harpe_clock_ns() < care->tell_disobedience_ns) return;
    care->told_disobeyed = now.disobeyed;
    int64_t pause_ns = care->told_pause_ns > 0 ? 2 * care->told_pause_ns : TELL_AGAIN_NS;
    care->told_pause_ns = pause_ns < TELL_AGAIN_MOST_NS ? pause_ns : TELL_AGAIN_MOST_NS;
    care->tell_disobedience_ns = harpe_clock_ns() + care->told_pause_ns;
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                       "GPU %d runs at %d MHz although %d MHz are set: %s. Its steps are not "
                       "measured while it does not obey, at most ten in each round",
                       optimizer->options.device_id, now.held_mhz, now.wanted_mhz,
                       describe_reasons(now.reasons));
}

/* Keeps the controller alive. The status is the same for a dead controller and for a zeusd that
 * does not answer. Only a dead controller is restarted. */
void harpe_pipeline_tend_controller(harpe_pipeline *optimizer) {
    harpe_controller_care *care = &optimizer->care;
    if (!care->is_wanted) return;
    harpe_frequency_controller *controller =
        atomic_load_explicit(&optimizer->controller, memory_order_relaxed);
    harpe_error error;
    if (controller && harpe_clock_ns() < care->next_look_ns) return;
    care->next_look_ns = harpe_clock_ns() + LOOK_NS;
    if (controller) {
        bool has_died = harpe_frequency_controller_has_died(controller);
        harpe_status status = harpe_frequency_controller_check(controller, &error);
        if (!has_died) {
            tell_disobedience(optimizer, controller);
            tend_living(optimizer, controller, status, error.message);
            return;
        }
        if (status != HARPE_OK) tell(optimizer, status, error.message);
    }
    if (harpe_clock_ns() < care->next_try_ns) return;
    harpe_status status = controller ? harpe_frequency_controller_restart(controller, &error)
                                     : harpe_pipeline_start_controller(optimizer, &error);
    harpe_pipeline_plan_next_start(optimizer);
    if (status == HARPE_INTERRUPTED) return; /* the optimizer is about to end */
    /* After a death has been reported, the reason for a failed restart is not reported. */
    if (status == HARPE_OK || !controller) tell(optimizer, status, error.message);
}

/* ---- The clocks of a round ------------------------------------------------------------------- */

/* Reports how long changes of the clock take, and at which clocks the instructions of a round
 * really ran. The controller shows its requests and what it has learnt in its slot. */

static void take_latencies(const harpe_switch_table *table, harpe_rank_clocks *clocks) {
    for (size_t i = 0; i < HARPE_SWITCH_TARGETS; i++) {
        harpe_switch_entry entry = harpe_switch_entry_at(table, i);
        if (entry.mhz == 0) return;
        if (entry.samples < HARPE_SWITCH_USABLE) continue;
        clocks->latencies[clocks->latency_count++] =
            (harpe_clock_latency){.mhz = (int)entry.mhz,
                                  .median_s = entry.median_us * 1e-6,
                                  .p95_s = entry.p95_us * 1e-6};
    }
}

static uint64_t begin_of_step(const harpe_profiler_spans *spans, size_t step) {
    const uint64_t *us = spans->us + 2 * spans->run_count * step;
    uint64_t begin_us = UINT64_MAX;
    for (size_t k = 0; k < spans->run_count; k++)
        if (us[2 * k] < begin_us) begin_us = us[2 * k];
    return begin_us;
}

static void add_step(const harpe_profiler_spans *spans, size_t step, size_t added,
                     const harpe_clock_timeline *timeline, harpe_rank_clocks *clocks) {
    const uint64_t *us = spans->us + 2 * spans->run_count * step;
    for (size_t k = 0; k < spans->run_count; k++) {
        harpe_run_clocks run = harpe_clock_shares_of(timeline, us[2 * k], us[2 * k + 1]);
        harpe_clock_shares_add(&clocks->runs[k], added, &run);
    }
}

/* Computes the means over the steps that begin at `from_us` or later. All clocks here are requests
 * of the schedule, which no driver has rounded. So clocks that differ are different clocks. */
static void take_runs(const harpe_profiler_spans *spans, const harpe_clock_timeline *timeline,
                      uint64_t from_us, harpe_rank_clocks *clocks) {
    size_t added = 0;
    for (size_t s = 0; s < spans->step_count; s++)
        if (begin_of_step(spans, s) >= from_us) add_step(spans, s, added++, timeline, clocks);
    for (size_t k = 0; k < spans->run_count; k++) {
        harpe_run_clocks *mean = &clocks->runs[k];
        bool is_as_asked = mean->count == 1 && spans->asked_mhz[k] > 0 &&
                           mean->parts[0].mhz == spans->asked_mhz[k];
        if (is_as_asked) *mean = (harpe_run_clocks){0};
        if (added == 0) *mean = (harpe_run_clocks){.count = -1};
    }
}

/* Returns the time before which steps are left out. If nobody learns how long changes take, no
 * clock is known. The steps of a round are alike, so those before the oldest kept request can be
 * left out. */
static uint64_t first_step_us(const harpe_controller_slot *slot,
                              const harpe_clock_timeline *timeline, bool has_lost) {
    if (!atomic_load(&slot->learns_switches)) return UINT64_MAX;
    return has_lost ? harpe_clock_timeline_begin(timeline) : 0;
}

static bool find_clocks(const harpe_controller_slot *slot, const harpe_profiler_spans *spans,
                        harpe_rank_clocks *out) {
    harpe_clock_timeline timeline = {0};
    harpe_clock_ask *asks = harpe_calloc(HARPE_CONTROLLER_ASKS, sizeof *asks);
    *out = (harpe_rank_clocks){.is_known = true, .run_count = spans->run_count};
    out->latencies = harpe_calloc(HARPE_SWITCH_TARGETS, sizeof *out->latencies);
    out->runs = harpe_calloc(spans->run_count, sizeof *out->runs);
    bool has_lost = false;
    size_t count = asks ? harpe_clock_asks_copy(slot, asks, &has_lost) : 0;
    bool is_made = asks && out->latencies && out->runs &&
                   harpe_clock_timeline_make(&timeline, asks, count, &slot->switch_table);
    if (is_made) {
        take_latencies(&slot->switch_table, out);
        if (count > 0)
            take_runs(spans, &timeline, first_step_us(slot, &timeline, has_lost), out);
        else
            out->run_count = 0; /* no change was asked for yet: all ran as the schedule asks */
    }
    harpe_clock_timeline_free(&timeline);
    free(asks);
    return is_made;
}

void harpe_pipeline_append_clocks(const harpe_pipeline *optimizer,
                                  const harpe_profiler_spans *spans, char **report) {
    const harpe_frequency_controller *controller =
        atomic_load_explicit(&optimizer->controller, memory_order_acquire);
    harpe_rank_clocks clocks;
    if (!controller || spans->run_count == 0) return;
    if (find_clocks(controller->slot, spans, &clocks))
        (void)harpe_rank_clocks_append(&clocks, report, NULL);
    harpe_rank_clocks_free(&clocks);
}
