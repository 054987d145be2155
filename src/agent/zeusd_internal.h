/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the zeusd server share. All data belongs to the loop's thread,
 * except the results that a worker writes while its work runs. */
#ifndef HARPE_AGENT_ZEUSD_INTERNAL_H
#define HARPE_AGENT_ZEUSD_INTERNAL_H

#include <jansson.h>

#include "agent/samples.h"
#include "agent/zeusd_query.h"
#include "agent/zeusd_server.h"
#include "http/http.h"
#include "monitor/counter.h"
#include "monitor/rapl.h"

/* ---- Routes ---------------------------------------------------------------------------------- */

typedef enum harpe_zeusd_read {
    HARPE_ZEUSD_READ_ENERGY,
    HARPE_ZEUSD_READ_POWER,
    HARPE_ZEUSD_READ_LIMIT,
    HARPE_ZEUSD_READ_CONSTRAINTS,
    HARPE_ZEUSD_READ_PERSISTENCE,
    HARPE_ZEUSD_READS,
} harpe_zeusd_read;

typedef enum harpe_zeusd_action {
    HARPE_ZEUSD_DISCOVER,
    HARPE_ZEUSD_TIME,
    HARPE_ZEUSD_WHOAMI,
    HARPE_ZEUSD_WRITE,
    HARPE_ZEUSD_GPU_READING,
    HARPE_ZEUSD_GPU_STREAM,
    HARPE_ZEUSD_CPU_ENERGY,
    HARPE_ZEUSD_CPU_POWER,
    HARPE_ZEUSD_CPU_STREAM,
} harpe_zeusd_action;

typedef struct harpe_zeusd_route {
    const char *method, *path;
    harpe_zeusd_action action;
    const harpe_zeusd_field *fields; /* NULL: the query is not read */
    harpe_zeusd_read read;
    unsigned settings; /* of a write: a set of 1 << harpe_zeusd_setting */
    bool is_reset;
} harpe_zeusd_route;

/* ---- Requests that wait for devices ---------------------------------------------------------- */

typedef struct harpe_zeusd_part harpe_zeusd_part;
typedef struct harpe_zeusd_ask harpe_zeusd_ask;

typedef struct harpe_zeusd_parts {
    harpe_zeusd_part *first, *last;
} harpe_zeusd_parts;

/* The part of a request that one device answers. */
struct harpe_zeusd_part {
    harpe_zeusd_ask *ask;
    harpe_zeusd_parts *list; /* the list in which it waits; NULL: none */
    harpe_zeusd_part *previous, *next;
    int id;         /* of the device */
    bool has_ended; /* it has its result */
    harpe_status status;
    char *message; /* of a failure; NULL: out of memory */
    uint64_t values[2];
};

/* Data of a request that waits. `is_stream` is the first member of both kinds of requests. */
struct harpe_zeusd_ask {
    bool is_stream; /* false */
    harpe_zeusd_server *server;
    harpe_http_request *request;
    const harpe_zeusd_route *route;
    harpe_timer *deadline;
    /* For CPUs. Their counters are read together, so one part stands for all CPUs. */
    bool wants_cpu, wants_dram;
    harpe_timer *pause;        /* between the two readings that give a power */
    harpe_rapl_reading *first; /* the first of these readings; NULL: not taken yet */
    int64_t first_ns;          /* when it was taken */
    uint64_t *cpu_ids;
    size_t cpu_count;

    size_t count, left; /* parts, and parts without a result */
    harpe_zeusd_part parts[];
};

/* ---- Devices --------------------------------------------------------------------------------- */

/* A holder that several writes share. */
typedef struct harpe_zeusd_client {
    int uses;
    harpe_zeusd_holder holder;
    char subject[HARPE_ZEUSD_SUBJECT_SIZE];
} harpe_zeusd_client;

typedef struct harpe_zeusd_write {
    harpe_zeusd_client *client; /* NULL: no write waits */
    bool is_reset;
    uint32_t values[2]; /* limit; switch; lowest and highest clock */
    uint64_t number;    /* writes begin in this order */
    harpe_zeusd_parts parts;
} harpe_zeusd_write;

