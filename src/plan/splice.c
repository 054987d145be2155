/* SPDX-License-Identifier: Apache-2.0 */
/* Joins two plans at a moment; see splice.h. Orders the instructions by their starts, and finds the
 * moment by bisection. */
#include "plan/splice.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

harpe_status harpe_splicer_init(harpe_splicer *splicer, int32_t count, harpe_error *error) {
    splicer->moment = harpe_calloc((size_t)count, sizeof *splicer->moment);
    splicer->order = harpe_calloc((size_t)count, sizeof *splicer->order);
    if (splicer->moment && splicer->order) return HARPE_OK;
    harpe_splicer_clear(splicer);
    return harpe_fail_memory(error);
}

void harpe_splicer_clear(harpe_splicer *splicer) {
    free(splicer->moment);
    free(splicer->order);
    *splicer = (harpe_splicer){0};
}

static int compare_moments(const void *a, const void *b, void *moments) {
    double x = ((const double *)moments)[*(const int32_t *)a];
    double y = ((const double *)moments)[*(const int32_t *)b];
    if (x != y) return x < y ? -1 : 1;
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

/* Orders instructions by the mean of their starts in the two plans. */
static void order_by_moment(harpe_splicer *splicer, harpe_assignment *assignment,
                            const int32_t *fast, const int32_t *slow) {
    const int32_t *plans[2] = {fast, slow};
    for (int p = 0; p < 2; p++) {
        int64_t length_ps = harpe_assignment_run(assignment, plans[p]);
        for (int32_t i = 0; i < assignment->count; i++) {
            int64_t duration =
                assignment->option_time_ps[assignment->first_option[i] + plans[p][i]];
            double share = (double)(assignment->end_ps[i] - duration) / (double)length_ps;
            splicer->moment[i] = p == 0 ? share : splicer->moment[i] + share;
        }
    }
    for (int32_t i = 0; i < assignment->count; i++)
        splicer->order[i] = i;
    qsort_r(splicer->order, (size_t)assignment->count, sizeof *splicer->order, compare_moments,
            splicer->moment);
}

/* Uses `slow` for the first or the last `share` instructions, and `fast` for the others. Returns
 * the length of the iteration. */
static int64_t join(const harpe_splicer *splicer, harpe_assignment *assignment, const int32_t *fast,
                    const int32_t *slow, bool slow_first, int32_t share) {
    for (int32_t k = 0; k < assignment->count; k++) {
        bool is_slow = slow_first ? k < share : k >= assignment->count - share;
        int32_t i = splicer->order[k];
        assignment->option[i] = is_slow ? slow[i] : fast[i];
    }
    return harpe_assignment_run(assignment, assignment->option);
}

harpe_status harpe_splice(harpe_splicer *splicer, harpe_assignment *assignment, const int32_t *fast,
                          const int32_t *slow, bool slow_first, int64_t deadline_ps,
                          harpe_error *error) {
    order_by_moment(splicer, assignment, fast, slow);
    int32_t meets = 0, misses = assignment->count + 1;
    while (misses - meets > 1) {
        int32_t middle = meets + (misses - meets) / 2;
        int64_t length_ps = join(splicer, assignment, fast, slow, slow_first, middle);
        if (length_ps <= deadline_ps)
            meets = middle;
        else
            misses = middle;
    }
    join(splicer, assignment, fast, slow, slow_first, meets);
    return harpe_assignment_settle(assignment, deadline_ps, error);
}
