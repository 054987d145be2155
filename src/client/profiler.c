/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction profiler's own thread: reads the GPU's energy, takes time stamps out of the
 * ring, converts them to GPU time, and keeps complete steps until they are taken.
 * profiler_result.c evaluates the steps. */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "client/profiler_internal.h"

/* ---- The ring of time stamps ----------------------------------------------------------------- */

/* The ring of time stamps. The writer keeps a copy of the reader's position and reads it again
 * only when the ring seems full. So each event usually costs one store that is visible to the
 * other core. */

/* Opens a recorder, which must be all zeros. It has room for at least `capacity` events. */
static harpe_status open_recorder(harpe_recorder *recorder, size_t capacity, harpe_error *error) {
    size_t size = 1;
    while (size < capacity)
        size *= 2;
    recorder->events = harpe_calloc(size, sizeof *recorder->events);
    if (!recorder->events) return harpe_fail_memory(error);
    /* Writes to all pages now, so that no page fault happens on the training thread. */
    memset(recorder->events, 0xff, size * sizeof *recorder->events);
    recorder->mask = size - 1;
    return HARPE_OK;
}

static void close_recorder(harpe_recorder *recorder) {
    free(recorder->events);
    recorder->events = NULL;
}

/* ---- Writer ---------------------------------------------------------------------------------- */

static bool has_room(harpe_recorder *recorder) {
    if (recorder->written - recorder->known_read <= recorder->mask) return true;
    recorder->known_read = atomic_load_explicit(&recorder->read, memory_order_acquire);
    return recorder->written - recorder->known_read <= recorder->mask;
}

static void drop_step(harpe_recorder *recorder) {
    recorder->is_recording = false;
    atomic_fetch_add_explicit(&recorder->dropped_steps, 1, memory_order_relaxed);
}

static void put(harpe_recorder *recorder, harpe_event_kind kind, int64_t value, uint8_t name) {
    int64_t now_ns = harpe_clock_ns();
    if (!has_room(recorder)) {
        drop_step(recorder);
        return;
    }
    recorder->events[recorder->written & recorder->mask] =
        (harpe_event){now_ns, value, (uint8_t)kind, name};
    recorder->written++;
    atomic_store_explicit(&recorder->published, recorder->written, memory_order_release);
}

/* Returns the index of a name. Longer names are cut. -1: the table is full. */
static int name_index(harpe_recorder *recorder, const char *name) {
    for (unsigned i = 0; i < recorder->name_count; i++)
        if (strncmp(recorder->names[i], name, HARPE_RECORDER_NAME_SIZE - 1) == 0) return (int)i;
    if (recorder->name_count == HARPE_RECORDER_NAMES) return -1;
    size_t length = strnlen(name, HARPE_RECORDER_NAME_SIZE - 1);
    memcpy(recorder->names[recorder->name_count], name, length);
    return (int)recorder->name_count++;
}

/* ---- Reader ---------------------------------------------------------------------------------- */

/* Returns false if there is no new event. */
static bool next_event(harpe_recorder *recorder, harpe_event *out) {
    uint64_t read = atomic_load_explicit(&recorder->read, memory_order_relaxed);
    if (read == atomic_load_explicit(&recorder->published, memory_order_acquire)) return false;
    *out = recorder->events[read & recorder->mask];
    atomic_store_explicit(&recorder->read, read + 1, memory_order_release);
    return true;
}

/* ---- Building steps -------------------------------------------------------------------------- */

/* Builds steps from events with a small state machine. An event that does not fit (an instruction
 * inside another, an end without a beginning) spoils its own step and no other. */

/* Finds or adds a key. Searches from the end, because the keys that are used now were added last.
 * SIZE_MAX: no room. */
static size_t key_of(harpe_step_keys *keys, uint8_t name, int32_t frequency_mhz) {
    for (size_t i = keys->count; i-- > 0;) {
        const harpe_step_key *key = &keys->items[i];
        if (key->name == name && key->frequency_mhz == frequency_mhz) return i;
    }
    if (keys->count == HARPE_STEP_KEYS_MAX ||
        !HARPE_ARRAY_RESERVE(keys->items, keys->capacity, keys->count + 1))
        return SIZE_MAX;
    keys->items[keys->count] = (harpe_step_key){frequency_mhz, name};
    return keys->count++;
}

