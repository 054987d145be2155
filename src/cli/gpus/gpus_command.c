/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe gpus`: prints the facts of the GPUs (gpus_facts.c), finds problems in them, and says how
 * to solve them. With --restore, it restores the settings of GPUs that killed jobs have left
 * changed; otherwise it never changes a setting. A value that the driver does not report is "-" or
 * null. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/gpus/gpus_facts.h"
#include "client/control.h"
#include "gpu/gpus.h"
#include "gpu/saved_settings.h"

typedef struct gpus_arguments {
    bool json;
    bool all;
    bool restores;
    bool is_dry;
} gpus_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

static const harpe_flag flags[] = {
    {"all", 'a', NULL, "Show every GPU of the machine, and ignore CUDA_VISIBLE_DEVICES", 0,
     HARPE_INTO(gpus_arguments, all)},
    {"json", 'j', NULL, "Print one JSON object", 0, HARPE_INTO(gpus_arguments, json)},
    {"restore", 0, NULL, "Restore GPUs that killed jobs have left changed", 0,
     HARPE_INTO(gpus_arguments, restores)},
    {"dry-run", 0, NULL, "With --restore: only print what would be restored", 0,
     HARPE_INTO(gpus_arguments, is_dry)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .about = "Show the GPUs: limits, clocks, power, the energy counter, permissions, and how to "
             "solve problems. Changes nothing, except with --restore. Takes half a "
             "second.\vExample:\n  harpe gpus --json\n\nSee also: man harpe-gpus",
};

/* ---- Problems -------------------------------------------------------------------------------- */

/* Adds a line with a problem and its solution. */
static void add_problem(json_t *problems, const char *format, ...) HARPE_PRINTF(2, 3);

static void add_problem(json_t *problems, const char *format, ...) {
    char line[HARPE_ERROR_MESSAGE_SIZE + 128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    json_array_append_new(problems, harpe_command_json_text(line));
}

static void diagnose_gpu(const harpe_gpu_facts *facts, const harpe_gpu_permissions *may,
                         json_t *problems) {
    int gpu = facts->info->index;
    if (facts->is_lost) {
        add_problem(problems,
                    "GPU %d: lost. An administrator must reset it (nvidia-smi --gpu-reset) or "
                    "restart the machine.",
                    gpu);
        return;
    }
    if (!facts->counter.is_supported) {
        add_problem(problems,
                    "GPU %d: no usable energy counter (GPUs before Volta have none): energy is "
                    "sampled from power instead, which is less exact. [%s]",
                    gpu, facts->counter.problem);
    }
    if (facts->is_mig_enabled) {
        add_problem(problems,
                    "GPU %d: MIG is on. Its instances share power, clocks and energy counter: use "
                    "the whole GPU for one job, or turn MIG off (nvidia-smi -i %d -mig 0).",
                    gpu, facts->info->driver_index);
    }
    if (facts->limit_w < 0) {
        add_problem(problems,
                    "GPU %d: has no power limit that can be read; the power limit optimizer cannot "
                    "work on it.",
                    gpu);
    }
    if (facts->limit_enforced_w >= 0 && facts->limit_w - facts->limit_enforced_w >= 0.5) {
        add_problem(problems,
                    "GPU %d: %.5g W are enforced, less than the power limit of %.5g W: another "
                    "limit holds, which was not set through the driver (the board's controller, "
                    "the rack). Limits above it have no effect.",
                    gpu, facts->limit_enforced_w, facts->limit_w);
    }
    if (facts->graphics_count == 0) {
        add_problem(problems, "GPU %d: does not list its clocks; plans cannot be applied to it.",
                    gpu);
    }
    if (facts->persistence == 0 && !may->has_persistence_daemon) {
        add_problem(
            problems,
            "GPU %d: persistence mode is off, so settings and the energy counter are lost when the "
            "last process leaves: nvidia-smi -i %d -pm 1, or start nvidia-persistenced.",
            gpu, facts->info->driver_index);
    }
}

/* Adds a line if there is an agent that does not work for this user. */
static void diagnose_agent(const harpe_agent_facts *agent, json_t *problems) {
    if (agent->state == HARPE_AGENT_SILENT)
        add_problem(problems,
                    "No node agent answers at '%s' [%s]. Start it (systemctl restart harpe-agent). "
                    "Until then jobs use the driver, which requires rights.",
                    agent->socket, agent->reason);
    if (agent->state == HARPE_AGENT_REFUSES)
        add_problem(problems,
                    "The node agent lends nothing: %s. Its administrator can change "
                    "/etc/harpe/agent.conf (docs/agent.md).",
                    agent->reason);
    if (agent->missing_gpu >= 0)
        add_problem(problems,
                    "GPU %d: the node agent at '%s' does not have it. Restart the agent if the GPU "
                    "was added after its start (systemctl restart harpe-agent).",
                    agent->missing_gpu, agent->socket);
}

static const char *how_to_set(const harpe_gpu_permissions *may) {
    if (may->needs_root) return "run as root";
    if (!may->is_root) return "run as root, or give the process CAP_SYS_ADMIN";
    return "give root CAP_SYS_ADMIN (in a container: docker run --cap-add SYS_ADMIN)";
}

/* Adds a line if this user's jobs cannot set anything. */
static void diagnose_permissions(const harpe_machine_facts *machine, json_t *problems) {
    const harpe_gpu_permissions *may = &machine->permissions;
    if (may->may_set != HARPE_MAY_NOT_SET || machine->agent.state == HARPE_AGENT_LENDS) return;
    add_problem(problems,
                "Power limits and clocks cannot be set: let the node agent of this machine set "
                "them, for which jobs need no rights (docs/agent.md), or %s%s.",
                how_to_set(may), may->has_zeusd ? ", or use zeusd, which is running" : "");
}

/* Returns lines that name a problem, the GPU and a solution. Does not call the driver. */
static json_t *diagnose(const harpe_machine_facts *machine) {
    const harpe_gpu_permissions *may = &machine->permissions;
    json_t *problems = json_array();
    harpe_error error;
    diagnose_permissions(machine, problems);
    diagnose_agent(&machine->agent, problems);
    if (harpe_gpus_check_same_model(machine->gpus, &error) != HARPE_OK)
        add_problem(problems, "Mixed models: %s.", error.message);
    for (int i = 0; i < machine->count; i++)
        diagnose_gpu(&machine->facts[i], may, problems);
    return problems;
}

static void add_left(void *user, const harpe_saved_settings *state, const harpe_gpu_info *info,
                     harpe_saved_settings_outcome outcome, const harpe_error *error) {
    char what[128];
    (void)error;
    if (outcome != HARPE_SAVED_RESTORED || !info) return;
    harpe_saved_settings_describe(state, what, sizeof what);
    add_problem(user,
                "GPU %d: process %" PRId64
                " was killed and has left this GPU changed (to put back: %s): harpe gpus "
                "--restore, or the next start of a job under Harpe.",
                info->index, state->trainer, what);
}

/* Adds a line for each GPU that a killed job has left changed. */
static void diagnose_left(const harpe_gpus *gpus, json_t *problems) {
    harpe_saved_settings_recovery recovery = {.is_dry = true,
                                              .through_zeusd =
                                                  harpe_controller_restore_through_zeusd,
                                              .report = add_left,
                                              .user = problems};
    (void)harpe_saved_settings_recover(gpus, &recovery, NULL);
}

/* ---- Restoring ------------------------------------------------------------------------------- */

typedef struct restore_view {
    bool is_dry;
    json_t *records; /* NULL: lines */
    int count;
} restore_view;

static const char *outcome_name(const restore_view *view, harpe_saved_settings_outcome outcome) {
    switch (outcome) {
    case HARPE_SAVED_RESTORED: return view->is_dry ? "would_restore" : "restored";
    case HARPE_SAVED_FAILED: return "failed";
    case HARPE_SAVED_IN_USE: return "in_use";
    case HARPE_SAVED_ELSEWHERE: return "not_here";
    default: return view->is_dry ? "would_discard" : "discarded";
    }
}

static json_t *watts(uint32_t milliwatts) {
    return milliwatts > 0 ? json_real(milliwatts / 1e3) : json_null();
}

static void add_record(restore_view *view, const harpe_saved_settings *state,
                       const harpe_gpu_info *info, harpe_saved_settings_outcome outcome,
                       const harpe_error *error) {
    bool has_failed = outcome == HARPE_SAVED_FAILED;
    json_t *record = json_pack(
        "{s:o, s:s, s:s, s:I, s:s, s:b, s:o, s:o, s:o}", "driver_index",
        info ? json_integer(info->driver_index) : json_null(), "uuid", state->uuid, "changed_by",
        state->kind == HARPE_SAVED_CLOCKS ? "frequency controller" : "power limit optimizer",
        "process", (json_int_t)state->trainer, "outcome", outcome_name(view, outcome),
        "resets_clocks", state->resets_clocks, "power_limit_w", watts(state->power_limit_mw),
        "persistence", state->persistence >= 0 ? json_boolean(state->persistence) : json_null(),
        "error", has_failed ? harpe_command_json_text(error->message) : json_null());
    json_array_append_new(view->records, record);
}

static void print_record(const restore_view *view, const harpe_saved_settings *state,
                         harpe_saved_settings_outcome outcome, const harpe_error *error) {
    char what[128];
    harpe_saved_settings_describe(state, what, sizeof what);
    switch (outcome) {
    case HARPE_SAVED_RESTORED:
        printf("%s: %s (process %" PRId64 ", which was killed, had changed it)\n",
               view->is_dry ? "would put back" : "put back", what, state->trainer);
        return;
    case HARPE_SAVED_FAILED: printf("not put back: %s\n", error->message); return;
    case HARPE_SAVED_IN_USE:
        printf("left alone: process %" PRId64 " uses it\n", state->trainer);
        return;
    case HARPE_SAVED_ELSEWHERE:
        printf("left alone: it is not one of these GPUs, or belongs to another cluster\n");
        return;
    default:
        printf("%s: the machine was restarted since, or the emulated cluster is gone\n",
               view->is_dry ? "would discard its record" : "discarded its record");
    }
}

static void show_record(void *user, const harpe_saved_settings *state, const harpe_gpu_info *info,
                        harpe_saved_settings_outcome outcome, const harpe_error *error) {
    restore_view *view = user;
    view->count++;
    if (view->records) {
        add_record(view, state, info, outcome, error);
        return;
    }
    if (info)
        printf("GPU %d (%s): ", info->index, info->name);
    else
        printf("GPU %s: ", state->uuid);
    print_record(view, state, outcome, error);
}

/* Restores the saved settings, and prints one line for each record, or one JSON object. If `is_dry`
 * is true, changes nothing. */
static harpe_status restore_left(harpe_gpus *gpus, bool is_dry, bool is_json, harpe_error *error) {
    restore_view view = {.is_dry = is_dry, .records = is_json ? json_array() : NULL};
    if (is_json && !view.records) return harpe_fail_memory(error);
    harpe_saved_settings_recovery recovery = {.is_dry = is_dry,
                                              .through_zeusd =
                                                  harpe_controller_restore_through_zeusd,
                                              .report = show_record,
                                              .user = &view};
    harpe_status status = harpe_saved_settings_recover(gpus, &recovery, error);
    if (is_json) {
        json_t *object = json_pack("{s:b, s:o}", "dry_run", is_dry, "records", view.records);
        harpe_status printed = harpe_command_print_json(object, status == HARPE_OK ? error : NULL);
        return status == HARPE_OK ? printed : status;
    }
    if (view.count == 0 && status == HARPE_OK)
        puts("Nothing to restore: no killed job has left a GPU changed.");
    return status;
}

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
            printf("\nGPU %d: its energy is that of the whole module, CPU included (power now: GPU "
                   "%s W, module %s W).\n",
                   i, NUMBER(gpu->power_w), NUMBER(gpu->module_power_w));
        }
        if (gpu->idle_mhz > 0)
            printf("\nGPU %d: has no work, so the node agent holds its clock at %u MHz until it "
                   "has.\n",
                   i, gpu->idle_mhz);
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

static void print_text(const harpe_machine_facts *machine, const json_t *problems) {
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
    set_number(object, "idle_clock_mhz", facts->idle_mhz > 0 ? (double)facts->idle_mhz : -1);
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

static harpe_status print_json(const harpe_machine_facts *machine, json_t *problems,
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

/* ---- The command ----------------------------------------------------------------------------- */

static harpe_status show(harpe_gpus *gpus, bool is_json, harpe_error *error) {
    harpe_machine_facts machine = {0};
    harpe_status status = harpe_machine_facts_read(gpus, &machine, error);
    if (status != HARPE_OK) return status;
    json_t *problems = diagnose(&machine);
    if (problems) diagnose_left(gpus, problems);
    if (!problems)
        status = harpe_fail_memory(error);
    else if (is_json)
        status = print_json(&machine, problems, error);
    else
        print_text(&machine, problems);
    json_decref(problems);
    harpe_machine_facts_free(&machine);
    return status;
}

int harpe_gpus_command(int argc, char **argv) {
    gpus_arguments arguments = {0};
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    if (arguments.is_dry && !arguments.restores)
        harpe_flag_fail(&state, "--dry-run needs --restore");
    harpe_error error;
    harpe_gpus *gpus = NULL;
    harpe_gpus_options options = {.visible_devices =
                                      arguments.all || arguments.restores ? "all" : NULL,
                                  .log = harpe_command_log("harpe gpus: warning")};
    harpe_status status = harpe_gpus_open(&options, &gpus, &error);
    if (status == HARPE_OK) {
        status = arguments.restores ? restore_left(gpus, arguments.is_dry, arguments.json, &error)
                                    : show(gpus, arguments.json, &error);
    }
    harpe_gpus_close(gpus);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("gpus", &error);
}
