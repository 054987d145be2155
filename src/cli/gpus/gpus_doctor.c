/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnoses problems for `harpe gpus`: makes lines from the facts. Each line names the problem, the
 * GPU and a solution. Does not call the driver. */
#include "cli/gpus/gpus_doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "cli/command.h"

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
                    "GPU %d: has no power limit that can be read; the power limit optimizer "
                    "cannot work on it.",
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
        add_problem(problems,
                    "GPU %d: persistence mode is off, so settings and the energy counter are lost "
                    "when the last process leaves: nvidia-smi -i %d -pm 1, or start "
                    "nvidia-persistenced.",
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

json_t *harpe_gpus_diagnose(const harpe_machine_facts *machine) {
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
