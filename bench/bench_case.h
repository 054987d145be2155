/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all benchmark programs: the flags that describe a case, and the problem for
 * it. Each program prints one JSON object; bench/bench.py runs the programs and makes tables.
 * Unlike the library, these functions print their errors and exit. */
#ifndef HARPE_BENCH_CASE_H
#define HARPE_BENCH_CASE_H

#include <jansson.h>

#include <harpe/plan.h>

typedef struct bench_case {
    const char *profile_path; /* NULL: synthesise a profile with the defaults of `harpe synth` */
    /* 0: the number in the profile; a larger number: repeats the profile's stages */
    int stages;
    int microbatches;
    double blocking_power_w; /* below 0: the blocking power of the synthesised GPU */
    int runs;                /* number of measurements; bench_times: 0 for bounds without plans */
} bench_case;

/* Reads the flags --profile FILE --stages N --microbatches M --blocking W --runs R. Exits with
 * status 2 if a flag is wrong. */
bench_case bench_case_from_flags(int argc, char **argv);

/* Loads or synthesises the profile and joins it with a 1F1B schedule. Exits with status 1 on
 * failure. */
harpe_problem *bench_case_problem(const bench_case *which);

/* Prints the error and exits with status 1 unless `status` is HARPE_OK. */
void bench_require(harpe_status status, const harpe_error *error);

/* Adds the numbers of ranks, microbatches and instructions of the problem. */
json_t *bench_case_json(const bench_case *which, const harpe_problem *problem);

/* Adds the solver's counters and times. */
json_t *bench_work_json(const harpe_work *work);

/* Returns the largest resident set of this process so far, in bytes. */
json_int_t bench_peak_memory_bytes(void);

/* Prints the object on one line and frees it. */
void bench_print(json_t *object);

#endif
