/* SPDX-License-Identifier: Apache-2.0 */
/* Judges readings by what is usual for this program. The limits are wide: noise of the work is the
 * chooser's matter, and only what cannot be work of a running program is refused. */
#include "tune/tune_internal.h"

#include <math.h>

#define WEIGHT 0.1         /* of a new value in a usual one */
#define LEAST_RISES 8.0    /* until something is usual */
#define ABSURD 1000.0      /* times the usual rate */
#define STANDS_GAPS 4.0    /* times the usual gap */
#define STANDS_LEAST_S 0.5 /* a shorter pause belongs to the work */

/* The first values count more, so that the start has no lasting influence. */
static double blend(double usual, double value, double rises) {
    double weight = fmax(WEIGHT, 1 / (rises + 1));
    return usual + weight * (value - usual);
}

static bool is_absurd(const harpe_work_count *count, double rise, double gap_s) {
    if (count->rises < LEAST_RISES || !(count->usual_gap_s > 0)) return false;
    double longest_s = fmax(gap_s, count->usual_gap_s);
    return rise / longest_s > ABSURD * count->usual_rise / count->usual_gap_s;
}

harpe_work_news harpe_work_count_take(harpe_work_count *count, double work, double now_s) {
    if (isnan(work)) return HARPE_WORK_SAME;
    double rise = work - count->work;
    double gap_s = now_s - count->changed_s;
    bool was_known = count->is_known;
    if (was_known && !(rise > 0) && !(rise < 0)) return HARPE_WORK_SAME;
    bool is_lost = was_known && (rise < 0 || is_absurd(count, rise, gap_s));
    count->is_known = true;
    count->work = work;
    count->changed_s = now_s;
    if (!was_known) return HARPE_WORK_SAME;
    if (is_lost) return HARPE_WORK_LOST;
    count->total += rise;
    count->usual_rise = blend(count->usual_rise, rise, count->rises);
    /* A pause must not become usual at once. */
    if (count->rises >= LEAST_RISES) gap_s = fmin(gap_s, 2 * STANDS_GAPS * count->usual_gap_s);
    count->usual_gap_s = blend(count->usual_gap_s, gap_s, count->rises);
    count->rises++;
    return HARPE_WORK_ROSE;
}

bool harpe_work_count_stands(const harpe_work_count *count, double now_s) {
    if (count->rises < LEAST_RISES) return false;
    return now_s - count->changed_s > fmax(STANDS_GAPS * count->usual_gap_s, STANDS_LEAST_S);
}
