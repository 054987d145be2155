/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe power-limit`: `replay` runs the real optimizer with a recorded log and changes no GPU.
 * `run` finds and holds the best power limit for a command that signals its steps, as a member of a
 * fleet if the user wants: it passes the marks to the optimizer, which sets the limits and
 * measures. Also starts the guard, if the library has called this program for it. */
#include <inttypes.h>
#include <math.h>

#include "base/token.h"
#include "cli/cli.h"
#include "power_limit/guard.h"
#include "power_limit/replay.h"

/* In the order of the names of --selector. */
typedef enum selector_kind {
    SELECTOR_ZEUS_COST,
    SELECTOR_ENERGY,
    SELECTOR_TIME,
    SELECTOR_MAX_SLOWDOWN,
} selector_kind;

typedef struct power_limit_flags {
    selector_kind kind;
    harpe_selector_parameters parameters;
    bool has_eta, has_factor;
    harpe_power_limit_options options; /* without a selector until finish_flags */
} power_limit_flags;

#define STEPS_MAX 1000000000

static const char *const selector_names[] = {"zeus-cost", "energy", "time", "max-slowdown", NULL};

static const harpe_flag optimizer_flags[] = {
    {.help = "Choice of the best limit:", .group = 2},
    {"selector", 0, "NAME",
     "zeus-cost (default): lowest weighted cost of energy and time; energy: least energy; time: "
     "least time; max-slowdown: the lowest limit that is not too slow",
     2, HARPE_INTO(power_limit_flags, kind), .names = selector_names},
    {"eta", 0, "X", "zeus-cost: 0 is all time, 1 all energy (default 0.5)", 2,
     HARPE_INTO(power_limit_flags, parameters.eta), 0, 1,
     .given = offsetof(power_limit_flags, has_eta)},
    {"factor", 0, "X", "max-slowdown: at most X times the time at the highest limit (default 1.1)",
     2, HARPE_INTO(power_limit_flags, parameters.maximum_slowdown), 1, 1e6,
     .given = offsetof(power_limit_flags, has_factor)},
    {.help = "Measurement:", .group = 3},
    {"wait-steps", 0, "N", "Steps to ignore at the start (default 1)", 3,
     HARPE_INTO(power_limit_flags, options.wait_steps), 0, STEPS_MAX},
    {"warmup-steps", 0, "N", "Warm-up steps at each limit (default 10)", 3,
     HARPE_INTO(power_limit_flags, options.warmup_steps), 0, STEPS_MAX},
    {"profile-steps", 0, "N", "Steps to measure at each limit (default 40)", 3,
     HARPE_INTO(power_limit_flags, options.profile_steps), 1, STEPS_MAX},
    {"pl-step", 0, "W", "Difference between two limits in watts (default 25)", 3,
     HARPE_INTO(power_limit_flags, options.step_w), 1, 1000000},
    {0},
};

static const power_limit_flags default_flags = {
    .parameters = {.eta = 0.5, .maximum_slowdown = 1.1, .world_size = 1},
    .options = {.wait_steps = -1, .warmup_steps = -1, .profile_steps = -1},
};

static void check_flags(const power_limit_flags *flags, const struct argp_state *state) {
    if (flags->has_eta && flags->kind != SELECTOR_ZEUS_COST)
        harpe_flag_fail(state, "--eta needs --selector zeus-cost");
    if (flags->has_factor && flags->kind != SELECTOR_MAX_SLOWDOWN)
        harpe_flag_fail(state, "--factor needs --selector max-slowdown");
}

/* Completes `flags->options`. `flags` must not move afterwards. */
static harpe_status finish_flags(power_limit_flags *flags, int gpu_count, harpe_error *error) {
    harpe_power_limit_selector *selector = &flags->options.selector;
    flags->parameters.world_size = gpu_count;
    switch (flags->kind) {
    case SELECTOR_ENERGY: *selector = harpe_selector_energy(); return HARPE_OK;
    case SELECTOR_TIME: *selector = harpe_selector_time(); return HARPE_OK;
    case SELECTOR_MAX_SLOWDOWN:
        return harpe_selector_max_slowdown(&flags->parameters, selector, error);
    case SELECTOR_ZEUS_COST:
    default: return harpe_selector_zeus_cost(&flags->parameters, selector, error);
    }
}

/* ---- Results --------------------------------------------------------------------------------- */

static void print_row(FILE *stream, const power_limit_flags *flags, int highest_w,
                      const harpe_power_limit_measurement *one, bool is_chosen) {
    fprintf(stream, "  %c %9d %12.3f %14.1f", is_chosen ? '*' : ' ', one->power_limit_w,
            one->time_s, one->energy_j);
    if (flags->kind == SELECTOR_ZEUS_COST)
        fprintf(stream, " %14.1f", harpe_zeus_cost_j(&flags->parameters, highest_w, one));
    fputs(is_chosen ? "  chosen\n" : "\n", stream);
}

/* Prints a change in percent, such as "12.3 % less energy". */
static void print_change(FILE *stream, double before, double after, const char *of_what) {
    double change = (after - before) / before * 100;
    fprintf(stream, "%.1f %% %s %s", change < 0 ? -change : change, change <= 0 ? "less" : "more",
            of_what);
}

static void print_saving(FILE *stream, const harpe_power_limit_measurement *highest,
                         const harpe_power_limit_measurement *chosen) {
    fprintf(stream, "Against the highest limit, %d W: ", highest->power_limit_w);
    if (chosen == highest) {
        fputs("the same, it is the best itself\n", stream);
        return;
    }
    print_change(stream, highest->energy_j, chosen->energy_j, "energy, ");
    print_change(stream, highest->time_s, chosen->time_s, "time\n");
}

/* Prints a table, highest limit first: limit, time, energy, and, if the selector computes a cost,
 * the cost. Marks the row of the optimum, and prints its savings against the highest limit. Prints
 * nothing if there are no measurements. */
static void print_table(FILE *stream, const power_limit_flags *flags,
                        const harpe_power_limit_optimizer *optimizer) {
    size_t count = 0;
    const harpe_power_limit_measurement *chosen = NULL,
                                        *measurements =
                                            harpe_power_limit_measurements(optimizer, &count);
    int optimum_w = harpe_power_limit_optimum_w(optimizer);
    if (count == 0) return;
    bool has_cost = flags->kind == SELECTOR_ZEUS_COST;
    fprintf(stream, "  %11s %12s %14s%s\n", "limit (W)", "time (s)", "energy (J)",
            has_cost ? "       cost (J)" : "");
    for (size_t i = 0; i < count; i++) {
        bool is_chosen = measurements[i].power_limit_w == optimum_w;
        print_row(stream, flags, measurements[0].power_limit_w, &measurements[i], is_chosen);
        if (is_chosen) chosen = &measurements[i];
    }
    if (chosen) print_saving(stream, &measurements[0], chosen);
}

static json_t *measurements_json(const harpe_power_limit_optimizer *optimizer) {
    size_t count = 0;
    const harpe_power_limit_measurement *measurements =
        harpe_power_limit_measurements(optimizer, &count);
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        const harpe_power_limit_measurement *one = &measurements[i];
        if (json_array_append_new(array,
                                  json_pack("{s:i, s:f, s:f}", "power_limit", one->power_limit_w,
                                            "energy", one->energy_j, "time", one->time_s)) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

/* Prints the result as JSON. The keys of the measurements are those of the profile file, so that
 * the output can be used as a profile. `limits`: the limits that were set; `has_failed`: a boolean.
 * Both may be NULL, and are released. */
static harpe_status print_json(const power_limit_flags *flags,
                               const harpe_power_limit_optimizer *optimizer, json_t *limits,
                               json_t *has_failed, int64_t steps, int64_t epochs,
                               harpe_error *error) {
    bool is_done = harpe_power_limit_is_done(optimizer);
    json_t *optimum = is_done ? json_integer(harpe_power_limit_optimum_w(optimizer)) : json_null();
    return harpe_command_print_json(
        json_pack("{s:o*, s:o, s:o, s:s, s:b, s:o*, s:I, s:I}", "power_limits_w", limits,
                  "optimum_w", optimum, "measurements", measurements_json(optimizer), "selector",
                  selector_names[flags->kind], "is_done", is_done, "has_failed", has_failed,
                  "steps", (json_int_t)steps, "epochs", (json_int_t)epochs),
        error);
}

/* ---- replay: flags --------------------------------------------------------------------------- */

typedef struct replay_arguments {
    power_limit_flags flags;
    const char *log_path;
    int epoch_steps; /* 0: the epoch never ends */
    int epochs;      /* 0: as many as needed */
    bool json;
} replay_arguments;

/* What the run has done so far. */
typedef struct replay_course {
    int64_t step_count;
    int64_t epoch_count; /* number of epochs that have ended */
    harpe_text sequence; /* the limits that were set, with '|' where an epoch ended */
    size_t told_sets;
    bool epoch_ended; /* true if an epoch has ended since the last limit in `sequence` */
} replay_course;

static const harpe_flag replay_words[] = {{"LOG.csv", HARPE_INTO(replay_arguments, log_path)}, {0}};

static const harpe_flag replay_flags[] = {
    {"epoch-steps", 0, "N", "Epochs end every N steps (default 0: never)", 1,
     HARPE_INTO(replay_arguments, epoch_steps), 0, STEPS_MAX},
    {"epochs", 0, "N", "Stop after N epochs (default: when it is done)", 1,
     HARPE_INTO(replay_arguments, epochs), 1, STEPS_MAX},
    {"json", 'j', NULL, "Print one JSON object", 4, HARPE_INTO(replay_arguments, json)},
    {0},
};

static const harpe_command_line replay_line = {
    .parts = {{.flags = replay_flags},
              {.flags = optimizer_flags, .at = offsetof(replay_arguments, flags)}},
    .words = replay_words,
    .refusal = "is a second log, and only one log is allowed",
    .forms = "LOG.csv",
    .about =
        "Run the power limit optimizer against a monitor's log instead of a GPU, and print the "
        "power limits that it sets."
        "\vExample:\n  harpe power-limit replay log.csv --selector max-slowdown --factor 1.1\n\n"
        "See also: man harpe-power-limit",
};

static void check_replay(const replay_arguments *arguments, const struct argp_state *state) {
    check_flags(&arguments->flags, state);
    if (!arguments->log_path)
        harpe_flag_fail(state, "the log is missing: harpe power-limit replay LOG.csv");
    if (arguments->epochs && !arguments->epoch_steps)
        harpe_flag_fail(state, "--epochs needs --epoch-steps");
}

/* ---- replay: running ------------------------------------------------------------------------- */

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
static void run_optimizer(const replay_arguments *arguments, harpe_power_limit_optimizer *optimizer,
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

/* ---- replay: telling ------------------------------------------------------------------------- */

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

static void print_text(const replay_arguments *arguments,
                       const harpe_power_limit_optimizer *optimizer, const replay_course *course) {
    printf("Power limits set: %s\n", course->sequence.data ? course->sequence.data : "");
    print_table(stdout, &arguments->flags, optimizer);
    if (harpe_power_limit_is_done(optimizer)) {
        printf("Optimum: %d W after %" PRId64 " steps\n", harpe_power_limit_optimum_w(optimizer),
               course->step_count);
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
    if (status == HARPE_OK) status = finish_flags(&arguments->flags, device->gpu_count, error);
    if (status == HARPE_OK)
        status = harpe_power_limit_optimizer_new(device, options, &optimizer, error);
    if (status != HARPE_OK) return status;
    run_optimizer(arguments, optimizer, replay, &course);
    if (course.sequence.failed || harpe_power_limit_has_failed(optimizer))
        status = harpe_fail(error, HARPE_INTERNAL, "the optimizer stopped on a recorded log");
    else if (arguments->json)
        status = print_json(&arguments->flags, optimizer, sets_json(replay), NULL,
                            course.step_count, course.epoch_count, error);
    else
        print_text(arguments, optimizer, &course);
    harpe_power_limit_optimizer_free(optimizer);
    harpe_text_free(&course.sequence);
    return status;
}

static int replay_command(int argc, char **argv) {
    replay_arguments arguments = {.flags = default_flags};
    struct argp_state state = harpe_command_line_read(&replay_line, argc, argv, &arguments);
    check_replay(&arguments, &state);
    harpe_power_limit_replay *replay = NULL;
    harpe_error error;
    harpe_status status = harpe_power_limit_replay_open(arguments.log_path, &replay, &error);
    if (status == HARPE_OK) status = replay_log(&arguments, replay, &error);
    harpe_power_limit_replay_free(replay);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("power-limit replay", &error);
}

/* ---- run: the fleet -------------------------------------------------------------------------- */

typedef struct member_flags {
    harpe_power_limit_fleet fleet;
    const char *token_file;
    char *token; /* owned */
} member_flags;

static void read_hold(void *into, struct argp_state *state, const char *flag, char *text) {
    *(double *)into = strcmp(text, "inf") == 0 ? (double)INFINITY
                                               : harpe_flag_double(state, flag, text, 0, 1e9, true);
}

static const harpe_flag fleet_flags[] = {
    {.help = "Fleet:", .group = 4},
    {"server", 0, "URL",
     "Be a member of the fleet of this server ($HARPE_SERVER; an empty URL: of none)", 4,
     HARPE_INTO(member_flags, fleet.server_url)},
    {"member", 0, "NAME", "Name of the member (default: made from host and job)", 4,
     HARPE_INTO(member_flags, fleet.member)},
    {"group", 0, "NAME", "Group of the member (default: none)", 4,
     HARPE_INTO(member_flags, fleet.group)},
    {"weight", 0, "N", "Value of the job's time (default 1)", 4,
     HARPE_INTO(member_flags, fleet.weight), 0, 1e12, .is_above = true},
    {"max-slowdown", 0, "X", "Accept at most X times the time of the fastest plan (default: any)",
     4, HARPE_INTO(member_flags, fleet.max_slowdown), 1, 1e9},
    {"hold", 0, "SECONDS",
     "Keep the fleet's limit so long if the server gives none (default 3600; inf: for ever)", 4,
     HARPE_READ(read_hold, member_flags, fleet.hold_s)},
    {"token-file", 0, "FILE", "File whose first line is the server's bearer token (HARPE_TOKEN)", 4,
     HARPE_INTO(member_flags, token_file)},
    {"ca-file", 0, "FILE", "Trust these certificate authorities (PEM)", 4,
     HARPE_INTO(member_flags, fleet.ca_file)},
    {0},
};

static void check_fleet(const member_flags *flags, const struct argp_state *state) {
    const harpe_power_limit_fleet *fleet = &flags->fleet;
    const char *url = fleet->server_url;
    const char *own = fleet->member             ? "member"
                      : fleet->group            ? "group"
                      : fleet->weight > 0       ? "weight"
                      : fleet->max_slowdown > 0 ? "max-slowdown"
                      : fleet->hold_s > 0       ? "hold"
                      : flags->token_file       ? "token-file"
                      : fleet->ca_file          ? "ca-file"
                                                : NULL;
    harpe_error error;
    if (own && (!url || !*url))
        harpe_flag_fail(state, "--%s needs --server URL, or HARPE_SERVER", own);
    if (url && *url && harpe_server_url_check("--server", url, &error) != HARPE_OK)
        harpe_flag_fail(state, "%s", error.message);
}

/* Reads the file of the token. Returns the fleet of the job in `*out`; NULL: none. */
static harpe_status finish_fleet(member_flags *flags, const harpe_power_limit_fleet **out,
                                 harpe_error *error) {
    harpe_power_limit_fleet *fleet = &flags->fleet;
    *out = NULL;
    if (!fleet->server_url || !*fleet->server_url) return HARPE_OK;
    if (flags->token_file) {
        harpe_status status =
            harpe_token_read(flags->token_file, "--token-file", &flags->token, error);
        if (status != HARPE_OK) return status;
        fleet->token = flags->token;
    }
    *out = fleet;
    return HARPE_OK;
}

static void free_fleet(member_flags *flags) {
    if (flags->token) explicit_bzero(flags->token, strlen(flags->token));
    free(flags->token);
    flags->token = NULL;
    flags->fleet.token = NULL;
}

/* ---- run: flags ------------------------------------------------------------------------------ */

typedef struct run_arguments {
    power_limit_flags flags;
    member_flags fleet_flags;
    const char *profile_path;
    char **command;
    bool json;
    bool without_guard;
} run_arguments;

/* The running command, and the optimizer that its marks reach. */
typedef struct run_child {
    harpe_marked_command command;
    harpe_power_limit_optimizer *optimizer; /* NULL: none */
    bool is_catching_up; /* true from a change of limit until no step signal waits */
    int64_t step_count, epoch_count;
} run_child;

static const harpe_flag run_flags[] = {
    {"profile", 0, "FILE",
     "Use the measurements of an earlier run in this file, or write them for the next run", 1,
     HARPE_INTO(run_arguments, profile_path)},
    {"no-guard", 0, NULL, "Start no process that restores limits if this one is killed", 1,
     HARPE_INTO(run_arguments, without_guard)},
    {"json", 'j', NULL, "At the end print one JSON object on standard output", 5,
     HARPE_INTO(run_arguments, json)},
    {0},
};

static const harpe_command_line run_line = {
    .parts = {{.flags = run_flags},
              {.flags = optimizer_flags, .at = offsetof(run_arguments, flags)},
              {.flags = fleet_flags, .at = offsetof(run_arguments, fleet_flags)}},
    .command = offsetof(run_arguments, command),
    .forms = "-- CMD [ARG...]",
    .about =
        "Find and hold the best power limit for a command. The command marks its steps: it writes "
        "a line 'step' when each step begins, and a line 'epoch' when each epoch ends, to the file "
        "descriptor in HARPE_STEP_FD, or it calls harpe_power_limit_mark_step.\vExample:\n  harpe "
        "power-limit run --profile resnet18.json -- ./train\n\nSee also: man harpe-power-limit",
};

/* ---- run: marks ------------------------------------------------------------------------------ */

/* Setting a limit may take longer than a step. The steps that begin meanwhile are over when their
 * signals are read. They are skipped, because their windows would be too short. */
static void take_step(void *user) {
    run_child *child = user;
    child->step_count++;
    if (child->is_catching_up) return;
    int limit_w = harpe_power_limit_current_w(child->optimizer);
    harpe_power_limit_on_step_begin(child->optimizer);
    child->is_catching_up = harpe_power_limit_current_w(child->optimizer) != limit_w;
}

static void take_epoch(void *user) {
    run_child *child = user;
    child->epoch_count++;
    int limit_w = harpe_power_limit_current_w(child->optimizer);
    harpe_power_limit_on_epoch_end(child->optimizer);
    if (harpe_power_limit_current_w(child->optimizer) != limit_w) child->is_catching_up = true;
}

static void end_catching_up(void *user) {
    run_child *child = user;
    child->is_catching_up = false;
}

/* This process was stopped. The steps that were signalled meanwhile are only counted. The current
 * measurement covers more than its own steps. This function ends it as at the end of an epoch, and
 * the optimizer then measures the same limit again. */
static void pass_over(void *user, uint64_t steps, uint64_t epochs) {
    run_child *child = user;
    child->is_catching_up = true;
    child->step_count += (int64_t)steps;
    child->epoch_count += (int64_t)epochs;
    harpe_power_limit_on_epoch_end(child->optimizer);
}

/* ---- run: telling ---------------------------------------------------------------------------- */

static harpe_status tell(const run_arguments *arguments, const run_child *child,
                         const harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    bool has_failed = !optimizer || harpe_power_limit_has_failed(optimizer);
    if (arguments->json)
        return print_json(&arguments->flags, optimizer, NULL, json_boolean(has_failed),
                          child->step_count, child->epoch_count, error);
    print_table(stderr, &arguments->flags, optimizer);
    if (has_failed) return HARPE_OK; /* the user has already seen the message */
    if (harpe_power_limit_is_done(optimizer)) {
        fprintf(stderr, "Optimum: %d W\n", harpe_power_limit_optimum_w(optimizer));
    } else if (child->step_count == 0) {
        fprintf(stderr, "harpe power-limit run: the command marked no steps: it should call "
                        "harpe_power_limit_mark_step, or write a line 'step' to the file "
                        "descriptor in HARPE_STEP_FD, as each begins; a launcher in between must "
                        "not close this descriptor\n");
    } else {
        fprintf(stderr,
                "harpe power-limit run: ended after %lld steps, before all limits were measured\n",
                (long long)child->step_count);
    }
    return HARPE_OK;
}

/* ---- run: running ---------------------------------------------------------------------------- */

/* The objects that set limits and measure. All are NULL if the GPUs cannot be used. */
typedef struct optimization {
    harpe_gpus *gpus;
    harpe_power_limit_gpus *device;
    harpe_power_limit_optimizer *optimizer;
    harpe_text warnings; /* warnings about GPUs, not printed yet */
} optimization;

/* Keeps a warning for later. If the GPUs cannot be used, the error says why, and the warning is not
 * printed. */
static void write_gpu_log(void *user, harpe_log_level level, const char *line) {
    optimization *all = user;
    if (level < HARPE_LOG_WARNING) return;
    if (all->device)
        harpe_command_say("harpe power-limit run", line);
    else
        harpe_text_printf(&all->warnings, "harpe power-limit run: %s\n", line);
}

/* Prints warnings, and also what the member of a fleet reports about its server (INFO). */
static void write_log(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level >= HARPE_LOG_INFO) harpe_command_say("harpe power-limit run", line);
}

static harpe_status set_up(run_arguments *arguments, optimization *all, harpe_error *error) {
    harpe_gpus_options gpu_options = {.log = {.write = write_gpu_log, .user = all}};
    harpe_status status = harpe_gpus_open(&gpu_options, &all->gpus, error);
    if (status == HARPE_OK)
        status =
            harpe_power_limit_gpus_new(all->gpus, !arguments->without_guard, &all->device, error);
    if (status != HARPE_OK) return status;
    if (all->warnings.data) fputs(all->warnings.data, stderr);
    const harpe_power_limit_device *functions = harpe_power_limit_gpus_device(all->device);
    harpe_power_limit_options *options = &arguments->flags.options;
    options->profile_path = arguments->profile_path;
    options->device_model = harpe_gpu_info_at(all->gpus, 0)->name;
    options->log = (harpe_log){.write = write_log};
    status = finish_flags(&arguments->flags, functions->gpu_count, error);
    if (status != HARPE_OK) return status;
    return harpe_power_limit_optimizer_new(functions, options, &all->optimizer, error);
}

static void tear_down(optimization *all) {
    harpe_power_limit_optimizer_free(all->optimizer);
    harpe_power_limit_gpus_free(all->device);
    harpe_gpus_close(all->gpus);
    harpe_text_free(&all->warnings);
    *all = (optimization){0};
}

static int run_command(int argc, char **argv) {
    run_arguments arguments = {.flags = default_flags,
                               .fleet_flags.fleet.server_url = getenv("HARPE_SERVER")};
    run_child child = {0};
    const harpe_marks marks = {.program = "harpe power-limit run",
                               .step = take_step,
                               .epoch = take_epoch,
                               .pass_over = pass_over,
                               .caught_up = end_catching_up,
                               .user = &child};
    optimization all = {0};
    harpe_error error;
    struct argp_state state = harpe_command_line_read(&run_line, argc, argv, &arguments);
    if (!arguments.command)
        harpe_flag_fail(&state, "the command is missing: harpe power-limit run -- CMD");
    check_flags(&arguments.flags, &state);
    check_fleet(&arguments.fleet_flags, &state);
    harpe_status status =
        finish_fleet(&arguments.fleet_flags, &arguments.flags.options.fleet, &error);
    if (status != HARPE_OK) return harpe_command_fail("power-limit run", &error);
    status = set_up(&arguments, &all, &error);
    free_fleet(&arguments.fleet_flags); /* the optimizer has a copy of the token */
    /* If the GPUs caused the failure, the command runs without an optimizer. */
    bool is_users_mistake = all.device && harpe_marked_command_is_users_mistake(status);
    if (status != HARPE_OK && !is_users_mistake) {
        tear_down(&all);
        fprintf(stderr,
                "harpe power-limit run: the command runs without power limit optimization: %s\n",
                error.message);
        status = HARPE_OK;
    }
    child.optimizer = all.optimizer;
    if (status == HARPE_OK) status = harpe_marked_command_prepare(&child.command, &marks, &error);
    if (status == HARPE_OK)
        status = harpe_marked_command_start(&child.command, arguments.command, NULL, &error);
    if (status == HARPE_OK) {
        harpe_marked_command_follow(&child.command);
        harpe_marked_command_close(&child.command);
        status = tell(&arguments, &child, all.optimizer, &error);
    }
    tear_down(&all);
    return status == HARPE_OK ? harpe_command_exit_code(child.command.wait_code)
                              : harpe_command_fail("power-limit run", &error);
}

/* ---- The command ----------------------------------------------------------------------------- */

static const harpe_command subcommands[] = {
    {"replay", "Run the optimizer against a recorded log", replay_command},
    {"run", "Find and hold the best power limit for a command", run_command},
};
enum { SUBCOMMAND_COUNT = sizeof subcommands / sizeof subcommands[0] };

static void print_help(FILE *stream) {
    fprintf(stream, "Usage: harpe power-limit SUBCOMMAND [OPTION...]\nFind the GPU power limit "
                    "that suits a training job best, while it trains.\n\n");
    for (size_t i = 0; i < SUBCOMMAND_COUNT; i++)
        fprintf(stream, "  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
    fprintf(stream, "\nExamples:\n"
                    "  harpe power-limit replay log.csv --selector zeus-cost --eta 0.5\n"
                    "  harpe emulate --gpus 1xV100 -- harpe power-limit run -- ./train\n\n"
                    "See also: man harpe-power-limit\n");
}

int harpe_power_limit_command(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return HARPE_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-?") == 0) {
        print_help(stdout);
        return HARPE_EXIT_OK;
    }
    if (strcmp(name, "--usage") == 0) {
        puts("Usage: harpe power-limit [-?] [--help] [--usage] replay|run [OPTION...]");
        return HARPE_EXIT_OK;
    }
    if (strcmp(name, HARPE_GUARD_ARGUMENT) == 0)
        return harpe_power_limit_guard_main(argc - 1, argv + 1);
    int code = harpe_command_dispatch(subcommands, SUBCOMMAND_COUNT, "harpe power-limit", argc - 1,
                                      argv + 1);
    const struct argp_state state = {.name = "harpe power-limit"}; /* for the message */
    if (code < 0)
        harpe_flag_fail(&state,
                        "there is no '%.100s'; it is replay or run: try 'harpe power-limit --help'",
                        name);
    return code;
}
