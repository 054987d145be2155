/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline frequency optimizer, in every training process: it runs each forward and backward at
 * the frequency that the server's schedule says, measures what they take, and tells the server, in
 * the background, for as long as the training runs.
 *
 *     harpe_pipeline_frequency_new(&options, &optimizer, &error);
 *     for each step:
 *         harpe_pipeline_frequency_on_step_begin(optimizer);
 *         for each instruction:
 *             harpe_pipeline_frequency_on_instruction_begin(optimizer, "forward");
 *             ... forward ...
 *             harpe_pipeline_frequency_on_instruction_end(optimizer, "forward");
 *         harpe_pipeline_frequency_on_step_end(optimizer);
 *     harpe_pipeline_frequency_free(optimizer);
 *
 * It never stops, slows or changes a training run: what goes wrong after construction is logged
 * once per cause, training goes on at the highest clocks or with the last schedule (not for long
 * with one that the server only tries), and goes back to the server's when the cause is gone. Only
 * strict mode reports errors to the caller. The four on_ functions belong to the training thread;
 * they never block. With a NULL optimizer, and in a child of fork, calls do nothing. */
#ifndef HARPE_PIPELINE_FREQUENCY_H
#define HARPE_PIPELINE_FREQUENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/frequency_controller.h>
#include <harpe/gpu.h>
#include <harpe/status.h>
#include <harpe/training.h>

HARPE_BEGIN_DECLS

/* What an instruction's begin and end stand for. */
typedef enum harpe_mark {
    HARPE_MARK_HOST = 0, /* the moment of the call */
    /* The moment when the caller's CUDA stream comes there: a host function enqueued with
     * cuLaunchHostFunc, looked up at run time. HARPE_MARK_HOST where there is no CUDA. */
    HARPE_MARK_STREAM = 1,
    /* The moment of the call after `synchronize` has returned: as the published client does, and
     * as slow. */
    HARPE_MARK_SYNCHRONIZED = 2,
} harpe_mark;

/* Zero-initialise, then set what matters. Texts are copied. */
typedef struct harpe_pipeline_frequency_options {
    int rank, dp_rank, pp_rank, tp_rank;
    int dp_degree, pp_degree, tp_degree, world_size;
    int device_id;            /* index of this rank's GPU in `gpus` */
    const char *server_url;   /* "http://127.0.0.1:7787" */
    const char *job_metadata; /* NULL: none */

    /* Which job: ranks that name the same key are in the same job (a Slurm job id, a torchrun run
     * id). The published server does not know keys: with it the ranks need a broadcast. NULL: rank
     * 0 registers the job and waits at most 3 s for the server; `broadcast` sends the job's id to
     * all ranks. If the server does not answer, rank 0 makes a key and `broadcast` sends that.
     * Without a key and a broadcast: a job of one rank, or HARPE_INVALID_ARGUMENT. */
    const char *job_key;
    /* Collective: sends `data` of rank 0 to every rank. Called once in _new, even if _new fails on
     * this rank because of its options. See <harpe/mpi.h>. */
    harpe_status (*broadcast)(void *user, void *data, size_t size, harpe_error *error);
    void *broadcast_user;

    /* The token of a server that wants one. NULL: the token in $HARPE_TOKEN, or else that in
     * /etc/harpe/token, if this process may read the file and a service of this machine is at
     * server_url. */
    const char *token;
    const char *ca_file; /* of a server with TLS; NULL: the system's */

    harpe_gpus *gpus; /* must outlive the optimizer; NULL: opened by the optimizer */
    harpe_frequency_controller_options controller; /* gpus, gpu and log are filled in */
    bool leave_clocks_alone;                       /* measure only, no controller */

    int iterations;        /* measured and reported per round; 0: 5 */
    int warmup_iterations; /* after a new schedule, not measured; negative: 0; 0: 1 */
    harpe_mark mark;
    void *cuda_stream; /* CUstream of HARPE_MARK_STREAM */
    void (*synchronize)(void *user);
    void *synchronize_user;

    /* The schedule must fit every step exactly; see harpe_pipeline_frequency_check. Otherwise a
     * step that does not fit is run at the highest clock from there on, and logged once; where
     * three in a row do not and none ever did, the server is told what runs. */
    bool is_strict;
    harpe_log log; /* called in _new and from a thread of the optimizer's own, not in on_ calls */
} harpe_pipeline_frequency_options;

