/* SPDX-License-Identifier: Apache-2.0 */
/* A fast scan of a ProfilingResult: it checks that the text is valid, and finds the rank and the
 * reported time and energy. It leaves unusual documents (with other members, escapes, texts in
 * place of numbers, or errors) to the full reader, which makes the error messages. The server scans
 * each result on the thread of its loop. A scan takes less than half of the full reader's time (7
 * us instead of 17 us for 640 numbers), because it builds no objects and does not convert the
 * numbers of the breakdowns. Without the scan, the server needs a quarter more processor time for
 * each result (122 us instead of 98 us, bench/bench_server). */
#include "pfo/result_scan.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/possible.h"
#include "base/text.h"
#include "pfo/models.h"

/* A value above these limits is not plausible for an iteration. */
#define TIME_MAX_S 1e6
#define ENERGY_MAX_J 1e9

enum { NUMBER_BYTES_MAX = 200, EXPONENT_DIGITS_MAX = 2, RANK_DIGITS_MAX = 9, NAMES_MAX = 32 };

/* ---- Members of a conduct, which is a flat object of numbers --------------------------------- */

#define COUNT_MAX 1e15
#define CONDUCT_ENERGY_MAX_J 1e15

typedef struct conduct_member {
    const char *name;
    size_t offset;
    bool is_energy; /* otherwise it is a whole number */
} conduct_member;

