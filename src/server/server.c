/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the parts of the server, runs them, and frees them in the right order. The parts
 * themselves are in other files. */
#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_processes.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/process.h"
#include "base/token.h"
#include "base/wait.h"
#include "http/http.h"
#include "rights/tokens.h"
#include "server/api/api.h"
#include "server/engine/engine.h"
#include "server/store/store_tools.h"

enum {
    DUMP_THREADS = 16,         /* each of them may wait for a file forever */
    FLEET_THREADS = 2,         /* one solves, and one reads frontiers */
    TOKENS_THREADS = 2,        /* one reads the tokens, and one what SIGHUP reads again */
    AUDIT_THREADS = 2,         /* one appends, and one reads */
    RESERVED_CONNECTIONS = 64, /* in addition to max_connections, for requests that only read */
    PEM_LIMIT_BYTES = 1 << 20,
    PASSWORD_LIMIT_BYTES = 4096,
    STOP_STEP_MS = 20, /* between checks whether everything is flushed */
    /* Times of stopping. STOP_WORKERS_MS, STOP_FILES_MS and STOP_STORE_MS are durations. The other
     * times count from the request to stop. */
    STOP_PROGRAMS_MS = 3000, /* programs of schedulers are killed */
    STOP_LOOP_MS = 4500,     /* work in progress is abandoned */
    STOP_WORKERS_MS = 1500,  /* time to wait for work that still runs after the loop */
    STOP_FILES_MS = 500,     /* time to wait for it after the file processes were abandoned */
    STOP_STORE_MS = 2000,    /* time to wait for the store if work is stuck */
    STOP_ALL_MS = 9000,      /* the process ends in any case */
    STOP_SILENT_MS = 9500,   /* the process ends even if the log accepts no line */
};

static harpe_file_work read_secrets_work;

/* The uses of file processes. A write of a large dump may take long. A record of the audit log must
 * not be written twice. */
enum { DUMP_FILES, TOKENS_FILES, AUDIT_FILES, SECRETS_FILES, FILES_COUNT };
static const struct {
    const char *name;
    int patience_s;
    harpe_file_work *work;
} FILE_USES[FILES_COUNT] = {
    [DUMP_FILES] = {"dumps", 60, harpe_dump_files_work},
    [TOKENS_FILES] = {"tokens", 10, harpe_tokens_file_work},
    [AUDIT_FILES] = {"audit_log", 0, harpe_audit_file_work},
    [SECRETS_FILES] = {"secrets", 10, read_secrets_work},
};

/* Texts for HTTP that were read from the files of settings; NULL if the setting names no file. */
enum { TOKEN, CERT, KEY, SECRET_COUNT };
typedef struct secrets {
    char *texts[SECRET_COUNT];
} secrets;

/* Runs a thread that ends the process if the server does not stop in time. The thread waits for the
 * signal itself, so it also works if the loop is stuck. */
typedef struct watchdog {
    struct harpe_server *server;
    pthread_t thread;
    int limit_ms;
    bool is_silent, is_running;
} watchdog;

struct harpe_server {
    const harpe_settings *settings;
    harpe_log log;
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_file_processes *files[FILES_COUNT];
    harpe_store *store;
    harpe_scheduler_kind *scheduler;
    harpe_lead *lead;
    harpe_routes *routes;
    harpe_http *http;
    harpe_work dump_check;
    mode_t dump_mode; /* the result of `dump_check`, see harpe_open_mode */
    harpe_work reload;
    secrets fresh; /* the result of `reload`, with the next two */
    harpe_status reload_status;
    harpe_error reload_error;
    int reloads;       /* signals since `reload` was submitted, with its own; 0: none runs */
    bool has_terminal; /* as standard input */
    bool is_enclosed;
    harpe_posted end; /* of harpe_server_end */
    int stop_steps;   /* 0: serving */
    int64_t stop_begun_ns;
    void (*leave)(void);
    pthread_mutex_t parts_lock; /* protects `workers` and `scheduler` once the watchdogs run */
    watchdog watchdogs[2];
    int stop_begins, stop_ends; /* eventfds, for the watchdogs */
};