static void begin_step(harpe_step_builder *builder, int64_t series, int64_t time_ns) {
    harpe_span *spans = builder->step.spans;
    builder->step = (harpe_step){.series = series, .start_ns = time_ns, .spans = spans};
    builder->is_open = true;
    builder->is_in_span = false;
    builder->is_spoiled = false;
}

static void begin_span(harpe_step_builder *builder, size_t key, int64_t time_ns) {
    harpe_step *step = &builder->step;
    if (builder->is_in_span || key == SIZE_MAX ||
        !HARPE_ARRAY_RESERVE(step->spans, builder->capacity, step->span_count + 1)) {
        builder->is_spoiled = true;
        return;
    }
    step->spans[step->span_count] = (harpe_span){.start_ns = time_ns, .key = key};
    builder->is_in_span = true;
}

static void end_span(harpe_step_builder *builder, int64_t time_ns) {
    if (!builder->is_in_span) {
        builder->is_spoiled = true;
        return;
    }
    builder->step.spans[builder->step.span_count++].end_ns = time_ns;
    builder->is_in_span = false;
}

static bool end_step(harpe_step_builder *builder, int64_t time_ns, harpe_step *out) {
    builder->is_open = false;
    builder->step.end_ns = time_ns;
    if (builder->is_spoiled || builder->is_in_span) {
        builder->spoiled_steps++;
        return false;
    }
    *out = builder->step;
    builder->step.spans = NULL;
    builder->capacity = 0;
    return true;
}

/* Processes an event that happened at `time_ns` in GPU time. Returns true if a step is complete;
 * it is then moved to `*out`, and the caller frees its spans. */
static bool build_step(harpe_step_builder *builder, const harpe_event *event, int64_t time_ns,
                       harpe_step_keys *keys, harpe_step *out) {
    if (event->kind == HARPE_EVENT_BEGIN_STEP) {
        begin_step(builder, event->value, time_ns);
        return false;
    }
    if (!builder->is_open) return false;
    switch ((harpe_event_kind)event->kind) {
    case HARPE_EVENT_BEGIN:
        begin_span(builder, key_of(keys, event->name, (int32_t)event->value), time_ns);
        return false;
    case HARPE_EVENT_END: end_span(builder, time_ns); return false;
    case HARPE_EVENT_END_STEP: return end_step(builder, time_ns, out);
    case HARPE_EVENT_CANCEL_STEP:
    case HARPE_EVENT_BEGIN_STEP: break;
    }
    builder->is_open = false;
    return false;
}

static void clear_builder(harpe_step_builder *builder) {
    free(builder->step.spans);
    *builder = (harpe_step_builder){0};
}

static const double default_period_s = 0.01;
static const size_t default_event_capacity = 65536;
static const int64_t shortest_delay_ns = 100000, longest_delay_ns = 50000000;

static const size_t default_kept_spans_max = 1000000;

static const int64_t power_gap_ns = 1000000000;

/* GPU time; counters change every 10 to 100 ms, also on an idle GPU. */
static const int64_t longest_stillness_ns = 5000000000;

/* ---- Training thread ------------------------------------------------------------------------- */

/* If there is no room for an event, removes the events of its step and ignores all events until the
 * next step. */
void harpe_instruction_profiler_begin_step(harpe_instruction_profiler *profiler, int64_t series) {
    profiler->recorder.is_recording = true;
    put(&profiler->recorder, HARPE_EVENT_BEGIN_STEP, series, 0);
}

static void end_recording(harpe_recorder *recorder, harpe_event_kind how) {
    if (recorder->is_recording) put(recorder, how, 0, 0);
    recorder->is_recording = false;
}

void harpe_instruction_profiler_end_step(harpe_instruction_profiler *profiler) {
    end_recording(&profiler->recorder, HARPE_EVENT_END_STEP);
}

void harpe_instruction_profiler_cancel_step(harpe_instruction_profiler *profiler) {
    end_recording(&profiler->recorder, HARPE_EVENT_CANCEL_STEP);
}

