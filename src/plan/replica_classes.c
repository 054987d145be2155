/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of replicas, and the iteration that they share; see replica_classes.h. */
#include "plan/replica_classes.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

harpe_status harpe_replica_classes_init(harpe_replica_classes *classes, const int *like,
                                        int replica_count, harpe_error *error) {
    size_t count = (size_t)replica_count;
    harpe_replica_classes made = {.replica_count = replica_count,
                                  .class_of = harpe_calloc(3 * count, sizeof(int))};
    if (!made.class_of) return harpe_fail_memory(error);
    made.first_of = made.class_of + count;
    made.member_count = made.first_of + count;
    for (int r = 0; r < replica_count; r++) {
        bool is_first = like[r] == r;
        if (is_first) made.first_of[made.count] = r;
        made.class_of[r] = is_first ? made.count++ : made.class_of[like[r]];
        made.member_count[made.class_of[r]]++;
    }
    *classes = made;
    return HARPE_OK;
}

void harpe_replica_classes_clear(harpe_replica_classes *classes) {
    free(classes->class_of);
    *classes = (harpe_replica_classes){0};
}

harpe_replica_total harpe_replica_runs_total(const harpe_replica_run *runs, const int *class_of,
                                             int replica_count) {
    harpe_replica_total total = {0};
    for (int r = 0; r < replica_count; r++)
        total.time_s = fmax(total.time_s, runs[class_of ? class_of[r] : r].time_s);
    for (int r = 0; r < replica_count; r++)
        total.energy_j += harpe_replica_run_until_j(runs[class_of ? class_of[r] : r], total.time_s);
    return total;
}
