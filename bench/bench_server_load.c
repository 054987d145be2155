/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and ends the server, and transfers requests and answers of all ranks through one
 * edge-triggered epoll set, so that the generator itself needs few system calls. */
#include "bench_server_load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { EVENTS = 512, INSTRUCTIONS = 64, FILE_BYTES = 65536, DIRECTORIES = 16 };
enum { RANKS_PER_ADDRESS = 4096 };

static const double limit_s = 60;
static load_job *at_work; /* the resources that a failure must release */

_Noreturn static void fail(const char *what, const char *detail) {
    fprintf(stderr, "bench_server: %s: %.400s\n", what, detail);
    if (at_work) load_close(at_work);
    exit(1);
}

static void check_limit(double start_s, const char *what) {
    if (harpe_clock_s() - start_s > limit_s) fail(what, "not within 60 s");
}

/* Returns the file's text in a buffer that the next call overwrites. */
static const char *read_text(const char *path) {
    static char text[FILE_BYTES];
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[length] = '\0';
    return text;
}

/* ---- The server ------------------------------------------------------------------------------ */

static void write_plan(const char *path) {
    FILE *file = fopen(path, "we");
    if (!file) fail(path, strerror(errno));
    fputs("[", file);
    for (int stage = 0; stage < LOAD_STAGES; stage++) {
        fputs(stage ? ", [" : "[", file);
        for (int i = 0; i < INSTRUCTIONS; i++) {
            fprintf(file, "%s(\"%s\", %d)", i ? ", " : "", i % 2 ? "backward" : "forward",
                    1410 - 15 * ((stage + i) % 40));
        }
        fputs("]", file);
    }
    fputs("]\n", file);
    fclose(file);
}

_Noreturn static void be_server(const load_job *load, const char *harpe) {
    char args[512], store[300], dump[300], log[300];
    snprintf(args, sizeof args, "{\"solution_path\": \"%s/plan.py\"}", load->directory);
    snprintf(store, sizeof store, "%s/harpe.db", load->directory);
    snprintf(dump, sizeof dump, "%s/dump", load->directory);
    snprintf(log, sizeof log, "%s/log", load->directory);
    int fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0) _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl(harpe, harpe, "serve", "--port", "0", "--store", store, "--dump-dir", dump, "--scheduler",
          "PointSolution3D", "--scheduler-args", args, (char *)NULL);
    _exit(127);
}

static void wait_for_port(load_job *load) {
    static const char ADDRESS[] = "listening on http://127.0.0.1:";
    char path[300];
    snprintf(path, sizeof path, "%s/log", load->directory);
    for (double start_s = harpe_clock_s();;) {
        const char *text = read_text(path), *found = strstr(text, ADDRESS);
        if (found && strchr(found, '\n')) {
            load->port = atoi(found + strlen(ADDRESS));
            return;
        }
        if (waitpid(load->server, NULL, WNOHANG) != 0) {
            load->server = 0;
            fail("the server ended", text);
        }
        check_limit(start_s, "the server's start");
        usleep(2000);
    }
}

load_job *load_open(const char *harpe) {
    load_job *load = calloc(1, sizeof *load);
    const char *parent = getenv("TMPDIR");
    if (!load) fail("load_open", "out of memory");
    snprintf(load->directory, sizeof load->directory, "%.200s/harpe-bench-XXXXXX",
             parent ? parent : "/tmp");
    if (!mkdtemp(load->directory)) fail(load->directory, strerror(errno));
    at_work = load;
    char plan[300];
    snprintf(plan, sizeof plan, "%s/plan.py", load->directory);
    write_plan(plan);
    load->epoll = epoll_create1(EPOLL_CLOEXEC);
    load->server = fork();
    if (load->server == 0) be_server(load, harpe);
    if (load->epoll < 0 || load->server < 0) fail("load_open", strerror(errno));
    wait_for_port(load);
    return load;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

void load_close(load_job *load) {
    at_work = NULL;
    for (int i = 0; i < load->rank_count; i++)
        close(load->ranks[i].fd);
    if (load->server > 0) {
        kill(load->server, SIGKILL);
        waitpid(load->server, NULL, 0);
    }
    close(load->epoll);
    nftw(load->directory, remove_one, DIRECTORIES, FTW_DEPTH | FTW_PHYS);
    free(load->ranks);
    free(load);
}

/* ---- Requests and answers -------------------------------------------------------------------- */

/* Linux has some 28,000 ports between one address and one port of the server. When half of them are
 * in use, it searches the other half for each connection: 16,384 connections took 9 s, 19,456 took
 * 26 s. The ranks of a real job run on many machines, so here they use many addresses. */
static void choose_address(int fd, int number) {
    struct sockaddr_in from = {.sin_family = AF_INET};
    int one = 1;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)(number / RANKS_PER_ADDRESS));
    if (setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one) != 0 ||
        bind(fd, (struct sockaddr *)&from, sizeof from) != 0)
        fail("bind", strerror(errno));
}

static int connect_one(const load_job *load, int number) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)load->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0) fail("socket", strerror(errno));
    choose_address(fd, number);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) fail("connect", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void load_connect(load_job *load, int ranks) {
    load->ranks = calloc((size_t)ranks, sizeof *load->ranks);
    if (!load->ranks) fail("load_connect", "out of memory");
    load->tp = ranks >= 64 ? 8 : 1;
    for (int i = 0; i < ranks; i++) {
        load_rank *rank = &load->ranks[i];
        rank->number = i;
        rank->fd = connect_one(load, i);
        load->rank_count++;
        fcntl(rank->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = rank};
        if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, rank->fd, &event) != 0)
            fail("epoll_ctl", strerror(errno));
    }
}

