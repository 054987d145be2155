/* SPDX-License-Identifier: Apache-2.0 */
/* The definitions that the two sides of the frequency controller share: the slot of memory for
 * clock requests, and the messages for everything else. controller.c is the trainer's side. The
 * other files run in the controller's process, which is a helper process (base/helper_process.h).
 * This header is private to src/client and the program. */
#ifndef HARPE_CLIENT_CONTROL_H
#define HARPE_CLIENT_CONTROL_H

#include <limits.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/frequency_controller.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

#include "client/switch_learning.h"
#include "gpu/saved_settings.h"
#include "lease/lease.h"

/* ---- zeusd ----------------------------------------------------------------------------------- */

/* These functions talk to a running zeusd by HTTP over a Unix socket or TCP. zeusd is a daemon of
 * the Zeus project, which changes GPUs for users who lack the privilege. The frequency controller
 * and the recovery of saved settings use zeusd. */

typedef struct harpe_zeusd harpe_zeusd;

/* Where zeusd is, and the token for it. The token is "" if there is none. */
typedef struct harpe_zeusd_address {
    harpe_zeusd_place place;
    char token[4097];
} harpe_zeusd_address;

/* Reads the address from ZEUSD_SOCK_PATH or, if this variable is not set, from ZEUSD_HOST_PORT, and
 * the token from ZEUSD_TOKEN. If `socket` is not NULL, it replaces the address. All members of
 * `out` are "" if there is no zeusd. Fails with HARPE_INVALID_ARGUMENT if a value is not valid. The
 * message never contains the token. */
harpe_status harpe_zeusd_find(const char *socket, harpe_zeusd_address *out, harpe_error *error);

/* Writes $ZEUSD_TOKEN to out->token, or "" if the variable is not set. The message of a failure
 * does not contain the token. */
harpe_status harpe_zeusd_take_token(harpe_zeusd_address *out, harpe_error *error);

/* Opens a connection for a GPU, and sends nothing. zeusd's routes take a number, which is the index
 * that the GPU had when zeusd started. The first harpe_zeusd_call finds this number by the GPU's
 * PCI address (GET /discover). zeusd 0.5.0 shows no PCI addresses. Then the number is the driver's
 * index of the GPU in this process. */
harpe_status harpe_zeusd_open(const harpe_zeusd_address *address, const harpe_gpu_info *gpu,
                              harpe_zeusd **out, harpe_error *error);
void harpe_zeusd_close(harpe_zeusd *zeusd); /* NULL is allowed */

/* Sends POST /gpu/<command> and waits until zeusd has executed the command. `format` gives the
 * arguments after the GPU and "block", such as "&min_clock_mhz=%u"; "": none. Returns
 * HARPE_UNAVAILABLE if nothing answers at the address, and HARPE_NOT_FOUND if zeusd does not have
 * the GPU. One thread at a time may call this function. */
harpe_status harpe_zeusd_call(harpe_zeusd *zeusd, harpe_error *error, const char *command,
                              const char *format, ...) HARPE_PRINTF(4, 5);

/* The argument with which the program harpe runs as a controller. Only Harpe itself uses it. */
#define HARPE_CONTROLLER_ARGUMENT "--controller-process"

enum {
    HARPE_CONTROLLER_MAGIC = 0x48464343,
    HARPE_CONTROLLER_VERSION = 9,
    HARPE_CONTROLLER_LATENCIES = 4096,
    HARPE_CONTROLLER_NOTES = 256, /* number of position notes */
    HARPE_CONTROLLER_ASKS = 8192,
};

/* ---- The slot -------------------------------------------------------------------------------- */

/* Makes a request. A request is one 64-bit word, so it can be read without a lock. Its high 48 bits
 * contain the low 48 bits of the request's time (CLOCK_MONOTONIC in ns), and its low 16 bits
 * contain the frequency in MHz. No two requests are equal. The word 0 means "no request yet". */
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

/* Each cache line has only one writer, because a write to a line removes it from the other side's
 * cache. The slot lives as long as the trainer's handle, also if a controller process dies. The
 * next controller process continues the counts. */
