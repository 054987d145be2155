/* SPDX-License-Identifier: Apache-2.0 */
/* A PostgreSQL server for one test: in a temporary directory, on a Unix socket only, as a user who
 * is not root. It ends with the test program, however that ends. */
#ifndef HARPE_TESTS_SERVER_POSTGRES_SERVER_H
#define HARPE_TESTS_SERVER_POSTGRES_SERVER_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

typedef struct postgres_server {
    char programs[PATH_MAX / 2]; /* directory of initdb and postgres */
    char directory[PATH_MAX / 4];
    char where[PATH_MAX / 2]; /* the connection string */
    pid_t pid;                /* 0: not running */
} postgres_server;

static inline bool has_postgres(const char *directory) {
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/initdb", directory);
    return access(path, X_OK) == 0;
}

/* Searches PATH, the directory that pg_config prints, and the directories of Debian. */
static inline bool find_postgres(postgres_server *server) {
    char path[PATH_MAX] = "";
    (void)snprintf(path, sizeof path, "%s", getenv("PATH") ? getenv("PATH") : "");
    char *rest = NULL;
    for (char *part = strtok_r(path, ":", &rest); part; part = strtok_r(NULL, ":", &rest)) {
        (void)snprintf(server->programs, sizeof server->programs, "%s", part);
        if (has_postgres(server->programs)) return true;
    }
    FILE *config = popen("pg_config --bindir 2>/dev/null", "r"); /* NOLINT(cert-env33-c) */
    if (config) {
        bool has_line = fgets(server->programs, sizeof server->programs, config) != NULL;
        (void)pclose(config);
        server->programs[strcspn(server->programs, "\n")] = '\0';
        if (has_line && has_postgres(server->programs)) return true;
    }
    glob_t found = {0};
    bool is_found = glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) == 0;
    if (is_found) {
        (void)snprintf(server->programs, sizeof server->programs, "%s",
                       found.gl_pathv[found.gl_pathc - 1]);
    }
    globfree(&found);
    return is_found && has_postgres(server->programs);
}

/* Selects the user that runs the server if the test runs as root, because the server refuses root.
 */
static inline const struct passwd *postgres_user(void) {
    if (geteuid() != 0) return NULL;
    const struct passwd *user = getpwnam("postgres");
    return user ? user : getpwnam("nobody");
}

static inline void become_postgres(const char *log_path) {
    int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    (void)dup2(log, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    const struct passwd *user = postgres_user();
    if (user && (setgroups(0, NULL) != 0 || setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0))
        _exit(126);
    (void)!chdir("/"); /* that user may not be able to enter the test's own directory */
    /* Requests an immediate shutdown if the test dies. */
    (void)prctl(PR_SET_PDEATHSIG, SIGQUIT);
}

/* The program's full path is its first argument: initdb looks for postgres beside itself, and for
 * itself in PATH, where Debian does not install it. */
static inline pid_t spawn_postgres(const postgres_server *server, const char *program,
                                   char *arguments[]) {
    char path[PATH_MAX];
    char log_path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", server->programs, program);
    (void)snprintf(log_path, sizeof log_path, "%s/log", server->directory);
    pid_t pid = fork();
    if (pid != 0) return pid;
    become_postgres(log_path);
    arguments[0] = path;
    (void)execv(path, arguments);
    _exit(127);
}

static inline bool wait_until_ready(const postgres_server *server) {
    for (int i = 0; i < 6000; i++) {
        if (PQping(server->where) == PQPING_OK) return true;
        (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return false;
}

static inline bool start_postgres(postgres_server *server) {
    char data[PATH_MAX];
    (void)snprintf(data, sizeof data, "%s/data", server->directory);
    char *arguments[] = {"postgres",          "-D", data,        "-k", server->directory,    "-c",
                         "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=20", NULL};
    server->pid = spawn_postgres(server, "postgres", arguments);
    return server->pid > 0 && wait_until_ready(server);
}

static inline void stop_postgres(postgres_server *server, int how) {
    if (server->pid <= 0) return;
    (void)kill(server->pid, how);
    (void)waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

static inline int remove_one(const char *path, const struct stat *status, int type,
                             struct FTW *place) {
    (void)status;
    (void)type;
    (void)place;
    (void)remove(path);
    return 0;
}

static inline void remove_tree(const char *directory) {
    (void)nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Prints the server's log, for the analysis of a failed test. */
static inline void print_postgres_log(const postgres_server *server) {
    char line[PATH_MAX];
    (void)snprintf(line, sizeof line, "%s/log", server->directory);
    FILE *log = fopen(line, "r");
    while (log && fgets(line, sizeof line, log))
        (void)fputs(line, stderr);
    if (log) (void)fclose(log);
}

/* Starts a new, empty server. Returns false, with nothing left behind, if that is not possible. */
static inline bool make_postgres(postgres_server *server) {
    *server = (postgres_server){0};
    if (!find_postgres(server)) return false;
    (void)snprintf(server->directory, sizeof server->directory, "%s/harpe-pg-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(server->directory)) return false;
    const struct passwd *user = postgres_user();
    if (user) (void)!chown(server->directory, user->pw_uid, user->pw_gid);
    (void)snprintf(server->where, sizeof server->where,
                   "postgresql://harpe:secret%%40word@/postgres?host=%s", server->directory);
    char data[PATH_MAX];
    (void)snprintf(data, sizeof data, "%s/data", server->directory);
    char *arguments[] = {"initdb", "-D",        data, "-U",   "harpe",      "-A",
                         "trust",  "--no-sync", "-E", "UTF8", "--locale=C", NULL};
    int status = 1;
    pid_t pid = spawn_postgres(server, "initdb", arguments);
    if (pid > 0) (void)waitpid(pid, &status, 0);
    if (status == 0 && start_postgres(server)) return true;
    print_postgres_log(server);
    stop_postgres(server, SIGQUIT);
    remove_tree(server->directory);
    return false;
}

static inline void destroy_postgres(postgres_server *server) {
    if (server->directory[0] == '\0') return;
    stop_postgres(server, SIGINT);
    remove_tree(server->directory);
}

#endif
