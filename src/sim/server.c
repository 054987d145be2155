/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and kills the coordination server of a simulated job, and asks it about the job. The ranks
 * do not use this file: their optimizers talk to the server. */
#include "sim/sim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/terminal_progress.h"
#include "base/token.h"
#include "base/wait.h"
#include "http/client/connection.h"
#include "pfo/settings.h"
#include "server/server.h"
#include "world/disk.h"
#include "world/transport.h"
#include "world/world.h"

#define START_LIMIT_S 120.0 /* for a busy machine; a server that ends is noticed at once */
#define STOP_LIMIT_S 30.0
#define ASK_LIMIT_S 15.0

#define DISK "server"
enum { WORLD_PORT = 7787, OTHER_CONNECTIONS = 64 }; /* no port is opened */

/* ---- The process ----------------------------------------------------------------------------- */

/* Returns a port on which no process listens; 0 if there is none. */
static int free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1) return 0;
    bool is_bound = bind(fd, (struct sockaddr *)&address, length) == 0 &&
                    getsockname(fd, (struct sockaddr *)&address, &length) == 0;
    close(fd);
    return is_bound ? ntohs(address.sin_port) : 0;
}

/* Turns this process into the server, which prints only errors. The server ends when its launcher
 * ends. It does not receive the terminal's signals; the launcher ends it. */
static void become_server(const harpe_sim_server *server) {
    char port[16];
    snprintf(port, sizeof port, "%d", server->port);
    char *const arguments[] = {"harpe",
                               "serve",
                               "--listen",
                               "127.0.0.1",
                               "--port",
                               port,
                               "--store",
                               (char *)server->store,
                               "--no-dump",
                               "--scheduler",
                               (char *)server->scheduler,
                               "--scheduler-args",
                               server->scheduler_args,
                               "--quiet",
                               NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null != -1) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
    }
    execv("/proc/self/exe", arguments);
    _exit(127);
}

/* ---- The process of a world ------------------------------------------------------------------ */

static harpe_status fill_settings(const harpe_sim_server *server, harpe_settings *settings,
                                  harpe_error *error) {
    char connections[16];
    (void)snprintf(connections, sizeof connections, "%d", server->ranks + OTHER_CONNECTIONS);
    const char *const values[][2] = {{"store", server->store},
                                     {"scheduler", server->scheduler},
                                     {"scheduler_args", server->scheduler_args},
                                     {"dump_data", "false"},
                                     {"log_level", "error"},
                                     {"worker_threads", "2"},
                                     {"max_connections", connections}};
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < sizeof values / sizeof *values && status == HARPE_OK; i++)
        status = harpe_settings_set(settings, values[i][0], values[i][1], HARPE_FROM_FLAG,
                                    values[i][0], error);
    return status;
}

static bool accept_socket(void *user, int socket) {
    const harpe_sim_server *server = user;
    return harpe_server_adopt(server->running, socket);
}

