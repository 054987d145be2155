/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared by the two sides of the frequency controller: the slot of memory for clock
 * requests, and the messages for everything else. controller.c is the trainer's side.
 * controller_process.c and controller_gpu.c run in the controller's process, which is a helper
 * process (base/helper_process.h). Private to src/client and the program. */
#ifndef HARPE_CLIENT_CONTROLLER_H
#define HARPE_CLIENT_CONTROLLER_H

#include <limits.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/frequency_controller.h>
#include <harpe/status.h>

#include "client/switch_learning.h"
#include "client/zeusd.h"
#include "lease/lease.h"

/* The argument with which the program harpe runs as a controller. For internal use. */
#define HARPE_CONTROLLER_ARGUMENT "--controller-process"

enum {
    HARPE_CONTROLLER_MAGIC = 0x48464343,
    HARPE_CONTROLLER_VERSION = 8,
    HARPE_CONTROLLER_LATENCIES = 4096,
    HARPE_CONTROLLER_NOTES = 256, /* of positions */
    HARPE_CONTROLLER_ASKS = 8192,
};

/* ---- The slot -------------------------------------------------------------------------------- */

/* Makes a request. A request is one 64-bit word, so it can be read without a lock. Its high 48 bits
 * contain the low 48 bits of the request's time (CLOCK_MONOTONIC in ns), and its low 16 bits
 * contain the frequency in MHz. No two requests are equal. 0: no request yet. */
static inline uint64_t harpe_clock_request_make(int64_t now_ns, int frequency_mhz) {
    uint64_t mhz = frequency_mhz < 0        ? 0
                   : frequency_mhz > 0xFFFF ? 0xFFFF
                                            : (uint64_t)frequency_mhz;
    return (uint64_t)now_ns << 16 | mhz;
}

static inline uint32_t harpe_clock_request_mhz(uint64_t request) { return request & 0xFFFF; }

/* Returns the age of a request. */
static inline uint64_t harpe_clock_request_age_ns(uint64_t request, int64_t now_ns) {
    return (((uint64_t)now_ns << 16) - (request & ~UINT64_C(0xFFFF))) >> 16;
}

/* A note of the training thread: an instruction of its schedule begins or ends. The notes are a
 * ring; a reader that is too slow loses the oldest ones. */
typedef struct harpe_position_note {
    _Atomic int64_t time_ns; /* CLOCK_MONOTONIC */
    _Atomic uint64_t what;   /* see harpe_position_make */
} harpe_position_note;

/* Packs the kind of a note (1 bit: it begins), the low 16 bits of the schedule's number, the
 * position in the schedule (24 bits) and the clock in MHz (16 bits). */
static inline uint64_t harpe_position_make(bool begins, int64_t series, uint32_t position,
                                           int frequency_mhz) {
    return (uint64_t)begins << 56 | ((uint64_t)series & 0xFFFF) << 40 |
           (uint64_t)(position & 0xFFFFFF) << 16 |
           (frequency_mhz > 0 ? (uint64_t)frequency_mhz & 0xFFFF : 0);
}

/* The settings of the GPU that were changed and must be restored. */
enum {
    HARPE_TOUCHED_POWER_LIMIT = 1,
    HARPE_TOUCHED_MEMORY_CLOCKS = 2,
    HARPE_TOUCHED_GRAPHICS_CLOCKS = 4,
    /* The driver has locked them once, so it supports that. */
    HARPE_LOCKED_MEMORY_CLOCKS = 8,
    HARPE_LOCKED_GRAPHICS_CLOCKS = 16,
};

/* What a controller has changed on the GPU, and what it found there. It belongs to the processes
 * that control the GPU. */
typedef struct harpe_controller_changes {
    _Atomic uint32_t touched; /* bit set of changed settings, which must be restored */
    _Atomic uint32_t is_saved;
    uint32_t saved_power_limit_mw; /* 0: the controller leaves the power limit alone */
} harpe_controller_changes;

