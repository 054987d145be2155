/* SPDX-License-Identifier: Apache-2.0 */
/* Formats jobs for people: the table of all jobs, the page of one job, and the progress line.
 * Texts come from other machines, so control characters are removed. */
#include "cli/jobs/jobs_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
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
    int64_t age_s = harpe_clock_wall_whole_s() - when_s;
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
static void append_round(harpe_text *text, const json_t *job) {
    int64_t round = number_of(job, "round");
    if (round < 0)
        harpe_text_printf(text, "-");
    else
        harpe_text_printf(text, "%" PRId64, round);
}

/* ---- All jobs -------------------------------------------------------------------------------- */

/* The columns beside the id. A column with level 0 is in every row. The others are left out on a
 * terminal that is too narrow, those with a high level first. */
typedef enum column {
    STATE,
    RANKS,
    WAITING,
    ROUND,
    PHASE,
    ENERGY,
    SAVED,
    LOST,
    ONE_CLOCK,
    POWER,
    CAP,
    USER,
    GROUP,
    SLURM_JOB,
    NODE,
    STARTED,
    SEEN,
    COLUMNS,
} column;

static const struct {
    const char *title;
    int width; /* negative: left-aligned */
    int level;
} COLUMN[COLUMNS] = {
    [STATE] = {"state", -11, 0},
    [RANKS] = {"ranks", 9, 0},
    [WAITING] = {"waiting", 7, 9},
    [ROUND] = {"round", 5, 0},
    [PHASE] = {"phase", -7, 0},
    [ENERGY] = {"energy", 8, 0},
    [SAVED] = {"saved", 17, 0},
    [LOST] = {"time lost", 18, 1},
    [POWER] = {"power", 8, 0},
    [CAP] = {"cap", 8, 7},
    [USER] = {"user", -10, 2},
    [GROUP] = {"group", -10, 6},
    [SLURM_JOB] = {"Slurm job", -10, 3},
    [NODE] = {"node", -14, 5},
    [STARTED] = {"started", -11, 4},
    [SEEN] = {"last seen", -11, 8},
    [ONE_CLOCK] = {"vs one clock", 12, 4},
};
enum { LEVELS = 10, BASE_WIDTH = 2 + 11 + 2 + 9 + 2 + 5 + 2 + 7 + 2 + 8 + 2 + 17 + 2 + 8 };

/* A shortened id has at least LEAST_ID columns. The id is in the same line as the rest of the row
 * only if at least BESIDE_ROW columns are left for it. */
enum { LEAST_ID = 40, BESIDE_ROW = 48 };

/* Appends an id. A long id is shortened in the middle, because its beginning (the time) and its end
 * (the end of the metadata) differ from job to job. `harpe jobs` accepts the shortened form. If
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

typedef char job_cells[COLUMNS][HARPE_JOB_CELL_SIZE];

static void take_text(char *cell, harpe_text *text) {
    (void)snprintf(cell, HARPE_JOB_CELL_SIZE, "%s", text->data ? text->data : "-");
    harpe_text_free(text);
}

static void take_ago(char *cell, int64_t when_s) {
    harpe_text text = {0};
    append_ago(&text, when_s);
    take_text(cell, &text);
}

static void take_member(char *cell, const json_t *job, const char *name) {
    const char *value = text_of(job, name);
    (void)snprintf(cell, HARPE_JOB_CELL_SIZE, "%.*s",
                   (int)harpe_cut_length(value, HARPE_JOB_CELL_SIZE - 1), value);
    harpe_clean_in_place(cell);
}

static bool is_out_of_contact(const json_t *job) {
    return json_is_integer(json_object_get(job, "no_contact_since"));
}

static void fill_cells(const harpe_jobs_table *table, const json_t *job, job_cells cells) {
    char figures[HARPE_JOB_CELLS][HARPE_JOB_CELL_SIZE];
    static const column of_figure[HARPE_JOB_CELLS] = {PHASE, ENERGY, SAVED, POWER, LOST, ONE_CLOCK};
    double energy_j = json_number_value(json_object_get(json_object_get(job, "figures"), "energy"));
    double cap_w = json_number_value(json_object_get(job, "power_cap"));
    harpe_text round = {0};
    memset(cells, 0, sizeof(job_cells));
    take_member(cells[STATE], job, "state");
    if (is_out_of_contact(job)) (void)strcpy(cells[STATE], "no contact");
    (void)snprintf(cells[RANKS], HARPE_JOB_CELL_SIZE, "%" PRId64 "/%" PRId64,
                   number_of(job, "ranks_registered"), number_of(job, "world_size"));
    (void)snprintf(cells[WAITING], HARPE_JOB_CELL_SIZE, "%" PRId64,
                   number_of(job, "ranks_waiting"));
    append_round(&round, job);
    take_text(cells[ROUND], &round);
    harpe_job_figures_cells(job, figures);
    for (int i = 0; i < HARPE_JOB_CELLS; i++)
        memcpy(cells[of_figure[i]], figures[i], HARPE_JOB_CELL_SIZE);
    if (energy_j > 0) (void)harpe_format_in(cells[ENERGY], energy_j, table->energy_unit);
    (void)strcpy(cells[CAP], "-");
    if (cap_w > 0) (void)harpe_format_power(cells[CAP], cap_w);
    take_member(cells[USER], job, "user");
    take_member(cells[GROUP], job, "group");
    take_member(cells[SLURM_JOB], job, "slurm_job");
    take_member(cells[NODE], job, "node");
    take_ago(cells[STARTED], number_of(job, "registered_at"));
    take_ago(cells[SEEN], number_of(job, "last_seen"));
}

/* Appends the cells that the table shows. On a terminal, texts are cut to the width of the column.
 */
