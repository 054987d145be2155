/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the rules of the node agent. Looks up the names of users and groups once, when the rules
 * are read, because a directory server may answer slowly.
 * Also finds rules that cannot work on this machine. Several machines can share one file of rules,
 * so most of these rules are reported and not refused. */
#include "agent/agent_internal.h"

#include <grp.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "gpu/gpus.h"
#include "gpu/visible.h"

enum { LARGEST_FILE = 1 << 20, LARGEST_MHZ = 100000, LARGEST_W = 100000 };

#define LARGEST_RATE 1e6
#define LONGEST_CHANGE_NS 1e15 /* between two changes, so that sums do not overflow */
#define SHORTEST_IDLE_S 0.1
#define LONGEST_IDLE_S 1e6
#define DEFAULT_CHANGES_PER_SECOND 200
#define DEFAULT_LEASES_PER_SECOND 10

/* The line that is being read. */
typedef struct rule_line {
    const char *file;
    int number;
    const char *name;
    char *value;
} rule_line;

static harpe_status fail_line(const rule_line *line, const char *fault, harpe_error *error) {
    return harpe_fail(error, HARPE_INVALID_INPUT, "%s: line %d: %s: %s", line->file, line->number,
                      line->name, fault);
}

static harpe_status fail_value(const rule_line *line, const char *value, const char *expected,
                               harpe_error *error) {
    char fault[256];
    (void)snprintf(fault, sizeof fault, "expected %s, found '%.80s'", expected, value);
    return fail_line(line, fault, error);
}

/* ---- Users and groups ------------------------------------------------------------------------ */

static bool parse_id(const char *text, uint32_t *out) {
    int64_t value;
    if (!harpe_parse_int(text, strlen(text), &value) || value < 0 || value > UINT32_MAX - 1)
        return false;
    *out = (uint32_t)value;
    return true;
}

static harpe_status add_user(const rule_line *line, harpe_agent_users *users, const char *name,
                             harpe_error *error) {
    uint32_t id = 0;
    if (strcmp(name, "*") == 0) {
        users->has_everybody = true;
        return HARPE_OK;
    }
    if (!parse_id(name, &id)) {
        const struct passwd *user = getpwnam(name);
        if (!user) return fail_value(line, name, "the name or number of a user, or *", error);
        id = user->pw_uid;
    }
    if (!HARPE_ARRAY_RESERVE(users->each, users->capacity, users->count + 1))
        return harpe_fail_memory(error);
    users->each[users->count++] = id;
    return HARPE_OK;
}

static harpe_status add_group(const rule_line *line, harpe_agent_policy *policy, const char *name,
                              harpe_error *error) {
    uint32_t id;
    if (!parse_id(name, &id)) {
        const struct group *group = getgrnam(name);
        if (!group) return fail_value(line, name, "the name or number of a group", error);
        id = group->gr_gid;
    }
    if (!HARPE_ARRAY_RESERVE(policy->groups, policy->group_capacity, policy->group_count + 1))
        return harpe_fail_memory(error);
    policy->groups[policy->group_count++] = id;
    return HARPE_OK;
}