void harpe_instruction_profiler_begin(harpe_instruction_profiler *profiler, const char *instruction,
                                      int frequency_mhz) {
    harpe_recorder *recorder = &profiler->recorder;
    if (!recorder->is_recording) return;
    int name = name_index(recorder, instruction ? instruction : "unnamed");
    if (name < 0)
        drop_step(recorder);
    else
        put(recorder, HARPE_EVENT_BEGIN, frequency_mhz, (uint8_t)name);
}

void harpe_instruction_profiler_end(harpe_instruction_profiler *profiler) {
    if (profiler->recorder.is_recording) put(&profiler->recorder, HARPE_EVENT_END, 0, 0);
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* Reads both clocks three times, and returns the pair with the shortest time between the two
 * reads. */
static harpe_clock_pair read_clocks(const harpe_energy_source *source) {
    harpe_clock_pair best = {0};
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < 3 && best_ns > 0; i++) {
        int64_t before_ns = harpe_clock_ns();
        int64_t gpu_ns = source->clock_ns(source->user);
        int64_t after_ns = harpe_clock_ns();
        if (after_ns - before_ns < best_ns) {
            best_ns = after_ns - before_ns;
            best = (harpe_clock_pair){before_ns + best_ns / 2, gpu_ns};
        }
    }
    return best;
}

/* Returns GPU seconds per real second; 1 unless the GPUs are emulated. */
static double speed_of_time(const harpe_instruction_profiler *profiler) {
    int64_t real_ns = profiler->latest.real_ns - profiler->origin.real_ns;
    int64_t gpu_ns = profiler->latest.gpu_ns - profiler->origin.gpu_ns;
    return real_ns > 0 && gpu_ns > 0 ? (double)gpu_ns / (double)real_ns : 1;
}

/* Converts to GPU time. Never returns a time before the previous event, although the estimate of
 * the speed changes with each call. */
static int64_t gpu_time_ns(harpe_instruction_profiler *profiler, int64_t real_ns) {
    double since_ns = (double)(real_ns - profiler->latest.real_ns) * speed_of_time(profiler);
    int64_t time_ns = profiler->latest.gpu_ns + (int64_t)since_ns;
    if (time_ns > profiler->last_event_ns) profiler->last_event_ns = time_ns;
    return profiler->last_event_ns;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void remove_steps(harpe_instruction_profiler *profiler, size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++) {
        profiler->span_count -= profiler->steps[i].span_count;
        free(profiler->steps[i].spans);
    }
    memmove(profiler->steps + first, profiler->steps + first + count,
            (profiler->step_count - first - count) * sizeof *profiler->steps);
    profiler->step_count -= count;
    if (profiler->known_count > first) {
        size_t known_end =
            first + count < profiler->known_count ? first + count : profiler->known_count;
        profiler->known_count -= known_end - first;
    }
}

void harpe_profiler_forget(harpe_instruction_profiler *profiler, size_t count) {
    size_t known = count < profiler->known_count ? count : profiler->known_count;
    /* If memory is short, the profile of the whole run lacks these steps. */
    (void)harpe_power_model_add(&profiler->forgotten, profiler->steps, known,
                                profiler->has_energy ? &profiler->curve : NULL,
                                profiler->keys.count);
    remove_steps(profiler, 0, count);
}

static void keep_step(harpe_instruction_profiler *profiler, const harpe_step *step) {
    if (!HARPE_ARRAY_RESERVE(profiler->steps, profiler->step_capacity, profiler->step_count + 1)) {
        free(step->spans);
        return;
    }
    profiler->steps[profiler->step_count++] = *step;
    profiler->span_count += step->span_count;
    if (profiler->span_count > profiler->kept_spans_max && profiler->step_count > 1)
        harpe_profiler_forget(profiler, (profiler->step_count + 1) / 2);
}

static void drain(harpe_instruction_profiler *profiler) {
    harpe_event event;
    harpe_step step;
    while (next_event(&profiler->recorder, &event)) {
        int64_t time_ns = gpu_time_ns(profiler, event.time_ns);
        if (build_step(&profiler->builder, &event, time_ns, &profiler->keys, &step))
            keep_step(profiler, &step);
    }
}

