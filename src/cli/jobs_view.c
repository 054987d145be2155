/* SPDX-License-Identifier: Apache-2.0 */
/* Formats jobs for people: the table of all jobs, the page of one job, and the progress line.
 * Texts come from other machines, so control characters are removed. A saving is always shown with
 * its uncertainty. If a saving is not larger than its uncertainty, the text is "within noise"
 * instead. Each line of the report says what a figure is compared with and how certain it is. */
#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "cli/cli.h"

enum { RANGES_SHOWN = 16 };

/* ---- Fields ---------------------------------------------------------------------------------- */

/* Returns the number, or 0 if it is missing. */
static double number_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

/* Returns the uncertainty, or INFINITY if it is not known. */
static double uncertainty_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : INFINITY;
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

static void append_ago(harpe_text *text, long when_s) {
    long age_s = (long)harpe_clock_wall_whole_s() - when_s;
    if (age_s < 0) age_s = 0; /* the clocks of two machines may differ */
    if (age_s < 120)
        harpe_text_printf(text, "%ld s ago", age_s);
    else if (age_s < 7200)
        harpe_text_printf(text, "%ld min ago", age_s / 60);
    else if (age_s < 2 * 86400)
        harpe_text_printf(text, "%ld h ago", age_s / 3600);
    else
        harpe_text_printf(text, "%ld d ago", age_s / 86400);
}

