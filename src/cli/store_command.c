/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe store`: backs up, checks and restores the SQLite file in which a coordination server
 * keeps its jobs. This file reads flags and prints; server/store/store_tool.c does the work. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "pfo/settings.h"
#include "server/store/store_tools.h"

typedef enum store_action {
    ACTION_BACKUP,
    ACTION_CHECK,
    ACTION_RESTORE,
    ACTION_ACCEPT
} store_action;
static const char *const action_names[] = {"backup", "check", "restore", "accept", NULL};

typedef struct store_arguments {
    const char *store, *state_dir, *config;
    const char *file; /* after the action */
    store_action action;
    bool has_action, force, json, quiet;
} store_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

static const harpe_flag words[] = {
    {"ACTION", HARPE_INTO(store_arguments, action), .names = action_names,
     .given = offsetof(store_arguments, has_action)},
    {"FILE", HARPE_INTO(store_arguments, file)},
    {0},
};

static const harpe_flag flags[] = {
    {"store", 0, "FILE", "The store (default: that of harpe serve)", 1,
     HARPE_INTO(store_arguments, store)},
    {"state-dir", 0, "DIR", "The state directory of harpe serve", 1,
     HARPE_INTO(store_arguments, state_dir)},
    {"config", 0, "FILE", "The configuration file of harpe serve", 1,
     HARPE_INTO(store_arguments, config)},
    {"force", 0, NULL, "Replace a file that exists (backup)", 2,
     HARPE_INTO(store_arguments, force)},
    {"json", 'j', NULL, "Print JSON", 2, HARPE_INTO(store_arguments, json)},
    {"quiet", 'q', NULL, "Print only problems", 2, HARPE_INTO(store_arguments, quiet)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .words = words,
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
    const char *name = action_names[arguments->action];
    if (arguments->action == ACTION_BACKUP && !arguments->file)
        harpe_flag_fail(state, "backup needs the name of the file to write");
    if (arguments->action == ACTION_RESTORE && !arguments->file)
        harpe_flag_fail(state, "restore needs the name of a backup");
    if (arguments->action == ACTION_ACCEPT && arguments->file)
        harpe_flag_fail(state, "accept takes no file, got '%s'; --store names the store",
                        arguments->file);
    if (arguments->action == ACTION_CHECK && arguments->file && arguments->store)
        harpe_flag_fail(state, "check takes a file or --store, not both");
    if (arguments->force && arguments->action != ACTION_BACKUP)
        harpe_flag_fail(state, "--force is for backup, and this is %s", name);
}

/* ---- Which store ----------------------------------------------------------------------------- */

static harpe_status gather(const store_arguments *arguments, harpe_settings *settings,
                           harpe_error *error) {
    const harpe_log none = {0};
    harpe_status status =
        harpe_settings_from_environment(settings, (const char *const *)environ, none, error);
    if (status == HARPE_OK && arguments->config)
        status = harpe_settings_from_config(settings, arguments->config, error);
    if (status == HARPE_OK && arguments->state_dir)
        status = harpe_settings_set(settings, "state_dir", arguments->state_dir, HARPE_FROM_FLAG,
                                    "--state-dir", error);
    if (status == HARPE_OK && arguments->store)
        status = harpe_settings_set(settings, "store", arguments->store, HARPE_FROM_FLAG, "--store",
                                    error);
    if (status != HARPE_OK) return status;
    return harpe_settings_complete(settings, (const char *const *)environ, geteuid() == 0, error);
}

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
    if (status == HARPE_OK) status = gather(arguments, &settings, error);
    if (status == HARPE_OK) status = file_of(settings.store, path, error);
    harpe_settings_free(&settings);
    return status;
}

/* ---- Printing -------------------------------------------------------------------------------- */

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
    json_t *object =
        json_pack("{s:s, s:o, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "action",
                  action_names[arguments->action], "store", harpe_command_json_text(path), "in_use",
                  report->is_in_use, "ok", report->problems == 0, "jobs", (json_int_t)report->jobs,
                  "ranks", (json_int_t)report->ranks, "rounds", (json_int_t)report->rounds,
                  "results", (json_int_t)report->results, "commits", (json_int_t)report->commits,
                  "bytes", (json_int_t)report->bytes, "problems", list_problems(report));
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

/* ---- Actions --------------------------------------------------------------------------------- */

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

/* ---- The command ----------------------------------------------------------------------------- */

static harpe_status run(const store_arguments *arguments, harpe_error *error) {
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
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    check_usage(&arguments, &state);
    (void)umask(umask(0) | 0077);
    harpe_status status = run(&arguments, &error);
    return status != HARPE_OK ? harpe_command_fail("store", &error) : HARPE_EXIT_OK;
}
