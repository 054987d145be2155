/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe profile p2p` measures the power of a GPU that waits for another GPU. */
#ifndef HARPE_CLI_PROFILE_PROFILE_COMMAND_P2P_H
#define HARPE_CLI_PROFILE_PROFILE_COMMAND_P2P_H

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

harpe_status harpe_profile_p2p(const harpe_p2p_request *request, harpe_error *error);

#endif
