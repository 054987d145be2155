/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe gpus`: reads every GPU once, watches its energy counter for a short time, finds out the
 * rights of the process, prints these facts, finds problems in them, and says how to solve them.
 * With --restore, it restores the settings of GPUs that killed jobs have left changed; otherwise it
 * never sets a value, not even to the present one. The rights are therefore not found by an
 * attempt, but from the process's user and capabilities. A value that the driver does not report is
 * "-" or null. */
#include <inttypes.h>
#include <stdarg.h>

#include "base/clock.h"
#include "base/wait.h"
#include "cli/cli.h"
#include "client/control.h"
#include "gpu/gpus.h"
#include "gpu/saved_settings.h"
#include "lease/lease.h"

/* Observations of an energy counter. */
typedef struct counter_facts {
    bool is_supported;
    double read_cost_us;
    double step_ms; /* median interval between two changes; 0: at most one change was seen */
    double step_mj;
    char problem[HARPE_ERROR_MESSAGE_SIZE]; /* reason why the counter cannot be read */
} counter_facts;

/* The facts of one GPU. A number that cannot be read is negative. */
typedef struct gpu_facts {
    const harpe_gpu_info *info;
    double limit_minimum_w, limit_default_w, limit_maximum_w, limit_w;
    double limit_enforced_w; /* may be less than limit_w */
    double graphics_minimum_mhz, graphics_maximum_mhz, graphics_mhz;
    size_t graphics_count;
    double memory_maximum_mhz, memory_mhz;
    double power_w, average_power_w, temperature_c;
    double module_power_w;
    int persistence;   /* 1, 0, or -1: unknown */
    uint32_t idle_mhz; /* at which the node agent's rule "idle" holds it now; 0: it does not */
    bool is_mig_enabled;
    bool is_module; /* the energy includes the energy of the CPU */
    bool is_lost;
    counter_facts counter;
} gpu_facts;

/* Says whether the process may change settings. It is not found out by an attempt, because an
 * attempt would change a setting. */
typedef enum may_set_kind {
    MAY_NOT_SET,
    MAY_SET,
    MAY_SET_UNKNOWN, /* on emulated GPUs, faults decide and not the rights of the process */
} may_set_kind;

typedef struct gpu_permissions {
    may_set_kind may_set;
    bool is_root;
    bool needs_root; /* only the user root may set values; otherwise CAP_SYS_ADMIN is enough */
    bool has_zeusd;
    bool has_persistence_daemon;
} gpu_permissions;

/* Whether jobs of this user change the GPUs through a node agent (`harpe agent`). */
typedef enum agent_state {
    AGENT_NOT_LOOKED_FOR, /* emulated GPUs, and HARPE_AGENT_SOCKET is not set */
    AGENT_OFF,            /* HARPE_AGENT_SOCKET is empty */
    AGENT_ABSENT,         /* there is no socket */
    AGENT_SILENT,         /* there is a socket, and nobody answers */
    AGENT_REFUSES,        /* the agent lends nothing to this user, or cannot be trusted */
    AGENT_LENDS,
} agent_state;

/* A limit of 0 means that there is no limit. */
typedef struct agent_facts {
    agent_state state;
    char socket[HARPE_LEASE_SOCKET_SIZE];  /* path; "": there is none */
    char reason[HARPE_ERROR_MESSAGE_SIZE]; /* why jobs do not use the agent; "": they use it */
    bool is_used_for_clocks;               /* false: the environment names a zeusd */
    int missing_gpu; /* a visible GPU that the agent does not have; -1: none */
    uint32_t lowest_mhz, highest_mhz;
    uint32_t lowest_mw, highest_mw;
} agent_facts;

typedef struct machine_facts {
    const harpe_gpus *gpus;
    int count;
    gpu_facts *facts; /* one element per visible GPU */
    gpu_permissions permissions;
    agent_facts agent;
} machine_facts;

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

static may_set_kind may_set(const harpe_gpus *gpus) {
    enum { CAPABILITY_SYS_ADMIN = 21 };
    if (harpe_gpus_are_emulated(gpus)) return MAY_SET_UNKNOWN;
    if (harpe_gpus_need_root(gpus)) return geteuid() == 0 ? MAY_SET : MAY_NOT_SET;
    return has_capability(CAPABILITY_SYS_ADMIN) ? MAY_SET : MAY_NOT_SET;
}

static gpu_permissions find_permissions(const harpe_gpus *gpus) {
    return (gpu_permissions){
        .may_set = may_set(gpus),
        .is_root = geteuid() == 0,
        .needs_root = harpe_gpus_need_root(gpus),
        .has_zeusd = access("/var/run/zeusd.sock", F_OK) == 0,
        .has_persistence_daemon = access("/var/run/nvidia-persistenced/socket", F_OK) == 0,
    };
}

/* ---- Facts of a GPU -------------------------------------------------------------------------- */

/* Return a reading, or one in thousandths. Return -1 if `status` says that the reading failed. */
static double reading(harpe_status status, uint32_t value) {
    return status == HARPE_OK ? (double)value : -1;
}

static double thousandths(harpe_status status, uint32_t value) {
    return status == HARPE_OK ? value / 1e3 : -1;
}

static void read_limits(harpe_gpus *gpus, int gpu, gpu_facts *facts) {
    uint32_t minimum = 0, maximum = 0, limit = 0;
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

static void read_clocks(harpe_gpus *gpus, int gpu, gpu_facts *facts) {
    uint32_t *memory = NULL, *graphics = NULL;
    size_t count = 0;
    facts->memory_maximum_mhz = facts->graphics_minimum_mhz = facts->graphics_maximum_mhz = -1;
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
    harpe_status status = harpe_gpu_current_clocks(gpus, gpu, &mhz, NULL, NULL);
    facts->graphics_mhz = reading(status, mhz);
    status = harpe_gpu_current_clocks(gpus, gpu, NULL, &mhz, NULL);
    facts->memory_mhz = reading(status, mhz);
}

static void read_facts(harpe_gpus *gpus, int gpu, gpu_facts *facts) {
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
    status = harpe_gpu_temperature(gpus, gpu, &value, NULL);
    facts->temperature_c = reading(status, value);
    bool is_enabled = false;
    status = harpe_gpu_persistence_mode(gpus, gpu, &is_enabled, NULL);
    facts->persistence = status == HARPE_OK ? is_enabled : -1;
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
static harpe_status look(harpe_gpus *gpus, int gpu, watch *seen, counter_facts *out) {
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

static void watch_counters(harpe_gpus *gpus, gpu_facts *facts, watch *watches) {
    int count = harpe_gpus_count(gpus);
    for (int i = 0; i < count; i++)
        facts[i].counter.is_supported = true;
    int64_t end_ns = harpe_clock_ns() + WATCH_NS;
    while (harpe_clock_ns() < end_ns) {
        bool any = false;
        for (int i = 0; i < count; i++) {
            counter_facts *out = &facts[i].counter;
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
        counter_facts *out = &facts[i].counter;
        out->step_ms = median(seen->step_ms, seen->step_count);
        out->step_mj = median(seen->step_mj, seen->step_count);
        if (seen->read_count > 0)
            out->read_cost_us = (double)seen->read_ns / 1e3 / (double)seen->read_count;
    }
}

/* ---- The node agent -------------------------------------------------------------------------- */

enum { ANSWER_MS = 2000 };

/* Reads the limits of the agent's first GPU; they are the same for all GPUs. Notes the first GPU of
 * this process that the agent does not have. */
static void read_agent_limits(const harpe_gpus *gpus, const json_t *answer, agent_facts *out) {
    const json_t *lent = json_object_get(answer, "gpus");
    const json_t *first = json_array_get(lent, 0);
    out->lowest_mhz = (uint32_t)harpe_json_count(first, "lowest_clock_mhz");
    out->highest_mhz = (uint32_t)harpe_json_count(first, "highest_clock_mhz");
    out->lowest_mw = (uint32_t)harpe_json_count(first, "lowest_power_limit_mw");
    out->highest_mw = (uint32_t)harpe_json_count(first, "highest_power_limit_mw");
    for (int i = harpe_gpus_count(gpus) - 1; i >= 0; i--)
        if (!harpe_gpu_names_lent(lent, harpe_gpu_info_at(gpus, i)->uuid)) out->missing_gpu = i;
}

/* Notes the GPUs of this process that have no work and a clock of the agent's rule. */
static void read_idle(const json_t *answer, machine_facts *out) {
    for (int i = 0; i < out->count; i++) {
        const json_t *gpu = harpe_gpu_names_lent(json_object_get(answer, "gpus"),
                                                 harpe_gpu_info_at(out->gpus, i)->uuid);
        bool is_held = json_is_true(json_object_get(gpu, "idle"));
        out->facts[i].idle_mhz = is_held ? (uint32_t)harpe_json_count(gpu, "idle_clock_mhz") : 0;
    }
}

static void ask(machine_facts *machine) {
    agent_facts *out = &machine->agent;
    json_t *answer = NULL;
    harpe_error error;
    harpe_status status = harpe_gpu_names_ask_status(out->socket, ANSWER_MS, &answer, &error);
    if (status != HARPE_OK) {
        out->state = status == HARPE_UNAVAILABLE ? AGENT_SILENT : AGENT_REFUSES;
        (void)snprintf(out->reason, sizeof out->reason, "%s", error.message);
        return;
    }
    out->state = AGENT_LENDS;
    if (!json_is_true(json_object_get(answer, "allowed"))) {
        out->state = AGENT_REFUSES;
        (void)snprintf(out->reason, sizeof out->reason,
                       "the node agent at '%s' lends no GPU to the user with uid %lu: its rules "
                       "allow_users and allow_groups do not name this user",
                       out->socket, (unsigned long)geteuid());
    }
    read_agent_limits(machine->gpus, answer, out);
    read_idle(answer, machine);
    json_decref(answer);
}

/* Looks for the agent as a training process does, and asks it for its status alone. Waits up to 2 s
 * for the answer. */
static void read_agent(machine_facts *machine) {
    agent_facts *out = &machine->agent;
    const char *variable = secure_getenv("HARPE_AGENT_SOCKET");
    /* harpe_frequency_controller_start tries zeusd first, then the agent, and then the driver. */
    const char *zeusd = secure_getenv("ZEUSD_SOCK_PATH");
    if (!zeusd) zeusd = secure_getenv("ZEUSD_HOST_PORT");
    *out = (agent_facts){
        .state = AGENT_NOT_LOOKED_FOR, .is_used_for_clocks = !(zeusd && *zeusd), .missing_gpu = -1};
    if (!variable && harpe_gpus_are_emulated(machine->gpus)) return;
    if (harpe_lease_find_agent(machine->gpus, out->socket)) {
        ask(machine);
        return;
    }
    out->socket[0] = '\0';
    out->state = variable && !*variable ? AGENT_OFF : AGENT_ABSENT;
    if (out->state == AGENT_OFF)
        (void)snprintf(out->reason, sizeof out->reason, "HARPE_AGENT_SOCKET is empty");
    else
        (void)snprintf(out->reason, sizeof out->reason, "there is no socket '%s'",
                       variable ? variable : HARPE_AGENT_SOCKET_PATH);
}

/* ---- All facts ------------------------------------------------------------------------------- */

/* Reads everything, watches the energy counters for 0.4 s, and asks the node agent. Changes
 * nothing. `gpus` must outlive the facts. The caller frees `out->facts`. */
static harpe_status read_machine(harpe_gpus *gpus, machine_facts *out, harpe_error *error) {
    size_t count = (size_t)harpe_gpus_count(gpus);
    gpu_facts *facts = harpe_calloc(count, sizeof *facts);
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
    *out = (machine_facts){
        .gpus = gpus, .count = (int)count, .facts = facts, .permissions = find_permissions(gpus)};
    read_agent(out);
    return HARPE_OK;
}

/* Returns a number, or null if it is not known (negative). */
static json_t *known(double value) { return value < 0 ? json_null() : json_real(value); }

/* ---- Problems -------------------------------------------------------------------------------- */

/* Adds a line with a problem and its solution. */
static void HARPE_PRINTF(2, 3) add_problem(json_t *problems, const char *format, ...) {
    char line[HARPE_ERROR_MESSAGE_SIZE + 128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    json_array_append_new(problems, harpe_command_json_text(line));
}

static void diagnose_gpu(const gpu_facts *facts, const gpu_permissions *may, json_t *problems) {
    int gpu = facts->info->index;
    if (facts->is_lost) {
        add_problem(problems,
                    "GPU %d: lost. An administrator must reset it (nvidia-smi --gpu-reset) or "
                    "restart the machine.",
                    gpu);
        return;
    }
    if (!facts->counter.is_supported)
        add_problem(problems,
                    "GPU %d: no usable energy counter (GPUs before Volta have none): energy is "
                    "sampled from power instead, which is less exact. [%s]",
                    gpu, facts->counter.problem);
    if (facts->is_mig_enabled)
        add_problem(problems,
                    "GPU %d: MIG is on. Its instances share power, clocks and energy counter: use "
                    "the whole GPU for one job, or turn MIG off (nvidia-smi -i %d -mig 0).",
                    gpu, facts->info->driver_index);
    if (facts->limit_w < 0)
        add_problem(problems,
                    "GPU %d: has no power limit that can be read; the power limit optimizer cannot "
                    "work on it.",
                    gpu);
    if (facts->limit_enforced_w >= 0 && facts->limit_w - facts->limit_enforced_w >= 0.5)
        add_problem(problems,
                    "GPU %d: %.5g W are enforced, less than the power limit of %.5g W: another "
                    "limit holds, which was not set through the driver (the board's controller, "
                    "the rack). Limits above it have no effect.",
                    gpu, facts->limit_enforced_w, facts->limit_w);
    if (facts->graphics_count == 0)
        add_problem(problems, "GPU %d: does not list its clocks; plans cannot be applied to it.",
                    gpu);
    if (facts->persistence == 0 && !may->has_persistence_daemon)
        add_problem(
            problems,
            "GPU %d: persistence mode is off, so settings and the energy counter are lost when the "
            "last process leaves: nvidia-smi -i %d -pm 1, or start nvidia-persistenced.",
            gpu, facts->info->driver_index);
}

/* Adds a line if there is an agent that does not work for this user. */
static void diagnose_agent(const agent_facts *agent, json_t *problems) {
    if (agent->state == AGENT_SILENT)
        add_problem(problems,
                    "No node agent answers at '%s' [%s]. Start it (systemctl restart harpe-agent). "
                    "Until then jobs use the driver, which requires rights.",
                    agent->socket, agent->reason);
    if (agent->state == AGENT_REFUSES)
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

static const char *how_to_set(const gpu_permissions *may) {
    if (may->needs_root) return "run as root";
    if (!may->is_root) return "run as root, or give the process CAP_SYS_ADMIN";
    return "give root CAP_SYS_ADMIN (in a container: docker run --cap-add SYS_ADMIN)";
}

/* Adds a line if this user's jobs cannot set anything. */
static void diagnose_permissions(const machine_facts *machine, json_t *problems) {
    const gpu_permissions *may = &machine->permissions;
    if (may->may_set != MAY_NOT_SET || machine->agent.state == AGENT_LENDS) return;
    add_problem(problems,
                "Power limits and clocks cannot be set: let the node agent of this machine set "
                "them, for which jobs need no rights (docs/agent.md), or %s%s.",
                how_to_set(may), may->has_zeusd ? ", or use zeusd, which is running" : "");
}

/* Returns lines that name a problem, the GPU and a solution. Does not call the driver. */
static json_t *diagnose(const machine_facts *machine) {
    const gpu_permissions *may = &machine->permissions;
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
    if (outcome == HARPE_SAVED_FAILED) add_problem(user, "%s.", error->message);
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

static void add_record(restore_view *view, const harpe_saved_settings *state,
                       const harpe_gpu_info *info, harpe_saved_settings_outcome outcome,
                       const harpe_error *error) {
    bool has_failed = outcome == HARPE_SAVED_FAILED;
    json_t *record = json_pack(
        "{s:o, s:s, s:s, s:I, s:s, s:b, s:o, s:o, s:o}", "driver_index",
        info ? json_integer(info->driver_index) : json_null(), "uuid", state->uuid, "changed_by",
        state->kind == HARPE_SAVED_CLOCKS ? "frequency controller" : "power limit optimizer",
        "process", (json_int_t)state->trainer, "outcome", outcome_name(view, outcome),
        "resets_clocks", state->resets_clocks, "power_limit_w",
        known(state->power_limit_mw > 0 ? state->power_limit_mw / 1e3 : -1), "persistence",
        state->persistence >= 0 ? json_boolean(state->persistence) : json_null(), "error",
        has_failed ? harpe_command_json_text(error->message) : json_null());
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

static void print_table(const machine_facts *machine) {
    int width = (int)strlen("model");
    for (int i = 0; i < machine->count; i++) {
        int length = (int)strlen(machine->facts[i].info->name);
        width = length > width ? length : width;
    }
    printf("%s%3s  %-*s  %-23s  %-15s  %7s  %4s%s\n", harpe_bold_start(), "gpu", width, "model",
           "limit W min/def/max/now", "clocks MHz", "power W", "C", harpe_bold_end());
    for (int i = 0; i < machine->count; i++) {
        const gpu_facts *gpu = &machine->facts[i];
        char limits[160];
        char clocks[128];
        snprintf(limits, sizeof limits, "%s/%s/%s/%s", NUMBER(gpu->limit_minimum_w),
                 NUMBER(gpu->limit_default_w), NUMBER(gpu->limit_maximum_w), NUMBER(gpu->limit_w));
        snprintf(clocks, sizeof clocks, "-");
        if (gpu->graphics_count > 0)
            snprintf(clocks, sizeof clocks, "%s-%s (%zu)", NUMBER(gpu->graphics_minimum_mhz),
                     NUMBER(gpu->graphics_maximum_mhz), gpu->graphics_count);
        printf("%3d  %-*s  %-23s  %-15s  %7s  %4s\n", i, width, gpu->info->name, limits, clocks,
               NUMBER(gpu->power_w), NUMBER(gpu->temperature_c));
    }
}

static void print_counters(const machine_facts *machine) {
    printf("\n%s%3s  %-9s  %-21s  %-11s  %-11s  %-16s  %s%s\n", harpe_bold_start(), "gpu", "energy",
           "counter step", "read cost", "persistence", "PCI address", "UUID", harpe_bold_end());
    for (int i = 0; i < machine->count; i++) {
        const gpu_facts *gpu = &machine->facts[i];
        char step[96] = "-";
        char cost[64] = "-";
        if (gpu->counter.step_ms > 0)
            snprintf(step, sizeof step, "%s ms, %s mJ", HARPE_DIGITS(gpu->counter.step_ms, 3),
                     HARPE_DIGITS(gpu->counter.step_mj, 4));
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
static void print_notes(const machine_facts *machine) {
    for (int i = 0; i < machine->count; i++) {
        const gpu_facts *gpu = &machine->facts[i];
        if (gpu->is_module)
            printf("\nGPU %d: its energy is that of the whole module, CPU included (power now: GPU "
                   "%s W, module %s W).\n",
                   i, NUMBER(gpu->power_w), NUMBER(gpu->module_power_w));
        if (gpu->idle_mhz > 0)
            printf("\nGPU %d: has no work, so the node agent holds its clock at %u MHz until it "
                   "has.\n",
                   i, gpu->idle_mhz);
    }
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

static void print_agent(const agent_facts *agent) {
    if (agent->state == AGENT_NOT_LOOKED_FOR) return;
    if (agent->state != AGENT_LENDS) {
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

static void print_text(const machine_facts *machine, const json_t *problems) {
    const harpe_gpus *gpus = machine->gpus;
    const char *version = harpe_gpus_driver_version(gpus);
    static const char *const may_set[] = {
        [MAY_SET] = "yes",
        [MAY_NOT_SET] = "no",
        [MAY_SET_UNKNOWN] = "not checked (emulated: yes, unless the fault no_permission is on)",
    };
    printf("%d of %d GPU%s visible, driver %s (%s)%s\n\n", machine->count,
           harpe_gpus_driver_count(gpus), harpe_gpus_driver_count(gpus) == 1 ? "" : "s",
           *version ? version : "of unknown version", harpe_gpus_backend_name(gpus),
           harpe_gpus_are_emulated(gpus) ? ", emulated by Harpe" : "");
    print_table(machine);
    print_counters(machine);
    print_notes(machine);
    printf("\nMay set power limits and clocks: %s\n", may_set[machine->permissions.may_set]);
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

static json_t *gpu_json(const gpu_facts *facts) {
    const counter_facts *counter = &facts->counter;
    bool has_step = counter->step_ms > 0;
    return json_pack(
        "{s:i, s:i, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o, s:b, s:s, s:b, s:o, s:o, s:o}",
        "index", facts->info->index, "driver_index", facts->info->driver_index, "name",
        harpe_command_json_text(facts->info->name), "uuid",
        harpe_command_json_text(facts->info->uuid), "pci_bus_id", facts->info->pci_bus_id,
        "power_limit_minimum_w", known(facts->limit_minimum_w), "power_limit_default_w",
        known(facts->limit_default_w), "power_limit_maximum_w", known(facts->limit_maximum_w),
        "power_limit_w", known(facts->limit_w), "enforced_power_limit_w",
        known(facts->limit_enforced_w), "graphics_clock_minimum_mhz",
        known(facts->graphics_minimum_mhz), "graphics_clock_maximum_mhz",
        known(facts->graphics_maximum_mhz), "graphics_clock_count",
        (json_int_t)facts->graphics_count, "graphics_clock_mhz", known(facts->graphics_mhz),
        "idle_clock_mhz", known(facts->idle_mhz > 0 ? (double)facts->idle_mhz : -1),
        "memory_clock_maximum_mhz", known(facts->memory_maximum_mhz), "memory_clock_mhz",
        known(facts->memory_mhz), "power_w", known(facts->power_w), "average_power_w",
        known(facts->average_power_w), "module_power_w", known(facts->module_power_w),
        "temperature_c", known(facts->temperature_c), "persistence_mode",
        facts->persistence < 0 ? json_null() : json_boolean(facts->persistence), "mig_mode",
        facts->is_mig_enabled, "energy_scope", facts->is_module ? "module" : "gpu",
        "energy_counter", counter->is_supported, "energy_counter_step_ms",
        known(has_step ? counter->step_ms : -1), "energy_counter_step_mj",
        known(has_step ? counter->step_mj : -1), "energy_counter_read_us",
        known(counter->is_supported ? counter->read_cost_us : -1));
}

/* Returns a limit of the agent, or null if there is none. */
static json_t *limit_json(uint32_t limit, double scale) {
    return known(limit > 0 ? limit * scale : -1);
}

static const char *const agent_state_names[] = {
    [AGENT_OFF] = "off",         [AGENT_ABSENT] = "absent", [AGENT_SILENT] = "silent",
    [AGENT_REFUSES] = "refuses", [AGENT_LENDS] = "lends",
};

static json_t *agent_json(const agent_facts *agent) {
    if (agent->state == AGENT_NOT_LOOKED_FOR) return json_null();
    return json_pack(
        "{s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:o}", "state", agent_state_names[agent->state],
        "socket", harpe_command_json_text(*agent->socket ? agent->socket : NULL), "reason",
        harpe_command_json_text(*agent->reason ? agent->reason : NULL), "used_for_clocks",
        agent->state == AGENT_LENDS && agent->is_used_for_clocks, "lowest_clock_mhz",
        limit_json(agent->lowest_mhz, 1), "highest_clock_mhz", limit_json(agent->highest_mhz, 1),
        "lowest_power_limit_w", limit_json(agent->lowest_mw, 1e-3), "highest_power_limit_w",
        limit_json(agent->highest_mw, 1e-3));
}

static harpe_status print_json(const machine_facts *machine, json_t *problems, harpe_error *error) {
    const harpe_gpus *gpus = machine->gpus;
    may_set_kind may_set = machine->permissions.may_set;
    json_t *list = json_array();
    for (int i = 0; i < machine->count; i++)
        json_array_append_new(list, gpu_json(&machine->facts[i]));
    return harpe_command_print_json(
        json_pack(
            "{s:s, s:o, s:b, s:i, s:o, s:o, s:o, s:O}", "backend", harpe_gpus_backend_name(gpus),
            "driver_version", harpe_command_json_text(harpe_gpus_driver_version(gpus)), "emulated",
            harpe_gpus_are_emulated(gpus), "driver_gpu_count", harpe_gpus_driver_count(gpus),
            "may_set", may_set == MAY_SET_UNKNOWN ? json_null() : json_boolean(may_set == MAY_SET),
            "agent", agent_json(&machine->agent), "gpus", list, "problems", problems),
        error);
}

/* ---- The command ----------------------------------------------------------------------------- */

static harpe_status show(harpe_gpus *gpus, bool is_json, harpe_error *error) {
    machine_facts machine = {0};
    harpe_status status = read_machine(gpus, &machine, error);
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
    free(machine.facts);
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
    if (status == HARPE_OK)
        status = arguments.restores ? restore_left(gpus, arguments.is_dry, arguments.json, &error)
                                    : show(gpus, arguments.json, &error);
    harpe_gpus_close(gpus);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("gpus", &error);
}
