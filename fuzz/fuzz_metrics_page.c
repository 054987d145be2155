/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of pages of metrics, which come from other programs. The first line of the
 * input is the name that a user asks for, and the rest is the page. A sum is finite, and the bounds
 * of a histogram rise. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tune/tune_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_histogram(const char *page, size_t length, const harpe_page_selector *selector) {
    static harpe_page_histogram histogram, none;
    if (!harpe_page_read_histogram(page, length, selector, &histogram)) return;
    require(histogram.bucket_count > 0 && histogram.bucket_count <= HARPE_PAGE_BUCKETS);
    none = histogram;
    for (size_t i = 0; i < histogram.bucket_count; i++) {
        require(histogram.count[i] >= 0);
        require(i == 0 || histogram.bound_s[i] > histogram.bound_s[i - 1]);
        none.count[i] = 0;
    }
    double quantile_s = harpe_page_quantile_s(&none, &histogram, 0.95, 1);
    require(isnan(quantile_s) || quantile_s <= histogram.bound_s[histogram.bucket_count - 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *newline = memchr(data, '\n', size);
    size_t name_length = newline ? (size_t)(newline - data) : size;
    char name[1024] = "";
    if (name_length >= sizeof name) return 0;
    memcpy(name, data, name_length);
    harpe_page_selector selector;
    harpe_error error;
    if (harpe_page_selector_parse("--rate", name, &selector, &error) != HARPE_OK) {
        require(error.message[0] && !strchr(error.message, '\n'));
        return 0;
    }
    const char *page = newline ? (const char *)newline + 1 : "";
    size_t length = newline ? size - name_length - 1 : 0;
    double sum = NAN;
    require(harpe_page_sum(page, length, &selector, &sum) == (bool)isfinite(sum));
    check_histogram(page, length, &selector);
    return 0;
}