/* ---- Files that settings name ---------------------------------------------------------------- */

/* Writes the string that opens the store: the setting, with the password from its file. */
static harpe_status store_address(const harpe_settings *settings, char **address,
                                  harpe_error *error) {
    const char *path = settings->store_password_file;
    if (!*path) {
        *address = strdup(settings->store);
        return *address ? HARPE_OK : harpe_fail_memory(error);
    }
    if (!harpe_store_address_is_sound(settings->store) || !harpe_store_is_postgres(settings->store))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "store_password_file: store must be the address of a PostgreSQL, such as "
                          "postgresql://USER@HOST:PORT/DATABASE");
    size_t length;
    char *password;
    harpe_status status =
        harpe_file_read_promptly(path, PASSWORD_LIMIT_BYTES, &password, &length, error);
    if (status != HARPE_OK) return status;
    bool is_text = strlen(password) == length;
    password[strcspn(password, "\r\n")] = '\0';
    if (!*password || !is_text)
        status =
            harpe_fail(error, HARPE_INVALID_INPUT,
                       "store_password_file: the first line of %.200s must be the password", path);
    else
        status = harpe_store_address_with_password(settings->store, password, address, error);
    explicit_bzero(password, length);
    free(password);
    return status;
}

static harpe_status open_store(harpe_server *server, harpe_error *error) {
    char *address = NULL;
    harpe_status status = store_address(server->settings, &address, error);
    if (status == HARPE_OK)
        status = harpe_store_open(address, server->loop, server->log, &server->store, error);
    free(address);
    return status;
}

static void free_secrets(secrets *own) {
    for (int i = 0; i < SECRET_COUNT; i++) {
        free(own->texts[i]);
        own->texts[i] = NULL;
    }
}

/* A path "" gives the text NULL. */
static harpe_status read_secrets(const char *const paths[SECRET_COUNT], secrets *own,
                                 harpe_error *error) {
    size_t length;
    harpe_status status = HARPE_OK;
    if (*paths[TOKEN])
        status = harpe_token_read(paths[TOKEN], "token_file", &own->texts[TOKEN], error);
    for (int i = CERT; i <= KEY && status == HARPE_OK; i++)
        if (*paths[i])
            status =
                harpe_file_read_promptly(paths[i], PEM_LIMIT_BYTES, &own->texts[i], &length, error);
    return status;
}

/* The parts are the paths. The answer is the texts, each with a NUL; "" for a path "". */
static harpe_status read_secrets_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                      harpe_error *error) {
    secrets own = {0};
    if (count != SECRET_COUNT)
        return harpe_fail(error, HARPE_INTERNAL, "secrets: the wrong number of paths");
    const char *const paths[] = {parts[TOKEN].iov_base, parts[CERT].iov_base, parts[KEY].iov_base};
    harpe_status status = read_secrets(paths, &own, error);
    for (int i = 0; i < SECRET_COUNT && status == HARPE_OK; i++) {
        const char *text = own.texts[i] ? own.texts[i] : "";
        harpe_text_append(answer, text, strlen(text) + 1);
    }
    free_secrets(&own);
    return status;
}

/* ---- Whom it serves -------------------------------------------------------------------------- */

/* Writes "user NAME (uid N)", or "the user with uid N" if JSON would have to escape the name. */
static void write_user(char *into, size_t size, uid_t uid) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@+";
    char buffer[4096];
    struct passwd user, *found = NULL;
    bool is_named = getpwuid_r(uid, &user, buffer, sizeof buffer, &found) == 0 && found &&
                    found->pw_name[strspn(found->pw_name, plain)] == '\0';
    if (is_named)
        (void)snprintf(into, size, "user %.64s (uid %lu)", found->pw_name, (unsigned long)uid);
    else
        (void)snprintf(into, size, "the user with uid %lu", (unsigned long)uid);
}

