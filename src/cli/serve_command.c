/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe serve`: collects settings from environment, file and flags, and runs the server of
 * src/server in the foreground. Log lines go to standard error, or to the file of log_file. `harpe
 * store`: backs up, checks and restores the SQLite file in which a server keeps its jobs;
 * server/store/store_tool.c does the work. */
#include <limits.h>
#include <sys/stat.h>
#include <time.h>

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

/* Where the settings of a command line come from, besides the environment. */
typedef struct setting_sources {
    given_setting *given; /* owned */
    size_t count, capacity;
    const char *config; /* file; NULL: none */
} setting_sources;

typedef struct serve_arguments {
    setting_sources sources;
    bool print_settings;
    bool quiet;
} serve_arguments;

/* ---- serve: flags ---------------------------------------------------------------------------- */

static void give(setting_sources *sources, const struct argp_state *state, const char *name,
                 const char *value, const char *flag) {
    given_setting *given = NULL;
    if (HARPE_ARRAY_RESERVE(sources->given, sources->capacity, sources->count + 1))
        given = &sources->given[sources->count++];
    if (!given) harpe_flag_fail(state, "out of memory");
    *given = (given_setting){.value = value};
    snprintf(given->name, sizeof given->name, "%s", name);
    snprintf(given->flag, sizeof given->flag, "%s", flag);
}

/* Reads "ADDR", "ADDR:PORT", "[ADDR6]:PORT" or a bare IPv6 address. */
static void give_listen(void *into, struct argp_state *state, const char *flag, char *text) {
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
        give(into, state, "port", colon + 1, flag);
    }
    give(into, state, "listen", text, flag);
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
    give(into, state, setting, text ? text : "true", flag);
}

static void give_scheduler(void *into, struct argp_state *state, const char *flag, char *text) {
    check_scheduler(state, text);
    give_setting(into, state, flag, text);
}

static void give_no_dump(void *into, struct argp_state *state, const char *flag, char *text) {
    (void)text;
    give(into, state, "dump_data", "false", flag);
}

/* Reads "NAME=VALUE". */
static void give_any(void *into, struct argp_state *state, const char *flag, char *text) {
    char name[80];
    char *equals = strchr(text, '=');
    if (!equals) harpe_flag_fail(state, "--set: '%s' is not NAME=VALUE", text);
    *equals = '\0';
    int shown = harpe_settings_name_length(text); /* the rest may be a password */
    snprintf(name, sizeof name, "%s %.*s", flag, shown, text);
    give(into, state, text, equals + 1, name);
}

static const harpe_flag serve_flags[] = {
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
     HARPE_INTO(serve_arguments, sources.config)},
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

static const harpe_command_line serve_line = {
    .parts = {{.flags = serve_flags}},
    .about = "The coordination server of the pipeline frequency optimizer: jobs and their ranks "
             "register, fetch their frequency schedules and report what they measured.\v"
             "Settings also come from the environment (HARPE_PFO_NAME).\n\n"
             "See also: man harpe-serve",
};

/* ---- serve: log ------------------------------------------------------------------------------ */

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

/* ---- Settings -------------------------------------------------------------------------------- */

static harpe_status gather(const setting_sources *sources, harpe_settings *settings, harpe_log log,
                           harpe_error *error) {
    harpe_status status =
        harpe_settings_from_environment(settings, (const char *const *)environ, log, error);
    if (status == HARPE_OK && sources->config)
        status = harpe_settings_from_config(settings, sources->config, error);
    for (size_t i = 0; i < sources->count && status == HARPE_OK; i++) {
        const given_setting *given = &sources->given[i];
        status = harpe_settings_set(settings, given->name, given->value, HARPE_FROM_FLAG,
                                    given->flag, error);
    }
    if (status != HARPE_OK) return status;
    return harpe_settings_complete(settings, (const char *const *)environ, geteuid() == 0, error);
}

/* ---- serve: running -------------------------------------------------------------------------- */

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
    return status == HARPE_INVALID_ARGUMENT || status == HARPE_INVALID_INPUT ||
           status == HARPE_NOT_FOUND || status == HARPE_PERMISSION_DENIED ||
           status == HARPE_LIMIT_EXCEEDED || status == HARPE_NOT_SUPPORTED ||
           status == HARPE_UNAVAILABLE;
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
    (void)harpe_command_line_read(&serve_line, argc, argv, &arguments);
    log_settings lines = {HARPE_LOG_WARNING, false};
    harpe_log log = {print_line, &lines};
    harpe_status status = harpe_settings_init(&settings, &error);
    settings.show_store = harpe_store_address_shown;
    if (status == HARPE_OK) status = gather(&arguments.sources, &settings, log, &error);
    if (status == HARPE_OK) {
        lines = (log_settings){arguments.quiet ? HARPE_LOG_ERROR : settings.log_level,
                               settings.log_is_json};
        if (arguments.print_settings) {
            char *text = harpe_settings_format(&settings);
            if (text) fputs(text, stdout);
            if (!text) status = harpe_fail_memory(&error);
            free(text);
        } else {
            harpe_command_leave_signals();
            (void)umask(umask(0) | 0077); /* only the server's own user may read its files */
            status = harpe_settings_check(&settings, &error);
            if (status == HARPE_OK)
                status = serve(&settings, log, arguments.quiet, &is_listening, &error);
        }
    }
    free(arguments.sources.given);
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

typedef enum store_action {
    ACTION_BACKUP,
    ACTION_CHECK,
    ACTION_RESTORE,
    ACTION_ACCEPT
} store_action;
static const char *const store_actions[] = {"backup", "check", "restore", "accept", NULL};

typedef struct store_arguments {
    setting_sources sources;
    const char *file; /* after the action */
    store_action action;
    bool has_action, has_store, force, json, quiet;
} store_arguments;

/* ---- store: flags ---------------------------------------------------------------------------- */

static const harpe_flag store_words[] = {
    {"ACTION", HARPE_INTO(store_arguments, action), .names = store_actions,
     .given = offsetof(store_arguments, has_action)},
    {"FILE", HARPE_INTO(store_arguments, file)},
    {0},
};

static const harpe_flag store_flags[] = {
    {"store", 0, "FILE", "The store (default: that of harpe serve)", 1, .read = give_setting,
     .given = offsetof(store_arguments, has_store)},
    {"state-dir", 0, "DIR", "The state directory of harpe serve", 1, .read = give_setting},
    {"config", 0, "FILE", "The configuration file of harpe serve", 1,
     HARPE_INTO(store_arguments, sources.config)},
    {"force", 0, NULL, "Replace a file that exists (backup)", 2,
     HARPE_INTO(store_arguments, force)},
    {"json", 'j', NULL, "Print JSON", 2, HARPE_INTO(store_arguments, json)},
    {"quiet", 'q', NULL, "Print only problems", 2, HARPE_INTO(store_arguments, quiet)},
    {0},
};

static const harpe_command_line store_line = {
    .parts = {{.flags = store_flags}},
    .words = store_words,
    .forms = "backup FILE\ncheck [FILE]\nrestore FILE\naccept",
    .about = "Back up, check or restore the SQLite file in which a coordination server (harpe "
             "serve) keeps its jobs. backup and check also work while the server runs. restore "
             "puts a backup in place of the store. accept lets the server continue with a store "
             "whose newest commits are missing.\vExample:\n"
             "  harpe store backup harpe-backup.db\n\nSee also: man harpe-store",
};

static void check_usage(const store_arguments *arguments, const struct argp_state *state) {
    if (!arguments->has_action)
        harpe_flag_fail(state, "an action is missing: backup, check, restore or accept");
    const char *name = store_actions[arguments->action];
    if (arguments->action == ACTION_BACKUP && !arguments->file)
        harpe_flag_fail(state, "backup needs the name of the file to write");
    if (arguments->action == ACTION_RESTORE && !arguments->file)
        harpe_flag_fail(state, "restore needs the name of a backup");
    if (arguments->action == ACTION_ACCEPT && arguments->file)
        harpe_flag_fail(state, "accept takes no file, got '%s'; --store names the store",
                        arguments->file);
    if (arguments->action == ACTION_CHECK && arguments->file && arguments->has_store)
        harpe_flag_fail(state, "check takes a file or --store, not both");
    if (arguments->force && arguments->action != ACTION_BACKUP)
        harpe_flag_fail(state, "--force is for backup, and this is %s", name);
}

/* ---- store: which file ----------------------------------------------------------------------- */

/* Finds the file that a value of the setting `store` names. Only an SQLite store has a file. */
static harpe_status file_of(const char *store, char **path, harpe_error *error) {
    if (strncmp(store, "sqlite:", 7) == 0)
        store += 7;
    else if (strcmp(store, "memory") == 0)
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "the store is in the server's memory: there is nothing to save");
    else if (harpe_store_is_postgres(store) || strstr(store, "://"))
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "harpe store is for SQLite files, and this store is in PostgreSQL: use "
                          "pg_dump --schema=harpe and pg_restore");
    if (!*store) return harpe_fail(error, HARPE_INVALID_ARGUMENT, "the store's name is empty");
    *path = strdup(store);
    return *path ? HARPE_OK : harpe_fail_memory(error);
}

static harpe_status find_store(const store_arguments *arguments, char **path, harpe_error *error) {
    harpe_settings settings = {0};
    if (arguments->action == ACTION_CHECK && arguments->file)
        return file_of(arguments->file, path, error);
    harpe_status status = harpe_settings_init(&settings, error);
    if (status == HARPE_OK) status = gather(&arguments->sources, &settings, (harpe_log){0}, error);
    if (status == HARPE_OK) status = file_of(settings.store, path, error);
    harpe_settings_free(&settings);
    return status;
}

/* ---- store: printing ------------------------------------------------------------------------- */

static json_t *list_problems(const harpe_store_report *report) {
    json_t *list = json_array();
    for (const char *line = report->details.data; line && *line;) {
        size_t length = strcspn(line, "\n");
        char *one = strndup(line, length);
        if (one) (void)json_array_append_new(list, harpe_command_json_text(one));
        free(one);
        line += length + (line[length] == '\n');
    }
    return list;
}

static harpe_status print_json(const store_arguments *arguments, const char *path,
                               const harpe_store_report *report, const char *replaced,
                               harpe_error *error) {
    json_t *object = json_pack(
        "{s:s, s:o, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "action",
        store_actions[arguments->action], "store", harpe_command_json_text(path), "in_use",
        report->is_in_use, "ok", report->problems == 0, "jobs", (json_int_t)report->jobs, "ranks",
        (json_int_t)report->ranks, "rounds", (json_int_t)report->rounds, "results",
        (json_int_t)report->results, "commits", (json_int_t)report->commits, "bytes",
        (json_int_t)report->bytes, "problems", list_problems(report));
    if (object && arguments->file && arguments->action != ACTION_CHECK)
        (void)json_object_set_new(object, "backup", harpe_command_json_text(arguments->file));
    if (object && replaced)
        (void)json_object_set_new(object, "replaced", harpe_command_json_text(replaced));
    return harpe_command_print_json(object, error);
}

static void print_contents(const harpe_store_report *report) {
    printf("%lld jobs, %lld rounds, %lld ranks, %lld results, %lld bytes", (long long)report->jobs,
           (long long)report->rounds, (long long)report->ranks, (long long)report->results,
           (long long)report->bytes);
}

/* ---- store: actions -------------------------------------------------------------------------- */

static harpe_status backup(const store_arguments *arguments, const char *path,
                           harpe_store_report *report, harpe_error *error) {
    harpe_status status =
        harpe_store_backup(path, arguments->file, arguments->force, report, error);
    if (status != HARPE_OK) return status;
    if (arguments->json) return print_json(arguments, path, report, NULL, error);
    if (arguments->quiet) return HARPE_OK;
    printf("saved %s to %s: ", path, arguments->file);
    print_contents(report);
    printf("%s\n", report->is_in_use ? "; the server was running" : "");
    return HARPE_OK;
}

static harpe_status check(const store_arguments *arguments, const char *path,
                          harpe_store_report *report, harpe_error *error) {
    harpe_status status = harpe_store_examine(path, report, error);
    if (status != HARPE_OK) return status;
    if (arguments->json) {
        status = print_json(arguments, path, report, NULL, error);
    } else if (report->problems > 0) {
        if (report->details.data) fputs(report->details.data, stdout);
    } else if (!arguments->quiet) {
        printf("%s is sound: ", path);
        print_contents(report);
        printf("%s\n", report->is_in_use ? "; a server has it open" : "");
    }
    if (status != HARPE_OK || report->problems == 0) return status;
    return harpe_fail(error, HARPE_INVALID_INPUT, "%.600s: %zu problem%s", path, report->problems,
                      report->problems == 1 ? "" : "s");
}

static harpe_status restore(const store_arguments *arguments, const char *path,
                            harpe_store_report *report, harpe_error *error) {
    harpe_store_name replaced;
    harpe_status status = harpe_store_restore(path, arguments->file, &replaced, report, error);
    bool was_there = status == HARPE_OK && *replaced.text;
    if (status == HARPE_OK && arguments->json) {
        status = print_json(arguments, path, report, was_there ? replaced.text : NULL, error);
    } else if (status == HARPE_OK && !arguments->quiet) {
        printf("restored %s from %s: ", path, arguments->file);
        print_contents(report);
        printf("\n");
        if (was_there) printf("the old store is kept as %s\n", replaced.text);
    }
    return status;
}

static harpe_status accept_loss(const store_arguments *arguments, const char *path,
                                harpe_error *error) {
    harpe_store_name kept;
    int64_t commits, missing;
    harpe_status status = harpe_store_accept(path, &kept, &commits, &missing, error);
    if (status == HARPE_OK && arguments->json) {
        json_t *object =
            json_pack("{s:s, s:o, s:I, s:o, s:o}", "action", "accept", "store",
                      harpe_command_json_text(path), "commits", (json_int_t)commits, "missing",
                      missing < 0 ? json_null() : json_integer(missing), "kept",
                      *kept.text ? harpe_command_json_text(kept.text) : json_null());
        status = harpe_command_print_json(object, error);
    } else if (status == HARPE_OK && !arguments->quiet) {
        if (missing == 0)
            printf("%s: no commit is missing, nothing was changed\n", path);
        else if (missing > 0)
            printf("%s: the next server continues with %lld commits, without the last %lld\n", path,
                   (long long)commits, (long long)missing);
        else
            printf("%s: the next server continues with %lld commits\n", path, (long long)commits);
        if (*kept.text) printf("the log and the record of commits are kept as %s*\n", kept.text);
    }
    return status;
}

/* ---- store: the command ---------------------------------------------------------------------- */

static harpe_status run_store(const store_arguments *arguments, harpe_error *error) {
    char *path = NULL;
    harpe_store_report report = {0};
    harpe_status status = find_store(arguments, &path, error);
    if (status != HARPE_OK) return status;
    switch (arguments->action) {
    case ACTION_BACKUP: status = backup(arguments, path, &report, error); break;
    case ACTION_CHECK: status = check(arguments, path, &report, error); break;
    case ACTION_RESTORE: status = restore(arguments, path, &report, error); break;
    case ACTION_ACCEPT: status = accept_loss(arguments, path, error); break;
    }
    harpe_store_report_free(&report);
    free(path);
    return status;
}

int harpe_store_command(int argc, char **argv) {
    store_arguments arguments = {0};
    harpe_error error;
    struct argp_state state = harpe_command_line_read(&store_line, argc, argv, &arguments);
    check_usage(&arguments, &state);
    (void)umask(umask(0) | 0077);
    harpe_status status = run_store(&arguments, &error);
    free(arguments.sources.given);
    return status != HARPE_OK ? harpe_command_fail("store", &error) : HARPE_EXIT_OK;
}