/* Reads a list of users (NULL: of groups) that is separated by commas or spaces. */
static harpe_status read_names(const rule_line *line, harpe_agent_policy *policy,
                               harpe_agent_users *users, harpe_error *error) {
    char *rest = NULL;
    harpe_status status = HARPE_OK;
    for (char *name = strtok_r(line->value, ", \t", &rest); name && status == HARPE_OK;
         name = strtok_r(NULL, ", \t", &rest))
        status = users ? add_user(line, users, name, error) : add_group(line, policy, name, error);
    return status;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static bool parse_number(const char *text, int64_t largest, uint32_t *out) {
    int64_t value;
    if (!harpe_parse_int(text, strlen(text), &value) || value < 0 || value > largest) return false;
    *out = (uint32_t)value;
    return true;
}

static harpe_status read_mhz(const rule_line *line, uint32_t *out, harpe_error *error) {
    if (parse_number(line->value, LARGEST_MHZ, out)) return HARPE_OK;
    return fail_value(line, line->value, "a clock in MHz, or 0 for no limit", error);
}

static harpe_status read_watts(const rule_line *line, uint32_t *out, harpe_error *error) {
    if (parse_number(line->value, LARGEST_W, out)) return HARPE_OK;
    return fail_value(line, line->value, "a power limit in W, or 0 for no limit", error);
}

static harpe_status read_rate(const rule_line *line, double *out, harpe_error *error) {
    double value;
    bool is_number = harpe_parse_double(line->value, strlen(line->value), &value);
    if (!is_number || !(value >= 0) || value > LARGEST_RATE)
        return fail_value(line, line->value, "a number per second, or 0 for no limit", error);
    *out = value;
    return HARPE_OK;
}

/* ---- Rules for a GPU ------------------------------------------------------------------------- */

static harpe_agent_gpu_rule *rule_for(harpe_agent_policy *policy, const char *gpu) {
    for (size_t i = 0; i < policy->gpu_rule_count; i++)
        if (strcmp(policy->gpu_rules[i].gpu, gpu) == 0) return &policy->gpu_rules[i];
    if (!HARPE_ARRAY_RESERVE(policy->gpu_rules, policy->gpu_rule_capacity,
                             policy->gpu_rule_count + 1))
        return NULL;
    harpe_agent_gpu_rule *rule = &policy->gpu_rules[policy->gpu_rule_count++];
    *rule = (harpe_agent_gpu_rule){.gpu = ""};
    (void)snprintf(rule->gpu, sizeof rule->gpu, "%s", gpu);
    return rule;
}

/* Returns true if a name is a number. GPUs have other numbers after a change of the machine, so
 * rules do not use them. */
static bool is_index(const char *name) { return strspn(name, "0123456789") == strlen(name); }

/* Reads "GPU LOWEST HIGHEST". */
static harpe_status read_lock(const rule_line *line, harpe_agent_policy *policy, bool of_memory,
                              harpe_error *error) {
    static const char expected[] = "GPU LOWEST HIGHEST, with 'all', a UUID or a PCI address, and "
                                   "two clocks in MHz";
    char *rest = NULL;
    char *gpu = strtok_r(line->value, " \t", &rest);
    char *lowest = strtok_r(NULL, " \t", &rest);
    char *highest = strtok_r(NULL, " \t", &rest);
    uint32_t minimum_mhz;
    uint32_t maximum_mhz;
    if (!highest || strtok_r(NULL, " \t", &rest) || strlen(gpu) >= 96 || is_index(gpu) ||
        !parse_number(lowest, LARGEST_MHZ, &minimum_mhz) ||
        !parse_number(highest, LARGEST_MHZ, &maximum_mhz) || maximum_mhz == 0 ||
        minimum_mhz > maximum_mhz)
        return fail_value(line, gpu ? gpu : "", expected, error);
    harpe_agent_gpu_rule *rule = rule_for(policy, gpu);
    if (!rule) return harpe_fail_memory(error);
    rule->has_locks = true;
    if (of_memory) {
        rule->locks.memory_minimum_mhz = minimum_mhz;
        rule->locks.memory_maximum_mhz = maximum_mhz;
    } else {
        rule->locks.graphics_minimum_mhz = minimum_mhz;
        rule->locks.graphics_maximum_mhz = maximum_mhz;
    }
    return HARPE_OK;
}

/* Reads the words "clock MHZ after SECONDS", or "off". */
static bool parse_idle(char *const *words, size_t count, harpe_idle_rule *out) {
    double after_s;
    if (count == 1 && strcmp(words[0], "off") == 0) return true;
    if (count != 4 || strcmp(words[0], "clock") != 0 || strcmp(words[2], "after") != 0 ||
        !parse_number(words[1], LARGEST_MHZ, &out->clock_mhz) || out->clock_mhz == 0 ||
        !harpe_parse_double(words[3], strlen(words[3]), &after_s) ||
        !(after_s >= SHORTEST_IDLE_S && after_s <= LONGEST_IDLE_S))
        return false;
    out->after_ns = (int64_t)(after_s * 1e9);
    return true;
}

/* Reads "[GPU] clock MHZ after SECONDS" or "[GPU] off". */
static harpe_status read_idle(const rule_line *line, harpe_agent_policy *policy,
                              harpe_error *error) {
    enum { WORDS = 5 };
    char *words[WORDS + 1] = {NULL};
    char *rest = line->value;
    harpe_idle_rule idle = {.clock_mhz = 0};
    size_t count = 0;
    while (count <= WORDS && (words[count] = strtok_r(rest, " \t", &rest)))
        count++;
    size_t named = count == 2 || count == WORDS; /* the first word is a GPU */
    const char *gpu = named ? words[0] : "all";
    if (count > WORDS || strlen(gpu) >= 96 || is_index(gpu) ||
        !parse_idle(words + named, count - named, &idle))
        return fail_value(line, count > 0 ? words[0] : "",
                          "[GPU] clock MHZ after SECONDS, or [GPU] off", error);
    harpe_agent_gpu_rule *rule = rule_for(policy, gpu);
    if (!rule) return harpe_fail_memory(error);
    rule->has_idle = true;
    rule->idle = idle;
    return HARPE_OK;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static harpe_status read_directory(const rule_line *line, harpe_agent_policy *policy,
                                   harpe_error *error) {
    if (line->value[0] != '/' || strlen(line->value) >= sizeof policy->device_directory)
        return fail_value(line, line->value, "the path of a directory", error);
    memcpy(policy->device_directory, line->value, strlen(line->value) + 1);
    return HARPE_OK;
}

static harpe_status read_visibility(const rule_line *line, harpe_agent_policy *policy,
                                    harpe_error *error) {
    policy->shows_others = strcmp(line->value, "all") == 0;
    if (policy->shows_others || strcmp(line->value, "own") == 0) return HARPE_OK;
    return fail_value(line, line->value, "all or own", error);
}

static harpe_status read_rule(const rule_line *line, harpe_agent_policy *policy,
                              harpe_error *error) {
    const char *name = line->name;
    if (strcmp(name, "allow_users") == 0) return read_names(line, policy, &policy->users, error);
    if (strcmp(name, "allow_groups") == 0) return read_names(line, policy, NULL, error);
    if (strcmp(name, "zeusd_users") == 0)
        return read_names(line, policy, &policy->zeusd_users, error);
    if (strcmp(name, "show_leases") == 0) return read_visibility(line, policy, error);
    if (strcmp(name, "lowest_clock_mhz") == 0)
        return read_mhz(line, &policy->lowest_clock_mhz, error);
    if (strcmp(name, "highest_clock_mhz") == 0)
        return read_mhz(line, &policy->highest_clock_mhz, error);
    if (strcmp(name, "lowest_power_limit_w") == 0)
        return read_watts(line, &policy->lowest_power_limit_w, error);
    if (strcmp(name, "highest_power_limit_w") == 0)
        return read_watts(line, &policy->highest_power_limit_w, error);
    if (strcmp(name, "changes_per_second") == 0)
        return read_rate(line, &policy->changes_per_second, error);
    if (strcmp(name, "leases_per_second") == 0)
        return read_rate(line, &policy->leases_per_second, error);
    if (strcmp(name, "device_directory") == 0) return read_directory(line, policy, error);
    if (strcmp(name, "default_locked_clocks") == 0) return read_lock(line, policy, false, error);
    if (strcmp(name, "default_locked_memory_clocks") == 0)
        return read_lock(line, policy, true, error);
    if (strcmp(name, "idle") == 0) return read_idle(line, policy, error);
    return fail_line(line, "there is no such rule; docs/agent.md lists the rules", error);
}

static char *trim(char *text) {
    text += strspn(text, " \t\r");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1]))
        text[--length] = '\0';
    return text;
}

