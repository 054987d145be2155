/* SPDX-License-Identifier: Apache-2.0 */
/* The data of finished.c. Plain data. */
#ifndef HARPE_SERVER_ENGINE_FINISHED_STATE_H
#define HARPE_SERVER_ENGINE_FINISHED_STATE_H

#include <stddef.h>
#include <stdint.h>

/* Sums over jobs. */
typedef struct harpe_figure_sums {
    int64_t jobs;
    double used_j, power_w;
    /* Of the jobs that have a baseline. `variance` is that of saved_j: the sum of the squares of
     * the uncertainties. */
    int64_t compared;
    double saved_j, variance, baseline_j;
} harpe_figure_sums;

typedef struct harpe_finished_job {
    char *id;
    char *text;  /* JSON */
    char *group; /* of the job; NULL: none */
    int64_t uptime_s;
    harpe_figure_sums sums; /* of this job alone */
} harpe_finished_job;

/* A ring: the oldest report is at `first`. */
typedef struct harpe_finished {
    harpe_finished_job *jobs;
    size_t capacity, first, count;
} harpe_finished;

#endif
