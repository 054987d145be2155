/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe agent status` and `harpe agent restore`: ask the agent, and print its answers. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/error.h"
#include "cli/agent/agent_commands.h"
#include "cli/command.h"
#include "cli/rows.h"
#include "gpu/visible.h"
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
     "End only the leases of one GPU: its number in `harpe agent status`, UUID or PCI address", 1},
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

/* ---- Printing -------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long number_of(const json_t *object, const char *key) {
    return (long)json_integer_value(json_object_get(object, key));
}

/* Writes a clock in MHz, or "-" if it is not known. */
static void write_clock(const json_t *lease, const char *key, char text[16]) {
    bool is_known = json_is_integer(json_object_get(lease, key));
    (void)snprintf(text, 16, "%ld", number_of(lease, key));
    if (!is_known) (void)snprintf(text, 16, "-");
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
    char clocks[2][16];
    write_clock(lease, "wanted_mhz", clocks[0]);
    write_clock(lease, "held_mhz", clocks[1]);
    printf("%-4ld %-8s %-13s %-7s %-7s %-9ld %-16s %-10s %-15s %s\n", number_of(lease, "gpu"),
           text_of(lease, "control"), state, clocks[0], clocks[1], number_of(lease, "process"),
           text_of(lease, "command"), user, since, text_of(lease, "job"));
    if (*text_of(lease, "restores")) printf("     at its end: %s\n", text_of(lease, "restores"));
    long waiting = number_of(lease, "waiting");
    if (waiting > 0)
        printf("     %ld process%s for this lease\n", waiting, waiting == 1 ? " waits" : "es wait");
}

static void print_zeusd_holders(const json_t *holders) {
    for (size_t i = 0; i < json_array_size(holders); i++) {
        const json_t *holder = json_array_get(holders, i);
        printf("GPU %ld, %s: process %ld (uid %ld) through zeusd's routes; at its end: %s\n",
               number_of(holder, "gpu"), text_of(holder, "control"), number_of(holder, "process"),
               number_of(holder, "uid"), text_of(holder, "restores"));
    }
}

static void print_status(const json_t *answer, const char *socket) {
    const json_t *leases = json_object_get(answer, "leases");
    size_t count = json_array_size(leases);
    size_t gpus = json_array_size(json_object_get(answer, "gpus"));
    printf("The agent at %s (process %ld) lends %zu GPU%s%s.\n", socket,
           number_of(answer, "process"), gpus, gpus == 1 ? "" : "s",
           json_is_true(json_object_get(answer, "allowed")) ? "" : ", but not to you");
    print_zeusd_holders(json_object_get(answer, "zeusd"));
    if (count == 0) {
        puts("No lease.");
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

/* Finds the UUID of the GPU whose number, UUID or PCI address a user has given. */
static harpe_status find_uuid(const char *socket, const char *gpu, char uuid[96],
                              harpe_error *error) {
    json_t *answer = NULL;
    harpe_status status = harpe_agent_ask_status(socket, &answer, error);
    if (status != HARPE_OK) return status;
    const json_t *gpus = json_object_get(answer, "gpus");
    status = HARPE_NOT_FOUND;
    for (size_t i = 0; i < json_array_size(gpus) && status != HARPE_OK; i++) {
        const json_t *one = json_array_get(gpus, i);
        char number[24];
        (void)snprintf(number, sizeof number, "%ld", number_of(one, "gpu"));
        if (strcmp(gpu, number) != 0 && strcasecmp(gpu, text_of(one, "uuid")) != 0 &&
            !harpe_pci_address_matches(gpu, text_of(one, "pci")))
            continue;
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
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
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
