/* SPDX-License-Identifier: Apache-2.0 */
/* Judges the readings of a meter: how much work was finished, and whether a reading is a pause, a
 * counter that restarted, or nonsense. Computes only. */
#ifndef HARPE_TUNE_WORK_COUNT_H
#define HARPE_TUNE_WORK_COUNT_H

#include <stdbool.h>

/* Initialise with zeros. Times are GPU time in s. */
typedef struct harpe_work_count {
    bool is_known;      /* there was a reading */
    double work;        /* the last one */
    double changed_s;   /* when it was first seen */
    double total;       /* all work that was finished since the first reading */
    double rises;       /* how often the work rose */
    double usual_gap_s; /* between two rises */
    double usual_rise;
} harpe_work_count;

typedef enum harpe_work_news {
    HARPE_WORK_SAME, /* also if there was no reading */
    HARPE_WORK_ROSE,
    HARPE_WORK_LOST, /* the counter ran back or jumped: what lies between is not known */
} harpe_work_news;

/* Takes a reading; NaN: there was none. */
harpe_work_news harpe_work_count_take(harpe_work_count *count, double work, double now_s);

/* Returns true if the work stands still for so long that the program pauses or the meter has
 * stopped. Never true before some rises are known. */
bool harpe_work_count_stands(const harpe_work_count *count, double now_s);

#endif
