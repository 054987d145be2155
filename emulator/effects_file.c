/* SPDX-License-Identifier: Apache-2.0 */
/* Reads HARPE_EMULATOR_PHYSICS: a name, or a JSON file that replaces single effects. A table lists
 * the keys with their ranges. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/number.h"
#include "effects.h"
#include "pfo/json_tree.h"

#define FILE_BYTES_MAX (64U << 10)
#define LATENCY_MAX_S 10.0
#define CLOCK_MAX_MHZ 10000

/* ---- The keys -------------------------------------------------------------------------------- */

typedef enum value_kind {
    VALUE_NUMBER,
    VALUE_TAIL,      /* {"share": S, "factor": F} */
    VALUE_SCOPE,     /* "model" or "gpu" */
    VALUE_LATENCIES, /* a number of seconds, or an object of clocks in MHz and seconds */
} value_kind;

typedef struct effect_key {
    const char *name;
    value_kind kind;
    size_t offset;           /* in emulator_effects */
    double minimum, maximum; /* of a number */
} effect_key;

#define NUMBER(name, minimum, maximum) \
    { #name, VALUE_NUMBER, offsetof(emulator_effects, name), minimum, maximum }
#define TAIL(name) \
    { #name, VALUE_TAIL, offsetof(emulator_effects, name), 1, 100 }

/* docs/man/harpe-emulate.1.scd explains each key; a test compares the two lists. */
static const effect_key keys[] = {
    NUMBER(switch_call_s, 0, 10),
    TAIL(switch_call_tail),
    {"switch_latency_s", VALUE_LATENCIES, 0, 0, LATENCY_MAX_S},
    NUMBER(switch_spread, 0, 1),
    TAIL(switch_tail),
    NUMBER(variability, 0, 0.5),
    TAIL(outliers),
    NUMBER(leakage_spread, 0, 0.5),
    NUMBER(cooling_spread, 0, 0.5),
    NUMBER(jitter, 0, 0.5),
    TAIL(jitter_tail),
    NUMBER(ambient_c, -40, 80),
    NUMBER(heating_k, 0, 200),
    NUMBER(reference_c, 20, 120),
    NUMBER(leakage_share, 0, 1),
    NUMBER(leakage_per_k, 0, 0.05),
    NUMBER(drift_per_k, -0.01, 0.01),
    NUMBER(thermal_limit_c, 0, 200),
    NUMBER(thermal_slowdown_c, 0, 200),
    NUMBER(throttle_wander, 0, 0.5),
    NUMBER(throttle_period_s, 0.001, 10),
    NUMBER(throttle_waste, 0, 0.5),
    NUMBER(power_cap_w, 0, 2000),
    NUMBER(administrator_lock_mhz, 0, 10000),
    NUMBER(lock_ignored, 0, 1),
    NUMBER(energy_step_s, 0, 10),
    NUMBER(average_s, 0, 10),
    {"counter_scope", VALUE_SCOPE, 0, 0, 0},
};
enum { KEY_COUNT = sizeof keys / sizeof keys[0] };

const char *emulator_effect_key(size_t index) {
    return index < KEY_COUNT ? keys[index].name : NULL;
}

/* ---- Messages -------------------------------------------------------------------------------- */

typedef struct reading {
    const harpe_json *json;
    const char *name; /* of the file */
    char *problem;
    size_t problem_size;
} reading;

static bool refuse(const reading *r, const char *key, const char *expected) {
    snprintf(r->problem, r->problem_size, "%s: %s: expected %s", r->name, key, expected);
    return false;
}

static bool refuse_number(const reading *r, const char *key, double minimum, double maximum) {
    char expected[96];
    snprintf(expected, sizeof expected, "a number from %g to %g", minimum, maximum);
    return refuse(r, key, expected);
}

/* Copies a text of the document for a message, without control characters. */
static void copy_key(const reading *r, size_t node, char *to, size_t size) {
    size_t length;
    const char *bytes = harpe_json_bytes(r->json, node, &length);
    size_t count = length < size - 1 ? length : size - 1;
    for (size_t i = 0; i < count; i++)
        to[i] = (unsigned char)bytes[i] < 0x20 || bytes[i] == 0x7f ? '?' : bytes[i];
    to[count] = '\0';
}

static bool is_key(const reading *r, size_t node, const char *name) {
    size_t length;
    const char *bytes = harpe_json_bytes(r->json, node, &length);
    return length == strlen(name) && memcmp(bytes, name, length) == 0;
}

/* ---- Values ---------------------------------------------------------------------------------- */

static bool get_number(const reading *r, size_t node, double minimum, double maximum,
                       double *value) {
    harpe_json_kind kind = harpe_json_kind_of(r->json, node);
    if (kind != HARPE_JSON_INTEGER && kind != HARPE_JSON_REAL) return false;
    double number = r->json->nodes[node].number;
    if (!(number >= minimum && number <= maximum)) return false; /* also refuses NaN */
    *value = number;
    return true;
}

static bool read_tail(const reading *r, size_t node, const char *name, emulator_tail *out) {
    static const char expected[] =
        "an object such as {\"share\": 0.01, \"factor\": 3}, with a share from 0 to 1 and a "
        "factor from 1 to 100";
    emulator_tail tail = {.factor = 1};
    bool has_share = false, has_factor = false;
    if (harpe_json_kind_of(r->json, node) != HARPE_JSON_OBJECT) return refuse(r, name, expected);
    size_t key = node + 1;
    for (uint32_t i = 0; i < r->json->nodes[node].held.count; i++) {
        size_t value = key + 1;
        bool is_share = is_key(r, key, "share");
        if (!is_share && !is_key(r, key, "factor")) return refuse(r, name, expected);
        if (is_share ? has_share : has_factor) return refuse(r, name, expected);
        if (!get_number(r, value, is_share ? 0 : 1, is_share ? 1 : 100,
                        is_share ? &tail.share : &tail.factor))
            return refuse(r, name, expected);
        has_share = has_share || is_share;
        has_factor = has_factor || !is_share;
        key = harpe_json_next(r->json, value);
    }
    if (!has_share || !has_factor) return refuse(r, name, expected);
    *out = tail;
    return true;
}

static bool add_latency(emulator_effects *out, double clock_mhz, double latency_s) {
    uint32_t at = 0;
    while (at < out->latency_count && out->latency[at].clock_mhz < clock_mhz)
        at++;
    bool is_repeated = at < out->latency_count && out->latency[at].clock_mhz == clock_mhz;
    if (is_repeated || out->latency_count == EMULATOR_LATENCY_MAX) return false;
    memmove(&out->latency[at + 1], &out->latency[at],
            (out->latency_count - at) * sizeof out->latency[0]);
    out->latency[at].clock_mhz = clock_mhz;
    out->latency[at].latency_s = latency_s;
    out->latency_count++;
    return true;
}

static bool read_latencies(const reading *r, size_t node, const char *name, emulator_effects *out) {
    static const char expected[] =
        "a number of seconds from 0 to 10, or an object of 1 to 64 different clocks in MHz such "
        "as {\"210\": 0.02, \"1410\": 0.005}";
    double latency_s;
    out->latency_count = 0;
    if (get_number(r, node, 0, LATENCY_MAX_S, &latency_s)) {
        if (latency_s > 0) (void)add_latency(out, 0, latency_s);
        return true;
    }
    if (harpe_json_kind_of(r->json, node) != HARPE_JSON_OBJECT ||
        r->json->nodes[node].held.count == 0)
        return refuse(r, name, expected);
    size_t key = node + 1;
    for (uint32_t i = 0; i < r->json->nodes[node].held.count; i++) {
        size_t length;
        int64_t mhz;
        const char *bytes = harpe_json_bytes(r->json, key, &length);
        if (!harpe_parse_int(bytes, length, &mhz) || mhz < 1 || mhz > CLOCK_MAX_MHZ ||
            !get_number(r, key + 1, 0, LATENCY_MAX_S, &latency_s) ||
            !add_latency(out, (double)mhz, latency_s))
            return refuse(r, name, expected);
        key = harpe_json_next(r->json, key + 1);
    }
    return true;
}

static bool read_scope(const reading *r, size_t node, const char *name, emulator_effects *out) {
    bool is_text = harpe_json_is_text(r->json, node);
    bool is_gpu = is_text && is_key(r, node, "gpu");
    if (!is_gpu && !(is_text && is_key(r, node, "model")))
        return refuse(r, name, "\"model\" or \"gpu\"");
    out->counts_gpu = is_gpu;
    return true;
}

static bool read_value(const reading *r, const effect_key *key, size_t node,
                       emulator_effects *out) {
    void *target = (char *)out + key->offset;
    switch (key->kind) {
    case VALUE_TAIL: return read_tail(r, node, key->name, target);
    case VALUE_SCOPE: return read_scope(r, node, key->name, out);
    case VALUE_LATENCIES: return read_latencies(r, node, key->name, out);
    case VALUE_NUMBER: break;
    }
    return get_number(r, node, key->minimum, key->maximum, target) ||
           refuse_number(r, key->name, key->minimum, key->maximum);
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Reads the effects that the file does not replace. */
static bool read_base(const reading *r, const emulator_model *model, emulator_effects *out) {
    size_t node = harpe_json_member(r->json, 0, "base");
    emulator_effects_ideal(out);
    if (node == 0) return true;
    bool is_text = harpe_json_is_text(r->json, node);
    if (is_text && is_key(r, node, "ideal")) return true;
    if (!is_text || !is_key(r, node, "real")) return refuse(r, "base", "\"ideal\" or \"real\"");
    emulator_effects_real(model, out);
    return true;
}

static bool read_members(const reading *r, emulator_effects *out) {
    bool is_seen[KEY_COUNT + 1] = {false}; /* the last is "base" */
    size_t node = 1;
    for (uint32_t i = 0; i < r->json->nodes[0].held.count; i++) {
        int k = 0;
        while (k < KEY_COUNT && !is_key(r, node, keys[k].name))
            k++;
        if (k == KEY_COUNT && !is_key(r, node, "base")) {
            char name[64];
            copy_key(r, node, name, sizeof name);
            snprintf(r->problem, r->problem_size,
                     "%s: '%s' is not an effect; harpe-emulate(1) lists the effects", r->name,
                     name);
            return false;
        }
        if (is_seen[k])
            return refuse(r, k < KEY_COUNT ? keys[k].name : "base", "the key only once");
        is_seen[k] = true;
        if (k < KEY_COUNT && !read_value(r, &keys[k], node + 1, out)) return false;
        node = harpe_json_next(r->json, node + 1);
    }
    return true;
}

bool emulator_effects_parse(const char *text, size_t length, const char *name,
                            const emulator_model *model, emulator_effects *out, char *problem,
                            size_t problem_size) {
    harpe_json json;
    harpe_json_failure failure = {0};
    if (!harpe_json_read(text, length, &json, &failure)) {
        snprintf(problem, problem_size, "%s: not JSON: %s (byte %zu)", name,
                 failure.message ? failure.message : "out of memory", failure.byte);
        return false;
    }
    reading r = {.json = &json, .name = name, .problem = problem, .problem_size = problem_size};
    emulator_effects effects;
    bool is_read = harpe_json_kind_of(&json, 0) == HARPE_JSON_OBJECT;
    if (!is_read) snprintf(problem, problem_size, "%s: expected a JSON object of effects", name);
    is_read = is_read && read_base(&r, model, &effects) && read_members(&r, &effects);
    harpe_json_free(&json);
    if (is_read) *out = effects;
    return is_read;
}

/* FNV-1a. */
static uint64_t hash(const char *bytes, size_t length) {
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        value = (value ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return value;
}

bool emulator_effects_read(const char *value, const emulator_model *model, emulator_effects *out,
                           uint64_t *identity, char *problem, size_t problem_size) {
    *identity = hash(value, strlen(value));
    if (strcmp(value, "ideal") == 0) {
        emulator_effects_ideal(out);
        return true;
    }
    if (strcmp(value, "real") == 0) {
        emulator_effects_real(model, out);
        return true;
    }
    char *text;
    size_t length;
    harpe_error error;
    if (harpe_file_read(value, FILE_BYTES_MAX, &text, &length, &error) != HARPE_OK) {
        snprintf(problem, problem_size, "the physics is ideal, real, or a file of effects: %s",
                 error.message);
        return false;
    }
    *identity = hash(text, length);
    bool is_read = emulator_effects_parse(text, length, value, model, out, problem, problem_size);
    free(text);
    return is_read;
}
