/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Prometheus' text format line by line: name{label="value",...} value [timestamp]. Everything
 * has a limit, and a line that is not understood counts as absent. */
#include "tune/tune_internal.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"

#define HUGE_VALUE 1e18 /* no counter of work is larger */

/* ---- Scanning -------------------------------------------------------------------------------- */

/* The rest of a line. */
typedef struct scanner {
    const char *at, *end;
} scanner;

static void skip_blanks(scanner *line) {
    while (line->at < line->end && (*line->at == ' ' || *line->at == '\t'))
        line->at++;
}

static bool take(scanner *line, char c) {
    skip_blanks(line);
    if (line->at >= line->end || *line->at != c) return false;
    line->at++;
    return true;
}

static bool is_name_byte(char c, bool is_first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' ||
           (!is_first && c >= '0' && c <= '9');
}

static bool take_name(scanner *line, char name[HARPE_PAGE_NAME_SIZE]) {
    size_t length = 0;
    skip_blanks(line);
    while (line->at < line->end && is_name_byte(*line->at, length == 0)) {
        if (length + 1 == HARPE_PAGE_NAME_SIZE) return false;
        name[length++] = *line->at++;
    }
    name[length] = '\0';
    return length > 0;
}

/* Takes "text" with the escapes \\, \" and \n. A value that is too long is cut: it then equals no
 * selector's value, which is shorter. */
static bool take_quoted(scanner *line, char value[HARPE_PAGE_NAME_SIZE]) {
    size_t length = 0;
    if (!take(line, '"')) return false;
    for (; line->at < line->end && *line->at != '"'; line->at++) {
        char c = *line->at;
        if (c == '\\') {
            if (++line->at == line->end) return false;
            c = *line->at == 'n' ? '\n' : *line->at;
        }
        if (length + 1 < HARPE_PAGE_NAME_SIZE) value[length++] = c;
    }
    value[length] = '\0';
    return take(line, '"');
}

/* Takes one label and the comma after it. `*is_last` becomes true at the closing brace. */
static bool take_label(scanner *line, harpe_page_label *label, bool *is_last) {
    *is_last = false;
    if (!take_name(line, label->name) || !take(line, '=') || !take_quoted(line, label->value))
        return false;
    if (take(line, ',')) {
        *is_last = take(line, '}');
        return true;
    }
    *is_last = take(line, '}');
    return *is_last;
}

/* Takes a number, or "+Inf" if `may_be_infinite`. */
static bool take_value(scanner *line, bool may_be_infinite, double *value) {
    skip_blanks(line);
    const char *begin = line->at;
    while (line->at < line->end && *line->at != ' ' && *line->at != '\t' && *line->at != '\r')
        line->at++;
    size_t length = (size_t)(line->at - begin);
    if (may_be_infinite && length == 4 && memcmp(begin, "+Inf", 4) == 0) {
        *value = INFINITY;
        return true;
    }
    return harpe_parse_double(begin, length, value);
}

/* ---- Selecting ------------------------------------------------------------------------------- */

harpe_status harpe_page_selector_parse(const char *what, const char *text, harpe_page_selector *out,
                                       harpe_error *error) {
    scanner line = {text, text + strlen(text)};
    harpe_page_selector selector = {.label_count = 0};
    bool is_read = take_name(&line, selector.name);
    bool is_last = !is_read || !take(&line, '{') || take(&line, '}');
    while (is_read && !is_last) {
        is_read = selector.label_count < HARPE_PAGE_LABELS &&
                  take_label(&line, &selector.labels[selector.label_count], &is_last);
        selector.label_count++;
    }
    if (!is_read || line.at != line.end)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%s: expected NAME or NAME{label=\"value\"}, found '%.200s'", what, text);
    *out = selector;
    return HARPE_OK;
}

/* A sample of the page, as far as a selector asks. */
typedef struct page_sample {
    double value;
    double bound; /* label `le`; NaN: none */
} page_sample;

/* Reads the labels after the brace. Returns false if one that the selector asks for differs or is
 * missing, or if they are not understood. */
static bool labels_match(scanner *line, const harpe_page_selector *selector, double *bound) {
    size_t found = 0;
    bool is_last = take(line, '}');
    while (!is_last) {
        harpe_page_label label = {.name = ""};
        if (!take_label(line, &label, &is_last)) return false;
        for (size_t i = 0; i < selector->label_count; i++)
            if (strcmp(label.name, selector->labels[i].name) == 0) {
                if (strcmp(label.value, selector->labels[i].value) != 0) return false;
                found++;
            }
        scanner text = {label.value, label.value + strlen(label.value)};
        if (strcmp(label.name, "le") == 0 && !take_value(&text, true, bound)) return false;
    }
    return found == selector->label_count;
}

