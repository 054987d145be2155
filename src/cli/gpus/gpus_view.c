/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the facts of `harpe gpus` as two tables or as JSON. A value that the driver does not
 * report is "-" or null. The doctor's lines are printed unchanged. */
#include "cli/gpus/gpus_view.h"

#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "cli/command.h"
#include "gpu/gpus.h"

/* ---- For people ------------------------------------------------------------------------------ */

/* Formats a number, or "-" if it is unknown (negative). */
static const char *number(char *text, size_t size, double value) {
    if (value < 0)
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%.5g", value);
    return text;
}

#define NUMBER(value) number((char[32]){0}, 32, (value))

static void print_table(const harpe_machine_facts *machine) {
    int width = (int)strlen("model");
    for (int i = 0; i < machine->count; i++) {
        int length = (int)strlen(machine->facts[i].info->name);
        width = length > width ? length : width;
    }
    printf("%s%3s  %-*s  %-23s  %-15s  %7s  %4s%s\n", harpe_bold_start(), "gpu", width, "model",
           "limit W min/def/max/now", "clocks MHz", "power W", "C", harpe_bold_end());
    for (int i = 0; i < machine->count; i++) {
        const harpe_gpu_facts *gpu = &machine->facts[i];
        char limits[160];
        char clocks[128];
        snprintf(limits, sizeof limits, "%s/%s/%s/%s", NUMBER(gpu->limit_minimum_w),
                 NUMBER(gpu->limit_default_w), NUMBER(gpu->limit_maximum_w), NUMBER(gpu->limit_w));
        snprintf(clocks, sizeof clocks, "-");
        if (gpu->graphics_count > 0) {
            snprintf(clocks, sizeof clocks, "%s-%s (%zu)", NUMBER(gpu->graphics_minimum_mhz),
                     NUMBER(gpu->graphics_maximum_mhz), gpu->graphics_count);
        }
        printf("%3d  %-*s  %-23s  %-15s  %7s  %4s\n", i, width, gpu->info->name, limits, clocks,
               NUMBER(gpu->power_w), NUMBER(gpu->temperature_c));
    }
}

static void print_counters(const harpe_machine_facts *machine) {
    printf("\n%s%3s  %-9s  %-21s  %-11s  %-11s  %-16s  %s%s\n", harpe_bold_start(), "gpu", "energy",
           "counter step", "read cost", "persistence", "PCI address", "UUID", harpe_bold_end());
    for (int i = 0; i < machine->count; i++) {
        const harpe_gpu_facts *gpu = &machine->facts[i];
        char step[96] = "-";
        char cost[64] = "-";
        if (gpu->counter.step_ms > 0) {
            snprintf(step, sizeof step, "%s ms, %s mJ", HARPE_DIGITS(gpu->counter.step_ms, 3),
                     HARPE_DIGITS(gpu->counter.step_mj, 4));
        }
        if (gpu->counter.is_supported)
            snprintf(cost, sizeof cost, "%s us", HARPE_DIGITS(gpu->counter.read_cost_us, 3));
        const char *persistence = gpu->persistence < 0 ? "unknown"
                                  : gpu->persistence   ? "on"
                                                       : "off";
        printf("%3d  %-9s  %-21s  %-11s  %-11s  %-16s  %s\n", i,
               gpu->counter.is_supported ? "counter" : "sampled", step, cost, persistence,
               gpu->info->pci_bus_id, gpu->info->uuid);
    }
}

/* Prints notes that explain values in the tables. */
static void print_notes(const harpe_machine_facts *machine) {
    for (int i = 0; i < machine->count; i++) {
        const harpe_gpu_facts *gpu = &machine->facts[i];
        if (gpu->is_module) {
            printf(
                "\nGPU %d: its energy is that of the whole module, CPU included (power now: GPU %s "
                "W, module %s W).\n",
                i, NUMBER(gpu->power_w), NUMBER(gpu->module_power_w));
        }
    }
}

static const char *may_set_text(harpe_may_set may_set) {
    switch (may_set) {
    case HARPE_MAY_SET: return "yes";
    case HARPE_MAY_NOT_SET: return "no";
    case HARPE_MAY_SET_UNKNOWN: break;
    }
    return "not checked (emulated: yes, unless the fault no_permission is on)";
}

