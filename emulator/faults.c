/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a list of faults, separated by commas or white space. '#' begins a comment that ends with
 * the line. call.c and the NVML calls apply the faults. */
#include "faults.h"

#include <string.h>

#include "base/number.h"
#include "cluster.h"

static const char *const feature_names[EMULATOR_FEATURE_COUNT] = {
    [EMULATOR_POWER_LIMIT] = "power_limit",
    [EMULATOR_PERSISTENCE] = "persistence",
    [EMULATOR_CLOCK_LOCKS] = "clock_locks",
    [EMULATOR_MEMORY_LOCKS] = "memory_locks",
    [EMULATOR_SUPPORTED_CLOCKS] = "supported_clocks",
    [EMULATOR_CLOCKS] = "clocks",
    [EMULATOR_POWER] = "power",
    [EMULATOR_INSTANT_POWER] = "instant_power",
    [EMULATOR_AVERAGE_POWER] = "average_power",
    [EMULATOR_FIELD_VALUES] = "field_values",
    [EMULATOR_ENERGY] = "energy",
    [EMULATOR_TEMPERATURE] = "temperature",
    [EMULATOR_REASONS] = "reasons",
    [EMULATOR_LOAD] = "load",
};

static bool is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

static bool parse_feature(const char *text, size_t length, emulator_faults *faults) {
    for (int i = 1; i < EMULATOR_FEATURE_COUNT; i++) {
        if (is_word(text, length, feature_names[i])) {
            faults->unsupported |= UINT32_C(1) << i;
            return true;
        }
    }
    return false;
}

/* Reads "@GPU" at the end of a value, and shortens `*length` by it. `*gpu` is -1 without it. */
static bool parse_gpu(const char *text, size_t *length, int *gpu) {
    const char *at = memchr(text, '@', *length);
    int64_t index = -1;
    size_t value_length = at ? (size_t)(at - text) : *length;
    if (at && (!harpe_parse_int(at + 1, *length - value_length - 1, &index) || index < 0 ||
               index >= EMULATOR_GPU_MAX))
        return false;
    *length = value_length;
    *gpu = (int)index;
    return true;
}

static bool parse_lost(const char *text, size_t length, emulator_faults *faults) {
    int64_t calls;
    int gpu;
    if (!parse_gpu(text, &length, &gpu)) return false;
    if (!harpe_parse_int(text, length, &calls) || calls < 0) return false;
    faults->lost_after = calls;
    faults->lost_gpu = gpu;
    return true;
}

static bool parse_number(const char *text, size_t length, double unit, double *value) {
    double number;
    if (!harpe_parse_double(text, length, &number) || number < 0 || number > 1e9) return false;
    *value = number * unit;
    return true;
}

static bool parse_entry(const char *text, size_t length, emulator_faults *faults) {
    const char *equals = memchr(text, '=', length);
    size_t name_length = equals ? (size_t)(equals - text) : length;
    if (!equals) {
        if (is_word(text, length, "no_permission"))
            faults->no_permission = true;
        else if (is_word(text, length, "leave_out_lost"))
            faults->leaves_out_lost = true;
        else if (is_word(text, length, "mig"))
            faults->has_mig = true;
        else if (is_word(text, length, "no_energy_counter"))
            faults->unsupported |= UINT32_C(1) << EMULATOR_ENERGY;
        else
            return false;
        return true;
    }
    const char *value = equals + 1;
    size_t value_length = length - name_length - 1;
    if (is_word(text, name_length, "not_supported"))
        return parse_feature(value, value_length, faults);
    if (is_word(text, name_length, "lost_after")) return parse_lost(value, value_length, faults);
    double *target = NULL;
    double unit = 1e-3;
    if (is_word(text, name_length, "slow_set")) {
        target = &faults->slow_set_s;
    } else if (is_word(text, name_length, "slow_get")) {
        if (!parse_gpu(value, &value_length, &faults->slow_get_gpu)) return false;
        target = &faults->slow_get_s;
    } else if (is_word(text, name_length, "returns_after")) {
        target = &faults->returns_after_s;
        unit = 1;
    } else if (is_word(text, name_length, "energy_step")) {
        target = &faults->energy_step_s;
    } else if (is_word(text, name_length, "enforced_limit")) {
        target = &faults->enforced_limit_w;
        unit = 1;
    } else if (is_word(text, name_length, "limit_floor")) {
        target = &faults->limit_floor_w;
        unit = 1;
    } else if (is_word(text, name_length, "counter_restart_after")) {
        target = &faults->counter_restart_after_s;
        unit = 1;
    } else if (is_word(text, name_length, "counter_factor")) {
        target = &faults->counter_factor;
        unit = 1;
    }
    return target && parse_number(value, value_length, unit, target);
}

bool emulator_faults_parse(const char *text, emulator_faults *faults) {
    *faults = (emulator_faults){.lost_after = -1,
                                .lost_gpu = -1,
                                .returns_after_s = -1,
                                .slow_get_gpu = -1,
                                .energy_step_s = -1,
                                .counter_restart_after_s = -1,
                                .counter_factor = 1,
                                .enforced_limit_w = -1};
    bool is_good = true;
    while (*text) {
        text += strspn(text, ", \t\r\n");
        if (*text == '#') {
            text += strcspn(text, "\n");
            continue;
        }
        size_t length = strcspn(text, ", \t\r\n#");
        if (length > 0) is_good = parse_entry(text, length, faults) && is_good;
        text += length;
    }
    return is_good;
}

bool emulator_is_unsupported(const emulator_faults *faults, emulator_feature feature) {
    return (faults->unsupported >> feature & 1) != 0;
}
