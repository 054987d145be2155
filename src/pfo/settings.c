/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings, strict reading of one value, and the sources of values: the environment
 * and files of NAME=value lines. */
#include "pfo/settings.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"

typedef enum setting_type {
    TEXT,
    SWITCH,
    LEVEL,
    FORMAT,  /* a bool, which is true for "json" */
    INTEGER, /* int */
    LONG,    /* int64_t */
} setting_type;

typedef struct setting {
    const char *name;
    setting_type type;
    size_t offset;
    const char *initial;
    int64_t minimum, maximum;
    const char *help;
} setting;

#define AT(member) offsetof(harpe_settings, member)
#define DAY_S ((int64_t)86400)
#define GIB ((int64_t)1 << 30)

static const setting SETTINGS[] = {
    {"scheduler", TEXT, AT(scheduler), "Perseus", 0, 0,
     "built-in name, path ending in .so, python:module.Class or program:COMMAND; 3D: before it "
     "serves dp and tp"},
    {"scheduler_args", TEXT, AT(scheduler_args), "{}", 0, 0, "its arguments, a JSON object"},
    {"log_level", LEVEL, AT(log_level), "info", 0, 0, "debug, info, warning, error or critical"},
    {"dump_data", SWITCH, AT(dump_data), "false", 0, 0,
     "write ranks, schedules and results; true if dump_dir is set"},
    {"dump_dir", TEXT, AT(dump_dir), "", 0, 0,
     "below it a directory for each job; dump in state_dir"},
    {"max_dump_size", LONG, AT(max_dump_size_bytes), "1073741824", (int64_t)1 << 20,
     (int64_t)1 << 50, "bytes on disk of all dumps; the oldest files are deleted"},
    {"max_dump_time", LONG, AT(max_dump_time_s), "7776000", 60, 36500 * DAY_S,
     "s until a file of a dump is deleted"},
    {"max_job_idle_time", LONG, AT(max_job_idle_time_s), "604800", 1, 3650 * DAY_S,
     "s without a request from a job until it is evicted"},
    {"max_finished_jobs", LONG, AT(max_finished_jobs), "1000", 0, 10000,
     "final reports of evicted jobs that are kept; 0: none"},
    {"max_finished_job_time", LONG, AT(max_finished_job_time_s), "7776000", 60, 36500 * DAY_S,
     "s of running time of the server until a final report is deleted"},
    {"listen", TEXT, AT(listen), "127.0.0.1", 0, 0, "numeric address to listen on"},
    {"port", INTEGER, AT(port), "7787", 0, 65535, "0: any free one"},
    {"state_dir", TEXT, AT(state_dir), "", 0, 0,
     "directory of store and dump_dir where those are not set"},
    {"store", TEXT, AT(store), "", 0, 0,
     "SQLite file, postgresql://..., or memory (nothing survives); harpe.db in state_dir"},
    {"store_password_file", TEXT, AT(store_password_file), "", 0, 0,
     "its first line is the password for the PostgreSQL of store"},
    {"token_file", TEXT, AT(token_file), "", 0, 0, "its first line is the bearer token"},
    {"tokens", TEXT, AT(tokens), "", 0, 0,
     "file of tokens with names, roles and groups (harpe fleet token)"},
    {"audit_log", TEXT, AT(audit_log), "", 0, 0,
     "file to which requests that steer are appended; with tokens: audit.log in state_dir"},
    {"tls_cert", TEXT, AT(tls_cert), "", 0, 0, "certificate chain, PEM"},
    {"tls_key", TEXT, AT(tls_key), "", 0, 0, "its private key, PEM"},
    {"log_file", TEXT, AT(log_file), "", 0, 0,
     "file to which log lines are appended; standard error without it; SIGHUP opens it again"},
    {"allowed_hosts", TEXT, AT(allowed_hosts), "", 0, 0,
     "names by which clients and proxies call a server without a token; .DOMAIN: all below it"},
    {"insecure", SWITCH, AT(insecure), "false", 0, 0,
     "without a token, serve every client that reaches the address, including other users of this "
     "machine"},
    {"scheduler_timeout", LONG, AT(scheduler_timeout_s), "60", 1, DAY_S,
     "s for one answer of a scheduler program"},
    {"max_body", LONG, AT(max_body_bytes), "67108864", 1024, GIB, "bytes of a request's body"},
    {"max_header", LONG, AT(max_header_bytes), "16384", 1024, (int64_t)1 << 20,
     "bytes of a request's header"},
    {"max_jobs", LONG, AT(max_jobs), "10000", 1, 10000000, "jobs at a time"},
    {"max_ranks_per_job", LONG, AT(max_ranks_per_job), "65536", 1, 1 << 24, "ranks of one job"},
    {"max_connections", LONG, AT(max_connections), "65536", 16, 1 << 20,
     "connections at a time; the system may allow fewer"},
    {"request_timeout", LONG, AT(request_timeout_s), "30", 1, DAY_S, "s to send a whole request"},
    {"keep_alive_timeout", LONG, AT(keep_alive_timeout_s), "300", 1, DAY_S,
     "s without a request until a connection is closed"},
    {"worker_threads", INTEGER, AT(worker_threads), "0", 0, 1024,
     "0: one per processor, at least 2"},
    {"scheduler_threads", INTEGER, AT(scheduler_threads), "64", 1, 1024,
     "schedulers that run at a time; others wait"},
    {"work_deadline", LONG, AT(work_deadline_s), "30", 1, DAY_S,
     "s that decoding, a read or a dump may take until /healthz answers 503"},
    {"log_format", FORMAT, AT(log_is_json), "text", 0, 0,
     "text, or json: one object per line, with time, level and message"},
};
enum { SETTING_COUNT = sizeof SETTINGS / sizeof SETTINGS[0] };
_Static_assert((int)SETTING_COUNT <= (int)HARPE_SETTINGS_MAX, "origins has too few places");