static harpe_status read_line(char *text, const char *file, int number, harpe_agent_policy *policy,
                              harpe_error *error) {
    text[strcspn(text, "#")] = '\0';
    text = trim(text);
    if (*text == '\0') return HARPE_OK;
    char *equals = strchr(text, '=');
    if (!equals) {
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s: line %d: '%.80s' is not name = value",
                          file, number, text);
    }
    *equals = '\0';
    rule_line line = {
        .file = file, .number = number, .name = trim(text), .value = trim(equals + 1)};
    return read_rule(&line, policy, error);
}

static harpe_status check_order(const harpe_agent_policy *policy, const char *file,
                                harpe_error *error) {
    if (policy->highest_clock_mhz > 0 && policy->lowest_clock_mhz > policy->highest_clock_mhz)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: lowest_clock_mhz (%u) is above highest_clock_mhz (%u)", file,
                          policy->lowest_clock_mhz, policy->highest_clock_mhz);
    if (policy->highest_power_limit_w > 0 &&
        policy->lowest_power_limit_w > policy->highest_power_limit_w)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: lowest_power_limit_w (%u) is above highest_power_limit_w (%u)", file,
                          policy->lowest_power_limit_w, policy->highest_power_limit_w);
    return HARPE_OK;
}

harpe_status harpe_agent_policy_parse(const char *text, size_t length, const char *name,
                                      harpe_agent_policy *out, harpe_error *error) {
    *out = (harpe_agent_policy){.shows_others = true,
                                .changes_per_second = DEFAULT_CHANGES_PER_SECOND,
                                .leases_per_second = DEFAULT_LEASES_PER_SECOND};
    if (memchr(text, '\0', length))
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s: is not a text file", name);
    char *copy = strndup(text, length);
    if (!copy) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    int number = 0;
    char *rest = copy;
    for (char *line; status == HARPE_OK && (line = strsep(&rest, "\n"));)
        status = read_line(line, name, ++number, out, error);
    free(copy);
    if (status == HARPE_OK) status = check_order(out, name, error);
    if (status != HARPE_OK) harpe_agent_policy_clear(out);
    return status;
}