/* The result of a worker. */
typedef struct harpe_zeusd_result {
    harpe_status status;
    harpe_error error;
    uint64_t values[2];
} harpe_zeusd_result;

typedef struct harpe_zeusd_gpu {
    harpe_zeusd_server *server;
    int gpu; /* index in harpe_gpus */
    int id;  /* the driver's index */
    char subject[24];

    bool is_reading;
    harpe_work read_work;
    harpe_counter counter;
    harpe_zeusd_read reads; /* the kind that is being read */
    harpe_zeusd_result read_result;
    harpe_zeusd_parts waiting[HARPE_ZEUSD_READS], being_read;
    bool is_polled; /* streams want its power */
    bool polls;     /* the reading that runs is for streams too */
    int subscribers;
    uint32_t last_power_mw;
    bool has_last_power;

    bool is_writing;        /* a write runs, or is about to */
    harpe_sample_wait look; /* at all GPUs, before the write */
    harpe_work write_work;
    harpe_zeusd_setting writes; /* the setting that is being written */
    harpe_zeusd_write queued[HARPE_ZEUSD_SETTINGS], being_written;
    harpe_status write_status;
    harpe_error write_error;
    int64_t told_ns; /* time of the last log line about a failed write */
} harpe_zeusd_gpu;

typedef struct harpe_zeusd_cpus {
    harpe_rapl *rapl; /* NULL: none */
    size_t count;
    bool is_reading;
    harpe_work work;
    harpe_status status;
    harpe_error error;
    harpe_rapl_reading reading;
    int64_t read_ns;
    harpe_zeusd_parts waiting, being_read;
    bool is_polled, polls, has_last;
    int subscribers;
    harpe_rapl_reading last;                            /* the last reading for streams */
    uint64_t last_power_mw[HARPE_RAPL_PACKAGES_MAX][2]; /* of package and DRAM */
    int64_t last_ns;
} harpe_zeusd_cpus;

/* ---- Streams --------------------------------------------------------------------------------- */

typedef struct harpe_zeusd_source {
    int id;
    bool has_sent, has_news;
    bool has_dram;
    int64_t time_ms;
    uint64_t values[2]; /* power; power of CPU and DRAM */
} harpe_zeusd_source;

typedef struct harpe_zeusd_stream {
    bool is_stream; /* true */
    bool is_of_cpus;
    bool is_sending;
    bool has_user; /* it came over the Unix socket */
    uid_t uid;
    harpe_zeusd_server *server;
    harpe_http_request *request;
    struct harpe_zeusd_stream *previous, *next;
    size_t count;
    harpe_zeusd_source sources[];
} harpe_zeusd_stream;

/* ---- The server ------------------------------------------------------------------------------ */

/* One socket. */
typedef struct harpe_zeusd_transport {
    harpe_zeusd_server *server;
    harpe_http *http; /* NULL: this socket is not used */
    bool is_tcp, needs_token;
} harpe_zeusd_transport;

struct harpe_zeusd_server {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_gpus *gpus;
    harpe_zeusd_options options; /* the pointers in it are not used after the start */
    harpe_zeusd_ops ops;
    harpe_zeusd_tokens *tokens;
    harpe_zeusd_transport unix_transport, tcp_transport;
    json_t *devices; /* answer to /discover without auth_required */
    size_t gpu_count;
    harpe_zeusd_gpu *gpu; /* in the order of their ids */
    harpe_zeusd_cpus cpus;
    harpe_zeusd_stream *streams;
    harpe_timer *gpu_poll, *cpu_poll;
    uint64_t write_number;
    int64_t looked_ns; /* when all GPUs were looked at last (harpe_clock_ns); 0: never */
    harpe_zeusd_counts counts;
    bool is_ending; /* connections are being closed; no work is submitted */
};

