/* SPDX-License-Identifier: Apache-2.0 */
/* Formats jobs for people: the table of all jobs, the page of one job, and the progress line.
 * Texts come from other machines, so control characters are removed. */
#include "cli/jobs/jobs_view.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clean.h"
#include "cli/command.h"
#include "cli/job_figures.h"
#include "cli/job_report.h"

enum { RANGES_SHOWN = 16 };

/* ---- Fields ---------------------------------------------------------------------------------- */

static int64_t number_of(const json_t *job, const char *name) {
    return json_integer_value(json_object_get(job, name));
}

static const char *text_of(const json_t *job, const char *name) {
    const char *value = json_string_value(json_object_get(job, name));
    return value && *value ? value : "-";
}

static void append_clean(harpe_text *text, const char *value) {
    size_t length;
    for (; *value; value += length) {
        bool is_safe = harpe_character_is_safe(harpe_character(value, &length));
        harpe_text_append(text, is_safe ? value : "?", is_safe ? length : 1);
    }
}

static void append_ago(harpe_text *text, int64_t when_s) {
    int64_t age_s = (int64_t)time(NULL) - when_s;
    if (age_s < 0) age_s = 0; /* the clocks of two machines may differ */
    if (age_s < 120)
        harpe_text_printf(text, "%" PRId64 " s ago", age_s);
    else if (age_s < 7200)
        harpe_text_printf(text, "%" PRId64 " min ago", age_s / 60);
    else if (age_s < 2 * 86400)
        harpe_text_printf(text, "%" PRId64 " h ago", age_s / 3600);
    else
        harpe_text_printf(text, "%" PRId64 " d ago", age_s / 86400);
}

/* Appends the round. Rounds count from 0; -1 means that the job has had no round yet. */
static void append_round(harpe_text *text, const json_t *job, int width) {
    int64_t round = number_of(job, "round");
    if (round < 0)
        harpe_text_printf(text, "%*s", width, "-");
    else
        harpe_text_printf(text, "%*" PRId64, width, round);
}

/* ---- All jobs -------------------------------------------------------------------------------- */

/* Fixed widths. A row has ROW_WIDTH columns beside the id, including "999 min ago" at its end. A
 * shortened id has at least LEAST_ID columns. The id is in the same line as the rest of the row
 * only if at least BESIDE_ROW columns are left for it. */
enum { ROW_WIDTH = 2 + 13 + 11 + 9 + 7 + 10 + 10 + 19 + 10 + 11, LEAST_ID = 40, BESIDE_ROW = 48 };

/* Appends an id. A long id is shortened in the middle, because its beginning (the time) and its end
 * (the end of the metadata) differ from job to job. harpe_jobs_find accepts the shortened form. If
 * `limit` is 0, appends the whole id. */
static void append_id(harpe_text *text, const char *id, int limit) {
    size_t length = strlen(id);
    if (limit == 0 || length <= (size_t)limit) {
        append_clean(text, id);
        return;
    }
    size_t shown = (size_t)limit - strlen(HARPE_JOB_ID_GAP);
    size_t head = harpe_cut_length(id, shown - shown / 3);
    size_t tail = length - shown / 3;
    while ((id[tail] & 0xC0) == 0x80) /* inside a character */
        tail++;
    char *start = strndup(id, head);
    text->failed |= !start;
    if (!start) return;
    append_clean(text, start);
    free(start);
    harpe_text_printf(text, HARPE_JOB_ID_GAP);
    append_clean(text, id + tail);
}