/* Returns true if the GPU can have used the energy between two points of the curve. */
static bool can_be(harpe_instruction_profiler *profiler, size_t first, size_t last) {
    const harpe_curve_point *from = &profiler->curve.points[first];
    const harpe_curve_point *to = &profiler->curve.points[last];
    bool can_be = harpe_energy_is_possible(
        to->energy_j - from->energy_j, (double)(to->time_ns - from->time_ns) * 1e-9,
        harpe_energy_source_highest_w(&profiler->source, profiler->gpu));
    profiler->impossible += !can_be;
    return can_be;
}

/* Examines the steps whose energy was not known. If the curve extends past the end of a step, the
 * energy of the step is known, or the step is removed because its energy will never be known. */
static void settle(harpe_instruction_profiler *profiler) {
    while (profiler->known_count < profiler->step_count) {
        const harpe_step *step = &profiler->steps[profiler->known_count];
        size_t first, last;
        bool is_past = harpe_energy_curve_has_passed(&profiler->curve, step->end_ns);
        if (profiler->has_energy && !is_past && !profiler->curve.is_broken) return;
        if (!profiler->has_energy || (is_past &&
                                      harpe_energy_curve_covers(&profiler->curve, step->start_ns,
                                                                step->end_ns, &first, &last) &&
                                      can_be(profiler, first, last))) {
            profiler->known_count++;
            continue;
        }
        profiler->unmeasured_steps++;
        remove_steps(profiler, profiler->known_count, 1);
    }
}

/* Removes the points of the curve that neither existing nor future steps need. */
static void trim(harpe_instruction_profiler *profiler) {
    int64_t needed_ns = profiler->latest.gpu_ns;
    if (profiler->builder.is_open) needed_ns = profiler->builder.step.start_ns;
    if (profiler->step_count > 0) needed_ns = profiler->steps[0].start_ns;
    harpe_energy_curve_trim(&profiler->curve, needed_ns);
}

/* ---- The thread ------------------------------------------------------------------------------ */

typedef struct energy_reading {
    int64_t began_ns, ended_ns; /* GPU time */
    int64_t late_ns;            /* GPU time since the sample of power was due */
    bool has_energy;            /* the counter was read, or the power in its place */
    harpe_status status;        /* of the energy; HARPE_OK if it was not read */
    harpe_counter_reading counter;
    uint32_t power_mw;
    bool has_power;     /* power was read at `began_ns`, for the comparison with the counter */
    bool has_no_sample; /* this power could not be read */
    harpe_error failure;
} energy_reading;

static void read_energy(harpe_instruction_profiler *profiler, energy_reading *out) {
    harpe_energy_source *source = &profiler->source;
    out->has_energy = true;
    out->status =
        profiler->has_counter
            ? harpe_counter_read(&profiler->counter, source, profiler->gpu, out->began_ns,
                                 &out->counter, &out->failure)
            : source->power_mw(source->user, profiler->gpu, &out->power_mw, &out->failure);
    out->ended_ns = source->clock_ns(source->user);
}

/* Reads the power for the comparison with the counter. Reads the check without the lock, because
 * only this thread writes it. */
static void read_power(harpe_instruction_profiler *profiler, energy_reading *out) {
    harpe_energy_source *source = &profiler->source;
    if (!profiler->has_counter || profiler->has_no_power) return;
    int64_t delay_ns = harpe_energy_check_delay_ns(&profiler->check, out->began_ns);
    if (delay_ns > 0) return;
    out->late_ns = -delay_ns;
    harpe_status status = source->power_mw(source->user, profiler->gpu, &out->power_mw, NULL);
    out->has_power = status == HARPE_OK;
    out->has_no_sample = status != HARPE_OK;
    profiler->has_had_power = profiler->has_had_power || out->has_power;
    profiler->has_no_power = status == HARPE_NOT_SUPPORTED && !profiler->has_had_power;
}

static void read_what_is_due(harpe_instruction_profiler *profiler, energy_reading *out) {
    const harpe_energy_source *source = &profiler->source;
    out->began_ns = out->ended_ns = source->clock_ns(source->user);
    read_power(profiler, out); /* first, because a reading of the counter may take long */
    if (out->began_ns >= profiler->reading_due_gpu_ns) read_energy(profiler, out);
}

