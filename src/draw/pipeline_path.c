/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a critical path among the boxes of a pipeline picture. The boxes do not contain the
 * dependencies. But if all instructions start as early as possible, each instruction starts exactly
 * when an instruction for which it waited ends. It waits for the instruction before it on its rank,
 * or for an instruction of its microbatch. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "draw/draw.h"

typedef struct ending {
    double end_s;
    size_t box;
} ending;

static int compare_endings(const void *left, const void *right) {
    const ending *a = left;
    const ending *b = right;
    if (a->end_s != b->end_s) return a->end_s < b->end_s ? -1 : 1;
    return a->box < b->box ? -1 : a->box > b->box;
}

static size_t first_at_or_after(const ending *endings, size_t count, double time_s) {
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (endings[middle].end_s < time_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the box that ends when `box` starts and for which `box` most likely waited. Returns `box`
 * if there is no such box. */
static size_t predecessor(const harpe_pipeline_box *boxes, const ending *endings, size_t count,
                          size_t box, double tolerance_s) {
    const harpe_pipeline_box *here = &boxes[box];
    size_t best = box;
    int best_likeness = -1;
    size_t from = first_at_or_after(endings, count, here->start_s - tolerance_s);
    for (size_t i = from; i < count && endings[i].end_s <= here->start_s + tolerance_s; i++) {
        const harpe_pipeline_box *there = &boxes[endings[i].box];
        if (there->start_s >= here->start_s) { /* a box without length would lead to an endless
                                                * loop */
            continue;
        }
        int likeness = there->rank == here->rank               ? 2
                       : there->microbatch == here->microbatch ? 1
                                                               : 0;
        if (likeness > best_likeness) {
            best = endings[i].box;
            best_likeness = likeness;
        }
        if (likeness == 2) break;
    }
    return best;
}

harpe_status harpe_pipeline_critical_path(const harpe_pipeline_box *boxes, size_t box_count,
                                          size_t **path, size_t *path_count, harpe_error *error) {
    ending *endings = harpe_calloc(box_count, sizeof *endings);
    size_t *found = harpe_calloc(box_count, sizeof *found);
    if (!endings || !found) {
        free(endings);
        free(found);
        return harpe_fail_memory(error);
    }
    for (size_t i = 0; i < box_count; i++)
        endings[i] = (ending){boxes[i].start_s + boxes[i].duration_s, i};
    qsort(endings, box_count, sizeof *endings, compare_endings);
    size_t length = 0;
    if (box_count > 0) {
        double tolerance_s = fabs(endings[box_count - 1].end_s) * 1e-9;
        size_t box = endings[box_count - 1].box;
        found[length++] = box;
        while (length < box_count) {
            size_t before = predecessor(boxes, endings, box_count, box, tolerance_s);
            if (before == box) break;
            found[length++] = box = before;
        }
    }
    for (size_t i = 0; i < length / 2; i++) {
        size_t swapped = found[i];
        found[i] = found[length - 1 - i];
        found[length - 1 - i] = swapped;
    }
    free(endings);
    *path = found;
    *path_count = length;
    return HARPE_OK;
}
