/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a plan directory for `harpe choose`, and checks for `harpe plan --force` whether a
 * directory is a plan directory. It checks everything that it reads. A directory was made by harpe
 * plan if its plan.json says so. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/plan/plan_internal.h"

#define PLAN_JSON_LIMIT_BYTES ((size_t)256 << 20)
#define BOUND_LIMIT_BYTES ((size_t)1 << 30)
#define BOUND_HEADER "time_s,lower_bound_j,marginal_w\n"

harpe_status harpe_plan_directory_join(const char *path, const char *name, char **out,
                                       harpe_error *error) {
    harpe_text text = {0};
    size_t length = strlen(path);
    bool has_slash = length > 0 && path[length - 1] == '/';
    harpe_text_printf(&text, "%s%s%s", path, has_slash ? "" : "/", name);
    if (text.failed) {
        harpe_text_free(&text);
        return harpe_fail_memory(error);
    }
    *out = text.data;
    return HARPE_OK;
}

/* The relevant contents of a directory. */
typedef struct contents {
    size_t entry_count;
    bool has_plan_json, has_frontier, has_bound;
} contents;

/* Lists the relevant contents. Returns 0, or the errno if the directory cannot be opened. */
static int list_contents(const char *path, contents *found) {
    *found = (contents){.entry_count = 0};
    DIR *stream = opendir(path);
    if (!stream) return errno;
    for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream)) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        found->entry_count++;
        found->has_plan_json |= strcmp(name, HARPE_PLAN_JSON_NAME) == 0;
        found->has_frontier |= strcmp(name, HARPE_FRONTIER_FILE_NAME) == 0;
        found->has_bound |= strcmp(name, HARPE_BOUND_FILE_NAME) == 0;
    }
    closedir(stream);
    return 0;
}

/* ---- plan.json ------------------------------------------------------------------------------- */

/* Parses the file and checks that harpe plan has written it. The caller releases `*out`. */
static harpe_status load_plan_json(const char *path, json_t **out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, PLAN_JSON_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    json_error_t reason;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason);
    free(text);
    if (!root) {
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s:%d:%d: not JSON: %s", path, reason.line,
                          reason.column, reason.text);
    }
    const char *program = json_string_value(json_object_get(root, "program"));
    if (!program || strcmp(program, HARPE_PLAN_JSON_PROGRAM) != 0) {
        json_decref(root);
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: not made by harpe plan (\"program\" is not \"%s\")", path,
                          HARPE_PLAN_JSON_PROGRAM);
    }
    *out = root;
    return HARPE_OK;
}

/* Reads a row of a plan without a file. `what` names it in messages. */
static harpe_status read_row(json_t *object, harpe_frontier_row *row, const char *path,
                             const char *what, harpe_error *error) {
    *row = (harpe_frontier_row){.plan = -1}; /* files of older versions lack some members */
    row->peak_power_w = row->swing_w = row->swing_hz = NAN;
    int failed = json_unpack(
        object, "{s:F, s:F, s:F, s:F, s:F, s:F, s:F, s:F, s:F, s?F, s?F, s?F, s?F, s?i, s?F}",
        "time_s", &row->time_s, "energy_j", &row->energy_j, "lower_bound_j", &row->lower_bound_j,
        "gap_percent", &row->gap_percent, "compute_energy_j", &row->compute_energy_j,
        "blocking_energy_j", &row->blocking_energy_j, "average_power_w", &row->average_power_w,
        "slowdown_percent", &row->slowdown_percent, "savings_percent", &row->savings_percent,
        "overhead_energy_j", &row->overhead_energy_j, "peak_power_w", &row->peak_power_w, "swing_w",
        &row->swing_w, "swing_hz", &row->swing_hz, "frequency_mhz", &row->one_clock_mhz,
        "change_energy_j", &row->change_energy_j);
    if (!failed && row->time_s > 0) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT, "%s: %s lacks a number: the file is damaged",
                      path, what);
}

/* Reads the plans with one clock. They have no peak and no swing. */
static harpe_status read_one_clock(const json_t *list, harpe_plan_directory *plans,
                                   const char *path, harpe_error *error) {
    size_t count = json_array_size(list);
    harpe_one_clock_rows *of = &plans->one_clock;
    of->rows = harpe_calloc(count, sizeof *of->rows);
    if (!of->rows) return harpe_fail_memory(error);
    of->count = count;
    of->highest_s = plans->all_maximum.time_s;
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        status =
            read_row(json_array_get(list, i), &of->rows[i], path, "a plan of one_clock", error);
        of->rows[i].peak_power_w = of->rows[i].swing_w = of->rows[i].swing_hz = 0;
    }
    return status;
}

/* Computes the number of all GPUs, and the power of all of them. `list` contains the power of one
 * GPU of each rank, and `gpus` the number of GPUs of each rank. */
static harpe_status read_blocking_power(const json_t *list, const json_t *gpus,
                                        harpe_plan_directory *plans, const char *path,
                                        harpe_error *error) {
    double sum_w = 0, gpu_count = 0;
    size_t count = json_array_size(list);
    bool is_good = count > 0 && (!gpus || json_array_size(gpus) == count);
    for (size_t i = 0; is_good && i < count; i++) {
        const json_t *power = json_array_get(list, i);
        double number = gpus ? json_number_value(json_array_get(gpus, i)) : 1;
        is_good = json_is_number(power) && json_number_value(power) >= 0 && number >= 1;
        gpu_count += number;
        sum_w += number * json_number_value(power);
    }
    if (!is_good || gpu_count > INT32_MAX) {
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "%s: problem.blocking_power_w and problem.gpus do not list every rank's power "
            "and GPUs: the file is damaged",
            path);
    }
    plans->end_power_w = sum_w;
    plans->gpu_count = (int)gpu_count;
    return HARPE_OK;
}

