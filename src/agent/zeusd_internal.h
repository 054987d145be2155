/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the routes of zeusd 0.5, a daemon of the Zeus project, on a Unix socket and on TCP, so
 * that unchanged Zeus clients work with Harpe's agent. The server reads GPUs through the GPU layer
 * and CPUs through RAPL. It writes only through the functions of harpe_zeusd_ops, which decide who
 * may change what; zeusd_settings.c has an implementation of them. The files
 * zeusd_*.c and agent_life.c share this header. All data belongs to the loop's thread, except the
 * results that a worker writes while its work runs.
 *
 * Workers make all driver calls. For each GPU at most one read and one write run at a time, so a
 * call that hangs does not delay other GPUs. Reads of the same kind that wait share one call. For
 * each GPU and setting at most one write waits. A newer write replaces an older write that has not
 * begun. Requests that waited for the older write then get the result of the newer write. So no
 * queue grows without a limit. */
#ifndef HARPE_AGENT_ZEUSD_INTERNAL_H
#define HARPE_AGENT_ZEUSD_INTERNAL_H

#include "agent/agent_internal.h"
#include "gpu/saved_settings.h"
#include "http/http.h"
#include "monitor/monitor.h"

/* ---- zeusd_query.c: tokens ------------------------------------------------------------------- */

/* These are JSON Web Tokens (RFC 7519) with an HMAC-SHA256 signature. A token names a user, the
 * groups of routes that the user may use, and an expiry. No code here issues tokens. */

/* The groups of routes, as bits of a set. */
typedef enum harpe_zeusd_group {
    HARPE_ZEUSD_GPU_CONTROL = 1,
    HARPE_ZEUSD_GPU_READ = 2,
    HARPE_ZEUSD_CPU_READ = 4,
} harpe_zeusd_group;

/* Returns "gpu-control", "gpu-read" or "cpu-read". */
const char *harpe_zeusd_group_name(harpe_zeusd_group group);
/* Finds a group by its name. Returns false if there is none. */
bool harpe_zeusd_group_find(const char *name, harpe_zeusd_group *out);

enum {
    HARPE_ZEUSD_SUBJECT_SIZE = 256,
    HARPE_ZEUSD_SCOPES_MAX = 16,
    HARPE_ZEUSD_TOKEN_MAX = 8192, /* bytes of a token */
    /* How long a token is accepted after its expiry, because clocks of machines differ. zeusd does
     * the same. */
    HARPE_ZEUSD_LEEWAY_S = 60,
};

/* What a valid token says. */
typedef struct harpe_zeusd_claims {
    char subject[HARPE_ZEUSD_SUBJECT_SIZE];
    harpe_zeusd_group scopes[HARPE_ZEUSD_SCOPES_MAX]; /* in the order of the token */
    size_t scope_count;
    bool expires;
    uint64_t expiry_s; /* Unix time; only if `expires` */
} harpe_zeusd_claims;

typedef struct harpe_zeusd_tokens harpe_zeusd_tokens;

/* Copies the key. Fails with HARPE_INVALID_ARGUMENT if the key is empty. Free with
 * harpe_zeusd_tokens_free, which clears the key. */
harpe_status harpe_zeusd_tokens_new(const void *key, size_t length, harpe_zeusd_tokens **out,
                                    harpe_error *error);
void harpe_zeusd_tokens_free(harpe_zeusd_tokens *tokens); /* NULL is allowed */

/* Checks a token at the Unix time `now_s`. Fails with HARPE_PERMISSION_DENIED and zeusd's message
 * ("Token has expired.", "Invalid token: ..."). The message never contains a part of the token. Any
 * thread may call it. */
harpe_status harpe_zeusd_token_check(const harpe_zeusd_tokens *tokens, const char *token,
                                     int64_t now_s, harpe_zeusd_claims *out, harpe_error *error);

/* Returns true if the token grants the group. */
bool harpe_zeusd_claims_grant(const harpe_zeusd_claims *claims, harpe_zeusd_group group);

/* Decodes base64url without padding (RFC 7515). `out` has room for length * 3 / 4 bytes. Returns
 * the number of bytes, or -1 if the text is not a valid encoding. */
ptrdiff_t harpe_zeusd_base64url(const char *text, size_t length, unsigned char *out);

