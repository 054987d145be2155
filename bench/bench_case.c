/* SPDX-License-Identifier: Apache-2.0 */
/* The flags, the problem and the output of the benchmark programs; see bench_case.h. Measures
 * nothing. */
#include "bench_case.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bench_require(harpe_status status, const harpe_error *error) {
    if (status == HARPE_OK) return;
    fprintf(stderr, "bench: %s\n", error->message);
    exit(1);
}

static double number(const char *flag, const char *text) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end != text && *end == '\0') return value;
    fprintf(stderr, "bench: --%s: '%s' is not a number\n", flag, text);
    exit(2);
}

bench_case bench_case_from_flags(int argc, char **argv) {
    static const struct option flags[] = {
        {"profile", required_argument, NULL, 'i'},      {"stages", required_argument, NULL, 'n'},
        {"microbatches", required_argument, NULL, 'm'}, {"blocking", required_argument, NULL, 'p'},
        {"runs", required_argument, NULL, 'r'},         {NULL, 0, NULL, 0},
    };
    bench_case which = {.blocking_power_w = -1, .runs = 1, .microbatches = 8};
    int index = 0;
    for (int flag; (flag = getopt_long(argc, argv, "", flags, &index)) != -1;) {
        if (flag == '?') exit(2);
        if (flag == 'i') {
            which.profile_path = optarg;
            continue;
        }
        double value = number(flags[index].name, optarg);
        switch (flag) {
        case 'n': which.stages = (int)value; break;
        case 'm': which.microbatches = (int)value; break;
        case 'p': which.blocking_power_w = value; break;
        default: which.runs = (int)value; break;
        }
    }
    return which;
}

/* Makes a profile with `stages` stages by repeating the stages of `profile`. */
static harpe_profile *repeat_stages(const harpe_profile *profile, int stages) {
    int own_stages = harpe_profile_stage_count(profile);
    size_t entries = harpe_profile_entry_count(profile), points = 0;
    for (size_t e = 0; e < entries; e++)
        points += harpe_profile_entry_at(profile, e)->point_count;
    size_t copies = (size_t)((stages + own_stages - 1) / own_stages), count = 0;
    harpe_measurement *rows = calloc(points * copies + 1, sizeof *rows);
    if (!rows) abort();
    for (size_t e = 0; e < entries * copies; e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(profile, e % entries);
        int stage = entry->stage + own_stages * (int)(e / entries);
        for (size_t p = 0; stage < stages && p < entry->point_count; p++) {
            const harpe_profile_point *point = &entry->points[p];
            rows[count++] = (harpe_measurement){
                stage,
                -1,
                entry->instruction,
                point->frequency_mhz,
                point->time_s,
                point->energy_j,
                1,
                0,
                point->frequency_mhz > 0
                    ? harpe_profile_switch_latency_s(profile, entry->stage, point->frequency_mhz)
                    : 0};
        }
    }
    harpe_error error;
    harpe_profile *repeated = NULL;
    bench_require(harpe_profile_new(rows, count, &repeated, &error), &error);
    free(rows);
    return repeated;
}

static harpe_profile *load_profile(const bench_case *which, double *blocking_power_w) {
    harpe_error error;
    harpe_profile *profile = NULL;
    if (!which->profile_path) {
        harpe_synth_options options = {
            .stages = which->stages > 0 ? which->stages : 8,
            .imbalance = 1.1,
            .noise = 0.01,
            .seed = 1,
        };
        /* The stages can only differ if there are several. */
        if (options.stages == 1) options.imbalance = 1;
        bench_require(harpe_profile_synthesize(&options, &profile, blocking_power_w, &error),
                      &error);
        return profile;
    }
    bench_require(harpe_profile_read_csv(which->profile_path, &profile, &error), &error);
    if (which->stages == 0 || which->stages == harpe_profile_stage_count(profile)) return profile;
    harpe_profile *repeated = repeat_stages(profile, which->stages);
    harpe_profile_free(profile);
    return repeated;
}

harpe_problem *bench_case_problem(const bench_case *which) {
    harpe_error error;
    double blocking_power_w = 0;
    harpe_profile *profile = load_profile(which, &blocking_power_w);
    if (which->blocking_power_w >= 0) blocking_power_w = which->blocking_power_w;
    harpe_schedule_options shape = {
        .ranks = harpe_profile_stage_count(profile),
        .microbatches = which->microbatches,
    };
    harpe_schedule *schedule = NULL;
    bench_require(harpe_schedule_new(&shape, &schedule, &error), &error);
    harpe_problem_options options = {
        .blocking_power_w = &blocking_power_w,
        .blocking_power_count = 1,
    };
    harpe_problem *problem = NULL;
    bench_require(harpe_problem_new(profile, schedule, &options, &problem, &error), &error);
    harpe_schedule_free(schedule);
    harpe_profile_free(profile);
    return problem;
}

json_t *bench_case_json(const bench_case *which, const harpe_problem *problem) {
    return json_pack("{s:i, s:i, s:I}", "ranks", harpe_problem_rank_count(problem), "microbatches",
                     which->microbatches, "instructions",
                     (json_int_t)harpe_problem_instruction_count(problem));
}

json_t *bench_work_json(const harpe_work *work) {
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "pivots", (json_int_t)work->pivots,
                     "degenerate_pivots", (json_int_t)work->degenerate_pivots, "nodes_moved",
                     (json_int_t)work->nodes_moved, "path_steps", (json_int_t)work->path_steps,
                     "build_s", work->build_s, "solve_s", work->solve_s, "assign_s", work->assign_s,
                     "memory_bytes", (json_int_t)work->memory_bytes);
}

/* Does not use getrusage(): its value starts with that of the parent that started this program. */
json_int_t bench_peak_memory_bytes(void) {
    long long peak_kib = 0;
    char line[128];
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "VmHWM:", 6) == 0) peak_kib = strtoll(line + 6, NULL, 10);
    if (file) fclose(file);
    return (json_int_t)peak_kib * 1024;
}

void bench_print(json_t *object) {
    json_dumpf(object, stdout, JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(object);
}