/* Formats a range such as "600 to 1200 MHz". A limit of 0 means that there is no limit. */
static const char *range(char *text, size_t size, uint32_t lowest, uint32_t highest,
                         const char *unit) {
    if (lowest > 0 && highest > 0)
        snprintf(text, size, "%u to %u %s", lowest, highest, unit);
    else if (lowest > 0)
        snprintf(text, size, "from %u %s", lowest, unit);
    else if (highest > 0)
        snprintf(text, size, "up to %u %s", highest, unit);
    else
        snprintf(text, size, "no limit");
    return text;
}

#define RANGE(lowest, highest, unit) range((char[64]){0}, 64, (lowest), (highest), (unit))

static void print_agent(const harpe_agent_facts *agent) {
    if (agent->state == HARPE_AGENT_NOT_LOOKED_FOR) return;
    if (agent->state != HARPE_AGENT_LENDS) {
        printf("Node agent: not used: %s\n", agent->reason);
        return;
    }
    printf(
        "Node agent: sets them for jobs of this user (socket %s; clocks: %s; power limits: %s)\n",
        agent->socket,
        agent->is_used_for_clocks ? RANGE(agent->lowest_mhz, agent->highest_mhz, "MHz")
                                  : "through zeusd, which the environment names",
        RANGE(agent->lowest_mw / 1000, agent->highest_mw / 1000, "W"));
}

void harpe_gpus_print_text(const harpe_machine_facts *machine, const json_t *problems) {
    const harpe_gpus *gpus = machine->gpus;
    const char *version = harpe_gpus_driver_version(gpus);
    printf("%d of %d GPU%s visible, driver %s (%s)%s\n\n", machine->count,
           harpe_gpus_driver_count(gpus), harpe_gpus_driver_count(gpus) == 1 ? "" : "s",
           *version ? version : "of unknown version", harpe_gpus_backend_name(gpus),
           harpe_gpus_are_emulated(gpus) ? ", emulated by Harpe" : "");
    print_table(machine);
    print_counters(machine);
    print_notes(machine);
    printf("\nMay set power limits and clocks: %s\n", may_set_text(machine->permissions.may_set));
    print_agent(&machine->agent);
    if (json_array_size(problems) == 0) {
        printf("Nothing is wrong.\n");
        return;
    }
    printf("\n%sWhat to do%s\n", harpe_bold_start(), harpe_bold_end());
    for (size_t i = 0; i < json_array_size(problems); i++)
        printf("- %s\n", json_string_value(json_array_get(problems, i)));
}

/* ---- For programs ---------------------------------------------------------------------------- */

static void set_number(json_t *object, const char *key, double value) {
    json_object_set_new(object, key, value < 0 ? json_null() : json_real(value));
}

static json_t *gpu_json(const harpe_gpu_facts *facts) {
    json_t *object = json_object();
    json_object_set_new(object, "index", json_integer(facts->info->index));
    json_object_set_new(object, "driver_index", json_integer(facts->info->driver_index));
    json_object_set_new(object, "name", harpe_command_json_text(facts->info->name));
    json_object_set_new(object, "uuid", harpe_command_json_text(facts->info->uuid));
    json_object_set_new(object, "pci_bus_id", json_string(facts->info->pci_bus_id));
    set_number(object, "power_limit_minimum_w", facts->limit_minimum_w);
    set_number(object, "power_limit_default_w", facts->limit_default_w);
    set_number(object, "power_limit_maximum_w", facts->limit_maximum_w);
    set_number(object, "power_limit_w", facts->limit_w);
    set_number(object, "enforced_power_limit_w", facts->limit_enforced_w);
    set_number(object, "graphics_clock_minimum_mhz", facts->graphics_minimum_mhz);
    set_number(object, "graphics_clock_maximum_mhz", facts->graphics_maximum_mhz);
    json_object_set_new(object, "graphics_clock_count",
                        json_integer((json_int_t)facts->graphics_count));
    set_number(object, "graphics_clock_mhz", facts->graphics_mhz);
    set_number(object, "memory_clock_maximum_mhz", facts->memory_maximum_mhz);
    set_number(object, "memory_clock_mhz", facts->memory_mhz);
    set_number(object, "power_w", facts->power_w);
    set_number(object, "average_power_w", facts->average_power_w);
    set_number(object, "module_power_w", facts->module_power_w);
    set_number(object, "temperature_c", facts->temperature_c);
    json_object_set_new(object, "persistence_mode",
                        facts->persistence < 0 ? json_null() : json_boolean(facts->persistence));
    json_object_set_new(object, "mig_mode", json_boolean(facts->is_mig_enabled));
    json_object_set_new(object, "energy_scope", json_string(facts->is_module ? "module" : "gpu"));
    json_object_set_new(object, "energy_counter", json_boolean(facts->counter.is_supported));
    double step_ms = facts->counter.step_ms > 0 ? facts->counter.step_ms : -1;
    set_number(object, "energy_counter_step_ms", step_ms);
    set_number(object, "energy_counter_step_mj", step_ms > 0 ? facts->counter.step_mj : -1);
    set_number(object, "energy_counter_read_us",
               facts->counter.is_supported ? facts->counter.read_cost_us : -1);
    return object;
}