/* Reads the values that frontier.csv lacks: the reference, and the blocking power. */
static harpe_status read_plan_json(const char *path, harpe_plan_directory *plans,
                                   harpe_error *error) {
    json_t *root = NULL;
    harpe_status status = load_plan_json(path, &root, error);
    if (status != HARPE_OK) return status;
    const json_t *summary = json_object_get(root, "summary");
    const json_t *problem = json_object_get(root, "problem");
    plans->is_of_graph = json_object_get(problem, "activities");
    status = read_row(json_object_get(summary, "all_maximum"), &plans->all_maximum, path,
                      "summary.all_maximum", error);
    if (status == HARPE_OK)
        status = read_one_clock(json_object_get(root, "one_clock"), plans, path, error);
    if (status == HARPE_OK) {
        /* end_wait_power_w exists only if kinds of waits have their own powers. */
        const json_t *at_end = json_object_get(problem, "end_wait_power_w");
        status = read_blocking_power(at_end ? at_end : json_object_get(problem, "blocking_power_w"),
                                     json_object_get(problem, "gpus"), plans, path, error);
    }
    const json_t *overhead = json_object_get(problem, "overhead_power_w"); /* not in old files */
    if (status == HARPE_OK && overhead && !(json_number_value(overhead) >= 0))
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s: problem.overhead_power_w is negative: the file is damaged", path);
    plans->overhead_power_w = json_number_value(overhead);
    json_decref(root);
    return status;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static harpe_status check_is_readable(const char *path, harpe_error *error) {
    contents found;
    int failure = list_contents(path, &found);
    if (failure != 0) return harpe_fail_errno(error, failure, "%s", path);
    if (found.has_frontier) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_FOUND,
                      "%s: %s in it; harpe plan --output-dir makes a directory to choose from",
                      path, found.has_bound ? "a lower bound but no plans" : "no frontier.csv");
}

harpe_status harpe_plan_directory_read(const char *path, harpe_plan_directory *out,
                                       harpe_error *error) {
    harpe_plan_directory plans = {0};
    char *frontier_path = NULL;
    char *json_path = NULL;
    harpe_status status = check_is_readable(path, error);
    if (status == HARPE_OK)
        status = harpe_plan_directory_join(path, HARPE_FRONTIER_FILE_NAME, &frontier_path, error);
    if (status == HARPE_OK)
        status = harpe_plan_directory_join(path, HARPE_PLAN_JSON_NAME, &json_path, error);
    if (status == HARPE_OK)
        status = harpe_frontier_csv_read(frontier_path, &plans.rows, &plans.row_count, error);
    if (status == HARPE_OK) status = read_plan_json(json_path, &plans, error);
    free(frontier_path);
    free(json_path);
    if (status != HARPE_OK) {
        harpe_plan_directory_free(&plans);
        return status;
    }
    *out = plans;
    return HARPE_OK;
}

void harpe_plan_directory_set_overhead(harpe_plan_directory *plans, double overhead_w) {
    harpe_frontier_row_set_overhead(&plans->all_maximum, overhead_w, &plans->all_maximum);
    for (size_t i = 0; i < plans->row_count; i++)
        harpe_frontier_row_set_overhead(&plans->rows[i], overhead_w, &plans->all_maximum);
    for (size_t i = 0; i < plans->one_clock.count; i++)
        harpe_frontier_row_set_overhead(&plans->one_clock.rows[i], overhead_w, &plans->all_maximum);
    plans->overhead_power_w = overhead_w;
}

void harpe_plan_directory_free(harpe_plan_directory *plans) {
    free(plans->rows);
    harpe_one_clock_rows_free(&plans->one_clock);
    *plans = (harpe_plan_directory){0};
}

/* ---- Replacing ------------------------------------------------------------------------------- */

static bool says_harpe(const char *path) {
    char *json_path = NULL;
    json_t *root = NULL;
    bool is_ours =
        harpe_plan_directory_join(path, HARPE_PLAN_JSON_NAME, &json_path, NULL) == HARPE_OK &&
        load_plan_json(json_path, &root, NULL) == HARPE_OK;
    json_decref(root);
    free(json_path);
    return is_ours;
}

static bool begins_like_a_bound(const char *path) {
    char *bound_path = NULL;
    char *text = NULL;
    size_t length = 0;
    bool is_ours =
        harpe_plan_directory_join(path, HARPE_BOUND_FILE_NAME, &bound_path, NULL) == HARPE_OK &&
        harpe_file_read(bound_path, BOUND_LIMIT_BYTES, &text, &length, NULL) == HARPE_OK &&
        length >= strlen(BOUND_HEADER) && memcmp(text, BOUND_HEADER, strlen(BOUND_HEADER)) == 0;
    free(text);
    free(bound_path);
    return is_ours;
}

harpe_status harpe_plan_directory_check_replaceable(const char *path, harpe_error *error) {
    contents found;
    if (list_contents(path, &found) != 0 || found.entry_count == 0) return HARPE_OK;
    /* A directory of --bound-only contains only this file, without a plan.json. */
    bool only_bound = found.has_bound && found.entry_count == 1;
    if (found.has_plan_json ? says_harpe(path) : only_bound && begins_like_a_bound(path))
        return HARPE_OK;
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "%s: not replaced, because it is not a plan directory (it has files, but no "
                      "%s of harpe plan): choose another directory",
                      path, HARPE_PLAN_JSON_NAME);
}
