/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: the published defaults, their precedence, the refused values, and the messages. */
#include "test.h"

#include <jansson.h>

#include "pfo/settings.h"
#include "server/store/store_tools.h"

static int make(void **state) {
    harpe_settings *settings = calloc(1, sizeof *settings);
    assert_works(harpe_settings_init(settings, &failure));
    *state = settings;
    return 0;
}

static int drop(void **state) {
    harpe_settings_free(*state);
    free(*state);
    return 0;
}

static harpe_status set(harpe_settings *settings, const char *name, const char *value,
                        harpe_error *error) {
    return harpe_settings_set(settings, name, value, HARPE_FROM_FLAG, "--flag", error);
}

static harpe_status from_text(harpe_settings *settings, const char *text, harpe_error *error) {
    return harpe_settings_from_text(settings, text, strlen(text), "serve.conf", error);
}

static void complete(harpe_settings *settings, const char *const *environment, bool is_root) {
    assert_works(harpe_settings_complete(settings, environment, is_root, &failure));
}

#define FIXTURE_TEST(name) TEST_ON(name, harpe_settings *settings, make, drop)

FIXTURE_TEST(defaults_are_those_of_the_manual) {
    complete(settings, (const char *const[]){"HOME=/home/me", NULL}, false);
    assert_string_equal(settings->scheduler, "Perseus"); /* the published scheduler needs a plan */
    assert_string_equal(settings->scheduler_args, "{}");
    assert_int_equal(settings->log_level, HARPE_LOG_INFO);
    assert_false(settings->dump_data);
    assert_int_equal(settings->max_job_idle_time_s, 604800);
    assert_string_equal(settings->listen, "127.0.0.1");
    assert_int_equal(settings->port, 7787);
    assert_works(harpe_settings_check(settings, &failure));
}

