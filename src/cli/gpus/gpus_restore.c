/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the records of saved settings (gpu/saved_settings.h), either as restored settings or as a
 * problem with its solution. It makes no decision about a record. */
#include "cli/gpus/gpus_restore.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "cli/command.h"
#include "client/controller_claim.h"
#include "gpu/saved_settings.h"

typedef struct restore_view {
    bool is_dry;
    json_t *records; /* NULL: lines */
    int count;
} restore_view;

/* ---- Restoring ------------------------------------------------------------------------------- */

static const char *outcome_name(const restore_view *view, harpe_saved_settings_outcome outcome) {
    switch (outcome) {
    case HARPE_SAVED_RESTORED: return view->is_dry ? "would_restore" : "restored";
    case HARPE_SAVED_FAILED: return "failed";
    case HARPE_SAVED_IN_USE: return "in_use";
    case HARPE_SAVED_ELSEWHERE: return "not_here";
    default: return view->is_dry ? "would_discard" : "discarded";
    }
}

static json_t *watts(uint32_t milliwatts) {
    return milliwatts > 0 ? json_real(milliwatts / 1e3) : json_null();
}

static void add_record(restore_view *view, const harpe_saved_settings *state,
                       const harpe_gpu_info *info, harpe_saved_settings_outcome outcome,
                       const harpe_error *error) {
    bool has_failed = outcome == HARPE_SAVED_FAILED;
    json_t *record = json_pack(
        "{s:o, s:s, s:s, s:I, s:s, s:b, s:o, s:o, s:o}", "driver_index",
        info ? json_integer(info->driver_index) : json_null(), "uuid", state->uuid, "changed_by",
        state->kind == HARPE_SAVED_CLOCKS ? "frequency controller" : "power limit optimizer",
        "process", (json_int_t)state->trainer, "outcome", outcome_name(view, outcome),
        "resets_clocks", state->resets_clocks, "power_limit_w", watts(state->power_limit_mw),
        "persistence", state->persistence >= 0 ? json_boolean(state->persistence) : json_null(),
        "error", has_failed ? harpe_command_json_text(error->message) : json_null());
    json_array_append_new(view->records, record);
}

static void print_record(const restore_view *view, const harpe_saved_settings *state,
                         harpe_saved_settings_outcome outcome, const harpe_error *error) {
    char what[128];
    harpe_saved_settings_describe(state, what, sizeof what);
    switch (outcome) {
    case HARPE_SAVED_RESTORED:
        printf("%s: %s (process %" PRId64 ", which was killed, had changed it)\n",
               view->is_dry ? "would put back" : "put back", what, state->trainer);
        return;
    case HARPE_SAVED_FAILED: printf("not put back: %s\n", error->message); return;
    case HARPE_SAVED_IN_USE:
        printf("left alone: process %" PRId64 " uses it\n", state->trainer);
        return;
    case HARPE_SAVED_ELSEWHERE:
        printf("left alone: it is not one of these GPUs, or belongs to another cluster\n");
        return;
    default:
        printf("%s: the machine was restarted since, or the emulated cluster is gone\n",
               view->is_dry ? "would discard its record" : "discarded its record");
    }
}

static void show_record(void *user, const harpe_saved_settings *state, const harpe_gpu_info *info,
                        harpe_saved_settings_outcome outcome, const harpe_error *error) {
    restore_view *view = user;
    view->count++;
    if (view->records) {
        add_record(view, state, info, outcome, error);
        return;
    }
    if (info)
        printf("GPU %d (%s): ", info->index, info->name);
    else
        printf("GPU %s: ", state->uuid);
    print_record(view, state, outcome, error);
}

harpe_status harpe_gpus_restore_left(harpe_gpus *gpus, bool is_dry, bool is_json,
                                     harpe_error *error) {
    restore_view view = {.is_dry = is_dry, .records = is_json ? json_array() : NULL};
    if (is_json && !view.records) return harpe_fail_memory(error);
    harpe_saved_settings_recovery recovery = {.is_dry = is_dry,
                                              .through_zeusd =
                                                  harpe_controller_restore_through_zeusd,
                                              .report = show_record,
                                              .user = &view};
    harpe_status status = harpe_saved_settings_recover(gpus, &recovery, error);
    if (is_json) {
        json_t *object = json_pack("{s:b, s:o}", "dry_run", is_dry, "records", view.records);
        harpe_status printed = harpe_command_print_json(object, status == HARPE_OK ? error : NULL);
        return status == HARPE_OK ? printed : status;
    }
    if (view.count == 0 && status == HARPE_OK)
        puts("Nothing to restore: no killed job has left a GPU changed.");
    return status;
}

/* ---- Problems -------------------------------------------------------------------------------- */

static void add_problem(void *user, const harpe_saved_settings *state, const harpe_gpu_info *info,
                        harpe_saved_settings_outcome outcome, const harpe_error *error) {
    char what[128];
    char line[512];
    (void)error;
    if (outcome != HARPE_SAVED_RESTORED || !info) return;
    harpe_saved_settings_describe(state, what, sizeof what);
    snprintf(line, sizeof line,
             "GPU %d: process %" PRId64 " was killed and has left this GPU changed (to put back: "
             "%s): harpe gpus --restore, or the next start of a job under Harpe.",
             info->index, state->trainer, what);
    json_array_append_new(user, harpe_command_json_text(line));
}

void harpe_gpus_add_left(const harpe_gpus *gpus, json_t *problems) {
    harpe_saved_settings_recovery recovery = {.is_dry = true,
                                              .through_zeusd =
                                                  harpe_controller_restore_through_zeusd,
                                              .report = add_problem,
                                              .user = problems};
    (void)harpe_saved_settings_recover(gpus, &recovery, NULL);
}
