/* SPDX-License-Identifier: Apache-2.0 */
/* The CSV log of windows: header, one flushed line per ended window, quoting, a full disk. */
#include "test.h"

#include <locale.h>
#include <signal.h>
#include <time.h>

#include "base/csv.h"
#include "base/file.h"
#include "fake_rapl.h"
#include "monitor/monitor.h"
#include "monitor/monitor_state.h"
#include "scripted_source.h"

SCRATCH_TEST(line_has_the_published_layout) {
    const char *path = scratch_path(s, "log.csv");
    int gpus[] = {0, 3};
    double energy_j[] = {1900.3329999999842, 0.5};
    harpe_window_measurement measurement = {
        .time_s = 9.991050186916254, .gpu_count = 2, .gpu_energy_j = energy_j};
    harpe_window_log *log = NULL;
    put_file(path, "an old log\n");
    assert_int_equal(harpe_window_log_open(path, gpus, 2, NULL, &log, NULL), HARPE_OK);
    assert_true(file_holds(path, "start_time,window_name,elapsed_time,gpu0_energy,gpu3_energy\n"));
    (void)setlocale(LC_ALL, "de_DE.UTF-8"); /* if such a locale is installed: decimal commas */
    assert_int_equal(harpe_window_log_write(log, 1700000000.25, "epoch", &measurement, NULL),
                     HARPE_OK);
    (void)setlocale(LC_ALL, "C");
    assert_true(file_holds(path, "start_time,window_name,elapsed_time,gpu0_energy,gpu3_energy\n"
                                 "1700000000.25,epoch,9.991050186916254,1900.3329999999842,0.5\n"));
    harpe_window_log_close(log);
}

SCRATCH_TEST(odd_names_read_back_as_they_were) {
    const char *path = scratch_path(s, "log.csv");
    const char *names[] = {"a,b", "say \"hi\"", "two\nlines", " space ",
                           "",    "plain name", "\xc3\xa9"};
    enum { COUNT = sizeof names / sizeof names[0] };
    harpe_window_measurement measurement = {.time_s = 1};
    harpe_window_log *log = NULL;
    assert_int_equal(harpe_window_log_open(path, NULL, 0, NULL, &log, NULL), HARPE_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(harpe_window_log_write(log, 1, names[i], &measurement, NULL), HARPE_OK);
    harpe_window_log_close(log);
    owned_array char *text = NULL;
    size_t length = 0;
    harpe_csv csv;
    bool has_record = false;
    assert_int_equal(harpe_file_read(path, 10000, &text, &length, NULL), HARPE_OK);
    harpe_csv_open(&csv, text, length, path);
    assert_int_equal(harpe_csv_next(&csv, &has_record, NULL), HARPE_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(harpe_csv_next(&csv, &has_record, NULL), HARPE_OK);
        assert_true(has_record);
        assert_int_equal(csv.field_count, 3);
        assert_int_equal(csv.fields[1].length, strlen(names[i]));
        assert_memory_equal(csv.fields[1].text, names[i], strlen(names[i]));
    }
    harpe_csv_close(&csv);
}

static harpe_monitor *logging_monitor(scripted *script, const harpe_monitor_options *options) {
    harpe_monitor *monitor = NULL;
    harpe_energy_source source = scripted_source(script);
    assert_int_equal(harpe_monitor_new_on(options, &source, &monitor, NULL), HARPE_OK);
    return monitor;
}

static size_t line_count(const char *path) {
    owned_array char *text = NULL;
    size_t length = 0;
    size_t lines = 0;
    assert_int_equal(harpe_file_read(path, 100000, &text, &length, NULL), HARPE_OK);
    for (size_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    return lines;
}

SCRATCH_TEST(every_ended_window_is_in_the_file_at_once) {
    const char *path = scratch_path(s, "log.csv");
    scripted script = {.count = 1};
    harpe_monitor_options options = {.log_path = path};
    owned_monitor monitor = logging_monitor(&script, &options);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
        assert_int_equal(harpe_monitor_begin(monitor, "cancelled", false, NULL), HARPE_OK);
        assert_int_equal(harpe_monitor_end(monitor, "cancelled", true, NULL, NULL), HARPE_OK);
        assert_int_equal(line_count(path), 1 + i);
        script.energy_mj[0] += 1000;
        assert_int_equal(harpe_monitor_peek(monitor, "a", NULL, NULL), HARPE_OK);
        assert_int_equal(harpe_monitor_end(monitor, "a", false, NULL, NULL), HARPE_OK);
        assert_int_equal(line_count(path), 2 + i);
    }
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
    script.fails[0] = HARPE_GPU_LOST;
    assert_int_equal(harpe_monitor_end(monitor, "a", false, NULL, NULL), HARPE_GPU_LOST);
    assert_int_equal(line_count(path), 4);
}

SCRATCH_TEST(start_time_is_unix_time) {
    const char *path = scratch_path(s, "log.csv");
    scripted script = {.count = 0};
    harpe_monitor_options options = {.log_path = path};
    harpe_monitor *monitor = logging_monitor(&script, &options);
    double before_s = (double)time(NULL) - 1;
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
    assert_int_equal(harpe_monitor_end(monitor, "a", false, NULL, NULL), HARPE_OK);
    harpe_monitor_free(monitor);
    double start_s = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "start_time,window_name,elapsed_time\n%lf,a,", &start_s), 1);
    fclose(file);
    assert_true(start_s >= before_s && start_s < before_s + 60);
}

