/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the timelines of a plan for the report. */
#ifndef HARPE_CLI_PLAN_PLAN_TIMELINE_H
#define HARPE_CLI_PLAN_PLAN_TIMELINE_H

#include <harpe/plan.h>

#include "base/arena.h"
#include "draw/report_contents.h"

/* Collects the data for timelines. */
harpe_status harpe_pictures_collect_timeline(const harpe_problem *problem, harpe_arena *arena,
                                             harpe_report_timeline *timeline, harpe_error *error);

#endif
