/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps: written for every round, completed after the server was killed, flushed when it stops; and
 * the data that the store keeps for them, and for how long. */
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/file.h"
#include "engine.h"
#include "server/engine/engine_internal.h"

/* ---- Files ----------------------------------------------------------------------------------- */

static char *dump_path(engine *e, const char *job, const char *name) {
    static char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/dump/%s/%s", e->directory, job, name);
    return path;
}

static bool has_dump(engine *e, const char *job, const char *name) {
    return access(dump_path(e, job, name), F_OK) == 0;
}

static const char *results_of(int round) {
    static char name[32];
    (void)snprintf(name, sizeof name, "%d.prof.json", round);
    return name;
}

static int dumping_make(void **state) {
    if (engine_make(state) != 0) return -1;
    engine *e = *state;
    free(e->settings.dump_dir);
    e->settings.dump_data = true;
    return asprintf(&e->settings.dump_dir, "%s/dump", e->directory) > 0 ? 0 : -1;
}

#define DUMPING_TEST(name) TEST_ON(name, engine *e, dumping_make, engine_remove)

DUMPING_TEST(dumps_can_be_read_again) {
    engine_start(e);
    const char *job = job_of(e, 2, "finished");
    (void)whole_round(e, job, 2, 0, 5);
    (void)whole_round(e, job, 2, 1, 6);
    engine_settle(e);
    harpe_rank_info *ranks;
    harpe_frequency_schedule *schedules;
    harpe_profiling_result *results;
    size_t count;
    assert_int_equal(harpe_ranks_load(dump_path(e, job, "ranks.json"), &ranks, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_int_equal(ranks[1].available_frequencies_mhz[2], 1001);
    harpe_ranks_free(ranks, count);
    assert_int_equal(
        harpe_schedules_load(dump_path(e, job, "1.sched.json"), &schedules, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_int_equal(schedules[1].rank, 1);
    harpe_schedules_free(schedules, count);
    assert_int_equal(
        harpe_profiling_results_load(dump_path(e, job, "1.prof.json"), &results, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_true(results[1].iteration_time_s[0] == 7);
    harpe_profiling_results_free(results, count);
}

DUMPING_TEST(dump_that_fails_is_told_once_and_made_later) {
    assert_int_equal(harpe_file_write(e->settings.dump_dir, "x", 1, NULL), HARPE_OK);
    engine_start(e);
    const char *job = job_of(e, 2, NULL);
    for (int k = 0; k < 3; k++)
        (void)whole_round(e, job, 2, k, 5);
    for (int i = 0; i < WAIT_LIMIT_MS && e->warnings == 0; i++)
        engine_run_ms(e, 1);
    assert_int_equal(e->warnings, 1);
    assert_false(harpe_jobs_are_idle(e->jobs));
    assert_int_equal(unlink(e->settings.dump_dir), 0);
    engine_settle(e);
    assert_int_equal(e->warnings, 2); /* writing works again */
    assert_true(has_dump(e, job, "ranks.json"));
    for (int k = 0; k < 3; k++)
        assert_true(has_dump(e, job, results_of(k)));
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

/* Writes a file that looks like a dump of a job that the server does not know. */
static void write_old(engine *e, const char *job, const char *name, size_t bytes, int age_s) {
    char *text = calloc(bytes, 1);
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    assert_non_null(text);
    (void)mkdir(e->settings.dump_dir, 0700);
    (void)mkdir(dump_path(e, job, ""), 0700);
    assert_int_equal(harpe_file_write(dump_path(e, job, name), text, bytes, NULL), HARPE_OK);
    assert_int_equal(utimensat(AT_FDCWD, dump_path(e, job, name), times, 0), 0);
    free(text);
}

static void check_bounds(engine *e) {
    harpe_jobs_check_idle(e->jobs);
    engine_settle(e);
}

DUMPING_TEST(dumps_that_are_too_old_are_removed) {
    e->settings.max_dump_time_s = 1000;
    write_old(e, "old", "ranks.json", 10, 1900);
    write_old(e, "old", "0.prof.json", 10, 1700);
    write_old(e, "mixed", "ranks.json", 10, 1900);
    write_old(e, "mixed", "7.prof.json", 10, 1200);
    write_old(e, "mixed", "8.sched.json", 10, 800);
    write_old(e, "notes", "mine.txt", 10, 1900);
    write_old(e, "notes", "1.prof.json", 10, 1900);
    engine_start(e);
    check_bounds(e);
    assert_false(has_dump(e, "old", ""));
    assert_false(has_dump(e, "mixed", "7.prof.json"));
    assert_true(has_dump(e, "mixed", "8.sched.json"));
    assert_true(has_dump(e, "mixed", "ranks.json")); /* stays with the newest file of its job */
    assert_false(has_dump(e, "notes", "1.prof.json"));
    assert_true(has_dump(e, "notes", "mine.txt"));
}

/* All files seem to be a year old: the wall clock has jumped, or no job ran for a year. */
DUMPING_TEST(wrong_clock_removes_no_dump) {
    e->settings.max_dump_time_s = 1000;
    write_old(e, "a", "0.prof.json", 10, 31536000);
    write_old(e, "b", "0.prof.json", 10, 31535000);
    engine_start(e);
    check_bounds(e);
    assert_true(has_dump(e, "a", "0.prof.json"));
    assert_true(has_dump(e, "b", "0.prof.json"));
}

DUMPING_TEST(oldest_dumps_beyond_the_size_are_removed) {
    enum { FILES = 20, KB = 128 };
    e->settings.max_dump_size_bytes = (int64_t)1 << 20; /* 8 files; an eighth stays free */
    for (int i = 0; i < FILES; i++)
        write_old(e, i % 2 ? "odd" : "even", results_of(i), KB << 10, 10 * (FILES - i));
    engine_start(e);
    check_bounds(e);
    for (int i = 0; i < FILES; i++)
        assert_int_equal(has_dump(e, i % 2 ? "odd" : "even", results_of(i)), i >= FILES - 7);
}

/* The wall clock was ahead, and is right again. */
DUMPING_TEST(dumps_from_the_future_leave_room_for_new_ones) {
    enum { KB = 512 };
    e->settings.max_dump_size_bytes = (int64_t)1 << 20;
    write_old(e, "ahead", "0.prof.json", KB << 10, -31536000);
    write_old(e, "ahead", "1.prof.json", KB << 10, 10);
    engine_start(e);
    check_bounds(e);
    assert_false(has_dump(e, "ahead", "0.prof.json"));
    assert_true(has_dump(e, "ahead", "1.prof.json"));
}

DUMPING_TEST(dumps_go_with_the_last_report_of_their_job) {
    const char *jobs[3];
    e->settings.max_finished_jobs = 1;
    engine_start(e);
    for (int i = 0; i < 3; i++) {
        jobs[i] = job_of(e, 1, NULL);
        (void)whole_round(e, jobs[i], 1, 0, 5);
        engine_settle(e);
    }
    for (int i = 0; i < 2; i++)
        expect(ask(e, HARPE_CALL_EVICT, jobs[i], 0, -1, NULL), 200, "null");
    check_bounds(e);
    assert_false(has_dump(e, jobs[0], ""));
    assert_true(has_dump(e, jobs[1], "0.prof.json"));
    assert_true(has_dump(e, jobs[2], "0.prof.json"));
    e->settings.max_finished_jobs = 0; /* a job keeps no report, so its dumps go with it */
    engine_restart(e);
    expect(ask(e, HARPE_CALL_EVICT, jobs[2], 0, -1, NULL), 200, "null");
    check_bounds(e);
    assert_false(has_dump(e, jobs[1], ""));
    assert_false(has_dump(e, jobs[2], ""));
}

/* The server looks again when an eighth of the bound was written. */
DUMPING_TEST(long_job_stays_within_the_bound) {
    enum { ROUNDS = 400 };
    e->settings.max_dump_size_bytes = (int64_t)1 << 20; /* 256 small files */
    engine_start(e);
    const char *job = job_of(e, 1, NULL);
    for (int k = 0; k < ROUNDS; k++) {
        (void)whole_round(e, job, 1, k, 5);
        if (k % 10 == 9) check_bounds(e);
    }
    char command[PATH_MAX + 32];
    (void)snprintf(command, sizeof command, "test $(ls %s | wc -l) -le 257", dump_path(e, job, ""));
    assert_int_equal(system(command), 0);
    assert_true(has_dump(e, job, "ranks.json"));
    assert_true(has_dump(e, job, "399.prof.json"));
}

/* The store keeps the data of waiting dumps, so their number is limited. */
DUMPING_TEST(dumps_that_always_fail_are_bounded) {
    enum { ROUNDS = 510 }; /* two dumps each; at most 1000 wait */
    assert_int_equal(harpe_file_write(e->settings.dump_dir, "x", 1, NULL), HARPE_OK);
    engine_start(e);
    const char *job = job_of(e, 1, NULL);
    for (int k = 0; k < ROUNDS; k++)
        (void)whole_round(e, job, 1, k, 5);
    assert_int_equal(unlink(e->settings.dump_dir), 0);
    engine_settle(e);
    assert_int_equal(e->warnings, 2); /* writing fails; some dumps were given up */
    assert_false(has_dump(e, job, "0.sched.json"));
    assert_true(has_dump(e, job, "509.sched.json"));
}

static char *read_dump(engine *e, const char *job, const char *name) {
    char *text;
    size_t length;
    assert_int_equal(harpe_file_read(dump_path(e, job, name), 1 << 20, &text, &length, NULL), 0);
    return text;
}

DUMPING_TEST(results_are_dumped_as_they_came_or_cleaned) {
    engine_start(e);
    const char *job = job_of(e, 4, NULL);
    (void)whole_round(e, job, 4, 0, -1);
    static const char *const results[] = {
        " {\"iter_energy\" : [], \"iter_time\":[1e0, 2.50],\"rank\":0}\n",
        "{\"rank\":\"1\",\"iter_time\":[\"3\"],\"iter_energy\":[],\"other\":NaN}",
        "\xEF\xBB\xBF{\"rank\":2,\"iter_time\":[],\"iter_energy\":[4]}",
        ("{\"rank\":3,\"iter_time\":[],\"iter_energy\":[],"
         "\"time_breakdown\":{\"f\":[[1]],\"f\":[[2]]}}"),
    };
    for (int r = 0; r < 4; r++)
        expect(ask(e, HARPE_CALL_RESULT, job, 0, -1, results[r]), 200, "null");
    engine_settle(e);
    char *text = read_dump(e, job, "0.prof.json");
    assert_string_equal(text,
                        "[ {\"iter_energy\" : [], \"iter_time\":[1e0, 2.50],\"rank\":0}\n,\n"
                        "{\"rank\":1,\"iter_time\":[3],\"iter_energy\":[],\"time_breakdown\":{},"
                        "\"energy_breakdown\":{}},\n"
                        "{\"rank\":2,\"iter_time\":[],\"iter_energy\":[4],\"time_breakdown\":{},"
                        "\"energy_breakdown\":{}},\n"
                        "{\"rank\":3,\"iter_time\":[],\"iter_energy\":[],"
                        "\"time_breakdown\":{\"f\":[[2]]},\"energy_breakdown\":{}}]\n");
    free(text);
}

/* ---- After a kill ---------------------------------------------------------------------------- */

DUMPING_TEST(missing_dumps_are_made_up_for_after_a_restart) {
    static const char *const names[] = {"ranks.json", "0.prof.json", "1.prof.json", "1.sched.json"};
    enum { NAMES = sizeof names / sizeof *names };
    char *texts[NAMES];
    engine_start(e);
    const char *job = job_of(e, 2, NULL);
    (void)whole_round(e, job, 2, 0, 5);
    (void)whole_round(e, job, 2, 1, 6);
    engine_settle(e);
    for (int i = 0; i < NAMES; i++)
        texts[i] = read_dump(e, job, names[i]);
    engine_stop(e);
    for (int i = 0; i < NAMES; i++)
        assert_int_equal(unlink(dump_path(e, job, names[i])), 0);
    engine_start(e);
    engine_settle(e);
    for (int i = 0; i < NAMES; i++) {
        char *text = read_dump(e, job, names[i]);
        assert_string_equal(text, texts[i]);
        free(text);
        free(texts[i]);
    }
    (void)whole_round(e, job, 2, 2, 7);
}

DUMPING_TEST(half_written_dumps_are_removed_after_a_restart) {
    static const char *const ours[] = {".0.prof.json.0123456789abcdef.tmp",
                                       ".ranks.json.00000000deadbeef.tmp"};
    static const char *const others[] = {".notes.json.tmp", "x.json.0123456789abcdef.tmp"};
    engine_start(e);
    const char *job = job_of(e, 2, NULL);
    engine_settle(e);
    engine_stop(e);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(harpe_file_write(dump_path(e, job, ours[i]), "[", 1, NULL), 0);
        assert_int_equal(harpe_file_write(dump_path(e, job, others[i]), "[", 1, NULL), 0);
    }
    engine_start(e);
    engine_settle(e);
    for (int i = 0; i < 2; i++) {
        assert_false(has_dump(e, job, ours[i]));
        assert_true(has_dump(e, job, others[i]));
    }
}

/* A scheduler that cannot save its state needs the results of all rounds, so the store has more
 * results than may wait to be dumped. After a restart none of these dumps is given up. */
DUMPING_TEST(dumps_of_a_long_history_are_made_up_for_after_a_restart) {
    int rounds = all_trials() ? 1030 : 30; /* 1000 dumps of one rank may wait */
    e->kind.class = &learner_with_history;
    engine_start(e);
    const char *job = job_of(e, 1, NULL);
    for (int k = 0; k < rounds; k++) {
        (void)whole_round(e, job, 1, k, 5);
        if (k % 100 == 0) engine_settle(e);
    }
    engine_settle(e);
    assert_int_equal(unlink(dump_path(e, job, "1.prof.json")), 0);
    assert_int_equal(unlink(dump_path(e, job, results_of(rounds - 1))), 0);
    engine_restart(e);
    engine_settle(e);
    assert_int_equal(e->warnings, 0);
    free(read_dump(e, job, "1.prof.json"));
    free(read_dump(e, job, results_of(rounds - 1)));
}

/* The test does not wait for the answer to the last result. */
DUMPING_TEST(round_that_ends_while_the_server_stops_is_dumped) {
    engine_start(e);
    const char *job = job_of(e, 2, NULL);
    (void)whole_round(e, job, 2, 0, -1);
    asked *results[2];
    for (int r = 0; r < 2; r++)
        results[r] = ask_result(e, job, r, -1, r);
    harpe_jobs_stop(e->jobs);
    engine_settle(e);
    for (int r = 0; r < 2; r++)
        expect(results[r], 200, "null");
    free(read_dump(e, job, "0.prof.json"));
}

/* ---- Data in the store ----------------------------------------------------------------------- */

static bool is_stored(engine *e, const char *job, int64_t round) {
    char *text;
    size_t length;
    if (harpe_store_read_result(e->store, job, round, 0, &text, &length, NULL)) return false;
    free(text);
    return true;
}

static harpe_status count_round(void *user, const harpe_change *change, harpe_error *error) {
    (void)error;
    *(int *)user += change->kind == HARPE_CHANGE_ROUND;
    return HARPE_OK;
}

static int stored_rounds(engine *e, const char *job) {
    int count = 0;
    assert_int_equal(harpe_store_load(e->store, job, count_round, &count, NULL), HARPE_OK);
    return count;
}

/* A pipe in place of a dump blocks it until a process reads. */
DUMPING_TEST(rounds_are_kept_until_they_are_dumped) {
    engine_start(e);
    const char *job = job_of(e, 2, NULL);
    engine_settle(e);
    assert_int_equal(mkfifo(dump_path(e, job, "1.prof.json"), 0600), 0);
    (void)whole_round(e, job, 2, 0, 5);
    engine_settle(e);            /* its dumps are written */
    for (int k = 1; k < 14; k++) /* more than may wait with their results */
        (void)whole_round(e, job, 2, k, 5);
    assert_false(is_stored(e, job, 0));
    assert_true(is_stored(e, job, 1));
    assert_int_equal(stored_rounds(e, job), 13);
    int reader = open(dump_path(e, job, "1.prof.json"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(reader >= 0);
    engine_settle(e);
    (void)close(reader);
    for (int k = 14; k < 16; k++) {
        (void)whole_round(e, job, 2, k, 5);
        engine_settle(e);
    }
    assert_false(is_stored(e, job, 13));
    assert_true(is_stored(e, job, 14));
    assert_in_range(stored_rounds(e, job), 1, 2);
    for (int k = 2; k < 16; k++)
        free(read_dump(e, job, results_of(k)));
}

STARTED_TEST(finished_job_keeps_two_rounds_and_goes_on_after_a_restart) {
    const char *job = job_of(e, 2, "finished");
    for (int k = 0; k < 20; k++)
        (void)whole_round(e, job, 2, k, 5);
    assert_in_range(stored_rounds(e, job), 1, 2);
    assert_false(is_stored(e, job, 17));
    engine_restart(e);
    assert_int_equal(whole_round(e, job, 2, 20, 5), 1000);
    assert_in_range(stored_rounds(e, job), 1, 2);
}

int main(void) { return run_listed_tests(); }
