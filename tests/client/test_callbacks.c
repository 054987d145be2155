/* SPDX-License-Identifier: Apache-2.0 */
/* A callback set: every event reaches all interested callbacks, in order. */
#include "test.h"

#include <harpe/power_limit.h>
#include <harpe/training.h>

OWNER(harpe_callback_set)
OWNER(harpe_power_limit_optimizer)

typedef struct rider {
    const char *name;
    char *diary; /* shared */
} rider;

static void note(void *user, const char *event, const char *detail) {
    rider *one = user;
    size_t length = strlen(one->diary);
    snprintf(one->diary + length, 1024 - length, "%s:%s%s ", one->name, event, detail);
}

static void train_begin(void *user) { note(user, "train_begin", ""); }
static void train_end(void *user) { note(user, "train_end", ""); }
static void epoch_begin(void *user) { note(user, "epoch_begin", ""); }
static void epoch_end(void *user) { note(user, "epoch_end", ""); }
static void step_begin(void *user) { note(user, "step_begin", ""); }
static void step_end(void *user) { note(user, "step_end", ""); }
static void evaluate(void *user, double metric) {
    char text[32];
    snprintf(text, sizeof text, "=%g", metric);
    note(user, "evaluate", text);
}
static void begin(void *user, const char *instruction) { note(user, "begin_", instruction); }
static void end(void *user, const char *instruction) { note(user, "end_", instruction); }

static harpe_training_callback all_of(rider *one) {
    return (harpe_training_callback){one,        train_begin, train_end, epoch_begin, epoch_end,
                                     step_begin, step_end,    evaluate,  begin,       end};
}

static void run_everything(const harpe_callback_set *set) {
    harpe_on_train_begin(set);
    harpe_on_epoch_begin(set);
    harpe_on_step_begin(set);
    harpe_on_instruction_begin(set, "forward");
    harpe_on_instruction_end(set, "forward");
    harpe_on_step_end(set);
    harpe_on_evaluate(set, 0.5);
    harpe_on_epoch_end(set);
    harpe_on_train_end(set);
}

TEST(every_event_reaches_its_function) {
    char diary[1024] = "";
    rider one = {"a", diary};
    harpe_training_callback callback = all_of(&one);
    harpe_callback_set *set = NULL;
    assert_works(harpe_callback_set_new(&callback, 1, &set, &failure));
    run_everything(set);
    harpe_callback_set_free(set);
    assert_string_equal(diary, "a:train_begin a:epoch_begin a:step_begin a:begin_forward "
                               "a:end_forward a:step_end a:evaluate=0.5 a:epoch_end a:train_end ");
}

TEST(riders_are_called_in_the_order_in_which_they_came) {
    char diary[1024] = "";
    rider riders[] = {{"a", diary}, {"b", diary}, {"c", diary}};
    harpe_training_callback first[] = {all_of(&riders[0]), {.user = &riders[1]}};
    harpe_training_callback last = {.user = &riders[2], .on_step_begin = step_begin};
    harpe_callback_set *set = NULL;
    assert_works(harpe_callback_set_new(first, 2, &set, &failure));
    assert_works(harpe_callback_set_add(set, &last, &failure));
    harpe_on_step_begin(set);
    harpe_on_step_end(set);
    harpe_callback_set_free(set);
    assert_string_equal(diary, "a:step_begin c:step_begin a:step_end ");
}

TEST(a_set_may_be_empty_or_missing) {
    OWNED(harpe_callback_set) set = NULL;
    run_everything(NULL);
    assert_works(harpe_callback_set_new(NULL, 0, &set, &failure));
    run_everything(set);
    harpe_callback_set_free(NULL);
}

TEST(what_is_missing_is_an_error) {
    harpe_callback_set *set = NULL;
    assert_int_equal(harpe_callback_set_new(NULL, 1, &set, &failure), HARPE_INVALID_ARGUMENT);
    assert_null(set);
    assert_int_equal(harpe_callback_set_add(NULL, NULL, &failure), HARPE_INVALID_ARGUMENT);
}

/* ---- The power limit optimizer in a set ------------------------------------------------------ */

typedef struct device_diary {
    int sets, windows;
} device_diary;

static harpe_status set_limit(void *user, int limit_w, harpe_error *error) {
    (void)limit_w, (void)error;
    ((device_diary *)user)->sets++;
    return HARPE_OK;
}

static harpe_status begin_window(void *user, const char *name, harpe_error *error) {
    (void)name, (void)error;
    ((device_diary *)user)->windows++;
    return HARPE_OK;
}

static harpe_status end_window(void *user, const char *name, bool cancel, double *energy_j,
                               double *time_s, harpe_error *error) {
    (void)user, (void)name, (void)error;
    if (!cancel) {
        *energy_j = 10;
        *time_s = 1;
    }
    return HARPE_OK;
}

TEST(the_power_limit_optimizer_rides_in_a_set) {
    device_diary diary = {0};
    harpe_power_limit_device device = {.user = &diary,
                                       .gpu_count = 1,
                                       .minimum_w = 100,
                                       .maximum_w = 150,
                                       .set_limit = set_limit,
                                       .begin_window = begin_window,
                                       .end_window = end_window};
    harpe_power_limit_options options = {
        .wait_steps = 0, .warmup_steps = 1, .profile_steps = 2, .world_size = 1};
    OWNED(harpe_power_limit_optimizer) optimizer = NULL;
    OWNED(harpe_callback_set) set = NULL;
    assert_works(harpe_power_limit_optimizer_new(&device, &options, &optimizer, &failure));
    harpe_training_callback callback = harpe_power_limit_callback(optimizer);
    assert_works(harpe_callback_set_new(&callback, 1, &set, &failure));
    harpe_on_epoch_begin(set);
    for (int step = 0; step < 20; step++) {
        harpe_on_step_begin(set);
        harpe_on_step_end(set);
    }
    assert_true(harpe_power_limit_is_done(optimizer));
    assert_int_equal(diary.windows, 3); /* 150, 125 and 100 W */
    harpe_on_epoch_end(set);
}
