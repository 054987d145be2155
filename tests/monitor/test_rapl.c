/* SPDX-License-Identifier: Apache-2.0 */
/* CPU energy from a powercap tree that the test creates: which zones count as packages, wrapping
 * counters, and unreadable files. */
#include "test.h"

#include <math.h>
#include <sys/wait.h>

#include "fake_rapl.h"
#include "monitor/monitor.h"
#include "scripted_source.h"

static harpe_rapl *open_rapl(const char *root) {
    harpe_rapl *rapl = NULL;
    harpe_error error = {0};
    if (harpe_rapl_open(root, &rapl, &error) != HARPE_OK) fail_msg("%s", error.message);
    return rapl;
}

SCRATCH_TEST(packages_are_found_and_psys_is_none) {
    fake_machine(s->root);
    harpe_rapl *rapl = open_rapl(s->root);
    assert_int_equal(harpe_rapl_package_count(rapl), 2);
    assert_string_equal(harpe_rapl_package_name(rapl, 0), "package-0");
    assert_string_equal(harpe_rapl_package_name(rapl, 1), "package-1");
    assert_false(harpe_rapl_has_dram(rapl, 0));
    assert_true(harpe_rapl_has_dram(rapl, 1));
    harpe_rapl_close(rapl);
}

SCRATCH_TEST(energy_is_counted_since_open) {
    fake_machine(s->root);
    fake_counter(s->root, "intel-rapl:0", 5000000);
    harpe_rapl *rapl = open_rapl(s->root);
    fake_counter(s->root, "intel-rapl:0", 5000900);
    fake_counter(s->root, FAKE_DRAM_ZONE, 77);
    harpe_rapl_reading reading;
    assert_int_equal(harpe_rapl_read(rapl, &reading, NULL), HARPE_OK);
    assert_int_equal(reading.package_uj[0], 900);
    assert_int_equal(reading.package_uj[1], 0);
    assert_int_equal(reading.dram_uj[1], 77);
    harpe_rapl_close(rapl);
}

SCRATCH_TEST(counter_wraps_at_its_range) {
    const uint64_t range_uj = 1000000; /* so small that it can wrap in no time */
    fake_zone(s->root, "intel-rapl:0", "package-0", range_uj);
    fake_counter(s->root, "intel-rapl:0", range_uj - 100);
    harpe_rapl *rapl = open_rapl(s->root);
    harpe_rapl_reading reading;
    uint64_t expected_uj = 150;
    for (int i = 0; i < 3; i++) { /* also more often than once */
        fake_counter(s->root, "intel-rapl:0", 50);
        assert_int_equal(harpe_rapl_read(rapl, &reading, NULL), HARPE_OK);
        assert_int_equal(reading.package_uj[0], expected_uj);
        fake_counter(s->root, "intel-rapl:0", range_uj - 100);
        assert_int_equal(harpe_rapl_read(rapl, &reading, NULL), HARPE_OK);
        expected_uj += range_uj;
    }
    assert_int_equal(reading.package_restarts[0], 0);
    harpe_rapl_close(rapl);
}

/* The counters of a package and of DRAM: a wrap of 7.6 J; then what cannot be. */
SCRATCH_TEST(wrap_or_jump_that_is_too_large_is_a_restart) {
    const struct {
        uint64_t from_uj, to_uj, moved_uj;
    } moves[] = {
        {FAKE_RANGE_UJ - 2000000, 5610000, 7610000}, /* a true wrap */
        {1000000000, 1007610000, 7610000},
        {1000000000, 999999000, 0},  /* a step back of 1 mJ */
        {40000000000, 5000000, 0},   /* reset, by suspend or a driver */
        {1000000000, 6000000000, 0}, /* a jump of 5 kJ */
        {1000000000, FAKE_RANGE_UJ - 1, 0},
        {50, FAKE_RANGE_UJ + 900000000, 0},
    };
    fake_machine(s->root);
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        harpe_rapl_reading reading;
        fake_counter(s->root, "intel-rapl:0", moves[i].from_uj);
        harpe_rapl *rapl = open_rapl(s->root);
        fake_counter(s->root, "intel-rapl:0", moves[i].to_uj);
        assert_int_equal(harpe_rapl_read(rapl, &reading, NULL), HARPE_OK);
        assert_int_equal(reading.package_uj[0], moves[i].moved_uj);
        assert_int_equal(reading.package_restarts[0], moves[i].moved_uj == 0);
        fake_counter(s->root, FAKE_DRAM_ZONE, 3000000000);
        assert_int_equal(harpe_rapl_read(rapl, &reading, NULL), HARPE_OK);
        assert_int_equal(reading.dram_uj[1], 0);
        assert_int_equal(reading.dram_restarts[1], 1);
        fake_counter(s->root, FAKE_DRAM_ZONE, 0);
        harpe_rapl_close(rapl);
    }
}

