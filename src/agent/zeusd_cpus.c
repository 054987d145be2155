/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the energy of CPU packages and their memory for requests and streams. One piece of work
 * reads all counters together; at most one runs at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/zeusd_internal.h"
#include "base/clock.h"
#include "base/log.h"

harpe_status harpe_zeusd_cpus_open(harpe_zeusd_server *server, harpe_error *error) {
    harpe_error told;
    harpe_status status = harpe_rapl_open(server->options.rapl_path, &server->cpus.rapl, &told);
    if (status == HARPE_OUT_OF_MEMORY) {
        if (error) *error = told;
        return status;
    }
    if (status != HARPE_OK)
        harpe_log_line(&server->options.log, HARPE_LOG_WARNING, "zeusd: no CPU is listed: %s",
                       told.message);
    server->cpus.count = harpe_rapl_package_count(server->cpus.rapl);
    return HARPE_OK;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Runs on a worker. */
static void read_counters(void *user) {
    harpe_zeusd_server *server = user;
    harpe_zeusd_cpus *cpus = &server->cpus;
    cpus->status = harpe_rapl_read(cpus->rapl, &cpus->reading, &cpus->error);
    cpus->read_ns = harpe_clock_ns();
}

static void read_again(void *user) {
    harpe_zeusd_ask *ask = user;
    ask->pause = NULL;
    harpe_zeusd_part_wait(&ask->parts[0], &ask->server->cpus.waiting);
    harpe_zeusd_cpus_read(ask->server);
}

/* Keeps the first of the two readings that give a power, and waits for the second. */
static bool keep_first(harpe_zeusd_part *part, const harpe_zeusd_cpus *cpus) {
    harpe_zeusd_ask *ask = part->ask;
    ask->first = malloc(sizeof *ask->first);
    if (!ask->first || harpe_loop_after(ask->server->loop, ask->server->options.cpu_poll_ms,
                                        read_again, ask, &ask->pause, NULL) != HARPE_OK)
        return false;
    *ask->first = cpus->reading;
    ask->first_ns = cpus->read_ns;
    return true;
}

static void end_reading(void *user) {
    harpe_zeusd_server *server = user;
    harpe_zeusd_cpus *cpus = &server->cpus;
    cpus->is_reading = false;
    if (server->is_ending) return;
    for (harpe_zeusd_part *part; (part = cpus->being_read.first);) {
        harpe_zeusd_ask *ask = part->ask;
        bool is_first = ask->route->action == HARPE_ZEUSD_CPU_POWER && !ask->first;
        if (cpus->status != HARPE_OK || !is_first)
            harpe_zeusd_part_end(part, cpus->status, &cpus->error, NULL);
        else if (keep_first(part, cpus))
            harpe_zeusd_part_leave(part);
        else
            harpe_zeusd_part_end(part, HARPE_OUT_OF_MEMORY, NULL, NULL);
    }
    if (cpus->polls && cpus->status == HARPE_OK) harpe_zeusd_streams_cpus(server);
    cpus->polls = false;
    harpe_zeusd_cpus_read(server);
}

void harpe_zeusd_cpus_read(harpe_zeusd_server *server) {
    harpe_zeusd_cpus *cpus = &server->cpus;
    if (cpus->is_reading || server->is_ending || (!cpus->waiting.first && !cpus->is_polled)) return;
    cpus->is_reading = true;
    cpus->polls = cpus->is_polled;
    cpus->is_polled = false;
    harpe_zeusd_parts_move(&cpus->waiting, &cpus->being_read);
    cpus->work = (harpe_work){.work = read_counters,
                              .done = end_reading,
                              .user = server,
                              .pool = server->options.read_pool,
                              .subject = "the CPUs"};
    harpe_workers_submit(server->workers, &cpus->work);
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void add(json_t *all, uint64_t id, json_t *value) {
    char name[24];
    (void)snprintf(name, sizeof name, "%llu", (unsigned long long)id);
    json_object_set_new(all, name, value);
}

json_t *harpe_zeusd_cpus_energy(const harpe_zeusd_ask *ask) {
    const harpe_zeusd_cpus *cpus = &ask->server->cpus;
    json_t *all = json_object();
    for (size_t i = 0; i < ask->cpu_count; i++) {
        size_t cpu = (size_t)ask->cpu_ids[i];
        bool has_dram = ask->wants_dram && harpe_rapl_has_dram(cpus->rapl, cpu);
        json_int_t package_uj = (json_int_t)cpus->reading.package_uj[cpu];
        json_int_t dram_uj = (json_int_t)cpus->reading.dram_uj[cpu];
        add(all, cpu,
            json_pack("{s:o,s:o}", "cpu_energy_uj",
                      ask->wants_cpu ? json_integer(package_uj) : json_null(), "dram_energy_uj",
                      has_dram ? json_integer(dram_uj) : json_null()));
    }
    return all;
}

/* Returns the power in mW. Returns 0 if the counter has restarted. */
static json_int_t power_mw(uint64_t from_uj, uint64_t to_uj, int64_t duration_ns) {
    if (to_uj < from_uj || duration_ns <= 0) return 0;
    return (json_int_t)((double)(to_uj - from_uj) * 1e6 / (double)duration_ns);
}

json_t *harpe_zeusd_cpus_power(const harpe_zeusd_ask *ask) {
    const harpe_zeusd_cpus *cpus = &ask->server->cpus;
    int64_t duration_ns = cpus->read_ns - ask->first_ns;
    json_t *all = json_object();
    for (size_t i = 0; i < ask->cpu_count; i++) {
        size_t cpu = (size_t)ask->cpu_ids[i];
        bool has_dram = harpe_rapl_has_dram(cpus->rapl, cpu);
        json_int_t package_mw =
            power_mw(ask->first->package_uj[cpu], cpus->reading.package_uj[cpu], duration_ns);
        json_int_t dram_mw =
            power_mw(ask->first->dram_uj[cpu], cpus->reading.dram_uj[cpu], duration_ns);
        add(all, cpu,
            json_pack("{s:I,s:o}", "cpu_mw", package_mw, "dram_mw",
                      has_dram ? json_integer(dram_mw) : json_null()));
    }
    return json_pack("{s:I,s:o}", "timestamp_ms", (json_int_t)harpe_zeusd_time_ms(), "power_mw",
                     all);
}