static void add_reading(harpe_instruction_profiler *profiler, const energy_reading *reading) {
    harpe_energy_curve *curve = &profiler->curve;
    if (!reading->has_energy) return;
    if (reading->status != HARPE_OK) {
        harpe_energy_curve_break(curve);
    } else if (!profiler->has_counter) {
        harpe_energy_curve_add_power(curve, reading->ended_ns, reading->power_mw * 1e-3,
                                     power_gap_ns);
    } else {
        bool is_broken = reading->counter.breaks != profiler->breaks;
        if (is_broken) harpe_energy_curve_break(curve);
        profiler->warnings.restarts += is_broken;
        profiler->breaks = reading->counter.breaks;
        harpe_energy_curve_add_counter(curve, reading->began_ns, reading->ended_ns,
                                       reading->counter.energy_mj);
    }
}

/* Compares the counter with the power, from the curve's last change on. */
static void check_energy(harpe_instruction_profiler *profiler, const energy_reading *reading) {
    const harpe_energy_curve *curve = &profiler->curve;
    const harpe_curve_point *last = curve->count > 0 ? &curve->points[curve->count - 1] : NULL;
    if (!last || curve->has_gap || last->follows_gap || reading->has_no_sample)
        harpe_energy_check_break(&profiler->check);
    if (!last || curve->has_gap || !profiler->has_counter || !reading->has_power) return;
    harpe_energy_check_add(&profiler->check, reading->began_ns, reading->late_ns,
                           reading->power_mw * 1e-3, last->time_ns, last->blur_ns, last->energy_j);
}

/* Handles a driver that always returns the same counter value. Reads power instead, or measures
 * only times if the driver does not report power either. Otherwise steps would wait for their
 * energy forever. */
static void watch_counter(harpe_instruction_profiler *profiler, const energy_reading *reading) {
    harpe_profiler_warnings *warnings = &profiler->warnings;
    harpe_energy_curve *curve = &profiler->curve;
    if (!reading->has_energy) return;
    if (warnings->is_counter_still && reading->status == HARPE_NOT_SUPPORTED &&
        !profiler->has_had_power) {
        warnings->is_power_missing = true;
        profiler->has_energy = false;
    }
    bool is_waited_for = profiler->known_count < profiler->step_count;
    if (!profiler->has_counter || !is_waited_for || curve->is_broken ||
        profiler->latest.gpu_ns - curve->still_since_ns < longest_stillness_ns)
        return;
    warnings->is_counter_still = true;
    profiler->has_counter = false;
    harpe_energy_curve_break(curve);
}

/* Logs the warnings. Reads them without the lock, because only this thread writes them. */
static void log_warnings(harpe_instruction_profiler *profiler, const energy_reading *reading) {
    harpe_profiler_warnings *warnings = &profiler->warnings;
    bool has_failed =
        reading->has_energy ? reading->status != HARPE_OK : warnings->is_unreadable_told;
    bool is_unreadable = profiler->has_energy && has_failed;
    if (is_unreadable && !warnings->is_unreadable_told) {
        harpe_log_line(&profiler->log, HARPE_LOG_WARNING,
                       "steps are not measured while energy cannot be read: %s",
                       reading->failure.message);
    } else if (!is_unreadable && warnings->is_unreadable_told) {
        harpe_log_line(&profiler->log, HARPE_LOG_INFO, "GPU %d: energy can be read again",
                       profiler->gpu);
    }
    warnings->is_unreadable_told = is_unreadable;
    if (warnings->restarts > warnings->restarts_told && warnings->restarts_told == 0) {
        harpe_error what;
        (void)harpe_counter_fail(&profiler->counter, profiler->gpu, &what);
        harpe_log_line(&profiler->log, HARPE_LOG_WARNING,
                       "steps are not measured while the energy is not known: %s", what.message);
    }
    warnings->restarts_told = warnings->restarts;
    if (warnings->is_counter_still && !warnings->is_counter_still_told) {
        harpe_log_line(&profiler->log, HARPE_LOG_WARNING,
                       "GPU %d: the energy counter does not move: its power is sampled from now on",
                       profiler->gpu);
        warnings->is_counter_still_told = true;
    }
    if (warnings->is_power_missing && !warnings->is_power_missing_told) {
        harpe_log_line(
            &profiler->log, HARPE_LOG_WARNING,
            "GPU %d reports no power either: energies are 0 from now on, times are measured",
            profiler->gpu);
        warnings->is_power_missing_told = true;
    }
    if (!warnings->is_no_room_told &&
        atomic_load_explicit(&profiler->recorder.dropped_steps, memory_order_relaxed) > 0) {
        harpe_log_line(
            &profiler->log, HARPE_LOG_WARNING,
            "steps are not measured: their time stamps (or more than %d names of instructions) "
            "found no room",
            HARPE_RECORDER_NAMES);
        warnings->is_no_room_told = true;
    }
    if (!warnings->is_spoiled_told && profiler->builder.spoiled_steps > 0) {
        harpe_log_line(&profiler->log, HARPE_LOG_WARNING,
                       "steps are not measured: begin and end of their instructions do not match");
        warnings->is_spoiled_told = true;
    }
}

