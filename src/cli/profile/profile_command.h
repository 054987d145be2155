/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of `harpe profile`. profile_command.c reads the flags; profile_command_p2p.c,
 * profile_command_torch.c and profile_command_convert.c do the work. */
#ifndef HARPE_CLI_PROFILE_PROFILE_COMMAND_H
#define HARPE_CLI_PROFILE_PROFILE_COMMAND_H

#include <stdbool.h>

#include <harpe/status.h>

typedef struct harpe_p2p_request {
    int gpu;
    int peer; /* -1: the next GPU */
    double duration_s;
    bool with_torch;    /* use PyTorch on emulated GPUs too */
    const char *python; /* a Python interpreter with PyTorch */
    bool json;
} harpe_p2p_request;

typedef struct harpe_convert_request {
    const char *directory;
    const char *output_path; /* NULL: stdout */
    bool force;
    bool json;
} harpe_convert_request;

harpe_status harpe_profile_p2p(const harpe_p2p_request *request, harpe_error *error);
harpe_status harpe_profile_convert(const harpe_convert_request *request, harpe_error *error);

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