static const char *const LEVELS[] = {"debug", "info", "warning", "error", "critical"};
static const char *const ORIGINS[] = {"default", "environment", "file", "flag"};

/* ---- Values ---------------------------------------------------------------------------------- */

static void *member(harpe_settings *settings, const setting *which) {
    return (char *)settings + which->offset;
}

static bool parse_switch(const char *value, bool *out) {
    static const char *const yes[] = {"true", "1", "yes", "on", "t", "y"};
    static const char *const no[] = {"false", "0", "no", "off", "f", "n"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(value, yes[i]) == 0) return *out = true, true;
        if (strcasecmp(value, no[i]) == 0) return *out = false, true;
    }
    return false;
}

static bool parse_level(const char *value, harpe_log_level *out) {
    for (int i = 0; i < (int)(sizeof LEVELS / sizeof LEVELS[0]); i++) {
        if (strcasecmp(value, LEVELS[i]) != 0) continue;
        *out = i < HARPE_LOG_ERROR ? (harpe_log_level)i : HARPE_LOG_ERROR;
        return true;
    }
    return false;
}

static bool parse_format(const char *value, bool *is_json) {
    if (strcasecmp(value, "text") != 0 && strcasecmp(value, "json") != 0) return false;
    *is_json = strcasecmp(value, "json") == 0;
    return true;
}

static harpe_status set_text(char **out, const char *value, const char *where, harpe_error *error) {
    for (const char *c = value; *c; c++) {
        if ((unsigned char)*c < ' ')
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "%s: control characters are not allowed in a setting", where);
    }
    char *copy = strdup(value);
    if (!copy) return harpe_fail_memory(error);
    free(*out);
    *out = copy;
    return HARPE_OK;
}

static harpe_status set_number(void *out, const setting *which, const char *value,
                               const char *where, harpe_error *error) {
    int64_t number;
    if (!harpe_parse_int(value, strlen(value), &number) || number < which->minimum ||
        number > which->maximum)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%s: '%.64s' is not a whole number from %lld to %lld", where, value,
                          (long long)which->minimum, (long long)which->maximum);
    if (which->type == INTEGER) *(int *)out = (int)number;
    if (which->type == LONG) *(int64_t *)out = number;
    return HARPE_OK;
}

static harpe_status set_value(harpe_settings *settings, const setting *which, const char *value,
                              const char *where, harpe_error *error) {
    void *out = member(settings, which);
    switch (which->type) {
    case TEXT: return set_text(out, value, where, error);
    case SWITCH:
        if (parse_switch(value, out)) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "%s: '%.64s' is neither true nor false",
                          where, value);
    case LEVEL:
        if (parse_level(value, out)) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%s: '%.64s' is none of debug, info, warning, error, critical", where,
                          value);
    case FORMAT:
        if (parse_format(value, out)) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "%s: '%.64s' is neither text nor json",
                          where, value);
    case INTEGER:
    case LONG: break;
    }
    return set_number(out, which, value, where, error);
}