typedef struct harpe_controller_slot {
    alignas(128) _Atomic uint64_t request; /* starts the cache line that the trainer writes */
    _Atomic uint64_t clock_requests;
    _Atomic uint64_t wakes;          /* system calls to wake the controller */
    _Atomic uint64_t note_count;     /* of all notes; note i is at index i modulo
                                      * HARPE_CONTROLLER_NOTES */
    _Atomic uint32_t may_anticipate; /* not 0: clocks may be set before instructions begin */
    alignas(128) harpe_position_note notes[HARPE_CONTROLLER_NOTES];

    alignas(128) _Atomic uint32_t is_parked; /* the futex on which an idle controller waits */
    _Atomic uint32_t wants_ends; /* not 0: the controller anticipates. It needs to know when
                                  * instructions end, and when instructions at 0 MHz begin */

    alignas(128) _Atomic uint64_t taken_request; /* starts the cache lines that the controller
                                                  * writes */
    _Atomic uint64_t taken, written, skipped, failed;
    _Atomic uint64_t anticipated, returned; /* driver calls without a request: those before their
                                             * instruction began, and those that undo a wrong
                                             * prediction */
    /* The results of the last look at the GPU's clock (harpe_obedience). */
    _Atomic uint64_t looks, disobeyed;
    _Atomic uint32_t wanted_mhz, held_mhz;
    _Atomic uint64_t reasons;
    _Atomic uint32_t disobeys;
    /* The clocks of the last look in which the GPU did not obey; 0: the GPU has always obeyed. */
    _Atomic uint32_t disobeyed_wanted_mhz, disobeyed_held_mhz;
    /* The power limit that the first controller process has saved, in mW, for the next one if the
     * record on disk is gone; 0: it leaves the power limit alone. Unused for a lease, because a
     * trainer without privileges can write to the slot. */
    _Atomic uint32_t saved_power_limit_mw;
    _Atomic uint32_t latency_ns[HARPE_CONTROLLER_LATENCIES]; /* latency of write i, at index i
                                                              * modulo HARPE_CONTROLLER_LATENCIES */
    harpe_switch_table switch_table;  /* how long changes of the clock take */
    _Atomic uint32_t learns_switches; /* not 0: a thread of the controller reads the clock, and
                                       * learns how long changes take */
    /* The latest requests to the driver (see "Requests to the driver"). The high 48 bits of a
     * request are the GPU time in us, and the low 16 bits are the clock in MHz. Request i is at
     * index i modulo HARPE_CONTROLLER_ASKS. */
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
    int32_t keeps_power_limit; /* not 0: the controller leaves the power limit alone */
    char uuid[96];
    char library_path[PATH_MAX];
    harpe_zeusd_address zeusd; /* if it has no address, the controller calls the driver */
    harpe_lease_terms terms;   /* used if a node agent starts the controller */
} harpe_controller_header;

typedef enum harpe_controller_news {
    HARPE_CONTROLLER_READY = 1,    /* the controller is ready, or has failed: see the error */
    HARPE_CONTROLLER_REFUSED = 2,  /* the driver has refused a frequency */
    HARPE_CONTROLLER_RESTORED = 3, /* the last message: the GPU is restored, or see the error */
} harpe_controller_news;

typedef struct harpe_controller_message {
    uint32_t news;
    int32_t process;   /* process id of the controller */
    harpe_error error; /* its status may be HARPE_OK */
} harpe_controller_message;

/* ---- The trainer's handle -------------------------------------------------------------------- */

