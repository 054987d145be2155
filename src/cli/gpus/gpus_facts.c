/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the facts for `harpe gpus`: reads every GPU once, watches its energy counter for a short
 * time, and finds out the rights of the process. It only reads. No function here may set a value,
 * not even to the present value. The rights are therefore not found by an attempt, but from the
 * process's user and capabilities. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/wait.h"
#include "cli/cli.h"
#include "cli/gpus/gpus_facts.h"
#include "gpu/gpus.h"

/* Duration and interval of the readings of the energy counters. All GPUs are watched at the same
 * time. */
enum { WATCH_NS = 400000000, WATCH_PAUSE_NS = 1000000, STEPS_MAX = 256 };

/* ---- Permissions ----------------------------------------------------------------------------- */

/* Reads the effective capabilities from /proc/self/status. */
static bool has_capability(unsigned number) {
    FILE *file = fopen("/proc/self/status", "re");
    if (!file) return false;
    char line[256];
    unsigned long long set = 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "CapEff:", 7) == 0) set = strtoull(line + 7, NULL, 16);
    fclose(file);
    return set >> number & 1;
}

static harpe_may_set may_set(const harpe_gpus *gpus) {
    enum { CAPABILITY_SYS_ADMIN = 21 };
    if (harpe_gpus_are_emulated(gpus)) return HARPE_MAY_SET_UNKNOWN;
    if (harpe_gpus_need_root(gpus)) return geteuid() == 0 ? HARPE_MAY_SET : HARPE_MAY_NOT_SET;
    return has_capability(CAPABILITY_SYS_ADMIN) ? HARPE_MAY_SET : HARPE_MAY_NOT_SET;
}

static harpe_gpu_permissions find_permissions(const harpe_gpus *gpus) {
    return (harpe_gpu_permissions){
        .may_set = may_set(gpus),
        .is_root = geteuid() == 0,
        .needs_root = harpe_gpus_need_root(gpus),
        .has_zeusd = access("/var/run/zeusd.sock", F_OK) == 0,
        .has_persistence_daemon = access("/var/run/nvidia-persistenced/socket", F_OK) == 0,
    };
}

/* ---- Facts ----------------------------------------------------------------------------------- */

/* Converts a reading from thousandths. Returns -1 if `status` says that the reading failed. */
static double thousandths(harpe_status status, uint32_t value) {
    return status == HARPE_OK ? value / 1e3 : -1;
}

static void read_limits(harpe_gpus *gpus, int gpu, harpe_gpu_facts *facts) {
    uint32_t minimum = 0;
    uint32_t maximum = 0;
    uint32_t limit = 0;
    harpe_error error = {0};
    harpe_status status = harpe_gpu_power_limit_range(gpus, gpu, &minimum, &maximum, &error);
    facts->limit_minimum_w = thousandths(status, minimum);
    facts->limit_maximum_w = thousandths(status, maximum);
    status = harpe_gpu_default_power_limit(gpus, gpu, &limit, &error);
    facts->limit_default_w = thousandths(status, limit);
    status = harpe_gpu_power_limit(gpus, gpu, &limit, &error);
    facts->limit_w = thousandths(status, limit);
    facts->is_lost = status == HARPE_GPU_LOST;
    status = harpe_gpu_enforced_power_limit(gpus, gpu, &limit, &error);
    facts->limit_enforced_w = thousandths(status, limit);
}

static void read_clocks(harpe_gpus *gpus, int gpu, harpe_gpu_facts *facts) {
    uint32_t *memory = NULL;
    uint32_t *graphics = NULL;
    size_t count = 0;
    facts->memory_maximum_mhz = -1;
    facts->graphics_minimum_mhz = -1;
    facts->graphics_maximum_mhz = -1;
    if (harpe_gpu_memory_clocks(gpus, gpu, &memory, &count, NULL) == HARPE_OK) {
        facts->memory_maximum_mhz = memory[0];
        if (harpe_gpu_graphics_clocks(gpus, gpu, memory[0], &graphics, &count, NULL) == HARPE_OK) {
            facts->graphics_maximum_mhz = graphics[0];
            facts->graphics_minimum_mhz = graphics[count - 1];
            facts->graphics_count = count;
        }
    }
    free(graphics);
    free(memory);
    uint32_t mhz = 0;
    bool is_read = harpe_gpu_current_clocks(gpus, gpu, &mhz, NULL, NULL) == HARPE_OK;
    facts->graphics_mhz = is_read ? (double)mhz : -1;
    is_read = harpe_gpu_current_clocks(gpus, gpu, NULL, &mhz, NULL) == HARPE_OK;
    facts->memory_mhz = is_read ? (double)mhz : -1;
}