SCRATCH_TEST(cpus_have_columns_where_they_are_measured) {
    fake_machine(s->root);
    const char *path = scratch_path(s, "log.csv");
    scripted script = {.count = 1};
    harpe_monitor_options options = {.with_cpu = true, .rapl_path = s->root, .log_path = path};
    owned_monitor monitor = logging_monitor(&script, &options);
    assert_true(file_holds(path, "start_time,window_name,elapsed_time,gpu0_energy,cpu0_energy,"
                                 "cpu1_energy,dram1_energy\n"));
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
    fake_counter(s->root, FAKE_DRAM_ZONE, 250000);
    assert_int_equal(harpe_monitor_end(monitor, "a", false, NULL, NULL), HARPE_OK);
    owned_array char *text = NULL;
    size_t length = 0;
    assert_int_equal(harpe_file_read(path, 10000, &text, &length, NULL), HARPE_OK);
    assert_non_null(strstr(text, ",a,0,0,0,0,0.25\n"));
}

static void count_line(void *user, harpe_log_level level, const char *line) {
    (void)line;
    *(int *)user += level == HARPE_LOG_ERROR;
}

TEST(full_disk_is_told_once_and_costs_no_measurement) {
    if (access("/dev/full", W_OK) != 0) skip_because("hardware: /dev/full");
    harpe_window_log *log = NULL;
    harpe_error error;
    assert_int_equal(harpe_window_log_open("/dev/full", NULL, 0, NULL, &log, &error),
                     HARPE_IO_ERROR);
    assert_null(log);
    assert_int_equal(harpe_window_log_open("/nonexistent/a", NULL, 0, NULL, &log, &error),
                     HARPE_NOT_FOUND);
    assert_non_null(strstr(error.message, "/nonexistent/a"));

    int errors = 0;
    int ends[2];
    char path[64];
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    scripted script = {.count = 0};
    harpe_monitor_options options = {.log_path = path, .log = {count_line, &errors}};
    owned_monitor monitor = logging_monitor(&script, &options);
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < 3; i++) {
        owned_measurement got = {.time_s = -1};
        assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
        assert_int_equal(harpe_monitor_end(monitor, "a", false, &got, NULL), HARPE_OK);
        assert_true(got.time_s >= 0);
    }
    assert_int_equal(errors, 1);
}

static int ignore_broken_pipes(void **state) {
    (void)state;
    return signal(SIGPIPE, SIG_IGN) == SIG_ERR;
}

int main(void) { return run_listed_tests_within(ignore_broken_pipes, NULL); }