struct harpe_frequency_controller {
    harpe_controller_slot *slot;
    int memory; /* the slot's descriptor, which the next controller process gets */
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

/* Does what harpe_frequency_controller_start does, and stores `gives_up` in the handle. When
 * `*gives_up` becomes true, this function and each later restart of the controller soon return
 * HARPE_INTERRUPTED. `gives_up` may be NULL; otherwise it must outlive the handle. */
harpe_status
harpe_frequency_controller_start_unless(const harpe_frequency_controller_options *options,
                                        const atomic_bool *gives_up,
                                        harpe_frequency_controller **out, harpe_error *error);
/* Returns true if the controller's process has died. harpe_frequency_controller_check cannot tell
 * this, because it returns the same status when zeusd does not answer. */
bool harpe_frequency_controller_has_died(const harpe_frequency_controller *controller);
/* Does what harpe_frequency_controller_stop does. Returns false if the GPU could not be restored,
 * or if it is not known whether it is. */
bool harpe_frequency_controller_restores(harpe_frequency_controller *controller);

/* Returns a header for a GPU and its trainer. The caller sets the other members. */
harpe_controller_header harpe_controller_header_for(const harpe_gpus *gpus, int gpu, pid_t trainer);

/* Starts a controller process for the trainer in `header`. The controller restores the GPU when the
 * trainer ends. `memory` is the slot's descriptor. `starter` is the trainer's pidfd; 0: the trainer
 * is this process. The caller closes `*socket`, which also ends the controller. `*started` receives
 * the process id of the controller. */
harpe_status harpe_controller_start_process(const harpe_controller_header *header, int memory,
                                            int starter, int timeout_ms,
                                            const atomic_bool *gives_up, int *socket,
                                            int32_t *started, harpe_error *error);

/* ---- Requests of the training thread --------------------------------------------------------- */

/* Tell the controller that an instruction begins, and that it ends. `begin` also requests the clock
 * as harpe_frequency_controller_set does, but not at 0 MHz. `position` is the instruction's place
 * in the schedule `series`; HARPE_POSITION_LOST: it has none. From these calls the controller
 * learns when to ask for clocks before their instructions begin. Only the training thread may call
 * these functions. */
void harpe_controller_begin_instruction(harpe_frequency_controller *controller, int frequency_mhz,
                                        int64_t series, uint32_t position);
void harpe_controller_end_instruction(harpe_frequency_controller *controller);
/* Returns true if the controller uses the ends of instructions, and notes at 0 MHz. */
static inline bool harpe_controller_wants_ends(const harpe_frequency_controller *controller) {
    return controller &&
           atomic_load_explicit(&controller->slot->wants_ends, memory_order_relaxed) != 0;
}

/* ---- Requests to the driver ------------------------------------------------------------------ */

/* The slot keeps the latest requests to the driver in a ring. One thread of the controller writes
 * the ring, and the trainer reads it. Neither side waits for the other. A trainer that reads late
 * loses the oldest requests. */

/* Adds a request, which must not be older than the request before. `at_us` is GPU time, of which 48
 * bits are kept. After a request that has failed, add a request for 0 MHz with the same time: the
 * clock is then not known, because a driver call that fails may still take effect. */
void harpe_clock_asks_add(harpe_controller_slot *slot, uint64_t at_us, uint32_t mhz);

/* Copies the requests in the ring to `asks`, the oldest first. `asks` has room for
 * HARPE_CONTROLLER_ASKS requests. Sets `*has_lost` to true if the ring has lost older requests.
 * Returns the number of copied requests. */
size_t harpe_clock_asks_copy(const harpe_controller_slot *slot, harpe_clock_ask *asks,
                             bool *has_lost);

/* ---- The controller's process ---------------------------------------------------------------- */

/* Runs the controller process and returns its exit code. Ignores the arguments. */
int harpe_controller_main(int argc, char **argv);

/* ---- GPU ------------------------------------------------------------------------------------- */

/* The GPU of a controller process, reached through the driver or through zeusd. Each GPU has at
 * most one controller: a new controller waits until the old one has restored the GPU. Only the
 * controller's process and the program use these functions. */

/* A thread's own handle of the GPU. A call on one handle does not delay calls on another. */
typedef struct harpe_controller_gpu {
    harpe_gpus *gpus;
    int index;
    harpe_zeusd *zeusd; /* NULL: the driver */
    harpe_lease_terms terms;
    bool keeps_power_limit;
} harpe_controller_gpu;

harpe_status harpe_controller_gpu_open(const harpe_controller_header *header,
                                       harpe_controller_gpu *out, harpe_error *error);
void harpe_controller_gpu_close(harpe_controller_gpu *gpu);

harpe_status harpe_controller_gpu_lock_graphics(harpe_controller_gpu *gpu, uint32_t mhz,
                                                harpe_error *error);

/* Takes the GPU until harpe_holding_release (gpu/saved_settings.h), and sets the highest memory
 * clock, the highest graphics clock and, unless `keeps_power_limit` is true, the default power
 * limit. Writes the highest graphics clock to `*highest_mhz`. First restores all GPUs that dead
 * jobs have left changed, then waits while another process has this GPU. Fails if the graphics
 * clock cannot be set; the driver may refuse the memory clock and the power limit. Fails with
 * HARPE_ALREADY_EXISTS after 10 s, and with HARPE_INTERRUPTED if the trainer is gone. After a
 * failure `*out` may be a holding, which may have changed the GPU. */
harpe_status harpe_controller_gpu_take(harpe_controller_gpu *gpu,
                                       const harpe_controller_header *header,
                                       harpe_controller_slot *slot, harpe_holding **out,
                                       uint32_t *highest_mhz, harpe_error *error);

/* Restores the settings in `which`, a set of 1 << harpe_setting, that the holding has changed, with
 * this thread's handle. Tries again for half a minute after a failure. Changes no record. */
harpe_status harpe_controller_gpu_restore(harpe_controller_gpu *gpu, const harpe_holding *holding,
                                          unsigned which, harpe_error *error);

/* Restores a GPU through zeusd. This is `through_zeusd` of harpe_saved_settings_recovery. */
harpe_status harpe_controller_restore_through_zeusd(harpe_restoration *how, harpe_error *error);

/* ---- Obedience ------------------------------------------------------------------------------- */

/* Compares the clock that a GPU has with the clock that was set. They can differ because of the
 * power limit, heat, a lock of an administrator, or another program that sets clocks. A thread of
 * the controller compares the clocks several times a second. It also learns how long changes take.
 * The thread that sets clocks makes no driver calls for this. */

enum { HARPE_OBEDIENCE_WRITES = 64, HARPE_OBEDIENCE_ASKS = 16 };

/* The clocks that were set last. Each element of `writes` and `asks` contains a GPU time in us
 * (high 48 bits) and a clock in MHz (low 16 bits). */
typedef struct harpe_obedience {
    _Atomic uint64_t writes[HARPE_OBEDIENCE_WRITES];
    _Atomic uint32_t count;       /* of all writes */
    _Atomic uint32_t calling_mhz; /* the clock of a driver call that has not returned; 0: none */
    /* The latest requests, with their times before the driver call. */
    _Atomic uint64_t asks[HARPE_OBEDIENCE_ASKS];
    _Atomic uint32_t ask_count;
    uint64_t asked_us;       /* time of the last request; used by the thread that sets clocks */
    uint32_t watched;        /* number of watched changes; used by the thread that sets clocks */
    uint64_t next_watch_us;  /* earliest GPU time at which the next change is watched */
    _Atomic bool has_change; /* a change must be watched */
    _Atomic bool is_over;    /* the thread must end */
    _Atomic uint32_t calls;  /* number of times that has_change or is_over was set */
    harpe_switch_learning learning;
    harpe_controller_slot *slot;
    const harpe_controller_gpu *gpu; /* used only to read */
    int64_t start_ns, start_gpu_ns;  /* the same moment on both clocks */
    pthread_t thread;
    bool has_thread;
    _Atomic bool has_ended;
} harpe_obedience;

/* Starts the thread. If the start fails, the clocks are not compared, and it is not learnt how long
 * changes take; `slot` shows this. `slot` and `gpu` must outlive the thread, and all calls below.
 */
void harpe_obedience_start(harpe_obedience *obedience, harpe_controller_slot *slot,
                           const harpe_controller_gpu *gpu);
/* Ends the thread. Returns false if the thread hangs in a driver call. Then the caller must not
 * free anything that the thread uses. */
bool harpe_obedience_stop(harpe_obedience *obedience);

/* Notes the clock that the GPU got at the start. This change is not watched, because its request is
 * over. Requests of an earlier process in the slot become invalid. Call this function after
 * harpe_obedience_start, and before the thread that sets clocks starts. */
void harpe_obedience_begin(harpe_obedience *obedience, uint32_t mhz);

/* Notes that a clock is about to be set. If too little is known about how long this change takes,
 * the other thread reads the clock in short intervals until the change is over. Called on the
 * thread that sets clocks. */
void harpe_obedience_ask(harpe_obedience *obedience, uint32_t mhz);

/* Notes that the last request failed. Called on the thread that sets clocks. */
void harpe_obedience_fail(harpe_obedience *obedience);

/* Notes that a clock was set. Called on the thread that sets clocks. */
void harpe_obedience_note(harpe_obedience *obedience, uint32_t mhz);

/* Returns true if a GPU with the clock `held_mhz` obeys. `lowest_mhz` and `highest_mhz` are the
 * range of the clocks that were set within the time that a change takes. */
bool harpe_obedience_holds(uint32_t held_mhz, uint32_t lowest_mhz, uint32_t highest_mhz);

/* ---- Anticipation ---------------------------------------------------------------------------- */

/* Anticipation predicts when the instructions of a step begin, and computes when to ask for their
 * clocks, so that a clock that changes late changes in time. The schedule repeats, so the times of
 * earlier steps predict those of later steps. Only the controller's thread that sets clocks uses
 * these functions. They call no driver and do not read the time: all times are arguments. */

#define HARPE_ANTICIPATION_NEVER INT64_MAX

enum {
    HARPE_ANTICIPATION_POSITIONS = 8192, /* longer steps are not anticipated */
    HARPE_POSITION_LOST = 0xFFFFFF,      /* the instruction is not part of a schedule */
};

typedef struct harpe_anticipation harpe_anticipation;

/* How long a change to a clock takes, from the request on. */
typedef struct harpe_switch_time {
    int64_t latency_ns; /* median */
    int64_t spread_ns;  /* nearly all changes take less than latency_ns + spread_ns */
} harpe_switch_time;
typedef harpe_switch_time harpe_switch_time_of(const void *user, uint32_t mhz);

/* The next request. */
typedef struct harpe_anticipated {
    int64_t at_ns;    /* time of the request, or of the next call of harpe_anticipation_next;
                       * HARPE_ANTICIPATION_NEVER: not before the next event */
    uint32_t mhz;     /* 0: there is no request yet; call harpe_anticipation_next at `at_ns` */
    bool is_early;    /* the request's instruction has not begun */
    bool is_return;   /* a prediction was wrong: `mhz` is the clock of the running instruction */
    uint32_t decided; /* see harpe_anticipation_asked */
} harpe_anticipated;

/* Returns NULL if there is no memory. */
harpe_anticipation *harpe_anticipation_new(void);
void harpe_anticipation_free(harpe_anticipation *self);

/* Records that an instruction begins at a position of the schedule `series`. `mhz` is the clock of
 * the instruction; 0: it keeps the clock of the instruction before. If the position is
 * HARPE_POSITION_LOST or does not follow the position before, all predictions end until positions
 * follow each other again. */
void harpe_anticipation_begin(harpe_anticipation *self, uint32_t series, uint32_t position,
                              uint32_t mhz, int64_t now_ns);
void harpe_anticipation_end(harpe_anticipation *self, int64_t now_ns);

/* Forgets the training's position in the schedule, because events were lost. Keeps the learnt
 * times. */
void harpe_anticipation_lose(harpe_anticipation *self);

/* Returns true if the instruction that has begun last has a position in a schedule. If it has none,
 * the caller makes each request when it arrives. */
bool harpe_anticipation_is_following(const harpe_anticipation *self);

/* Returns the next request. A second call with the same arguments changes nothing more. */
harpe_anticipated harpe_anticipation_next(harpe_anticipation *self, int64_t now_ns,
                                          harpe_switch_time_of *switch_time, const void *user);
/* Records that the driver has accepted this request. */
void harpe_anticipation_asked(harpe_anticipation *self, const harpe_anticipated *request);
/* Records that a clock was requested that was not predicted; 0: the GPU's clock is not known. */
void harpe_anticipation_set(harpe_anticipation *self, uint32_t mhz);

#endif
