/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe agent`: becomes the program of the node agent, or runs a subcommand, which is a client of
 * the agent. `hold` runs a command while GPUs have a clock or a power limit; it uses the agent, or
 * the driver if there is no agent and this process has the privilege. `status` and `restore` ask
 * the agent, and print its answers. */
#include <pwd.h>
#include <time.h>

#include <harpe/frequency_controller.h>
#include <harpe/power_limit.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/wait.h"
#include "cli/cli.h"
#include "client/control.h"
#include "gpu/gpus.h"
#include "lease/lease.h"

#define SET_LIMIT_S 10.0
#define LOOK_NS 1000000
#define AGAIN_NS 1000000000

enum { GPU_LIMIT = 64, ANSWER_MS = 10000 };

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

/* ---- hold: flags ----------------------------------------------------------------------------- */

static void read_gpus(void *into, struct argp_state *state, const char *flag, char *text) {
    hold_arguments *arguments = into;
    char *rest = NULL;
    arguments->name_count = 0;
    arguments->all = strcmp(text, "all") == 0;
    if (arguments->all) return;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (arguments->name_count == GPU_LIMIT)
            harpe_flag_fail(state, "%s: more than %d GPUs", flag, GPU_LIMIT);
        arguments->names[arguments->name_count++] = one;
    }
}

static const harpe_flag hold_flags[] = {
    {"gpu", 0, "GPU[,GPU...]",
     "The GPUs: numbers as `harpe gpus` counts, UUIDs or PCI addresses; or all (0)", 1,
     .read = read_gpus},
    {"clock", 0, "MHZ", "Lock the graphics clock at MHZ", 1, HARPE_INTO(hold_arguments, clock_mhz),
     1, 65535},
    {"power-limit", 0, "W", "Set the power limit to W watts", 1,
     HARPE_INTO(hold_arguments, limit_w), 1, 100000},
    {"wait", 0, NULL, "Wait while another process holds a GPU", 1,
     HARPE_INTO(hold_arguments, waits)},
    {0},
};

static const harpe_command_line hold_line = {
    .parts = {{.flags = hold_flags}},
    .command = offsetof(hold_arguments, command),
    .forms = "-- CMD [ARG...]",
    .about = "Run a command while GPUs have a clock or a power limit. No privilege is needed where "
             "the node agent runs. The GPUs are restored when the command ends.\v"
             "Example:\n  harpe agent hold --gpu 0 --clock 1200 -- ./train\n\n"
             "See also: man harpe-agent",
};

/* ---- hold: setting --------------------------------------------------------------------------- */

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
    uint32_t nearest_mhz, highest_mhz, lowest_mhz;
    harpe_status status = harpe_gpus_nearest_clock(gpus, gpu, (uint32_t)wanted_mhz, &nearest_mhz,
                                                   &highest_mhz, &lowest_mhz, error);
    if (status != HARPE_OK || nearest_mhz == (uint32_t)wanted_mhz) return status;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "--clock: GPU %d does not offer %d MHz; the closest is %u MHz (%u to %u)",
                      gpu, wanted_mhz, nearest_mhz, lowest_mhz, highest_mhz);
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

/* ---- hold: the command ----------------------------------------------------------------------- */

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
static void tend(void *user) {
    holding *all = user;
    harpe_error error;
    for (int i = 0; i < all->arguments->gpu_count; i++)
        if (all->controllers[i]) tend_clock(all, i);
    if (!all->limits) return;
    bool is_well = set_limit(all, &error) == HARPE_OK;
    tell(&all->is_limit_told, "the power limit", is_well ? NULL : &error);
}

static harpe_status run_held(holding *all, int *exit_code, harpe_error *error) {
    char *const *command = all->arguments->command;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, 0};
    sigset_t mask, before;
    harpe_command_block(numbers, &mask, &before);
    pid_t id = 0;
    int failure = harpe_command_spawn(command, NULL, &before, &id);
    if (failure) return harpe_fail_errno(error, failure, "running '%.100s'", command[0]);
    *exit_code = harpe_command_wait(id, &mask, tend, all);
    return HARPE_OK;
}

static int hold_command(int argc, char **argv) {
    hold_arguments arguments = {0};
    holding all = {.arguments = &arguments};
    harpe_error error;
    int exit_code = HARPE_EXIT_OK;
    struct argp_state state = harpe_command_line_read(&hold_line, argc, argv, &arguments);
    if (!arguments.command)
        harpe_flag_fail(&state, "the command is missing: harpe agent hold --clock MHZ -- CMD");
    if (arguments.clock_mhz == 0 && arguments.limit_w == 0)
        harpe_flag_fail(&state, "nothing to hold: give --clock MHZ or --power-limit W");
    harpe_gpus_options how = {.log = harpe_command_log("harpe agent hold")};
    harpe_status status = harpe_gpus_open(&how, &all.gpus, &error);
    if (status == HARPE_OK) status = choose_gpus(&arguments, all.gpus, &error);
    if (status == HARPE_OK) status = hold(&all, &error);
    if (status == HARPE_OK) status = run_held(&all, &exit_code, &error);
    let_go(&all);
    harpe_gpus_close(all.limited);
    harpe_gpus_close(all.gpus);
    return status == HARPE_OK ? exit_code : harpe_command_fail("agent hold", &error);
}

typedef struct ask_arguments {
    const char *socket;
    const char *gpu;
    bool is_json;
} ask_arguments;

/* ---- status and restore ---------------------------------------------------------------------- */

static const harpe_flag socket_flags[] = {
    {"socket", 0, "PATH", "Socket of the agent", 1, HARPE_INTO(ask_arguments, socket)},
    {0},
};

static const harpe_flag status_flags[] = {
    {"json", 'j', NULL, "Print one JSON object", 1, HARPE_INTO(ask_arguments, is_json)},
    {0},
};

static const harpe_flag restore_flags[] = {
    {"gpu", 0, "GPU",
     "End only the leases of one GPU: its number as `harpe gpus` counts, UUID or PCI address", 1,
     HARPE_INTO(ask_arguments, gpu)},
    {0},
};

/* ---- Numbers --------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Adds the numbers of this process, which are those of `harpe gpus`. The agent's own numbers are
 * those that the driver had when the agent started. */
static void number_gpus(json_t *answer) {
    static const char *const lists[] = {"gpus", "leases", "zeusd"};
    harpe_gpus *gpus = NULL; /* it stays NULL if there are none here */
    (void)harpe_gpus_open(NULL, &gpus, NULL);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        size_t index;
        json_t *one;
        json_array_foreach(json_object_get(answer, lists[i]), index, one) {
            int number = harpe_gpu_number_of(gpus, text_of(one, "uuid"));
            json_object_set_new(one, "index", number >= 0 ? json_integer(number) : json_null());
        }
    }
    harpe_gpus_close(gpus);
}

/* ---- Printing -------------------------------------------------------------------------------- */

/* Writes a clock in MHz or the number of a GPU, or "-" if it is not known. */
static const char *write_number(const json_t *object, const char *key, char text[16]) {
    bool is_known = json_is_integer(json_object_get(object, key));
    (void)snprintf(text, 16, "%ld", harpe_json_count(object, key));
    if (!is_known) (void)snprintf(text, 16, "-");
    return text;
}

#define NUMBER(object, key) write_number(object, key, (char[16]){0})

static void print_gpus(const json_t *gpus) {
    printf("\n%s%-4s %-17s %-42s %s%s\n", harpe_bold_start(), "GPU", "PCI ADDRESS", "UUID", "MODEL",
           harpe_bold_end());
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *gpu = json_array_get(gpus, i);
        printf("%-4s %-17s %-42s %s%s\n", NUMBER(gpu, "index"), text_of(gpu, "pci"),
               text_of(gpu, "uuid"), text_of(gpu, "name"),
               json_is_true(json_object_get(gpu, "lost")) ? " (LOST)" : "");
        if (json_is_true(json_object_get(gpu, "idle")))
            printf("     has no work: the rule idle holds it at %ld MHz\n",
                   harpe_json_count(gpu, "idle_clock_mhz"));
    }
}

static void print_lease(const json_t *lease) {
    char user[32];
    char since[32];
    time_t since_s = (time_t)harpe_json_count(lease, "since_s");
    struct tm local;
    const struct passwd *entry = getpwuid((uid_t)harpe_json_count(lease, "uid"));
    (void)snprintf(user, sizeof user, "%s", entry ? entry->pw_name : "");
    if (!entry) (void)snprintf(user, sizeof user, "uid %ld", harpe_json_count(lease, "uid"));
    (void)strftime(since, sizeof since, "%m-%d %H:%M:%S", localtime_r(&since_s, &local));
    const char *state = json_is_true(json_object_get(lease, "unrestored"))
                            ? "NOT RESTORED"
                            : text_of(lease, "state");
    printf("%-4s %-8s %-13s %-7s %-7s %-9ld %-16s %-10s %-15s %s\n", NUMBER(lease, "index"),
           text_of(lease, "control"), state, NUMBER(lease, "wanted_mhz"), NUMBER(lease, "held_mhz"),
           harpe_json_count(lease, "process"), text_of(lease, "command"), user, since,
           text_of(lease, "job"));
    if (!json_is_integer(json_object_get(lease, "index")))
        printf("     %s\n", text_of(lease, "uuid"));
    if (*text_of(lease, "restores")) printf("     at its end: %s\n", text_of(lease, "restores"));
    long waiting = harpe_json_count(lease, "waiting");
    if (waiting > 0)
        printf("     %ld process%s for this lease\n", waiting, waiting == 1 ? " waits" : "es wait");
}

static void print_zeusd_holders(const json_t *holders) {
    for (size_t i = 0; i < json_array_size(holders); i++) {
        const json_t *holder = json_array_get(holders, i);
        printf("GPU %s (%s), %s: process %ld (uid %ld) through zeusd's routes; at its end: %s\n",
               NUMBER(holder, "index"), text_of(holder, "uuid"), text_of(holder, "control"),
               harpe_json_count(holder, "process"), harpe_json_count(holder, "uid"),
               text_of(holder, "restores"));
    }
}

static void print_status(const json_t *answer, const char *socket) {
    const json_t *leases = json_object_get(answer, "leases");
    size_t count = json_array_size(leases);
    const json_t *all = json_object_get(answer, "gpus");
    size_t gpus = json_array_size(all);
    printf("The agent at %s (process %ld) lends %zu GPU%s%s.\n", socket,
           harpe_json_count(answer, "process"), gpus, gpus == 1 ? "" : "s",
           json_is_true(json_object_get(answer, "allowed")) ? "" : ", but not to you");
    print_gpus(all);
    if (json_array_size(json_object_get(answer, "zeusd")) > 0) puts("");
    print_zeusd_holders(json_object_get(answer, "zeusd"));
    if (count == 0) {
        puts("\nNo lease.");
        return;
    }
    printf("\n%s%-4s %-8s %-13s %-7s %-7s %-9s %-16s %-10s %-15s %s%s\n", harpe_bold_start(), "GPU",
           "CONTROL", "STATE", "WANTED", "HELD", "PROCESS", "COMMAND", "USER", "SINCE", "JOB",
           harpe_bold_end());
    for (size_t i = 0; i < count; i++)
        print_lease(json_array_get(leases, i));
}

static int status_command(int argc, char **argv) {
    static const harpe_command_line line = {
        .parts = {{.flags = socket_flags}, {.flags = status_flags}},
        .about = "Show the leases of the node agent: their holders, the clocks that the holders "
                 "want and the GPUs have (MHz), and what the agent restores at their end.\vSee "
                 "also: man harpe-agent",
    };
    ask_arguments arguments = {0};
    harpe_error error;
    json_t *answer = NULL;
    (void)harpe_command_line_read(&line, argc, argv, &arguments);
    const char *socket = harpe_lease_agent_socket(arguments.socket);
    harpe_status status = harpe_gpu_names_ask_status(socket, ANSWER_MS, &answer, &error);
    if (status == HARPE_OK) number_gpus(answer);
    if (status == HARPE_OK && arguments.is_json) {
        (void)json_object_del(answer, "status");
        status = harpe_command_print_json(answer, &error);
        answer = NULL;
    } else if (status == HARPE_OK) {
        print_status(answer, socket);
    }
    json_decref(answer);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("agent status", &error);
}

/* ---- restore --------------------------------------------------------------------------------- */

/* Finds the UUID of a GPU's number in this process. */
static harpe_status find_number(const char *socket, const char *number, char uuid[96],
                                harpe_error *error) {
    harpe_gpus *gpus = NULL;
    int gpu = 0;
    harpe_status status = harpe_gpus_open(NULL, &gpus, error);
    if (status != HARPE_OK) return status;
    harpe_gpu_names names = harpe_gpu_names_ask(gpus, socket);
    status = harpe_gpu_names_find(&names, "--gpu", number, &gpu, error);
    if (status == HARPE_OK) (void)snprintf(uuid, 96, "%s", harpe_gpu_info_at(gpus, gpu)->uuid);
    harpe_gpu_names_free(&names);
    harpe_gpus_close(gpus);
    return status;
}

/* Finds the UUID of the GPU whose number, UUID or PCI address a user has given. The agent also has
 * GPUs that this process does not see, such as lost ones; they have no number. */
static harpe_status find_uuid(const char *socket, const char *gpu, char uuid[96],
                              harpe_error *error) {
    json_t *answer = NULL;
    if (harpe_gpu_name_is_number(gpu)) return find_number(socket, gpu, uuid, error);
    harpe_status status = harpe_gpu_names_ask_status(socket, ANSWER_MS, &answer, error);
    if (status != HARPE_OK) return status;
    const json_t *gpus = json_object_get(answer, "gpus");
    status = HARPE_NOT_FOUND;
    for (size_t i = 0; i < json_array_size(gpus) && status != HARPE_OK; i++) {
        const json_t *one = json_array_get(gpus, i);
        if (!harpe_gpu_name_means(gpu, text_of(one, "uuid"), text_of(one, "pci"))) continue;
        (void)snprintf(uuid, 96, "%s", text_of(one, "uuid"));
        status = HARPE_OK;
    }
    json_decref(answer);
    if (status == HARPE_OK) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT, "--gpu: the agent has no GPU '%.100s'", gpu);
}

/* Returns how many entries of a list of holders are ending. `uuid` "": counts all GPUs. */
static size_t count_ending(const json_t *list, const char *uuid) {
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        count += (!*uuid || strcmp(uuid, text_of(one, "uuid")) == 0) &&
                 strcmp(text_of(one, "state"), "ending") == 0;
    }
    return count;
}

/* Waits until no lease is ending any more. Fails if a GPU is not restored after a minute. */
static harpe_status wait_for_end(const char *socket, const char *uuid, harpe_error *error) {
    enum { TRIES = 600, PAUSE_NS = 100000000 };
    for (int i = 0; i < TRIES; i++) {
        json_t *answer = NULL;
        harpe_status status = harpe_gpu_names_ask_status(socket, ANSWER_MS, &answer, error);
        if (status != HARPE_OK) return status;
        size_t left = count_ending(json_object_get(answer, "leases"), uuid) +
                      count_ending(json_object_get(answer, "zeusd"), uuid);
        json_decref(answer);
        if (left == 0) return HARPE_OK;
        harpe_sleep_ns(PAUSE_NS);
    }
    return harpe_fail(error, HARPE_DRIVER_ERROR,
                      "not all GPUs are restored after a minute: 'harpe agent status' names them");
}

static int restore_command(int argc, char **argv) {
    static const harpe_command_line line = {
        .parts = {{.flags = socket_flags}, {.flags = restore_flags}},
        .about =
            "End the leases of the node agent, which restores their GPUs. The holders continue at "
            "the clocks that their GPUs then have. Needs root.\vSee also: man harpe-agent",
    };
    ask_arguments arguments = {0};
    harpe_error error;
    char uuid[96] = "";
    json_t *answer = NULL;
    (void)harpe_command_line_read(&line, argc, argv, &arguments);
    const char *socket = harpe_lease_agent_socket(arguments.socket);
    harpe_status status = HARPE_OK;
    if (arguments.gpu) status = find_uuid(socket, arguments.gpu, uuid, &error);
    json_t *request = json_pack("{s:i,s:s}", "version", HARPE_LEASE_VERSION, "request", "restore");
    if (*uuid) (void)json_object_set_new(request, "gpu", json_string(uuid));
    if (status == HARPE_OK)
        status = harpe_lease_ask(socket, request, ANSWER_MS, &answer, &error);
    else
        json_decref(request);
    long ended = harpe_json_count(answer, "ended");
    json_decref(answer);
    if (status == HARPE_OK) status = wait_for_end(socket, uuid, &error);
    if (status != HARPE_OK) return harpe_command_fail("agent restore", &error);
    if (ended == 0)
        puts("There was no lease to end.");
    else
        printf("%ld lease%s ended; the GPUs are restored.\n", ended, ended == 1 ? "" : "s");
    return HARPE_EXIT_OK;
}

static const harpe_command subcommands[] = {
    {"hold", "Run a command while GPUs have a clock or power limit", hold_command},
    {"status", "Show the leases of the agent", status_command},
    {"restore", "End leases, which restores their GPUs", restore_command},
};
enum { SUBCOMMAND_COUNT = sizeof subcommands / sizeof subcommands[0] };

/* Finds the program of the agent: beside this program in a build folder, or at the place of
 * installation. The caller frees the path. */
static char *find_program(harpe_error *error) {
    static const char *const places[] = {"", HARPE_LIBEXECDIR_FROM_BINDIR "/harpe/"};
    char *own = realpath("/proc/self/exe", NULL);
    char *folder = own ? harpe_path_parent(own) : NULL;
    char *found = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && folder && !found; i++) {
        harpe_text path = {0};
        harpe_text_printf(&path, "%s/%sharpe-agent", folder, places[i]);
        if (!path.failed && access(path.data, X_OK) == 0)
            found = path.data;
        else
            harpe_text_free(&path);
    }
    if (!found)
        (void)harpe_fail(error, HARPE_NOT_FOUND,
                         "the program harpe-agent is neither in %.300s nor in %.300s/" //
                         HARPE_LIBEXECDIR_FROM_BINDIR "/harpe: build or install Harpe whole",
                         folder ? folder : "?", folder ? folder : "?");
    free(folder);
    free(own);
    return found;
}

/* Replaces this process by the agent, which prints its own help and messages. */
static int become_agent(char **argv) {
    char name[] = "harpe-agent";
    harpe_error error;
    char *program = find_program(&error);
    if (!program) return harpe_command_fail("agent", &error);
    argv[0] = name;
    (void)execv(program, argv);
    int code = harpe_command_fail_to_run("agent", program, errno);
    free(program);
    return code;
}

int harpe_agent_command(int argc, char **argv) {
    int code = argc > 1 ? harpe_command_dispatch(subcommands, SUBCOMMAND_COUNT, "harpe agent",
                                                 argc - 1, argv + 1)
                        : -1;
    return code < 0 ? become_agent(argv) : code;
}
