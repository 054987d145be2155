/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a GPU wait for another GPU as a training job does, with two PyTorch processes. */
#ifndef HARPE_CLI_PROFILE_PROFILE_COMMAND_TORCH_H
#define HARPE_CLI_PROFILE_PROFILE_COMMAND_TORCH_H

#include <harpe/status.h>

/* Two Python processes. The first process waits on its GPU for the second. */
typedef struct harpe_torch_pair {
    int pids[2];      /* 0: none */
    int go;           /* pipe; closing it ends the wait; -1: closed */
    int lines;        /* pipe with the output of both processes */
    char path[64];    /* file of the rendezvous */
    int cleanup_pipe; /* pipe to the cleanup process of the path's directory; -1: none */
} harpe_torch_pair;

/* Starts the pair, and returns when the first process waits. `pair` must be initialised with zeros.
 * Call _stop also after a failure. */
harpe_status harpe_torch_pair_start(harpe_torch_pair *pair, const char *python, int gpu, int peer,
                                    harpe_error *error);
/* Sleeps for at most `milliseconds`, or until a signal arrives. Returns HARPE_OK if both processes
 * still run. */
harpe_status harpe_torch_pair_check(harpe_torch_pair *pair, int milliseconds, harpe_error *error);
/* Tells the processes to end, and kills them if they do not end. */
void harpe_torch_pair_stop(harpe_torch_pair *pair);

#endif
