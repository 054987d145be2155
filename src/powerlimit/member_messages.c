/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the bodies of a member's requests and reads the answers. The plan of a job that cannot be
 * steered needs a time, which is not known; only ratios of times count, so any time will do. */
#include "powerlimit/member_messages.h"

#include <jansson.h>

#include "base/json_text.h"

#define UNKNOWN_TIME_S 1.0

static void append_plan(harpe_text *body, const char *before, double time_s, double power_w) {
    harpe_json_raw(body, before);
    harpe_json_number(body, "{\"time\":", time_s);
    harpe_json_number(body, ",\"power\":", power_w);
    harpe_json_raw(body, "}");
}

static void append_terms(harpe_text *body, const harpe_power_limit_fleet *terms) {
    harpe_json_raw(body, "]");
    if (terms->group) harpe_json_string(body, ",\"group\":", terms->group);
    if (terms->weight > 0) harpe_json_number(body, ",\"weight\":", terms->weight);
    if (terms->max_slowdown > 0) harpe_json_number(body, ",\"max_slowdown\":", terms->max_slowdown);
}

void harpe_member_declare_unsteered(const harpe_power_limit_fleet *terms, double highest_w,
                                    harpe_text *body) {
    append_plan(body, "{\"plans\":[", UNKNOWN_TIME_S, highest_w);
    append_terms(body, terms);
    harpe_json_raw(body, "}");
}

void harpe_member_declare(const harpe_power_limit_fleet *terms, const harpe_limit_plans *plans,
                          harpe_text *body) {
    for (size_t i = 0; i < plans->count; i++)
        append_plan(body, i == 0 ? "{\"plans\":[" : ",", plans->plans[i].time_s,
                    plans->plans[i].power_w);
    append_terms(body, terms);
    harpe_json_number(body, ",\"most_w\":", plans->plans[plans->chosen].power_w);
    harpe_json_raw(body, "}");
}

void harpe_member_report(size_t plan, double power_w, harpe_text *body) {
    harpe_text_printf(body, "{\"plan\":%zu", plan);
    if (power_w >= 0) harpe_json_number(body, ",\"power\":", power_w);
    harpe_json_raw(body, "}");
}

bool harpe_member_read_answer(const char *bytes, size_t length, size_t count, size_t *plan) {
    json_t *answer = json_loadb(bytes, length, 0, NULL);
    const json_t *number = json_object_get(answer, "plan");
    json_int_t value = json_is_integer(number) ? json_integer_value(number) : -1;
    json_decref(answer);
    if (value < 0 || (unsigned long long)value >= count) return false;
    *plan = (size_t)value;
    return true;
}
