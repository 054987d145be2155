/* SPDX-License-Identifier: Apache-2.0 */
/* The options of the engine, and its counters. Plain data. */
#ifndef HARPE_SERVER_ENGINE_JOBS_OPTIONS_H
#define HARPE_SERVER_ENGINE_JOBS_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>

#include "base/file_processes.h"
#include "http/loop.h"
#include "http/workers.h"
#include "pfo/settings.h"
#include "server/scheduler/scheduler_host.h"
#include "server/store/store.h"

typedef struct harpe_jobs_options {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_store *store;
    const harpe_scheduler_kind *scheduler;
    const harpe_settings *settings;
    harpe_log log;
    harpe_file_processes *dump_files; /* NULL: the workers use the files themselves */
    /* The largest number of connections that this server has at a time. Each waiting rank needs a
     * connection. 0: no limit. */
    int connections;
    /* NULL: the clocks of the system. Tests set their own clocks. The wall clock may be changed at
     * any moment, so its times are only shown to people. The steady clock measures how long jobs
     * are idle. */
    double (*wall_clock_s)(void);
    double (*steady_clock_s)(void);
} harpe_jobs_options;

typedef struct harpe_jobs_counts {
    size_t jobs, failed, ended, ranks, ranks_waiting;
    uint64_t registered_jobs, registered_ranks, rounds, results, evicted;
} harpe_jobs_counts;

#endif
