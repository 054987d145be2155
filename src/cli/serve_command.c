/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe serve`: collects settings from environment, file and flags, and runs the server of
 * src/server in the foreground. Log lines go to standard error, or to the file of log_file. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "pfo/settings.h"
#include "server/scheduler/scheduler_host.h"
#include "server/server.h"
#include "server/store/store_tools.h"

/* A setting that a flag gives. It is applied after the environment and the file. */
typedef struct given_setting {
    char name[64];
    const char *value;
    char flag[80];
} given_setting;

typedef struct serve_arguments {
    given_setting *given;
    size_t count, capacity;
    const char *config;
    bool print_settings;
    bool quiet;
} serve_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

static void give(serve_arguments *arguments, const struct argp_state *state, const char *name,
                 size_t name_length, const char *value, const char *flag) {
    given_setting *given = NULL;
    if (HARPE_ARRAY_RESERVE(arguments->given, arguments->capacity, arguments->count + 1))
        given = &arguments->given[arguments->count++];
    if (!given) harpe_flag_fail(state, "out of memory");
    *given = (given_setting){.value = value};
    snprintf(given->name, sizeof given->name, "%.*s", (int)name_length, name);
    snprintf(given->flag, sizeof given->flag, "%s", flag);
}

/* Reads "ADDR", "ADDR:PORT", "[ADDR6]:PORT" or a bare IPv6 address. */
static void give_listen(void *into, struct argp_state *state, const char *flag, char *text) {
    serve_arguments *arguments = into;
    char *colon = strrchr(text, ':');
    bool is_bracketed = *text == '[';
    if (is_bracketed) {
        char *end = strchr(text, ']');
        if (!end) harpe_flag_fail(state, "--listen: '%s' has no closing bracket", text);
        colon = end[1] == ':' ? end + 1 : NULL;
        *end = '\0';
        text++;
    } else if (colon && strchr(text, ':') != colon) {
        colon = NULL; /* several: an IPv6 address */
    }
    if (colon) {
        *colon = '\0';
        give(arguments, state, "port", 4, colon + 1, flag);
    }
    give(arguments, state, "listen", 6, text, flag);
}

/* Fails if the name of a scheduler is mistyped. A name that contains ':', '.' or '/' is the user's
 * own scheduler. */
static void check_scheduler(const struct argp_state *state, const char *text) {
    const char *names[64] = {NULL};
    if (strpbrk(text, ":./")) return;
    for (int i = 0; i < 63 && harpe_scheduler_name_at(i); i++) {
        names[i] = harpe_scheduler_name_at(i);
        if (strcmp(names[i], text) == 0) return;
    }
    const char *closest = harpe_closest_name(text, names);
    if (!closest) return; /* the server's error lists the schedulers */
    harpe_flag_fail(state, "--scheduler: there is no scheduler '%s'; did you mean '%s'?", text,
                    closest);
}

/* Gives the setting that has the name of the flag. */
static void give_setting(void *into, struct argp_state *state, const char *flag, char *text) {
    char setting[64];
    snprintf(setting, sizeof setting, "%s", flag + strlen("--"));
    for (char *c = setting; (c = strchr(c, '-'));)
        *c = '_';
    give(into, state, setting, strlen(setting), text ? text : "true", flag);
}

static void give_scheduler(void *into, struct argp_state *state, const char *flag, char *text) {
    check_scheduler(state, text);
    give_setting(into, state, flag, text);
}

static void give_no_dump(void *into, struct argp_state *state, const char *flag, char *text) {
    (void)text;
    give(into, state, "dump_data", 9, "false", flag);
}

/* Reads "NAME=VALUE". */
static void give_any(void *into, struct argp_state *state, const char *flag, char *text) {
    char name[80];
    const char *equals = strchr(text, '=');
    if (!equals) harpe_flag_fail(state, "--set: '%s' is not NAME=VALUE", text);
    int length = (int)(equals - text);
    int shown = harpe_settings_name_length(text); /* the rest may be a password */
    snprintf(name, sizeof name, "%s %.*s", flag, shown < length ? shown : length, text);
    give(into, state, text, (size_t)length, equals + 1, name);
}

static const harpe_flag flags[] = {
    {"port", 0, "N", "Port to listen on (7787; 0: any free port)", 1, .read = give_setting},
    {"listen", 0, "ADDR[:PORT]",
     "Address to listen on (127.0.0.1); others need --token-file or --insecure", 1,
     .read = give_listen},
    {"scheduler", 0, "NAME",
     "Perseus (the default without a solution_path), PointSolution (the default with one), "
     "PointSolution3D, AllMaxFrequency, HighestFrequency, InstructionProfiler, ./mine.so, "
     "python:module.Class or program:COMMAND",
     2, .read = give_scheduler},
    {"scheduler-args", 0, "JSON", "Its arguments, for example {\"solution_path\": \"plan.py\"}", 2,
     .read = give_setting},
    {"state-dir", 0, "DIR",
     "Keep jobs and dumps in DIR ($XDG_STATE_HOME/harpe or ~/.local/state/harpe; root: "
     "/var/lib/harpe)",
     3, .read = give_setting},
    {"store", 0, "WHERE",
     "SQLite file (harpe.db in the state directory), postgresql://..., or memory", 3,
     .read = give_setting},
    {"dump-dir", 0, "DIR",
     "Write ranks, schedules and results below DIR (default: none are written)", 3,
     .read = give_setting},
    {"no-dump", 0, NULL, "Do not write these files, even if a setting names DIR", 3,
     .read = give_no_dump},
    {"token-file", 0, "FILE", "File whose first line clients must send as bearer token", 4,
     .read = give_setting},
    {"tokens", 0, "FILE", "File of tokens with names, roles and groups (harpe fleet token)", 4,
     .read = give_setting},
    {"audit-log", 0, "FILE",
     "Append requests that steer to FILE (with --tokens: audit.log in the state directory)", 4,
     .read = give_setting},
    {"allowed-hosts", 0, "NAMES",
     "More host names that clients may use for a server without a token; .DOMAIN: all names below "
     "it",
     4, .read = give_setting},
    {"insecure", 0, NULL, "Serve every client that reaches the address, without a token", 4,
     .read = give_setting},
    {"tls-cert", 0, "FILE", "Certificate chain, PEM", 4, .read = give_setting},
    {"tls-key", 0, "FILE", "Its private key, PEM", 4, .read = give_setting},
    {"config", 0, "FILE",
     "Read NAME=value lines; flags override them. -FILE: the file may be missing", 5,
     HARPE_INTO(serve_arguments, config)},
    {"set", 0, "NAME=VALUE", "Any setting by name (see --print-settings)", 5, .read = give_any},
    {"print-settings", 0, NULL, "Print all settings and where they come from", 5,
     HARPE_INTO(serve_arguments, print_settings)},
    {"log-level", 0, "LEVEL", "debug, info, warning or error", 6, .read = give_setting},
    {"log-file", 0, "FILE", "Append the log to FILE; SIGHUP opens it again", 6,
     .read = give_setting},
    {"log-format", 0, "FORMAT", "text, or json: one object per line", 6, .read = give_setting},
    {"quiet", 'q', NULL, "Log errors only", 6, HARPE_INTO(serve_arguments, quiet)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .about = "The coordination server of the pipeline frequency optimizer: jobs and their ranks "
             "register, fetch their frequency schedules and report what they measured.\v"
             "Settings also come from the environment (HARPE_PFO_NAME).\n\n"
             "See also: man harpe-serve",
};

/* ---- Log ------------------------------------------------------------------------------------- */

typedef struct log_settings {
    harpe_log_level lowest;
    bool is_json;
} log_settings;

/* Prints a log line with a time in RFC 3339, in UTC, for programs that collect logs. */
static void print_json_line(harpe_log_level level, const char *line) {
    static const char *const names[] = {"debug", "info", "warning", "error"};
    char second[32], when[48];
    int64_t now_ms = harpe_clock_wall_ns() / 1000000;
    time_t now_s = now_ms / 1000;
    struct tm utc;
    gmtime_r(&now_s, &utc);
    strftime(second, sizeof second, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(when, sizeof when, "%s.%03dZ", second, (int)(now_ms % 1000));
    char *clean = strdup(line);
    if (!clean) return;
    harpe_clean_in_place(clean);
    json_t *object =
        json_pack("{s:s, s:s, s:s}", "time", when, "level", names[level], "message", clean);
    free(clean);
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    if (text) fprintf(stderr, "%s\n", text);
    free(text);
    json_decref(object);
}

/* Prints a log line with a single write. Any thread. */
static void print_line(void *user, harpe_log_level level, const char *line) {
    const log_settings *settings = user;
    if (level < settings->lowest) return;
    if (settings->is_json) {
        print_json_line(level, line);
        return;
    }
    char when[32];
    time_t now = harpe_clock_wall_whole_s();
    struct tm local;
    localtime_r(&now, &local);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &local);
    char before[64];
    (void)snprintf(before, sizeof before, "%s harpe serve%s", when,
                   level == HARPE_LOG_WARNING ? ": warning"
                   : level == HARPE_LOG_ERROR ? ": error"
                                              : "");
    harpe_command_say(before, line);
}

/* ---- Running --------------------------------------------------------------------------------- */

static harpe_status gather(const serve_arguments *arguments, harpe_settings *settings,
                           harpe_log log, harpe_error *error) {
    harpe_status status =
        harpe_settings_from_environment(settings, (const char *const *)environ, log, error);
    if (status == HARPE_OK && arguments->config)
        status = harpe_settings_from_config(settings, arguments->config, error);
    for (size_t i = 0; i < arguments->count && status == HARPE_OK; i++) {
        const given_setting *given = &arguments->given[i];
        status = harpe_settings_set(settings, given->name, given->value, HARPE_FROM_FLAG,
                                    given->flag, error);
    }
    if (status != HARPE_OK) return status;
    return harpe_settings_complete(settings, (const char *const *)environ, geteuid() == 0, error);
}

static harpe_status print_settings(const harpe_settings *settings, harpe_error *error) {
    char *text = harpe_settings_format(settings);
    if (!text) return harpe_fail_memory(error);
    fputs(text, stdout);
    free(text);
    return HARPE_OK;
}

static void print_start(const harpe_settings *settings, const char *line) {
    if (settings->log_is_json)
        print_json_line(HARPE_LOG_INFO, line);
    else
        harpe_command_say("harpe serve", line);
}

static void print_listening(const harpe_settings *settings, int port) {
    char line[PATH_MAX + 100];
    bool is_ipv6 = strchr(settings->listen, ':') != NULL;
    (void)snprintf(line, sizeof line, "listening on http%s://%s%.255s%s:%d",
                   *settings->tls_cert ? "s" : "", is_ipv6 ? "[" : "", settings->listen,
                   is_ipv6 ? "]" : "", port);
    print_start(settings, line);
    harpe_server_whom(settings, line, sizeof line);
    print_start(settings, line);
    if (!harpe_settings_use_state_dir(settings)) return;
    (void)snprintf(line, sizeof line, "state is kept in %.*s (--state-dir names another place)",
                   PATH_MAX, settings->state_dir);
    print_start(settings, line);
}

/* Returns true if the failure will happen again until a setting, or the file that a setting names,
 * is changed. The exit code then tells a service manager not to restart the server. A failure of
 * the network or of a disk may be temporary. */
static bool is_lasting(harpe_status status) {
    switch (status) {
    case HARPE_INVALID_ARGUMENT:
    case HARPE_INVALID_INPUT:
    case HARPE_NOT_FOUND:
    case HARPE_PERMISSION_DENIED:
    case HARPE_LIMIT_EXCEEDED:
    case HARPE_NOT_SUPPORTED:
    case HARPE_UNAVAILABLE: return true;
    default: return false;
    }
}

/* Exits at once, without exit handlers, because a part of the server is still running. */
static void leave(void) { _exit(EXIT_SUCCESS); }

static harpe_status serve(const harpe_settings *settings, harpe_log log, bool quiet,
                          bool *is_listening, harpe_error *error) {
    harpe_server *server = NULL;
    harpe_status status = harpe_server_new(settings, log, leave, &server, error);
    if (status == HARPE_OK) status = harpe_server_open_log(settings, error);
    if (status != HARPE_OK) {
        harpe_server_free(server);
        return status;
    }
    *is_listening = true;
    if (!quiet) print_listening(settings, harpe_server_port(server));
    status = harpe_server_run(server, error);
    harpe_server_free(server);
    return status;
}

int harpe_serve_command(int argc, char **argv) {
    serve_arguments arguments = {0};
    harpe_settings settings = {0};
    harpe_error error;
    bool is_listening = false;
    (void)harpe_command_line_read(&command_line, argc, argv, &arguments);
    log_settings lines = {HARPE_LOG_WARNING, false};
    harpe_log log = {print_line, &lines};
    harpe_status status = harpe_settings_init(&settings, &error);
    settings.show_store = harpe_store_address_shown;
    if (status == HARPE_OK) status = gather(&arguments, &settings, log, &error);
    if (status == HARPE_OK) {
        lines = (log_settings){arguments.quiet ? HARPE_LOG_ERROR : settings.log_level,
                               settings.log_is_json};
        if (arguments.print_settings) {
            status = print_settings(&settings, &error);
        } else {
            harpe_command_leave_signals();
            (void)umask(umask(0) | 0077); /* only the server's own user may read its files */
            status = harpe_settings_check(&settings, &error);
            if (status == HARPE_OK)
                status = serve(&settings, log, arguments.quiet, &is_listening, &error);
        }
    }
    free(arguments.given);
    if (status == HARPE_OK) {
        harpe_settings_free(&settings);
        return HARPE_EXIT_OK;
    }
    int code = HARPE_EXIT_FAILURE;
    if (settings.log_is_json)
        print_json_line(HARPE_LOG_ERROR, error.message);
    else
        code = harpe_command_fail("serve", &error);
    harpe_settings_free(&settings);
    return !is_listening && is_lasting(status) ? HARPE_EXIT_USAGE : code;
}
