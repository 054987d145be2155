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
#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "pfo/settings.h"
#include "pfo/settings_sources.h"
#include "server/scheduler/scheduler_host.h"
#include "server/server.h"
#include "server/store/address.h"

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

enum {
    FLAG_LISTEN = 256,
    FLAG_CONFIG,
    FLAG_SET,
    FLAG_NO_DUMP,
    FLAG_PRINT,
    FLAG_SETTING, /* from here on, flags that set the setting of the same name */
};

static const struct argp_option flags[] = {
    {"port", FLAG_SETTING + 0, "N", 0, "Port to listen on (7787; 0: any free port)", 1},
    {"listen", FLAG_LISTEN, "ADDR[:PORT]", 0,
     "Address to listen on (127.0.0.1); others need --token-file or --insecure", 1},
    {"scheduler", FLAG_SETTING + 1, "NAME", 0,
     "Perseus (the default without a solution_path), PointSolution (the default with one), "
     "PointSolution3D, AllMaxFrequency, HighestFrequency, InstructionProfiler, ./mine.so, "
     "python:module.Class or program:COMMAND",
     2},
    {"scheduler-args", FLAG_SETTING + 2, "JSON", 0,
     "Its arguments, for example {\"solution_path\": \"plan.py\"}", 2},
    {"state-dir", FLAG_SETTING + 11, "DIR", 0,
     "Keep jobs and dumps in DIR ($XDG_STATE_HOME/harpe or ~/.local/state/harpe; root: "
     "/var/lib/harpe)",
     3},
    {"store", FLAG_SETTING + 3, "WHERE", 0,
     "SQLite file (harpe.db in the state directory), postgresql://..., or memory", 3},
    {"dump-dir", FLAG_SETTING + 4, "DIR", 0,
     "Write ranks, schedules and results below DIR (default: none are written)", 3},
    {"no-dump", FLAG_NO_DUMP, NULL, 0, "Do not write these files, even if a setting names DIR", 3},
    {"token-file", FLAG_SETTING + 5, "FILE", 0,
     "File whose first line clients must send as bearer token", 4},
    {"tokens", FLAG_SETTING + 13, "FILE", 0,
     "File of tokens with names, roles and groups (harpe fleet token)", 4},
    {"audit-log", FLAG_SETTING + 14, "FILE", 0,
     "Append requests that steer to FILE (with --tokens: audit.log in the state directory)", 4},
    {"allowed-hosts", FLAG_SETTING + 12, "NAMES", 0,
     "More host names that clients may use for a server without a token; .DOMAIN: all names below "
     "it",
     4},
    {"insecure", FLAG_SETTING + 6, NULL, 0,
     "Serve every client that reaches the address, without a token", 4},
    {"tls-cert", FLAG_SETTING + 7, "FILE", 0, "Certificate chain, PEM", 4},
    {"tls-key", FLAG_SETTING + 8, "FILE", 0, "Its private key, PEM", 4},
    {"config", FLAG_CONFIG, "FILE", 0,
     "Read NAME=value lines; flags override them. -FILE: the file may be missing", 5},
    {"set", FLAG_SET, "NAME=VALUE", 0, "Any setting by name (see --print-settings)", 5},
    {"print-settings", FLAG_PRINT, NULL, 0, "Print all settings and where they come from", 5},
    {"log-level", FLAG_SETTING + 9, "LEVEL", 0, "debug, info, warning or error", 6},
    {"log-file", FLAG_SETTING + 15, "FILE", 0, "Append the log to FILE; SIGHUP opens it again", 6},
    {"log-format", FLAG_SETTING + 10, "FORMAT", 0, "text, or json: one object per line", 6},
    {"quiet", 'q', NULL, 0, "Log errors only", 6},
    {0},
};

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
static void give_listen(serve_arguments *arguments, const struct argp_state *state, char *text) {
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
        give(arguments, state, "port", 4, colon + 1, "--listen");
    }
    give(arguments, state, "listen", 6, text, "--listen");
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

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    serve_arguments *arguments = state->input;
    char flag[80], setting[64];
    const char *name = key >= FLAG_SETTING ? harpe_flag_name(flags, key) : NULL;
    if (name) {
        if (strcmp(name, "scheduler") == 0) check_scheduler(state, argument);
        snprintf(flag, sizeof flag, "--%s", name);
        snprintf(setting, sizeof setting, "%s", name);
        for (char *c = setting; (c = strchr(c, '-'));)
            *c = '_';
        give(arguments, state, setting, strlen(setting), argument ? argument : "true", flag);
        return 0;
    }
    switch (key) {
    case FLAG_LISTEN: give_listen(arguments, state, argument); return 0;
    case FLAG_CONFIG: arguments->config = argument; return 0;
    case FLAG_NO_DUMP: give(arguments, state, "dump_data", 9, "false", "--no-dump"); return 0;
    case FLAG_PRINT: arguments->print_settings = true; return 0;
    case 'q': arguments->quiet = true; return 0;
    case FLAG_SET: {
        const char *equals = strchr(argument, '=');
        if (!equals) harpe_flag_fail(state, "--set: '%s' is not NAME=VALUE", argument);
        size_t length = (size_t)(equals - argument);
        int shown = harpe_settings_name_length(argument); /* the rest may be a password */
        snprintf(flag, sizeof flag, "--set %.*s", shown < (int)length ? shown : (int)length,
                 argument);
        give(arguments, state, argument, length, equals + 1, flag);
        return 0;
    }
    case ARGP_KEY_ARG: harpe_flag_fail(state, "serve takes no arguments, got '%s'", argument);
    default: return ARGP_ERR_UNKNOWN;
    }
}

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
    const struct argp parser = {
        .options = flags,
        .parser = parse_flag,
        .doc = "The coordination server of the pipeline frequency optimizer: jobs and their ranks "
               "register, fetch their frequency schedules and report what they measured.\v"
               "Settings also come from the environment (HARPE_PFO_NAME).\n\n"
               "See also: man harpe-serve",
    };
    serve_arguments arguments = {0};
    harpe_settings settings = {0};
    harpe_error error;
    bool is_listening = false;
    argp_parse(&parser, argc, argv, 0, NULL, &arguments);
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