/* Each cache line has only one writer, because a write to a line removes it from the other side's
 * cache. The slot lives as long as the trainer's handle, also if a controller process dies. The
 * next controller process continues the counts and uses the settings that the first one saved. */
typedef struct harpe_controller_slot {
    alignas(128) _Atomic uint64_t request; /* starts the cache line that the trainer writes */
    _Atomic uint64_t clock_requests;
    _Atomic uint64_t wakes;          /* system calls to wake the controller */
    _Atomic uint64_t note_count;     /* of all notes; note i is at index i modulo
                                      * HARPE_CONTROLLER_NOTES */
    _Atomic uint32_t may_anticipate; /* not 0: clocks may be set before instructions begin */
    alignas(128) harpe_position_note notes[HARPE_CONTROLLER_NOTES];

    alignas(128) _Atomic uint32_t is_parked; /* the futex on which an idle controller waits */
    _Atomic uint32_t wants_ends; /* not 0: the controller anticipates, and needs to know when
                                  * instructions end, and where those at 0 MHz begin */

    alignas(128) _Atomic uint64_t taken_request; /* starts the cache lines that the controller
                                                  * writes */
    _Atomic uint64_t taken, written, skipped, failed;
    _Atomic uint64_t anticipated, returned; /* driver calls without a request: before the
                                             * instruction began, and back after a wrong
                                             * prediction */
    /* What the last look at the GPU's clock has shown (controller_obedience.h). */
    _Atomic uint64_t looks, disobeyed;
    _Atomic uint32_t wanted_mhz, held_mhz;
    _Atomic uint64_t reasons;
    _Atomic uint32_t disobeys;
    /* Of the last look at a GPU that did not obey; 0: there was none. */
    _Atomic uint32_t disobeyed_wanted_mhz, disobeyed_held_mhz;
    /* Used only if the trainer started the controller. The controller of a node agent keeps its
     * changes to itself, because a trainer without privileges can write to the slot. */
    harpe_controller_changes changes;
    _Atomic uint32_t latency_ns[HARPE_CONTROLLER_LATENCIES]; /* latency of write i, at index i
                                                              * modulo HARPE_CONTROLLER_LATENCIES */
    harpe_switch_table switch_table;  /* how long changes of the clock take */
    _Atomic uint32_t learns_switches; /* not 0: a thread of the controller reads the clock, and
                                       * learns how long changes take */
    /* The latest requests to the driver (below). The high 48 bits of a request are the GPU
     * time in us, and the low 16 bits are the clock in MHz. Request i is at index i modulo
     * HARPE_CONTROLLER_ASKS. */
    _Atomic uint64_t ask_count; /* of all requests so far */
    _Atomic uint64_t asks[HARPE_CONTROLLER_ASKS];
} harpe_controller_slot;

/* ---- Messages -------------------------------------------------------------------------------- */

/* The only message that the trainer sends. The controller restores the GPU when the trainer's side
 * of the socket is closed. */
typedef struct harpe_controller_header {
    uint32_t magic, version, slot_size;
    int64_t dwell_ns;          /* GPU time; 0: none */
    int64_t poll_ns;           /* negative: sleep until woken */
    int32_t trainer;           /* process id of the trainer */
    int32_t keeps_power_limit; /* not 0: the power limit stays as it is found */
    char uuid[96];
    char library_path[PATH_MAX];
    harpe_zeusd_address zeusd; /* no address: the driver */
    harpe_lease_terms terms;   /* for a controller that a node agent starts */
} harpe_controller_header;

typedef enum harpe_controller_news {
    HARPE_CONTROLLER_READY = 1,    /* ready, or failed: see the error */
    HARPE_CONTROLLER_REFUSED = 2,  /* the driver has refused a frequency */
    HARPE_CONTROLLER_RESTORED = 3, /* restored, or failed: see the error; the last message */
} harpe_controller_news;