/* Reads a line. Returns false if it is no selected sample. `*is_wrong` becomes true for a selected
 * sample whose value cannot be. */
static bool read_sample(scanner line, const harpe_page_selector *selector, const char *ending,
                        page_sample *sample, bool *is_wrong) {
    char name[HARPE_PAGE_NAME_SIZE];
    size_t length = strlen(selector->name);
    sample->bound = NAN;
    if (!take_name(&line, name) || strncmp(name, selector->name, length) != 0 ||
        strcmp(name + length, ending) != 0)
        return false;
    if (take(&line, '{') ? !labels_match(&line, selector, &sample->bound)
                         : selector->label_count > 0)
        return false;
    *is_wrong = !take_value(&line, false, &sample->value) || fabs(sample->value) > HUGE_VALUE;
    return true;
}

/* Moves to the next line. Returns false at the end of the page. */
static bool next_line(const char **at, const char *end, scanner *line) {
    if (*at >= end) return false;
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    *line = (scanner){*at, newline ? newline : end};
    *at = newline ? newline + 1 : end;
    return true;
}

bool harpe_page_sum(const char *text, size_t length, const harpe_page_selector *selector,
                    double *sum) {
    const char *at = text;
    scanner line;
    page_sample sample;
    double total = 0;
    bool is_found = false;
    while (next_line(&at, text + length, &line)) {
        bool is_wrong = false;
        if (!read_sample(line, selector, "", &sample, &is_wrong)) continue;
        if (is_wrong) return false;
        is_found = true;
        total += sample.value;
    }
    if (!is_found || fabs(total) > HUGE_VALUE) return false;
    *sum = total;
    return true;
}

/* ---- Histograms ------------------------------------------------------------------------------ */

/* Adds a bucket's count in the order of the bounds. Returns false if there are too many bounds. */
static bool add_bucket(harpe_page_histogram *histogram, double bound_s, double count) {
    size_t i = 0;
    while (i < histogram->bucket_count && histogram->bound_s[i] < bound_s)
        i++;
    if (i < histogram->bucket_count && !(histogram->bound_s[i] > bound_s)) {
        histogram->count[i] += count;
        return true;
    }
    if (histogram->bucket_count == HARPE_PAGE_BUCKETS) return false;
    for (size_t k = histogram->bucket_count++; k > i; k--) {
        histogram->bound_s[k] = histogram->bound_s[k - 1];
        histogram->count[k] = histogram->count[k - 1];
    }
    histogram->bound_s[i] = bound_s;
    histogram->count[i] = count;
    return true;
}

bool harpe_page_read_histogram(const char *text, size_t length, const harpe_page_selector *selector,
                               harpe_page_histogram *out) {
    const char *at = text;
    scanner line;
    page_sample sample;
    out->bucket_count = 0;
    while (next_line(&at, text + length, &line)) {
        bool is_wrong = false;
        if (!read_sample(line, selector, "_bucket", &sample, &is_wrong)) continue;
        if (is_wrong || sample.value < 0 || !(sample.bound >= 0)) return false; /* also NaN */
        if (!add_bucket(out, sample.bound, sample.value)) return false;
    }
    return out->bucket_count > 0;
}

/* Returns the observations of bucket i and all below it, between two readings. */
static double between(const harpe_page_histogram *before, const harpe_page_histogram *after,
                      size_t i) {
    return after->count[i] - before->count[i];
}

static bool are_alike(const harpe_page_histogram *before, const harpe_page_histogram *after) {
    size_t count = after->bucket_count;
    if (count == 0 || before->bucket_count != count) return false;
    for (size_t i = 0; i < count; i++) {
        double low = i > 0 ? between(before, after, i - 1) : 0;
        if (before->bound_s[i] < after->bound_s[i] || before->bound_s[i] > after->bound_s[i] ||
            between(before, after, i) < low)
            return false;
    }
    return true;
}

double harpe_page_quantile_s(const harpe_page_histogram *before, const harpe_page_histogram *after,
                             double share, double least) {
    if (!are_alike(before, after)) return NAN;
    size_t last = after->bucket_count - 1;
    double all = between(before, after, last);
    if (!(all >= least) || !(all > 0)) return NAN;
    size_t i = 0;
    while (i < last && between(before, after, i) < share * all)
        i++;
    double low = i > 0 ? between(before, after, i - 1) : 0;
    double low_s = i > 0 ? after->bound_s[i - 1] : 0;
    double inside = between(before, after, i) - low;
    if (isinf(after->bound_s[i]) || !(inside > 0)) return after->bound_s[i];
    return low_s + (after->bound_s[i] - low_s) * (share * all - low) / inside;
}