/* ---- zeusd_answers.c ------------------------------------------------------------------------- */
void harpe_zeusd_answer_empty(harpe_http_request *request, int status);
void harpe_zeusd_answer_text(harpe_http_request *request, int status, const char *text);
/* Answers with a JSON text. Releases `value`. */
void harpe_zeusd_answer_json(harpe_http_request *request, int status, json_t *value);
/* Answers {"error": text}. */
void harpe_zeusd_answer_error(harpe_http_request *request, int status, const char *text);
/* Answers a request whose parts all have results, and frees it. */
void harpe_zeusd_ask_answer(harpe_zeusd_ask *ask);
/* Returns the Unix time in milliseconds. */
int64_t harpe_zeusd_time_ms(void);

/* ---- zeusd_asks.c ---------------------------------------------------------------------------- */
/* Makes a request that waits for `count` parts. If memory runs out, answers the request and returns
 * NULL. */
harpe_zeusd_ask *harpe_zeusd_ask_new(harpe_zeusd_server *server, harpe_http_request *request,
                                     const harpe_zeusd_route *route, size_t count);
/* Frees a request without an answer, because its client is gone. */
void harpe_zeusd_ask_free(harpe_zeusd_ask *ask);
/* Starts the time limit, or answers if all parts have results. */
void harpe_zeusd_ask_begin(harpe_zeusd_ask *ask);
void harpe_zeusd_part_wait(harpe_zeusd_part *part, harpe_zeusd_parts *list);
/* Takes a part out of its list. */
void harpe_zeusd_part_leave(harpe_zeusd_part *part);
/* Moves all parts of a list to the end of another. */
void harpe_zeusd_parts_move(harpe_zeusd_parts *from, harpe_zeusd_parts *to);
/* Gives a part its result. Answers the request if it is the last one. `error` may be NULL for
 * HARPE_OK, and `values` for a failure. */
void harpe_zeusd_part_end(harpe_zeusd_part *part, harpe_status status, const harpe_error *error,
                          const uint64_t *values);

/* ---- zeusd_gpus.c ---------------------------------------------------------------------------- */
/* Finds a GPU by its id, or returns NULL. */
harpe_zeusd_gpu *harpe_zeusd_gpu_find(harpe_zeusd_server *server, uint64_t id);
/* Starts a reading of the GPU if a request or a stream waits for one and no reading runs. */
void harpe_zeusd_gpu_read(harpe_zeusd_gpu *gpu);
/* Queues a write. `part` waits for its outcome; it may be NULL. */
void harpe_zeusd_gpu_write(harpe_zeusd_gpu *gpu, harpe_zeusd_setting setting, bool is_reset,
                           const uint32_t values[2], harpe_zeusd_client *client,
                           harpe_zeusd_part *part);
/* Makes the holder of a request. Returns NULL if memory runs out. The caller releases the holder
 * with harpe_zeusd_client_leave. */
harpe_zeusd_client *harpe_zeusd_client_new(const harpe_zeusd_transport *transport,
                                           const harpe_http_request *request,
                                           const harpe_zeusd_claims *claims);
void harpe_zeusd_client_leave(harpe_zeusd_client *client); /* NULL is allowed */
void harpe_zeusd_gpus_free(harpe_zeusd_server *server);

/* ---- zeusd_cpus.c ---------------------------------------------------------------------------- */
harpe_status harpe_zeusd_cpus_open(harpe_zeusd_server *server, harpe_error *error);
void harpe_zeusd_cpus_read(harpe_zeusd_server *server);
/* Make the answers of the wanted CPUs from the last reading. */
json_t *harpe_zeusd_cpus_energy(const harpe_zeusd_ask *ask);
json_t *harpe_zeusd_cpus_power(const harpe_zeusd_ask *ask);

/* ---- zeusd_streams.c ------------------------------------------------------------------------- */
void harpe_zeusd_stream_begin(harpe_zeusd_server *server, harpe_http_request *request,
                              const harpe_zeusd_route *route, const uint64_t *ids, size_t count);
void harpe_zeusd_stream_sent(harpe_zeusd_stream *stream);
void harpe_zeusd_stream_free(harpe_zeusd_stream *stream);
/* Send a new reading to the streams that want it. */
void harpe_zeusd_streams_gpu(harpe_zeusd_gpu *gpu, uint32_t power_mw);
void harpe_zeusd_streams_cpus(harpe_zeusd_server *server);

#endif