/* ---- Dies ------------------------------------------------------------------------------------ */

static void move_dies(const char *root, const uint64_t counter_uj[4]) {
    for (int die = 0; die < 4; die++) {
        char zone[32];
        snprintf(zone, sizeof zone, "intel-rapl:%d", die);
        fake_counter(root, zone, counter_uj[die]);
    }
}

static harpe_rapl *open_dies(const char *root, const char *const names[4],
                             const uint64_t counter_uj[4]) {
    for (int die = 0; die < 4; die++) {
        char zone[32];
        snprintf(zone, sizeof zone, "intel-rapl:%d", die);
        fake_zone(root, zone, names[die], FAKE_RANGE_UJ);
    }
    move_dies(root, counter_uj);
    return open_rapl(root);
}

static const char *const two_packages[] = {"package-0-die-0", "package-0-die-1", "package-1-die-0",
                                           "package-1-die-1"};

SCRATCH_TEST(dies_that_show_one_counter_count_once) {
    const uint64_t counters_uj[][4] = {{1000000000, 1000000000, 5000000000, 5000000200},
                                       {1034000000, 1034000000, 5020000000, 5020000000},
                                       {1068000000, 1068300000, 5040000000, 5039900000}};
    harpe_rapl *rapl = open_dies(s->root, two_packages, counters_uj[0]);
    harpe_rapl_reading reading;
    assert_int_equal(harpe_rapl_package_count(rapl), 2);
    assert_int_equal(harpe_rapl_mirror_count(rapl), 2);
    for (int i = 1; i < 3; i++) {
        move_dies(s->root, counters_uj[i]);
        assert_int_equal(harpe_rapl_read(rapl, &reading, NULL), HARPE_OK);
        assert_int_equal(reading.package_uj[0], i * 34000000);
        assert_int_equal(reading.package_uj[1], i * 20000000);
    }
    assert_string_equal(harpe_rapl_package_name(rapl, 1), "package-1-die-0");
    harpe_rapl_close(rapl);
}

SCRATCH_TEST(dies_with_counters_of_their_own_are_added) {
    const uint64_t begin_uj[] = {1000000000, 1900000000, 5000000000, 5009000000};
    const uint64_t end_uj[] = {1034000000, 1934000000, 5020000000, 5029000000};
    harpe_rapl *rapl = open_dies(s->root, two_packages, begin_uj);
    harpe_rapl_reading reading;
    assert_int_equal(harpe_rapl_package_count(rapl), 4);
    move_dies(s->root, end_uj);
    assert_int_equal(harpe_rapl_read(rapl, &reading, NULL), HARPE_OK);
    for (int die = 0; die < 4; die++)
        assert_int_equal(reading.package_uj[die], die < 2 ? 34000000 : 20000000);
    harpe_rapl_close(rapl);
}

/* Dies that have the same count by chance, for example 0 after the start of the machine. */
SCRATCH_TEST(dies_that_differ_later_are_added_then) {
    const uint64_t counters_uj[][4] = {{0, 0, 0, 0},
                                       {34000000, 21000000, 5000000, 60000000},
                                       {68000000, 42000000, 10000000, 120000000}};
    harpe_rapl *rapl = open_dies(s->root, two_packages, counters_uj[0]);
    harpe_rapl_reading reading;
    for (uint64_t i = 1; i < 3; i++) {
        move_dies(s->root, counters_uj[i]);
        assert_int_equal(harpe_rapl_read(rapl, &reading, NULL), HARPE_OK);
        assert_int_equal(reading.package_uj[0], i * 55000000);
        assert_int_equal(reading.package_uj[1], i * 65000000);
    }
    harpe_rapl_close(rapl);
}

SCRATCH_TEST(packages_with_equal_counters_are_two) {
    static const char *const names[] = {"package-0", "package-1", "package-2", "package-10-die-0"};
    const uint64_t counters_uj[] = {7, 7, 7, 7};
    harpe_rapl *rapl = open_dies(s->root, names, counters_uj);
    assert_int_equal(harpe_rapl_package_count(rapl), 4);
    harpe_rapl_close(rapl);
}

/* Without a range, a counter that is below its last value has restarted. Its earlier count is kept,
 * and its later count is added. */