void harpe_server_whom(const harpe_settings *settings, char *line, size_t size) {
    char user[120];
    write_user(user, sizeof user, geteuid());
    if (*settings->tokens)
        (void)snprintf(line, size, "clients need a token of %.300s%s%.300s", settings->tokens,
                       *settings->token_file ? ", or the token in " : "", settings->token_file);
    else if (*settings->token_file)
        (void)snprintf(line, size, "clients need the token in %.300s", settings->token_file);
    else if (harpe_settings_own_user_only(settings))
        (void)snprintf(line, size,
                       "serves only %s%s; --token-file or --insecure lets other users in", user,
                       geteuid() == 0 ? "" : " and root");
    else if (harpe_settings_on_loopback(settings))
        (void)snprintf(line, size, "serves every user of this machine (--insecure)");
    else
        (void)snprintf(line, size, "serves everyone who reaches %.64s (--insecure)",
                       settings->listen);
}

/* Writes the line that other users get. Returns NULL if the server serves them. */
static const char *write_refusal(const harpe_settings *settings, char *line, size_t size) {
    char user[120];
    if (!harpe_settings_own_user_only(settings)) return NULL;
    write_user(user, sizeof user, geteuid());
    (void)snprintf(line, size,
                   "this server belongs to %s and serves only that user%s; to serve others, it "
                   "must be started with --token-file, or with --insecure",
                   user, geteuid() == 0 ? "" : " and root");
    return line;
}

/* ---- Leaving what is stuck ------------------------------------------------------------------- */

static const int SIGNALS[] = {SIGHUP, SIGTERM, SIGINT, 0};
static const int *const STOP_SIGNALS = SIGNALS + 1;

static void say_what_is_stuck(const harpe_server *server) {
    char fault[HARPE_ERROR_MESSAGE_SIZE];
    bool is_known = server->workers && harpe_workers_fault(server->workers, 0, fault, sizeof fault);
    if (is_known)
        harpe_log_line(&server->log, HARPE_LOG_WARNING, "stopping without what is stuck: %s",
                       fault);
    else
        harpe_log_line(&server->log, HARPE_LOG_WARNING,
                       "stopping: something does not end, left as it is");
}

static void leave_now(harpe_server *server, bool is_silent) {
    harpe_lock(&server->parts_lock);
    if (server->scheduler) harpe_scheduler_kind_kill(server->scheduler);
    if (!is_silent) say_what_is_stuck(server);
    server->leave();
    harpe_unlock(&server->parts_lock);
}

/* Sets the pointer at `part` to NULL and returns its old value, so that the watchdogs no longer use
 * what is about to be freed. */
static void *take(harpe_server *server, void *part) {
    void *taken;
    harpe_lock(&server->parts_lock);
    memcpy(&taken, part, sizeof taken);
    memset(part, 0, sizeof taken);
    harpe_unlock(&server->parts_lock);
    return taken;
}

static void *watch_stop(void *user) {
    const watchdog *self = user;
    harpe_server *server = self->server;
    sigset_t signals;
    sigemptyset(&signals);
    for (const int *one = STOP_SIGNALS; *one; one++)
        sigaddset(&signals, *one);
    /* The signal is not read, because the loop must receive it. */
    int pending = signalfd(-1, &signals, SFD_CLOEXEC);
    struct pollfd events[] = {{.fd = server->stop_ends, .events = POLLIN},
                              {.fd = server->stop_begins, .events = POLLIN},
                              {.fd = pending, .events = POLLIN}};
    while (harpe_poll(events, 3, -1) < 0 && errno == EINTR)
        continue;
    int64_t end_ns = harpe_clock_ns() + self->limit_ms * INT64_C(1000000);
    while (!(events[0].revents & POLLIN)) {
        int64_t left_ns = end_ns - harpe_clock_ns();
        if (left_ns <= 0) leave_now(server, self->is_silent);
        if (harpe_poll(events, 1, left_ns <= 0 ? -1 : left_ns) < 0) events[0].revents = 0;
    }
    if (pending >= 0) (void)close(pending);
    return NULL;
}

