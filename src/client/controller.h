/* SPDX-License-Identifier: Apache-2.0 */
/* What the two sides of the frequency controller share: the slot of memory through which wishes
 * travel, and the messages through which everything else does. controller.c is the trainer's side
 * and controller_slot.c its hot path; controller_process.c, _obey.c and _gpu.c are the process's
 * own. It is a side process (base/side_process.h). Private to src/client and the program. */
#ifndef HARPE_CLIENT_CONTROLLER_H
#define HARPE_CLIENT_CONTROLLER_H

#include <limits.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/frequency_controller.h>
#include <harpe/status.h>

/* `harpe <this>`: not for people. */
#define HARPE_CONTROLLER_ARGUMENT "--controller-process"

enum {
    HARPE_CONTROLLER_MAGIC = 0x48464343,
    HARPE_CONTROLLER_VERSION = 2,
    HARPE_CONTROLLER_LATENCIES = 4096,
    HARPE_CONTROLLER_SOCKET_PATH_SIZE = 108, /* sockaddr_un's */
};

/* ---- The slot ------------------------------------------------------------------------------- */

/* A wish is one word, so that it is read whole without a lock: the time when it was made (the low
 * 48 bits of CLOCK_MONOTONIC's ns) above 16 bits of MHz. No two are alike. 0: none yet. */
static inline uint64_t harpe_wish_make(int64_t now_ns, int frequency_mhz) {
    uint64_t mhz = frequency_mhz < 0        ? 0
                   : frequency_mhz > 0xFFFF ? 0xFFFF
                                            : (uint64_t)frequency_mhz;
    return (uint64_t)now_ns << 16 | mhz;
}

static inline uint32_t harpe_wish_mhz(uint64_t wish) { return wish & 0xFFFF; }

/* How long ago a wish was made. */
static inline uint64_t harpe_wish_age_ns(uint64_t wish, int64_t now_ns) {
    return (((uint64_t)now_ns << 16) - (wish & ~UINT64_C(0xFFFF))) >> 16;
}

/* What is set on the GPU and must be put back. */
enum {
    HARPE_TOUCHED_POWER_LIMIT = 1,
    HARPE_TOUCHED_MEMORY_CLOCKS = 2,
    HARPE_TOUCHED_GRAPHICS_CLOCKS = 4,
};

/* Lines of memory that only one side writes are that side's alone: whoever writes a line takes it
 * out of the other's cache. Lives as long as the trainer's handle, longer than one process of the
 * controller: counts go on, and what the first one found is there for the next. */
typedef struct harpe_controller_slot {
    alignas(128) _Atomic uint64_t wish; /* the trainer's line */
    _Atomic uint64_t wishes;
    _Atomic uint64_t wakes; /* system calls to wake the controller */

    alignas(128) _Atomic uint32_t is_parked; /* the futex that a controller without work waits on */

    alignas(128) _Atomic uint64_t taken_wish; /* the controller's lines */
    _Atomic uint64_t taken, written, skipped, failed;
    _Atomic uint32_t touched; /* bits; those that are not set need not be put back */
    _Atomic uint32_t is_found;
    uint32_t found_power_limit_mw; /* 0: cannot be read */
    _Atomic uint32_t
        latency_ns[HARPE_CONTROLLER_LATENCIES]; /* of write i at i modulo their count */
} harpe_controller_slot;

/* Wakes a parked controller. */
void harpe_controller_slot_wake(harpe_controller_slot *slot);

/* ---- Messages ------------------------------------------------------------------------------- */

/* The trainer's first and only message. What follows is the end of its socket. */
typedef struct harpe_controller_header {
    uint32_t magic, version, slot_size;
    int64_t dwell_ns; /* GPU time; 0: none */
    int64_t poll_ns;  /* negative: sleep until woken */
    int32_t trainer;  /* process */
    char uuid[96];
    char library_path[PATH_MAX];
    char zeusd_socket[HARPE_CONTROLLER_SOCKET_PATH_SIZE]; /* "": the driver */
} harpe_controller_header;

typedef enum harpe_controller_news {
    HARPE_CONTROLLER_READY = 1,    /* or not: the error says why */
    HARPE_CONTROLLER_REFUSED = 2,  /* the driver has refused a frequency */
    HARPE_CONTROLLER_RESTORED = 3, /* or not; the last message */
} harpe_controller_news;

typedef struct harpe_controller_message {
    uint32_t news;
    int32_t process;   /* of the controller */
    harpe_error error; /* its status may be HARPE_OK */
} harpe_controller_message;

/* ---- The trainer's handle ------------------------------------------------------------------- */

struct harpe_frequency_controller {
    harpe_controller_slot *slot;
    int memory; /* the slot's descriptor, for the next process */
    int socket; /* the same number for every process, one after the other */
    pid_t owner;
    _Atomic int32_t process;
    const atomic_bool *gives_up; /* true: a start is not waited for any longer; may be NULL */
    harpe_log log;
    harpe_controller_header header;
};

/* harpe_frequency_controller_start, which together with each restart gives up with
 * HARPE_INTERRUPTED soon after `*gives_up` has become true. May be NULL; outlives the handle. */
harpe_status
harpe_frequency_controller_start_unless(const harpe_frequency_controller_options *options,
                                        const atomic_bool *gives_up,
                                        harpe_frequency_controller **out, harpe_error *error);
/* Its process has. What harpe_frequency_controller_check returns may look like it, and be zeusd's
 * absence. */
bool harpe_frequency_controller_has_died(const harpe_frequency_controller *controller);

/* The controller process: returns its exit code. */
int harpe_controller_main(void);

#endif