static void append_row(const harpe_jobs_table *table, const json_t *job, harpe_text *text) {
    char ranks[48], cells[HARPE_JOB_CELLS][HARPE_JOB_CELL_SIZE];
    bool is_folded = table->is_folded;
    size_t start = text->length;
    append_id(text, text_of(job, "job_id"), table->id_limit);
    int written = (int)(text->length - start);
    if (is_folded)
        harpe_text_printf(text, "\n  ");
    else
        harpe_text_printf(text, "%*s  ", written < table->id_width ? table->id_width - written : 0,
                          "");
    start = text->length;
    append_clean(text, text_of(job, "state"));
    written = (int)(text->length - start);
    (void)snprintf(ranks, sizeof ranks, "%" PRId64 "/%" PRId64, number_of(job, "ranks_registered"),
                   number_of(job, "world_size"));
    harpe_text_printf(text, "%*s  %9s", written < 11 ? 11 - written : 0, "", ranks);
    if (!is_folded) harpe_text_printf(text, "  %7" PRId64, number_of(job, "ranks_waiting"));
    harpe_text_printf(text, "  ");
    append_round(text, job, 5);
    harpe_job_figures_cells(job, cells);
    harpe_text_printf(text, "  %-8s  %8s  %17s", cells[0], cells[1], cells[2]);
    if (!is_folded) {
        harpe_text_printf(text, "  %8s  ", cells[3]);
        append_ago(text, number_of(job, "last_seen"));
    } else {
        harpe_text_printf(text, "  %8s", cells[3]);
    }
    harpe_text_printf(text, "\n");
}

static void append_head(harpe_text *text, int id_width, bool is_folded) {
    if (is_folded)
        harpe_text_printf(text, "%sid\n  %-11s  %9s  %5s  %-8s  %8s  %17s  %8s%s\n",
                          harpe_bold_start(), "state", "ranks", "round", "phase", "energy", "saved",
                          "power", harpe_bold_end());
    else
        harpe_text_printf(text, "%s%-*s  %-11s  %9s  %7s  %5s  %-8s  %8s  %17s  %8s  %s%s\n",
                          harpe_bold_start(), id_width, "id", "state", "ranks", "waiting", "round",
                          "phase", "energy", "saved", "power", "last seen", harpe_bold_end());
}

static void begin_table(harpe_jobs_table *table, const json_t *jobs, harpe_text *text) {
    size_t index;
    const json_t *job;
    table->id_width = 2;
    json_array_foreach(jobs, index, job) {
        int width = (int)strlen(text_of(job, "job_id"));
        if (width > table->id_width) table->id_width = width;
    }
    table->has_head = true;
    if (table->columns > 0) {
        int beside_row = table->columns - ROW_WIDTH;
        table->is_folded = table->id_width > beside_row && beside_row < BESIDE_ROW;
        table->id_limit = table->is_folded ? table->columns : beside_row;
        if (table->id_limit < LEAST_ID) table->id_limit = LEAST_ID;
        if (table->id_width > table->id_limit) table->id_width = table->id_limit;
    }
    append_head(text, table->id_width, table->is_folded);
}

void harpe_jobs_view_page(harpe_jobs_table *table, const json_t *jobs, harpe_text *text) {
    size_t index;
    const json_t *job;
    if (!table->quiet && !table->has_head && json_array_size(jobs) > 0)
        begin_table(table, jobs, text);
    json_array_foreach(jobs, index, job) {
        if (table->quiet) {
            append_clean(text, text_of(job, "job_id"));
            harpe_text_printf(text, "\n");
        } else {
            append_row(table, job, text);
        }
    }
}

/* ---- One job --------------------------------------------------------------------------------- */

/* Returns true for a rank that has not sent its place in the job. Such a rank counts as missing
 * even if it already asks for schedules. */
static bool is_missing(const json_t *rank) { return !json_object_get(rank, "pp_rank"); }

static bool is_not_asking(const json_t *rank) {
    return strcmp(text_of(rank, "state"), "asking") != 0;
}

/* Appends the ranks that `counts` selects, as ranges such as "3, 7-9". Thousands of single numbers
 * would hide the rest of the page. */