static void start_watchdogs(harpe_server *server) {
    static const int limits_ms[] = {STOP_ALL_MS, STOP_SILENT_MS};
    for (int i = 0; i < 2 && server->leave; i++) {
        watchdog *self = &server->watchdogs[i];
        *self = (watchdog){.server = server, .limit_ms = limits_ms[i], .is_silent = i > 0};
        self->is_running =
            harpe_thread_start(&self->thread, "harpe-watchdog", watch_stop, self) == 0;
        if (!self->is_running)
            harpe_log_line(
                &server->log, HARPE_LOG_WARNING,
                "cannot start the thread that bounds the time to stop: a stop may take longer");
    }
}

static void end_watchdogs(harpe_server *server) {
    if (server->stop_ends >= 0) (void)eventfd_write(server->stop_ends, 1);
    for (int i = 0; i < 2; i++)
        if (server->watchdogs[i].is_running) harpe_thread_join(server->watchdogs[i].thread);
    if (server->stop_begins >= 0) harpe_process_close(server->stop_begins);
    if (server->stop_ends >= 0) harpe_process_close(server->stop_ends);
}

/* ---- Putting together ------------------------------------------------------------------------ */

static int worker_count(const harpe_settings *settings) {
    if (settings->worker_threads > 0) return settings->worker_threads;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 2 ? 2 : processors > 64 ? 64 : (int)processors;
}

/* Creates a directory, and the missing directories above it, for the server's user alone. */
static harpe_status make_state_directory(const char *directory, harpe_error *error) {
    int failure = harpe_make_directories(directory, 0700);
    if (!failure && access(directory, W_OK | X_OK) != 0) failure = errno;
    if (!failure) return HARPE_OK;
    return harpe_fail_errno(error, failure,
                            "state_dir: cannot keep the server's state in %s (--state-dir names "
                            "another place)",
                            directory);
}

/* Warns that other users may read a directory. Does not change its mode, which may be intended. */
static void tell_open_mode(const harpe_server *server, const char *setting, const char *directory,
                           mode_t mode) {
    if (mode == 0) return;
    harpe_log_line(&server->log, HARPE_LOG_WARNING,
                   "%s: other users may look into %.200s (mode %04o); if they are not meant to, "
                   "chmod 700 it",
                   setting, directory, (unsigned)mode);
}

static void look_at_dumps(void *user) {
    harpe_server *server = user;
    const char *directory = server->settings->dump_dir;
    harpe_dump_order order = {.directory = directory, .only_looks = true};
    harpe_dump_finding finding;
    if (harpe_dump_files_do(server->files[DUMP_FILES], &order, &finding, NULL) == HARPE_OK)
        server->dump_mode = finding.open_mode;
}

static void tell_dumps(void *user) {
    const harpe_server *server = user;
    tell_open_mode(server, "dump_dir", server->settings->dump_dir, server->dump_mode);
}

/* Runs on a worker, because the directory may be on a file server that does not answer. */
static void check_dumps(harpe_server *server) {
    server->dump_check = (harpe_work){
        .work = look_at_dumps, .done = tell_dumps, .user = server, .pool = HARPE_POOL_DUMP};
    harpe_workers_submit(server->workers, &server->dump_check);
}

static void on_signal(void *user, int signal_number);

static harpe_status make_files(harpe_server *server, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (int i = 0; i < FILES_COUNT && status == HARPE_OK; i++)
        status = harpe_file_processes_new(FILE_USES[i].name, FILE_USES[i].patience_s, server->log,
                                          &server->files[i], error);
    return status;
}

int harpe_server_file_process_main(int argc, char **argv) {
    for (int i = 0; i < FILES_COUNT; i++)
        if (argc > 2 && strcmp(argv[2], FILE_USES[i].name) == 0)
            return harpe_file_process_main(argc, argv, FILE_USES[i].work);
    return EXIT_FAILURE;
}

