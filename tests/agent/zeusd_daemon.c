/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon for the tests that answers only zeusd's routes. It prints "ready PORT" when it answers,
 * and writes its log to standard error. On SIGTERM it restores all settings and ends. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/zeusd_internal.h"
#include "base/file.h"
#include "gpu/saved_settings.h"

enum { READS, WRITES, PUT_BACKS };
static const harpe_pool_kind pools[] = {{.name = "reads", .subject = "device"},
                                        {.name = "writes", .subject = "device"},
                                        {.name = "put back", .subject = "device"},
                                        {0}};

typedef struct daemon_state {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_gpus *gpus;
    harpe_zeusd_settings *settings;
    harpe_zeusd_server *server;
    harpe_zeusd_options options;
    harpe_zeusd_settings_options settings_options;
    int close_ms; /* how long the daemon waits at its end for calls that run */
} daemon_state;

static void write_log(void *user, harpe_log_level level, const char *line) {
    (void)user;
    fprintf(stderr, "%d %s\n", (int)level, line);
}

static void must(harpe_status status, const harpe_error *error) {
    if (status == HARPE_OK) return;
    fprintf(stderr, "failed %d: %s\n", (int)status, error->message);
    exit(1);
}

static void stop(void *user, int signal_number) {
    daemon_state *state = user;
    (void)signal_number;
    harpe_loop_stop(state->loop);
}

static void report(void *user, const harpe_saved_settings *saved, const harpe_gpu_info *info,
                   harpe_saved_settings_outcome outcome, const harpe_error *error) {
    (void)user;
    (void)info;
    (void)error;
    fprintf(stderr, "record of %ld: outcome %d\n", (long)saved->trainer, (int)outcome);
}

static unsigned read_groups(char *list) {
    unsigned groups = 0;
    for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
        harpe_zeusd_group group;
        if (!harpe_zeusd_group_find(name, &group)) exit(2);
        groups |= group;
    }
    return groups;
}

static void read_options(daemon_state *state, int count, char **arguments) {
    static const struct option names[] = {
        {"unix", required_argument, NULL, 'u'},     {"tcp", required_argument, NULL, 't'},
        {"key", required_argument, NULL, 'k'},      {"groups", required_argument, NULL, 'g'},
        {"rapl", required_argument, NULL, 'r'},     {"no-restore", no_argument, NULL, 'n'},
        {"unix-token", no_argument, NULL, 'U'},     {"timeout-ms", required_argument, NULL, 'T'},
        {"streams", required_argument, NULL, 's'},  {"connections", required_argument, NULL, 'c'},
        {"close-ms", required_argument, NULL, 'C'}, {NULL, 0, NULL, 0}};
    harpe_zeusd_options *options = &state->options;
    harpe_error error;
    char *key;
    for (int found; (found = getopt_long(count, arguments, "", names, NULL)) != -1;) {
        switch (found) {
        case 'u': options->unix_socket = optarg; break;
        case 't': options->tcp_address = optarg; break;
        case 'k':
            must(harpe_file_read(optarg, 65536, &key, &options->signing_key_length, &error),
                 &error);
            options->signing_key = key;
            break;
        case 'g': options->groups = read_groups(optarg); break;
        case 'r': options->rapl_path = optarg; break;
        case 'n': state->settings_options.no_restore = true; break;
        case 'U': options->unix_needs_token = true; break;
        case 'T': options->answer_timeout_ms = (int)strtol(optarg, NULL, 10); break;
        case 's': options->streams_max = (int)strtol(optarg, NULL, 10); break;
        case 'c': options->connections_max = (int)strtol(optarg, NULL, 10); break;
        case 'C': state->close_ms = (int)strtol(optarg, NULL, 10); break;
        default: exit(2);
        }
    }
}

static void start(daemon_state *state) {
    static const int signals[] = {SIGTERM, SIGINT, 0};
    harpe_error error;
    harpe_gpus_options all = {.visible_devices = "all"};
    must(harpe_loop_new(&state->loop, &error), &error);
    must(harpe_loop_on_signals(state->loop, signals, stop, state, &error), &error);
    must(harpe_gpus_open(&all, &state->gpus, &error), &error);
    int threads = 2 * harpe_gpus_count(state->gpus) + 1;
    must(harpe_workers_new(state->loop, pools, threads, &state->workers, &error), &error);
    state->settings_options.log = state->options.log = (harpe_log){.write = write_log};
    state->settings_options.pool = PUT_BACKS;
    state->options.read_pool = READS;
    state->options.write_pool = WRITES;
    must(harpe_zeusd_settings_new(state->loop, state->workers, state->gpus,
                                  &state->settings_options, &state->settings, &error),
         &error);
    harpe_saved_settings_recovery how = {.report = report, .user = state};
    must(harpe_saved_settings_recover(state->gpus, &how, &error), &error);
    harpe_zeusd_ops ops = harpe_zeusd_settings_ops(state->settings);
    must(harpe_zeusd_server_new(state->loop, state->workers, state->gpus, &state->options, &ops,
                                &state->server, &error),
         &error);
    free((void *)(uintptr_t)state->options.signing_key);
}

int main(int count, char **arguments) {
    daemon_state state = {.close_ms = 60000};
    harpe_error error;
    read_options(&state, count, arguments);
    start(&state);
    printf("ready %d\n", harpe_zeusd_server_port(state.server));
    fflush(stdout);
    must(harpe_loop_run(state.loop, &error), &error);

    harpe_zeusd_server_stop_accepting(state.server);
    bool has_ended = harpe_workers_close(state.workers, state.close_ms);
    harpe_status status = harpe_zeusd_settings_put_back(state.settings, &error);
    if (status != HARPE_OK) fprintf(stderr, "not put back: %s\n", error.message);
    harpe_zeusd_counts counts = harpe_zeusd_server_count(state.server);
    printf("writes %d failed %d replaced %d streams %d\n", (int)counts.writes,
           (int)counts.failed_writes, (int)counts.replaced_writes, counts.streams);
    fflush(stdout);
    if (!has_ended) _Exit(status == HARPE_OK ? 3 : 4);
    harpe_workers_free(state.workers);
    harpe_zeusd_server_free(state.server);
    harpe_zeusd_settings_free(state.settings);
    harpe_gpus_close(state.gpus);
    harpe_loop_free(state.loop);
    return status == HARPE_OK ? 0 : 4;
}