static int serve(void *user) {
    harpe_sim_server *server = user;
    harpe_settings settings;
    harpe_error error;
    server->running = NULL; /* that of a killed process */
    harpe_status status = harpe_settings_init(&settings, &error);
    if (status == HARPE_OK) status = fill_settings(server, &settings, &error);
    if (status == HARPE_OK)
        status = harpe_server_new_enclosed(&settings, server->log, &server->running, &error);
    if (status == HARPE_OK &&
        harpe_transport_serve(server->url, harpe_process_self(), accept_socket, server))
        status = harpe_server_run(server->running, &error);
    harpe_transport_unserve(server->url);
    if (status != HARPE_OK)
        harpe_log_line(&server->log, HARPE_LOG_ERROR, "the server: %s", error.message);
    harpe_server_free(server->running);
    server->running = NULL;
    harpe_settings_free(&settings);
    return status == HARPE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- Both ------------------------------------------------------------------------------------ */

static bool has_ended(const harpe_sim_server *server) {
    return server->is_in_world ? !harpe_world_is_alive(server->pid)
                               : waitpid(server->pid, NULL, WNOHANG) == server->pid;
}

static void send_signal(const harpe_sim_server *server, int signal_number) {
    if (!server->is_in_world)
        (void)kill(server->pid, signal_number);
    else if (signal_number == SIGKILL)
        harpe_world_kill(server->pid);
    else if (server->running)
        harpe_server_end(server->running);
}

static bool is_answering(const harpe_sim_server *server) {
    json_t *answer = NULL;
    long status = harpe_sim_server_ask(server, "/healthz", NULL, &answer, NULL);
    json_decref(answer);
    return status == 200;
}

static harpe_status start_process(harpe_sim_server *server, harpe_error *error) {
    double until_s = harpe_clock_s() + START_LIMIT_S;
    server->pid = server->is_in_world ? harpe_world_start("server", serve, server) : fork();
    if (server->pid == -1) return harpe_fail_errno(error, errno, "starting a server");
    if (server->pid == 0) become_server(server);
    while (!is_answering(server)) {
        bool is_gone = has_ended(server);
        if (is_gone) server->pid = 0;
        if (is_gone)
            return harpe_fail(error, HARPE_UNAVAILABLE,
                              "the server (harpe serve --scheduler %.100s) ended at its start",
                              server->scheduler);
        if (harpe_clock_s() > until_s)
            return harpe_fail(
                error, HARPE_UNAVAILABLE,
                "the server (harpe serve --scheduler %.100s) has not started in %.0f s",
                server->scheduler, START_LIMIT_S);
        if (harpe_terminal_progress_signal())
            return harpe_fail(error, HARPE_INTERRUPTED, "interrupted");
        harpe_sleep_ns(20000000);
    }
    return HARPE_OK;
}

static void end_process(harpe_sim_server *server, int signal_number) {
    double until_s = harpe_clock_s() + STOP_LIMIT_S;
    if (server->pid <= 0) return;
    send_signal(server, signal_number);
    while (!has_ended(server)) {
        if (harpe_clock_s() > until_s) send_signal(server, SIGKILL);
        harpe_sleep_ns(5000000);
    }
    server->pid = 0;
}

/* ---- Settings -------------------------------------------------------------------------------- */

static char *json_text(json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    return text;
}

/* Makes the scheduler's arguments from the known properties of the job. The user's own arguments
 * have precedence. */
static json_t *online_arguments(const harpe_sim_options *options, double blocking_power_w) {
    json_t *arguments =
        json_pack("{s:i, s:s, s:f}", "num_microbatches", options->microbatches, "schedule",
                  options->schedule_name, "blocking_power", blocking_power_w);
    json_t *own = options->scheduler_args ? json_loads(options->scheduler_args, 0, NULL) : NULL;
    json_object_update(arguments, own);
    json_decref(own);
    return arguments;
}

/* Chooses the scheduler. The default learns without a profile. */
static bool choose_scheduler(const harpe_sim_options *options, double blocking_power_w,
                             const char *directory, harpe_sim_server *server) {
    char own_plan[HARPE_SIM_TEXT_MAX + 16];
    snprintf(own_plan, sizeof own_plan, "%s/plan.py", directory);
    const char *plan = options->is_offline ? own_plan : options->plan_path;
    if (options->scheduler) {
        server->scheduler = options->scheduler;
        server->scheduler_args = strdup(options->scheduler_args ? options->scheduler_args : "{}");
    } else if (plan) {
        server->scheduler = "PointSolution3D";
        server->scheduler_args = json_text(json_pack("{s:s}", "solution_path", plan));
    } else {
        server->scheduler = "Perseus";
        server->scheduler_args = json_text(online_arguments(options, blocking_power_w));
    }
    return server->scheduler_args;
}

/* Checks that a server answers and accepts the token of the ranks. /healthz needs no token, but
 * other pages do. The published server has neither of the two pages; it answers a request for a
 * missing page with JSON. */
static harpe_status check_server(harpe_sim_server *server, harpe_error *error) {
    json_t *answer = NULL;
    char *token = NULL;
    harpe_status fault = harpe_token_take(getenv("HARPE_TOKEN"), "HARPE_TOKEN", &token, error);
    bool has_token = token != NULL;
    free(token);
    if (fault) return fault;
    long status = harpe_sim_server_ask(server, "/info", NULL, &answer, error);
    if (status == 0) return error ? error->status : HARPE_UNAVAILABLE;
    server->is_published = status == 404 && json_object_get(answer, "detail");
    const char *detail = json_string_value(json_object_get(answer, "detail"));
    if (status == 403)
        fault = harpe_fail(error, HARPE_PERMISSION_DENIED, "%.200s answered 403: %.400s",
                           server->url, detail ? detail : "no reason was given");
    json_decref(answer);
    if (fault) return fault;
    if (!server->is_published && !is_answering(server))
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "no server answers at %.200s; is harpe serve running there?",
                          server->url);
    if (status != 401) return HARPE_OK;
    return harpe_fail(error, HARPE_PERMISSION_DENIED, "%.200s %s%s", server->url,
                      has_token ? "does not know the token in HARPE_TOKEN"
                                : "requires a token: set HARPE_TOKEN to it",
                      has_token ? "" : harpe_token_hint());
}