/* ---- The settings ---------------------------------------------------------------------------- */

const char *harpe_settings_name_at(int index) {
    return index >= 0 && index < SETTING_COUNT ? SETTINGS[index].name : NULL;
}

/* Returns the number of the setting, or -1. */
static int number_of(const char *name) {
    for (int i = 0; i < SETTING_COUNT; i++)
        if (strcasecmp(SETTINGS[i].name, name) == 0) return i;
    return -1;
}

int harpe_settings_name_length(const char *name) {
    size_t length = strcspn(name, " \t:/?&@");
    return length < 64 ? (int)length : 64;
}

harpe_status harpe_settings_init(harpe_settings *settings, harpe_error *error) {
    harpe_settings fresh = {0};
    for (int i = 0; i < SETTING_COUNT; i++) {
        harpe_status status =
            set_value(&fresh, &SETTINGS[i], SETTINGS[i].initial, SETTINGS[i].name, error);
        if (status != HARPE_OK) return harpe_settings_free(&fresh), status;
    }
    *settings = fresh;
    return HARPE_OK;
}

void harpe_settings_free(harpe_settings *settings) {
    for (int i = 0; i < SETTING_COUNT; i++)
        if (SETTINGS[i].type == TEXT) free(*(char **)member(settings, &SETTINGS[i]));
    memset(settings, 0, sizeof *settings);
}

harpe_status harpe_settings_set(harpe_settings *settings, const char *name, const char *value,
                                harpe_settings_origin origin, const char *where,
                                harpe_error *error) {
    int number = number_of(name);
    if (number < 0)
        return harpe_fail(error, HARPE_NOT_FOUND, "%s: there is no setting '%.*s'", where,
                          harpe_settings_name_length(name), name);
    harpe_status status = set_value(settings, &SETTINGS[number], value, where, error);
    if (status == HARPE_OK) settings->origins[number] = origin;
    return status;
}

static harpe_status check_args(const harpe_settings *settings, harpe_error *error) {
    json_error_t problem;
    json_t *args = json_loads(settings->scheduler_args, JSON_REJECT_DUPLICATES, &problem);
    if (!args)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: not JSON (%s, at character %d): give an object such as "
                          "{\"solution_path\": \"plan.py\"}",
                          problem.text, problem.position);
    bool is_object = json_is_object(args);
    json_decref(args);
    if (is_object) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "scheduler_args: must be a JSON object such as {\"solution_path\": "
                      "\"plan.py\"}");
}

bool harpe_settings_on_loopback(const harpe_settings *settings) {
    return strncmp(settings->listen, "127.", 4) == 0 || strcmp(settings->listen, "::1") == 0;
}

bool harpe_settings_need_token(const harpe_settings *settings) {
    return *settings->token_file || *settings->tokens;
}

bool harpe_settings_own_user_only(const harpe_settings *settings) {
    return harpe_settings_on_loopback(settings) && !harpe_settings_need_token(settings) &&
           !settings->insecure;
}

harpe_status harpe_settings_check(const harpe_settings *settings, harpe_error *error) {
    if (!harpe_settings_on_loopback(settings) && !harpe_settings_need_token(settings) &&
        !settings->insecure)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "listen: %.64s can be reached by others: give --token-file, or "
                          "--insecure if everyone there may control your jobs",
                          settings->listen);
    if (!*settings->tls_cert != !*settings->tls_key)
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT, "tls_%s is set and tls_%s is not: TLS needs both",
            *settings->tls_cert ? "cert" : "key", *settings->tls_cert ? "key" : "cert");
    if (!*settings->scheduler)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "scheduler: must not be empty");
    if (harpe_settings_use_state_dir(settings) && !*settings->state_dir)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "state_dir: HOME and XDG_STATE_HOME name no directory for the server's "
                          "state: name one with --state-dir, or keep none with --store memory "
                          "--no-dump");
    if (settings->dump_data && !*settings->dump_dir)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "dump_dir: must not be empty while dump_data is true");
    return check_args(settings, error);
}

/* ---- Defaults that depend on others ---------------------------------------------------------- */

static bool has_default(const harpe_settings *settings, const char *name) {
    return settings->origins[number_of(name)] == HARPE_FROM_DEFAULT;
}

/* Returns true if a setting has its default or is a path below state_dir. A file of printed
 * settings contains such paths, so the origin of the value alone does not decide. */
