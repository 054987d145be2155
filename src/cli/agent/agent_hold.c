/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe agent hold`: runs a command while GPUs have a clock or a power limit. It uses the node
 * agent, or the driver if there is no agent and this process has the privilege. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <harpe/frequency_controller.h>
#include <harpe/gpu.h>
#include <harpe/power_limit.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/wait.h"
#include "cli/agent/agent_commands.h"
#include "cli/command.h"
#include "cli/gpu_names.h"
#include "client/controller.h"
#include "gpu/gpus.h"

#define SET_LIMIT_S 10.0
#define LOOK_NS 1000000
#define AGAIN_NS 1000000000

enum { TEND_MS = 1000, GPU_LIMIT = 64 };

typedef struct hold_arguments {
    char *names[GPU_LIMIT]; /* as the user has given them */
    int name_count;         /* 0: GPU 0 */
    bool all;
    int gpu[GPU_LIMIT]; /* the GPUs that the names mean */
    int gpu_count;
    int clock_mhz, limit_w; /* 0: not given */
    bool waits;
    char **command;
} hold_arguments;

typedef struct holding {
    const hold_arguments *arguments;
    harpe_gpus *gpus;
    harpe_frequency_controller *controllers[GPU_LIMIT];
    harpe_gpus *limited; /* only the chosen GPUs */
    harpe_power_limit_gpus *limits;
    bool is_clock_told[GPU_LIMIT], is_limit_told; /* a fault was reported */
} holding;

/* ---- Flags ----------------------------------------------------------------------------------- */

enum { FLAG_GPU = 0x740, FLAG_CLOCK, FLAG_LIMIT, FLAG_WAIT };

static const struct argp_option flags[] = {
    {"gpu", FLAG_GPU, "GPU[,GPU...]", 0,
     "The GPUs: numbers as `harpe gpus` counts, UUIDs or PCI addresses; or all (0)", 1},
    {"clock", FLAG_CLOCK, "MHZ", 0, "Lock the graphics clock at MHZ", 1},
    {"power-limit", FLAG_LIMIT, "W", 0, "Set the power limit to W watts", 1},
    {"wait", FLAG_WAIT, NULL, 0, "Wait while another process holds a GPU", 1},
    {0},
};

static void read_gpus(hold_arguments *arguments, const struct argp_state *state, char *text) {
    char *rest = NULL;
    arguments->name_count = 0;
    arguments->all = strcmp(text, "all") == 0;
    if (arguments->all) return;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (arguments->name_count == GPU_LIMIT)
            harpe_flag_fail(state, "--gpu: more than %d GPUs", GPU_LIMIT);
        arguments->names[arguments->name_count++] = one;
    }
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    hold_arguments *arguments = state->input;
    switch (key) {
    case FLAG_GPU: read_gpus(arguments, state, argument); return 0;
    case FLAG_CLOCK:
        arguments->clock_mhz = harpe_flag_int(state, "clock", argument, 1, 65535);
        return 0;
    case FLAG_LIMIT:
        arguments->limit_w = harpe_flag_int(state, "power-limit", argument, 1, 100000);
        return 0;
    case FLAG_WAIT: arguments->waits = true; return 0;
    case ARGP_KEY_ARG:
        arguments->command = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if (!arguments->command)
            harpe_flag_fail(state, "the command is missing: harpe agent hold --clock MHZ -- CMD");
        if (arguments->clock_mhz == 0 && arguments->limit_w == 0)
            harpe_flag_fail(state, "nothing to hold: give --clock MHZ or --power-limit W");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = flags,
    .parser = parse_flag,
    .args_doc = "-- CMD [ARG...]",
    .doc = "Run a command while GPUs have a clock or a power limit. No privilege is needed where "
           "the node agent runs. The GPUs are restored when the command ends.\v"
           "Example:\n  harpe agent hold --gpu 0 --clock 1200 -- ./train\n\n"
           "See also: man harpe-agent",
};

/* ---- Setting --------------------------------------------------------------------------------- */

static harpe_status choose_gpu(hold_arguments *arguments, const harpe_gpu_names *names,
                               const char *name, harpe_error *error) {
    int gpu = 0;
    harpe_status status = harpe_gpu_names_find(names, "--gpu", name, &gpu, error);
    if (status != HARPE_OK) return status;
    for (int i = 0; i < arguments->gpu_count; i++)
        if (arguments->gpu[i] == gpu)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT, "--gpu: GPU %d twice", gpu);
    arguments->gpu[arguments->gpu_count++] = gpu;
    return HARPE_OK;
}

static harpe_status choose_gpus(hold_arguments *arguments, const harpe_gpus *gpus,
                                harpe_error *error) {
    int count = harpe_gpus_count(gpus);
    if (arguments->all) {
        arguments->gpu_count = count < GPU_LIMIT ? count : GPU_LIMIT;
        for (int i = 0; i < arguments->gpu_count; i++)
            arguments->gpu[i] = i;
        return HARPE_OK;
    }
    static char first[] = "0";
    if (arguments->name_count == 0) arguments->names[arguments->name_count++] = first;
    harpe_gpu_names names = harpe_gpu_names_ask(gpus, NULL);
    harpe_status status = HARPE_OK;
    for (int i = 0; i < arguments->name_count && status == HARPE_OK; i++)
        status = choose_gpu(arguments, &names, arguments->names[i], error);
    harpe_gpu_names_free(&names);
    return status;
}

static harpe_status check_clock(harpe_gpus *gpus, int gpu, int wanted_mhz, harpe_error *error) {
    uint32_t memory_mhz = 0;
    uint32_t *clocks = NULL;
    size_t count = 0;
    harpe_status status =
        harpe_gpus_full_speed_clocks(gpus, gpu, &memory_mhz, &clocks, &count, error);
    if (status != HARPE_OK) return status;
    uint32_t closest = clocks[0];
    for (size_t i = 0; i < count; i++)
        if (labs((long)clocks[i] - wanted_mhz) < labs((long)closest - wanted_mhz))
            closest = clocks[i];
    if (closest != (uint32_t)wanted_mhz)
        status =
            harpe_fail(error, HARPE_INVALID_ARGUMENT,
                       "--clock: GPU %d does not offer %d MHz; the closest is %u MHz (%u to %u)",
                       gpu, wanted_mhz, closest, clocks[count - 1], clocks[0]);
    free(clocks);
    return status;
}

/* Waits until the clock is set. */
static harpe_status wait_for_clock(harpe_frequency_controller *controller, int gpu,
                                   harpe_error *error) {
    double give_up_at = harpe_clock_s() + SET_LIMIT_S;
    for (;;) {
        harpe_status status = harpe_frequency_controller_check(controller, error);
        if (status != HARPE_OK) return status;
        harpe_frequency_controller_counts counts = harpe_frequency_controller_count(controller);
        if (counts.written + counts.skipped >= counts.clock_requests) return HARPE_OK;
        if (harpe_clock_s() > give_up_at)
            return harpe_fail(error, HARPE_UNAVAILABLE,
                              "GPU %d: the clock is not set after %.0f s: does the driver answer?",
                              gpu, SET_LIMIT_S);
        harpe_sleep_ns(LOOK_NS);
    }
}

static harpe_status hold_clock(holding *all, int i, harpe_error *error) {
    int gpu = all->arguments->gpu[i];
    harpe_status status = check_clock(all->gpus, gpu, all->arguments->clock_mhz, error);
    if (status != HARPE_OK) return status;
    harpe_frequency_controller_options how = {.gpus = all->gpus,
                                              .gpu = gpu,
                                              .poll_interval_s = -1,
                                              .log = harpe_command_log("harpe agent hold")};
    status = harpe_frequency_controller_start(&how, &all->controllers[i], error);
    if (status != HARPE_OK) return status;
    harpe_frequency_controller_set(all->controllers[i], all->arguments->clock_mhz);
    return wait_for_clock(all->controllers[i], gpu, error);
}

/* Opens only the chosen GPUs, because the device sets the limit of each GPU that it has. */
static harpe_status open_limited(holding *all, harpe_error *error) {
    harpe_text list = {0};
    for (int i = 0; i < all->arguments->gpu_count; i++)
        harpe_text_printf(&list, "%s%s", i > 0 ? "," : "",
                          harpe_gpu_info_at(all->gpus, all->arguments->gpu[i])->uuid);
    harpe_gpus_options how = {.visible_devices = list.data,
                              .log = harpe_command_log("harpe agent hold")};
    harpe_status status =
        list.failed ? harpe_fail_memory(error) : harpe_gpus_open(&how, &all->limited, error);
    harpe_text_free(&list);
    return status;
}

static harpe_status set_limit(const holding *all, harpe_error *error) {
    const harpe_power_limit_device *device = harpe_power_limit_gpus_device(all->limits);
    return device->set_limit(device->user, all->arguments->limit_w, error);
}

static harpe_status hold_limit(holding *all, harpe_error *error) {
    harpe_status status = all->limited ? HARPE_OK : open_limited(all, error);
    if (status == HARPE_OK)
        status = harpe_power_limit_gpus_new(all->limited, true, &all->limits, error);
    if (status != HARPE_OK) return status;
    const harpe_power_limit_device *device = harpe_power_limit_gpus_device(all->limits);
    int limit_w = all->arguments->limit_w;
    if (limit_w < device->minimum_w || limit_w > device->maximum_w)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--power-limit: %d W is not allowed; the range is %d to %d W", limit_w,
                          device->minimum_w, device->maximum_w);
    return set_limit(all, error);
}

static void let_go(holding *all) {
    for (int i = 0; i < GPU_LIMIT; i++) {
        harpe_frequency_controller_stop(all->controllers[i]);
        all->controllers[i] = NULL;
    }
    harpe_power_limit_gpus_free(all->limits);
    all->limits = NULL;
}

/* Sets the power limit before the clocks: a controller that this process starts sets the default
 * power limit if no power limit guard has the GPU. */
static harpe_status hold_once(holding *all, harpe_error *error) {
    harpe_status status = all->arguments->limit_w > 0 ? hold_limit(all, error) : HARPE_OK;
    for (int i = 0;
         all->arguments->clock_mhz > 0 && i < all->arguments->gpu_count && status == HARPE_OK; i++)
        status = hold_clock(all, i, error);
    return status;
}

/* Sets everything. While another process holds a GPU, waits if the user wants to. */
static harpe_status hold(holding *all, harpe_error *error) {
    bool is_told = false;
    for (;;) {
        harpe_status status = hold_once(all, error);
        if (status != HARPE_ALREADY_EXISTS || !all->arguments->waits) return status;
        let_go(all);
        if (!is_told) fprintf(stderr, "harpe agent hold: waiting: %s\n", error->message);
        is_told = true;
        status = harpe_command_check_signal(error);
        if (status != HARPE_OK) return status;
        harpe_sleep_ns(AGAIN_NS);
    }
}

/* ---- The command ----------------------------------------------------------------------------- */

/* Reports the beginning and the end of a fault once. */
static void tell(bool *is_told, const char *what, const harpe_error *fault) {
    if (fault && !*is_told) fprintf(stderr, "harpe agent hold: %s: %s\n", what, fault->message);
    if (!fault && *is_told) fprintf(stderr, "harpe agent hold: %s is held again\n", what);
    *is_told = fault != NULL;
}

static void tend_clock(holding *all, int i) {
    harpe_error error;
    char what[48];
    harpe_frequency_controller *controller = all->controllers[i];
    (void)snprintf(what, sizeof what, "GPU %d: the clock", all->arguments->gpu[i]);
    if (!harpe_frequency_controller_has_died(controller)) return;
    (void)harpe_frequency_controller_check(controller, &error);
    tell(&all->is_clock_told[i], what, &error);
    if (harpe_frequency_controller_restart(controller, NULL) != HARPE_OK) return;
    harpe_frequency_controller_set(controller, all->arguments->clock_mhz);
    tell(&all->is_clock_told[i], what, NULL);
}

/* Sets clocks and the power limit again if a lease has ended, for example because the agent was
 * stopped. If the power limit is still set, setting it again changes nothing. */
static void tend(holding *all) {
    harpe_error error;
    for (int i = 0; i < all->arguments->gpu_count; i++)
        if (all->controllers[i]) tend_clock(all, i);
    if (!all->limits) return;
    bool is_well = set_limit(all, &error) == HARPE_OK;
    tell(&all->is_limit_told, "the power limit", is_well ? NULL : &error);
}

/* Waits for the command. Passes signals on to the command, except signals of the terminal, which
 * the command receives by itself. Returns the command's wait status. */
static int follow(holding *all, int signals, pid_t id) {
    int wait_code = 0;
    for (;;) {
        struct pollfd ready = {.fd = signals, .events = POLLIN};
        if (harpe_poll(&ready, 1, TEND_MS * INT64_C(1000000)) == 0) tend(all);
        struct signalfd_siginfo info;
        while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
            if (info.ssi_signo != SIGCHLD && info.ssi_code != SI_KERNEL)
                (void)kill(id, (int)info.ssi_signo);
        if (waitpid(id, &wait_code, WNOHANG) == id) return wait_code;
    }
}

static harpe_status run_command(holding *all, int *wait_code, harpe_error *error) {
    char *const *command = all->arguments->command;
    sigset_t mask;
    sigset_t before;
    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGHUP);
    sigaddset(&mask, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &mask, &before);
    int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) return harpe_fail_errno(error, errno, "preparing to run '%.100s'", command[0]);
    pid_t id = 0;
    int failure = harpe_command_spawn(command, NULL, &before, &id);
    if (!failure) *wait_code = follow(all, signals, id);
    close(signals);
    return failure ? harpe_fail_errno(error, failure, "running '%.100s'", command[0]) : HARPE_OK;
}

int harpe_agent_hold_command(int argc, char **argv) {
    hold_arguments arguments = {0};
    holding all = {.arguments = &arguments};
    harpe_error error;
    int wait_code = 0;
    argp_parse(&parser, argc, argv, 0, NULL, &arguments);
    harpe_gpus_options how = {.log = harpe_command_log("harpe agent hold")};
    harpe_status status = harpe_gpus_open(&how, &all.gpus, &error);
    if (status == HARPE_OK) status = choose_gpus(&arguments, all.gpus, &error);
    if (status == HARPE_OK) status = hold(&all, &error);
    if (status == HARPE_OK) status = run_command(&all, &wait_code, &error);
    let_go(&all);
    harpe_gpus_close(all.limited);
    harpe_gpus_close(all.gpus);
    if (status != HARPE_OK) return harpe_command_fail("agent hold", &error);
    return WIFSIGNALED(wait_code) ? HARPE_EXIT_SIGNAL + WTERMSIG(wait_code)
                                  : WEXITSTATUS(wait_code);
}
