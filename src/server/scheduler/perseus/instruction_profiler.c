/* SPDX-License-Identifier: Apache-2.0 */
/* InstructionProfiler does only the first part of Perseus. It runs the sweep and writes the profile
 * as CSV, which `harpe plan` reads. Then all instructions run at the highest frequency until the
 * job ends. */
#include "server/scheduler/builtin.h"
#include "server/scheduler/perseus/perseus.h"
#include "server/scheduler/perseus/perseus_args.h"
#include "server/scheduler/perseus/perseus_job.h"
#include "server/scheduler/perseus/perseus_state.h"

static const char NAME[] = "InstructionProfiler";

static harpe_status check_args(const char *args_json, harpe_error *error) {
    return harpe_perseus_args_check(NAME, false, args_json, error);
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    return harpe_perseus_create(job, NAME, false, state, error);
}

static bool is_finished(const void *state) {
    const harpe_perseus *self = state;
    return self->phase == HARPE_PERSEUS_HOLD && self->is_profile_made;
}

const harpe_scheduler_class harpe_instruction_profiler = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = NAME,
    .check_args = check_args,
    .create = create,
    .next_schedule = harpe_perseus_next,
    .observe = harpe_perseus_observe,
    .destroy = harpe_perseus_destroy,
    .is_finished = is_finished,
    .save = harpe_perseus_save,
    .load = harpe_perseus_load,
    .frontier = harpe_perseus_frontier,
};