TEST(variables_of_zeus_bring_its_defaults) {
    static const struct {
        const char *variable, *other;
        bool dumps, is_debug;
    } cases[] = {
        {"ZEUS_PFO_SCHEDULER=AllMaxFrequency", "A=b", true, true},
        {"perseus_max_job_idle_time=7", "A=b", true, true},
        {"HARPE_PFO_SCHEDULER=AllMaxFrequency", "ZEUS_PFO_NONE=1", false, false},
        {"ZEUS_PFO_DUMP_DATA=false", "HARPE_PFO_LOG_LEVEL=info", false, false},
        {"ZEUS_PFO_PORT=7", "HARPE_PFO_DUMP_DATA=false", false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const environment[] = {"HOME=/me", cases[i].variable, cases[i].other, NULL};
        AT_END(harpe_settings_free) harpe_settings settings;
        assert_works(harpe_settings_init(&settings, &failure));
        assert_works(
            harpe_settings_from_environment(&settings, environment, (harpe_log){0}, &failure));
        complete(&settings, environment, false);
        assert_int_equal(settings.dump_data, cases[i].dumps);
        assert_int_equal(settings.log_level == HARPE_LOG_DEBUG, cases[i].is_debug);
    }
}

FIXTURE_TEST(a_dump_directory_asks_for_dumps) {
    assert_int_equal(set(settings, "dump_dir", "/dumps", NULL), HARPE_OK);
    complete(settings, (const char *const[]){"HOME=/me", NULL}, false);
    assert_true(settings->dump_data);
    assert_int_equal(settings->log_level, HARPE_LOG_INFO);
    assert_int_equal(set(settings, "dump_data", "false", NULL), HARPE_OK);
    complete(settings, (const char *const[]){"HOME=/me", NULL}, false);
    assert_false(settings->dump_data);
}

FIXTURE_TEST(newer_prefixes_win_over_older_ones) {
    const char *environment[] = {"HARPE_PFO_PORT=3",
                                 "ZEUS_PFO_PORT=2",
                                 "PERSEUS_PORT=1",
                                 "perseus_dump_dir=/old",
                                 "zeus_pfo_LOG_level=Warning",
                                 "PATH=/bin",
                                 NULL};
    assert_works(harpe_settings_from_environment(settings, environment, (harpe_log){0}, &failure));
    assert_int_equal(settings->port, 3);
    assert_string_equal(settings->dump_dir, "/old");
    assert_int_equal(settings->log_level, HARPE_LOG_WARNING);
}

/* ---- The state directory --------------------------------------------------------------------- */

static void expect_state_in(const char *const *environment, bool is_root, const char *directory) {
    AT_END(harpe_settings_free) harpe_settings settings;
    char path[300];
    assert_works(harpe_settings_init(&settings, &failure));
    complete(&settings, environment, is_root);
    assert_string_equal(settings.state_dir, directory);
    (void)snprintf(path, sizeof path, "%s/harpe.db", directory);
    assert_string_equal(settings.store, path);
    (void)snprintf(path, sizeof path, "%s/dump", directory);
    assert_string_equal(settings.dump_dir, path);
    assert_true(harpe_settings_use_state_dir(&settings));
    assert_works(harpe_settings_check(&settings, &failure));
}

FIXTURE_TEST(state_is_kept_where_the_system_wants_it) {
    const char *const nothing[] = {NULL};
    const char *const home[] = {"HOME=/home/me", "PATH=/bin", NULL};
    const char *const xdg[] = {"HOME=/home/me", "XDG_STATE_HOME=/else/where/", NULL};
    const char *const relative[] = {"HOME=/home/me", "XDG_STATE_HOME=else", NULL};
    const char *const service[] = {"XDG_STATE_HOME=/else", "STATE_DIRECTORY=/srv/a:/srv/b", NULL};
    expect_state_in(home, false, "/home/me/.local/state/harpe");
    expect_state_in(home, true, "/var/lib/harpe");
    expect_state_in(nothing, true, "/var/lib/harpe");
    expect_state_in(xdg, false, "/else/where/harpe");
    expect_state_in(xdg, true, "/else/where/harpe");
    expect_state_in(relative, false, "/home/me/.local/state/harpe");
    expect_state_in(service, false, "/srv/a");
    expect_state_in(service, true, "/srv/a");
}

FIXTURE_TEST(what_is_set_stays_where_it_is) {
    const char *const environment[] = {"HOME=/home/me", "ZEUS_PFO_DUMP_DIR=/dumps", NULL};
    assert_int_equal(set(settings, "state_dir", "mine", NULL), HARPE_OK);
    assert_works(harpe_settings_from_environment(settings, environment, (harpe_log){0}, &failure));
    complete(settings, environment, true);
    assert_string_equal(settings->dump_dir, "/dumps");
    assert_string_equal(settings->store, "mine/harpe.db");
    assert_int_equal(set(settings, "store", "memory", NULL), HARPE_OK);
    assert_false(harpe_settings_use_state_dir(settings));
    assert_int_equal(set(settings, "store", "mine/jobs.db", NULL), HARPE_OK);
    assert_true(harpe_settings_use_state_dir(settings));
    assert_int_equal(set(settings, "store", "minefield/jobs.db", NULL), HARPE_OK);
    assert_false(harpe_settings_use_state_dir(settings));
}

FIXTURE_TEST(without_a_home_something_must_be_said) {
    complete(settings, (const char *const[]){"HOME=", NULL}, false);
    assert_refuses(harpe_settings_check(settings, &failure), HARPE_INVALID_ARGUMENT, "--state-dir");
    assert_int_equal(set(settings, "dump_data", "true", NULL), HARPE_OK);
    assert_int_equal(set(settings, "store", "memory", NULL), HARPE_OK);
    assert_int_equal(harpe_settings_check(settings, NULL), HARPE_INVALID_ARGUMENT);
    assert_int_equal(set(settings, "dump_data", "false", NULL), HARPE_OK);
    assert_works(harpe_settings_check(settings, &failure));
}

FIXTURE_TEST(a_plan_is_served_by_the_scheduler_that_serves_plans) {
    const char *const none[] = {NULL};
    assert_int_equal(set(settings, "scheduler_args", "{\"solution_path\": \"p.py\"}", NULL),
                     HARPE_OK);
    complete(settings, none, true);
    assert_string_equal(settings->scheduler, "PointSolution");
    assert_int_equal(set(settings, "scheduler", "PointSolution3D", NULL), HARPE_OK);
    complete(settings, none, true);
    assert_string_equal(settings->scheduler, "PointSolution3D");
}

/* ---- The environment ------------------------------------------------------------------------- */

static void count_line(void *user, harpe_log_level level, const char *line) {
    assert_int_equal(level, HARPE_LOG_WARNING);
    assert_non_null(strstr(line, "ZEUS_PFO_SERVER_URL"));
    ++*(int *)user;
}

FIXTURE_TEST(a_variable_that_is_no_setting_is_told_and_ignored) {
    const char *environment[] = {"ZEUS_PFO_SERVER_URL=http://x", NULL};
    int lines = 0;
    harpe_log log = {count_line, &lines};
    assert_works(harpe_settings_from_environment(settings, environment, log, &failure));
    assert_int_equal(lines, 1);
}

FIXTURE_TEST(a_bad_variable_is_named) {
    const char *environment[] = {"ZEUS_PFO_DUMP_DATA=perhaps", NULL};
    assert_refuses(harpe_settings_from_environment(settings, environment, (harpe_log){0}, &failure),
                   HARPE_INVALID_ARGUMENT, "ZEUS_PFO_DUMP_DATA: 'perhaps'");
}

FIXTURE_TEST(files_take_quotes_and_comments) {
    assert_int_equal(from_text(settings,
                               "# a comment\n\n  port = 8080 \n"
                               "SCHEDULER_ARGS='{\"a\": 1}'\r\n"
                               "dump_dir=\"with \\\"quotes\\\" and #\"",
                               NULL),
                     HARPE_OK);
    assert_int_equal(settings->port, 8080);
    assert_string_equal(settings->scheduler_args, "{\"a\": 1}");
    assert_string_equal(settings->dump_dir, "with \"quotes\" and #");
}

FIXTURE_TEST(bad_files_get_file_and_line) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"port=1\nwhatever\n", "serve.conf:2: expected NAME=value"},
        {"prot=1\n", "serve.conf:1: there is no setting 'prot'"},
        {"\n\nport=70000\n", "serve.conf:3: port: '70000' is not a whole number from 0 to 65535"},
        {"dump_dir=\"a\n", "serve.conf:1: the quote that begins the value does not end it"},
        {"dump_dir=\"a\"b\n", "serve.conf:1: the quote"},
        {"dump_dir=a\tb\n", "control characters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refuses(from_text(settings, cases[i].text, &failure), HARPE_INVALID_INPUT,
                       cases[i].message);
    }
}