static void append_cells(const harpe_jobs_table *table, harpe_text *text, job_cells cells) {
    size_t end = text->length;
    for (int c = 0; c < COLUMNS; c++) {
        if (!(table->shown >> c & 1)) continue;
        int width = COLUMN[c].width;
        if (table->columns > 0 && width < 0)
            cells[c][harpe_cut_length(cells[c], (size_t)-width)] = 0;
        harpe_text_printf(text, "  %*s", width, cells[c]);
        end = text->length;
    }
    while (end > 0 && text->data && text->data[end - 1] == ' ')
        end--;
    text->length = end;
    harpe_text_printf(text, "\n");
}

static void append_row(const harpe_jobs_table *table, const json_t *job, harpe_text *text) {
    job_cells cells;
    size_t start = text->length;
    append_id(text, text_of(job, "job_id"), table->id_limit);
    int written = (int)(text->length - start);
    if (table->is_folded)
        harpe_text_printf(text, "\n");
    else
        harpe_text_printf(text, "%*s", written < table->id_width ? table->id_width - written : 0,
                          "");
    fill_cells(table, job, cells);
    append_cells(table, text, cells);
}

static void append_head(const harpe_jobs_table *table, harpe_text *text) {
    job_cells cells;
    for (int c = 0; c < COLUMNS; c++)
        (void)snprintf(cells[c], HARPE_JOB_CELL_SIZE, "%s", COLUMN[c].title);
    harpe_text_printf(text, "%s%-*s%s", harpe_bold_start(), table->is_folded ? 0 : table->id_width,
                      "id", table->is_folded ? "\n" : "");
    append_cells(table, text, cells);
    text->length--; /* the line feed */
    harpe_text_printf(text, "%s\n", harpe_bold_end());
}

/* Adds the columns for which `left` columns of the terminal are free. Returns how many remain. */
static int choose_columns(harpe_jobs_table *table, int left) {
    for (int level = 0; level < LEVELS; level++)
        for (int c = 0; c < COLUMNS; c++) {
            int width = level > 0 ? 2 + abs(COLUMN[c].width) : 0;
            if (COLUMN[c].level != level) continue;
            if (table->columns > 0 && width > left) return left;
            left -= width;
            table->shown |= 1U << c;
        }
    return left;
}

static void begin_table(harpe_jobs_table *table, const json_t *jobs, harpe_text *text) {
    size_t index;
    const json_t *job;
    double most_j = 0;
    table->id_width = 2;
    json_array_foreach(jobs, index, job) {
        most_j = fmax(
            most_j, json_number_value(json_object_get(json_object_get(job, "figures"), "energy")));
        int width = (int)strlen(text_of(job, "job_id"));
        if (width > table->id_width) table->id_width = width;
    }
    table->has_head = true;
    table->energy_unit = harpe_energy_unit(most_j);
    int beside_row = table->columns - BASE_WIDTH;
    if (table->columns > 0) {
        table->is_folded = table->id_width > beside_row && beside_row < BESIDE_ROW;
        int most = table->is_folded ? table->columns : beside_row;
        if (most < LEAST_ID) most = LEAST_ID;
        if (table->id_width > most) table->id_width = most;
        /* Later pages may have longer ids. */
        int id_room = table->id_width > LEAST_ID ? table->id_width : LEAST_ID;
        int left = choose_columns(table, table->is_folded ? beside_row : beside_row - id_room);
        table->id_limit = table->is_folded ? most : id_room + (left > 0 ? left : 0);
    } else {
        (void)choose_columns(table, 0);
    }
    append_head(table, text);
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
    if (is_out_of_contact(job)) {
        harpe_text_printf(text, "  no contact: since ");
        append_ago(text, number_of(job, "no_contact_since"));
        harpe_text_printf(text, ": the connections of all ranks have ended\n");
    }
    append_field(text, "  failure:    ", job, "failure");
    append_field(text, "  metadata:   ", job, "job_metadata");
    append_field(text, "  scheduler:  ", job, "scheduler");
    harpe_text_printf(text,
                      "  layout:     %" PRId64 " pipeline x %" PRId64 " data x %" PRId64
                      " tensor\n  round:      ",
                      number_of(job, "pp_degree"), number_of(job, "dp_degree"),
                      number_of(job, "tp_degree"));
    append_round(text, job);
    harpe_text_printf(text, "%s\n",
                      json_is_true(json_object_get(job, "scheduler_is_finished"))
                          ? " (the scheduler is finished)"
                          : "");
    harpe_text_printf(text,
                      "  ranks:      %" PRId64 " registered, %" PRId64 " waiting, %" PRId64
                      " reported, of %" PRId64 "\n",
                      number_of(job, "ranks_registered"), number_of(job, "ranks_waiting"),
                      number_of(job, "ranks_reported"), world_size);
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
    append_round(text, job);
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