/* Returns the GPU time until something is due again. */
static int64_t plan_next(harpe_instruction_profiler *profiler, const energy_reading *reading) {
    int64_t now_ns = profiler->latest.gpu_ns;
    if (!profiler->has_energy) return profiler->period_ns;
    if (reading->has_energy)
        profiler->reading_due_gpu_ns =
            now_ns + harpe_energy_curve_delay_ns(&profiler->curve, now_ns, profiler->period_ns);
    int64_t delay_ns = profiler->reading_due_gpu_ns - now_ns;
    if (!profiler->has_counter || profiler->has_no_power) return delay_ns;
    int64_t sample_ns = harpe_energy_check_delay_ns(&profiler->check, now_ns);
    return sample_ns < delay_ns && profiler->check.has_sample ? sample_ns : delay_ns;
}

/* Returns the real time until the next tick. */
static int64_t real_delay_ns(harpe_instruction_profiler *profiler, const energy_reading *reading) {
    int64_t delay_ns = (int64_t)((double)plan_next(profiler, reading) / speed_of_time(profiler));
    int64_t longest_ns =
        profiler->period_ns > longest_delay_ns ? profiler->period_ns : longest_delay_ns;
    delay_ns = delay_ns < longest_ns ? delay_ns : longest_ns;
    return delay_ns > shortest_delay_ns ? delay_ns : shortest_delay_ns;
}

int64_t harpe_profiler_tick(void *user) {
    harpe_instruction_profiler *profiler = user;
    if (profiler->has_thread && !profiler->has_low_slack) {
        (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); /* with the usual slack, the thread
                                                                * wakes up 50 us late */
        profiler->has_low_slack = true;
    }
    energy_reading reading = {.status = HARPE_OK};
    if (profiler->has_energy) read_what_is_due(profiler, &reading);
    harpe_clock_pair now = read_clocks(&profiler->source);
    harpe_lock(&profiler->lock);
    profiler->latest = now;
    drain(profiler);
    if (profiler->has_energy) {
        add_reading(profiler, &reading);
        check_energy(profiler, &reading);
        watch_counter(profiler, &reading);
    }
    settle(profiler);
    trim(profiler);
    int64_t delay_ns = real_delay_ns(profiler, &reading);
    harpe_unlock(&profiler->lock);
    log_warnings(profiler, &reading);
    return delay_ns;
}

bool harpe_profiler_is_ours(const harpe_instruction_profiler *profiler) {
    return !profiler->ticker || harpe_ticker_is_ours(profiler->ticker);
}

harpe_profiler_conduct harpe_profiler_conduct_of(harpe_instruction_profiler *profiler) {
    if (!harpe_profiler_is_ours(profiler)) return (harpe_profiler_conduct){0};
    harpe_lock(&profiler->lock);
    harpe_profiler_conduct conduct = {
        .lost_steps = profiler->builder.spoiled_steps + profiler->unmeasured_steps +
                      atomic_load_explicit(&profiler->recorder.dropped_steps, memory_order_relaxed),
        .impossible = profiler->impossible + profiler->warnings.restarts,
        .energy = harpe_energy_check_compare(&profiler->check)};
    harpe_unlock(&profiler->lock);
    return conduct;
}

/* ---- Making and freeing ---------------------------------------------------------------------- */