/* ---- zeusd_query.c: queries ------------------------------------------------------------------ */

/* The fields of a route, their types, and lists of device numbers. Error messages have the same
 * text as zeusd's. This code does not use HTTP connections or devices. */

typedef enum harpe_zeusd_field_type {
    HARPE_ZEUSD_TEXT,   /* any text */
    HARPE_ZEUSD_SWITCH, /* "true" or "false" */
    HARPE_ZEUSD_NUMBER, /* 0 .. 2^32 - 1 */
} harpe_zeusd_field_type;

enum { HARPE_ZEUSD_FIELDS_MAX = 4 };

/* A field that a route accepts. An array of fields ends with a NULL name. */
typedef struct harpe_zeusd_field {
    const char *name;
    harpe_zeusd_field_type type;
    bool is_optional;
} harpe_zeusd_field;

typedef struct harpe_zeusd_value {
    bool is_given;
    bool is_on;      /* of a switch */
    uint32_t number; /* of a number */
    char *text;      /* the decoded text, UTF-8 without NUL */
    size_t text_length;
} harpe_zeusd_value;

/* Reads `query` (NULL: there is none) into one value for each field. Fails with
 * HARPE_INVALID_ARGUMENT if a field is unknown, repeated or missing, or if its value is not valid.
 * `*why` is then the text of the answer, which the caller frees. Free the values with
 * harpe_zeusd_values_free, also after a failure. */
harpe_status harpe_zeusd_query_read(const char *query, const harpe_zeusd_field *fields,
                                    harpe_zeusd_value values[HARPE_ZEUSD_FIELDS_MAX], char **why);
void harpe_zeusd_values_free(harpe_zeusd_value values[HARPE_ZEUSD_FIELDS_MAX]);

/* Reads a list of numbers that commas separate. White space around a number is allowed. The result
 * is in ascending order without repetition; the caller frees `*ids` with free(). On failure `*why`
 * is the message, which the caller frees. `device` is "GPU" or "CPU". */
harpe_status harpe_zeusd_ids_read(const char *text, size_t length, const char *device,
                                  uint64_t **ids, size_t *count, char **why);

/* ---- Writing --------------------------------------------------------------------------------- */

/* The client who changes a setting. */
typedef struct harpe_zeusd_holder {
    bool is_tcp;   /* then the next four members are not known */
    pid_t process; /* 0: not visible from this process */
    uid_t uid;
    gid_t gid;
    int pidfd;           /* -1: not known; valid during the call */
    const char *subject; /* user of the token; NULL: no token was needed */
} harpe_zeusd_holder;

/* A change to one GPU. */
typedef struct harpe_zeusd_change {
    const harpe_zeusd_holder *holder;
    int gpu; /* index in the server's harpe_gpus */
    harpe_setting setting;
    bool is_reset;      /* of clocks; then the values are 0 */
    uint32_t values[2]; /* limit in mW; 0 or 1; lowest and highest clock in MHz */
} harpe_zeusd_change;

/* The functions that change GPUs. A failure becomes an answer with the status 403 for
 * HARPE_PERMISSION_DENIED and HARPE_ALREADY_EXISTS (another client has the GPU), 400 for
 * HARPE_INVALID_ARGUMENT and HARPE_NOT_SUPPORTED, and 500 for all other failures. */
typedef struct harpe_zeusd_ops {
    /* Called on the loop's thread before a write is queued. Must return at once. */
    harpe_status (*may_set)(void *user, const harpe_zeusd_holder *holder, int gpu,
                            harpe_setting setting, harpe_error *error);
    /* Called on a worker, one at a time for each GPU. */
    harpe_status (*set)(void *user, const harpe_zeusd_change *change, harpe_error *error);
    void *user;
} harpe_zeusd_ops;

/* ---- The server ------------------------------------------------------------------------------ */