static void append_ranges(harpe_text *text, const char *title, const json_t *ranks,
                          bool (*counts)(const json_t *rank)) {
    size_t shown = 0;
    size_t left_out = 0;
    size_t count = json_array_size(ranks);
    for (size_t first = 0; first < count; first++) {
        if (!counts(json_array_get(ranks, first))) continue;
        size_t last = first;
        while (last + 1 < count && counts(json_array_get(ranks, last + 1)))
            last++;
        if (shown == RANGES_SHOWN) {
            left_out += last - first + 1;
        } else {
            harpe_text_printf(text, "%s%zu", shown++ == 0 ? title : ", ", first);
            if (last > first) harpe_text_printf(text, "-%zu", last);
        }
        first = last;
    }
    if (left_out > 0) harpe_text_printf(text, " and %zu more", left_out);
    if (shown > 0) harpe_text_printf(text, "\n");
}

static void append_field(harpe_text *text, const char *title, const json_t *job, const char *name) {
    if (!json_string_value(json_object_get(job, name))) return;
    harpe_text_printf(text, "%s", title);
    append_clean(text, text_of(job, name));
    harpe_text_printf(text, "\n");
}

void harpe_jobs_view_job(const json_t *job, harpe_text *text) {
    int64_t world_size = number_of(job, "world_size");
    const json_t *ranks = json_object_get(job, "ranks");
    harpe_text_printf(text, "%s", harpe_bold_start());
    append_clean(text, text_of(job, "job_id"));
    harpe_text_printf(text, "%s\n", harpe_bold_end());
    append_field(text, "  state:      ", job, "state");
    append_field(text, "  failure:    ", job, "failure");
    append_field(text, "  metadata:   ", job, "job_metadata");
    append_field(text, "  scheduler:  ", job, "scheduler");
    harpe_text_printf(text,
                      "  layout:     %" PRId64 " pipeline x %" PRId64 " data x %" PRId64
                      " tensor\n  round:      ",
                      number_of(job, "pp_degree"), number_of(job, "dp_degree"),
                      number_of(job, "tp_degree"));
    append_round(text, job, 0);
    harpe_text_printf(text, "%s\n",
                      json_is_true(json_object_get(job, "scheduler_is_finished"))
                          ? " (the scheduler is finished)"
                          : "");
    harpe_text_printf(text,
                      "  ranks:      %" PRId64 " registered, %" PRId64 " waiting, %" PRId64
                      " reported, of %" PRId64 "\n",
                      number_of(job, "ranks_registered"), number_of(job, "ranks_waiting"),
                      number_of(job, "ranks_reported"), world_size);
    harpe_job_figures_lines(job, text);
    harpe_job_report_lines(job, text);
    append_ranges(text, "  missing:    ", ranks, is_missing);
    if (number_of(job, "ranks_waiting") > 0)
        append_ranges(text, "  waited for: ", ranks, is_not_asking);
    harpe_text_printf(text, "  registered: ");
    append_ago(text, number_of(job, "registered_at"));
    harpe_text_printf(text, "\n  last seen:  ");
    append_ago(text, number_of(job, "last_seen"));
    harpe_text_printf(text, "\n");
    if (!json_object_get(job, "evicted_at")) return;
    harpe_text_printf(text, "  evicted:    ");
    append_ago(text, number_of(job, "evicted_at"));
    harpe_text_printf(text, "\n");
}

void harpe_jobs_view_progress(const json_t *job, bool quiet, harpe_text *text) {
    append_clean(text, text_of(job, "state"));
    if (quiet) return;
    harpe_text_printf(text, ", round ");
    append_round(text, job, 0);
    harpe_text_printf(text,
                      ", of %" PRId64 " ranks %" PRId64 " registered, %" PRId64 " waiting, %" PRId64
                      " reported",
                      number_of(job, "world_size"), number_of(job, "ranks_registered"),
                      number_of(job, "ranks_waiting"), number_of(job, "ranks_reported"));
    harpe_job_figures_progress(job, text);
    const char *failure = json_string_value(json_object_get(job, "failure"));
    if (failure) {
        harpe_text_printf(text, ": ");
        append_clean(text, failure);
    }
}