typedef struct harpe_pipeline_frequency_optimizer harpe_pipeline_frequency_optimizer;

/* Checks the options, broadcasts, starts the controller and the background thread. Does not wait
 * for the server, except as described at `job_key`. A GPU that cannot be found or controlled is
 * logged; it is an error only in strict mode. */
HARPE_API harpe_status harpe_pipeline_frequency_new(const harpe_pipeline_frequency_options *options,
                                                    harpe_pipeline_frequency_optimizer **out,
                                                    harpe_error *error);
/* Ends everything within a few seconds and puts the GPU back. If the server can be reached, tells
 * it that the training of this rank has ended, and waits at most a second for the answer. */
HARPE_API void harpe_pipeline_frequency_free(harpe_pipeline_frequency_optimizer *optimizer);

/* ---- Training thread --------------------------------------------------------------------------
 */

HARPE_API void
harpe_pipeline_frequency_on_step_begin(harpe_pipeline_frequency_optimizer *optimizer);
HARPE_API void harpe_pipeline_frequency_on_step_end(harpe_pipeline_frequency_optimizer *optimizer);
HARPE_API void
harpe_pipeline_frequency_on_instruction_begin(harpe_pipeline_frequency_optimizer *optimizer,
                                              const char *instruction);
HARPE_API void
harpe_pipeline_frequency_on_instruction_end(harpe_pipeline_frequency_optimizer *optimizer,
                                            const char *instruction);
/* Strict mode: the first thing that did not fit (HARPE_INVALID_INPUT: wrong name or NULL, step
 * longer or shorter than the schedule), and clears it. HARPE_OK otherwise. */
HARPE_API harpe_status harpe_pipeline_frequency_check(harpe_pipeline_frequency_optimizer *optimizer,
                                                      harpe_error *error);

/* The four on_ functions as a table for a callback set. */
HARPE_API harpe_training_callback
harpe_pipeline_frequency_callback(harpe_pipeline_frequency_optimizer *optimizer);

/* ---- Any thread -------------------------------------------------------------------------------
 */

typedef enum harpe_pipeline_frequency_state {
    HARPE_PFO_REGISTERING, /* the server is not reached yet */
    HARPE_PFO_WAITING,     /* for a schedule: until every rank has asked */
    HARPE_PFO_MEASURING,   /* a schedule is run and measured */
    HARPE_PFO_REPORTING,
    HARPE_PFO_OFF, /* given up: the log has it; highest clocks, or the last schedule */
} harpe_pipeline_frequency_state;

typedef struct harpe_pipeline_frequency_status {
    harpe_pipeline_frequency_state state;
    char job_id[256];    /* "" until registered */
    int64_t round;       /* of this job's schedule, which is run from the next step on; -1: none */
    uint64_t steps;      /* begun */
    uint64_t misfits;    /* steps that did not fit their schedule */
    uint64_t reconnects; /* times that the server was away and came back */
    harpe_frequency_controller_counts controller;
} harpe_pipeline_frequency_status;
HARPE_API harpe_pipeline_frequency_status
harpe_pipeline_frequency_look(harpe_pipeline_frequency_optimizer *optimizer);
/* Blocks until there is a schedule of round `round` or later, for the next step to run (tests and
 * simulations: a real training loop never waits). HARPE_UNAVAILABLE when the time is over, or the
 * optimizer is off. */
HARPE_API harpe_status
harpe_pipeline_frequency_wait_for_round(harpe_pipeline_frequency_optimizer *optimizer,
                                        int64_t round, double at_most_s, harpe_error *error);

HARPE_END_DECLS

#endif
