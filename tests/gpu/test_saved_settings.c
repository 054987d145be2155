/* SPDX-License-Identifier: Apache-2.0 */
/* The rules by which settings are restored (harpe_restore), with a scripted setter, and holdings of
 * GPUs with their records, in a world. */
#include "world/in_world.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "gpu/gpus.h"
#include "gpu/saved_settings.h"

static harpe_gpus *gpus;

static void begin_gpus(void) { assert_int_equal(harpe_gpus_open(NULL, &gpus, NULL), HARPE_OK); }
static void end_gpus(void) { harpe_gpus_close(gpus); }

static const world_machine machine = {.gpus = "1xV100", .begin = begin_gpus, .end = end_gpus};

enum { FOUND_MW = 231000, CHANGED_MW = 175000 };

static uint32_t limit_now(void) {
    uint32_t limit_mw = 0;
    assert_int_equal(harpe_gpu_power_limit(gpus, 0, &limit_mw, NULL), HARPE_OK);
    return limit_mw;
}

static bool is_persistent(void) {
    bool is_on = false;
    assert_int_equal(harpe_gpu_persistence_mode(gpus, 0, &is_on, NULL), HARPE_OK);
    return is_on;
}

static void change_all(void) {
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, CHANGED_MW, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_set_persistence_mode(gpus, 0, true, NULL), HARPE_OK);
}

/* ---- A scripted setter ----------------------------------------------------------------------- */

static struct script {
    struct {
        int failures; /* of the first calls */
        harpe_status status;
    } of[HARPE_SETTINGS];
    double slow_s;
    char calls[400]; /* a letter for each call */
} script;

static harpe_status set(void *user, harpe_setting setting, harpe_setting_value value,
                        harpe_error *error) {
    size_t length = strlen(script.calls);
    (void)user;
    if (length < sizeof script.calls - 1) script.calls[length] = "gmps"[setting];
    pause_s(script.slow_s);
    if (script.of[setting].failures-- > 0)
        return harpe_fail(error, script.of[setting].status, "scripted %c", "gmps"[setting]);
    return harpe_gpu_set(gpus, 0, setting, value, error);
}

static harpe_status restore_with(harpe_saved_settings *state, double try_for_s,
                                 harpe_error *error) {
    harpe_restoration how = {.gpus = gpus,
                             .state = state,
                             .which = HARPE_ALL_SETTINGS,
                             .try_for_s = try_for_s,
                             .set = set};
    memset(script.calls, 0, sizeof script.calls);
    return harpe_restore(&how, error);
}

static harpe_saved_settings everything(void) {
    return (harpe_saved_settings){.power_limit_mw = FOUND_MW, .resets_clocks = true};
}

/* ---- Restoring ------------------------------------------------------------------------------- */

static void clocks_come_first_and_values_are_checked_three_times(void **state) {
    harpe_saved_settings saved = everything();
    (void)state;
    script = (struct script){.slow_s = 0};
    change_all();
    assert_int_equal(restore_with(&saved, 1, NULL), HARPE_OK);
    assert_string_equal(script.calls, "gmpspspsps");
    assert_int_equal(limit_now(), FOUND_MW);
    assert_false(is_persistent());
    saved = (harpe_saved_settings){.persistence = -1, .resets_clocks = true};
    double begin_s = harpe_clock_s();
    assert_int_equal(restore_with(&saved, 1, NULL), HARPE_OK);
    assert_string_equal(script.calls, "gm"); /* a lock cannot be read */
    assert_true(harpe_clock_s() - begin_s < 0.02);
    saved = (harpe_saved_settings){.persistence = 1};
    assert_int_equal(restore_with(&saved, 1, NULL), HARPE_OK);
    assert_string_equal(script.calls, "ssss");
    assert_true(is_persistent());
}

