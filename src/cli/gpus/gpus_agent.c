/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for the node agent as a training process does, and asks for its status. */
#include "cli/gpus/gpus_agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/error.h"

enum { ANSWER_MS = 2000 };

static uint32_t number(const json_t *object, const char *key) {
    return (uint32_t)json_integer_value(json_object_get(object, key));
}

static const json_t *find_gpu(const json_t *gpus, const char *uuid) {
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *gpu = json_array_get(gpus, i);
        const char *name = json_string_value(json_object_get(gpu, "uuid"));
        if (name && strcmp(name, uuid) == 0) return gpu;
    }
    return NULL;
}

/* Reads the limits of the agent's first GPU; they are the same for all GPUs. Notes the first GPU of
 * this process that the agent does not have. */
static void read_limits(const harpe_gpus *gpus, const json_t *answer, harpe_agent_facts *out) {
    const json_t *lent = json_object_get(answer, "gpus");
    const json_t *first = json_array_get(lent, 0);
    out->lowest_mhz = number(first, "lowest_clock_mhz");
    out->highest_mhz = number(first, "highest_clock_mhz");
    out->lowest_mw = number(first, "lowest_power_limit_mw");
    out->highest_mw = number(first, "highest_power_limit_mw");
    for (int i = harpe_gpus_count(gpus) - 1; i >= 0; i--)
        if (!find_gpu(lent, harpe_gpu_info_at(gpus, i)->uuid)) out->missing_gpu = i;
}

static void ask(const harpe_gpus *gpus, harpe_agent_facts *out) {
    json_t *answer = NULL;
    harpe_error error;
    json_t *request = json_pack("{s:i,s:s}", "version", HARPE_LEASE_VERSION, "request", "status");
    harpe_status status = harpe_lease_ask(out->socket, request, ANSWER_MS, &answer, &error);
    if (status != HARPE_OK) {
        out->state = status == HARPE_UNAVAILABLE ? HARPE_AGENT_SILENT : HARPE_AGENT_REFUSES;
        (void)snprintf(out->reason, sizeof out->reason, "%s", error.message);
        return;
    }
    out->state = HARPE_AGENT_LENDS;
    if (!json_is_true(json_object_get(answer, "allowed"))) {
        out->state = HARPE_AGENT_REFUSES;
        (void)snprintf(out->reason, sizeof out->reason,
                       "the node agent at '%s' lends no GPU to the user with uid %lu: its rules "
                       "allow_users and allow_groups do not name this user",
                       out->socket, (unsigned long)geteuid());
    }
    read_limits(gpus, answer, out);
    json_decref(answer);
}

/* Returns true if the environment names a zeusd. harpe_frequency_controller_start tries zeusd
 * first, then the agent, and then the driver. */
static bool names_zeusd(void) {
    const char *place = secure_getenv("ZEUSD_SOCK_PATH");
    if (!place) place = secure_getenv("ZEUSD_HOST_PORT");
    return place && *place;
}

void harpe_agent_facts_read(const harpe_gpus *gpus, harpe_agent_facts *out) {
    const char *variable = secure_getenv("HARPE_AGENT_SOCKET");
    *out = (harpe_agent_facts){.state = HARPE_AGENT_NOT_LOOKED_FOR,
                               .is_used_for_clocks = !names_zeusd(),
                               .missing_gpu = -1};
    if (!variable && harpe_gpus_are_emulated(gpus)) return;
    if (harpe_lease_find_agent(gpus, out->socket)) {
        ask(gpus, out);
        return;
    }
    out->socket[0] = '\0';
    out->state = variable && !*variable ? HARPE_AGENT_OFF : HARPE_AGENT_ABSENT;
    if (out->state == HARPE_AGENT_OFF)
        (void)snprintf(out->reason, sizeof out->reason, "HARPE_AGENT_SOCKET is empty");
    else
        (void)snprintf(out->reason, sizeof out->reason, "there is no socket '%s'",
                       variable ? variable : HARPE_AGENT_SOCKET_PATH);
}