/* A scheduler program is killed after its timeout, and its job fails after the second timeout. Work
 * that takes longer than one timeout is stuck. */
static void limit_workers(harpe_workers *workers, const harpe_settings *settings) {
    int64_t deadline_s = settings->work_deadline_s;
    int processors = worker_count(settings);
    int schedulers = settings->scheduler_threads;
    harpe_workers_limit(workers, HARPE_POOL_DECODE, processors, deadline_s);
    harpe_workers_limit(workers, HARPE_POOL_STORE, processors, deadline_s);
    harpe_workers_limit(workers, HARPE_POOL_DUMP, DUMP_THREADS, deadline_s);
    harpe_workers_limit(workers, HARPE_POOL_FLEET, FLEET_THREADS, deadline_s);
    harpe_workers_limit(workers, HARPE_POOL_TOKENS, TOKENS_THREADS, deadline_s);
    harpe_workers_limit(workers, HARPE_POOL_AUDIT, AUDIT_THREADS, deadline_s);
    harpe_workers_limit(workers, HARPE_POOL_SCHEDULE, schedulers, settings->scheduler_timeout_s);
    harpe_workers_limit(workers, HARPE_POOL_PLAN, schedulers, settings->scheduler_timeout_s);
}

static harpe_status start_engine(harpe_server *server, harpe_error *error) {
    const harpe_settings *settings = server->settings;
    harpe_status status = harpe_loop_new(&server->loop, error);
    if (status == HARPE_OK && !server->is_enclosed)
        status = harpe_loop_on_signals(server->loop, SIGNALS, on_signal, server, error);
    if (status == HARPE_OK) start_watchdogs(server);
    if (status == HARPE_OK)
        status = harpe_workers_new(server->loop, harpe_pools, worker_count(settings),
                                   &server->workers, error);
    if (status == HARPE_OK) limit_workers(server->workers, settings);
    if (status == HARPE_OK && !server->is_enclosed) status = make_files(server, error);
    char *json = status != HARPE_OK ? NULL : harpe_settings_format_json(settings);
    if (status == HARPE_OK && !json) status = harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = harpe_scheduler_kind_open(settings->scheduler, settings->scheduler_args, json,
                                           (int)settings->scheduler_timeout_s, server->log,
                                           &server->scheduler, error);
    free(json);
    /* If the server cannot listen, no new store must be left behind. */
    if (status == HARPE_OK && !server->is_enclosed)
        status = harpe_http_check_address(settings->listen, settings->port, error);
    if (status == HARPE_OK && harpe_settings_use_state_dir(settings))
        status = make_state_directory(settings->state_dir, error);
    if (status == HARPE_OK && harpe_settings_use_state_dir(settings) && !server->is_enclosed)
        tell_open_mode(server, "state_dir", settings->state_dir,
                       harpe_open_mode(settings->state_dir));
    if (status == HARPE_OK && settings->dump_data && !server->is_enclosed) check_dumps(server);
    if (status == HARPE_OK) status = open_store(server, error);
    if (status != HARPE_OK) return status;
    int reserved = RESERVED_CONNECTIONS;
    harpe_jobs_options options = {
        .loop = server->loop,
        .workers = server->workers,
        .store = server->store,
        .scheduler = server->scheduler,
        .settings = settings,
        .log = server->log,
        .dump_files = server->files[DUMP_FILES],
        .connections = harpe_http_make_room((int)settings->max_connections, &reserved),
    };
    return harpe_lead_new(&options, &server->lead, error);
}

static harpe_status name_tls_files(const harpe_settings *settings, harpe_error *error) {
    if (!error) return HARPE_INVALID_INPUT;
    harpe_error fault = *error;
    return harpe_fail(error, fault.status, "%.600s (tls_cert %.150s, tls_key %.150s)",
                      fault.message, settings->tls_cert, settings->tls_key);
}

