/* SPDX-License-Identifier: Apache-2.0 */
/* What every benchmark program shares: the flags that name a case, and the problem made of it.
 * Programs print one JSON object each; bench/bench.py runs them and makes tables. Unlike the
 * library, they print their errors and exit. */
#ifndef HARPE_BENCH_CASE_H
#define HARPE_BENCH_CASE_H

#include <jansson.h>

#include <harpe/plan.h>

typedef struct bench_case {
    const char *profile_path; /* NULL: synthesise one, with the defaults of `harpe synth` */
    int stages;               /* 0: as many as the profile has; more: the profile's, repeated */
    int microbatches;
    double blocking_power_w; /* below 0: that of the synthesised GPU */
    int runs;                /* of what is timed; bench_times: 0 for bounds without plans */
} bench_case;

/* Reads flags: --profile FILE --stages N --microbatches M --blocking W --runs R. Exits with status
 * 2 on a bad one. */
bench_case bench_case_from_flags(int argc, char **argv);

/* Loads or makes the profile and joins it with a 1F1B schedule. Exits with status 1 on failure. */
harpe_problem *bench_case_problem(const bench_case *which);

/* Prints the error and exits with status 1 unless `status` is HARPE_OK. */
void bench_require(harpe_status status, const harpe_error *error);

/* Ranks, microbatches and instructions of the problem. */
json_t *bench_case_json(const bench_case *which, const harpe_problem *problem);

/* The solver's counters and times. */
json_t *bench_work_json(const harpe_work *work);

/* Largest resident set of this process so far, in bytes. */
json_int_t bench_peak_memory_bytes(void);

/* Prints the object on one line and frees it. */
void bench_print(json_t *object);

#endif