/* Accepts only the known phases, because the text goes to a terminal. */
static const char *phase_of(const json_t *figures) {
    static const char *const phases[] = {"count", "sweep", "explore", "plan", "hold"};
    const char *phase = json_string_value(json_object_get(figures, "phase"));
    for (size_t i = 0; phase && i < sizeof phases / sizeof *phases; i++)
        if (strcmp(phases[i], phase) == 0) return phases[i];
    return NULL;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static int place_of(double value, int digits) {
    return digits - 1 - (int)floor(log10(value) + 1e-9);
}

/* Appends "42.480 kJ +- 0.089 kJ": the uncertainty has two significant digits, and the value ends
 * at the same place, but has at most six digits. `uncertainty` INFINITY: not known. */
static void append_within(harpe_text *text, double value, double uncertainty, harpe_unit unit) {
    char size[HARPE_NUMBER_SIZE], half[HARPE_NUMBER_SIZE];
    if (!isfinite(uncertainty) || !(uncertainty > 0)) {
        harpe_text_printf(text, "%s%s", harpe_format_in(size, value, unit),
                          isfinite(uncertainty) ? "" : " (uncertainty not known)");
        return;
    }
    value *= unit.per_si;
    uncertainty *= unit.per_si;
    int decimals = place_of(uncertainty, 2);
    if (uncertainty * pow(10, decimals) >= 99.5) decimals--; /* 0.0996 is shown as 0.10 */
    if (value != 0 && decimals > place_of(fabs(value), 6)) decimals = place_of(fabs(value), 6);
    if (decimals > 9) decimals = 9;
    double step = pow(10, -decimals);
    uncertainty = fmax(round(uncertainty / step), 1) * step; /* it must not be shown as 0 */
    value = round(value / step) * step;
    int shown = decimals > 0 ? decimals : 0;
    harpe_text_printf(text, "%s %s +- %s %s", harpe_format_fixed(size, value, shown), unit.name,
                      harpe_format_fixed(half, uncertainty, shown), unit.name);
}

/* Prints `value` in percent of `whole`. Prints "within noise" if it is not larger than its
 * uncertainty, and "not known yet" if the uncertainty is unknown. */
static void print_share(char into[HARPE_NUMBER_SIZE], double value, double uncertainty,
                        double whole) {
    harpe_text text = {0};
    if (!isfinite(uncertainty) || !(uncertainty > 0) || !(whole > 0))
        harpe_text_printf(&text, "not known yet");
    else if (!(fabs(value) > uncertainty))
        harpe_text_printf(&text, "within noise");
    else
        append_within(&text, value / whole, uncertainty / whole, (harpe_unit){"%", 100});
    (void)snprintf(into, HARPE_NUMBER_SIZE, "%s", text.data ? text.data : "-");
    harpe_text_free(&text);
}

/* ---- Columns --------------------------------------------------------------------------------- */

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

enum { CELL_SIZE = HARPE_NUMBER_SIZE };
typedef char job_cells[COLUMNS][CELL_SIZE];

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Returns which share of the energy of one clock for all GPUs the plan saves, as the profile says;
 * NAN: not known. */
static double against_one_clock(const json_t *figures) {
    const json_t *plan = json_object_get(figures, "plan");
    double energy_j = number_of(json_object_get(plan, "one_clock"), "energy");
    return energy_j > 0 ? 1 - number_of(plan, "energy") / energy_j : NAN;
}

/* Fills in the cells about phase, energy, savings and power. */
static void fill_figures(const json_t *job, job_cells cells) {
    static const column columns[] = {PHASE, ENERGY, SAVED, POWER, LOST, ONE_CLOCK};
    const json_t *figures = json_object_get(job, "figures");
    const json_t *saved = json_object_get(figures, "saved"),
                 *plan = json_object_get(figures, "plan");
    const char *phase = phase_of(figures);
    double energy_j = number_of(figures, "energy"), power_w = number_of(figures, "power");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        (void)strcpy(cells[columns[i]], "-");
    if (json_is_object(plan))
        (void)snprintf(cells[PHASE], CELL_SIZE, "plan %ld", harpe_json_count(plan, "number"));
    else if (phase)
        (void)snprintf(cells[PHASE], CELL_SIZE, "%s", phase);
    if (energy_j > 0) harpe_format_energy(cells[ENERGY], energy_j);
    if (json_is_object(saved) && number_of(saved, "energy_baseline") > 0)
        print_share(cells[SAVED], number_of(saved, "energy"),
                    uncertainty_of(saved, "energy_uncertainty"),
                    number_of(saved, "energy_baseline"));
    if (power_w > 0) harpe_format_power(cells[POWER], power_w);
    if (json_is_object(saved) && number_of(saved, "time_baseline") > 0)
        print_share(cells[LOST], number_of(saved, "time"),
                    uncertainty_of(saved, "time_uncertainty"), number_of(saved, "time_baseline"));
    if (isfinite(against_one_clock(figures)))
        (void)snprintf(cells[ONE_CLOCK], CELL_SIZE, "%.2f %%", 100 * against_one_clock(figures));
}

/* ---- Energy and plan of a job ---------------------------------------------------------------- */

static void append_used(const json_t *figures, harpe_text *text) {
    if (!(number_of(figures, "energy") > 0)) return;
    long iterations = harpe_json_count(figures, "iterations");
    double power_w = number_of(figures, "power");
    harpe_text_printf(text, "  energy:     %s and %s in %ld iteration%s\n",
                      HARPE_ENERGY(number_of(figures, "energy")),
                      HARPE_TIME(number_of(figures, "time")), iterations,
                      iterations == 1 ? "" : "s");
    if (power_w > 0)
        harpe_text_printf(text, "  power:      %s in the last round\n", HARPE_POWER(power_w));
    else
        harpe_text_printf(text, "  power:      not known since the server was restarted\n");
}

/* Appends "42.480 kJ +- 0.089 kJ (13.902 % +- 0.029 %)". */
static void append_estimate(harpe_text *text, const char *title, double value, double uncertainty,
                            double whole, harpe_unit (*unit_of)(double largest)) {
    if (!(uncertainty > 0)) {
        harpe_text_printf(text, "  %-11s nothing is compared yet\n", title);
        return;
    }
    char share[CELL_SIZE];
    print_share(share, value, uncertainty, whole);
    harpe_text_printf(text, "  %-11s ", title);
    append_within(text, value, uncertainty,
                  unit_of(fmax(fabs(value), isfinite(uncertainty) ? uncertainty : 0)));
    harpe_text_printf(text, " (%s)\n", share);
}

static void append_plan(const json_t *figures, harpe_text *text) {
    const json_t *plan = json_object_get(figures, "plan");
    const char *phase = phase_of(figures);
    if (!phase) return;
    harpe_text_printf(text, "  phase:      %s\n", phase);
    if (!json_is_object(plan)) return;
    harpe_text_printf(text, "  plan:       %ld of 0 to %ld: iterations of %s and %s\n",
                      harpe_json_count(plan, "number"), harpe_json_count(plan, "of") - 1,
                      HARPE_TIME(number_of(plan, "time")), HARPE_ENERGY(number_of(plan, "energy")));
}

/* Appends what one clock for all GPUs saves, as the plans' profile says: "  one clock:  1380 MHz,
 * saves 1.2 % at +0.0 % time". */
static void append_one_clock(const json_t *figures, harpe_text *text) {
    const json_t *plan = json_object_get(figures, "plan");
    const json_t *highest = json_object_get(plan, "highest_clocks");
    const json_t *one_clock = json_object_get(plan, "one_clock");
    double highest_j = number_of(highest, "energy"), highest_s = number_of(highest, "time");
    double energy_j = number_of(one_clock, "energy"), mhz = number_of(one_clock, "frequency");
    if (!(highest_j > 0) || !(highest_s > 0) || !(energy_j > 0)) return;
    harpe_text_printf(text, "  one clock:  ");
    if (mhz > 0)
        harpe_text_printf(text, "%.0f MHz, saves %.2f %% at %+.2f %% time", mhz,
                          100 * (1 - energy_j / highest_j),
                          100 * (number_of(one_clock, "time") / highest_s - 1));
    else
        harpe_text_printf(text, "none is better than the highest clocks");
    harpe_text_printf(text, "; the plan saves %.2f %% against it (computed from the profile)\n",
                      100 * against_one_clock(figures));
}

static void append_savings(const json_t *figures, harpe_text *text) {
    const json_t *saved = json_object_get(figures, "saved");
    if (json_is_object(saved)) {
        append_estimate(text, "saved:", number_of(saved, "energy"),
                        uncertainty_of(saved, "energy_uncertainty"),
                        number_of(saved, "energy_baseline"), harpe_energy_unit);
        append_estimate(text, "time lost:", number_of(saved, "time"),
                        uncertainty_of(saved, "time_uncertainty"),
                        number_of(saved, "time_baseline"), harpe_time_unit);
    } else if (number_of(figures, "energy") > 0) {
        harpe_text_printf(text, "  saved:      no baseline measured\n");
    }
}

static void append_figures(const json_t *job, harpe_text *text) {
    job_cells cells;
    fill_figures(job, cells);
    if (strcmp(cells[PHASE], "-") != 0) harpe_text_printf(text, ", %s", cells[PHASE]);
    if (strcmp(cells[ENERGY], "-") != 0) harpe_text_printf(text, ", %s used", cells[ENERGY]);
    if (strcmp(cells[POWER], "-") != 0) harpe_text_printf(text, ", %s", cells[POWER]);
    if (strcmp(cells[SAVED], "-") != 0) harpe_text_printf(text, ", saved: %s", cells[SAVED]);
}

/* ---- The baseline ---------------------------------------------------------------------------- */

static void append_time_of_day(harpe_text *text, long wall_s) {
    char shown[32] = "";
    time_t when = (time_t)wall_s;
    struct tm parts;
    if (localtime_r(&when, &parts)) (void)strftime(shown, sizeof shown, "%F %T", &parts);
    harpe_text_printf(text, "%s", shown);
}

static void append_baseline(harpe_text *text, const json_t *report) {
    const json_t *baseline = json_object_get(report, "baseline");
    if (!json_is_object(baseline)) return;
    const json_t *rounds = json_object_get(baseline, "between_rounds");
    const json_t *times = json_object_get(baseline, "measured_at");
    long iterations = harpe_json_count(baseline, "iterations");
    harpe_text_printf(text, "  baseline:   ");
    double time_s = number_of(baseline, "time"), energy_j = number_of(baseline, "energy");
    append_within(text, time_s, uncertainty_of(baseline, "time_uncertainty"),
                  harpe_time_unit(time_s));
    harpe_text_printf(text, " and ");
    append_within(text, energy_j, uncertainty_of(baseline, "energy_uncertainty"),
                  harpe_energy_unit(energy_j));
    harpe_text_printf(text,
                      " an iteration at the highest clocks, measured in %ld iteration%s of rounds "
                      "%ld to %ld until ",
                      iterations, iterations == 1 ? "" : "s",
                      (long)json_integer_value(json_array_get(rounds, 0)),
                      (long)json_integer_value(json_array_get(rounds, 1)));
    append_time_of_day(text, (time_t)json_integer_value(json_array_get(times, 1)));
    harpe_text_printf(text, "\n");
}

/* ---- Rounds and steps ------------------------------------------------------------------------ */

static const struct {
    const char *name, *words;
} REASONS[] = {{"misfit", "steps did not fit the schedule"},
               {"disobeyed", "a GPU did not obey its clock"},
               {"jitter", "a burst of jitter"},
               {"missing", "a rank had no result"},
               {"impossible", "a GPU had an impossible energy"}};
enum { REASON_COUNT = sizeof REASONS / sizeof *REASONS };

static void append_rounds(harpe_text *text, const json_t *report) {
    const json_t *rounds = json_object_get(report, "rounds");
    const json_t *last = json_object_get(rounds, "last");
    if (harpe_json_count(rounds, "observed") == 0) return;
    harpe_text_printf(text, "  rounds:     %ld of %ld spoiled", harpe_json_count(rounds, "spoiled"),
                      harpe_json_count(rounds, "observed"));
    const char *before = ": ";
    for (int i = 0; i < REASON_COUNT; i++) {
        long count = harpe_json_count(rounds, REASONS[i].name);
        if (count == 0) continue;
        harpe_text_printf(text, "%s%s in %ld", before, REASONS[i].words, count);
        before = ", ";
    }
    if (json_is_object(last))
        harpe_text_printf(text, "; the last was round %ld, by rank %ld",
                          harpe_json_count(last, "round"), harpe_json_count(last, "rank"));
    harpe_text_printf(text, "\n");
}

static void append_steps(harpe_text *text, const json_t *report) {
    const json_t *steps = json_object_get(report, "steps");
    if (!json_is_object(steps)) return;
    harpe_text_printf(text,
                      "  steps:      %s %% ran as planned: %ld of %ld, summed over the ranks; %ld "
                      "left out of the measurements\n",
                      HARPE_DIGITS(100 * number_of(steps, "share_as_planned"), 4),
                      harpe_json_count(steps, "as_planned"), harpe_json_count(steps, "run"),
                      harpe_json_count(steps, "left_out"));
    const json_t *clocks = json_object_get(steps, "disobedience");
    if (!json_is_object(clocks)) return;
    harpe_text_printf(text,
                      "  clocks:     in %ld step%s a GPU did not obey; the last: rank %ld at %ld "
                      "MHz, set to %ld MHz\n",
                      harpe_json_count(steps, "disobeyed"),
                      harpe_json_count(steps, "disobeyed") == 1 ? "" : "s",
                      harpe_json_count(clocks, "rank"), harpe_json_count(clocks, "held_mhz"),
                      harpe_json_count(clocks, "wanted_mhz"));
}

/* ---- Energies -------------------------------------------------------------------------------- */

static void append_pair(harpe_text *text, const json_t *pair) {
    double half = number_of(pair, "ratio_uncertainty");
    harpe_text_printf(text, "%.4f +- %.4f times the integrated power: ", number_of(pair, "ratio"),
                      half < 0.0001 ? 0.0001 : half);
    harpe_text_printf(text, json_is_true(json_object_get(pair, "agrees"))
                                ? "no difference beyond the uncertainty"
                                : "they differ by more than the uncertainty");
}

static void append_energy_check(harpe_text *text, const json_t *report) {
    const json_t *check = json_object_get(report, "energy_check");
    if (!json_is_object(check)) return;
    const json_t *worst = json_object_get(check, "worst");
    harpe_text_printf(text, "  counter:    ");
    append_pair(text, check);
    harpe_text_printf(text, " (%ld rank%s)\n", harpe_json_count(check, "ranks"),
                      harpe_json_count(check, "ranks") == 1 ? "" : "s");
    if (harpe_json_count(check, "ranks") < 2 || json_is_true(json_object_get(worst, "agrees")))
        return;
    harpe_text_printf(text, "              rank %ld: ", harpe_json_count(worst, "rank"));
    append_pair(text, worst);
    harpe_text_printf(text, "\n");
}

static void append_per_token(harpe_text *text, const json_t *report) {
    const json_t *tokens = json_object_get(report, "per_token");
    if (!json_is_object(tokens)) return;
    harpe_text_printf(text, "  per token:  %s, with %ld tokens in a step; saved ",
                      HARPE_ENERGY(number_of(tokens, "energy")),
                      harpe_json_count(tokens, "tokens_per_step"));
    double saved_j = number_of(tokens, "saved");
    double uncertainty_j = uncertainty_of(tokens, "saved_uncertainty");
    if (!json_is_number(json_object_get(tokens, "saved"))) {
        harpe_text_printf(text, "is not known without a baseline\n");
        return;
    }
    append_within(text, saved_j, uncertainty_j, harpe_energy_unit(fabs(saved_j)));
    harpe_text_printf(text, " against %s at the highest clocks%s\n",
                      HARPE_ENERGY(number_of(tokens, "baseline")),
                      fabs(saved_j) > uncertainty_j ? "" : " (within noise)");
}

void harpe_job_report_conduct(const json_t *job, harpe_text *text) {
    const json_t *report = json_object_get(job, "report");
    append_rounds(text, report);
    append_steps(text, report);
}

static void append_report(const json_t *job, harpe_text *text) {
    const json_t *figures = json_object_get(job, "figures"),
                 *report = json_object_get(job, "report");
    if (figures) {
        append_plan(figures, text);
        append_one_clock(figures, text);
        append_used(figures, text);
        append_savings(figures, text);
    }
    if (!json_is_object(report)) return;
    append_baseline(text, report);
    harpe_job_report_conduct(job, text);
    append_energy_check(text, report);
    append_per_token(text, report);
}

/* Appends the round. Rounds count from 0; -1 means that the job has had no round yet. */
static void append_round(harpe_text *text, const json_t *job) {
    long round = harpe_json_count(job, "round");
    if (round < 0)
        harpe_text_printf(text, "-");
    else
        harpe_text_printf(text, "%ld", round);
}

/* ---- All jobs -------------------------------------------------------------------------------- */

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

static void take_ago(char *cell, long when_s) {
    harpe_text text = {0};
    append_ago(&text, when_s);
    (void)snprintf(cell, CELL_SIZE, "%s", text.data ? text.data : "-");
    harpe_text_free(&text);
}

static void take_member(char *cell, const json_t *job, const char *name) {
    const char *value = text_of(job, name);
    (void)snprintf(cell, CELL_SIZE, "%.*s", (int)harpe_cut_length(value, CELL_SIZE - 1), value);
    harpe_clean_in_place(cell);
}

static bool is_out_of_contact(const json_t *job) {
    return json_is_integer(json_object_get(job, "no_contact_since"));
}

static void fill_cells(const harpe_jobs_table *table, const json_t *job, job_cells cells) {
    double energy_j = number_of(json_object_get(job, "figures"), "energy");
    double cap_w = number_of(job, "power_cap");
    memset(cells, 0, sizeof(job_cells));
    take_member(cells[STATE], job, "state");
    if (is_out_of_contact(job)) (void)strcpy(cells[STATE], "no contact");
    (void)snprintf(cells[RANKS], CELL_SIZE, "%ld/%ld", harpe_json_count(job, "ranks_registered"),
                   harpe_json_count(job, "world_size"));
    (void)snprintf(cells[WAITING], CELL_SIZE, "%ld", harpe_json_count(job, "ranks_waiting"));
    long round = harpe_json_count(job, "round");
    (void)strcpy(cells[ROUND], "-");
    if (round >= 0) (void)snprintf(cells[ROUND], CELL_SIZE, "%ld", round);
    fill_figures(job, cells);
    if (energy_j > 0) (void)harpe_format_in(cells[ENERGY], energy_j, table->energy_unit);
    (void)strcpy(cells[CAP], "-");
    if (cap_w > 0) (void)harpe_format_power(cells[CAP], cap_w);
    take_member(cells[USER], job, "user");
    take_member(cells[GROUP], job, "group");
    take_member(cells[SLURM_JOB], job, "slurm_job");
    take_member(cells[NODE], job, "node");
    take_ago(cells[STARTED], harpe_json_count(job, "registered_at"));
    take_ago(cells[SEEN], harpe_json_count(job, "last_seen"));
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
        (void)snprintf(cells[c], CELL_SIZE, "%s", COLUMN[c].title);
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
        most_j = fmax(most_j, number_of(json_object_get(job, "figures"), "energy"));
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

/* ---- The page of one job --------------------------------------------------------------------- */

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
    long world_size = harpe_json_count(job, "world_size");
    const json_t *ranks = json_object_get(job, "ranks");
    harpe_text_printf(text, "%s", harpe_bold_start());
    append_clean(text, text_of(job, "job_id"));
    harpe_text_printf(text, "%s\n", harpe_bold_end());
    append_field(text, "  state:      ", job, "state");
    if (is_out_of_contact(job)) {
        harpe_text_printf(text, "  no contact: since ");
        append_ago(text, harpe_json_count(job, "no_contact_since"));
        harpe_text_printf(text, ": the connections of all ranks have ended\n");
    }
    append_field(text, "  failure:    ", job, "failure");
    append_field(text, "  metadata:   ", job, "job_metadata");
    append_field(text, "  scheduler:  ", job, "scheduler");
    harpe_text_printf(text, "  layout:     %ld pipeline x %ld data x %ld tensor\n  round:      ",
                      harpe_json_count(job, "pp_degree"), harpe_json_count(job, "dp_degree"),
                      harpe_json_count(job, "tp_degree"));
    append_round(text, job);
    harpe_text_printf(text, "%s\n",
                      json_is_true(json_object_get(job, "scheduler_is_finished"))
                          ? " (the scheduler is finished)"
                          : "");
    harpe_text_printf(text, "  ranks:      %ld registered, %ld waiting, %ld reported, of %ld\n",
                      harpe_json_count(job, "ranks_registered"),
                      harpe_json_count(job, "ranks_waiting"),
                      harpe_json_count(job, "ranks_reported"), world_size);
    append_report(job, text);
    append_ranges(text, "  missing:    ", ranks, is_missing);
    if (harpe_json_count(job, "ranks_waiting") > 0)
        append_ranges(text, "  waited for: ", ranks, is_not_asking);
    harpe_text_printf(text, "  registered: ");
    append_ago(text, harpe_json_count(job, "registered_at"));
    harpe_text_printf(text, "\n  last seen:  ");
    append_ago(text, harpe_json_count(job, "last_seen"));
    harpe_text_printf(text, "\n");
    if (!json_object_get(job, "evicted_at")) return;
    harpe_text_printf(text, "  evicted:    ");
    append_ago(text, harpe_json_count(job, "evicted_at"));
    harpe_text_printf(text, "\n");
}

void harpe_jobs_view_progress(const json_t *job, bool quiet, harpe_text *text) {
    append_clean(text, text_of(job, "state"));
    if (quiet) return;
    harpe_text_printf(text, ", round ");
    append_round(text, job);
    harpe_text_printf(
        text, ", of %ld ranks %ld registered, %ld waiting, %ld reported",
        harpe_json_count(job, "world_size"), harpe_json_count(job, "ranks_registered"),
        harpe_json_count(job, "ranks_waiting"), harpe_json_count(job, "ranks_reported"));
    append_figures(job, text);
    const char *failure = json_string_value(json_object_get(job, "failure"));
    if (failure) {
        harpe_text_printf(text, ": ");
        append_clean(text, failure);
    }
}
