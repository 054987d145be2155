/* SPDX-License-Identifier: Apache-2.0 */
/* Plays the ranks of one job against a server of their own, for bench_server. Any failure (a
 * refusal, a lost connection, 60 s without an end) prints one line and ends the program, the
 * server, and its directory. */
#ifndef HARPE_BENCH_SERVER_LOAD_H
#define HARPE_BENCH_SERVER_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { LOAD_STAGES = 8, LOAD_HEAD_BYTES = 1024, LOAD_ANSWER_BYTES = 8192 };

/* One rank: its connection, its request, and the answer that it reads. */
typedef struct load_rank {
    int number, fd, step;
    /* the head of the request, and the part of its body that differs between ranks */
    char head[LOAD_HEAD_BYTES];
    size_t head_length;
    const char *tail; /* the rest of the body; not owned */
    size_t tail_length;
    size_t sent, received;
    char answer[LOAD_ANSWER_BYTES];
} load_rank;

typedef struct load_job load_job;

/* Prepares the rank's next request with load_say. Returns false if there are no more requests. */
typedef bool (*load_next)(load_job *load, load_rank *rank, int step);

struct load_job {
    char directory[256], job[256];
    pid_t server;
    int port, epoll, tp;
    load_rank *ranks;
    int rank_count, pending;
    load_next next;
};

/* Starts a server with a new store and a plan of LOAD_STAGES lists. */
load_job *load_open(const char *harpe);
void load_close(load_job *load);

void load_connect(load_job *load, int ranks);
void load_register_job(load_job *load);
/* Starts a request. `body` NULL: asks for the rank's schedule. The body is `body` followed by
 * `tail`. */
void load_say(load_job *load, load_rank *rank, const char *method, const char *route,
              const char *body, const char *tail);
void load_start(load_job *load, int first, int count, load_next next);
/* Runs until all started requests have their answers. */
void load_finish(load_job *load);

double load_metric(load_job *load, const char *name);
void load_wait_metric(load_job *load, const char *name, double value);
double load_server_kib(const load_job *load);
double load_server_cpu_s(const load_job *load);

#endif
