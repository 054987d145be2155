/* SPDX-License-Identifier: Apache-2.0 */
/* What the halves of `harpe profile` were asked: flags are profile_command.c's, the work is done in
 * profile_command_p2p.c, profile_command_torch.c and profile_command_convert.c. */
#ifndef HARPE_CLI_PROFILE_COMMAND_H
#define HARPE_CLI_PROFILE_COMMAND_H

#include <stdbool.h>

#include <harpe/status.h>

typedef struct harpe_p2p_request {
    int gpu;
    int peer; /* -1: the next GPU */
    double duration_s;
    bool with_torch;    /* also on emulated GPUs */
    const char *python; /* the interpreter that has PyTorch */
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

/* Two Python processes, of which the first waits on its GPU for the second. */
typedef struct harpe_torch_pair {
    int pids[2];   /* 0: none */
    int go;        /* closing it ends the wait; -1: closed */
    int lines;     /* what they say */
    char path[64]; /* where they meet */
    int janitor;   /* removes the directory of the path if this process is killed; -1: none */
} harpe_torch_pair;

/* Returns when the first one waits. Zero-initialise; stop also after a failure. */
harpe_status harpe_torch_pair_start(harpe_torch_pair *pair, const char *python, int gpu, int peer,
                                    harpe_error *error);
/* HARPE_OK while both live; interrupted by a signal. Sleeps for at most `milliseconds`. */
harpe_status harpe_torch_pair_check(harpe_torch_pair *pair, int milliseconds, harpe_error *error);
/* Lets them end; kills them when they do not. */
void harpe_torch_pair_stop(harpe_torch_pair *pair);

#endif
