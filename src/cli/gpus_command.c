/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe gpus`: what GPUs are there, what can be measured and set on them, and what to do about
 * what cannot. Reads only; it never changes a setting, so permissions are told from the process's
 * capabilities and not by trying. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <harpe/gpu.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/command.h"
#include "gpu/gpus.h"

/* How long the energy counters are watched, all GPUs at once, and how often. */
enum { WATCH_NS = 400000000, WATCH_PAUSE_NS = 1000000, STEPS_MAX = 256 };

typedef struct gpus_arguments {
    bool json;
    bool all;
} gpus_arguments;

/* An energy counter, watched. */
typedef struct counter {
    bool is_supported;
    double read_cost_us;
    double step_ms; /* median between two moves; 0: none or one seen */
    double step_mj;
    char problem[HARPE_ERROR_MESSAGE_SIZE]; /* why it cannot be read */
} counter;

/* One GPU's facts; a number that cannot be read is negative. */
typedef struct gpu_facts {
    const harpe_gpu_info *info;
    double limit_minimum_w, limit_default_w, limit_maximum_w, limit_w;
    double graphics_minimum_mhz, graphics_maximum_mhz, graphics_mhz;
    size_t graphics_count;
    double memory_maximum_mhz, memory_mhz;
    double power_w, average_power_w, temperature_c;
    int persistence; /* 1, 0, or -1 when unknown */
    bool is_mig_enabled;
    bool is_lost;
    counter counter;
} gpu_facts;

/* What this process may do, told without trying. */
typedef struct permissions {
    bool is_root;
    bool has_capability; /* CAP_SYS_ADMIN */
    bool may_set;
    bool has_zeusd;
    bool has_persistence_daemon;
} permissions;

/* ---- Flags -------------------------------------------------------------------------------- */

static const struct argp_option flags[] = {
    {"all", 'a', NULL, 0, "Every GPU of the machine, whatever CUDA_VISIBLE_DEVICES says", 0},
    {"json", 'j', NULL, 0, "Print one JSON object", 0},
    {0},
};

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    gpus_arguments *arguments = state->input;
    switch (key) {
    case 'a': arguments->all = true; return 0;
    case 'j': arguments->json = true; return 0;
    case ARGP_KEY_ARG: harpe_flag_fail(state, "unexpected argument '%s'", argument);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .doc = "Show the GPUs: limits, clocks, power, the energy counter, permissions, and what to do "
           "about what is wrong. Changes nothing; takes half a second."
           "\vExample:\n  harpe gpus --json\n\nSee also: man harpe-gpus",
};

/* ---- Permissions -------------------------------------------------------------------------- */

/* The effective capabilities of /proc/self/status. */
static bool has_capability(unsigned number) {
    FILE *file = fopen("/proc/self/status", "re");
    if (!file) return false;
    char line[256];
    unsigned long long set = 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "CapEff:", 7) == 0) set = strtoull(line + 7, NULL, 16);
    }
    fclose(file);
    return set >> number & 1;
}

static permissions find_permissions(const harpe_gpus *gpus) {
    enum { CAPABILITY_SYS_ADMIN = 21 };
    permissions found = {
        .is_root = geteuid() == 0,
        .has_capability = has_capability(CAPABILITY_SYS_ADMIN),
        .has_zeusd = access("/var/run/zeusd.sock", F_OK) == 0,
        .has_persistence_daemon = access("/var/run/nvidia-persistenced/socket", F_OK) == 0,
    };
    found.may_set = found.has_capability || harpe_gpus_are_emulated(gpus);
    return found;
}

/* ---- Facts -------------------------------------------------------------------------------- */

/* A reading in thousandths as a number, or -1. */
static double thousandths(harpe_status status, uint32_t value) {
    return status == HARPE_OK ? value / 1e3 : -1;
}

static void read_limits(harpe_gpus *gpus, int gpu, gpu_facts *facts) {
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
}

static void read_clocks(harpe_gpus *gpus, int gpu, gpu_facts *facts) {
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

static void read_facts(harpe_gpus *gpus, int gpu, gpu_facts *facts) {
    facts->info = harpe_gpu_info_at(gpus, gpu);
    facts->is_mig_enabled = harpe_gpu_mig_is_enabled(gpus, gpu);
    read_limits(gpus, gpu, facts);
    read_clocks(gpus, gpu, facts);
    uint32_t value = 0;
    harpe_status status = harpe_gpu_instant_power(gpus, gpu, &value, NULL);
    facts->power_w = thousandths(status, value);
    status = harpe_gpu_average_power(gpus, gpu, &value, NULL);
    facts->average_power_w = thousandths(status, value);
    bool is_read = harpe_gpu_temperature(gpus, gpu, &value, NULL) == HARPE_OK;
    facts->temperature_c = is_read ? (double)value : -1;
    bool is_enabled = false;
    is_read = harpe_gpu_persistence_mode(gpus, gpu, &is_enabled, NULL) == HARPE_OK;
    facts->persistence = is_read ? is_enabled : -1;
}

/* ---- The energy counters ------------------------------------------------------------------ */

/* What was seen of a counter so far. */
typedef struct watch {
    uint64_t last_mj;
    int64_t last_move_ns;
    size_t step_count;
    double step_ms[STEPS_MAX];
    double step_mj[STEPS_MAX];
    size_t read_count;
    int64_t read_ns;
} watch;

static int compare_numbers(const void *a, const void *b) {
    double one = *(const double *)a;
    double other = *(const double *)b;
    return (one > other) - (one < other);
}

static double median(double *values, size_t count) {
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, compare_numbers);
    return values[count / 2];
}

/* Reads one counter. The first move seen only starts the clock: when it began is not known. */
static harpe_status look(harpe_gpus *gpus, int gpu, watch *seen, counter *out) {
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
    const struct timespec pause = {.tv_nsec = WATCH_PAUSE_NS};
    for (int i = 0; i < count; i++) {
        facts[i].counter.is_supported = true;
    }
    int64_t end_ns = harpe_clock_ns() + WATCH_NS;
    while (harpe_clock_ns() < end_ns) {
        bool any = false;
        for (int i = 0; i < count; i++) {
            counter *out = &facts[i].counter;
            if (!out->is_supported) continue;
            harpe_status status = look(gpus, i, &watches[i], out);
            out->is_supported = status == HARPE_OK;
            facts[i].is_lost = facts[i].is_lost || status == HARPE_GPU_LOST;
            any = any || out->is_supported;
        }
        if (!any) break;
        nanosleep(&pause, NULL);
    }
    for (int i = 0; i < count; i++) {
        watch *seen = &watches[i];
        counter *out = &facts[i].counter;
        out->step_ms = median(seen->step_ms, seen->step_count);
        out->step_mj = median(seen->step_mj, seen->step_count);
        if (seen->read_count > 0) {
            out->read_cost_us = (double)seen->read_ns / 1e3 / (double)seen->read_count;
        }
    }
}

/* ---- The doctor --------------------------------------------------------------------------- */

/* Problems with what to do, one line each. */
static void add_problem(json_t *problems, const char *format, ...) HARPE_PRINTF(2, 3);

static void add_problem(json_t *problems, const char *format, ...) {
    char line[HARPE_ERROR_MESSAGE_SIZE + 128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    json_array_append_new(problems, harpe_command_json_text(line));
}

static void diagnose_gpu(const gpu_facts *facts, const permissions *may, json_t *problems) {
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

static json_t *diagnose(const harpe_gpus *gpus, const gpu_facts *facts, const permissions *may) {
    json_t *problems = json_array();
    harpe_error error;
    if (!may->may_set) {
        add_problem(problems, "Power limits and clocks cannot be set: %s%s.",
                    may->is_root ? "root, but without CAP_SYS_ADMIN (in a container: docker run "
                                   "--cap-add SYS_ADMIN)"
                                 : "run as root, or give the process CAP_SYS_ADMIN",
                    may->has_zeusd ? ", or use zeusd, which is running" : "");
    }
    if (harpe_gpus_check_same_model(gpus, &error) != HARPE_OK) {
        add_problem(problems, "Mixed models: %s.", error.message);
    }
    for (int i = 0; i < harpe_gpus_count(gpus); i++) {
        diagnose_gpu(&facts[i], may, problems);
    }
    return problems;
}

/* ---- Telling people ----------------------------------------------------------------------- */

/* A number, or "-" when it is not known (negative). */
static const char *number(char *text, size_t size, double value) {
    if (value < 0) {
        snprintf(text, size, "-");
    } else {
        snprintf(text, size, "%.5g", value);
    }
    return text;
}

#define NUMBER(value) number((char[32]){0}, 32, (value))

static void print_table(const harpe_gpus *gpus, const gpu_facts *facts) {
    int width = (int)strlen("model");
    for (int i = 0; i < harpe_gpus_count(gpus); i++) {
        int length = (int)strlen(facts[i].info->name);
        width = length > width ? length : width;
    }
    printf("%s%3s  %-*s  %-23s  %-15s  %7s  %4s%s\n", harpe_bold_start(), "gpu", width, "model",
           "limit W min/def/max/now", "clocks MHz", "power W", "C", harpe_bold_end());
    for (int i = 0; i < harpe_gpus_count(gpus); i++) {
        const gpu_facts *gpu = &facts[i];
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

static void print_counters(const harpe_gpus *gpus, const gpu_facts *facts) {
    printf("\n%s%3s  %-9s  %-21s  %-11s  %-11s  %-16s  %s%s\n", harpe_bold_start(), "gpu", "energy",
           "counter step", "read cost", "persistence", "PCI address", "UUID", harpe_bold_end());
    for (int i = 0; i < harpe_gpus_count(gpus); i++) {
        const gpu_facts *gpu = &facts[i];
        char step[96] = "-";
        char cost[64] = "-";
        if (gpu->counter.step_ms > 0) {
            snprintf(step, sizeof step, "%.3g ms, %.4g mJ", gpu->counter.step_ms,
                     gpu->counter.step_mj);
        }
        if (gpu->counter.is_supported) {
            snprintf(cost, sizeof cost, "%.3g us", gpu->counter.read_cost_us);
        }
        const char *persistence = gpu->persistence < 0 ? "unknown"
                                  : gpu->persistence   ? "on"
                                                       : "off";
        printf("%3d  %-9s  %-21s  %-11s  %-11s  %-16s  %s\n", i,
               gpu->counter.is_supported ? "counter" : "sampled", step, cost, persistence,
               gpu->info->pci_bus_id, gpu->info->uuid);
    }
}

static void print_people(const harpe_gpus *gpus, const gpu_facts *facts, const permissions *may,
                         const json_t *problems) {
    int count = harpe_gpus_count(gpus);
    const char *version = harpe_gpus_driver_version(gpus);
    printf("%d of %d GPU%s visible, driver %s (%s)%s\n\n", count, harpe_gpus_driver_count(gpus),
           harpe_gpus_driver_count(gpus) == 1 ? "" : "s", *version ? version : "of unknown version",
           harpe_gpus_backend_name(gpus),
           harpe_gpus_are_emulated(gpus) ? ", emulated by Harpe" : "");
    print_table(gpus, facts);
    print_counters(gpus, facts);
    printf("\nMay set power limits and clocks: %s\n", harpe_gpus_are_emulated(gpus)
                                                          ? "yes (emulated)"
                                                      : may->may_set ? "yes"
                                                                     : "no");
    if (json_array_size(problems) == 0) {
        printf("Nothing is wrong.\n");
        return;
    }
    printf("\n%sWhat to do%s\n", harpe_bold_start(), harpe_bold_end());
    for (size_t i = 0; i < json_array_size(problems); i++) {
        printf("- %s\n", json_string_value(json_array_get(problems, i)));
    }
}

/* ---- Telling programs --------------------------------------------------------------------- */

static void set_number(json_t *object, const char *key, double value) {
    json_object_set_new(object, key, value < 0 ? json_null() : json_real(value));
}

static json_t *gpu_json(const gpu_facts *facts) {
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
    set_number(object, "graphics_clock_minimum_mhz", facts->graphics_minimum_mhz);
    set_number(object, "graphics_clock_maximum_mhz", facts->graphics_maximum_mhz);
    json_object_set_new(object, "graphics_clock_count",
                        json_integer((json_int_t)facts->graphics_count));
    set_number(object, "graphics_clock_mhz", facts->graphics_mhz);
    set_number(object, "memory_clock_maximum_mhz", facts->memory_maximum_mhz);
    set_number(object, "memory_clock_mhz", facts->memory_mhz);
    set_number(object, "power_w", facts->power_w);
    set_number(object, "average_power_w", facts->average_power_w);
    set_number(object, "temperature_c", facts->temperature_c);
    json_object_set_new(object, "persistence_mode",
                        facts->persistence < 0 ? json_null() : json_boolean(facts->persistence));
    json_object_set_new(object, "mig_mode", json_boolean(facts->is_mig_enabled));
    json_object_set_new(object, "energy_counter", json_boolean(facts->counter.is_supported));
    double step_ms = facts->counter.step_ms > 0 ? facts->counter.step_ms : -1;
    set_number(object, "energy_counter_step_ms", step_ms);
    set_number(object, "energy_counter_step_mj", step_ms > 0 ? facts->counter.step_mj : -1);
    set_number(object, "energy_counter_read_us",
               facts->counter.is_supported ? facts->counter.read_cost_us : -1);
    return object;
}

static harpe_status print_json(const harpe_gpus *gpus, const gpu_facts *facts,
                               const permissions *may, json_t *problems, harpe_error *error) {
    json_t *object = json_object();
    json_t *list = json_array();
    for (int i = 0; i < harpe_gpus_count(gpus); i++) {
        json_array_append_new(list, gpu_json(&facts[i]));
    }
    json_object_set_new(object, "backend", json_string(harpe_gpus_backend_name(gpus)));
    json_object_set_new(object, "driver_version",
                        harpe_command_json_text(harpe_gpus_driver_version(gpus)));
    json_object_set_new(object, "emulated", json_boolean(harpe_gpus_are_emulated(gpus)));
    json_object_set_new(object, "driver_gpu_count", json_integer(harpe_gpus_driver_count(gpus)));
    json_object_set_new(object, "may_set", json_boolean(may->may_set));
    json_object_set_new(object, "gpus", list);
    json_object_set(object, "problems", problems);
    return harpe_command_print_json(object, error);
}

/* ---- The command -------------------------------------------------------------------------- */

static void print_warning(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level >= HARPE_LOG_WARNING) {
        fprintf(stderr, "harpe gpus: warning: %s\n", line);
    }
}

int harpe_gpus_command(int argc, char **argv) {
    gpus_arguments arguments = {0};
    argp_parse(&argument_parser, argc, argv, 0, NULL, &arguments);
    harpe_error error;
    harpe_gpus *gpus = NULL;
    gpu_facts *facts = NULL;
    watch *watches = NULL;
    json_t *problems = NULL;
    harpe_gpus_options options = {.visible_devices = arguments.all ? "all" : NULL,
                                  .log = {.write = print_warning}};
    harpe_status status = harpe_gpus_open(&options, &gpus, &error);
    if (status != HARPE_OK) goto done;
    size_t count = (size_t)harpe_gpus_count(gpus);
    facts = harpe_calloc(count, sizeof *facts);
    watches = harpe_calloc(count, sizeof *watches);
    if (!facts || !watches) {
        status = harpe_fail_memory(&error);
        goto done;
    }
    for (size_t i = 0; i < count; i++) {
        read_facts(gpus, (int)i, &facts[i]);
    }
    watch_counters(gpus, facts, watches);
    permissions may = find_permissions(gpus);
    problems = diagnose(gpus, facts, &may);
    if (arguments.json) {
        status = print_json(gpus, facts, &may, problems, &error);
    } else {
        print_people(gpus, facts, &may, problems);
    }
done:
    json_decref(problems);
    free(watches);
    free(facts);
    harpe_gpus_close(gpus);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("gpus", &error);
}