typedef struct harpe_controller_message {
    uint32_t news;
    int32_t process;   /* process id of the controller */
    harpe_error error; /* its status may be HARPE_OK */
} harpe_controller_message;

/* ---- The trainer's handle -------------------------------------------------------------------- */

struct harpe_frequency_controller {
    harpe_controller_slot *slot;
    int memory; /* the slot's descriptor, for the next process */
    int socket; /* keeps its number when a new process replaces a dead one */
    pid_t owner;
    _Atomic int32_t process;
    const atomic_bool *gives_up; /* when it becomes true, a start stops waiting; may be NULL */
    double stop_s;               /* limit for the whole stop */
    harpe_log log;
    harpe_controller_header header;
    char agent[HARPE_LEASE_SOCKET_SIZE]; /* socket of the node agent; "": the controller is a
                                          * process of this trainer */
    harpe_lease_terms terms;             /* of the lease */
};

/* Works like harpe_frequency_controller_start. This call and each restart give up with
 * HARPE_INTERRUPTED soon after `*gives_up` has become true. `gives_up` may be NULL; otherwise it
 * must outlive the handle. */
harpe_status
harpe_frequency_controller_start_unless(const harpe_frequency_controller_options *options,
                                        const atomic_bool *gives_up,
                                        harpe_frequency_controller **out, harpe_error *error);
/* Returns true if the controller's process has died. harpe_frequency_controller_check is not
 * enough, because it returns the same status when zeusd does not answer. */
bool harpe_frequency_controller_has_died(const harpe_frequency_controller *controller);

/* Returns a header for a GPU and its trainer. The caller sets the other members. */
harpe_controller_header harpe_controller_header_for(const harpe_gpus *gpus, int gpu, pid_t trainer);

/* Starts a controller's process for the trainer in `header`, at whose end it restores the GPU.
 * `memory` is the slot's descriptor. `starter` is the trainer's pidfd; 0: this process. The caller
 * closes `*socket`, which also ends the controller. `*started` is its process id. */
harpe_status harpe_controller_start_process(const harpe_controller_header *header, int memory,
                                            int starter, int timeout_ms,
                                            const atomic_bool *gives_up, int *socket,
                                            int32_t *started, harpe_error *error);

/* ---- Requests of the training thread --------------------------------------------------------- */

/* Work like harpe_frequency_controller_set for an instruction that begins at a position of the
 * schedule `series` (HARPE_POSITION_LOST: at none), and tell the controller that it ends. With them
 * the controller can ask for clocks before their instructions begin. An instruction at 0 MHz
 * requests no clock. For the training thread. */
void harpe_controller_begin_instruction(harpe_frequency_controller *controller, int frequency_mhz,
                                        int64_t series, uint32_t position);
void harpe_controller_end_instruction(harpe_frequency_controller *controller);
/* Returns true if the controller uses the ends of instructions, and notes without a request. */
static inline bool harpe_controller_wants_ends(const harpe_frequency_controller *controller) {
    return controller &&
           atomic_load_explicit(&controller->slot->wants_ends, memory_order_relaxed) != 0;
}

/* ---- Requests to the driver ------------------------------------------------------------------ */

/* The requests to the driver in the slot: a ring that one thread of the controller writes and the
 * trainer reads. Neither waits for the other. A trainer that reads late loses the oldest ones. */

/* Adds a request, which is not older than the last one. `at_us` is GPU time, of which 48 bits are
 * kept. After a request that has failed, add one for 0 MHz at the same time: the clock is not known
 * from then on, because a call that fails may still take effect. */
void harpe_clock_asks_add(harpe_controller_slot *slot, uint64_t at_us, uint32_t mhz);

/* Copies the requests that are still there, in the order of time, to `asks`, which has room for
 * HARPE_CONTROLLER_ASKS. `*has_lost` becomes true if there were older ones. Returns the number. */
size_t harpe_clock_asks_copy(const harpe_controller_slot *slot, harpe_clock_ask *asks,
                             bool *has_lost);

#endif