static void read_facts(harpe_gpus *gpus, int gpu, harpe_gpu_facts *facts) {
    facts->info = harpe_gpu_info_at(gpus, gpu);
    facts->is_mig_enabled = harpe_gpu_mig_is_enabled(gpus, gpu);
    facts->is_module = harpe_gpu_energy_scope(gpus, gpu) == HARPE_ENERGY_OF_MODULE;
    read_limits(gpus, gpu, facts);
    read_clocks(gpus, gpu, facts);
    uint32_t value = 0;
    harpe_status status = harpe_gpu_instant_power(gpus, gpu, &value, NULL);
    facts->power_w = thousandths(status, value);
    status = harpe_gpu_average_power(gpus, gpu, &value, NULL);
    facts->average_power_w = thousandths(status, value);
    status = harpe_gpu_module_power(gpus, gpu, &value, NULL);
    facts->module_power_w = thousandths(status, value);
    bool is_read = harpe_gpu_temperature(gpus, gpu, &value, NULL) == HARPE_OK;
    facts->temperature_c = is_read ? (double)value : -1;
    bool is_enabled = false;
    is_read = harpe_gpu_persistence_mode(gpus, gpu, &is_enabled, NULL) == HARPE_OK;
    facts->persistence = is_read ? is_enabled : -1;
}

/* ---- The energy counters --------------------------------------------------------------------- */

/* The observations of a counter so far. */
typedef struct watch {
    uint64_t last_mj;
    int64_t last_move_ns;
    size_t step_count;
    double step_ms[STEPS_MAX];
    double step_mj[STEPS_MAX];
    size_t read_count;
    int64_t read_ns;
} watch;

static double median(double *values, size_t count) {
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, harpe_compare_doubles);
    return values[count / 2];
}

/* Reads one counter. The first change only starts the timing, because the time of the change before
 * it is not known. */
static harpe_status look(harpe_gpus *gpus, int gpu, watch *seen, harpe_counter_facts *out) {
    harpe_error error;
    uint64_t energy = 0;
    int64_t start_ns = harpe_clock_ns();
    harpe_status status = harpe_gpu_total_energy(gpus, gpu, &energy, &error);
    if (status != HARPE_OK) {
        memcpy(out->problem, error.message, sizeof out->problem);
        return status;
    }
    seen->read_ns += harpe_clock_ns() - start_ns;
    int64_t now_ns = harpe_gpus_clock_ns(gpus);
    if (seen->read_count++ > 0 && energy > seen->last_mj) {
        if (seen->last_move_ns != 0 && seen->step_count < STEPS_MAX) {
            seen->step_ms[seen->step_count] = (double)(now_ns - seen->last_move_ns) / 1e6;
            seen->step_mj[seen->step_count++] = (double)(energy - seen->last_mj);
        }
        seen->last_move_ns = now_ns;
    }
    seen->last_mj = energy;
    return HARPE_OK;
}

static void watch_counters(harpe_gpus *gpus, harpe_gpu_facts *facts, watch *watches) {
    int count = harpe_gpus_count(gpus);
    for (int i = 0; i < count; i++)
        facts[i].counter.is_supported = true;
    int64_t end_ns = harpe_clock_ns() + WATCH_NS;
    while (harpe_clock_ns() < end_ns) {
        bool any = false;
        for (int i = 0; i < count; i++) {
            harpe_counter_facts *out = &facts[i].counter;
            if (!out->is_supported) continue;
            harpe_status status = look(gpus, i, &watches[i], out);
            out->is_supported = status == HARPE_OK;
            facts[i].is_lost = facts[i].is_lost || status == HARPE_GPU_LOST;
            any = any || out->is_supported;
        }
        if (!any) break;
        harpe_sleep_ns(WATCH_PAUSE_NS);
    }
    for (int i = 0; i < count; i++) {
        watch *seen = &watches[i];
        harpe_counter_facts *out = &facts[i].counter;
        out->step_ms = median(seen->step_ms, seen->step_count);
        out->step_mj = median(seen->step_mj, seen->step_count);
        if (seen->read_count > 0)
            out->read_cost_us = (double)seen->read_ns / 1e3 / (double)seen->read_count;
    }
}

