/* SPDX-License-Identifier: Apache-2.0 */
/* The frequency controller is a separate process for each GPU. It sets the GPU's graphics clock to
 * the frequency that the training process requests, so a slow driver call or a crash does not harm
 * the training. The two processes share one slot of memory, which contains only the latest request.
 *
 * At its start the controller sets the power limit to the GPU's default (unless a power limit guard
 * has the GPU), locks the memory clock to its highest value (if the GPU supports that), and locks
 * the graphics clock to its highest value.
 * When the training process ends, for any reason, the controller resets the clocks, restores the
 * saved settings and exits. Only the controller needs the privilege to set clocks. If the machine
 * has a node agent (`harpe agent`; its socket is HARPE_AGENT_SOCKET or /run/harpe/agent.sock), the
 * agent starts the controller with its own privilege, outside of the job. Such a controller leaves
 * the power limit unchanged. If ZEUSD_SOCK_PATH names the socket of a running zeusd, or
 * ZEUSD_HOST_PORT its host and port, the controller asks zeusd instead of the agent or the driver.
 * ZEUSD_TOKEN is the token for a zeusd that requires one. */
#ifndef HARPE_FREQUENCY_CONTROLLER_H
#define HARPE_FREQUENCY_CONTROLLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

typedef struct harpe_frequency_controller harpe_frequency_controller;

/* Initialise with zeros, then set the members that you need. */
typedef struct harpe_frequency_controller_options {
    harpe_gpus *gpus; /* used to find the GPU; the controller sets nothing through it */
    int gpu;          /* index in `gpus` */
    /* True: if the GPU's clock changes late, the controller of a pipeline frequency optimizer sets
     * clocks earlier by the time that a change takes, once it knows when instructions begin. On a
     * busy machine it may take delays of the machine for delays of the GPU, and then set clocks too
     * early. False: no clock is set before its instruction begins. */
    bool may_anticipate;
    const char *zeusd_socket; /* NULL: $ZEUSD_SOCK_PATH or $ZEUSD_HOST_PORT; "": the driver */
    /* Shortest time between two writes to the GPU, in seconds of GPU time. A request that comes
     * sooner waits, and is dropped if a newer request replaces it. 0: 0.01 s; negative: no
     * limit. */
    double minimum_dwell_s;
    /* Time between two reads of the slot while requests arrive, in seconds of real time. 0: 20 us.
     * Negative: the controller sleeps until the training thread wakes it with a system call, for
     * each change of frequency. Use a negative value on machines with fewer cores than GPUs. */
    double poll_interval_s;
    harpe_log log;
    /* True: the controller leaves the power limit alone. False: the controller sets the power limit
     * to the GPU's default, because with a lower limit a GPU may not reach its clock. */
    bool keeps_power_limit;
} harpe_frequency_controller_options;

/* Starts the controller and returns when the GPU is at its highest clocks. If an earlier controller
 * is still restoring the GPU, first waits for that controller. Fails with HARPE_PERMISSION_DENIED,
 * HARPE_NOT_SUPPORTED (also before Linux 5.9), HARPE_GPU_LOST or another error of the driver. Fails
 * with HARPE_UNAVAILABLE if zeusd does not answer, or if the controller does not answer within 30
 * s. Fails with HARPE_ALREADY_EXISTS if another training's controller still has the GPU after 10
 * s. */
HARPE_API harpe_status
harpe_frequency_controller_start(const harpe_frequency_controller_options *options,
                                 harpe_frequency_controller **out, harpe_error *error);
/* Makes the controller restore the GPU, waits at most 3 s for the result, and frees the handle. A
 * restore that takes longer continues without the caller. In a child of fork(), the function only
 * frees the handle. */
HARPE_API void harpe_frequency_controller_stop(harpe_frequency_controller *controller);

/* Requests a clock in MHz; 0: leave the clock alone. Call it from the training thread. It never
 * blocks, and makes no system call while the controller is awake. */
HARPE_API void harpe_frequency_controller_set(harpe_frequency_controller *controller,
                                              int frequency_mhz);