#define COUNT(name) \
    { #name, offsetof(harpe_conduct, name), false }
static const conduct_member CONDUCT_MEMBERS[] = {
    COUNT(steps),
    COUNT(as_planned),
    COUNT(misfits),
    COUNT(misfits_measured),
    COUNT(disobeyed),
    COUNT(lost),
    COUNT(impossible),
    COUNT(left_out),
    COUNT(wanted_mhz),
    COUNT(held_mhz),
    COUNT(tokens_per_step),
    {"counter_energy", offsetof(harpe_conduct, counter_j), true},
    {"power_energy", offsetof(harpe_conduct, power_j), true},
    {"energy_uncertainty", offsetof(harpe_conduct, energy_uncertainty_j), true},
    {"late_energy", offsetof(harpe_conduct, late_energy_j), true},
};
enum { CONDUCT_MEMBER_COUNT = sizeof CONDUCT_MEMBERS / sizeof *CONDUCT_MEMBERS };

static int64_t *count_of(harpe_conduct *conduct, const conduct_member *one) {
    return (int64_t *)(void *)((char *)conduct + one->offset);
}

static double *energy_of(harpe_conduct *conduct, const conduct_member *one) {
    return (double *)(void *)((char *)conduct + one->offset);
}

/* Sets the member that has this name in JSON. Ignores unknown names. */
static void set_conduct(harpe_conduct *conduct, const char *name, size_t length, double value) {
    for (size_t i = 0; i < CONDUCT_MEMBER_COUNT; i++) {
        const conduct_member *one = &CONDUCT_MEMBERS[i];
        if (strlen(one->name) != length || memcmp(one->name, name, length) != 0) continue;
        if (one->is_energy)
            *energy_of(conduct, one) = value;
        else
            *count_of(conduct, one) = value >= 0 && value <= COUNT_MAX ? (int64_t)value : -1;
    }
}

static bool is_possible(harpe_conduct *conduct) {
    for (size_t i = 0; i < CONDUCT_MEMBER_COUNT; i++) {
        const conduct_member *one = &CONDUCT_MEMBERS[i];
        double energy_j = one->is_energy ? *energy_of(conduct, one) : 0;
        if (!(energy_j >= 0 && energy_j <= CONDUCT_ENERGY_MAX_J)) return false;
        if (!one->is_energy && *count_of(conduct, one) < 0) return false;
    }
    return conduct->as_planned <= conduct->steps && conduct->misfits <= conduct->steps &&
           conduct->misfits_measured <= conduct->misfits && conduct->disobeyed <= conduct->steps &&
           conduct->late_energy_j <= conduct->energy_uncertainty_j &&
           conduct->tokens_per_step <= HARPE_TOKENS_MAX;
}

/* Ends a conduct whose members were set. A conduct with an impossible value becomes unknown. */
static void settle_conduct(harpe_conduct *conduct) {
    conduct->is_known = is_possible(conduct);
    if (!conduct->is_known) *conduct = (harpe_conduct){0};
}

/* ---- The scan -------------------------------------------------------------------------------- */

typedef struct scan {
    const char *at, *end;
    harpe_slice names[NAMES_MAX]; /* names of the breakdown's instructions so far */
    size_t name_count;
    harpe_result_totals totals;
} scan;

static inline void skip_space(scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        s->at++;
}

static inline bool take(scan *s, char c) {
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

static inline size_t take_digits(scan *s) {
    const char *start = s->at;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    /* Examines eight bytes at a time. In `others`, the high bit of a byte is set if the byte is not
     * a digit.
     */
    while (s->end - s->at >= 8) {
        uint64_t block;
        memcpy(&block, s->at, sizeof block);
        uint64_t others =
            ((block + 0x4646464646464646U) | (block - 0x3030303030303030U)) & 0x8080808080808080U;
        if (others) {
            s->at += __builtin_ctzll(others) / 8;
            return (size_t)(s->at - start);
        }
        s->at += sizeof block;
    }
#endif
    while (s->at < s->end && is_digit(*s->at))
        s->at++;
    return (size_t)(s->at - start);
}

/* Reads a number that has few bytes and a small exponent. Such a number is finite and short enough
 * for every reader. */
static inline bool take_number(scan *s) {
    const char *start = s->at;
    (void)take(s, '-');
    const char *first = s->at;
    size_t digits = take_digits(s);
    if (digits == 0 || (digits > 1 && *first == '0')) return false;
    if (take(s, '.') && take_digits(s) == 0) return false;
    if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        if (!take(s, '-')) (void)take(s, '+');
        digits = take_digits(s);
        if (digits == 0 || digits > EXPONENT_DIGITS_MAX) return false;
    }
    return s->at - start <= NUMBER_BYTES_MAX;
}

static bool take_rank(scan *s, int *rank) {
    const char *first = s->at;
    size_t digits = take_digits(s);
    if (digits == 0 || digits > RANK_DIGITS_MAX || (digits > 1 && *first == '0')) return false;
    *rank = 0;
    for (size_t i = 0; i < digits; i++)
        *rank = *rank * 10 + (first[i] - '0');
    return s->at < s->end && *s->at != '.' && *s->at != 'e' && *s->at != 'E';
}

/* ---- Lists, names, members ------------------------------------------------------------------- */

/* Reads `item`s between `open` and `close`, separated by commas. */
static inline __attribute__((always_inline)) bool take_all(scan *s, char open, char close,
                                                           bool (*item)(scan *s)) {
    if (!take(s, open)) return false;
    skip_space(s);
    if (take(s, close)) return true;
    for (;;) {
        if (!item(s)) return false;
        skip_space(s);
        if (take(s, close)) return true;
        if (!take(s, ',')) return false;
        skip_space(s);
    }
}

/* Reads a text of plain ASCII and the colon after it. */
static bool take_name(scan *s, harpe_slice *out) {
    if (!take(s, '"')) return false;
    out->bytes = s->at;
    while (s->at < s->end && *s->at >= ' ' && *s->at <= '~' && *s->at != '"' && *s->at != '\\')
        s->at++;
    out->length = (size_t)(s->at - out->bytes);
    if (!take(s, '"')) return false;
    skip_space(s);
    if (!take(s, ':')) return false;
    skip_space(s);
    return true;
}

static bool take_numbers(scan *s) { return take_all(s, '[', ']', take_number); }

/* ---- Totals ---------------------------------------------------------------------------------- */

/* Adds up a list that is known to contain only numbers. */
static size_t add_up(const char *text, const char *end, double maximum, double *sum) {
    size_t count = 0;
    while (text < end) {
        double value;
        bool is_integer;
        size_t length = 0;
        if (is_digit(*text) || *text == '-')
            length = harpe_scan_number(text, (size_t)(end - text), &value, &is_integer);
        if (length > 0 && value > 0 && value <= maximum) {
            *sum += value;
            count++;
        }
        text += length > 0 ? length : 1;
    }
    return count;
}

static bool take_times(scan *s) {
    const char *first = s->at;
    if (!take_numbers(s)) return false;
    s->totals.iterations = add_up(first, s->at, TIME_MAX_S, &s->totals.time_s);
    return true;
}

static bool take_energies(scan *s) {
    const char *first = s->at;
    if (!take_numbers(s)) return false;
    (void)add_up(first, s->at, ENERGY_MAX_J, &s->totals.energy_j);
    return true;
}

harpe_result_totals harpe_profiling_result_totals(const harpe_profiling_result *result) {
    harpe_result_totals totals = {0};
    for (size_t i = 0; i < result->iteration_time_count; i++) {
        double time_s = result->iteration_time_s[i];
        if (!(time_s > 0 && time_s <= TIME_MAX_S)) continue;
        totals.time_s += time_s;
        totals.iterations++;
    }
    for (size_t i = 0; i < result->iteration_energy_count; i++) {
        double energy_j = result->iteration_energy_j[i];
        if (energy_j > 0 && energy_j <= ENERGY_MAX_J) totals.energy_j += energy_j;
    }
    return totals;
}

bool harpe_result_totals_can_be(const harpe_result_totals *totals, int gpus) {
    return harpe_energy_is_possible(totals->energy_j, totals->time_s, gpus * HARPE_GPU_HIGHEST_W);
}

static double sum_of(const harpe_breakdown *list, size_t count, const char *instruction) {
    double sum = 0;
    for (size_t b = 0; b < count; b++) {
        if (strcmp(list[b].instruction, instruction) != 0) continue;
        for (size_t i = 0; i < list[b].iteration_count; i++)
            for (size_t k = 0; k < list[b].counts[i]; k++)
                sum += list[b].values[list[b].offsets[i] + k];
    }
    return sum;
}

bool harpe_profiling_result_can_be(const harpe_profiling_result *result, int gpus) {
    harpe_result_totals totals = harpe_profiling_result_totals(result);
    bool can_be = harpe_result_totals_can_be(&totals, gpus);
    for (size_t b = 0; b < result->energy_breakdown_count && can_be; b++) {
        const char *own = result->energy_breakdown[b].instruction;
        totals.energy_j = sum_of(result->energy_breakdown, result->energy_breakdown_count, own);
        totals.time_s = sum_of(result->time_breakdown, result->time_breakdown_count, own);
        can_be = harpe_result_totals_can_be(&totals, gpus);
    }
    return can_be;
}

/* ---- The conduct ----------------------------------------------------------------------------- */

static bool take_conduct_member(scan *s) {
    harpe_slice own;
    double value;
    bool is_integer;
    if (!take_name(s, &own)) return false;
    const char *first = s->at;
    if (!take_number(s)) return false;
    size_t length = (size_t)(s->at - first);
    if (harpe_scan_number(first, length, &value, &is_integer) != length) return false;
    set_conduct(&s->totals.conduct, own.bytes, own.length, value);
    return true;
}

static bool take_conduct(scan *s) {
    if (!take_all(s, '{', '}', take_conduct_member)) return false;
    settle_conduct(&s->totals.conduct);
    return true;
}

/* ---- Breakdowns and members ------------------------------------------------------------------ */

/* Returns true if the name is new. A name that occurs again replaces the earlier name's value, so
 * the scan leaves such breakdowns to the full reader. */
static bool is_new(const scan *s, const harpe_slice *candidate) {
    for (size_t i = 0; i < s->name_count; i++) {
        const harpe_slice *known = &s->names[i];
        if (known->length == candidate->length &&
            memcmp(known->bytes, candidate->bytes, known->length) == 0)
            return false;
    }
    return true;
}

static bool take_instruction(scan *s) {
    harpe_slice own;
    if (!take_name(s, &own) || s->name_count == NAMES_MAX || !is_new(s, &own)) return false;
    s->names[s->name_count++] = own;
    return take_all(s, '[', ']', take_numbers);
}

static bool take_breakdown(scan *s) {
    s->name_count = 0;
    return take_all(s, '{', '}', take_instruction);
}

/* ---- The clocks ------------------------------------------------------------------------------ */

static bool take_run(scan *s) {
    static const char none[] = "null";
    if ((size_t)(s->end - s->at) >= sizeof none - 1 && memcmp(s->at, none, sizeof none - 1) == 0) {
        s->at += sizeof none - 1;
        return true;
    }
    return take_numbers(s);
}

/* rank_clocks.c checks the values. */
static bool take_clocks_member(scan *s) {
    harpe_slice own;
    return take_name(s, &own) && take_all(s, '[', ']', take_run);
}

/* ---- Members --------------------------------------------------------------------------------- */

typedef enum member {
    RANK,
    ITER_TIME,
    ITER_ENERGY,
    TIME_BREAKDOWN,
    ENERGY_BREAKDOWN,
    CONDUCT,
    CLOCKS,
    MEMBER_COUNT,
} member;

static member member_of(const harpe_slice *own) {
    static const char *const names[MEMBER_COUNT] = {
        "rank",    "iter_time", "iter_energy", "time_breakdown", "energy_breakdown",
        "conduct", "clocks"};
    for (int i = 0; i < MEMBER_COUNT; i++)
        if (strlen(names[i]) == own->length && memcmp(names[i], own->bytes, own->length) == 0)
            return (member)i;
    return MEMBER_COUNT;
}

/* Reads a member. Each member may occur at most once. The full reader handles repeated members, of
 * which the last counts. */
static bool take_member(scan *s, unsigned *seen, int *rank) {
    harpe_slice own;
    if (!take_name(s, &own)) return false;
    member which = member_of(&own);
    if (*seen & 1U << which) return false;
    *seen |= 1U << which;
    switch (which) {
    case RANK: return take_rank(s, rank);
    case ITER_TIME: return take_times(s);
    case ITER_ENERGY: return take_energies(s);
    case TIME_BREAKDOWN:
    case ENERGY_BREAKDOWN: return take_breakdown(s);
    case CONDUCT: return take_conduct(s);
    case CLOCKS: return take_all(s, '{', '}', take_clocks_member);
    default: return false;
    }
}

bool harpe_profiling_result_scan_totals(const char *body, size_t length, int *rank,
                                        harpe_result_totals *totals) {
    const unsigned needed = 1U << RANK | 1U << ITER_TIME | 1U << ITER_ENERGY;
    scan s;
    s.at = body;
    s.end = body + length;
    s.name_count = 0;
    s.totals = (harpe_result_totals){0};
    unsigned seen = 0;
    int found = 0;
    skip_space(&s);
    if (!take(&s, '{')) return false;
    do {
        skip_space(&s);
        if (!take_member(&s, &seen, &found)) return false;
        skip_space(&s);
    } while (take(&s, ','));
    if (!take(&s, '}')) return false;
    skip_space(&s);
    if (s.at != s.end || (seen & needed) != needed) return false;
    *rank = found;
    *totals = s.totals;
    return true;
}

bool harpe_profiling_result_scan(const char *body, size_t length, int *rank) {
    harpe_result_totals totals;
    return harpe_profiling_result_scan_totals(body, length, rank, &totals);
}

/* ---- Reading a conduct from any text --------------------------------------------------------- */

/* A known member that is no number makes the conduct unknown. */
static harpe_conduct read_object(json_t *object) {
    harpe_conduct conduct = {0};
    const char *name;
    json_t *value;
    if (!json_is_object(object)) return conduct;
    json_object_foreach(object, name, value) {
        double number = json_is_number(value) ? json_number_value(value) : -1;
        set_conduct(&conduct, name, strlen(name), number);
    }
    settle_conduct(&conduct);
    return conduct;
}

harpe_conduct harpe_conduct_read(const char *text, size_t length) {
    static const char name[] = "\"conduct\"";
    int rank;
    harpe_result_totals totals;
    if (harpe_profiling_result_scan_totals(text, length, &rank, &totals)) return totals.conduct;
    if (!memmem(text, length, name, sizeof name - 1)) return (harpe_conduct){0};
    json_t *json = json_loadb(text, length, 0, NULL);
    harpe_conduct conduct = read_object(json_object_get(json, "conduct"));
    json_decref(json);
    return conduct;
}

bool harpe_profiling_result_decode_totals(const char *body, size_t length, int *rank,
                                          harpe_result_totals *totals, harpe_problems *problems) {
    harpe_profiling_result result = {0};
    bool is_valid = harpe_profiling_result_decode(body, length, &result, problems);
    *rank = result.rank;
    *totals = harpe_profiling_result_totals(&result);
    if (is_valid) totals->conduct = harpe_conduct_read(body, length);
    harpe_profiling_result_free(&result);
    return is_valid;
}

json_t *harpe_conduct_schema(void) {
    json_t *properties = json_object();
    for (size_t i = 0; i < CONDUCT_MEMBER_COUNT; i++) {
        const conduct_member *one = &CONDUCT_MEMBERS[i];
        json_t *made =
            json_pack("{s:s, s:i}", "type", one->is_energy ? "number" : "integer", "minimum", 0);
        if (one->offset == offsetof(harpe_conduct, tokens_per_step))
            json_object_set_new(made, "maximum", json_integer(HARPE_TOKENS_MAX));
        json_object_set_new(properties, one->name, made);
    }
    return json_pack("{s:s, s:s, s:o}", "type", "object", "description",
                     "Optional: how the steps since the previous result ran. A wrong conduct is "
                     "ignored.",
                     "properties", properties);
}

/* ---- Writing a conduct ----------------------------------------------------------------------- */

static void write_member(harpe_text *text, harpe_conduct *conduct, const conduct_member *one) {
    harpe_text_printf(text, "\"%s\":", one->name);
    if (one->is_energy)
        harpe_text_number(text, *energy_of(conduct, one));
    else
        harpe_text_printf(text, "%" PRId64, *count_of(conduct, one));
}

harpe_status harpe_conduct_append(const harpe_conduct *conduct, char **json, harpe_error *error) {
    harpe_text text = {0};
    harpe_conduct copy = *conduct;
    size_t length = strlen(*json);
    harpe_text_append(&text, *json, length - 1); /* without the brace at its end */
    harpe_text_printf(&text, ",\"conduct\":{");
    for (size_t i = 0; i < CONDUCT_MEMBER_COUNT; i++) {
        if (i > 0) harpe_text_append(&text, ",", 1);
        write_member(&text, &copy, &CONDUCT_MEMBERS[i]);
    }
    harpe_text_append(&text, "}}", 2);
    char *longer = harpe_text_take(&text);
    if (!longer) return harpe_fail_memory(error);
    free(*json);
    *json = longer;
    return HARPE_OK;
}