static harpe_status name_ways_out(harpe_error *error) {
    if (!error) return HARPE_NOT_SUPPORTED;
    harpe_error fault = *error;
    return harpe_fail(error, fault.status,
                      "%.400s: give --token-file, or --insecure if every user of this machine may "
                      "control your jobs",
                      fault.message);
}

static harpe_status start_http(harpe_server *server, const secrets *texts, harpe_error *error) {
    const harpe_settings *settings = server->settings;
    harpe_routes_options routes = {server->loop,
                                   server->lead,
                                   server->store,
                                   server->workers,
                                   settings,
                                   server->log,
                                   server->files[TOKENS_FILES],
                                   server->files[AUDIT_FILES]};
    char refusal[400];
    harpe_status status = harpe_routes_new(&routes, &server->routes, error);
    if (status == HARPE_OK) {
        harpe_http_options options = {
            .address = settings->listen,
            .port = settings->port,
            .is_enclosed = server->is_enclosed,
            .max_header_bytes = (size_t)settings->max_header_bytes,
            .max_body_bytes = (size_t)settings->max_body_bytes,
            .max_connections = (int)settings->max_connections,
            .reserved_connections = RESERVED_CONNECTIONS,
            .request_timeout_ms = settings->request_timeout_s * 1000,
            .keep_alive_timeout_ms = settings->keep_alive_timeout_s * 1000,
            .token = texts->texts[TOKEN],
            .own_user_only =
                server->is_enclosed ? NULL : write_refusal(settings, refusal, sizeof refusal),
            .tls_cert_pem = texts->texts[CERT],
            .tls_key_pem = texts->texts[KEY],
            .log = server->log,
        };
        harpe_http_handler handler = harpe_routes_handler(server->routes);
        status = harpe_http_new(server->loop, &options, &handler, &server->http, error);
        if (status == HARPE_INVALID_INPUT && *settings->tls_cert)
            status = name_tls_files(settings, error);
        if (status == HARPE_NOT_SUPPORTED && options.own_user_only) status = name_ways_out(error);
    }
    if (status != HARPE_OK) return status;
    harpe_routes_set_http(server->routes, server->http);
    harpe_lead_set_address(server->lead, settings->listen, harpe_http_port(server->http));
    return HARPE_OK;
}

static harpe_status make_server(const harpe_settings *settings, harpe_log log, void (*leave)(void),
                                bool is_enclosed, harpe_server **out, harpe_error *error) {
    secrets texts = {0};
    const char *const paths[] = {settings->token_file, settings->tls_cert, settings->tls_key};
    harpe_server *server = harpe_calloc(1, sizeof *server);
    if (!server) return harpe_fail_memory(error);
    server->settings = settings;
    server->log = log;
    server->leave = leave;
    pthread_mutex_init(&server->parts_lock, NULL);
    server->is_enclosed = is_enclosed;
    server->has_terminal = !is_enclosed && isatty(STDIN_FILENO);
    server->stop_begins = harpe_process_holds(eventfd(0, EFD_CLOEXEC));
    server->stop_ends = harpe_process_holds(eventfd(0, EFD_CLOEXEC));
    harpe_status status = HARPE_OK;
    if (server->stop_begins < 0 || server->stop_ends < 0)
        status = harpe_fail_errno(error, errno, "cannot make an eventfd");
    /* While a file hangs, no store is locked. */
    if (status == HARPE_OK) status = read_secrets(paths, &texts, error);
    if (status == HARPE_OK) status = start_engine(server, error);
    if (status == HARPE_OK) status = start_http(server, &texts, error);
    free_secrets(&texts);
    if (status != HARPE_OK) {
        harpe_server_free(server);
        return status;
    }
    *out = server;
    return HARPE_OK;
}

harpe_status harpe_server_new(const harpe_settings *settings, harpe_log log, void (*leave)(void),
                              harpe_server **out, harpe_error *error) {
    return make_server(settings, log, leave, false, out, error);
}

harpe_status harpe_server_new_enclosed(const harpe_settings *settings, harpe_log log,
                                       harpe_server **out, harpe_error *error) {
    return make_server(settings, log, NULL, true, out, error);
}