/* Initialise it with zeros, then set the fields that you need. */
typedef struct harpe_zeusd_options {
    const char *unix_socket; /* path; NULL: no Unix socket */
    mode_t unix_mode;        /* 0: 0666 */
    const char *tcp_address; /* numeric address; NULL: no TCP */
    int tcp_port;            /* 0: any free port, see harpe_zeusd_server_port */
    const void *signing_key; /* key of the tokens; NULL: no tokens; TCP needs it */
    size_t signing_key_length;
    bool unix_needs_token; /* clients of the Unix socket need a token too */
    unsigned groups;       /* set of harpe_zeusd_group; 0: all */
    const char *rapl_path; /* NULL: the kernel's */
    /* Numbers of the pools for reads and writes. Each pool should have a thread for each GPU. The
     * pool for reads should have one more thread, for the CPUs. */
    int read_pool, write_pool;
    void (*drop)(void *user, int socket); /* as in harpe_http_options */
    void *drop_user;
    int user_connections_max; /* of a user other than root; 0: half of connections_max */
    int connections_max;      /* of each socket; 0: 1024 */
    int user_streams_max;     /* of a user other than root; 0: half of streams_max */
    int streams_max;          /* of all sockets together; 0: 64 */
    int answer_timeout_ms;    /* for a driver that does not answer; 0: 30 s */
    int gpu_poll_ms;          /* of streams; 0: 50 */
    int cpu_poll_ms;          /* of streams, and the time that get_power measures; 0: 100 */
    /* Before a write, the GPUs are looked at again if that was not done for a second, so that the
     * functions of harpe_zeusd_ops know which GPUs are lost. NULL: they learn it later. */
    struct harpe_agent_samples *samples;
    harpe_log log; /* called on the loop */
} harpe_zeusd_options;

typedef struct harpe_zeusd_server harpe_zeusd_server;

/* Makes a server that answers as soon as the loop runs. The GPU ids in its routes are the driver's
 * indices. `loop`, `workers`, `gpus` and ops->user must outlive the server; `options` and `ops` are
 * copied. Reads each GPU's energy counter once, to find out which GPUs have a counter. Call this
 * function and the functions below on the loop's thread. */
harpe_status harpe_zeusd_server_new(harpe_loop *loop, harpe_workers *workers, harpe_gpus *gpus,
                                    const harpe_zeusd_options *options, const harpe_zeusd_ops *ops,
                                    harpe_zeusd_server **out, harpe_error *error);
int harpe_zeusd_server_port(const harpe_zeusd_server *server); /* of TCP; 0: none */
/* Stops accepting connections. Open connections stay open. */
void harpe_zeusd_server_stop_accepting(harpe_zeusd_server *server);
/* Closes all connections and frees the server. No work of the server may run or wait: call
 * harpe_workers_close first, and call this function only if harpe_workers_close returned true. NULL
 * is allowed. */
void harpe_zeusd_server_free(harpe_zeusd_server *server);

typedef struct harpe_zeusd_counts {
    uint64_t requests, refused; /* refused: not authorized, or too many streams */
    uint64_t writes, failed_writes, replaced_writes;
    int streams;
} harpe_zeusd_counts;
harpe_zeusd_counts harpe_zeusd_server_count(const harpe_zeusd_server *server);

/* ---- zeusd_settings.c: changes, and putting them back ---------------------------------------- */

typedef struct harpe_zeusd_settings harpe_zeusd_settings;

/* Initialise it with zeros, then set the fields that you need. */
typedef struct harpe_zeusd_settings_options {
    bool no_restore;
    /* Returns the clock locks that the GPU gets when its settings are restored. Called on workers.
     * NULL: no locks. */
    harpe_default_locks (*default_locks)(void *user, int gpu);
    void *user; /* passed to default_locks */
    /* Number of the pool that restores settings. It should have two threads for each GPU. The
     * server's pool for writes may be used if it has three threads for each GPU. */
    int pool;
    harpe_log log; /* called on the loop */
} harpe_zeusd_settings_options;

/* `loop`, `workers` and `gpus` must outlive the result. Call this function and the functions below
 * on the loop's thread. Workers may call the functions that harpe_zeusd_settings_ops returns. */
harpe_status harpe_zeusd_settings_new(harpe_loop *loop, harpe_workers *workers, harpe_gpus *gpus,
                                      const harpe_zeusd_settings_options *options,
                                      harpe_zeusd_settings **out, harpe_error *error);
/* Returns the functions for harpe_zeusd_server_new. They are valid until
 * harpe_zeusd_settings_free. */
harpe_zeusd_ops harpe_zeusd_settings_ops(harpe_zeusd_settings *settings);