static const char *agent_state_name(harpe_agent_state state) {
    switch (state) {
    case HARPE_AGENT_OFF: return "off";
    case HARPE_AGENT_ABSENT: return "absent";
    case HARPE_AGENT_SILENT: return "silent";
    case HARPE_AGENT_REFUSES: return "refuses";
    case HARPE_AGENT_LENDS: return "lends";
    case HARPE_AGENT_NOT_LOOKED_FOR: break;
    }
    return "";
}

static void set_limit(json_t *object, const char *key, uint32_t limit, double scale) {
    set_number(object, key, limit > 0 ? limit * scale : -1);
}

static json_t *agent_json(const harpe_agent_facts *agent) {
    if (agent->state == HARPE_AGENT_NOT_LOOKED_FOR) return json_null();
    json_t *object = json_object();
    json_object_set_new(object, "state", json_string(agent_state_name(agent->state)));
    json_object_set_new(object, "socket",
                        *agent->socket ? harpe_command_json_text(agent->socket) : json_null());
    json_object_set_new(object, "reason",
                        *agent->reason ? harpe_command_json_text(agent->reason) : json_null());
    json_object_set_new(
        object, "used_for_clocks",
        json_boolean(agent->state == HARPE_AGENT_LENDS && agent->is_used_for_clocks));
    set_limit(object, "lowest_clock_mhz", agent->lowest_mhz, 1);
    set_limit(object, "highest_clock_mhz", agent->highest_mhz, 1);
    set_limit(object, "lowest_power_limit_w", agent->lowest_mw, 1e-3);
    set_limit(object, "highest_power_limit_w", agent->highest_mw, 1e-3);
    return object;
}

harpe_status harpe_gpus_print_json(const harpe_machine_facts *machine, json_t *problems,
                                   harpe_error *error) {
    const harpe_gpus *gpus = machine->gpus;
    harpe_may_set may_set = machine->permissions.may_set;
    json_t *object = json_object();
    json_t *list = json_array();
    for (int i = 0; i < machine->count; i++)
        json_array_append_new(list, gpu_json(&machine->facts[i]));
    json_object_set_new(object, "backend", json_string(harpe_gpus_backend_name(gpus)));
    json_object_set_new(object, "driver_version",
                        harpe_command_json_text(harpe_gpus_driver_version(gpus)));
    json_object_set_new(object, "emulated", json_boolean(harpe_gpus_are_emulated(gpus)));
    json_object_set_new(object, "driver_gpu_count", json_integer(harpe_gpus_driver_count(gpus)));
    json_object_set_new(object, "may_set",
                        may_set == HARPE_MAY_SET_UNKNOWN ? json_null()
                                                         : json_boolean(may_set == HARPE_MAY_SET));
    json_object_set_new(object, "agent", agent_json(&machine->agent));
    json_object_set_new(object, "gpus", list);
    json_object_set(object, "problems", problems);
    return harpe_command_print_json(object, error);
}
