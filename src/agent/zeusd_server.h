/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the routes of zeusd 0.5, a daemon of the Zeus project, on a Unix socket and on TCP, so
 * that unchanged Zeus clients work with Harpe's agent. It reads GPUs through the GPU layer and CPUs
 * through RAPL. It writes only through the functions of harpe_zeusd_ops, which decide who may
 * change what; zeusd_settings.h has an implementation of them.
 *
 * Workers make all driver calls. For each GPU at most one read and one write run at a time, so a
 * call that hangs does not delay other GPUs. Reads of the same kind that wait share one call. For
 * each GPU and setting at most one write waits. A newer write replaces an older write that has not
 * begun. Requests that waited for the older write then get the result of the newer write. So no
 * queue grows without a limit. */
#ifndef HARPE_AGENT_ZEUSD_SERVER_H
#define HARPE_AGENT_ZEUSD_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

#include "agent/zeusd_token.h"
#include "http/loop.h"
#include "http/workers.h"

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

typedef enum harpe_zeusd_setting {
    HARPE_ZEUSD_PERSISTENCE,
    HARPE_ZEUSD_POWER_LIMIT,
    HARPE_ZEUSD_GRAPHICS_CLOCKS,
    HARPE_ZEUSD_MEMORY_CLOCKS,
    HARPE_ZEUSD_SETTINGS,
} harpe_zeusd_setting;

/* The functions that change GPUs. `gpu` is an index in the server's harpe_gpus. All functions but
 * may_set are called on a worker, one at a time for each GPU. A failure becomes an answer with the
 * status 403 for HARPE_PERMISSION_DENIED and HARPE_ALREADY_EXISTS (another client has the GPU), 400
 * for HARPE_INVALID_ARGUMENT and HARPE_NOT_SUPPORTED, and 500 for all other failures. */
typedef struct harpe_zeusd_ops {
    /* Called on the loop's thread before a write is queued. Must return at once. May be NULL. */
    harpe_status (*may_set)(void *user, const harpe_zeusd_holder *holder, int gpu,
                            harpe_zeusd_setting setting, harpe_error *error);
    harpe_status (*set_power_limit)(void *user, const harpe_zeusd_holder *holder, int gpu,
                                    uint32_t limit_mw, harpe_error *error);
    harpe_status (*set_persistence)(void *user, const harpe_zeusd_holder *holder, int gpu,
                                    bool is_enabled, harpe_error *error);
    harpe_status (*lock_graphics)(void *user, const harpe_zeusd_holder *holder, int gpu,
                                  uint32_t minimum_mhz, uint32_t maximum_mhz, harpe_error *error);
    harpe_status (*lock_memory)(void *user, const harpe_zeusd_holder *holder, int gpu,
                                uint32_t minimum_mhz, uint32_t maximum_mhz, harpe_error *error);
    harpe_status (*reset_graphics)(void *user, const harpe_zeusd_holder *holder, int gpu,
                                   harpe_error *error);
    harpe_status (*reset_memory)(void *user, const harpe_zeusd_holder *holder, int gpu,
                                 harpe_error *error);
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

#endif