int harpe_server_port(const harpe_server *server) { return harpe_http_port(server->http); }

/* ---- Running and stopping -------------------------------------------------------------------- */

/* Stops the loop once the store has written its data and no request is held, or when the time for
 * this is over. Until then, the timer calls this function again. begin_stop has answered the held
 * requests. */
static void stop_when_idle(void *user) {
    harpe_server *server = user;
    int64_t passed_ms = (harpe_clock_ns() - server->stop_begun_ns) / 1000000;
    bool is_flushed = harpe_lead_is_idle(server->lead) && harpe_http_count(server->http).held == 0;
    if (!is_flushed && passed_ms >= STOP_PROGRAMS_MS) harpe_scheduler_kind_kill(server->scheduler);
    if ((is_flushed && server->stop_steps++ > 2) || passed_ms >= STOP_LOOP_MS ||
        harpe_loop_after(server->loop, STOP_STEP_MS, stop_when_idle, server, NULL, NULL))
        harpe_loop_stop(server->loop);
}

static void begin_stop(void *user) {
    harpe_server *server = user;
    if (server->stop_steps++ > 0) {
        harpe_loop_stop(server->loop); /* a second signal stops the loop at once */
        return;
    }
    harpe_log_line(&server->log, HARPE_LOG_INFO,
                   "stopping: no new connections, held requests are answered 503");
    server->stop_begun_ns = harpe_clock_ns();
    (void)eventfd_write(server->stop_begins, 1);
    harpe_http_stop_accepting(server->http);
    harpe_lead_stop(server->lead);
    stop_when_idle(server);
}

/* ---- Reading files again --------------------------------------------------------------------- */

harpe_status harpe_server_open_log(const harpe_settings *settings, harpe_error *error) {
    const char *path = settings->log_file;
    if (!*path) return HARPE_OK;
    /* O_NONBLOCK refuses a pipe that nobody reads. */
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (fd < 0 || fcntl(fd, F_SETFL, O_APPEND) != 0 || dup2(fd, STDERR_FILENO) < 0) {
        int failure = errno;
        if (fd >= 0) (void)close(fd);
        return harpe_fail_errno(error, failure, "log_file: cannot append to %.300s", path);
    }
    (void)close(fd);
    return HARPE_OK;
}

static void read_again(void *user) {
    harpe_server *server = user;
    const harpe_settings *settings = server->settings;
    const struct iovec parts[SECRET_COUNT] = {
        [TOKEN] = {settings->token_file, strlen(settings->token_file)},
        [CERT] = {settings->tls_cert, strlen(settings->tls_cert)},
        [KEY] = {settings->tls_key, strlen(settings->tls_key)}};
    harpe_text answer = {0};
    harpe_status status = harpe_file_processes_run(
        server->files[SECRETS_FILES], "token_file, tls_cert or tls_key", read_secrets_work, parts,
        SECRET_COUNT, &answer, &server->reload_error);
    if (status == HARPE_OK && answer.failed) status = harpe_fail_memory(&server->reload_error);
    const char *text = answer.data;
    for (int i = 0; i < SECRET_COUNT && status == HARPE_OK; i++, text += strlen(text) + 1) {
        if (!parts[i].iov_len) continue;
        server->fresh.texts[i] = strdup(text);
        if (!server->fresh.texts[i]) status = harpe_fail_memory(&server->reload_error);
    }
    harpe_text_free(&answer);
    server->reload_status = status;
}

static void reload(harpe_server *server);

