/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline frequency optimizer runs in every training process. It runs each forward and
 * backward at the frequency of the server's schedule, measures the instructions, and reports to
 * the server in the background for as long as the training runs.
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
 * The optimizer never stops, slows or changes a training run. Each cause of failure after
 * construction is logged once. Training then continues at the highest clocks or with the last
 * schedule (with a trial schedule only for a short time), and returns to the server's schedules
 * when the cause is gone. A schedule with a clock that the GPU does not offer, or that is below
 * `lowest_clock_mhz`, is refused: the log says so, and training runs at the highest clock until a
 * schedule without such a clock arrives. Only strict mode reports errors to the caller. Call the
 * four on_ functions from the training thread; they never block. Calls with a NULL optimizer, and
 * calls in a child of fork, do nothing. */
#ifndef HARPE_PIPELINE_FREQUENCY_H
#define HARPE_PIPELINE_FREQUENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/frequency_controller.h>
#include <harpe/gpu.h>
#include <harpe/pfo.h>
#include <harpe/status.h>
#include <harpe/training.h>

HARPE_BEGIN_DECLS

/* The moments that mark the beginning and end of an instruction. */
typedef enum harpe_mark {
    HARPE_MARK_HOST = 0, /* the moment of the call */
    /* The moment at which the caller's CUDA stream reaches the mark. To find this moment, the
     * optimizer enqueues a write to memory (cuStreamWriteValue32), or a host function if the stream
     * has no such writes. CUDA is looked up at run time; without CUDA this value works like
     * HARPE_MARK_HOST. */
    HARPE_MARK_STREAM = 1,
    /* The moment of the call, after `synchronize` has returned. The published client uses this
     * method, which is slow. */
    HARPE_MARK_SYNCHRONIZED = 2,
} harpe_mark;

/* Initialise with zeros, then set the members that you need. Texts are copied. */
typedef struct harpe_pipeline_frequency_options {
    int rank, dp_rank, pp_rank, tp_rank;
    int dp_degree, pp_degree, tp_degree, world_size;
    int device_id;            /* index of this rank's GPU in `gpus` */
    const char *server_url;   /* "http://127.0.0.1:7787" */
    const char *job_metadata; /* NULL: none */

    /* The key of the job; ranks with the same key are in the same job. Use a Slurm job id or a
     * torchrun run id, for example. The published server does not know keys, so with it the ranks
     * need `broadcast`. NULL: rank 0 registers the job, waits at most 3 s for the server, and sends
     * the job's id to all ranks with `broadcast`. If the server does not answer, rank 0 makes a key
     * and sends the key instead. Without key and broadcast, a job can have only one rank; a larger
     * job fails with HARPE_INVALID_ARGUMENT. */
    const char *job_key;
    /* A collective operation that sends rank 0's `data` to every rank. _new calls it once, even if
     * this rank's options are wrong and _new fails. See <harpe/mpi.h>. */
    harpe_status (*broadcast)(void *user, void *data, size_t size, harpe_error *error);
    void *broadcast_user;

    /* The token for a server that requires one. NULL: the token in $HARPE_TOKEN; without that,
     * the token in /etc/harpe/token if this process may read the file and a service of this
     * machine listens at server_url. */
    const char *token;
    /* CA certificates (PEM) for a server with TLS. NULL: those in $HARPE_CA_FILE or
     * $SSL_CERT_FILE, or the system's. */
    const char *ca_file;

    harpe_gpus *gpus; /* must outlive the optimizer; NULL: opened by the optimizer */
    harpe_frequency_controller_options controller; /* the optimizer sets gpus, gpu and log */
    bool leave_clocks_alone;                       /* only measure; start no controller */

    int iterations;        /* iterations measured and reported in each round; 0: 5 */
    int warmup_iterations; /* iterations not measured after a new schedule; negative: none; 0: 1 */
    harpe_mark mark;
    void *cuda_stream; /* the CUstream for HARPE_MARK_STREAM */
    void (*synchronize)(void *user);
    void *synchronize_user;

    /* True: every step must fit the schedule exactly; see harpe_pipeline_frequency_check. False: a
     * step that does not fit runs at the highest clock from the first difference on, and is logged
     * once. If no step has ever fitted and three steps in a row do not fit, or if 1000 steps in a
     * row do not fit, the optimizer sends the server the instructions that really run. */
    bool is_strict;
    harpe_log log; /* called in _new and from a thread of the optimizer, never from an on_
                    * function */

    /* on_step_begin calls this function with each new schedule of the server. The function may
     * change the clocks, in MHz. It must not free the optimizer. NULL: none. */
    void (*take_schedule)(void *user, harpe_scheduled_instruction *instructions, size_t count);
    void *take_schedule_user;

    /* The lowest clock of this job, in MHz, 1 to 10000. 0: $HARPE_LOWEST_CLOCK_MHZ; without that,
     * the lowest clock of the GPU. The rank registers no lower clock, and refuses a schedule that
     * has one. */
    int lowest_clock_mhz;
} harpe_pipeline_frequency_options;

