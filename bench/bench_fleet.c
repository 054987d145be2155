/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the processor time of the split of a budget: building a fleet, the first solution, and
 * new solutions after a change of one job and of the budget. Usage: bench_fleet JOBS PLANS GROUPS
 * RUNS SEED. With GROUPS above 1, the jobs are in this many groups with budgets of their own, ten
 * in each larger group. */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <harpe/fleet.h>

static uint64_t random_state;

/* splitmix64 (Steele, Lea, Flood 2014). */
static double uniform(double low, double high) {
    uint64_t z = (random_state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return low + (high - low) * ((double)((z ^ (z >> 31)) >> 11) * 0x1p-53);
}

/* Returns the processor time, which other work on the machine changes little. */
static double now_s(void) {
    struct timespec at;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static void require(harpe_status status, const harpe_error *error) {
    if (status == HARPE_OK) return;
    fprintf(stderr, "bench_fleet: %s\n", error->message);
    exit(1);
}

typedef struct size {
    size_t jobs, plans, groups, runs;
} size;

/* Makes a job of 8 to 512 GPUs whose power falls as its time grows. Returns its highest power. */
static double make_job(const size *s, int group, harpe_fleet_plan *plans, harpe_fleet_job *job) {
    double gpus = exp2(floor(uniform(3, 10))), power_w = gpus * uniform(350, 650);
    double share = uniform(0.8, 3), time_s = uniform(0.5, 20);
    for (size_t k = 0; k < s->plans; k++) {
        double x = s->plans > 1 ? (double)k / (double)(s->plans - 1) : 0;
        plans[k] = (harpe_fleet_plan){time_s * (1 + 0.6 * x),
                                      power_w * (0.15 + 0.85 / pow(1 + 0.6 * x, share))};
    }
    *job = (harpe_fleet_job){
        .name = "job", .group = group, .weight = gpus, .plan_count = s->plans, .plans = plans};
    return power_w;
}

static int group_of(const size *s, size_t job) {
    return s->groups > 1 ? 1 + (int)(s->groups / 10) + (int)(job % s->groups) : 0;
}

static harpe_fleet *make_fleet(const size *s, harpe_fleet_plan *plans, harpe_fleet_job *job,
                               double *total_w) {
    harpe_error error;
    harpe_fleet *fleet = NULL;
    int number;
    require(harpe_fleet_new(&fleet, &error), &error);
    size_t larger = s->groups > 1 ? s->groups / 10 : 0;
    for (size_t g = 0; g < larger; g++)
        require(harpe_fleet_add_group(fleet, "room", 0, &number, &error), &error);
    for (size_t g = 0; s->groups > 1 && g < s->groups; g++) {
        int parent = larger > 0 ? 1 + (int)(g % larger) : 0;
        require(harpe_fleet_add_group(fleet, "row", parent, &number, &error), &error);
    }
    *total_w = 0;
    for (size_t j = 0; j < s->jobs; j++) {
        *total_w += make_job(s, group_of(s, j), plans, job);
        require(harpe_fleet_add(fleet, job, &number, &error), &error);
    }
    for (size_t g = 0; s->groups > 1 && g < s->groups; g++) {
        harpe_fleet_budget budget = {.watts = *total_w / (double)s->groups * uniform(0.7, 0.95)};
        require(harpe_fleet_set_budget(fleet, 1 + (int)(larger + g), &budget, &error), &error);
    }
    return fleet;
}

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "Usage: bench_fleet JOBS PLANS GROUPS RUNS SEED\n");
        return 2;
    }
    size s = {strtoul(argv[1], NULL, 10), strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10),
              strtoul(argv[4], NULL, 10)};
    random_state = strtoul(argv[5], NULL, 10);
    harpe_fleet_plan *plans = calloc(s.plans, sizeof *plans);
    double *change_s = calloc(s.runs, sizeof *change_s), *watts_s = calloc(s.runs, sizeof *watts_s);
    if (!plans || !change_s || !watts_s || s.jobs == 0 || s.runs == 0) return 1;
    harpe_error error;
    harpe_fleet_job job;
    harpe_fleet_split split;
    double began_s = now_s(), total_w;
    harpe_fleet *fleet = make_fleet(&s, plans, &job, &total_w);
    double build_s = now_s() - began_s;
    harpe_fleet_budget budget = {.watts = 0.75 * total_w};
    require(harpe_fleet_set_budget(fleet, 0, &budget, &error), &error);
    began_s = now_s();
    require(harpe_fleet_solve(fleet, &split, &error), &error);
    double solve_s = now_s() - began_s;
    double gap = split.lower_bound > 0 ? split.objective / split.lower_bound - 1 : 0;
    require(harpe_fleet_verify(fleet, &error), &error);
    for (size_t r = 0; r < s.runs; r++) {
        size_t changed = (size_t)uniform(0, (double)s.jobs);
        (void)make_job(&s, group_of(&s, changed), plans, &job);
        began_s = now_s();
        require(harpe_fleet_update(fleet, (int)changed, &job, &error), &error);
        require(harpe_fleet_solve(fleet, &split, &error), &error);
        change_s[r] = now_s() - began_s;
        double watts = total_w * uniform(0.72, 0.78);
        began_s = now_s();
        require(harpe_fleet_set_watts(fleet, &watts, 1, &error), &error);
        require(harpe_fleet_solve(fleet, &split, &error), &error);
        watts_s[r] = now_s() - began_s;
    }
    require(harpe_fleet_verify(fleet, &error), &error);
    json_t *out =
        json_pack("{s:f, s:f, s:f, s:f, s:f}", "build_s", build_s, "solve_s", solve_s, "change_s",
                  median(change_s, s.runs), "watts_s", median(watts_s, s.runs), "gap", gap);
    json_dumpf(out, stdout, 0);
    printf("\n");
    json_decref(out);
    harpe_fleet_free(fleet);
    free(plans);
    free(change_s);
    free(watts_s);
    return 0;
}
