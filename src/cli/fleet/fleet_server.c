/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe fleet status`, `budget`, `group`, `job`, `load`, `member`, `event`, `prices` and `audit`:
 * reads words and flags, makes one request to the server, and prints the answer. With `--every` it
 * makes the request again and again. fleet_request.c has the table of actions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/terminal_progress.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/fleet/fleet_actions.h"
#include "cli/fleet/fleet_commands.h"
#include "cli/fleet/fleet_repeat.h"
#include "cli/fleet/fleet_request.h"
#include "cli/fleet/fleet_view.h"
#include "cli/server_client.h"

enum { FLAG_OPTION = 256, FLAG_SERVER = 400, FLAG_TOKEN_FILE, FLAG_CA_FILE };
enum { GIVEN_MAX = 1 + HARPE_FLEET_WORDS_MAX };

typedef struct server_arguments {
    harpe_server_client_options client;
    const char *noun;
    const char *given[GIVEN_MAX]; /* a verb, and the words after it */
    int given_count;
    const harpe_fleet_action *action;
    const char *const *words;
    harpe_fleet_values values;
    bool json;
} server_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

#define OPTION(name) (FLAG_OPTION + HARPE_FLEET_##name)

static const struct argp_option flags[] = {
    {"group", OPTION(GROUP), "NAME", 0, "The group (default: the whole fleet)", 1},
    {"margin", OPTION(MARGIN), "SHARE", 0, "budget set: share of the watts that stays unused", 1},
    {"overhead", OPTION(OVERHEAD), "FACTOR", 0,
     "budget set: watts of the budget for each watt of a GPU (1 to 10)", 1},
    {"parent", OPTION(PARENT), "NAME", 0, "group set: the group around it", 1},
    {"weight", OPTION(WEIGHT), "N", 0, "job set: how much its time is worth", 1},
    {"max-slowdown", OPTION(MAX_SLOWDOWN), "FACTOR", 0,
     "job set: the largest slowdown that it accepts (1 or more)", 1},
    {"priority", OPTION(PRIORITY), "N", 0, "job set: its priority", 1},
    {"watts", OPTION(WATTS), "W", 0, "event add: so many watts less", 2},
    {"share", OPTION(SHARE), "SHARE", 0, "event add: this share of the budget less (0 to 1)", 2},
    {"for", OPTION(FOR), "SECONDS", 0, "event add: how long", 2},
    {"from", OPTION(FROM), "TIME", 0,
     "event add, prices set: from when: seconds since 1970, or +SECONDS from now (default: now)",
     2},
    {"notice", OPTION(NOTICE), "SECONDS", 0, "event add: begin to lower so long before it", 2},
    {"ramp", OPTION(RAMP), "SECONDS", 0, "event add: come back in this time", 2},
    {"note", OPTION(NOTE), "TEXT", 0, "event add: a text for people", 2},
    {"exceed-slowdown", OPTION(EXCEED), NULL, 0, "event add: jobs may get slower than they accept",
     2},
    {"currency", OPTION(CURRENCY), "NAME", 0, "prices: the currency, such as EUR", 3},
    {"carbon-price", OPTION(CARBON_PRICE), "N", 0, "prices: cost of 1 kg of carbon dioxide", 3},
    {"time-value", OPTION(TIME_VALUE), "N", 0,
     "prices: what a second of a job of weight 1 is worth", 3},
    {"every", OPTION(EVERY), "SECONDS", 0,
     "prices set: keep running, and read the prices again after so many seconds", 3},
    {"feed-ca-file", OPTION(FEED_CA_FILE), "FILE", 0,
     "prices set: trust these certificate authorities (PEM) for the URL of the prices", 3},
    {"limit", OPTION(LIMIT), "N", 0, "audit: at most so many records (100)", 4},
    {"server", FLAG_SERVER, "URL", 0, "The server (HARPE_SERVER, else " HARPE_DEFAULT_SERVER ")",
     5},
    {"token-file", FLAG_TOKEN_FILE, "FILE", 0,
     "File whose first line is the server's bearer token (HARPE_TOKEN)", 5},
    {"ca-file", FLAG_CA_FILE, "FILE", 0, "Trust these certificate authorities (PEM)", 5},
    {"json", 'j', NULL, 0, "Print the server's answer as JSON", 6},
    {0},
};

static int word_count(const harpe_fleet_action *action) {
    int count = 0;
    while (count < HARPE_FLEET_WORDS_MAX && action->words[count])
        count++;
    return count;
}

static void choose_action(server_arguments *arguments, const struct argp_state *state) {
    const char *verb = arguments->given_count > 0 ? arguments->given[0] : NULL;
    const char *verbs[8] = {NULL};
    int count = 0;
    for (const harpe_fleet_action *one = harpe_fleet_actions; one->noun; one++) {
        if (strcmp(one->noun, arguments->noun) != 0) continue;
        if (one->verb) verbs[count++] = one->verb;
        bool is_it = verb && one->verb ? strcmp(verb, one->verb) == 0 : !verb && !one->verb;
        if (is_it) arguments->action = one;
    }
    if (!arguments->action && verb && count > 0)
        (void)harpe_flag_choice(state, "ACTION", verb, verbs); /* names the actions, and exits */
    if (!arguments->action && verb) harpe_flag_fail(state, "what is '%s'?", verb);
    if (!arguments->action)
        harpe_flag_fail(state, "an action is missing: %s%s%s", verbs[0], verbs[1] ? " or " : "",
                        verbs[1] ? verbs[1] : "");
    int skipped = arguments->action->verb ? 1 : 0;
    int given = arguments->given_count - skipped, wanted = word_count(arguments->action);
    arguments->words = arguments->given + skipped;
    if (given < wanted) harpe_flag_fail(state, "%s is missing", arguments->action->words[given]);
    if (given > wanted) harpe_flag_fail(state, "what is '%s'?", arguments->given[skipped + wanted]);
}

static void check_options(const server_arguments *arguments, const struct argp_state *state) {
    const harpe_fleet_action *action = arguments->action;
    const harpe_fleet_values *values = &arguments->values;
    bool has_needed = action->needs == 0;
    for (int i = 0; i < HARPE_FLEET_OPTION_COUNT; i++) {
        if (!values->is_given[i]) continue;
        if (!(action->options & 1U << i))
            harpe_flag_fail(state, "--%s is not for %s%s%s", harpe_fleet_options[i].flag,
                            action->noun, action->verb ? " " : "",
                            action->verb ? action->verb : "");
        has_needed = has_needed || action->needs & 1U << i;
    }
    const char *group = values->texts[HARPE_FLEET_GROUP];
    /* Only a job has a group already, which "" takes away. */
    if (values->is_given[HARPE_FLEET_GROUP] && !*group && strcmp(action->noun, "job") != 0)
        harpe_flag_fail(state, "--group has no name; the whole fleet is meant without --group");
    bool is_event = strcmp(action->noun, "event") == 0 && action->needs != 0;
    if (is_event && values->is_given[HARPE_FLEET_WATTS] == values->is_given[HARPE_FLEET_SHARE])
        harpe_flag_fail(state, "give --watts or --share, and only one of them");
    if (is_event && !values->is_given[HARPE_FLEET_FOR])
        harpe_flag_fail(state, "--for SECONDS is missing");
    if (values->is_given[HARPE_FLEET_EVERY] && arguments->json)
        harpe_flag_fail(state, "--every prints no answers, so --json cannot be given with it");
    for (int i = 0; i < HARPE_FLEET_OPTION_COUNT && !has_needed; i++)
        if (action->needs & 1U << i)
            harpe_flag_fail(state, "an option is missing, such as --%s",
                            harpe_fleet_options[i].flag);
}

static void read_option(server_arguments *arguments, const struct argp_state *state, int option,
                        const char *argument) {
    const harpe_fleet_option *what = &harpe_fleet_options[option];
    char flag[40];
    (void)snprintf(flag, sizeof flag, "--%s", what->flag);
    arguments->values.is_given[option] = true;
    arguments->values.texts[option] = argument;
    if (what->shape == HARPE_FLEET_SHAPE_NUMBER)
        arguments->values.numbers[option] =
            harpe_flag_double(state, flag, argument, what->minimum, what->maximum);
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    server_arguments *arguments = state->input;
    if (key >= FLAG_OPTION && key < FLAG_OPTION + HARPE_FLEET_OPTION_COUNT) {
        read_option(arguments, state, key - FLAG_OPTION, argument);
        return 0;
    }
    switch (key) {
    case FLAG_SERVER: arguments->client.server = argument; return 0;
    case FLAG_TOKEN_FILE: arguments->client.token_file = argument; return 0;
    case FLAG_CA_FILE: arguments->client.ca_file = argument; return 0;
    case 'j': arguments->json = true; return 0;
    case ARGP_KEY_ARG:
        if (arguments->given_count == GIVEN_MAX) harpe_flag_fail(state, "what is '%s'?", argument);
        arguments->given[arguments->given_count++] = argument;
        return 0;
    case ARGP_KEY_END:
        choose_action(arguments, state);
        check_options(arguments, state);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- The answer ------------------------------------------------------------------------------ */

static void print_answer(const server_arguments *arguments, const json_t *answer) {
    const char *noun = arguments->noun;
    if (strcmp(noun, "audit") == 0)
        harpe_fleet_print_audit(answer);
    else if (strcmp(arguments->action->method, "POST") == 0)
        harpe_fleet_print_promise(answer);
    else if (strcmp(arguments->action->method, "GET") != 0)
        harpe_fleet_print_missing(answer); /* a change that succeeded prints nothing else */
    else if (strcmp(noun, "status") == 0)
        harpe_fleet_print_status(answer, harpe_command_columns());
    else if (strcmp(noun, "budget") == 0)
        harpe_fleet_print_budgets(answer);
    else if (strcmp(noun, "group") == 0)
        harpe_fleet_print_groups(answer);
    else if (strcmp(noun, "job") == 0)
        harpe_fleet_print_jobs(answer, harpe_command_columns());
    else if (strcmp(noun, "event") == 0)
        harpe_fleet_print_events(answer);
    else
        harpe_fleet_print_prices(answer);
}

static harpe_status show(const server_arguments *arguments, json_t *answer, int *exit_code,
                         harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (arguments->json)
        status = harpe_command_print_json(json_incref(answer), error);
    else
        print_answer(arguments, answer);
    /* Only the answers about an event and a budget have this member. */
    bool is_missing = strcmp(arguments->action->method, "GET") != 0 &&
                      json_number_value(json_object_get(answer, "missing_w")) > 0;
    *exit_code = is_missing ? HARPE_FLEET_EXIT_INFEASIBLE : HARPE_EXIT_OK;
    if (status == HARPE_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = harpe_fail(error, HARPE_IO_ERROR, "cannot write to standard output");
    return status;
}

/* ---- The request ----------------------------------------------------------------------------- */

/* Makes the query: the group of a budget that is removed, and the limit of the audit log. */
static void make_query(const server_arguments *arguments, harpe_text *query) {
    const harpe_fleet_values *values = &arguments->values;
    bool is_delete = strcmp(arguments->action->method, "DELETE") == 0;
    if (is_delete && values->is_given[HARPE_FLEET_GROUP]) {
        harpe_text_printf(query, "?group=");
        harpe_url_append(query, values->texts[HARPE_FLEET_GROUP]);
    }
    if (values->is_given[HARPE_FLEET_LIMIT])
        harpe_text_printf(query, "?limit=%.0f", floor(values->numbers[HARPE_FLEET_LIMIT]));
}

enum { STEP_BODY, STEP_REQUEST };

/* `now_s`: the moment from which +SECONDS counts. `*step` receives the last step. */
static harpe_status ask(const server_arguments *arguments, harpe_server_client *client,
                        double now_s, int *step, json_t **answer, harpe_error *error) {
    const harpe_fleet_action *action = arguments->action;
    const char *first = action->words[0];
    bool has_name = first && (strcmp(first, "NAME") == 0 || strcmp(first, "ID") == 0);
    bool has_body = strcmp(action->method, "PUT") == 0 || strcmp(action->method, "POST") == 0;
    harpe_text query = {0};
    char *body = NULL;
    harpe_status status = HARPE_OK;
    *step = STEP_BODY;
    make_query(arguments, &query);
    if (query.failed) status = harpe_fail_memory(error);
    if (status == HARPE_OK && has_body)
        status =
            harpe_fleet_body(action, &arguments->values, arguments->words, now_s, &body, error);
    const harpe_request request = {.method = action->method,
                                   .path = action->path,
                                   .segment = has_name ? arguments->words[0] : NULL,
                                   .query = query.data,
                                   .body = body};
    if (status == HARPE_OK) {
        *step = STEP_REQUEST;
        status = harpe_server_client_request(client, &request, answer, error);
    }
    harpe_text_free(&query);
    free(body);
    return status;
}

/* ---- Again and again ------------------------------------------------------------------------- */

typedef struct repeated {
    const server_arguments *arguments;
    harpe_server_client *client;
    double begun_s;
} repeated;

static harpe_status ask_again(void *user, int *step, harpe_error *error) {
    const repeated *self = user;
    json_t *answer = NULL;
    harpe_status status = ask(self->arguments, self->client, self->begun_s, step, &answer, error);
    json_decref(answer);
    return status;
}

static harpe_status keep_asking(const server_arguments *arguments, harpe_server_client *client,
                                harpe_error *error) {
    repeated user = {arguments, client, (double)harpe_clock_wall_whole_s()};
    const harpe_fleet_repeat repeat = {
        .attempt = ask_again,
        .user = &user,
        .every_s = arguments->values.numbers[HARPE_FLEET_EVERY],
        .works = "the prices are set",
        .works_again = "the prices are set again",
        .meanwhile = "the server keeps the prices that it has, and this is tried again",
    };
    return harpe_fleet_repeat_run(&repeat, error);
}

static harpe_status ask_once(const server_arguments *arguments, harpe_server_client *client,
                             int *exit_code, harpe_error *error) {
    json_t *answer = NULL;
    int step;
    harpe_status status =
        ask(arguments, client, (double)harpe_clock_wall_whole_s(), &step, &answer, error);
    if (status == HARPE_OK) status = show(arguments, answer, exit_code, error);
    json_decref(answer);
    return status;
}

int harpe_fleet_server_command(int argc, char **argv) {
    const struct argp parser = {
        .options = flags,
        .parser = parse_flag,
        .args_doc = "[ACTION [WORD...]]",
        .doc = "Show or steer the fleet of a server (harpe serve).\v"
               "Actions:\n  status\n  budget [set WATTS | remove]\n  group [set NAME | remove "
               "NAME]\n  job [set ID]\n  load set NAME WATTS | load remove NAME\n  member remove "
               "NAME\n  event [add | cancel ID]\n  prices [set FILE or URL | remove]\n  audit\n\n"
               "See also: man "
               "harpe-fleet",
    };
    const char *server = getenv("HARPE_SERVER");
    server_arguments arguments = {.noun = strrchr(argv[0], ' ') + 1,
                                  .client.server =
                                      server && *server ? server : HARPE_DEFAULT_SERVER};
    harpe_error error;
    harpe_server_client *client = NULL;
    harpe_terminal_progress terminal;
    int exit_code = HARPE_EXIT_OK;
    argp_parse(&parser, argc, argv, 0, NULL, &arguments);
    (void)harpe_terminal_progress_start(&terminal, true);
    harpe_status status = harpe_server_client_open(&arguments.client, &client, &error);
    if (status == HARPE_OK && arguments.values.is_given[HARPE_FLEET_EVERY])
        status = keep_asking(&arguments, client, &error);
    else if (status == HARPE_OK)
        status = ask_once(&arguments, client, &exit_code, &error);
    harpe_server_client_close(client);
    return status == HARPE_OK ? exit_code : harpe_command_fail("fleet", &error);
}
