/* SPDX-License-Identifier: Apache-2.0 */
/* One controller per GPU: the next one waits until the last one has put back. Private to the
 * controller's process. */
#ifndef HARPE_CLIENT_CONTROLLER_CLAIM_H
#define HARPE_CLIENT_CONTROLLER_CLAIM_H

#include "client/controller_gpu.h"

/* The GPU is this process's until its end. Waits for another process that has it:
 * HARPE_ALREADY_EXISTS after 10 s, HARPE_INTERRUPTED when the trainer is gone. */
harpe_status harpe_controller_claim_gpu(const harpe_controller_gpu *gpu, harpe_error *error);

#endif