static void a_failure_does_not_keep_the_others_from_being_restored(void **state) {
    (void)state;
    for (int failing = 0; failing < HARPE_SETTINGS; failing++) {
        harpe_saved_settings saved = everything();
        harpe_error error = {.message = ""};
        script = (struct script){.slow_s = 0};
        script.of[failing].failures = 3;
        script.of[failing].status = HARPE_DRIVER_ERROR;
        change_all();
        assert_int_equal(restore_with(&saved, 0, &error), HARPE_DRIVER_ERROR); /* three attempts */
        assert_int_equal(error.message[9], "gmps"[failing]);
        assert_int_equal(limit_now() == FOUND_MW, failing != HARPE_SET_POWER_LIMIT);
        assert_int_equal(!is_persistent(), failing != HARPE_SET_PERSISTENCE);
        script.of[failing].failures = 2;
        change_all();
        assert_int_equal(restore_with(&saved, 0, &error), HARPE_OK);
        assert_int_equal(limit_now(), FOUND_MW);
        assert_false(is_persistent());
    }
}

static void the_first_failure_is_told(void **state) {
    harpe_saved_settings saved = everything();
    harpe_error error = {.message = ""};
    (void)state;
    script = (struct script){.of = {{9, HARPE_PERMISSION_DENIED}, {9, HARPE_DRIVER_ERROR}}};
    assert_int_equal(restore_with(&saved, 0, &error), HARPE_PERMISSION_DENIED);
    assert_string_equal(error.message, "scripted g");
}

static void a_failed_call_is_tried_again_for_the_time(void **state) {
    harpe_saved_settings saved = everything();
    harpe_error error;
    (void)state;
    script = (struct script){.of = {{1000, HARPE_DRIVER_ERROR}}};
    double begin_s = harpe_clock_s();
    assert_int_equal(restore_with(&saved, 10, &error), HARPE_DRIVER_ERROR);
    double took_s = harpe_clock_s() - begin_s;
    assert_true(took_s >= 10 && took_s < 10.5);
    assert_in_range(1000 - script.of[0].failures, 450, 550); /* every 20 ms */
}

static void a_lost_gpu_is_tried_once(void **state) {
    harpe_saved_settings saved = everything();
    harpe_error error;
    (void)state;
    script = (struct script){.of = {{1000, HARPE_GPU_LOST}}};
    assert_int_equal(restore_with(&saved, 10, &error), HARPE_GPU_LOST);
    assert_string_equal(script.calls, "gmps");
}

static void only_a_clock_that_was_never_locked_may_lack(void **state) {
    harpe_error error;
    (void)state;
    for (int failing = 0; failing < HARPE_SETTINGS; failing++) {
        for (int was_locked = 0; was_locked <= 1; was_locked++) {
            harpe_saved_settings saved = everything();
            saved.locks_graphics = was_locked && failing == HARPE_SET_GRAPHICS_CLOCKS;
            saved.locks_memory = was_locked && failing == HARPE_SET_MEMORY_CLOCKS;
            script = (struct script){.slow_s = 0};
            script.of[failing].failures = 1000;
            script.of[failing].status = HARPE_NOT_SUPPORTED;
            change_all();
            bool may_lack = !was_locked && failing <= HARPE_SET_MEMORY_CLOCKS;
            assert_int_equal(restore_with(&saved, 0, &error),
                             may_lack ? HARPE_OK : HARPE_NOT_SUPPORTED);
        }
    }
}

