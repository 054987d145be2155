/* SPDX-License-Identifier: Apache-2.0 */
/* Builds steps from events with a small state machine. An event that does not fit (an instruction
 * inside another, an end without a beginning) spoils its own step and no other. */
#include "client/profiler_steps.h"

#include <stdlib.h>

#include "base/array.h"

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

bool harpe_step_builder_take(harpe_step_builder *builder, const harpe_event *event, int64_t time_ns,
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

void harpe_step_builder_clear(harpe_step_builder *builder) {
    free(builder->step.spans);
    *builder = (harpe_step_builder){0};
}