harpe_status harpe_sim_server_start(const harpe_sim_options *options, double blocking_power_w,
                                    const char *directory, harpe_sim_server *server,
                                    harpe_error *error) {
    *server = (harpe_sim_server){.is_in_world = !options->is_real_time,
                                 .ranks = harpe_sim_world_size(options),
                                 .log = options->log};
    snprintf(server->store, sizeof server->store, "%s/server.db", directory);
    if (!choose_scheduler(options, blocking_power_w, directory, server))
        return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    if (server->is_in_world && !options->server_url) {
        snprintf(server->store, sizeof server->store, "world:" DISK "/harpe.db");
        server->disk = harpe_disk_new(DISK, options->seed);
        if (!server->disk) status = harpe_fail_memory(error);
    }
    if (status != HARPE_OK) {
        harpe_sim_server_stop(server);
        return status;
    }
    if (options->server_url) {
        snprintf(server->url, sizeof server->url, "%s", options->server_url);
        status = harpe_server_url_check("--server", server->url, error);
        if (status == HARPE_OK) status = check_server(server, error);
    } else {
        server->port = server->is_in_world ? WORLD_PORT : free_port();
        snprintf(server->url, sizeof server->url, "http://127.0.0.1:%d", server->port);
        status = start_process(server, error);
    }
    if (status != HARPE_OK) harpe_sim_server_stop(server);
    return status;
}

harpe_status harpe_sim_server_restart(harpe_sim_server *server, harpe_error *error) {
    pid_t before = server->pid;
    end_process(server, SIGKILL);
    if (server->disk) harpe_disk_abandon(server->disk, before);
    return start_process(server, error);
}

void harpe_sim_server_stop(harpe_sim_server *server) {
    end_process(server, SIGTERM);
    harpe_disk_free(server->disk);
    server->disk = NULL;
    free(server->scheduler_args);
    server->scheduler_args = NULL;
}

/* ---- Questions ------------------------------------------------------------------------------- */

static harpe_connection *open_connection(const char *url, harpe_error *error) {
    char *token = NULL;
    harpe_connection *connection = NULL;
    (void)harpe_token_take(getenv("HARPE_TOKEN"), "HARPE_TOKEN", &token, NULL);
    harpe_connection_options options = {
        .server_url = url, .token = token, .answer_limit_s = ASK_LIMIT_S};
    (void)harpe_connection_new(&options, &connection, error);
    free(token);
    return connection;
}

long harpe_sim_server_ask(const harpe_sim_server *server, const char *path, const char *body,
                          json_t **answer, harpe_error *error) {
    harpe_request request = {.path = path, .body = body};
    harpe_answer got = {0};
    *answer = NULL;
    harpe_connection *connection = open_connection(server->url, error);
    if (!connection) return 0;
    if (harpe_connection_call(connection, &request, &got, error) == HARPE_OK && got.length > 0)
        *answer = json_loadb(got.body, got.length, JSON_DECODE_ANY, NULL);
    harpe_connection_free(connection);
    return got.http_status;
}