/* The handle may have reset the clock that another process has locked since. */
static void a_lock_of_another_handle_is_reset(void **state) {
    harpe_saved_settings saved = {.persistence = -1, .resets_clocks = true};
    harpe_restoration how = {.gpus = gpus, .state = &saved, .which = HARPE_ALL_SETTINGS};
    harpe_gpus *other = NULL;
    uint32_t mhz = 0;
    (void)state;
    assert_int_equal(harpe_restore(&how, NULL), HARPE_OK);
    let_gpu_work(0, true);
    assert_int_equal(harpe_gpus_open(NULL, &other, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_lock_graphics_clocks(other, 0, 1200, 1200, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_current_clocks(gpus, 0, &mhz, NULL, NULL), HARPE_OK);
    assert_int_equal(mhz, 1200);
    assert_int_equal(harpe_restore(&how, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_current_clocks(gpus, 0, &mhz, NULL, NULL), HARPE_OK);
    assert_int_not_equal(mhz, 1200);
    harpe_gpus_close(other);
}

static bool revise(void *user, harpe_saved_settings *state) {
    int *calls = user;
    state->power_limit_mw = ++*calls < 6 ? CHANGED_MW : FOUND_MW;
    return *calls >= 6;
}

/* Two processes that set and check the limit in turn would not end. */
static void nothing_is_set_while_another_process_restores(void **state) {
    int calls = 0;
    harpe_saved_settings saved = everything();
    harpe_restoration how = {.gpus = gpus,
                             .state = &saved,
                             .which = HARPE_ALL_SETTINGS,
                             .try_for_s = 10,
                             .set = set,
                             .revise = revise,
                             .user = &calls};
    (void)state;
    script = (struct script){.slow_s = 0};
    change_all();
    assert_int_equal(harpe_restore(&how, NULL), HARPE_OK);
    assert_int_equal(limit_now(), FOUND_MW);
    assert_int_equal(calls, 9);
    assert_string_equal(script.calls, "gmpspspsps");
    /* The other process never ends. */
    calls = -100000;
    script = (struct script){.slow_s = 0};
    double begin_s = harpe_clock_s();
    assert_int_equal(harpe_restore(&how, NULL), HARPE_DRIVER_ERROR);
    assert_true(harpe_clock_s() - begin_s >= 10);
    assert_string_equal(script.calls, "gmpsps");
}

static void a_handle_restores_again_what_it_could_not_restore(void **state) {
    (void)state;
    uint32_t found_mw = limit_now();
    change_all();
    use_faults("no_permission");
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_PERMISSION_DENIED);
    assert_int_equal(limit_now(), CHANGED_MW);
    use_faults("");
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
    assert_int_equal(limit_now(), found_mw);
    assert_false(is_persistent());
}

/* ---- Other programs -------------------------------------------------------------------------- */

static struct {
    double after_s, every_s;
    int times;
    double last_s; /* time of the last one */
} disturbance;

static void *disturb(void *user) {
    (void)user;
    pause_s(disturbance.after_s);
    for (int i = 0; i < disturbance.times; i++, pause_s(disturbance.every_s)) {
        (void)harpe_gpu_set_power_limit(gpus, 0, CHANGED_MW, NULL);
        disturbance.last_s = harpe_clock_s();
    }
    return NULL;
}

static void an_earlier_call_that_takes_effect_late_is_undone(void **state) {
    harpe_saved_settings saved = everything();
    (void)state;
    for (int after_ms = 1; after_ms < 60; after_ms += 7) {
        script = (struct script){.slow_s = 0};
        disturbance.after_s = after_ms * 1e-3;
        disturbance.times = 1;
        change_all();
        pthread_t thread = start_thread(disturb, NULL);
        assert_int_equal(restore_with(&saved, 30, NULL), HARPE_OK);
        /* Three checks 20 ms apart after the one that has found the change. */
        assert_true(harpe_clock_s() - disturbance.last_s >= 0.0599);
        harpe_thread_join(thread);
        assert_int_equal(limit_now(), FOUND_MW);
    }
}

static void a_program_that_keeps_changing_a_setting_is_told(void **state) {
    harpe_saved_settings saved = everything();
    harpe_error error = {.message = ""};
    (void)state;
    script = (struct script){.slow_s = 0};
    disturbance.after_s = disturbance.every_s = 0.01;
    disturbance.times = 400;
    pthread_t thread = start_thread(disturb, NULL);
    double begin_s = harpe_clock_s();
    assert_int_equal(restore_with(&saved, 2, &error), HARPE_DRIVER_ERROR);
    assert_true(harpe_clock_s() - begin_s >= 2);
    assert_non_null(strstr(error.message, "another program keeps changing it"));
    harpe_thread_join(thread);
}

/* A call may take longer than the whole time. */
static void a_slow_call_that_succeeds_is_enough(void **state) {
    harpe_saved_settings saved = everything();
    (void)state;
    script = (struct script){.slow_s = 5};
    change_all();
    assert_int_equal(restore_with(&saved, 1, NULL), HARPE_OK);
    assert_int_equal(limit_now(), FOUND_MW);
}

/* ---- Holdings -------------------------------------------------------------------------------- */

static harpe_status take(pid_t trainer, harpe_holding **out) {
    harpe_holding_options options = {.kind = HARPE_SAVED_POWER, .trainer = trainer, .set = set};
    return harpe_holding_take(gpus, 0, &options, out, NULL);
}

static bool has_record(void) {
    harpe_saved_settings saved;
    return harpe_saved_settings_find(gpus, 0, HARPE_SAVED_POWER, &saved, NULL);
}

static harpe_holding *hold(void) {
    harpe_holding *holding = NULL;
    script = (struct script){.slow_s = 0};
    assert_int_equal(take(harpe_process_self(), &holding), HARPE_OK);
    if (!holding->is_continued) holding->record.state.power_limit_mw = limit_now();
    assert_int_equal(harpe_holding_save(holding, NULL), HARPE_OK);
    assert_true(has_record());
    return holding;
}

static harpe_status change(harpe_holding *holding, uint32_t limit_mw) {
    return harpe_holding_set(holding, HARPE_SET_POWER_LIMIT, (harpe_setting_value){.low = limit_mw},
                             NULL);
}

static void a_record_stays_while_something_is_changed(void **state) {
    (void)state;
    uint32_t found_mw = limit_now();
    harpe_holding *holding = hold(), *other = NULL;
    harpe_holding_release(holding);
    assert_false(has_record()); /* nothing was changed */
    holding = hold();
    assert_int_equal(take(harpe_process_self(), &other), HARPE_ALREADY_EXISTS);
    script.of[HARPE_SET_POWER_LIMIT].failures = 1;
    script.of[HARPE_SET_POWER_LIMIT].status = HARPE_PERMISSION_DENIED;
    assert_int_equal(change(holding, CHANGED_MW), HARPE_PERMISSION_DENIED);
    harpe_holding_release(holding);
    assert_false(has_record()); /* the driver has refused the change */
    holding = hold();
    script.of[HARPE_SET_POWER_LIMIT].failures = 1;
    script.of[HARPE_SET_POWER_LIMIT].status = HARPE_DRIVER_ERROR;
    assert_int_equal(change(holding, CHANGED_MW), HARPE_DRIVER_ERROR);
    harpe_holding_release(holding);
    assert_true(has_record()); /* it may have taken effect */
    holding = hold();
    assert_true(holding->is_continued);
    assert_int_equal(change(holding, CHANGED_MW), HARPE_OK);
    script.of[HARPE_SET_POWER_LIMIT].failures = 3;
    assert_int_equal(harpe_holding_restore(holding, 0, NULL), HARPE_DRIVER_ERROR);
    harpe_holding_release(holding);
    assert_true(has_record());
    holding = hold();
    assert_int_equal(holding->record.state.power_limit_mw, found_mw);
    assert_int_equal(harpe_holding_restore(holding, 0, NULL), HARPE_OK);
    assert_int_equal(limit_now(), found_mw);
    harpe_holding_release(holding);
    assert_false(has_record());
}

static void a_record_says_which_clocks_the_driver_has_locked(void **state) {
    const harpe_setting_value lock = {900, 900}, none = {0};
    harpe_holding_options options = {.kind = HARPE_SAVED_CLOCKS, .trainer = harpe_process_self()};
    harpe_holding *holding = NULL;
    harpe_saved_settings saved;
    (void)state;
    assert_int_equal(harpe_holding_take(gpus, 0, &options, &holding, NULL), HARPE_OK);
    holding->record.state.resets_clocks = true;
    assert_int_equal(harpe_holding_save(holding, NULL), HARPE_OK);
    assert_int_equal(harpe_holding_set(holding, HARPE_SET_MEMORY_CLOCKS, none, NULL),
                     HARPE_NOT_SUPPORTED);
    assert_int_equal(harpe_holding_set(holding, HARPE_SET_GRAPHICS_CLOCKS, lock, NULL), HARPE_OK);
    assert_true(harpe_saved_settings_find(gpus, 0, HARPE_SAVED_CLOCKS, &saved, NULL));
    assert_true(saved.locks_graphics);
    assert_false(saved.locks_memory);
    assert_int_equal(harpe_holding_restore(holding, 0, NULL), HARPE_OK);
    harpe_holding_release(holding);
    assert_false(harpe_saved_settings_find(gpus, 0, HARPE_SAVED_CLOCKS, &saved, NULL));
}

static int die_with_a_change(void *user) {
    (void)user;
    harpe_holding *holding = hold();
    (void)change(holding, CHANGED_MW);
    pause_s(1000);
    return 0;
}

static void the_next_holder_restores_what_a_dead_job_has_left(void **state) {
    harpe_holding *holding = NULL;
    (void)state;
    uint32_t found_mw = limit_now();
    pid_t job = harpe_world_start("job", die_with_a_change, NULL);
    WAIT_FOR(limit_now() == CHANGED_MW);
    assert_int_equal(take(harpe_process_self(), &holding), HARPE_ALREADY_EXISTS);
    harpe_world_kill(job);
    use_faults("no_permission");
    assert_int_equal(take(harpe_process_self(), &holding), HARPE_ALREADY_EXISTS);
    assert_true(has_record());
    use_faults("");
    assert_int_equal(take(harpe_process_self(), &holding), HARPE_OK);
    assert_int_equal(limit_now(), found_mw);
    assert_false(holding->is_continued);
    assert_false(has_record());
    harpe_holding_release(holding);
}

static void a_lease_that_ends_is_restored_although_its_process_lives(void **state) {
    harpe_saved_settings_outcome outcome;
    (void)state;
    uint32_t found_mw = limit_now();
    int64_t self = harpe_process_self();
    assert_int_equal(harpe_saved_settings_end(gpus, 0, HARPE_SAVED_POWER, self, &outcome, NULL),
                     HARPE_OK);
    assert_int_equal(outcome, HARPE_SAVED_VOID);
    harpe_holding *holding = hold();
    assert_int_equal(change(holding, CHANGED_MW), HARPE_OK);
    harpe_holding_release(holding);
    assert_int_equal(harpe_saved_settings_end(gpus, 0, HARPE_SAVED_POWER, self + 1, &outcome, NULL),
                     HARPE_OK);
    assert_int_equal(outcome, HARPE_SAVED_IN_USE); /* another job has it */
    assert_int_equal(limit_now(), CHANGED_MW);
    assert_int_equal(harpe_saved_settings_end(gpus, 0, HARPE_SAVED_POWER, self, &outcome, NULL),
                     HARPE_OK);
    assert_int_equal(outcome, HARPE_SAVED_RESTORED);
    assert_int_equal(limit_now(), found_mw);
    assert_false(has_record());
}

static int die_with_a_record_of_zeusd(void *user) {
    (void)user;
    harpe_holding *holding = hold();
    holding->record.state.zeusd = (harpe_zeusd_place){"/run/zeusd.sock", ""};
    harpe_status status = harpe_holding_save(holding, NULL);
    holding->changed = HARPE_ALL_SETTINGS;
    harpe_holding_release(holding);
    return status == HARPE_OK ? 0 : 1;
}

static void a_lease_that_ends_leaves_the_record_of_a_dead_job_alone(void **state) {
    harpe_saved_settings_outcome outcome;
    (void)state;
    (void)harpe_world_start("job", die_with_a_record_of_zeusd, NULL);
    WAIT_FOR(has_record());
    pause_s(1);
    assert_int_equal(
        harpe_saved_settings_end(gpus, 0, HARPE_SAVED_POWER, harpe_process_self(), &outcome, NULL),
        HARPE_OK);
    assert_int_equal(outcome, HARPE_SAVED_IN_USE);
    assert_true(has_record());
}

/* A later version may record something that this one cannot restore. */
static void a_record_of_a_later_version_stays(void **state) {
    harpe_holding *holding = hold();
    harpe_saved_settings_recovery recovery = {.user = NULL};
    harpe_saved_settings_outcome outcome;
    harpe_error error;
    int directory = -1;
    char name[HARPE_SAVED_NAME_SIZE], text[] = "harpe-found 2\nkind power\n";
    (void)state;
    assert_int_equal(change(holding, CHANGED_MW), HARPE_OK);
    harpe_saved_settings_name(holding->record.state.uuid, HARPE_SAVED_POWER, name);
    harpe_holding_release(holding);
    assert_int_equal(harpe_saved_settings_open_directory(true, false, &directory, NULL), HARPE_OK);
    assert_int_equal(harpe_file_replace_at(directory, name, text, strlen(text)), 0);
    assert_int_equal(harpe_saved_settings_recover(gpus, &recovery, &error), HARPE_NOT_SUPPORTED);
    assert_non_null(strstr(error.message, "with the later version that has written it"));
    assert_int_equal(take(harpe_process_self(), &holding), HARPE_NOT_SUPPORTED);
    /* A lease that could not begin for this reason has nothing to restore. */
    assert_int_equal(
        harpe_saved_settings_end(gpus, 0, HARPE_SAVED_POWER, harpe_process_self(), &outcome, NULL),
        HARPE_OK);
    assert_int_equal(outcome, HARPE_SAVED_IN_USE);
    close(directory);
}

static void see_failure(void *user, const harpe_saved_settings *saved, const harpe_gpu_info *info,
                        harpe_saved_settings_outcome outcome, const harpe_error *error) {
    (void)error;
    assert_int_equal(outcome, HARPE_SAVED_FAILED);
    assert_int_equal(saved->kind, HARPE_SAVED_POWER);
    assert_non_null(info);
    ++*(int *)user;
}

/* A record that ends early, or lacks one of the lines of all records, does not say everything that
 * must be restored. */
static void a_damaged_record_is_told(void **state) {
    int told = 0, directory = -1;
    harpe_saved_settings_recovery recovery = {.report = see_failure, .user = &told};
    char name[HARPE_SAVED_NAME_SIZE], text[4096], less[4096];
    harpe_holding *holding = hold();
    harpe_error error;
    (void)state;
    harpe_saved_settings_name(holding->record.state.uuid, HARPE_SAVED_POWER, name);
    assert_int_equal(harpe_saved_settings_open_directory(true, false, &directory, NULL), HARPE_OK);
    int file = openat(directory, name, O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    harpe_holding_release(holding);
    assert_true(length > 0);
    text[length] = '\0';
    for (const char *line = text, *next; *line; line = next) {
        size_t before = (size_t)(line - text);
        next = strchr(line, '\n') + 1;
        for (int ends_here = 0; ends_here < 2; ends_here++) {
            if (!ends_here && strncmp(line, "cluster ", 8) == 0) continue;
            memcpy(less, text, before);
            strcpy(less + before, ends_here ? "" : next);
            assert_int_equal(harpe_file_replace_at(directory, name, less, strlen(less)), 0);
            recovery.is_dry = told == 0;
            assert_int_equal(harpe_saved_settings_recover(gpus, &recovery, &error),
                             HARPE_INVALID_INPUT);
            assert_non_null(strstr(error.message, "is damaged"));
            assert_int_equal(faccessat(directory, name, F_OK, 0), told == 1 ? 0 : -1);
        }
    }
    assert_true(told > 20);
    close(directory);
}

static void what_is_left_has_no_owner(void **state) {
    int64_t trainer = 0;
    (void)state;
    pid_t job = harpe_world_start("job", die_with_a_change, NULL);
    WAIT_FOR(limit_now() == CHANGED_MW);
    assert_false(harpe_saved_settings_are_left(gpus, 0, HARPE_SAVED_POWER, &trainer));
    harpe_world_kill(job);
    assert_true(harpe_saved_settings_are_left(gpus, 0, HARPE_SAVED_POWER, &trainer));
    assert_int_equal(trainer, job);
    harpe_holding *holding = hold(); /* restores it */
    harpe_holding_release(holding);
    holding = hold();
    holding->record.trainer.process = job;
    holding->record.trainer.namespace ++; /* of a container: its processes cannot be examined */
    assert_int_equal(harpe_holding_save(holding, NULL), HARPE_OK);
    holding->changed = HARPE_ALL_SETTINGS;
    harpe_holding_release(holding);
    assert_true(has_record());
    assert_false(harpe_saved_settings_are_left(gpus, 0, HARPE_SAVED_POWER, &trainer));
}

static void every_line_of_a_record_comes_back(void **state) {
    harpe_saved_settings read;
    (void)state;
    harpe_holding *holding = hold();
    harpe_saved_settings *saved = &holding->record.state;
    saved->persistence = 1;
    saved->resets_clocks = saved->locks_memory = true;
    saved->locks = (harpe_default_locks){210, 1200, 405, 877};
    saved->zeusd = (harpe_zeusd_place){"/run/zeusd.sock", "host:1"};
    assert_int_equal(harpe_holding_save(holding, NULL), HARPE_OK);
    assert_true(harpe_saved_settings_find(gpus, 0, HARPE_SAVED_POWER, &read, NULL));
    assert_memory_equal(&read.locks, &saved->locks, sizeof read.locks);
    assert_string_equal(read.uuid, harpe_gpu_info_at(gpus, 0)->uuid);
    assert_string_equal(read.zeusd.socket, "/run/zeusd.sock");
    assert_string_equal(read.zeusd.host_port, "host:1");
    assert_int_equal(read.kind, HARPE_SAVED_POWER);
    assert_int_equal(read.trainer, harpe_process_self());
    assert_int_equal(read.power_limit_mw, saved->power_limit_mw);
    assert_int_equal(read.persistence, 1);
    assert_true(read.resets_clocks && read.locks_memory);
    assert_false(read.locks_graphics || read.yields);
    harpe_holding_release(holding);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_WORLD(clocks_come_first_and_values_are_checked_three_times),
        IN_WORLD(a_failure_does_not_keep_the_others_from_being_restored),
        IN_WORLD(the_first_failure_is_told),
        IN_WORLD(a_failed_call_is_tried_again_for_the_time),
        IN_WORLD(a_lost_gpu_is_tried_once),
        IN_WORLD(only_a_clock_that_was_never_locked_may_lack),
        IN_WORLD(a_lock_of_another_handle_is_reset),
        IN_WORLD(nothing_is_set_while_another_process_restores),
        IN_WORLD(a_handle_restores_again_what_it_could_not_restore),
        IN_WORLD(an_earlier_call_that_takes_effect_late_is_undone),
        IN_WORLD(a_program_that_keeps_changing_a_setting_is_told),
        IN_WORLD(a_slow_call_that_succeeds_is_enough),
        IN_WORLD(a_record_stays_while_something_is_changed),
        IN_WORLD(a_record_says_which_clocks_the_driver_has_locked),
        IN_WORLD(the_next_holder_restores_what_a_dead_job_has_left),
        IN_WORLD(a_lease_that_ends_is_restored_although_its_process_lives),
        IN_WORLD(a_lease_that_ends_leaves_the_record_of_a_dead_job_alone),
        IN_WORLD(a_record_of_a_later_version_stays),
        IN_WORLD(a_damaged_record_is_told),
        IN_WORLD(what_is_left_has_no_owner),
        IN_WORLD(every_line_of_a_record_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