/* Returns HARPE_OK, or an error with one line about the fault. HARPE_UNAVAILABLE means that the
 * controller has died or that zeusd does not answer; only a controller that has died can be
 * restarted. A driver call that fails is reported once. Another failure with the same status is
 * reported only after a call has succeeded or has failed in another way. The controller tries again
 * at later requests, with a back-off of 0.1 to 5 s. Never blocks. Any thread may call it. */
HARPE_API harpe_status harpe_frequency_controller_check(harpe_frequency_controller *controller,
                                                        harpe_error *error);
/* Starts another controller after the first has died. The new controller takes over the latest
 * request and the settings that the first controller saved. Fails with HARPE_ALREADY_EXISTS while
 * the first controller lives. Do not call it at the same time as harpe_frequency_controller_stop;
 * the training thread may call _set meanwhile. */
HARPE_API harpe_status harpe_frequency_controller_restart(harpe_frequency_controller *controller,
                                                          harpe_error *error);

typedef struct harpe_frequency_controller_counts {
    union {
        uint64_t clock_requests; /* calls of harpe_frequency_controller_set */
        uint64_t wishes HARPE_DEPRECATED("use clock_requests");
    };
    uint64_t written;    /* driver calls that set the graphics clock as requested */
    uint64_t skipped;    /* requests for the clock that was already set, or for 0 */
    uint64_t superseded; /* requests that a newer request replaced before the controller read
                          * them */
    uint64_t failed;     /* driver calls that failed */
    /* Real time from the call of _set to the driver call, over the last 4096 writes. */
    double latency_median_s, latency_p99_s, latency_maximum_s;
} harpe_frequency_controller_counts;
HARPE_API harpe_frequency_controller_counts
harpe_frequency_controller_count(const harpe_frequency_controller *controller);

/* What the GPU does with the clock that was set. */
typedef struct harpe_frequency_controller_obedience {
    uint64_t looks; /* how often the controller has compared the two clocks while the GPU worked,
                     * about ten times a second */
    uint64_t disobeyed;       /* how often the GPU had another clock, longer than a change takes */
    bool disobeys;            /* result of the last look */
    int wanted_mhz, held_mhz; /* clocks at the last look: set, and real; 0: there was no look yet */
    uint64_t reasons;         /* bit set at the last look, see harpe_gpu_throttle_reasons */
} harpe_frequency_controller_obedience;
/* Never blocks. Any thread may call it. */
HARPE_API harpe_frequency_controller_obedience
harpe_frequency_controller_obeys(const harpe_frequency_controller *controller);

/* How long a change of the GPU's clock takes, from the request to the new clock, in seconds of GPU
 * time. Learnt from the controller's own changes: the controller reads the clock after some of
 * them. */
typedef struct harpe_switch_latency {
    int frequency_mhz; /* the new clock */
    int samples;       /* changes that were measured; 255: so many or more */
    double latency_s;  /* median of the last 16 samples; 0: less than about 2 ms */
    double latency_p95_s;
} harpe_switch_latency;
/* Writes at most `capacity` latencies, in the order in which they were first learnt, and returns
 * the number of all of them. `latencies` may be NULL if `capacity` is 0. Never blocks. Any thread
 * may call it. */
HARPE_API size_t harpe_frequency_controller_switch_latencies(
    const harpe_frequency_controller *controller, harpe_switch_latency *latencies, size_t capacity);

/* What the controller does because clocks change late. */
typedef struct harpe_frequency_controller_anticipation {
    bool is_active; /* changes take longer than half a millisecond, and may_anticipate is true */
    uint64_t anticipated; /* driver calls before the instruction began; harpe_frequency_controller_
                           * count does not count them as written */
    uint64_t returned;    /* driver calls that took such a call back, because an instruction lasted
                           * much longer than in earlier steps */
} harpe_frequency_controller_anticipation;
/* Never blocks. Any thread may call it. */
HARPE_API harpe_frequency_controller_anticipation
harpe_frequency_controller_anticipates(const harpe_frequency_controller *controller);

HARPE_END_DECLS

#endif