SCRATCH_TEST(backward_counter_beyond_its_range_has_restarted) {
    const uint64_t counters_uj[] = {1000, 1700, 999, 1000, 5000, 0, 3};
    const uint64_t totals_uj[] = {0, 700, 700, 701, 4701, 4701, 4704};
    const unsigned restarts[] = {0, 0, 1, 1, 1, 2, 2};
    fake_zone(s->root, "intel-rapl:0", "package-0", 0);
    fake_counter(s->root, "intel-rapl:0", counters_uj[0]);
    harpe_rapl *rapl = open_rapl(s->root);
    for (size_t i = 0; i < sizeof counters_uj / sizeof counters_uj[0]; i++) {
        harpe_rapl_reading reading;
        fake_counter(s->root, "intel-rapl:0", counters_uj[i]);
        assert_int_equal(harpe_rapl_read(rapl, &reading, NULL), HARPE_OK);
        assert_int_equal(reading.package_uj[0], totals_uj[i]);
        assert_int_equal(reading.package_restarts[0], restarts[i]);
    }
    harpe_rapl_close(rapl);
}

/* ---- Restarts and windows -------------------------------------------------------------------- */

/* Creates two packages, the second with DRAM. No counter has a range. */
static void fake_machine_without_ranges(const char *root) {
    fake_zone(root, "intel-rapl:0", "package-0", 0);
    fake_zone(root, "intel-rapl:1", "package-1", 0);
    fake_zone(root, FAKE_DRAM_ZONE, "dram", 0);
}

static harpe_monitor *monitor_without_ranges(const char *root, scripted *script) {
    harpe_energy_source source = scripted_source(script);
    harpe_monitor_options options = {.with_cpu = true, .rapl_path = root};
    harpe_monitor *monitor = NULL;
    fake_counter(root, "intel-rapl:0", 7000000);
    fake_counter(root, "intel-rapl:1", 8000000);
    fake_counter(root, FAKE_DRAM_ZONE, 9000000);
    assert_int_equal(harpe_monitor_new_on(&options, &source, &monitor, NULL), HARPE_OK);
    return monitor;
}

static void assert_measures_cpus(harpe_monitor *monitor, const char *root, uint64_t from_uj) {
    static const char *const zones[] = {"intel-rapl:0", "intel-rapl:1", FAKE_DRAM_ZONE};
    owned_measurement got = {0};
    assert_int_equal(harpe_monitor_begin(monitor, "next", false, NULL), HARPE_OK);
    for (unsigned z = 0; z < 3; z++)
        fake_counter(root, zones[z], from_uj + 1000000 * (z + 1));
    assert_int_equal(harpe_monitor_end(monitor, "next", false, &got, NULL), HARPE_OK);
    assert_close(got.cpu_energy_j[0], 1, 1e-12);
    assert_close(got.cpu_energy_j[1], 2, 1e-12);
    assert_close(got.dram_energy_j[1], 3, 1e-12);
}

static void set_all(const char *root, uint64_t uj) {
    fake_counter(root, "intel-rapl:0", uj);
    fake_counter(root, "intel-rapl:1", uj);
    fake_counter(root, FAKE_DRAM_ZONE, uj);
}

SCRATCH_TEST(restart_between_windows_spoils_none) {
    scripted script = {.count = 1};
    fake_machine_without_ranges(s->root);
    owned_monitor monitor = monitor_without_ranges(s->root, &script);
    for (uint64_t start_uj = 4; start_uj-- > 0;) {
        set_all(s->root, start_uj * 500000);
        assert_measures_cpus(monitor, s->root, start_uj * 500000);
    }
}

/* Tests each counter separately, also if it ends above the window's start and another window has
 * seen the wrap. */
SCRATCH_TEST(restart_inside_a_window_fails_that_window_only) {
    static const char *const zones[] = {"intel-rapl:0", "intel-rapl:1", FAKE_DRAM_ZONE};
    static const char *const names[] = {"CPU package-0", "CPU package-1",
                                        "the DRAM of CPU package-1"};
    fake_machine_without_ranges(s->root);
    for (int z = 0; z < 3; z++) {
        for (int passes = 0; passes < 2; passes++) {
            scripted script = {.count = 1};
            owned_monitor monitor = monitor_without_ranges(s->root, &script);
            harpe_window_measurement got = {0};
            harpe_error error = {.message = ""};
            assert_int_equal(harpe_monitor_begin(monitor, "long", false, NULL), HARPE_OK);
            fake_counter(s->root, zones[z], 5);
            if (passes) {
                assert_int_equal(harpe_monitor_begin(monitor, "short", false, NULL), HARPE_OK);
                fake_counter(s->root, zones[z], 90000000);
                assert_int_equal(harpe_monitor_end(monitor, "short", false, NULL, NULL), HARPE_OK);
            }
            assert_int_equal(harpe_monitor_end(monitor, "long", false, &got, &error),
                             HARPE_DRIVER_ERROR);
            assert_non_null(strstr(error.message, names[z]));
            assert_non_null(strstr(error.message, "restarted"));
            set_all(s->root, 100000000);
            assert_measures_cpus(monitor, s->root, 100000000);
        }
    }
}