static bool is_in_state_dir(const harpe_settings *settings, const char *name, const char *path) {
    size_t length = strlen(settings->state_dir);
    if (has_default(settings, name)) return true;
    return length > 0 && strncmp(path, settings->state_dir, length) == 0 && path[length] == '/';
}

bool harpe_settings_use_state_dir(const harpe_settings *settings) {
    return is_in_state_dir(settings, "store", settings->store) ||
           (*settings->audit_log && is_in_state_dir(settings, "audit_log", settings->audit_log)) ||
           (settings->dump_data && is_in_state_dir(settings, "dump_dir", settings->dump_dir));
}

/* Returns the variable's value if it is an absolute path, or NULL. */
static const char *path_from(const char *const *environment, const char *name) {
    size_t length = strlen(name);
    for (const char *const *variable = environment; *variable; variable++)
        if (strncmp(*variable, name, length) == 0 && (*variable)[length] == '=')
            return (*variable)[length + 1] == '/' ? *variable + length + 1 : NULL;
    return NULL;
}

/* Removes slashes at the end and appends `last`. */
static harpe_status set_path(char **out, const char *directory, size_t length, const char *last,
                             harpe_error *error) {
    harpe_text path = {0};
    while (length > 1 && directory[length - 1] == '/')
        length--;
    harpe_text_append(&path, directory, length);
    harpe_text_append(&path, last, strlen(last));
    char *copy = harpe_text_take(&path);
    if (!copy) return harpe_fail_memory(error);
    free(*out);
    *out = copy;
    return HARPE_OK;
}

static harpe_status find_state_dir(harpe_settings *settings, const char *const *environment,
                                   bool is_root, harpe_error *error) {
    char **out = &settings->state_dir;
    const char *service = path_from(environment, "STATE_DIRECTORY"); /* systemd separates several
                                                                      * directories with ':' */
    if (service) return set_path(out, service, strcspn(service, ":"), "", error);
    const char *state = path_from(environment, "XDG_STATE_HOME");
    if (state) return set_path(out, state, strlen(state), "/harpe", error);
    if (is_root) return set_path(out, "/var/lib/harpe", strlen("/var/lib/harpe"), "", error);
    const char *home = path_from(environment, "HOME");
    return home ? set_path(out, home, strlen(home), "/.local/state/harpe", error) : HARPE_OK;
}

static bool args_name_a_plan(const harpe_settings *settings) {
    json_t *args = json_loads(settings->scheduler_args, 0, NULL);
    bool is_named = json_object_get(args, "solution_path") != NULL;
    json_decref(args);
    return is_named;
}

harpe_status harpe_settings_complete(harpe_settings *settings, const char *const *environment,
                                     bool is_root, harpe_error *error) {
    harpe_status status = HARPE_OK;
    const char *directory = NULL;
    if (!*settings->state_dir) status = find_state_dir(settings, environment, is_root, error);
    if (status == HARPE_OK) directory = settings->state_dir;
    size_t length = directory ? strlen(directory) : 0;
    if (length > 0 && has_default(settings, "store"))
        status = set_path(&settings->store, directory, length, "/harpe.db", error);
    if (status == HARPE_OK && length > 0 && has_default(settings, "dump_dir"))
        status = set_path(&settings->dump_dir, directory, length, "/dump", error);
    /* Zeus's server dumps, and logs everything. */
    bool dumps = settings->follows_zeus || !has_default(settings, "dump_dir");
    if (dumps && has_default(settings, "dump_data")) settings->dump_data = true;
    if (settings->follows_zeus && has_default(settings, "log_level"))
        settings->log_level = HARPE_LOG_DEBUG;
    if (status == HARPE_OK && length > 0 && *settings->tokens && has_default(settings, "audit_log"))
        status = set_path(&settings->audit_log, directory, length, "/audit.log", error);
    if (status == HARPE_OK && has_default(settings, "scheduler") && args_name_a_plan(settings))
        status = set_text(&settings->scheduler, "PointSolution", "scheduler", error);
    return status;
}

/* ---- Printing -------------------------------------------------------------------------------- */

/* Appends `store`. A connection string may contain a password. If the function that masks the
 * password is not set, only the scheme is shown. */
static void append_store(harpe_text *text, const harpe_settings *settings) {
    const char *scheme = strstr(settings->store, "://");
    char *shown = settings->show_store ? settings->show_store(settings->store) : NULL;
    if (shown)
        harpe_text_printf(text, "%s", shown);
    else if (settings->show_store)
        text->failed = true;
    else if (scheme)
        harpe_text_printf(text, "%.*s***", (int)(scheme - settings->store) + 3, settings->store);
    else
        harpe_text_printf(text, "%s", settings->store);
    free(shown);
}

