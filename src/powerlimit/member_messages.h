/* SPDX-License-Identifier: Apache-2.0 */
/* What a member of a fleet says to the server, and the server's answer. docs/fleet.md describes the
 * requests. */
#ifndef HARPE_POWERLIMIT_MEMBER_MESSAGES_H
#define HARPE_POWERLIMIT_MEMBER_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "powerlimit/limit_plans.h"

/* Appends the declaration of a member that cannot be steered: one plan with the highest power that
 * the job may draw. */
void harpe_member_declare_unsteered(const harpe_power_limit_fleet *terms, double highest_w,
                                    harpe_text *body);
/* Appends the declaration of a member with its plans. The job must never draw more than its chosen
 * plan. */
void harpe_member_declare(const harpe_power_limit_fleet *terms, const harpe_limit_plans *plans,
                          harpe_text *body);
/* Appends a report. `power_w` below 0: not measured. */
void harpe_member_report(size_t plan, double power_w, harpe_text *body);

/* Reads the answer to a report. Returns false, and leaves `*plan`, if the answer does not name one
 * of the `count` plans. */
bool harpe_member_read_answer(const char *bytes, size_t length, size_t count, size_t *plan);

#endif
