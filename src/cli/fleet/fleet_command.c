/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe fleet`: `solve` prints the split of one moment. `simulate` simulates a fleet under three
 * policies, prints what each of them costs, and draws their power. `token` changes the file of
 * tokens of a server. fleet_server.c has the actions on a running server. */
#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "draw/draw.h"
#include "fleet/fleet_tools.h"
#include "rights/tokens.h"

/* ---- token ----------------------------------------------------------------------------------- */

enum { TOKEN_ADD, TOKEN_LIST, TOKEN_REMOVE, TOKEN_NONE = -1 };

typedef struct token_arguments {
    int action;
    const char *name, *path;
    harpe_role role;
    harpe_text scope;
    int64_t watts; /* negative: not given */
    bool json;
    char *text; /* of a new token */
} token_arguments;

static void read_role(void *into, struct argp_state *state, const char *flag, char *text) {
    static const char *const roles[] = {"viewer", "job", "operator", NULL};
    *(harpe_role *)into =
        (harpe_role)(HARPE_ROLE_VIEWER + harpe_flag_choice(state, flag, text, roles));
}

static void add_group(void *into, struct argp_state *state, const char *flag, char *text) {
    harpe_text *scope = into;
    if (!harpe_group_name_is_sound(text, strlen(text)))
        harpe_flag_fail(state,
                        "%s: '%s' is no name of a group: use a word of 1 to %d bytes without , ; +",
                        flag, text, HARPE_GROUP_NAME_MAX);
    harpe_text_printf(scope, "%s%s", scope->length ? "," : "", text);
}

static const char *const token_actions[] = {"add", "list", "remove", NULL};

static const harpe_flag token_words[] = {
    {"ACTION", HARPE_INTO(token_arguments, action), .names = token_actions},
    {"NAME", HARPE_INTO(token_arguments, name)},
    {0},
};

static const harpe_flag token_flags[] = {
    {"tokens", 0, "FILE", "The file of tokens of harpe serve --tokens", 1,
     HARPE_INTO(token_arguments, path)},
    {"role", 0, "ROLE", "add: viewer, job or operator", 1,
     HARPE_READ(read_role, token_arguments, role)},
    {"group", 0, "NAME", "add: only for jobs of this group; may be repeated (default: all groups)",
     1, HARPE_READ(add_group, token_arguments, scope)},
    {"watts", 0, "W",
     "add: the power that members declared with a token of the role job may have together "
     "(default: 1e6 with groups, otherwise no limit)",
     1, HARPE_INTO(token_arguments, watts), 0, HARPE_TOKEN_WATTS_MAX},
    {"json", 'j', NULL, "Print JSON", 2, HARPE_INTO(token_arguments, json)},
    {0},
};

static const harpe_command_line token_line = {
    .parts = {{.flags = token_flags}},
    .words = token_words,
    .forms = "add NAME --role ROLE --tokens FILE\nlist --tokens FILE\nremove NAME --tokens FILE",
    .about = "Add, list or remove the tokens of a server. The server notices the change within "
             "seconds. A new token is printed once.\vSee also: man harpe-fleet",
};

static void check_token(const token_arguments *arguments, const struct argp_state *state) {
    if (arguments->action == TOKEN_NONE)
        harpe_flag_fail(state, "an action is missing: add, list or remove");
    if (!arguments->path) harpe_flag_fail(state, "--tokens FILE is missing");
    if (arguments->name && arguments->action == TOKEN_LIST)
        harpe_flag_fail(state, "unexpected argument '%s'", arguments->name);
    if (!arguments->name && arguments->action != TOKEN_LIST)
        harpe_flag_fail(state, "the name of the token is missing");
    if (arguments->action == TOKEN_ADD && arguments->role == HARPE_ROLE_NONE)
        harpe_flag_fail(state, "--role is missing: viewer, job or operator");
    if (arguments->action != TOKEN_ADD &&
        (arguments->role || arguments->scope.length || arguments->watts >= 0))
        harpe_flag_fail(state, "--role, --group and --watts are only for add");
    if (arguments->role != HARPE_ROLE_JOB && arguments->watts >= 0)
        harpe_flag_fail(state, "--watts is only for the role job");
}

static harpe_status add_token(void *user, harpe_tokens *tokens, harpe_error *error) {
    token_arguments *arguments = user;
    return harpe_tokens_add(tokens, arguments->name, arguments->role, arguments->scope.data,
                            arguments->watts, harpe_clock_wall_whole_s(), &arguments->text, error);
}

static harpe_status remove_token(void *user, harpe_tokens *tokens, harpe_error *error) {
    const token_arguments *arguments = user;
    if (harpe_tokens_remove(tokens, arguments->name)) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_FOUND, "%.300s has no token '%.80s'", arguments->path,
                      arguments->name);
}

static harpe_status add_and_print(token_arguments *arguments, harpe_error *error) {
    harpe_status status =
        arguments->scope.failed
            ? harpe_fail_memory(error)
            : harpe_tokens_file_change(arguments->path, "--tokens", add_token, arguments, error);
    if (status != HARPE_OK) return status;
    if (arguments->json)
        return harpe_command_print_json(
            json_pack("{s:s, s:s}", "name", arguments->name, "token", arguments->text), error);
    puts(arguments->text);
    if (isatty(STDERR_FILENO))
        fputs("harpe fleet: this is the only time that the token is shown\n", stderr);
    return HARPE_OK;
}

static json_t *groups_of(const char *scope) {
    json_t *groups = json_array();
    for (const char *at = scope ? scope : ""; *at;) {
        size_t length = strcspn(at, ",");
        json_array_append_new(groups, json_stringn(at, length));
        at += length;
        at += *at == ',';
    }
    return groups;
}

static harpe_status print_tokens_json(const harpe_tokens *tokens, harpe_error *error) {
    json_t *list = json_array();
    for (size_t i = 0; i < tokens->count; i++) {
        const harpe_named_token *token = &tokens->tokens[i];
        int64_t watts = harpe_token_claim_w(token);
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:o, s:I}", "name", token->name,
                                              "role", harpe_role_name(token->role), "groups",
                                              groups_of(token->scope), "watts",
                                              watts < 0 ? json_null() : json_integer(watts),
                                              "added_at", (json_int_t)token->added_s));
    }
    return harpe_command_print_json(json_pack("{s:o}", "tokens", list), error);
}

static harpe_status print_list(const token_arguments *arguments, harpe_error *error) {
    harpe_tokens tokens = {0};
    harpe_status status = harpe_tokens_file_read(arguments->path, "--tokens", &tokens, NULL, error);
    if (status == HARPE_OK && arguments->json) {
        status = print_tokens_json(&tokens, error);
    } else if (status == HARPE_OK) {
        printf("%s%-24s %-9s %-20s %s%s\n", harpe_bold_start(), "name", "role", "added", "groups",
               harpe_bold_end());
        for (size_t i = 0; i < tokens.count; i++) {
            const harpe_named_token *token = &tokens.tokens[i];
            char added[32] = "-";
            time_t at = (time_t)token->added_s;
            struct tm utc;
            if (gmtime_r(&at, &utc))
                (void)strftime(added, sizeof added, "%Y-%m-%dT%H:%M:%SZ", &utc);
            printf("%-24s %-9s %-20s %s\n", token->name, harpe_role_name(token->role), added,
                   token->scope ? token->scope : "all");
        }
    }
    harpe_tokens_free(&tokens);
    return status;
}

static int run_token(int argc, char **argv) {
    token_arguments arguments = {.action = TOKEN_NONE, .watts = -1};
    harpe_error error;
    struct argp_state state = harpe_command_line_read(&token_line, argc, argv, &arguments);
    check_token(&arguments, &state);
    harpe_status status = arguments.action == TOKEN_ADD ? add_and_print(&arguments, &error)
                          : arguments.action == TOKEN_LIST
                              ? print_list(&arguments, &error)
                              : harpe_tokens_file_change(arguments.path, "--tokens", remove_token,
                                                         &arguments, &error);
    if (arguments.text) explicit_bzero(arguments.text, strlen(arguments.text));
    free(arguments.text);
    harpe_text_free(&arguments.scope);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("fleet", &error);
}

typedef struct fleet_arguments {
    int action;
    const char *path, *prices_path, *output_path;
    double at_s;
    bool has_at, json, force;
} fleet_arguments;

/* ---- solve ----------------------------------------------------------------------------------- */

typedef struct solution {
    const harpe_fleet_file *file;
    harpe_fleet *fleet;
    harpe_fleet_split split;
    int group_count;
    harpe_fleet_use *uses;       /* of the groups */
    harpe_fleet_choice *choices; /* of the jobs in the file that are there at the moment */
} solution;

static harpe_status read_solution(solution *s, harpe_error *error) {
    harpe_status status = HARPE_OK;
    s->group_count = harpe_fleet_group_count(s->fleet);
    s->uses = harpe_calloc((size_t)s->group_count, sizeof *s->uses);
    s->choices = harpe_calloc(s->file->job_count, sizeof *s->choices);
    if (!s->uses || !s->choices) return harpe_fail_memory(error);
    for (int g = 0; g < s->group_count && status == HARPE_OK; g++)
        status = harpe_fleet_use_of(s->fleet, g, &s->uses[g], error);
    for (size_t j = 0; j < s->file->job_count && status == HARPE_OK; j++)
        if (harpe_fleet_job_name(s->fleet, (int)j))
            status = harpe_fleet_choice_of(s->fleet, (int)j, &s->choices[j], error);
    return status;
}

static const char *group_text(char *buffer, size_t size, const char *name) {
    return *name ? harpe_clean_text(buffer, size, name) : "whole fleet";
}

static void print_budgets(const solution *s) {
    printf("%s%-24s %12s %12s %12s %12s %14s%s\n", harpe_bold_start(), "budget", "watts",
           "jobs may draw", "jobs draw", "at least", "price per kW", harpe_bold_end());
    for (int g = 0; g < s->group_count; g++) {
        harpe_fleet_use use = s->uses[g];
        char name[64];
        printf("%-24s %12s %12s %12s %12s %14s%s\n",
               group_text(name, 25, harpe_fleet_group_name(s->fleet, g)),
               use.budget_w < 0 ? "-" : HARPE_POWER(use.budget_w),
               use.limit_w < 0 ? "-" : HARPE_POWER(use.limit_w), HARPE_POWER(use.power_w),
               HARPE_POWER(use.least_w), HARPE_DIGITS(use.price_per_w * 1e3, 4),
               use.missing_w > 0 ? "  too small" : "");
    }
}

static void print_jobs(const solution *s) {
    printf("%s%-24s %-16s %6s %12s %12s %9s %14s%s\n", harpe_bold_start(), "job", "group", "plan",
           "time", "power", "slowdown", "gain per kW", harpe_bold_end());
    for (size_t j = 0; j < s->file->job_count; j++) {
        harpe_fleet_choice choice = s->choices[j];
        char name[64], group[64];
        if (!harpe_fleet_job_name(s->fleet, (int)j)) continue;
        const harpe_fleet_file_job *job = &s->file->jobs[j];
        printf("%-24s %-16s ", harpe_clean_text(name, 25, job->name),
               job->group_name ? harpe_clean_text(group, 17, job->group_name) : "-");
        if (job->is_load) {
            printf("%6s %12s %12s\n", "load", "-", HARPE_POWER(choice.power_w));
            continue;
        }
        printf("%6zu %12s %12s %9s %14s\n", choice.plan, HARPE_TIME(choice.time_s),
               HARPE_POWER(choice.power_w),
               harpe_format_fixed((char[HARPE_NUMBER_SIZE]){0}, choice.slowdown, 4),
               HARPE_DIGITS(choice.gain_per_w * 1e3, 4));
    }
}

static void print_sums(const solution *s) {
    const harpe_fleet_split *split = &s->split;
    printf("\n%zu jobs draw %s, weighted slowdown %s\n", split->job_count,
           HARPE_POWER(split->power_w), HARPE_DIGITS(split->weighted_slowdown, 6));
    if (split->objective != split->weighted_slowdown)
        printf("Cost of lost time and energy: %s per hour\n",
               HARPE_DIGITS(split->objective * 3600, 6));
    double gap = split->objective - split->lower_bound;
    if (!split->is_feasible)
        printf("No split is within the budgets\n");
    else if (split->is_optimal)
        printf("No split within the budgets is better\n");
    else
        printf("At most %s above the best (lower bound %s)\n",
               harpe_format_percent((char[HARPE_NUMBER_SIZE]){0},
                                    100 * gap / fmax(fabs(split->lower_bound), 1e-300)),
               HARPE_DIGITS(split->lower_bound, 6));
}

/* Prints one line for each budget that cannot hold. */
static void report_missing(const solution *s, const char *path) {
    for (int g = 0; g < s->group_count; g++) {
        harpe_fleet_use use = s->uses[g];
        char name[HARPE_FLEET_NAME_MAX], line[HARPE_FLEET_NAME_MAX + 400];
        if (!(use.missing_w > 0)) continue;
        const char *group = harpe_fleet_group_name(s->fleet, g);
        (void)snprintf(line, sizeof line,
                       "the budget of %s%s%s, %s, is %s too small: its jobs draw at least %s "
                       "within the slowdowns that they accept, which needs a budget of %s",
                       *group ? "group '" : "the whole fleet",
                       harpe_clean_text(name, sizeof name, group), *group ? "'" : "",
                       HARPE_POWER(use.budget_w), HARPE_POWER(use.missing_w),
                       HARPE_POWER(use.least_w), HARPE_POWER(use.budget_w + use.missing_w));
        char before[HARPE_ERROR_MESSAGE_SIZE];
        (void)snprintf(before, sizeof before, "harpe fleet: %s", path);
        harpe_command_say(before, line);
    }
}

static json_t *watts_or_null(double watts) { return watts < 0 ? json_null() : json_real(watts); }

static json_t *budgets_json(const solution *s) {
    json_t *list = json_array();
    for (int g = 0; g < s->group_count; g++) {
        harpe_fleet_use use = s->uses[g];
        const char *name = harpe_fleet_group_name(s->fleet, g);
        json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:f, s:f, s:f, s:f}", "group",
                                              *name ? harpe_command_json_text(name) : json_null(),
                                              "budget_w", watts_or_null(use.budget_w), "limit_w",
                                              watts_or_null(use.limit_w), "power_w", use.power_w,
                                              "least_w", use.least_w, "missing_w", use.missing_w,
                                              "price_per_w", use.price_per_w));
    }
    return list;
}

static json_t *jobs_json(const solution *s) {
    json_t *list = json_array();
    for (size_t j = 0; j < s->file->job_count; j++) {
        harpe_fleet_choice choice = s->choices[j];
        if (!harpe_fleet_job_name(s->fleet, (int)j)) continue;
        json_array_append_new(list,
                              json_pack("{s:o, s:I, s:f, s:f, s:f, s:f, s:f}", "name",
                                        harpe_command_json_text(s->file->jobs[j].name), "plan",
                                        (json_int_t)choice.plan, "time", choice.time_s, "power_w",
                                        choice.power_w, "slowdown", choice.slowdown, "gain_per_w",
                                        choice.gain_per_w, "price_per_w", choice.price_per_w));
    }
    return list;
}

static harpe_status print_json(const solution *s, harpe_error *error) {
    const harpe_fleet_split *split = &s->split;
    return harpe_command_print_json(
        json_pack("{s:o, s:o, s:f, s:f, s:f, s:f, s:b, s:b}", "jobs", jobs_json(s), "budgets",
                  budgets_json(s), "power_w", split->power_w, "weighted_slowdown",
                  split->weighted_slowdown, "objective", split->objective, "lower_bound",
                  split->lower_bound, "optimal", split->is_optimal, "feasible", split->is_feasible),
        error);
}

/* Run `harpe fleet solve` and `harpe fleet simulate`. `*exit_code` is set on success. */
static harpe_status run_solve(const fleet_arguments *arguments, const harpe_fleet_file *file,
                              int *exit_code, harpe_error *error) {
    solution s = {.file = file};
    harpe_status status =
        harpe_fleet_file_fleet(file, arguments->path, arguments->at_s, &s.fleet, error);
    if (status == HARPE_OK) status = harpe_fleet_solve(s.fleet, &s.split, error);
    if (status == HARPE_OK) status = harpe_fleet_verify(s.fleet, error);
    if (status == HARPE_OK) status = read_solution(&s, error);
    if (status == HARPE_OK && arguments->json) {
        status = print_json(&s, error);
    } else if (status == HARPE_OK) {
        print_jobs(&s);
        printf("\n");
        print_budgets(&s);
        print_sums(&s);
    }
    if (status == HARPE_OK && !s.split.is_feasible) {
        *exit_code = HARPE_EXIT_INFEASIBLE;
        report_missing(&s, arguments->path);
    }
    harpe_fleet_free(s.fleet);
    free(s.uses);
    free(s.choices);
    return status;
}

/* ---- simulate -------------------------------------------------------------------------------- */

#define BREACHES_SHOWN 10

typedef struct days {
    const harpe_fleet_file *file;
    harpe_fleet_day day[HARPE_FLEET_POLICY_COUNT];
} days;

static const char *const policy_names[] = {"split", "uniform cap", "stop lowest"};
static const char *const policy_keys[] = {"split", "uniform_cap", "stop_lowest"};

static void print_row(const char *name, const double values[], int decimals) {
    printf("%-34s", name);
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        printf(" %14s", harpe_format_fixed((char[HARPE_NUMBER_SIZE]){0}, values[p], decimals));
    printf("\n");
}

/* A row of the table: a member of harpe_fleet_day, and how it is printed. */
#define ROW(name, member, factor, decimals) \
    do { \
        double row_values[HARPE_FLEET_POLICY_COUNT]; \
        for (int row_p = 0; row_p < HARPE_FLEET_POLICY_COUNT; row_p++) \
            row_values[row_p] = (double)d->day[row_p].member * (factor); \
        print_row((name), row_values, (decimals)); \
    } while (0)

static double breach_s(const harpe_fleet_day *day) {
    double sum = 0;
    for (size_t b = 0; b < day->breach_count; b++)
        sum += day->breaches[b].to_s - day->breaches[b].from_s;
    return sum;
}

static void print_days(const days *d) {
    printf("Jobs: %zu. Events: %zu. Time: %s h.\n\n", d->file->job_count, d->file->event_count,
           HARPE_DIGITS(d->file->horizon_s / 3600, 4));
    printf("%s%-34s", harpe_bold_start(), "");
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        printf(" %14s", policy_names[p]);
    printf("%s\n", harpe_bold_end());
    ROW("energy (MWh)", energy_j, 1 / 3.6e9, 4);
    if (d->file->price_count > 0) {
        ROW("cost of energy and carbon", cost, 1, 2);
        ROW("carbon dioxide (kg)", carbon_kg, 1, 1);
    }
    ROW("weighted slowdown", weighted_slowdown, 1, 4);
    ROW("lost time, weighted (h)", lost_s, 1 / 3600.0, 3);
    ROW("time of stopped jobs (h)", stopped_s, 1 / 3600.0, 3);
    ROW("jobs without any work done", without_work, 1, 0);
    ROW("jobs slower than they accept", too_slow, 1, 0);
    ROW("breaches of a budget", breach_count, 1, 0);
    double seconds[HARPE_FLEET_POLICY_COUNT];
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        seconds[p] = breach_s(&d->day[p]);
    print_row("time of breaches (s)", seconds, 1);
}

static void print_breaches(const days *d) {
    const harpe_fleet_day *day = &d->day[HARPE_FLEET_SPLIT];
    if (day->breach_count > 0) printf("\nBreaches with the split:\n");
    for (size_t b = 0; b < day->breach_count && b < BREACHES_SHOWN; b++) {
        const harpe_fleet_breach *breach = &day->breaches[b];
        char name[64];
        printf("  %-24s from %s s for %s s, up to %s above the budget\n",
               group_text(name, 25, d->file->groups[breach->group].name),
               HARPE_DIGITS(breach->from_s, 7), HARPE_DIGITS(breach->to_s - breach->from_s, 4),
               HARPE_POWER(breach->worst_w));
    }
    if (day->breach_count > BREACHES_SHOWN)
        printf("  and %zu more (--json lists all)\n", day->breach_count - BREACHES_SHOWN);
}

static json_t *breaches_json(const days *d, const harpe_fleet_day *day) {
    json_t *list = json_array();
    for (size_t b = 0; b < day->breach_count; b++) {
        const harpe_fleet_breach *breach = &day->breaches[b];
        int group = breach->group;
        json_array_append_new(
            list,
            json_pack("{s:o, s:f, s:f, s:f}", "group",
                      group > 0 ? harpe_command_json_text(d->file->groups[group].name)
                                : json_null(),
                      "from_s", breach->from_s, "to_s", breach->to_s, "worst_w", breach->worst_w));
    }
    return list;
}

static json_t *jobs_of_day_json(const days *d, const harpe_fleet_day *day) {
    json_t *list = json_array();
    for (size_t j = 0; j < d->file->job_count; j++) {
        const harpe_fleet_job_day *job = &day->jobs[j];
        bool has_slowdown = job->done_s > 0;
        json_array_append_new(
            list,
            json_pack("{s:o, s:f, s:f, s:f, s:f, s:o, s:b}", "name",
                      harpe_command_json_text(d->file->jobs[j].name), "here_s", job->here_s,
                      "done_s", job->done_s, "stopped_s", job->stopped_s, "energy_j", job->energy_j,
                      "slowdown", has_slowdown ? json_real(job->here_s / job->done_s) : json_null(),
                      "is_done", job->is_done));
    }
    return list;
}

static json_t *day_json(const days *d, const harpe_fleet_day *day) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:I, s:o, s:o}", "energy_j",
                     day->energy_j, "cost", day->cost, "carbon_kg", day->carbon_kg,
                     "weighted_slowdown", day->weighted_slowdown, "lost_s", day->lost_s,
                     "stopped_s", day->stopped_s, "jobs_without_work",
                     (json_int_t)day->without_work, "jobs_too_slow", (json_int_t)day->too_slow,
                     "breach_s", breach_s(day), "decisions", (json_int_t)day->decisions, "breaches",
                     breaches_json(d, day), "jobs", jobs_of_day_json(d, day));
}

static harpe_status print_days_json(const days *d, harpe_error *error) {
    json_t *object = json_object();
    json_object_set_new(object, "horizon_s", json_real(d->file->horizon_s));
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        json_object_set_new(object, policy_keys[p], day_json(d, &d->day[p]));
    return harpe_command_print_json(object, error);
}

/* The samples as a line. `first_w` is the power of the first sample, or its budget. */
static harpe_fleet_line line_of(const harpe_fleet_day *day, const double *first_w,
                                const char *label) {
    return (harpe_fleet_line){.label = label,
                              .count = day->sample_count,
                              .step = sizeof *day->samples / sizeof(double),
                              .at_s = &day->samples->at_s,
                              .power_w = first_w};
}

static harpe_fleet_band *make_bands(const harpe_fleet_file *file) {
    harpe_fleet_band *bands = harpe_calloc(file->event_count, sizeof *bands);
    for (size_t e = 0; bands && e < file->event_count; e++) {
        const harpe_fleet_file_event *event = &file->events[e];
        bands[e] = (harpe_fleet_band){event->from_s, event->from_s + event->duration_s, "event"};
    }
    return bands;
}

static harpe_status draw(const days *d, const char *path, harpe_error *error) {
    harpe_fleet_line lines[HARPE_FLEET_POLICY_COUNT];
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        lines[p] = line_of(&d->day[p], &d->day[p].samples->power_w, policy_names[p]);
    harpe_fleet_line budget = line_of(&d->day[0], &d->day[0].samples->budget_w, "budget");
    harpe_fleet_picture picture = {.title = "Power of the fleet and its budget",
                                   .end_s = d->file->horizon_s,
                                   .budget = d->file->groups[0].budget.watts < 0 ? NULL : &budget,
                                   .lines = lines,
                                   .line_count = HARPE_FLEET_POLICY_COUNT,
                                   .bands = make_bands(d->file),
                                   .band_count = d->file->event_count};
    if (!picture.bands) return harpe_fail_memory(error);
    harpe_text text = {0};
    harpe_status status = harpe_draw_fleet(&picture, &text, error);
    if (status == HARPE_OK) status = harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    free((void *)picture.bands);
    return status;
}

static harpe_status check_output(const fleet_arguments *arguments, harpe_error *error) {
    const char *path = arguments->output_path;
    if (!path) return HARPE_OK;
    const char *end = strrchr(path, '.');
    if (!end || strcmp(end, ".svg") != 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--output: '%.200s' must end in .svg; rsvg-convert or a browser makes "
                          "PNG and PDF from SVG",
                          path);
    return harpe_command_check_output(path, arguments->force, error);
}

static harpe_status run_simulate(const fleet_arguments *arguments, const harpe_fleet_file *file,
                                 int *exit_code, harpe_error *error) {
    days d = {.file = file};
    harpe_status status = check_output(arguments, error);
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT && status == HARPE_OK; p++)
        status = harpe_fleet_simulate(file, arguments->path, (harpe_fleet_policy)p,
                                      harpe_command_check_signal, &d.day[p], error);
    if (status == HARPE_OK && arguments->output_path)
        status = draw(&d, arguments->output_path, error);
    if (status == HARPE_OK && arguments->json) {
        status = print_days_json(&d, error);
    } else if (status == HARPE_OK) {
        print_days(&d);
        print_breaches(&d);
    }
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        harpe_fleet_day_clear(&d.day[p]);
    *exit_code = HARPE_EXIT_OK;
    return status;
}

enum { ACTION_NONE = -1, ACTION_SOLVE = 0, ACTION_SIMULATE };

/* ---- The command ----------------------------------------------------------------------------- */

/* Those after simulate have options of their own. */
static const char *const actions[] = {"solve", "simulate", "status", "budget", "group",
                                      "job",   "load",     "member", "event",  "prices",
                                      "audit", "token",    NULL};

static const harpe_flag words[] = {
    {"ACTION", HARPE_INTO(fleet_arguments, action), .names = actions},
    {"FILE", HARPE_INTO(fleet_arguments, path)},
    {0},
};

static const harpe_flag flags[] = {
    {"at", 0, "SECONDS", "solve: the moment, with its jobs, events and price (default 0)", 1,
     HARPE_INTO(fleet_arguments, at_s), 0, 1e9, .given = offsetof(fleet_arguments, has_at)},
    {"prices", 0, "FILE", "Read the prices from a CSV file", 1,
     HARPE_INTO(fleet_arguments, prices_path)},
    {.help = "Output:", .group = 2},
    {"output", 'o', "FILE", "simulate: draw the power against the budget (.svg)", 2,
     HARPE_INTO(fleet_arguments, output_path)},
    {"force", 'f', NULL, "simulate: replace an existing picture", 2,
     HARPE_INTO(fleet_arguments, force)},
    {"json", 'j', NULL, "Print JSON", 2, HARPE_INTO(fleet_arguments, json)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .words = words,
    .refusal = "is one file too many",
    .forms =
        "solve FILE\nsimulate FILE\nstatus|budget|group|job|load|member|event|prices|audit|token",
    .about = "Split a power budget over many jobs, so that they lose least time, or simulate a day "
             "of such a fleet.\vExamples:\n  harpe fleet solve fleet.json\n  harpe fleet simulate "
             "fleet.json --output day.svg\n  harpe fleet budget set 60000\n  harpe fleet event "
             "--help\n\nSee also: man harpe-fleet, man 5 harpe-fleet",
};

static void check_usage(const fleet_arguments *arguments, const struct argp_state *state) {
    if (arguments->action == ACTION_NONE)
        harpe_flag_fail(state, "an action is missing: solve or simulate, or status, budget, group, "
                               "job, load, member, event, prices, audit or token");
    if (arguments->action > ACTION_SIMULATE)
        harpe_flag_fail(state, "%s must be the first word", actions[arguments->action]);
    if (!arguments->path) harpe_flag_fail(state, "the fleet's file is missing");
    if (arguments->action != ACTION_SOLVE && arguments->has_at)
        harpe_flag_fail(state, "--at is only for solve");
    if (arguments->action != ACTION_SIMULATE && arguments->output_path)
        harpe_flag_fail(state, "--output is only for simulate");
    if (arguments->force && !arguments->output_path)
        harpe_flag_fail(state, "--force is only for --output");
}

/* Runs an action that has options of its own, and returns true. */
static bool run_other(int argc, char **argv, int *exit_code) {
    static char name[40];
    for (int i = ACTION_SIMULATE + 1; argc > 1 && actions[i]; i++) {
        if (strcmp(argv[1], actions[i]) != 0) continue;
        (void)snprintf(name, sizeof name, "harpe fleet %s", actions[i]);
        argv[1] = name;
        *exit_code = strcmp(actions[i], "token") == 0
                         ? run_token(argc - 1, argv + 1)
                         : harpe_fleet_server_command(argc - 1, argv + 1);
        return true;
    }
    return false;
}

int harpe_fleet_command(int argc, char **argv) {
    int other;
    if (run_other(argc, argv, &other)) return other;
    fleet_arguments arguments = {.action = ACTION_NONE};
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    check_usage(&arguments, &state);
    harpe_fleet_file file = {.job_count = 0};
    harpe_error error;
    int exit_code = HARPE_EXIT_OK;
    harpe_command_catch_signals();
    harpe_status status = harpe_fleet_file_read(arguments.path, &file, &error);
    if (status == HARPE_OK && arguments.prices_path)
        status = harpe_fleet_file_read_prices(&file, arguments.prices_path, &error);
    if (status == HARPE_OK && arguments.action == ACTION_SOLVE)
        status = run_solve(&arguments, &file, &exit_code, &error);
    else if (status == HARPE_OK)
        status = run_simulate(&arguments, &file, &exit_code, &error);
    harpe_fleet_file_free(&file);
    return status == HARPE_OK ? exit_code : harpe_command_fail("fleet", &error);
}
