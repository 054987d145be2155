/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe power-limit run -- CMD`: finds and holds the best power limit for a command that signals
 * its steps, as a member of a fleet if the user wants. This file passes the marks to the optimizer,
 * which sets the limits and measures. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/token.h"
#include "cli/command.h"
#include "cli/marked_command.h"
#include "cli/power_limit/power_limit_internal.h"
#include "http/client/connection.h"

/* ---- The fleet ------------------------------------------------------------------------------- */

typedef struct member_flags {
    harpe_power_limit_fleet fleet;
    const char *token_file;
    char *token; /* owned */
} member_flags;

static void read_hold(void *into, struct argp_state *state, const char *flag, char *text) {
    *(double *)into = strcmp(text, "inf") == 0 ? (double)INFINITY
                                               : harpe_flag_double_above(state, flag, text, 0, 1e9);
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

/* ---- Flags ----------------------------------------------------------------------------------- */

typedef struct run_arguments {
    harpe_power_limit_flags flags;
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

static const harpe_command_line command_line = {
    .parts = {{.flags = run_flags},
              {.flags = harpe_power_limit_flag_table, .at = offsetof(run_arguments, flags)},
              {.flags = fleet_flags, .at = offsetof(run_arguments, fleet_flags)}},
    .command = offsetof(run_arguments, command),
    .forms = "-- CMD [ARG...]",
    .about =
        "Find and hold the best power limit for a command. The command marks its steps: it writes "
        "a line 'step' when each step begins, and a line 'epoch' when each epoch ends, to the file "
        "descriptor in HARPE_STEP_FD, or it calls harpe_power_limit_mark_step.\vExample:\n  harpe "
        "power-limit run --profile resnet18.json -- ./train\n\nSee also: man harpe-power-limit",
};

/* ---- Marks ----------------------------------------------------------------------------------- */

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

/* ---- Telling --------------------------------------------------------------------------------- */

static harpe_status tell(const run_arguments *arguments, const run_child *child,
                         const harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    bool has_failed = !optimizer || harpe_power_limit_has_failed(optimizer);
    if (arguments->json)
        return harpe_power_limit_print_json(&arguments->flags, optimizer, NULL,
                                            json_boolean(has_failed), child->step_count,
                                            child->epoch_count, error);
    harpe_power_limit_print_table(stderr, &arguments->flags, optimizer);
    if (has_failed) return HARPE_OK; /* the user has already seen the message */
    if (harpe_power_limit_is_done(optimizer)) {
        fprintf(stderr, "Optimum: %d W\n", harpe_power_limit_optimum_w(optimizer));
    } else if (child->step_count == 0) {
        fprintf(stderr,
                "harpe power-limit run: the command marked no steps: it should call "
                "harpe_power_limit_mark_step, or write a line 'step' to the file descriptor in "
                "HARPE_STEP_FD, as each begins; a launcher in between must not close this "
                "descriptor\n");
    } else {
        fprintf(stderr,
                "harpe power-limit run: ended after %lld steps, before all limits were "
                "measured\n",
                (long long)child->step_count);
    }
    return HARPE_OK;
}

/* ---- Running --------------------------------------------------------------------------------- */

/* The objects that set limits and measure. All are NULL if the GPUs cannot be used. */
typedef struct run_optimizer {
    harpe_gpus *gpus;
    harpe_power_limit_gpus *device;
    harpe_power_limit_optimizer *optimizer;
    harpe_text warnings; /* warnings about GPUs, not printed yet */
} run_optimizer;

/* Keeps a warning for later. If the GPUs cannot be used, the error says why, and the warning is not
 * printed. */
static void write_gpu_log(void *user, harpe_log_level level, const char *line) {
    run_optimizer *all = user;
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

static harpe_status set_up(run_arguments *arguments, run_optimizer *all, harpe_error *error) {
    harpe_gpus_options gpu_options = {.log = {.write = write_gpu_log, .user = all}};
    harpe_status status = harpe_gpus_open(&gpu_options, &all->gpus, error);
    if (status == HARPE_OK) {
        status =
            harpe_power_limit_gpus_new(all->gpus, !arguments->without_guard, &all->device, error);
    }
    if (status != HARPE_OK) return status;
    if (all->warnings.data) fputs(all->warnings.data, stderr);
    const harpe_power_limit_device *functions = harpe_power_limit_gpus_device(all->device);
    harpe_power_limit_options *options = &arguments->flags.options;
    options->profile_path = arguments->profile_path;
    options->device_model = harpe_gpu_info_at(all->gpus, 0)->name;
    options->log = (harpe_log){.write = write_log};
    status = harpe_power_limit_flags_finish(&arguments->flags, functions->gpu_count, error);
    if (status != HARPE_OK) return status;
    return harpe_power_limit_optimizer_new(functions, options, &all->optimizer, error);
}

static void tear_down(run_optimizer *all) {
    harpe_power_limit_optimizer_free(all->optimizer);
    harpe_power_limit_gpus_free(all->device);
    harpe_gpus_close(all->gpus);
    harpe_text_free(&all->warnings);
    *all = (run_optimizer){0};
}

int harpe_power_limit_run_command(int argc, char **argv) {
    run_arguments arguments = {.flags = harpe_power_limit_flags_defaults,
                               .fleet_flags.fleet.server_url = getenv("HARPE_SERVER")};
    run_child child = {0};
    const harpe_marks marks = {.program = "harpe power-limit run",
                               .step = take_step,
                               .epoch = take_epoch,
                               .pass_over = pass_over,
                               .caught_up = end_catching_up,
                               .user = &child};
    run_optimizer all = {0};
    harpe_error error;
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    if (!arguments.command)
        harpe_flag_fail(&state, "the command is missing: harpe power-limit run -- CMD");
    harpe_power_limit_flags_check(&arguments.flags, &state);
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
