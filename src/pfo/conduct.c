/* SPDX-License-Identifier: Apache-2.0 */
/* The members of the conduct of a rank, which is a flat JSON object of numbers, and its text.
 * profiling_result_scan.c and conduct_read.c read it. */
#include "pfo/conduct.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define COUNT_MAX 1e15
#define ENERGY_MAX_J 1e15

typedef struct member {
    const char *name;
    size_t offset;
    bool is_energy; /* otherwise it is a whole number */
} member;

#define COUNT(name) \
    { #name, offsetof(harpe_conduct, name), false }
static const member MEMBERS[] = {
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
enum { MEMBER_COUNT = sizeof MEMBERS / sizeof *MEMBERS };

static int64_t *count_of(harpe_conduct *conduct, const member *one) {
    return (int64_t *)(void *)((char *)conduct + one->offset);
}

static double *energy_of(harpe_conduct *conduct, const member *one) {
    return (double *)(void *)((char *)conduct + one->offset);
}

/* ---- Reading --------------------------------------------------------------------------------- */

void harpe_conduct_set(harpe_conduct *conduct, const char *name, size_t length, double value) {
    for (size_t i = 0; i < MEMBER_COUNT; i++) {
        const member *one = &MEMBERS[i];
        if (strlen(one->name) != length || memcmp(one->name, name, length) != 0) continue;
        if (one->is_energy)
            *energy_of(conduct, one) = value;
        else
            *count_of(conduct, one) = value >= 0 && value <= COUNT_MAX ? (int64_t)value : -1;
    }
}

static bool is_possible(harpe_conduct *conduct) {
    for (size_t i = 0; i < MEMBER_COUNT; i++) {
        const member *one = &MEMBERS[i];
        double energy_j = one->is_energy ? *energy_of(conduct, one) : 0;
        if (!(energy_j >= 0 && energy_j <= ENERGY_MAX_J)) return false;
        if (!one->is_energy && *count_of(conduct, one) < 0) return false;
    }
    return conduct->as_planned <= conduct->steps && conduct->misfits <= conduct->steps &&
           conduct->misfits_measured <= conduct->misfits && conduct->disobeyed <= conduct->steps &&
           conduct->late_energy_j <= conduct->energy_uncertainty_j &&
           conduct->tokens_per_step <= HARPE_TOKENS_MAX;
}

void harpe_conduct_settle(harpe_conduct *conduct) {
    conduct->is_known = is_possible(conduct);
    if (!conduct->is_known) *conduct = (harpe_conduct){0};
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void write_member(harpe_text *text, harpe_conduct *conduct, const member *one) {
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
    for (size_t i = 0; i < MEMBER_COUNT; i++) {
        if (i > 0) harpe_text_append(&text, ",", 1);
        write_member(&text, &copy, &MEMBERS[i]);
    }
    harpe_text_append(&text, "}}", 2);
    if (text.failed) {
        harpe_text_free(&text);
        return harpe_fail_memory(error);
    }
    free(*json);
    *json = text.data;
    return HARPE_OK;
}