/* Restores all settings that clients hold, when the daemon stops. Call it after
 * harpe_workers_close. Waits at most 5 s for each driver call that hangs. Continues after a failure
 * and returns the first failure. Settings that could not be restored stay recorded on disk for the
 * next start. */
harpe_status harpe_zeusd_settings_put_back(harpe_zeusd_settings *settings, harpe_error *error);
/* Frees the object and restores nothing. No work of the workers may run. NULL is allowed. */
void harpe_zeusd_settings_free(harpe_zeusd_settings *settings);

/* Restores the settings that clients hold on a GPU (-1: on all GPUs), although these clients run.
 * Returns the number of holders. Does not wait until the settings are restored. */
int harpe_zeusd_settings_end(harpe_zeusd_settings *settings, int gpu);

/* A holder, for status and metrics. */
typedef struct harpe_zeusd_held {
    int gpu; /* index in harpe_gpus */
    harpe_saved_settings_kind kind;
    pid_t process;
    uid_t uid;
    int64_t since_ns;            /* harpe_clock_ns */
    bool is_ending;              /* harpe_zeusd_settings_end was called */
    harpe_saved_settings before; /* the saved settings */
} harpe_zeusd_held;
/* Writes at most `size` holders to `out`. Returns how many there are. Any thread may call it. */
size_t harpe_zeusd_settings_list(harpe_zeusd_settings *settings, harpe_zeusd_held *out,
                                 size_t size);

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
    unsigned settings; /* of a write: a set of 1 << harpe_setting */
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
    harpe_setting writes; /* the setting that is being written */
    harpe_zeusd_write queued[HARPE_SETTINGS], being_written;
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

/* ---- The inside of the server ---------------------------------------------------------------- */

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

/* ---- zeusd_asks.c ---------------------------------------------------------------------------- */

void harpe_zeusd_answer_empty(harpe_http_request *request, int status);
void harpe_zeusd_answer_text(harpe_http_request *request, int status, const char *text);
/* Answers with a JSON text. Releases `value`. */
void harpe_zeusd_answer_json(harpe_http_request *request, int status, json_t *value);
/* Answers {"error": text}. */
void harpe_zeusd_answer_error(harpe_http_request *request, int status, const char *text);
/* Returns the Unix time in milliseconds. */
int64_t harpe_zeusd_time_ms(void);

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

/* ---- zeusd_devices.c ------------------------------------------------------------------------- */

/* Finds a GPU by its id, or returns NULL. */
harpe_zeusd_gpu *harpe_zeusd_gpu_find(harpe_zeusd_server *server, uint64_t id);
/* Starts a reading of the GPU if a request or a stream waits for one and no reading runs. */
void harpe_zeusd_gpu_read(harpe_zeusd_gpu *gpu);
/* Queues a write. `part` waits for its outcome; it may be NULL. */
void harpe_zeusd_gpu_write(harpe_zeusd_gpu *gpu, harpe_setting setting, bool is_reset,
                           const uint32_t values[2], harpe_zeusd_client *client,
                           harpe_zeusd_part *part);
/* Makes the holder of a request. Returns NULL if memory runs out. The caller releases the holder
 * with harpe_zeusd_client_leave. */
harpe_zeusd_client *harpe_zeusd_client_new(const harpe_zeusd_transport *transport,
                                           const harpe_http_request *request,
                                           const harpe_zeusd_claims *claims);
void harpe_zeusd_client_leave(harpe_zeusd_client *client); /* NULL is allowed */
void harpe_zeusd_gpus_free(harpe_zeusd_server *server);

harpe_status harpe_zeusd_cpus_open(harpe_zeusd_server *server, harpe_error *error);
void harpe_zeusd_cpus_read(harpe_zeusd_server *server);
/* Make the answers of the wanted CPUs from the last reading. */
json_t *harpe_zeusd_cpus_energy(const harpe_zeusd_ask *ask);
json_t *harpe_zeusd_cpus_power(const harpe_zeusd_ask *ask);

void harpe_zeusd_stream_begin(harpe_zeusd_server *server, harpe_http_request *request,
                              const harpe_zeusd_route *route, const uint64_t *ids, size_t count);
void harpe_zeusd_stream_sent(harpe_zeusd_stream *stream);
void harpe_zeusd_stream_free(harpe_zeusd_stream *stream);

#endif