harpe_status harpe_agent_policy_read(const char *path, harpe_agent_policy *out,
                                     harpe_error *error) {
    const char *name = path ? path : HARPE_AGENT_CONFIG_PATH;
    if (!path && access(name, F_OK) != 0) return harpe_agent_policy_parse("", 0, name, out, error);
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(name, LARGEST_FILE, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_agent_policy_parse(text, length, name, out, error);
    free(text);
    return status;
}

void harpe_agent_policy_clear(harpe_agent_policy *policy) {
    free(policy->users.each);
    free(policy->groups);
    free(policy->gpu_rules);
    free(policy->zeusd_users.each);
    *policy = (harpe_agent_policy){0};
}

/* ---- Questions ------------------------------------------------------------------------------- */

/* Root and this process's user are always allowed. */
static bool has_user(const harpe_agent_users *users, uid_t user) {
    if (user == 0 || user == geteuid() || users->has_everybody) return true;
    for (size_t i = 0; i < users->count; i++)
        if (users->each[i] == user) return true;
    return false;
}

bool harpe_agent_policy_allows(const harpe_agent_policy *policy, uid_t user, const gid_t *groups,
                               size_t group_count) {
    if (has_user(&policy->users, user)) return true;
    for (size_t i = 0; i < policy->group_count; i++)
        for (size_t j = 0; j < group_count; j++)
            if (policy->groups[i] == groups[j]) return true;
    return false;
}

bool harpe_agent_policy_allows_zeusd(const harpe_agent_policy *policy, uid_t user) {
    return has_user(&policy->zeusd_users, user);
}

/* Returns true if a name in the rules ("all", a UUID or a PCI address) means the GPU. The domain of
 * a PCI address may have four or eight digits. */
static bool names_gpu(const char *name, const harpe_gpu_info *gpu) {
    return strcmp(name, "all") == 0 || strcasecmp(name, gpu->uuid) == 0 ||
           harpe_pci_address_matches(name, gpu->pci_bus_id);
}

/* Returns the last rule that names the GPU, or else the one for all GPUs. NULL: there is none. */
static const harpe_agent_gpu_rule *rule_of(const harpe_agent_policy *policy,
                                           const harpe_gpu_info *gpu, bool of_idle) {
    const harpe_agent_gpu_rule *found = NULL;
    for (size_t i = 0; i < policy->gpu_rule_count; i++) {
        const harpe_agent_gpu_rule *rule = &policy->gpu_rules[i];
        if (!names_gpu(rule->gpu, gpu) || !(of_idle ? rule->has_idle : rule->has_locks)) continue;
        if (!found || strcmp(rule->gpu, "all") != 0) found = rule;
    }
    return found;
}

harpe_idle_rule harpe_agent_policy_idle(const harpe_agent_policy *policy,
                                        const harpe_gpu_info *gpu) {
    const harpe_agent_gpu_rule *rule = rule_of(policy, gpu, true);
    return rule ? rule->idle : (harpe_idle_rule){.clock_mhz = 0};
}

harpe_lease_terms harpe_agent_policy_terms(const harpe_agent_policy *policy,
                                           const harpe_gpu_info *gpu) {
    harpe_lease_terms terms = {.is_lease = 1,
                               .lowest_mhz = policy->lowest_clock_mhz,
                               .highest_mhz = policy->highest_clock_mhz,
                               .lowest_mw = policy->lowest_power_limit_w * 1000,
                               .highest_mw = policy->highest_power_limit_w * 1000};
    if (policy->changes_per_second > 0)
        terms.shortest_change_ns =
            (int64_t)fmin(1e9 / policy->changes_per_second, LONGEST_CHANGE_NS);
    const harpe_agent_gpu_rule *rule = rule_of(policy, gpu, false);
    if (rule) terms.locks = rule->locks;
    return terms;
}

/* ---- Comparing with this machine ------------------------------------------------------------- */

typedef struct range {
    uint32_t lowest, highest;
} range;

/* Reports rules that lie outside of what a GPU offers. `what` is the end of the rules' names. */
static void check_range(const harpe_gpu_info *gpu, const char *what, const char *unit, range rules,
                        range offered, const harpe_log *log) {
    if (rules.highest > 0 && rules.highest < offered.lowest)
        harpe_log_line(log, HARPE_LOG_WARNING,
                       "GPU %d: the rule highest_%s is %u, but the lowest that the GPU offers is "
                       "%u %s",
                       gpu->driver_index, what, rules.highest, offered.lowest, unit);
    if (rules.lowest > offered.highest)
        harpe_log_line(log, HARPE_LOG_WARNING,
                       "GPU %d: the rule lowest_%s is %u, but the highest that the GPU offers is "
                       "%u %s",
                       gpu->driver_index, what, rules.lowest, offered.highest, unit);
}

static void check_gpu(const harpe_agent_policy *policy, harpe_gpus *gpus, int gpu,
                      const harpe_log *log) {
    const harpe_gpu_info *info = harpe_gpu_info_at(gpus, gpu);
    uint32_t nearest_mhz = 0;
    range mhz = {0, 0};
    range limit_mw = {0, 0};
    if (harpe_gpus_nearest_clock(gpus, gpu, 0, &nearest_mhz, &mhz.highest, &mhz.lowest, NULL) ==
        HARPE_OK)
        check_range(info, "clock_mhz", "MHz",
                    (range){policy->lowest_clock_mhz, policy->highest_clock_mhz}, mhz, log);
    if (harpe_gpu_power_limit_range(gpus, gpu, &limit_mw.lowest, &limit_mw.highest, NULL) ==
        HARPE_OK)
        check_range(info, "power_limit_w", "W",
                    (range){policy->lowest_power_limit_w, policy->highest_power_limit_w},
                    (range){limit_mw.lowest / 1000, limit_mw.highest / 1000}, log);
}

static bool is_there(const char *name, const harpe_gpus *gpus) {
    for (int gpu = 0; gpu < harpe_gpus_count(gpus); gpu++)
        if (names_gpu(name, harpe_gpu_info_at(gpus, gpu))) return true;
    return false;
}

harpe_status harpe_agent_policy_check(const harpe_agent_policy *policy, harpe_gpus *gpus,
                                      const harpe_log *log, harpe_error *error) {
    struct stat status;
    const char *directory = policy->device_directory;
    if (*directory && (stat(directory, &status) != 0 || !S_ISDIR(status.st_mode)))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the rule device_directory names '%s', which is not a directory",
                          directory);
    for (size_t i = 0; i < policy->gpu_rule_count; i++)
        if (!is_there(policy->gpu_rules[i].gpu, gpus))
            harpe_log_line(log, HARPE_LOG_WARNING,
                           "the rules name the GPU '%s', which this machine does not have",
                           policy->gpu_rules[i].gpu);
    for (int gpu = 0; gpu < harpe_gpus_count(gpus); gpu++)
        check_gpu(policy, gpus, gpu, log);
    return HARPE_OK;
}