static void has_read_again(void *user) {
    harpe_server *server = user;
    char *const *texts = server->fresh.texts;
    harpe_error *error = &server->reload_error;
    harpe_status status = server->reload_status;
    if (status == HARPE_OK) {
        status = harpe_http_set_secrets(server->http, texts[TOKEN], texts[CERT], texts[KEY], error);
        if (status == HARPE_INVALID_INPUT) status = name_tls_files(server->settings, error);
    }
    free_secrets(&server->fresh);
    if (status != HARPE_OK)
        harpe_log_line(&server->log, HARPE_LOG_ERROR,
                       "SIGHUP: %s; the token and the certificate stay those from before",
                       error->message);
    else
        harpe_log_line(&server->log, HARPE_LOG_INFO,
                       "SIGHUP: has read the token and the certificate again");
    bool is_wanted = server->reloads > 1;
    server->reloads = 0;
    if (is_wanted) reload(server);
}

/* Reads the files of the token and the certificate again, after those that are being read. */
static void reload(harpe_server *server) {
    if (server->reloads++ > 0) return;
    server->reload = (harpe_work){
        .work = read_again, .done = has_read_again, .user = server, .pool = HARPE_POOL_TOKENS};
    harpe_workers_submit(server->workers, &server->reload);
}

/* A SIGHUP because the server's terminal is gone stops the server. */
static void on_signal(void *user, int signal_number) {
    harpe_server *server = user;
    harpe_error error;
    if (signal_number != SIGHUP || (server->has_terminal && !isatty(STDIN_FILENO))) {
        begin_stop(server);
        return;
    }
    if (harpe_server_open_log(server->settings, &error) != HARPE_OK)
        harpe_log_line(&server->log, HARPE_LOG_ERROR, "SIGHUP: %s", error.message);
    reload(server);
}

harpe_status harpe_server_run(harpe_server *server, harpe_error *error) {
    return harpe_loop_run(server->loop, error);
}

void harpe_server_end(harpe_server *server) {
    server->end = (harpe_posted){.call = begin_stop, .user = server};
    harpe_loop_post(server->loop, &server->end);
}

typedef struct adoption {
    harpe_posted posted;
    harpe_server *server;
    int socket;
} adoption;

static void adopt(void *user) {
    adoption *given = user;
    harpe_http_adopt(given->server->http, given->socket);
    free(given);
}

bool harpe_server_adopt(harpe_server *server, int socket) {
    adoption *given = malloc(sizeof *given);
    if (!given) return false;
    *given = (adoption){{.call = adopt, .user = given}, server, socket};
    harpe_loop_post(server->loop, &given->posted);
    return true;
}

/* Waits for work that runs. Abandons file processes that do not answer. If some work does not end
 * even then, ends the process without freeing the data that the work may still use. */
static void close_workers(harpe_server *server) {
    if (server->scheduler) harpe_scheduler_kind_kill(server->scheduler);
    if (!server->leave || harpe_workers_close(server->workers, STOP_WORKERS_MS)) return;
    say_what_is_stuck(server);
    for (int i = 0; i < FILES_COUNT; i++)
        harpe_file_processes_stop(server->files[i]);
    if (harpe_workers_close(server->workers, STOP_FILES_MS)) return;
    if (!harpe_store_flush(server->store, STOP_STORE_MS))
        harpe_log_line(&server->log, HARPE_LOG_WARNING,
                       "stopping: the store does not end what it writes");
    leave_now(server, true);
}

void harpe_server_free(harpe_server *server) {
    if (!server) return;
    if (server->stop_begins >= 0) (void)eventfd_write(server->stop_begins, 1);
    if (server->lead) harpe_lead_stop(server->lead);
    if (server->workers) close_workers(server);
    harpe_workers_free(take(server, &server->workers));
    if (server->store) harpe_store_close(server->store);
    harpe_routes_leave_engine(server->routes);
    harpe_lead_free(server->lead);
    if (server->http) harpe_http_free(server->http);
    harpe_routes_free(server->routes);
    free_secrets(&server->fresh);
    harpe_scheduler_kind_close(take(server, &server->scheduler));
    for (int i = 0; i < FILES_COUNT; i++)
        harpe_file_processes_free(server->files[i]);
    if (server->loop) harpe_loop_free(server->loop);
    end_watchdogs(server);
    pthread_mutex_destroy(&server->parts_lock);
    free(server);
}
