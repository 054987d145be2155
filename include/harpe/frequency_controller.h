/* SPDX-License-Identifier: Apache-2.0 */
/* The frequency controller: a process of its own, one per GPU, that sets the GPU's graphics clock
 * to what the training process wants, so that a slow driver call or a crash cannot hurt the
 * training. The two share one slot of memory, in which the latest wish wins.
 *
 * On start the controller puts the power limit to its default, locks the memory clock to its
 * highest (where that is supported) and the graphics clock to its highest. However the training
 * process ends, the controller resets the clocks, puts back what it found, and exits. Only the
 * controller needs the privilege to set clocks; where ZEUSD_SOCK_PATH names the socket of a running
 * zeusd, it asks that instead of the driver. */
#ifndef HARPE_FREQUENCY_CONTROLLER_H
#define HARPE_FREQUENCY_CONTROLLER_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

typedef struct harpe_frequency_controller harpe_frequency_controller;

/* Zero-initialise, then set what matters. */
typedef struct harpe_frequency_controller_options {
    harpe_gpus *gpus;         /* where to find the GPU; nothing is set through it */
    int gpu;                  /* index in `gpus` */
    const char *zeusd_socket; /* NULL: $ZEUSD_SOCK_PATH; "" : the driver */
    /* Between two writes to the GPU at least; a wish that comes sooner waits, and is dropped when a
     * newer one replaces it. GPU time. 0: 0.01 s; negative: none. */
    double minimum_dwell_s;
    /* How often the controller looks at the slot while wishes come, in real time. 0: 20 us.
     * Negative: it sleeps until it is woken, which costs the training thread a system call per
     * change of frequency (for machines with fewer cores than GPUs). */
    double poll_interval_s;
    harpe_log log;
} harpe_frequency_controller_options;

/* Starts the process and returns once the GPU is at its highest clocks; where an earlier controller
 * is still putting back, once that is done. Fails as the driver does: HARPE_PERMISSION_DENIED,
 * HARPE_NOT_SUPPORTED (also before Linux 5.9), HARPE_GPU_LOST, HARPE_UNAVAILABLE (zeusd, or no
 * answer within 30 s); HARPE_ALREADY_EXISTS when another training's controller has the GPU for 10 s
 * more. */
HARPE_API harpe_status
harpe_frequency_controller_start(const harpe_frequency_controller_options *options,
                                 harpe_frequency_controller **out, harpe_error *error);
/* Has the GPU put back, waits for it (3 s at most: what is not done then goes on), frees. In a
 * process forked from the one that started it: frees, and touches nothing. */
HARPE_API void harpe_frequency_controller_stop(harpe_frequency_controller *controller);

/* The clock from now on, in MHz; 0: leave it alone. Training thread; never blocks; no system call
 * while the controller is awake. */
HARPE_API void harpe_frequency_controller_set(harpe_frequency_controller *controller,
                                              int frequency_mhz);

/* HARPE_OK, or the one line that says what is wrong: the process has died (HARPE_UNAVAILABLE, which
 * is also a zeusd that does not answer: only a death can be restarted), or the driver has refused a
 * set, which is told once, until sets go well again or fail in another way. Later wishes try again,
 * with a back-off of 0.1 to 5 s. Any thread; never blocks. */
HARPE_API harpe_status harpe_frequency_controller_check(harpe_frequency_controller *controller,
                                                        harpe_error *error);
/* After its process has died: another one, that knows what the first one had found, and obeys the
 * wish that waits. HARPE_ALREADY_EXISTS while the process lives. Not at the same time as
 * harpe_frequency_controller_stop; the training thread may call set meanwhile. */
HARPE_API harpe_status harpe_frequency_controller_restart(harpe_frequency_controller *controller,
                                                          harpe_error *error);

typedef struct harpe_frequency_controller_counts {
    uint64_t wishes;     /* calls of set */
    uint64_t written;    /* driver calls that changed the graphics clock to a wish */
    uint64_t skipped;    /* wishes for the clock that was set already, or for 0 */
    uint64_t superseded; /* wishes replaced by a newer one before the controller came to them */
    uint64_t failed;     /* driver calls that were refused */
    /* From the call of set to the driver call, of the last 4096 writes, in real time. */
    double latency_median_s, latency_p99_s, latency_maximum_s;
} harpe_frequency_controller_counts;
HARPE_API harpe_frequency_controller_counts
harpe_frequency_controller_count(const harpe_frequency_controller *controller);

HARPE_END_DECLS

#endif