void load_say(load_job *load, load_rank *rank, const char *method, const char *route,
              const char *body, const char *tail) {
    int length;
    rank->tail = tail ? tail : "";
    rank->tail_length = strlen(rank->tail);
    if (body) {
        length = snprintf(rank->head, sizeof rank->head,
                          "%s %s%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
                          "\r\nContent-Length: %zu\r\n\r\n%s",
                          method, route, load->job, strlen(body) + rank->tail_length, body);
    } else {
        length = snprintf(rank->head, sizeof rank->head,
                          "%s %s%s?rank=%d HTTP/1.1\r\nHost: localhost\r\n\r\n", method, route,
                          load->job, rank->number);
    }
    if (length < 0 || (size_t)length >= sizeof rank->head) fail("request", "too long");
    rank->head_length = (size_t)length;
    rank->sent = rank->received = 0;
}

static void send_more(load_rank *rank) {
    while (rank->sent < rank->head_length + rank->tail_length) {
        size_t of_head = rank->sent < rank->head_length ? rank->sent : rank->head_length;
        size_t of_tail = rank->sent - of_head;
        struct iovec parts[2] = {
            {rank->head + of_head, rank->head_length - of_head},
            {(void *)(uintptr_t)(rank->tail + of_tail), rank->tail_length - of_tail}};
        ssize_t count = writev(rank->fd, parts, 2);
        if (count < 0 && errno == EAGAIN) return;
        if (count < 0 && errno != EINTR) fail("send", strerror(errno));
        if (count > 0) rank->sent += (size_t)count;
    }
}

/* Returns the body of a complete answer, or NULL while the answer is incomplete. Ends the program
 * if the status is not 200. */
static const char *whole_answer(load_rank *rank) {
    rank->answer[rank->received] = '\0';
    const char *body = strstr(rank->answer, "\r\n\r\n");
    if (!body) return NULL;
    body += 4;
    const char *length = strcasestr(rank->answer, "content-length:");
    if (!length || length > body) fail("no length", rank->answer);
    if (strlen(body) < strtoul(length + 15, NULL, 10)) return NULL;
    if (strncmp(rank->answer, "HTTP/1.1 200", 12) != 0) fail("refused", rank->answer);
    return body;
}

static void go_on(load_job *load, load_rank *rank) {
    if (load->next(load, rank, rank->step))
        send_more(rank);
    else
        load->pending--;
}

static void receive_more(load_job *load, load_rank *rank) {
    for (;;) {
        size_t room = sizeof rank->answer - 1 - rank->received;
        ssize_t count = read(rank->fd, rank->answer + rank->received, room);
        if (count < 0 && errno == EAGAIN) return;
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) fail("connection lost", count ? strerror(errno) : "closed by the server");
        rank->received += (size_t)count;
        if (!whole_answer(rank)) continue;
        rank->step++;
        go_on(load, rank);
        return; /* the next answer causes a new event */
    }
}

void load_start(load_job *load, int first, int count, load_next next) {
    load->next = next;
    load->pending += count;
    for (int i = first; i < first + count; i++) {
        load->ranks[i].step = 0;
        go_on(load, &load->ranks[i]);
    }
}

void load_finish(load_job *load) {
    double start_s = harpe_clock_s();
    while (load->pending > 0) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(load->epoll, events, EVENTS, 1000);
        for (int i = 0; i < count; i++) {
            load_rank *rank = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) send_more(rank);
            if (events[i].events & ~(uint32_t)EPOLLOUT) receive_more(load, rank);
        }
        check_limit(start_s, "answers to all ranks");
    }
}

static bool say_job(load_job *load, load_rank *rank, int step) {
    char body[256];
    if (step > 0) return false;
    int dp = load->rank_count / LOAD_STAGES / load->tp;
    snprintf(body, sizeof body,
             "{\"job_id\": \"\", \"pp_degree\": %d, \"dp_degree\": %d, \"tp_degree\": %d, "
             "\"world_size\": %d, \"job_metadata\": null}",
             LOAD_STAGES, dp, load->tp, load->rank_count);
    load_say(load, rank, "POST", "/register_job", body, "");
    return true;
}

void load_register_job(load_job *load) {
    load->job[0] = '\0';
    load_start(load, 0, 1, say_job);
    load_finish(load);
    const char *body = whole_answer(&load->ranks[0]);
    if (!body || sscanf(body, "\"%255[^\"]\"", load->job) != 1) fail("no job id", body ? body : "");
}

/* ---- Figures of the server ------------------------------------------------------------------- */

double load_metric(load_job *load, const char *name) {
    static const char REQUEST[] =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    static char answer[FILE_BYTES];
    char line[128];
    size_t length = 0;
    int fd = connect_one(load, 0);
    if (write(fd, REQUEST, strlen(REQUEST)) < 0) fail("metrics", strerror(errno));
    for (ssize_t count; (count = read(fd, answer + length, sizeof answer - 1 - length)) > 0;)
        length += (size_t)count;
    close(fd);
    answer[length] = '\0';
    snprintf(line, sizeof line, "\n%s ", name);
    const char *found = strstr(answer, line);
    if (!found) fail("no such metric", name);
    return strtod(found + strlen(line), NULL);
}

void load_wait_metric(load_job *load, const char *name, double value) {
    double start_s = harpe_clock_s();
    while (load_metric(load, name) < value) {
        check_limit(start_s, name);
        usleep(5000);
    }
}

double load_server_kib(const load_job *load) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", (int)load->server);
    const char *found = strstr(read_text(path), "VmRSS:");
    return found ? strtod(found + strlen("VmRSS:"), NULL) : 0;
}

double load_server_cpu_s(const load_job *load) {
    char path[64];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)load->server);
    const char *fields = strrchr(read_text(path), ')');
    if (fields)
        sscanf(fields + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}