/* Appends the value to `text`, without quotes. */
static void append_value(harpe_text *text, const harpe_settings *settings, const setting *which) {
    const char *at = (const char *)settings + which->offset;
    switch (which->type) {
    case TEXT:
        if (strcmp(which->name, "store") == 0)
            append_store(text, settings);
        else
            harpe_text_printf(text, "%s", *(const char *const *)(const void *)at);
        return;
    case SWITCH: harpe_text_printf(text, "%s", *(const bool *)at ? "true" : "false"); return;
    case LEVEL:
        harpe_text_printf(text, "%s", LEVELS[*(const harpe_log_level *)(const void *)at]);
        return;
    case FORMAT: harpe_text_printf(text, "%s", *(const bool *)at ? "json" : "text"); return;
    case INTEGER: harpe_text_printf(text, "%d", *(const int *)(const void *)at); return;
    case LONG:
        harpe_text_printf(text, "%lld", (long long)*(const int64_t *)(const void *)at);
        return;
    }
}

static void append_quoted(harpe_text *text, const char *value) {
    if (*value && strcspn(value, " \t\"'\\#") == strlen(value)) {
        harpe_text_printf(text, "%s", value);
        return;
    }
    harpe_text_append(text, "\"", 1);
    for (const char *c = value; *c; c++) {
        if (*c == '"' || *c == '\\') harpe_text_append(text, "\\", 1);
        harpe_text_append(text, c, 1);
    }
    harpe_text_append(text, "\"", 1);
}