SCRATCH_TEST(no_package_is_unavailable) {
    harpe_rapl *rapl = NULL;
    harpe_error error;
    assert_int_equal(harpe_rapl_open(s->root, &rapl, &error), HARPE_UNAVAILABLE);
    assert_int_equal(harpe_rapl_open("/nonexistent", &rapl, &error), HARPE_UNAVAILABLE);
    fake_zone(s->root, "intel-rapl:0", "psys", FAKE_RANGE_UJ);
    assert_int_equal(harpe_rapl_open(s->root, &rapl, &error), HARPE_UNAVAILABLE);
    assert_null(rapl);
    assert_int_equal(harpe_rapl_package_count(NULL), 0);
    harpe_rapl_close(NULL);
}

SCRATCH_TEST(broken_counter_is_an_error) {
    const char *bad[] = {"", "abc\n", "-5\n", "99999999999999999999999\n"};
    fake_machine(s->root);
    harpe_rapl *rapl = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/intel-rapl:0/energy_uj", s->root);
        put_file(path, bad[i]);
        assert_int_not_equal(harpe_rapl_open(s->root, &rapl, NULL), HARPE_OK);
    }
    assert_null(rapl);
}

/* Root may read everything, so another user makes the attempt. */
static harpe_status open_as_nobody(const char *root) {
    pid_t child = fork();
    if (child == 0) {
        harpe_rapl *rapl = NULL;
        harpe_error error = {0};
        if (geteuid() == 0 && setuid(65534) != 0) _exit(1);
        harpe_status status = harpe_rapl_open(root, &rapl, &error);
        bool has_advice = strstr(error.message, "chmod a+r") && strstr(error.message, "root");
        _exit(status == HARPE_PERMISSION_DENIED && has_advice ? 42 : 1);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) && WEXITSTATUS(result) == 42 ? HARPE_PERMISSION_DENIED : HARPE_OK;
}

SCRATCH_TEST(unreadable_counter_comes_with_advice) {
    fake_machine(s->root);
    char path[128];
    snprintf(path, sizeof path, "%s/intel-rapl:0/energy_uj", s->root);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(open_as_nobody(s->root), HARPE_PERMISSION_DENIED);
}

SCRATCH_TEST(windows_have_cpu_energy) {
    fake_machine(s->root);
    scripted script = {.count = 1};
    harpe_energy_source source = scripted_source(&script);
    harpe_monitor_options options = {.with_cpu = true, .rapl_path = s->root};
    owned_monitor monitor = NULL;
    assert_int_equal(harpe_monitor_new_on(&options, &source, &monitor, NULL), HARPE_OK);
    assert_int_equal(harpe_monitor_cpu_count(monitor), 2);
    assert_string_equal(harpe_monitor_cpu_name(monitor, 1), "package-1");
    assert_int_equal(harpe_monitor_begin(monitor, "a", false, NULL), HARPE_OK);
    fake_counter(s->root, "intel-rapl:0", 2500000);
    fake_counter(s->root, "intel-rapl:1", 1000000);
    fake_counter(s->root, FAKE_DRAM_ZONE, 500000);
    owned_measurement got = {0};
    assert_int_equal(harpe_monitor_end(monitor, "a", false, &got, NULL), HARPE_OK);
    assert_int_equal(got.cpu_count, 2);
    assert_close(got.cpu_energy_j[0], 2.5, 1e-12);
    assert_close(got.cpu_energy_j[1], 1, 1e-12);
    assert_true(isnan(got.dram_energy_j[0]));
    assert_close(got.dram_energy_j[1], 0.5, 1e-12);
    assert_close(got.total_gpu_energy_j, 0, 0);
}

static void remember_line(void *user, harpe_log_level level, const char *line) {
    (void)level;
    snprintf(user, 512, "%s", line);
}

SCRATCH_TEST(monitor_without_rapl_says_so_and_works) {
    char told[512] = "";
    scripted script = {.count = 1};
    harpe_energy_source source = scripted_source(&script);
    harpe_monitor_options options = {
        .with_cpu = true, .rapl_path = s->root, .log = {remember_line, told}};
    owned_monitor monitor = NULL;
    assert_int_equal(harpe_monitor_new_on(&options, &source, &monitor, NULL), HARPE_OK);
    assert_non_null(strstr(told, "CPU energy is not measured"));
    assert_int_equal(harpe_monitor_cpu_count(monitor), 0);
}
