/* SPDX-License-Identifier: Apache-2.0 */
/* The power limit optimizer's flags, and the table and JSON of its measurements, for the two
 * subcommands that run an optimizer. */
#include "cli/power_limit/power_limit_options.h"

#include "cli/command.h"

enum {
    FLAG_SELECTOR = 0x400,
    FLAG_ETA,
    FLAG_FACTOR,
    FLAG_WAIT,
    FLAG_WARMUP,
    FLAG_PROFILE,
    FLAG_STEP,
    STEPS_MAX = 1000000000,
};

static const char *const selector_names[] = {"zeus-cost", "energy", "time", "max-slowdown", NULL};

static const struct argp_option flags_table[] = {
    {NULL, 0, NULL, 0, "Choice of the best limit:", 2},
    {"selector", FLAG_SELECTOR, "NAME", 0,
     "zeus-cost (default): lowest weighted cost of energy and time; energy: least energy; time: "
     "least time; max-slowdown: the lowest limit that is not too slow",
     2},
    {"eta", FLAG_ETA, "X", 0, "zeus-cost: 0 is all time, 1 all energy (default 0.5)", 2},
    {"factor", FLAG_FACTOR, "X", 0,
     "max-slowdown: at most X times the time at the highest limit (default 1.1)", 2},
    {NULL, 0, NULL, 0, "Measurement:", 3},
    {"wait-steps", FLAG_WAIT, "N", 0, "Steps to ignore at the start (default 1)", 3},
    {"warmup-steps", FLAG_WARMUP, "N", 0, "Warm-up steps at each limit (default 10)", 3},
    {"profile-steps", FLAG_PROFILE, "N", 0, "Steps to measure at each limit (default 40)", 3},
    {"pl-step", FLAG_STEP, "W", 0, "Difference between two limits in watts (default 25)", 3},
    {0},
};

static void initialise(harpe_power_limit_flags *flags) {
    *flags = (harpe_power_limit_flags){
        .parameters = {.eta = 0.5, .maximum_slowdown = 1.1, .world_size = 1},
        .options = {.wait_steps = -1, .warmup_steps = -1, .profile_steps = -1},
    };
}

static void check_complete(const struct argp_state *state, const harpe_power_limit_flags *flags) {
    if (flags->has_eta && flags->kind != HARPE_SELECTOR_ZEUS_COST)
        harpe_flag_fail(state, "--eta needs --selector zeus-cost");
    if (flags->has_factor && flags->kind != HARPE_SELECTOR_MAX_SLOWDOWN)
        harpe_flag_fail(state, "--factor needs --selector max-slowdown");
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    harpe_power_limit_flags *flags = state->input;
    harpe_power_limit_options *options = &flags->options;
    switch (key) {
    case ARGP_KEY_INIT: initialise(flags); return 0;
    case FLAG_SELECTOR:
        flags->kind =
            (harpe_selector_kind)harpe_flag_choice(state, "--selector", argument, selector_names);
        return 0;
    case FLAG_ETA:
        flags->parameters.eta = harpe_flag_double(state, "--eta", argument, 0, 1);
        flags->has_eta = true;
        return 0;
    case FLAG_FACTOR:
        flags->parameters.maximum_slowdown = harpe_flag_double(state, "--factor", argument, 1, 1e6);
        flags->has_factor = true;
        return 0;
    case FLAG_WAIT:
        options->wait_steps = harpe_flag_int(state, "--wait-steps", argument, 0, STEPS_MAX);
        return 0;
    case FLAG_WARMUP:
        options->warmup_steps = harpe_flag_int(state, "--warmup-steps", argument, 0, STEPS_MAX);
        return 0;
    case FLAG_PROFILE:
        options->profile_steps = harpe_flag_int(state, "--profile-steps", argument, 1, STEPS_MAX);
        return 0;
    case FLAG_STEP:
        options->step_w = harpe_flag_int(state, "--pl-step", argument, 1, 1000000);
        return 0;
    case ARGP_KEY_SUCCESS: check_complete(state, flags); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp harpe_power_limit_argp = {.options = flags_table, .parser = parse_flag};

harpe_status harpe_power_limit_flags_finish(harpe_power_limit_flags *flags, int gpu_count,
                                            harpe_error *error) {
    harpe_power_limit_selector *selector = &flags->options.selector;
    flags->parameters.world_size = gpu_count;
    switch (flags->kind) {
    case HARPE_SELECTOR_ENERGY: *selector = harpe_selector_energy(); return HARPE_OK;
    case HARPE_SELECTOR_TIME: *selector = harpe_selector_time(); return HARPE_OK;
    case HARPE_SELECTOR_MAX_SLOWDOWN:
        return harpe_selector_max_slowdown(&flags->parameters, selector, error);
    case HARPE_SELECTOR_ZEUS_COST:
    default: return harpe_selector_zeus_cost(&flags->parameters, selector, error);
    }
}

const char *harpe_power_limit_selector_name(const harpe_power_limit_flags *flags) {
    return selector_names[flags->kind];
}

/* ---- Telling --------------------------------------------------------------------------------- */

static void print_row(FILE *stream, const harpe_power_limit_flags *flags, int highest_w,
                      const harpe_power_limit_measurement *one, bool is_chosen) {
    fprintf(stream, "  %c %9d %12.3f %14.1f", is_chosen ? '*' : ' ', one->power_limit_w,
            one->time_s, one->energy_j);
    if (flags->kind == HARPE_SELECTOR_ZEUS_COST)
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

void harpe_power_limit_print_table(FILE *stream, const harpe_power_limit_flags *flags,
                                   const harpe_power_limit_measurement *measurements, size_t count,
                                   int optimum_w) {
    const harpe_power_limit_measurement *chosen = NULL;
    if (count == 0) return;
    bool has_cost = flags->kind == HARPE_SELECTOR_ZEUS_COST;
    fprintf(stream, "  %11s %12s %14s%s\n", "limit (W)", "time (s)", "energy (J)",
            has_cost ? "       cost (J)" : "");
    for (size_t i = 0; i < count; i++) {
        bool is_chosen = measurements[i].power_limit_w == optimum_w;
        print_row(stream, flags, measurements[0].power_limit_w, &measurements[i], is_chosen);
        if (is_chosen) chosen = &measurements[i];
    }
    if (chosen) print_saving(stream, &measurements[0], chosen);
}

json_t *harpe_power_limit_json(const harpe_power_limit_measurement *measurements, size_t count) {
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