/* ---- The node agent -------------------------------------------------------------------------- */

enum { ANSWER_MS = 2000 };

static uint32_t number(const json_t *object, const char *key) {
    return (uint32_t)json_integer_value(json_object_get(object, key));
}

/* Reads the limits of the agent's first GPU; they are the same for all GPUs. Notes the first GPU of
 * this process that the agent does not have. */
static void read_agent_limits(const harpe_gpus *gpus, const json_t *answer,
                              harpe_agent_facts *out) {
    const json_t *lent = json_object_get(answer, "gpus");
    const json_t *first = json_array_get(lent, 0);
    out->lowest_mhz = number(first, "lowest_clock_mhz");
    out->highest_mhz = number(first, "highest_clock_mhz");
    out->lowest_mw = number(first, "lowest_power_limit_mw");
    out->highest_mw = number(first, "highest_power_limit_mw");
    for (int i = harpe_gpus_count(gpus) - 1; i >= 0; i--)
        if (!harpe_gpu_names_lent(lent, harpe_gpu_info_at(gpus, i)->uuid)) out->missing_gpu = i;
}

/* Notes the GPUs of this process that have no work and a clock of the agent's rule. */
static void read_idle(const json_t *answer, harpe_machine_facts *out) {
    for (int i = 0; i < out->count; i++) {
        const json_t *gpu = harpe_gpu_names_lent(json_object_get(answer, "gpus"),
                                                 harpe_gpu_info_at(out->gpus, i)->uuid);
        bool is_held = json_is_true(json_object_get(gpu, "idle"));
        out->facts[i].idle_mhz = is_held ? number(gpu, "idle_clock_mhz") : 0;
    }
}

static void ask(harpe_machine_facts *machine) {
    harpe_agent_facts *out = &machine->agent;
    json_t *answer = NULL;
    harpe_error error;
    harpe_status status = harpe_gpu_names_ask_status(out->socket, ANSWER_MS, &answer, &error);
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
    read_agent_limits(machine->gpus, answer, out);
    read_idle(answer, machine);
    json_decref(answer);
}

/* Returns true if the environment names a zeusd. harpe_frequency_controller_start tries zeusd
 * first, then the agent, and then the driver. */
static bool names_zeusd(void) {
    const char *place = secure_getenv("ZEUSD_SOCK_PATH");
    if (!place) place = secure_getenv("ZEUSD_HOST_PORT");
    return place && *place;
}

/* Looks for the agent as a training process does, and asks it for its status alone. Waits up to 2 s
 * for the answer. */
static void read_agent(harpe_machine_facts *machine) {
    harpe_agent_facts *out = &machine->agent;
    const char *variable = secure_getenv("HARPE_AGENT_SOCKET");
    *out = (harpe_agent_facts){.state = HARPE_AGENT_NOT_LOOKED_FOR,
                               .is_used_for_clocks = !names_zeusd(),
                               .missing_gpu = -1};
    if (!variable && harpe_gpus_are_emulated(machine->gpus)) return;
    if (harpe_lease_find_agent(machine->gpus, out->socket)) {
        ask(machine);
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

/* ---- All facts ------------------------------------------------------------------------------- */

harpe_status harpe_machine_facts_read(harpe_gpus *gpus, harpe_machine_facts *out,
                                      harpe_error *error) {
    size_t count = (size_t)harpe_gpus_count(gpus);
    harpe_gpu_facts *facts = harpe_calloc(count, sizeof *facts);
    watch *watches = harpe_calloc(count, sizeof *watches);
    if (!facts || !watches) {
        free(facts);
        free(watches);
        return harpe_fail_memory(error);
    }
    for (size_t i = 0; i < count; i++)
        read_facts(gpus, (int)i, &facts[i]);
    watch_counters(gpus, facts, watches);
    free(watches);
    *out = (harpe_machine_facts){
        .gpus = gpus, .count = (int)count, .facts = facts, .permissions = find_permissions(gpus)};
    read_agent(out);
    return HARPE_OK;
}

void harpe_machine_facts_free(harpe_machine_facts *facts) {
    free(facts->facts);
    facts->facts = NULL;
    facts->count = 0;
}
