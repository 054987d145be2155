/* SPDX-License-Identifier: Apache-2.0 */
/* Claims a GPU by the name of an abstract Unix socket, which one process can have at a time and
 * which the kernel takes away with the process. A trainer that is killed and started again would
 * otherwise find the power limit that its last controller has yet to put back, and have that reset
 * its new clocks. Nothing is ever sent there. */
#include "client/controller_claim.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/side_process.h"

#define PATIENCE_S 10.0

enum { LOOK_MS = 10 };

/* Emulated GPUs are their user's own: those of two users may have the same UUID. */
static socklen_t name_claim(const harpe_controller_gpu *gpu, struct sockaddr_un *address) {
    const char *uuid = harpe_gpu_info_at(gpu->gpus, gpu->index)->uuid;
    char user[16] = "";
    if (harpe_gpus_are_emulated(gpu->gpus)) {
        (void)snprintf(user, sizeof user, "%u-", (unsigned)getuid());
    }
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *name = address->sun_path + 1; /* a NUL before it makes it abstract */
    size_t room = sizeof address->sun_path - 1;
    int length = snprintf(name, room, "harpe-gpu-%s%s", user, uuid);
    size_t used = (size_t)length < room ? (size_t)length : room - 1;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + used);
}

static harpe_status wait_for_name(int claim, const struct sockaddr_un *address, socklen_t size,
                                  const harpe_gpu_info *info, harpe_error *error) {
    double give_up_at = harpe_clock_s() + PATIENCE_S;
    while (bind(claim, (const struct sockaddr *)address, size) != 0) {
        if (errno != EADDRINUSE) {
            return harpe_fail_errno(error, errno, "claiming GPU %d", info->driver_index);
        }
        if (harpe_clock_s() > give_up_at) {
            return harpe_fail(error, HARPE_ALREADY_EXISTS,
                              "GPU %d has another frequency controller: end the training that it "
                              "belongs to, or give this one another GPU",
                              info->driver_index);
        }
        if (harpe_side_process_wait(LOOK_MS)) {
            return harpe_fail(error, HARPE_INTERRUPTED, "the training process has ended");
        }
    }
    return HARPE_OK;
}

harpe_status harpe_controller_claim_gpu(const harpe_controller_gpu *gpu, harpe_error *error) {
    const harpe_gpu_info *info = harpe_gpu_info_at(gpu->gpus, gpu->index);
    struct sockaddr_un address;
    socklen_t size = name_claim(gpu, &address);
    int claim = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (claim < 0) {
        return harpe_fail_errno(error, errno, "claiming GPU %d", info->driver_index);
    }
    harpe_status status = wait_for_name(claim, &address, size, info, error);
    if (status != HARPE_OK) close(claim);
    return status; /* the claim stays open: that is what it is */
}
