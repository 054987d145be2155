/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a page of metrics in Prometheus' text format: the sum of the samples of one name, and the
 * buckets of one histogram. The page comes from another program, so nothing in it is trusted. */
#ifndef HARPE_TUNE_PAGE_H
#define HARPE_TUNE_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

enum { HARPE_PAGE_NAME_SIZE = 256, HARPE_PAGE_LABELS = 8, HARPE_PAGE_BUCKETS = 128 };

typedef struct harpe_page_label {
    char name[HARPE_PAGE_NAME_SIZE], value[HARPE_PAGE_NAME_SIZE];
} harpe_page_label;

/* The samples that count: those of a name, with at least these labels. */
typedef struct harpe_page_selector {
    char name[HARPE_PAGE_NAME_SIZE];
    harpe_page_label labels[HARPE_PAGE_LABELS];
    size_t label_count;
} harpe_page_selector;

/* Reads NAME or NAME{a="b",c="d"}. Fails with HARPE_INVALID_ARGUMENT; `what` is the user's name for
 * the text. */
harpe_status harpe_page_selector_parse(const char *what, const char *text, harpe_page_selector *out,
                                       harpe_error *error);

/* Adds the selected samples. Returns false, and writes nothing, if there are none, or if a sample
 * or the sum is not finite. Lines that are not understood are skipped. */
bool harpe_page_sum(const char *text, size_t length, const harpe_page_selector *selector,
                    double *sum);

/* How many observations were at most so large, in seconds, for all label sets together. Sorted by
 * the bounds, of which the last may be infinite. */
typedef struct harpe_page_histogram {
    double bound_s[HARPE_PAGE_BUCKETS], count[HARPE_PAGE_BUCKETS];
    size_t bucket_count;
} harpe_page_histogram;

/* Reads the samples <name>_bucket with the label `le`. Returns false, and leaves `out` undefined,
 * if there are none, too many, or one that cannot be. */
bool harpe_page_read_histogram(const char *text, size_t length, const harpe_page_selector *selector,
                               harpe_page_histogram *out);

/* Returns the quantile `share` (0 to 1) of the observations between two readings of one histogram,
 * interpolated inside of its bucket; infinite above the last finite bound. Returns NaN if fewer
 * than `least` observations lie between them, or if the histogram has restarted or changed. */
double harpe_page_quantile_s(const harpe_page_histogram *before, const harpe_page_histogram *after,
                             double share, double least);

#endif