typedef struct harpe_pipeline_frequency_optimizer harpe_pipeline_frequency_optimizer;

/* Checks the options, broadcasts, and starts the controller and the background thread. Does not
 * wait for the server, except as described at `job_key`. A GPU that cannot be found or controlled
 * is logged; in strict mode it is an error. */
HARPE_API harpe_status harpe_pipeline_frequency_new(const harpe_pipeline_frequency_options *options,
                                                    harpe_pipeline_frequency_optimizer **out,
                                                    harpe_error *error);
/* Stops the optimizer within a few seconds and restores the GPU. If the server can be reached,
 * tells it that the training of this rank has ended, and waits at most one second for the
 * answer. */
HARPE_API void harpe_pipeline_frequency_free(harpe_pipeline_frequency_optimizer *optimizer);

/* ---- Training thread ------------------------------------------------------------------------- */

HARPE_API void
harpe_pipeline_frequency_on_step_begin(harpe_pipeline_frequency_optimizer *optimizer);
HARPE_API void harpe_pipeline_frequency_on_step_end(harpe_pipeline_frequency_optimizer *optimizer);
HARPE_API void
harpe_pipeline_frequency_on_instruction_begin(harpe_pipeline_frequency_optimizer *optimizer,
                                              const char *instruction);
HARPE_API void
harpe_pipeline_frequency_on_instruction_end(harpe_pipeline_frequency_optimizer *optimizer,
                                            const char *instruction);
/* In strict mode, returns the first difference from the schedule as HARPE_INVALID_INPUT (a wrong
 * name or NULL, or a step that is longer or shorter than the schedule), and clears it. Otherwise
 * returns HARPE_OK. */
HARPE_API harpe_status harpe_pipeline_frequency_check(harpe_pipeline_frequency_optimizer *optimizer,
                                                      harpe_error *error);

/* Returns the four on_ functions as a table for a callback set. */
HARPE_API harpe_training_callback
harpe_pipeline_frequency_callback(harpe_pipeline_frequency_optimizer *optimizer);

/* ---- Any thread ------------------------------------------------------------------------------ */

typedef enum harpe_pipeline_frequency_state {
    HARPE_PFO_REGISTERING, /* the server has not been reached yet */
    HARPE_PFO_WAITING,     /* waits for a schedule, until every rank has asked for it */
    HARPE_PFO_MEASURING,   /* runs and measures a schedule */
    HARPE_PFO_REPORTING,
    HARPE_PFO_OFF, /* given up, see the log; the highest clocks or the last schedule remain */
} harpe_pipeline_frequency_state;

typedef struct harpe_pipeline_frequency_status {
    harpe_pipeline_frequency_state state;
    char job_id[256];    /* "" until registered */
    int64_t round;       /* round of the schedule that runs from the next step on; -1: none */
    uint64_t steps;      /* steps begun */
    uint64_t misfits;    /* steps that did not fit their schedule */
    uint64_t reconnects; /* times that the server could be reached again after a loss */
    harpe_frequency_controller_counts controller;
} harpe_pipeline_frequency_status;
HARPE_API harpe_pipeline_frequency_status
harpe_pipeline_frequency_get_status(harpe_pipeline_frequency_optimizer *optimizer);
/* Returns the number of steps that were not measured because the GPU had another clock than it was
 * asked for (harpe_frequency_controller_obeys). At most ten in each round are left out, so a GPU
 * that never obeys is measured as it is. */
HARPE_API uint64_t
harpe_pipeline_frequency_spoiled_steps(const harpe_pipeline_frequency_optimizer *optimizer);
/* Tells the server how many tokens one step of the whole job trains, over all ranks, so that its
 * reports have the energy per token. The next results contain the number; one rank suffices. 0: not
 * known; at most 1000000000. Another way is the word "tokens_per_step=N" in `job_metadata`. Does
 * nothing in a forked child. Fails with HARPE_INVALID_ARGUMENT for another number. */
HARPE_API harpe_status harpe_pipeline_frequency_set_tokens_per_step(
    harpe_pipeline_frequency_optimizer *optimizer, int64_t tokens, harpe_error *error);
/* The old name of harpe_pipeline_frequency_get_status. */
HARPE_API harpe_pipeline_frequency_status
harpe_pipeline_frequency_look(harpe_pipeline_frequency_optimizer *optimizer)
    HARPE_DEPRECATED("use harpe_pipeline_frequency_get_status");
/* Blocks until the next step will run a schedule of round `round` or later. For tests and
 * simulations; a real training loop never waits. Fails with HARPE_UNAVAILABLE after the time limit,
 * or if the optimizer is off. */
HARPE_API harpe_status
harpe_pipeline_frequency_wait_for_round(harpe_pipeline_frequency_optimizer *optimizer,
                                        int64_t round, double at_most_s, harpe_error *error);

HARPE_END_DECLS

#endif