FIXTURE_TEST(a_refused_value_leaves_the_old_one) {
    assert_int_equal(set(settings, "port", "99", NULL), HARPE_OK);
    assert_int_equal(set(settings, "port", "-1", NULL), HARPE_INVALID_ARGUMENT);
    assert_int_equal(set(settings, "port", "1.0", NULL), HARPE_INVALID_ARGUMENT);
    assert_int_equal(set(settings, "port", "", NULL), HARPE_INVALID_ARGUMENT);
    assert_int_equal(settings->port, 99);
    assert_int_equal(set(settings, "no_such", "1", NULL), HARPE_NOT_FOUND);
}

FIXTURE_TEST(what_only_all_together_can_tell) {
    assert_int_equal(set(settings, "listen", "0.0.0.0", NULL), HARPE_OK);
    assert_refuses(harpe_settings_check(settings, &failure), HARPE_INVALID_ARGUMENT,
                   "--token-file");
    assert_int_equal(set(settings, "insecure", "yes", NULL), HARPE_OK);
    complete(settings, (const char *const[]){"HOME=/home/me", NULL}, false);
    assert_works(harpe_settings_check(settings, &failure));
    assert_int_equal(set(settings, "tls_cert", "c.pem", NULL), HARPE_OK);
    assert_refuses(harpe_settings_check(settings, &failure), HARPE_INVALID_ARGUMENT, "tls_key");
    assert_int_equal(set(settings, "tls_key", "k.pem", NULL), HARPE_OK);
    static const char *const bad_args[] = {"", "[1]", "{\"a\":}", "{\"a\":1,\"a\":2}"};
    for (size_t i = 0; i < sizeof bad_args / sizeof bad_args[0]; i++) {
        assert_int_equal(set(settings, "scheduler_args", bad_args[i], NULL), HARPE_OK);
        assert_refuses(harpe_settings_check(settings, &failure), HARPE_INVALID_ARGUMENT,
                       "scheduler_args");
    }
}

FIXTURE_TEST(what_is_printed_reads_back) {
    assert_int_equal(set(settings, "scheduler_args", "{\"x\": \"a b\\\\\"}", NULL), HARPE_OK);
    assert_int_equal(set(settings, "dump_data", "off", NULL), HARPE_OK);
    assert_int_equal(set(settings, "log_level", "critical", NULL), HARPE_OK);
    owned_array char *text = harpe_settings_format(settings);
    assert_non_null(strstr(text, "(flag)\nDUMP_DATA=false\n"));
    AT_END(harpe_settings_free) harpe_settings again;
    assert_works(harpe_settings_init(&again, &failure));
    assert_int_equal(from_text(&again, text, NULL), HARPE_OK);
    owned_array char *first = harpe_settings_format_json(settings);
    owned_array char *second = harpe_settings_format_json(&again);
    assert_string_equal(first, second);
    json_t *object = json_loads(first, 0, NULL);
    assert_int_equal(json_object_size(object), 35);
    json_decref(object);
}

FIXTURE_TEST(a_log_is_text_or_json) {
    assert_false(settings->log_is_json);
    assert_int_equal(set(settings, "log_format", "JSON", NULL), HARPE_OK);
    assert_true(settings->log_is_json);
    assert_int_equal(set(settings, "log_format", "xml", NULL), HARPE_INVALID_ARGUMENT);
    assert_true(settings->log_is_json);
    owned_array char *printed = harpe_settings_format(settings);
    assert_non_null(strstr(printed, "LOG_FORMAT=json"));
}

FIXTURE_TEST(passwords_are_not_printed) {
    assert_int_equal(set(settings, "store", "postgresql://me:secret@db/harpe", NULL), HARPE_OK);
    char *text = harpe_settings_format(settings);
    assert_null(strstr(text, "secret"));
    assert_non_null(strstr(text, "STORE=postgresql://***\n"));
    free(text);
    settings->show_store = harpe_store_address_shown;
    text = harpe_settings_format(settings);
    assert_null(strstr(text, "secret"));
    assert_non_null(strstr(text, "STORE=postgresql://me:***@db/harpe"));
    free(text);
}

FIXTURE_TEST(every_setting_has_a_help_text) {
    char *text = harpe_settings_format(settings);
    assert_null(strstr(text, "#  ("));
    free(text);
    assert_null(harpe_settings_name_at(-1));
}
