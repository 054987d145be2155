/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe power-limit replay`: runs the real optimizer with a recorded log and prints the limits
 * that it sets. Steps are only counted, so a replay takes no time. It does not change a GPU. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/power_limit/power_limit_commands.h"
#include "cli/power_limit/power_limit_options.h"
#include "powerlimit/replay.h"

typedef struct replay_arguments {
    harpe_power_limit_flags flags;
    const char *log_path;
    int epoch_steps; /* 0: the epoch never ends */
    int epochs;      /* 0: as many as needed */
    bool json;
} replay_arguments;

/* The history of the run. */
typedef struct replay_course {
    int64_t step_count;
    int64_t epoch_count; /* number of epochs that have ended */
    harpe_text sequence; /* the limits that were set, with '|' where an epoch ended */
    size_t told_sets;
    bool epoch_ended; /* true if an epoch has ended since the last limit in `sequence` */
} replay_course;

/* ---- Flags ----------------------------------------------------------------------------------- */

enum { FLAG_EPOCH_STEPS = 0x500, FLAG_EPOCHS };

static const struct argp_option flags_table[] = {
    {"epoch-steps", FLAG_EPOCH_STEPS, "N", 0, "Epochs end every N steps (default 0: never)", 1},
    {"epochs", FLAG_EPOCHS, "N", 0, "Stop after N epochs (default: when it is done)", 1},
    {"json", 'j', NULL, 0, "Print one JSON object", 4},
    {0},
};

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    replay_arguments *arguments = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &arguments->flags; return 0;
    case FLAG_EPOCH_STEPS:
        arguments->epoch_steps = harpe_flag_int(state, "--epoch-steps", argument, 0, 1000000000);
        return 0;
    case FLAG_EPOCHS:
        arguments->epochs = harpe_flag_int(state, "--epochs", argument, 1, 1000000000);
        return 0;
    case 'j': arguments->json = true; return 0;
    case ARGP_KEY_ARG:
        if (arguments->log_path)
            harpe_flag_fail(state, "only one log is allowed, and '%s' is a second one", argument);
        arguments->log_path = argument;
        return 0;
    case ARGP_KEY_END:
        if (!arguments->log_path)
            harpe_flag_fail(state, "the log is missing: harpe power-limit replay LOG.csv");
        if (arguments->epochs && !arguments->epoch_steps)
            harpe_flag_fail(state, "--epochs needs --epoch-steps");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&harpe_power_limit_argp, 0, NULL, 0}, {0}};

static const struct argp argument_parser = {
    .options = flags_table,
    .parser = parse_flag,
    .args_doc = "LOG.csv",
    .doc = "Run the power limit optimizer against a monitor's log instead of a GPU, and print the "
           "power limits that it sets."
           "\vExample:\n  harpe power-limit replay log.csv --selector max-slowdown --factor 1.1\n\n"
           "See also: man harpe-power-limit",
    .children = children,
};

/* ---- Running --------------------------------------------------------------------------------- */

static void tell_new_sets(const harpe_power_limit_replay *replay, replay_course *course) {
    size_t count = 0;
    const int *sets_w = harpe_power_limit_replay_sets(replay, &count);
    for (; course->told_sets < count; course->told_sets++) {
        const char *separator = course->told_sets == 0 ? "" : course->epoch_ended ? " | " : " ";
        harpe_text_printf(&course->sequence, "%s%d", separator, sets_w[course->told_sets]);
        course->epoch_ended = false;
    }
}

static size_t measurement_count(const harpe_power_limit_optimizer *optimizer) {
    size_t count = 0;
    (void)harpe_power_limit_measurements(optimizer, &count);
    return count;
}

/* Runs an epoch, or the whole run if epochs never end. */
static void run_epoch(const replay_arguments *arguments, harpe_power_limit_optimizer *optimizer,
                      const harpe_power_limit_replay *replay, replay_course *course) {
    harpe_power_limit_on_epoch_begin(optimizer);
    for (int step = 0; arguments->epoch_steps == 0 || step < arguments->epoch_steps; step++) {
        harpe_power_limit_on_step_begin(optimizer);
        harpe_power_limit_on_step_end(optimizer);
        course->step_count++;
        tell_new_sets(replay, course);
        if (harpe_power_limit_is_done(optimizer) || harpe_power_limit_has_failed(optimizer)) return;
    }
    course->epoch_count++;
    course->epoch_ended = true;
    harpe_power_limit_on_epoch_end(optimizer);
    tell_new_sets(replay, course);
}

/* Runs until the optimizer is done or cannot finish. The optimizer cannot finish if an epoch that
 * began after the first wait_steps steps ends without a measurement, because all later epochs are
 * the same. */
static void run(const replay_arguments *arguments, harpe_power_limit_optimizer *optimizer,
                const harpe_power_limit_replay *replay, replay_course *course) {
    tell_new_sets(replay, course);
    int wait_steps = arguments->flags.options.wait_steps;
    wait_steps = wait_steps == -1 ? 1 : wait_steps;
    bool goes_on = true;
    while (goes_on) {
        size_t measured = measurement_count(optimizer);
        bool has_waited = course->step_count > wait_steps;
        run_epoch(arguments, optimizer, replay, course);
        bool is_stuck = has_waited && measurement_count(optimizer) == measured;
        bool is_over = arguments->epochs > 0 && course->epoch_count >= arguments->epochs;
        goes_on = !harpe_power_limit_is_done(optimizer) &&
                  !harpe_power_limit_has_failed(optimizer) && !is_stuck && !is_over;
    }
}

/* ---- Telling --------------------------------------------------------------------------------- */

/* Returns one list for each set, with a value for each GPU. */
static json_t *sets_json(harpe_power_limit_replay *replay) {
    size_t count = 0;
    const int *sets_w = harpe_power_limit_replay_sets(replay, &count);
    int gpu_count = harpe_power_limit_replay_device(replay)->gpu_count;
    json_t *sets = json_array();
    for (size_t i = 0; sets && i < count; i++) {
        json_t *set = json_array();
        for (int gpu = 0; gpu < gpu_count; gpu++)
            json_array_append_new(set, json_integer(sets_w[i]));
        json_array_append_new(sets, set);
    }
    return sets;
}

static harpe_status print_json(const replay_arguments *arguments,
                               const harpe_power_limit_optimizer *optimizer,
                               harpe_power_limit_replay *replay, const replay_course *course,
                               harpe_error *error) {
    size_t count = 0;
    const harpe_power_limit_measurement *measurements =
        harpe_power_limit_measurements(optimizer, &count);
    bool is_done = harpe_power_limit_is_done(optimizer);
    json_t *optimum = is_done ? json_integer(harpe_power_limit_optimum_w(optimizer)) : json_null();
    json_t *root = json_pack(
        "{s:o, s:o, s:o, s:s, s:b, s:I, s:I}", "power_limits_w", sets_json(replay), "optimum_w",
        optimum, "measurements", harpe_power_limit_json(measurements, count), "selector",
        harpe_power_limit_selector_name(&arguments->flags), "is_done", is_done, "steps",
        (json_int_t)course->step_count, "epochs", (json_int_t)course->epoch_count);
    return harpe_command_print_json(root, error);
}

static void print_text(const replay_arguments *arguments,
                       const harpe_power_limit_optimizer *optimizer, const replay_course *course) {
    size_t count = 0;
    const harpe_power_limit_measurement *measurements =
        harpe_power_limit_measurements(optimizer, &count);
    int optimum_w = harpe_power_limit_optimum_w(optimizer);
    printf("Power limits set: %s\n", course->sequence.data ? course->sequence.data : "");
    harpe_power_limit_print_table(stdout, &arguments->flags, measurements, count, optimum_w);
    if (harpe_power_limit_is_done(optimizer)) {
        printf("Optimum: %d W after %" PRId64 " steps\n", optimum_w, course->step_count);
    } else {
        printf("Not done after %" PRId64 " steps: epochs end before a limit is measured\n",
               course->step_count);
    }
}

static harpe_status replay_log(replay_arguments *arguments, harpe_power_limit_replay *replay,
                               harpe_error *error) {
    harpe_power_limit_optimizer *optimizer = NULL;
    replay_course course = {0};
    const harpe_power_limit_device *device = harpe_power_limit_replay_device(replay);
    harpe_power_limit_options *options = &arguments->flags.options;
    int step_w = options->step_w ? options->step_w : 25;
    options->log = harpe_command_log("harpe power-limit replay");
    harpe_status status = harpe_power_limit_replay_check(replay, step_w, error);
    if (status == HARPE_OK)
        status = harpe_power_limit_flags_finish(&arguments->flags, device->gpu_count, error);
    if (status == HARPE_OK)
        status = harpe_power_limit_optimizer_new(device, options, &optimizer, error);
    if (status != HARPE_OK) return status;
    run(arguments, optimizer, replay, &course);
    if (course.sequence.failed || harpe_power_limit_has_failed(optimizer))
        status = harpe_fail(error, HARPE_INTERNAL, "the optimizer stopped on a recorded log");
    else if (arguments->json)
        status = print_json(arguments, optimizer, replay, &course, error);
    else
        print_text(arguments, optimizer, &course);
    harpe_power_limit_optimizer_free(optimizer);
    harpe_text_free(&course.sequence);
    return status;
}

int harpe_power_limit_replay_command(int argc, char **argv) {
    replay_arguments arguments = {0};
    argp_parse(&argument_parser, argc, argv, 0, NULL, &arguments);
    harpe_power_limit_replay *replay = NULL;
    harpe_error error;
    harpe_status status = harpe_power_limit_replay_open(arguments.log_path, &replay, &error);
    if (status == HARPE_OK) status = replay_log(&arguments, replay, &error);
    harpe_power_limit_replay_free(replay);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("power-limit replay", &error);
}