static harpe_status check_options(const harpe_instruction_profiler_options *options, int gpu_count,
                                  harpe_error *error) {
    double period_s = options->sample_period_s;
    if (!(period_s == 0 || (period_s >= 0.001 && period_s <= 1))) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "sample period: expected 0.001 to 1 s, or 0 for the default");
    }
    if (options->event_capacity > (size_t)1 << 26) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "event capacity: expected at most 67108864, or 0 for the default");
    }
    if (gpu_count > 0 && (options->gpu < 0 || options->gpu >= gpu_count)) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "there is no GPU %d to profile: %d visible here", options->gpu,
                          gpu_count);
    }
    return HARPE_OK;
}

static harpe_status find_counter(harpe_instruction_profiler *profiler, harpe_error *error) {
    if (!profiler->has_energy) return HARPE_OK;
    harpe_counter_reading reading;
    harpe_energy_source *source = &profiler->source;
    harpe_status status = harpe_counter_read(&profiler->counter, source, profiler->gpu,
                                             source->clock_ns(source->user), &reading, error);
    profiler->has_counter = status != HARPE_NOT_SUPPORTED;
    if (profiler->has_counter) return status;
    harpe_log_line(&profiler->log, HARPE_LOG_INFO,
                   "GPU %d has no energy counter: its power is sampled", profiler->gpu);
    uint32_t power_mw = 0;
    return source->power_mw(source->user, profiler->gpu, &power_mw, error);
}

harpe_status harpe_profiler_new_on(const harpe_instruction_profiler_options *options,
                                   const harpe_energy_source *source, bool has_thread,
                                   harpe_instruction_profiler **out, harpe_error *error) {
    int gpu_count = source->count(source->user);
    harpe_status status = check_options(options, gpu_count, error);
    if (status != HARPE_OK) return status;
    size_t bytes = (sizeof(harpe_instruction_profiler) + 63) / 64 * 64;
    harpe_instruction_profiler *profiler = aligned_alloc(64, bytes);
    if (!profiler) return harpe_fail_memory(error);
    memset(profiler, 0, bytes);
    double period_s = options->sample_period_s > 0 ? options->sample_period_s : default_period_s;
    size_t capacity =
        options->event_capacity > 0 ? options->event_capacity : default_event_capacity;
    profiler->source = *source;
    profiler->has_energy = gpu_count > 0;
    profiler->gpu = options->gpu;
    profiler->period_ns = (int64_t)(period_s * 1e9);
    profiler->log = options->log;
    profiler->has_thread = has_thread;
    profiler->kept_spans_max = default_kept_spans_max;
    pthread_mutex_init(&profiler->lock, NULL);
    pthread_mutex_init(&profiler->counter.lock, NULL);
    profiler->origin = profiler->latest = read_clocks(source);
    profiler->last_event_ns = INT64_MIN;
    status = open_recorder(&profiler->recorder, capacity, error);
    if (status == HARPE_OK) status = find_counter(profiler, error);
    if (status == HARPE_OK && has_thread)
        status = harpe_ticker_start(harpe_profiler_tick, profiler, &profiler->ticker, error);
    if (status != HARPE_OK) {
        harpe_instruction_profiler_free(profiler);
        return status;
    }
    *out = profiler;
    return HARPE_OK;
}

harpe_status harpe_instruction_profiler_new(const harpe_instruction_profiler_options *options,
                                            harpe_instruction_profiler **out, harpe_error *error) {
    if (!options || !out) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "an instruction profiler needs options and a place");
    }
    harpe_energy_source source = harpe_energy_source_of_gpus(options->gpus);
    return harpe_profiler_new_on(options, &source, true, out, error);
}

void harpe_instruction_profiler_free(harpe_instruction_profiler *profiler) {
    if (!profiler) return;
    bool is_ours = harpe_profiler_is_ours(profiler);
    harpe_ticker_stop(profiler->ticker);
    if (is_ours) pthread_mutex_destroy(&profiler->lock);
    if (is_ours) pthread_mutex_destroy(&profiler->counter.lock);
    for (size_t i = 0; i < profiler->step_count; i++)
        free(profiler->steps[i].spans);
    free(profiler->steps);
    free(profiler->keys.items);
    clear_builder(&profiler->builder);
    harpe_energy_curve_clear(&profiler->curve);
    harpe_power_model_clear(&profiler->forgotten);
    close_recorder(&profiler->recorder);
    free(profiler);
}
