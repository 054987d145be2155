/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe fleet status`, `budget`, `group`, `job`, `load`, `member`, `event`, `prices` and `audit`:
 * reads words and flags, makes one request to the server, and prints the answer. With `--every` it
 * makes the request again and again. Prices come from a file, or from a URL that this program
 * fetches and not the server: otherwise a client could make the server send requests to machines
 * that only the server can reach. fleet_view.c prints the answers. */
#include <math.h>
#include <poll.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "fleet/fleet_tools.h"

/* The options that become a member of a request's body, or a parameter of its query. */
enum {
    FLEET_GROUP,
    FLEET_MARGIN,
    FLEET_OVERHEAD,
    FLEET_PARENT,
    FLEET_WEIGHT,
    FLEET_MAX_SLOWDOWN,
    FLEET_PRIORITY,
    FLEET_WATTS,
    FLEET_SHARE,
    FLEET_FOR,
    FLEET_FROM,
    FLEET_NOTICE,
    FLEET_RAMP,
    FLEET_NOTE,
    FLEET_EXCEED,
    FLEET_CURRENCY,
    FLEET_CARBON_PRICE,
    FLEET_TIME_VALUE,
    FLEET_LIMIT,
    FLEET_EVERY,
    FLEET_FEED_CA_FILE,
    OPTION_COUNT,
};

#define SOURCE "FILE or URL" /* the word that says where prices come from */

enum { WORDS_MAX = 2 }; /* words after the action, such as a name and watts */

typedef struct fleet_action {
    const char *noun, *verb;      /* "budget", "set"; verb NULL: the noun alone */
    const char *words[WORDS_MAX]; /* what the words after it are: "NAME", "WATTS", SOURCE */
    unsigned options;             /* a bit for each option that it takes */
    unsigned needs;               /* one of these options must be given */
    const char *method, *path;    /* NAME or ID follows the path */
} fleet_action;

typedef struct fleet_value {
    bool is_given;
    double number;
    const char *text;
} fleet_value;

enum { GIVEN_MAX = 1 + WORDS_MAX };

typedef struct server_arguments {
    harpe_server_client_options client;
    const char *noun;
    const char *given[GIVEN_MAX]; /* a verb, and the words after it */
    int given_count;
    const fleet_action *action;
    const char *const *words;
    fleet_value values[OPTION_COUNT];
    bool json;
} server_arguments;

/* ---- Prices ---------------------------------------------------------------------------------- */

enum {
    SHOWN_BYTES = 300,
    FEED_BYTES = 4 << 20, /* longest answer; the harpe server accepts 10,000 prices */
};

/* A URL in parts. */
typedef struct feed {
    char *server;           /* "https://HOST:PORT"; owned */
    const char *path;       /* "/prices.csv?key=1" */
    char name[SHOWN_BYTES]; /* the URL up to its '?', for messages */
} feed;

/* Splits a URL after its host and port. */
static harpe_status split_url(const char *url, feed *out, harpe_error *error) {
    const char *host = strstr(url, "://") + 3;
    size_t length = (size_t)(host - url) + strcspn(host, "/?#");
    char *shown = strndup(url, strcspn(url, "?#"));
    (void)harpe_clean_text(out->name, SHOWN_BYTES, shown ? shown : "the prices");
    free(shown);
    if (memchr(host, '@', length - (size_t)(host - url)))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a URL of prices cannot have a user name or password before the host");
    if (strpbrk(url, "# \t\r\n") || url[length] == '?')
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%s: expected http://HOST:PORT/PATH without spaces and #", out->name);
    out->path = url[length] ? url + length : "/";
    out->server = strndup(url, length);
    return out->server ? HARPE_OK : harpe_fail_memory(error);
}

static harpe_status tell_no_answer(const feed *from, const harpe_connection *connection,
                                   harpe_status status, harpe_error *error) {
    if (harpe_connection_has_wrong_name(connection))
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "%s: the certificate of the server is for another name (%s); use the "
                          "name in the certificate as the address",
                          from->name, harpe_connection_reason(connection));
    if (status == HARPE_PERMISSION_DENIED)
        return harpe_fail(
            error, HARPE_UNAVAILABLE,
            "%s: the server is not trusted (%s); name its authority with --feed-ca-file",
            from->name, harpe_connection_reason(connection));
    if (status == HARPE_LIMIT_EXCEEDED)
        return harpe_fail(error, status, "%s: is larger than %zu MiB", from->name,
                          (size_t)FEED_BYTES >> 20);
    if (status != HARPE_UNAVAILABLE) return status;
    return harpe_fail(error, status, "%s: cannot be fetched: %s", from->name,
                      harpe_connection_reason(connection));
}

/* Returns the advice that a message gives after the HTTP status of an answer. */
static const char *hint(long code) {
    if (code >= 300 && code < 400)
        return ", a redirect, which is not followed: give the address that it leads to";
    if (code == 401 || code == 403)
        return ": it wants to know who asks; fetch the prices with another program, and give the "
               "file";
    return code == 404 ? ": is the address right?" : "";
}

static harpe_status fetch(const feed *from, const char *ca_file, harpe_price_series *out,
                          harpe_error *error) {
    const harpe_connection_options options = {.server_url = from->server,
                                              .has_no_token = true,
                                              .ca_file = ca_file,
                                              .url_name = "FILE or URL",
                                              .ca_name = "with --feed-ca-file",
                                              .answer_limit_bytes = FEED_BYTES,
                                              .go_on = harpe_command_goes_on};
    const harpe_request request = {.path = from->path};
    harpe_connection *connection;
    harpe_answer answer;
    harpe_status status = harpe_connection_new(&options, &connection, error);
    if (status != HARPE_OK) return status;
    status = harpe_connection_call(connection, &request, &answer, error);
    if (status != HARPE_OK) {
        status = tell_no_answer(from, connection, status, error);
    } else if (answer.http_status != 200) {
        status = harpe_fail(error, HARPE_UNAVAILABLE, "%s: the server answered %ld%s", from->name,
                            answer.http_status, hint(answer.http_status));
        error->vendor_code = (int)answer.http_status;
    }
    if (status == HARPE_OK)
        status = harpe_price_series_read(answer.body, answer.length, from->name, out, error);
    harpe_connection_free(connection);
    return status;
}

static harpe_status read_url(const char *url, const char *ca_file, harpe_price_series *out,
                             harpe_error *error) {
    feed from = {.server = NULL};
    harpe_status status = split_url(url, &from, error);
    if (status == HARPE_OK) status = fetch(&from, ca_file, out, error);
    free(from.server);
    return status;
}

static harpe_status read_file(const char *path, harpe_price_series *out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, HARPE_PRICE_SERIES_BYTES, &text, &length, error);
    if (status == HARPE_OK) status = harpe_price_series_read(text, length, path, out, error);
    free(text);
    return status;
}

/* Reads CSV or JSON. `source` is a URL (http:// or https://), or the name of a file. `ca_file` has
 * the certificate authorities for a URL; if it is NULL, those of the system count. The function
 * sends no token to a URL and follows no redirect. Error messages begin with the source, without
 * the part of a URL after '?', because this part may contain a key. If the server answers with
 * another HTTP status than 200, the error's vendor_code is this status. Returns HARPE_UNAVAILABLE
 * in place of HARPE_PERMISSION_DENIED, which callers take for the answer of a harpe server that
 * refuses the token. A signal ends a request that hangs. */
static harpe_status read_prices(const char *source, const char *ca_file, harpe_price_series *out,
                                harpe_error *error) {
    bool is_url = strncasecmp(source, "http://", 7) == 0 || strncasecmp(source, "https://", 8) == 0;
    harpe_status status =
        is_url ? read_url(source, ca_file, out, error) : read_file(source, out, error);
    /* Callers take HARPE_PERMISSION_DENIED for the answer of a harpe server. */
    if (status != HARPE_PERMISSION_DENIED) return status;
    error->status = HARPE_UNAVAILABLE;
    return HARPE_UNAVAILABLE;
}

/* ---- The table of actions -------------------------------------------------------------------- */

#define BIT(option) (1U << FLEET_##option)

/* The members of a body. An option without one stays in the program. */
static const char *const members[OPTION_COUNT] = {
    [FLEET_GROUP] = "group",
    [FLEET_MARGIN] = "margin",
    [FLEET_OVERHEAD] = "overhead",
    [FLEET_PARENT] = "parent",
    [FLEET_WEIGHT] = "weight",
    [FLEET_MAX_SLOWDOWN] = "max_slowdown",
    [FLEET_PRIORITY] = "priority",
    [FLEET_WATTS] = "watts",
    [FLEET_SHARE] = "share",
    [FLEET_FOR] = "duration_s",
    [FLEET_FROM] = "from",
    [FLEET_NOTICE] = "notice_s",
    [FLEET_RAMP] = "ramp_s",
    [FLEET_NOTE] = "note",
    [FLEET_EXCEED] = "may_exceed_slowdown",
    [FLEET_CURRENCY] = "currency",
    [FLEET_CARBON_PRICE] = "carbon_per_kg",
    [FLEET_TIME_VALUE] = "value_per_s",
    [FLEET_LIMIT] = "limit",
};

enum {
    OF_EVENT = BIT(WATTS) | BIT(SHARE) | BIT(FOR) | BIT(FROM) | BIT(NOTICE) | BIT(RAMP) |
               BIT(NOTE) | BIT(GROUP) | BIT(EXCEED),
    OF_JOB = BIT(GROUP) | BIT(WEIGHT) | BIT(MAX_SLOWDOWN) | BIT(PRIORITY),
    OF_PRICES =
        BIT(CURRENCY) | BIT(CARBON_PRICE) | BIT(TIME_VALUE) | BIT(EVERY) | BIT(FEED_CA_FILE),
};

static const fleet_action fleet_actions[] = {
    {"status", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"budget", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"budget",
     "set",
     {"WATTS"},
     BIT(GROUP) | BIT(MARGIN) | BIT(OVERHEAD),
     0,
     "PUT",
     "/fleet/budget"},
    {"budget", "remove", {NULL}, BIT(GROUP), 0, "DELETE", "/fleet/budget"},
    {"group", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"group", "set", {"NAME"}, BIT(PARENT), 0, "PUT", "/fleet/groups/"},
    {"group", "remove", {"NAME"}, 0, 0, "DELETE", "/fleet/groups/"},
    {"job", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"job", "set", {"ID"}, OF_JOB, OF_JOB, "PUT", "/fleet/jobs/"},
    {"load", "set", {"NAME", "WATTS"}, BIT(GROUP), 0, "PUT", "/fleet/loads/"},
    {"load", "remove", {"NAME"}, 0, 0, "DELETE", "/fleet/loads/"},
    {"member", "remove", {"NAME"}, 0, 0, "DELETE", "/fleet/members/"},
    {"event", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"event", "add", {NULL}, OF_EVENT, BIT(WATTS) | BIT(SHARE), "POST", "/fleet/events"},
    {"event", "cancel", {"ID"}, 0, 0, "DELETE", "/fleet/events/"},
    {"prices", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"prices", "set", {SOURCE}, OF_PRICES | BIT(FROM), 0, "PUT", "/fleet/prices"},
    {"prices", "remove", {NULL}, 0, 0, "DELETE", "/fleet/prices"},
    {"audit", NULL, {NULL}, BIT(LIMIT), 0, "GET", "/fleet/audit"},
    {0},
};

#define VALUE(option, member) offsetof(server_arguments, values[FLEET_##option].member)
#define SWITCH(option) .at = VALUE(option, is_given), .kind = HARPE_FLAG_SWITCH
#define TEXT(option) \
    .given = VALUE(option, is_given), .at = VALUE(option, text), .kind = HARPE_FLAG_TEXT
#define NUMBER(option) \
    .given = VALUE(option, is_given), .at = VALUE(option, number), .kind = HARPE_FLAG_NUMBER

static const harpe_flag flags[] = {
    [FLEET_GROUP] = {"group", 0, "NAME", "The group (default: the whole fleet)", 1, TEXT(GROUP)},
    [FLEET_MARGIN] = {"margin", 0, "SHARE", "budget set: share of the watts that stays unused", 1,
                      NUMBER(MARGIN), 0, 0.99},
    [FLEET_OVERHEAD] = {"overhead", 0, "FACTOR",
                        "budget set: watts of the budget for each watt of a GPU (1 to 10)", 1,
                        NUMBER(OVERHEAD), 1, 10},
    [FLEET_PARENT] = {"parent", 0, "NAME", "group set: the group around it", 1, TEXT(PARENT)},
    [FLEET_WEIGHT] = {"weight", 0, "N", "job set: how much its time is worth", 1, NUMBER(WEIGHT), 0,
                      1e12},
    [FLEET_MAX_SLOWDOWN] = {"max-slowdown", 0, "FACTOR",
                            "job set: the largest slowdown that it accepts (1 or more)", 1,
                            NUMBER(MAX_SLOWDOWN), 1, 1e9},
    [FLEET_PRIORITY] = {"priority", 0, "N", "job set: its priority", 1, NUMBER(PRIORITY), -1e6,
                        1e6},
    [FLEET_WATTS] = {"watts", 0, "W", "event add: so many watts less", 2, NUMBER(WATTS), 0, 1e12},
    [FLEET_SHARE] = {"share", 0, "SHARE", "event add: this share of the budget less (0 to 1)", 2,
                     NUMBER(SHARE), 0, 1},
    [FLEET_FOR] = {"for", 0, "SECONDS", "event add: how long", 2, NUMBER(FOR), 1, 1e9},
    [FLEET_FROM] = {"from", 0, "TIME",
                    "event add, prices set: from when: seconds since 1970, or +SECONDS from now "
                    "(default: now)",
                    2, TEXT(FROM)},
    [FLEET_NOTICE] = {"notice", 0, "SECONDS", "event add: begin to lower so long before it", 2,
                      NUMBER(NOTICE), 0, 1e9},
    [FLEET_RAMP] = {"ramp", 0, "SECONDS", "event add: come back in this time", 2, NUMBER(RAMP), 0,
                    1e7},
    [FLEET_NOTE] = {"note", 0, "TEXT", "event add: a text for people", 2, TEXT(NOTE)},
    [FLEET_EXCEED] = {"exceed-slowdown", 0, NULL, "event add: jobs may get slower than they accept",
                      2, SWITCH(EXCEED)},
    [FLEET_CURRENCY] = {"currency", 0, "NAME", "prices: the currency, such as EUR", 3,
                        TEXT(CURRENCY)},
    [FLEET_CARBON_PRICE] = {"carbon-price", 0, "N", "prices: cost of 1 kg of carbon dioxide", 3,
                            NUMBER(CARBON_PRICE), 0, 1e6},
    [FLEET_TIME_VALUE] = {"time-value", 0, "N",
                          "prices: what a second of a job of weight 1 is worth", 3,
                          NUMBER(TIME_VALUE), 1e-9, 1e6},
    [FLEET_EVERY] = {"every", 0, "SECONDS",
                     "prices set: keep running, and read the prices again after so many seconds", 3,
                     NUMBER(EVERY), 1, 1e6},
    [FLEET_FEED_CA_FILE] =
        {"feed-ca-file", 0, "FILE",
         "prices set: trust these certificate authorities (PEM) for the URL of the prices", 3,
         TEXT(FEED_CA_FILE)},
    [FLEET_LIMIT] = {"limit", 0, "N", "audit: at most so many records (100)", 4, NUMBER(LIMIT), 0,
                     10000},
    [OPTION_COUNT] = {"json", 'j', NULL, "Print the server's answer as JSON", 6,
                      HARPE_INTO(server_arguments, json)},
    {0},
};

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* Reads "1764100000" or "+600", which counts from now. */
static harpe_status read_time(const char *value, double now_s, double *out, harpe_error *error) {
    bool is_relative = *value == '+';
    const char *digits = value + is_relative;
    double seconds;
    if (!harpe_parse_double(digits, strlen(digits), &seconds) || seconds < 0 ||
        seconds > HARPE_MOMENT_MAX_S)
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "--from: '%.64s' is no time: give seconds since 1970, or +SECONDS from now", value);
    *out = is_relative ? now_s + seconds : seconds;
    return HARPE_OK;
}

/* Makes the series of a request. `from_s` is added to its times. */
static json_t *series_of(const harpe_price_series *read, double from_s) {
    json_t *series = json_array();
    for (size_t i = 0; i < read->count; i++) {
        const harpe_fleet_file_price *price = &read->prices[i];
        json_array_append_new(series, json_pack("{s:f, s:f, s:f}", "at", from_s + price->from_s,
                                                "energy_per_kwh", price->energy_per_kwh,
                                                "carbon_g_per_kwh", price->carbon_g_per_kwh));
    }
    return series;
}

/* Checks that it is known at which time of day each price begins. */
static harpe_status check_times(const harpe_price_series *series, const fleet_value *values,
                                harpe_error *error) {
    bool has_from = values[FLEET_FROM].is_given;
    if (series->is_of_day && has_from)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--from cannot be given: these prices have times of day (at)");
    if (series->is_of_day || has_from || !values[FLEET_EVERY].is_given) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "with --every, prices with the column time_s need --from TIME, the moment of "
                      "their time 0; or use the column at");
}

static harpe_status add_series(json_t *body, const char *source, const fleet_value *values,
                               double from_s, harpe_error *error) {
    harpe_price_series series = {0};
    harpe_status status = read_prices(source, values[FLEET_FEED_CA_FILE].text, &series, error);
    if (status == HARPE_OK) status = check_times(&series, values, error);
    if (status == HARPE_OK &&
        json_object_set_new(body, "series", series_of(&series, series.is_of_day ? 0 : from_s)) != 0)
        status = harpe_fail_memory(error);
    harpe_price_series_free(&series);
    return status;
}

static harpe_status add_word(json_t *body, const char *what, const char *word,
                             const fleet_value *values, double from_s, harpe_error *error) {
    double watts;
    if (strcmp(what, SOURCE) == 0) return add_series(body, word, values, from_s, error);
    if (strcmp(what, "WATTS") != 0) return HARPE_OK;
    if (!harpe_parse_double(word, strlen(word), &watts) || !(watts >= 0 && watts <= 1e12))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "WATTS: '%.64s' is not a number from 0 to 1e12", word);
    json_object_set_new(body, "watts", json_real(watts));
    return HARPE_OK;
}

static harpe_status add_option(json_t *body, int option, const fleet_value *values, double from_s,
                               harpe_error *error) {
    harpe_flag_kind kind = flags[option].kind;
    json_t *value = NULL;
    if (!members[option]) return HARPE_OK;
    if (option == FLEET_FROM) {
        if (json_object_get(body, "series")) return HARPE_OK; /* its times count from there */
        value = json_real(from_s);
    } else if (kind == HARPE_FLAG_TEXT) {
        value = json_string(values[option].text);
        if (!value)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT, "--%s: is not UTF-8",
                              flags[option].name);
    } else {
        value = kind == HARPE_FLAG_SWITCH ? json_true() : json_real(values[option].number);
    }
    json_object_set_new(body, members[option], value);
    return HARPE_OK;
}

/* Makes the body of a request. `words` has as many words as the action takes. The caller frees it
 * with free(). */
static harpe_status make_body(const fleet_action *action, const fleet_value *values,
                              const char *const *words, double now_s, char **out,
                              harpe_error *error) {
    harpe_status status = HARPE_OK;
    json_t *body = json_object();
    double from_s = now_s;
    if (values[FLEET_FROM].is_given)
        status = read_time(values[FLEET_FROM].text, now_s, &from_s, error);
    for (int i = 0; i < WORDS_MAX && action->words[i] && status == HARPE_OK; i++)
        status = add_word(body, action->words[i], words[i], values, from_s, error);
    for (int i = 0; i < OPTION_COUNT && status == HARPE_OK; i++)
        if (values[i].is_given) status = add_option(body, i, values, from_s, error);
    if (status == HARPE_OK) {
        *out = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(15));
        if (!*out) status = harpe_fail_memory(error);
    }
    json_decref(body);
    return status;
}

/* ---- Flags ----------------------------------------------------------------------------------- */

static void choose_action(server_arguments *arguments, const struct argp_state *state) {
    const char *verb = arguments->given_count > 0 ? arguments->given[0] : NULL;
    const char *verbs[8] = {NULL};
    int count = 0;
    for (const fleet_action *one = fleet_actions; one->noun; one++) {
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
    int given = arguments->given_count - skipped, wanted = 0;
    while (wanted < WORDS_MAX && arguments->action->words[wanted])
        wanted++;
    arguments->words = arguments->given + skipped;
    if (given < wanted) harpe_flag_fail(state, "%s is missing", arguments->action->words[given]);
    if (given > wanted) harpe_flag_fail(state, "what is '%s'?", arguments->given[skipped + wanted]);
}

static void check_options(const server_arguments *arguments, const struct argp_state *state) {
    const fleet_action *action = arguments->action;
    const fleet_value *values = arguments->values;
    bool has_needed = action->needs == 0;
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (!values[i].is_given) continue;
        if (!(action->options & 1U << i))
            harpe_flag_fail(state, "--%s is not for %s%s%s", flags[i].name, action->noun,
                            action->verb ? " " : "", action->verb ? action->verb : "");
        has_needed = has_needed || action->needs & 1U << i;
    }
    const char *group = values[FLEET_GROUP].text;
    /* Only a job has a group already, which "" takes away. */
    if (values[FLEET_GROUP].is_given && !*group && strcmp(action->noun, "job") != 0)
        harpe_flag_fail(state, "--group has no name; the whole fleet is meant without --group");
    bool is_event = strcmp(action->noun, "event") == 0 && action->needs != 0;
    if (is_event && values[FLEET_WATTS].is_given == values[FLEET_SHARE].is_given)
        harpe_flag_fail(state, "give --watts or --share, and only one of them");
    if (is_event && !values[FLEET_FOR].is_given) harpe_flag_fail(state, "--for SECONDS is missing");
    if (values[FLEET_EVERY].is_given && arguments->json)
        harpe_flag_fail(state, "--every prints no answers, so --json cannot be given with it");
    for (int i = 0; i < OPTION_COUNT && !has_needed; i++)
        if (action->needs & 1U << i)
            harpe_flag_fail(state, "an option is missing, such as --%s", flags[i].name);
}

static void add_word_given(void *into, struct argp_state *state, const char *flag, char *text) {
    server_arguments *arguments = into;
    (void)flag;
    if (arguments->given_count == GIVEN_MAX) harpe_flag_fail(state, "what is '%s'?", text);
    arguments->given[arguments->given_count++] = text;
}

static const harpe_flag words[] = {{"ACTION", .read = add_word_given}, {0}};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags},
              {.flags = harpe_server_client_flags,
               .at = offsetof(server_arguments, client),
               .group = 5}},
    .words = words,
    .forms = "[ACTION [WORD...]]",
    .about = "Show or steer the fleet of a server (harpe serve).\v"
             "Actions:\n  status\n  budget [set WATTS | remove]\n  group [set NAME | remove "
             "NAME]\n  job [set ID]\n  load set NAME WATTS | load remove NAME\n  member remove "
             "NAME\n  event [add | cancel ID]\n  prices [set FILE or URL | remove]\n  audit\n\n"
             "See also: man harpe-fleet",
};

/* ---- The answer ------------------------------------------------------------------------------ */

static harpe_status show(const server_arguments *arguments, json_t *answer, int *exit_code,
                         harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (arguments->json)
        status = harpe_command_print_json(json_incref(answer), error);
    else
        harpe_fleet_print_answer(arguments->noun, arguments->action->method, answer);
    /* Only the answers about an event and a budget have this member. */
    bool is_missing = strcmp(arguments->action->method, "GET") != 0 &&
                      json_number_value(json_object_get(answer, "missing_w")) > 0;
    *exit_code = is_missing ? HARPE_EXIT_INFEASIBLE : HARPE_EXIT_OK;
    return status == HARPE_OK ? harpe_command_flush(error) : status;
}

/* ---- The request ----------------------------------------------------------------------------- */

/* Makes the query: the group of a budget that is removed, and the limit of the audit log. */
static void make_query(const server_arguments *arguments, harpe_text *query) {
    const fleet_value *values = arguments->values;
    bool is_delete = strcmp(arguments->action->method, "DELETE") == 0;
    if (is_delete && values[FLEET_GROUP].is_given) {
        harpe_text_printf(query, "?group=");
        harpe_url_append(query, values[FLEET_GROUP].text);
    }
    if (values[FLEET_LIMIT].is_given)
        harpe_text_printf(query, "?limit=%.0f", floor(values[FLEET_LIMIT].number));
}

enum { STEP_BODY, STEP_REQUEST };

/* `now_s`: the moment from which +SECONDS counts. `*step` receives the last step. */
static harpe_status ask(const server_arguments *arguments, harpe_server_client *client,
                        double now_s, int *step, json_t **answer, harpe_error *error) {
    const fleet_action *action = arguments->action;
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
        status = make_body(action, arguments->values, arguments->words, now_s, &body, error);
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

#define RETRY_S 60.0 /* the longest time after a failure */

/* What the log compares to tell whether a failure is new. Messages contain times and counts, which
 * differ between attempts. */
typedef struct attempts {
    bool has_worked; /* an attempt */
    bool has_failed; /* the last attempt */
    int step, code;  /* of the last failure; code: HTTP status or errno; 0: none */
    harpe_status status;
} attempts;

static void tell_success(attempts *before) {
    if (!before->has_worked || before->has_failed)
        harpe_command_say("harpe fleet",
                          before->has_worked ? "the prices are set again" : "the prices are set");
    before->has_worked = true;
    before->has_failed = false;
}

static void tell_failure(attempts *before, int step, const harpe_error *error) {
    char line[2 * HARPE_ERROR_MESSAGE_SIZE];
    if (!before->has_failed || before->step != step || before->status != error->status ||
        before->code != error->vendor_code) {
        (void)snprintf(line, sizeof line,
                       "%s; the server keeps the prices that it has, and this is tried again",
                       error->message);
        harpe_command_say("harpe fleet", line);
    }
    *before = (attempts){before->has_worked, true, step, error->vendor_code, error->status};
}

/* Sleeps until a signal comes or the time has passed. Signals are blocked between the check and the
 * sleep, so that none is missed. */
static void wait_for(double seconds) {
    sigset_t all, before;
    int64_t end_ns = harpe_clock_ns() + (int64_t)(seconds * 1e9);
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    for (int64_t left_ns = end_ns - harpe_clock_ns();
         left_ns > 0 && !harpe_terminal_progress_signal(); left_ns = end_ns - harpe_clock_ns()) {
        const struct timespec left = {left_ns / 1000000000, left_ns % 1000000000};
        (void)ppoll(NULL, 0, &left, &before);
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Asks until SIGINT, SIGTERM or SIGHUP comes, and then returns HARPE_OK. A service manager may run
 * the command: it stays in the foreground, and prints one line for each change of state. A refused
 * token ends it, and a wrong value if no attempt has succeeded before. */
static harpe_status keep_asking(const server_arguments *arguments, harpe_server_client *client,
                                harpe_error *error) {
    double every_s = arguments->values[FLEET_EVERY].number;
    double begun_s = (double)harpe_clock_wall_whole_s();
    attempts before = {.has_worked = false};
    while (!harpe_terminal_progress_signal()) {
        json_t *answer = NULL;
        int step = 0;
        harpe_status status = ask(arguments, client, begun_s, &step, &answer, error);
        json_decref(answer);
        if (harpe_terminal_progress_signal()) break;
        bool is_final = status == HARPE_PERMISSION_DENIED ||
                        (status == HARPE_INVALID_ARGUMENT && !before.has_worked);
        if (is_final) return status;
        if (status == HARPE_OK)
            tell_success(&before);
        else
            tell_failure(&before, step, error);
        wait_for(status == HARPE_OK ? every_s : fmin(every_s, RETRY_S));
    }
    return HARPE_OK;
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
    server_arguments arguments = {.noun = strrchr(argv[0], ' ') + 1,
                                  .client.server = harpe_server_client_default()};
    harpe_error error;
    harpe_server_client client = {0};
    int exit_code = HARPE_EXIT_OK;
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    choose_action(&arguments, &state);
    check_options(&arguments, &state);
    harpe_command_catch_signals();
    harpe_status status = harpe_server_client_open(&arguments.client, &client, &error);
    if (status == HARPE_OK && arguments.values[FLEET_EVERY].is_given)
        status = keep_asking(&arguments, &client, &error);
    else if (status == HARPE_OK)
        status = ask_once(&arguments, &client, &exit_code, &error);
    harpe_server_client_close(&client);
    return status == HARPE_OK ? exit_code : harpe_command_fail("fleet", &error);
}