char *harpe_settings_format(const harpe_settings *settings) {
    harpe_text text = {0};
    for (int i = 0; i < SETTING_COUNT; i++) {
        harpe_text value = {0};
        append_value(&value, settings, &SETTINGS[i]);
        harpe_text_printf(&text, "# %s (%s)\n", SETTINGS[i].help, ORIGINS[settings->origins[i]]);
        for (const char *c = SETTINGS[i].name; *c; c++)
            harpe_text_printf(&text, "%c", *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
        harpe_text_append(&text, "=", 1);
        append_quoted(&text, value.data ? value.data : "");
        harpe_text_append(&text, "\n", 1);
        text.failed = text.failed || value.failed;
        harpe_text_free(&value);
    }
    return harpe_text_take(&text);
}

static json_t *json_value(const harpe_settings *settings, const setting *which) {
    const char *at = (const char *)settings + which->offset;
    switch (which->type) {
    case SWITCH: return json_boolean(*(const bool *)at);
    case INTEGER: return json_integer(*(const int *)(const void *)at);
    case LONG: return json_integer(*(const int64_t *)(const void *)at);
    case TEXT:
    case LEVEL:
    case FORMAT: break;
    }
    harpe_text value = {0};
    append_value(&value, settings, which);
    json_t *result = value.failed ? NULL : json_string(value.data ? value.data : "");
    /* JSON cannot contain bytes that are not UTF-8. */
    if (!result && !value.failed) result = json_string("?");
    harpe_text_free(&value);
    return result;
}

char *harpe_settings_format_json(const harpe_settings *settings) {
    json_t *object = json_object();
    bool failed = !object;
    for (int i = 0; i < SETTING_COUNT && !failed; i++)
        failed =
            json_object_set_new(object, SETTINGS[i].name, json_value(settings, &SETTINGS[i])) != 0;
    char *text = failed ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

/* ---- Sources of values ----------------------------------------------------------------------- */

enum {
    FILE_LIMIT_BYTES = 1 << 20,
    NAME_SIZE = 64,
    WHERE_SIZE = 512,
};

/* In the order of precedence: a later prefix overrides an earlier one. */
#define OUR_PREFIX "HARPE_PFO_"
static const char *const PREFIXES[] = {"PERSEUS_", "ZEUS_PFO_", OUR_PREFIX};
enum { PREFIX_COUNT = sizeof PREFIXES / sizeof PREFIXES[0] };

/* ---- Environment ----------------------------------------------------------------------------- */

static void warn_unknown(const char *variable, harpe_log log) {
    harpe_log_line(&log, HARPE_LOG_WARNING,
                   "environment: %.100s is not a setting of the server and is ignored (see harpe "
                   "serve --print-settings)",
                   variable);
}

/* Reads one variable if it has `prefix`. */
static harpe_status take_variable(harpe_settings *settings, const char *variable,
                                  const char *prefix, harpe_log log, harpe_error *error) {
    const char *equals = strchr(variable, '=');
    size_t prefix_length = strlen(prefix);
    if (!equals || strncasecmp(variable, prefix, prefix_length) != 0) return HARPE_OK;
    size_t length = (size_t)(equals - variable);
    if (length < prefix_length) return HARPE_OK;
    char whole[NAME_SIZE * 2];
    size_t kept = length < sizeof whole ? length : sizeof whole - 1;
    memcpy(whole, variable, kept);
    whole[kept] = '\0';
    const char *name = whole + prefix_length;
    if (kept < length || number_of(name) < 0) {
        warn_unknown(whole, log);
        return HARPE_OK;
    }
    settings->follows_zeus = settings->follows_zeus || strcmp(prefix, OUR_PREFIX) != 0;
    return harpe_settings_set(settings, name, equals + 1, HARPE_FROM_ENVIRONMENT, whole, error);
}

harpe_status harpe_settings_from_environment(harpe_settings *settings,
                                             const char *const *environment, harpe_log log,
                                             harpe_error *error) {
    for (int p = 0; p < PREFIX_COUNT; p++) {
        for (const char *const *variable = environment; *variable; variable++) {
            harpe_status status = take_variable(settings, *variable, PREFIXES[p], log, error);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static char *trim(char *text) {
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

/* Removes quotes in place. Returns false if the closing quote is missing or text follows it. In
 * double quotes, a backslash is removed and the character after it is kept. */
static bool unquote(char **value) {
    char quote = **value;
    if (quote != '"' && quote != '\'') return true;
    char *read = *value + 1;
    char *write = *value;
    for (; *read && *read != quote; read++) {
        if (*read == '\\' && quote == '"' && read[1]) read++;
        *write++ = *read;
    }
    bool is_whole = *read == quote && read[1] == '\0';
    *write = '\0';
    return is_whole;
}

static harpe_status take_line(harpe_settings *settings, char *line, const char *where,
                              harpe_error *error) {
    line = trim(line);
    if (!*line || *line == '#') return HARPE_OK;
    char *equals = strchr(line, '=');
    if (!equals) return harpe_fail(error, HARPE_INVALID_INPUT, "%s: expected NAME=value", where);
    *equals = '\0';
    const char *name = trim(line);
    char *value = trim(equals + 1);
    if (!unquote(&value))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: the quote that begins the value does not end it", where);
    if (number_of(name) < 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: there is no setting '%.*s' (see harpe serve --print-settings)",
                          where, harpe_settings_name_length(name), name);
    char place[WHERE_SIZE];
    snprintf(place, sizeof place, "%s: %s", where, name);
    harpe_status status = harpe_settings_set(settings, name, value, HARPE_FROM_FILE, place, error);
    if (status == HARPE_INVALID_ARGUMENT && error) error->status = HARPE_INVALID_INPUT;
    return status == HARPE_INVALID_ARGUMENT ? HARPE_INVALID_INPUT : status;
}

harpe_status harpe_settings_from_text(harpe_settings *settings, const char *text, size_t length,
                                      const char *name, harpe_error *error) {
    if (memchr(text, '\0', length))
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s: not a text file (it holds a NUL byte)",
                          name);
    char *copy = strndup(text, length);
    if (!copy) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    int line_number = 0;
    for (char *line = copy; line && status == HARPE_OK;) {
        char *end = strchr(line, '\n');
        if (end) *end = '\0';
        char where[WHERE_SIZE / 2];
        snprintf(where, sizeof where, "%.200s:%d", name, ++line_number);
        status = take_line(settings, line, where, error);
        line = end ? end + 1 : NULL;
    }
    free(copy);
    return status;
}

harpe_status harpe_settings_from_file(harpe_settings *settings, const char *path,
                                      harpe_error *error) {
    char *text;
    size_t length;
    harpe_status status = harpe_file_read_promptly(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_settings_from_text(settings, text, length, path, error);
    free(text);
    return status;
}

harpe_status harpe_settings_from_config(harpe_settings *settings, const char *path,
                                        harpe_error *error) {
    bool may_be_missing = *path == '-';
    harpe_status status = harpe_settings_from_file(settings, path + may_be_missing, error);
    return may_be_missing && status == HARPE_NOT_FOUND ? HARPE_OK : status;
}
