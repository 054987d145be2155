/* SPDX-License-Identifier: Apache-2.0 */
/* Copies when the instructions of a profiler's steps ran. */
#include <stdlib.h>

#include "base/array.h"
#include "base/wait.h"
#include "client/profiler_internal.h"

/* Returns the number of instructions of the series' steps, or 0 if they differ or if there are
 * fewer than `steps` steps. */
static size_t common_count(const harpe_instruction_profiler *profiler, int64_t series,
                           size_t steps) {
    size_t found = 0, runs = 0;
    for (size_t i = 0; i < profiler->known_count && found < steps; i++) {
        const harpe_step *step = &profiler->steps[i];
        if (step->series != series) continue;
        if (found++ == 0) runs = step->span_count;
        if (step->span_count != runs) return 0;
    }
    return found == steps ? runs : 0;
}

static void copy(const harpe_instruction_profiler *profiler, int64_t series,
                 harpe_profiler_spans *out) {
    size_t found = 0;
    for (size_t i = 0; i < profiler->known_count && found < out->step_count; i++) {
        const harpe_step *step = &profiler->steps[i];
        if (step->series != series) continue;
        uint64_t *us = out->us + 2 * out->run_count * found;
        for (size_t k = 0; k < out->run_count; k++) {
            us[2 * k] = (uint64_t)step->spans[k].start_ns / 1000;
            us[2 * k + 1] = (uint64_t)step->spans[k].end_ns / 1000;
            if (found == 0)
                out->asked_mhz[k] = profiler->keys.items[step->spans[k].key].frequency_mhz;
        }
        found++;
    }
}

bool harpe_profiler_copy_spans(harpe_instruction_profiler *profiler, int64_t series, size_t steps,
                               harpe_profiler_spans *out) {
    *out = (harpe_profiler_spans){.step_count = steps};
    if (!harpe_profiler_is_ours(profiler)) return false;
    harpe_lock(&profiler->lock);
    out->run_count = common_count(profiler, series, steps);
    out->asked_mhz = harpe_calloc(out->run_count, sizeof *out->asked_mhz);
    out->us = harpe_calloc(2 * out->run_count * steps, sizeof *out->us);
    bool is_made = out->run_count > 0 && out->asked_mhz && out->us;
    if (is_made) copy(profiler, series, out);
    harpe_unlock(&profiler->lock);
    if (!is_made) harpe_profiler_spans_free(out);
    return is_made;
}

void harpe_profiler_spans_free(harpe_profiler_spans *spans) {
    free(spans->asked_mhz);
    free(spans->us);
    *spans = (harpe_profiler_spans){0};
}
