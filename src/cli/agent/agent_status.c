/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe agent status` and `harpe agent restore`: ask the agent, and print its answers. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/wait.h"
#include "cli/agent/agent_commands.h"
#include "cli/command.h"
#include "cli/gpu_names.h"
#include "cli/rows.h"
#include "lease/lease.h"

enum { ANSWER_MS = 10000 };

typedef struct ask_arguments {
    const char *socket;
    const char *gpu;
    bool is_json;
} ask_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

enum { FLAG_SOCKET = 0x720, FLAG_GPU };

static const struct argp_option status_flags[] = {
    {"socket", FLAG_SOCKET, "PATH", 0, "Socket of the agent", 1},
    {"json", 'j', NULL, 0, "Print one JSON object", 1},
    {0},
};

static const struct argp_option restore_flags[] = {
    {"socket", FLAG_SOCKET, "PATH", 0, "Socket of the agent", 1},
    {"gpu", FLAG_GPU, "GPU", 0,
     "End only the leases of one GPU: its number as `harpe gpus` counts, UUID or PCI address", 1},
    {0},
};

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    ask_arguments *arguments = state->input;
    switch (key) {
    case FLAG_SOCKET: arguments->socket = argument; return 0;
    case FLAG_GPU: arguments->gpu = argument; return 0;
    case 'j': arguments->is_json = true; return 0;
    case ARGP_KEY_ARG: harpe_flag_fail(state, "takes no arguments, got '%s'", argument);
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static json_t *make_request(const char *name) {
    return json_pack("{s:i,s:s}", "version", HARPE_LEASE_VERSION, "request", name);
}

harpe_status harpe_agent_ask_status(const char *socket, json_t **answer, harpe_error *error) {
    return harpe_lease_ask(socket, make_request("status"), ANSWER_MS, answer, error);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Opens the GPUs, for their numbers, as `harpe gpus` does. Returns NULL if there are none here. */
static harpe_gpus *open_gpus(void) {
    harpe_gpus *gpus = NULL;
    (void)harpe_gpus_open(NULL, &gpus, NULL);
    return gpus;
}

static void add_indices(const harpe_gpus *gpus, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *one = json_array_get(list, i);
        const char *uuid = json_string_value(json_object_get(one, "uuid"));
        int number = harpe_gpu_number_of(gpus, uuid ? uuid : "");
        (void)json_object_set_new(one, "index", number >= 0 ? json_integer(number) : json_null());
    }
}

/* Adds the numbers of this process. The agent's own numbers are those that the driver had when the
 * agent started. */
static void number_gpus(json_t *answer) {
    harpe_gpus *gpus = open_gpus();
    add_indices(gpus, json_object_get(answer, "gpus"));
    add_indices(gpus, json_object_get(answer, "leases"));
    add_indices(gpus, json_object_get(answer, "zeusd"));
    harpe_gpus_close(gpus);
}

/* ---- Printing -------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long number_of(const json_t *object, const char *key) {
    return (long)json_integer_value(json_object_get(object, key));
}

/* Writes a clock in MHz or the number of a GPU, or "-" if it is not known. */
static const char *write_number(const json_t *object, const char *key, char text[16]) {
    bool is_known = json_is_integer(json_object_get(object, key));
    (void)snprintf(text, 16, "%ld", number_of(object, key));
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
    }
}

static void print_lease(const json_t *lease) {
    char user[32];
    char since[32];
    time_t since_s = (time_t)number_of(lease, "since_s");
    struct tm local;
    const struct passwd *entry = getpwuid((uid_t)number_of(lease, "uid"));
    (void)snprintf(user, sizeof user, "%s", entry ? entry->pw_name : "");
    if (!entry) (void)snprintf(user, sizeof user, "uid %ld", number_of(lease, "uid"));
    (void)strftime(since, sizeof since, "%m-%d %H:%M:%S", localtime_r(&since_s, &local));
    const char *state = json_is_true(json_object_get(lease, "unrestored"))
                            ? "NOT RESTORED"
                            : text_of(lease, "state");
    printf("%-4s %-8s %-13s %-7s %-7s %-9ld %-16s %-10s %-15s %s\n", NUMBER(lease, "index"),
           text_of(lease, "control"), state, NUMBER(lease, "wanted_mhz"), NUMBER(lease, "held_mhz"),
           number_of(lease, "process"), text_of(lease, "command"), user, since,
           text_of(lease, "job"));
    if (!json_is_integer(json_object_get(lease, "index")))
        printf("     %s\n", text_of(lease, "uuid"));
    if (*text_of(lease, "restores")) printf("     at its end: %s\n", text_of(lease, "restores"));
    long waiting = number_of(lease, "waiting");
    if (waiting > 0)
        printf("     %ld process%s for this lease\n", waiting, waiting == 1 ? " waits" : "es wait");
}

static void print_zeusd_holders(const json_t *holders) {
    for (size_t i = 0; i < json_array_size(holders); i++) {
        const json_t *holder = json_array_get(holders, i);
        printf("GPU %s (%s), %s: process %ld (uid %ld) through zeusd's routes; at its end: %s\n",
               NUMBER(holder, "index"), text_of(holder, "uuid"), text_of(holder, "control"),
               number_of(holder, "process"), number_of(holder, "uid"), text_of(holder, "restores"));
    }
}

static void print_status(const json_t *answer, const char *socket) {
    const json_t *leases = json_object_get(answer, "leases");
    size_t count = json_array_size(leases);
    const json_t *all = json_object_get(answer, "gpus");
    size_t gpus = json_array_size(all);
    printf("The agent at %s (process %ld) lends %zu GPU%s%s.\n", socket,
           number_of(answer, "process"), gpus, gpus == 1 ? "" : "s",
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

int harpe_agent_status_command(int argc, char **argv) {
    static const struct argp parser = {
        .options = status_flags,
        .parser = parse_flag,
        .doc = "Show the leases of the node agent: their holders, the clocks that the holders want "
               "and the GPUs have (MHz), and what the agent restores at their end.\vSee also: man "
               "harpe-agent",
    };
    ask_arguments arguments = {0};
    harpe_error error;
    json_t *answer = NULL;
    argp_parse(&parser, argc, argv, 0, NULL, &arguments);
    const char *socket = harpe_agent_socket(arguments.socket);
    harpe_status status = harpe_agent_ask_status(socket, &answer, &error);
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

/* ---- Restoring ------------------------------------------------------------------------------- */

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
    harpe_status status = harpe_agent_ask_status(socket, &answer, error);
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
        harpe_status status = harpe_agent_ask_status(socket, &answer, error);
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

int harpe_agent_restore_command(int argc, char **argv) {
    static const struct argp parser = {
        .options = restore_flags,
        .parser = parse_flag,
        .doc = "End the leases of the node agent, which restores their GPUs. The holders continue "
               "at the clocks that their GPUs then have. Needs root.\vSee also: man harpe-agent",
    };
    ask_arguments arguments = {0};
    harpe_error error;
    char uuid[96] = "";
    json_t *answer = NULL;
    argp_parse(&parser, argc, argv, 0, NULL, &arguments);
    const char *socket = harpe_agent_socket(arguments.socket);
    harpe_status status = HARPE_OK;
    if (arguments.gpu) status = find_uuid(socket, arguments.gpu, uuid, &error);
    json_t *request = make_request("restore");
    if (*uuid) (void)json_object_set_new(request, "gpu", json_string(uuid));
    if (status == HARPE_OK)
        status = harpe_lease_ask(socket, request, ANSWER_MS, &answer, &error);
    else
        json_decref(request);
    long ended = number_of(answer, "ended");
    json_decref(answer);
    if (status == HARPE_OK) status = wait_for_end(socket, uuid, &error);
    if (status != HARPE_OK) return harpe_command_fail("agent restore", &error);
    if (ended == 0)
        puts("There was no lease to end.");
    else
        printf("%ld lease%s ended; the GPUs are restored.\n", ended, ended == 1 ? "" : "s");
    return HARPE_EXIT_OK;
}
