/* SPDX-License-Identifier: Apache-2.0 */
/* A fast scan of a ProfilingResult: it checks that the text is valid, and finds the rank and the
 * reported time and energy. It leaves unusual documents (with other members, escapes, texts in
 * place of numbers, or errors) to the full reader, which makes the error messages. The server scans
 * each result on the thread of its loop. A scan takes less than half of the full reader's time (7
 * us instead of 17 us for 640 numbers), because it builds no objects and does not convert the
 * numbers of the breakdowns. Without the scan, the server needs a quarter more processor time for
 * each result (122 us instead of 98 us, bench/bench_server). */
#include <stdint.h>
#include <string.h>

#include "base/number.h"
#include "base/possible.h"
#include "pfo/models.h"

/* A value above these limits is not plausible for an iteration. */
#define TIME_MAX_S 1e6
#define ENERGY_MAX_J 1e9

enum { NUMBER_BYTES_MAX = 200, EXPONENT_DIGITS_MAX = 2, RANK_DIGITS_MAX = 9, NAMES_MAX = 32 };

typedef struct name {
    const char *bytes;
    size_t length;
} name;

typedef struct scan {
    const char *at, *end;
    name names[NAMES_MAX]; /* names of the breakdown's instructions so far */
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
static bool take_name(scan *s, name *out) {
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
    name own;
    double value;
    bool is_integer;
    if (!take_name(s, &own)) return false;
    const char *first = s->at;
    if (!take_number(s)) return false;
    size_t length = (size_t)(s->at - first);
    if (harpe_scan_number(first, length, &value, &is_integer) != length) return false;
    harpe_conduct_set(&s->totals.conduct, own.bytes, own.length, value);
    return true;
}

static bool take_conduct(scan *s) {
    if (!take_all(s, '{', '}', take_conduct_member)) return false;
    harpe_conduct_settle(&s->totals.conduct);
    return true;
}

/* ---- Breakdowns and members ------------------------------------------------------------------ */

/* Returns true if the name is new. A name that occurs again replaces the earlier name's value, so
 * the scan leaves such breakdowns to the full reader. */
static bool is_new(const scan *s, const name *candidate) {
    for (size_t i = 0; i < s->name_count; i++) {
        const name *known = &s->names[i];
        if (known->length == candidate->length &&
            memcmp(known->bytes, candidate->bytes, known->length) == 0)
            return false;
    }
    return true;
}

static bool take_instruction(scan *s) {
    name own;
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
    name own;
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

static member member_of(const name *own) {
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
    name own;
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
