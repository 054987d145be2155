/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of the guard: starts it, tells it what was found, and dismisses it. It
 * restores nothing itself. */
#include "powerlimit/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/side_process.h"

struct harpe_guard {
    int socket;
};

harpe_status harpe_guard_start(const char *library_path, const harpe_guarded_gpu *gpus,
                               size_t count, harpe_guard **out, harpe_error *error) {
    harpe_guard *guard = harpe_calloc(1, sizeof *guard);
    if (!guard) return harpe_fail_memory(error);
    harpe_guard_header header = {.magic = HARPE_GUARD_MAGIC,
                                 .version = HARPE_GUARD_VERSION,
                                 .gpu_size = sizeof *gpus,
                                 .gpu_count = (uint32_t)count};
    snprintf(header.library_path, sizeof header.library_path, "%s", library_path);
    struct iovec greeting[] = {{&header, sizeof header}, {(void *)gpus, count * sizeof *gpus}};
    harpe_error answer;
    harpe_side_process process = {.name = "the power limit guard",
                                  .arguments = {"power-limit", HARPE_GUARD_ARGUMENT},
                                  .memory = -1,
                                  .greeting = greeting,
                                  .greeting_count = 2,
                                  .answer = &answer,
                                  .answer_size = sizeof answer};
    harpe_status status = harpe_side_process_start(&process, &guard->socket, error);
    if (status != HARPE_OK) {
        free(guard);
        return status;
    }
    if (answer.status != HARPE_OK) {
        answer.message[sizeof answer.message - 1] = '\0';
        harpe_guard_stop(guard, true);
        return harpe_fail(error, answer.status, "power limit guard: %s", answer.message);
    }
    *out = guard;
    return HARPE_OK;
}

void harpe_guard_stop(harpe_guard *guard, bool restored) {
    if (!guard) return;
    if (restored) {
        char byte = HARPE_GUARD_RESTORED;
        (void)harpe_side_process_send(guard->socket, &byte, 1);
    }
    close(guard->socket);
    free(guard);
}
