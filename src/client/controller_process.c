/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's process. It sets the GPU's highest clocks and starts a thread that carries out
 * clock requests. Then it waits for the end of the trainer and restores the GPU. The process runs
 * the program harpe, or the node agent's program, and does no other work. */
#include "client/controller_process.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <syslog.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/process.h"
#include "base/wait.h"
#include "client/controller.h"
#include "client/controller_apply_clock.h"
#include "client/controller_claim.h"
#include "client/controller_gpu.h"

/* When the trainer ends, the request thread may still be in a driver call. After TIMEOUT_S, this
 * thread resets the clocks itself. After another LONGEST_TIMEOUT_S, the process no longer waits for
 * the call. */
#define TIMEOUT_S 0.3
#define LONGEST_TIMEOUT_S 60.0
#define LOOK_NS 2000000

typedef struct controller_process {
    harpe_controller_header header;
    harpe_controller_slot *slot;
    harpe_controller_changes *changes; /* in the slot, or `own_changes` */
    harpe_controller_changes own_changes;
    harpe_controller_gpu gpu; /* the handle of this thread */
    harpe_gpu_claim *claim;
    harpe_obedience obedience;
    harpe_clock_thread clock_thread;
    pthread_t thread;
} controller_process;

static void tell(harpe_controller_news news, harpe_status status, const harpe_error *error) {
    harpe_controller_message message = {.news = news, .process = (int32_t)harpe_process_self()};
    if (status != HARPE_OK) {
        message.error = *error;
        message.error.status = status;
    }
    /* The main loop notices a trainer that is gone. */
    (void)harpe_helper_process_send(harpe_helper_socket(), &message, sizeof message);
}

/* Reports the end. Does not wait for the holder of a lease, because the holder may never read. */
static void tell_end(const controller_process *controller, harpe_status status,
                     const harpe_error *error) {
    harpe_controller_message message = {.news = HARPE_CONTROLLER_RESTORED,
                                        .process = (int32_t)harpe_process_self()};
    if (!controller->header.terms.is_lease) {
        tell(HARPE_CONTROLLER_RESTORED, status, error);
        return;
    }
    if (status != HARPE_OK) message.error = *error;
    message.error.status = status;
    (void)harpe_helper_process_send_now(harpe_helper_socket(), &message, sizeof message);
}

/* ---- Start ----------------------------------------------------------------------------------- */

static harpe_status receive_header(harpe_controller_header *header, harpe_error *error) {
    if (!harpe_helper_process_receive(harpe_helper_socket(), header, sizeof *header, -1) ||
        header->magic != HARPE_CONTROLLER_MAGIC || header->version != HARPE_CONTROLLER_VERSION ||
        header->slot_size != sizeof(harpe_controller_slot)) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "the program harpe is of another version than the library");
    }
    header->uuid[sizeof header->uuid - 1] = '\0';
    header->library_path[sizeof header->library_path - 1] = '\0';
    harpe_zeusd_place *place = &header->zeusd.place;
    place->socket[sizeof place->socket - 1] = '\0';
    place->host_port[sizeof place->host_port - 1] = '\0';
    header->zeusd.token[sizeof header->zeusd.token - 1] = '\0';
    return HARPE_OK;
}

static harpe_status map_slot(harpe_controller_slot **out, harpe_error *error) {
    void *memory = harpe_process_map(harpe_helper_memory(), sizeof **out);
    if (!memory) return harpe_fail_errno(error, errno, "memory shared with training");
    *out = memory;
    return HARPE_OK;
}

static harpe_status start_clock_thread(controller_process *controller, uint32_t highest_mhz,
                                       harpe_error *error) {
    harpe_clock_thread *clock_thread = &controller->clock_thread;
    clock_thread->header = &controller->header;
    clock_thread->slot = controller->slot;
    clock_thread->changes = controller->changes;
    clock_thread->obedience = &controller->obedience;
    clock_thread->current_mhz = highest_mhz;
    harpe_status status = harpe_controller_gpu_open(&controller->header, &clock_thread->gpu, error);
    if (status != HARPE_OK) return status;
    int result = harpe_thread_start(&controller->thread, "harpe-clocks",
                                    harpe_controller_apply_clocks, clock_thread);
    if (result != 0) return harpe_fail_errno(error, result, "starting a thread");
    return HARPE_OK;
}

/* Removes the record on disk if the GPU is restored. A lost GPU returns after a reset with its
 * default settings, so its record stays. */
static void end_claim(controller_process *controller, harpe_status restored) {
    harpe_gpu_claim_release(controller->claim, restored == HARPE_OK);
    controller->claim = NULL;
}

/* Starts the controller. After a failure, undoes all changes to the GPU as far as the driver
 * allows. */
static harpe_status start(controller_process *controller, harpe_error *error) {
    uint32_t highest_mhz = 0;
    harpe_error ignored;
    harpe_status status = receive_header(&controller->header, error);
    if (status == HARPE_OK && controller->header.terms.is_lease)
        status = harpe_helper_process_end_on_signal(error);
    if (status == HARPE_OK) status = map_slot(&controller->slot, error);
    if (status == HARPE_OK) {
        controller->changes = controller->header.terms.is_lease ? &controller->own_changes
                                                                : &controller->slot->changes;
    }
    if (status == HARPE_OK)
        status = harpe_controller_gpu_open(&controller->header, &controller->gpu, error);
    if (status == HARPE_OK) {
        status = harpe_controller_claim_gpu(&controller->gpu, &controller->header,
                                            controller->changes, &controller->claim, error);
    }
    if (status != HARPE_OK) return status;
    harpe_controller_gpu_remember(&controller->gpu, controller->changes);
    status = harpe_controller_save_settings(&controller->gpu, &controller->header,
                                            controller->changes, controller->claim, error);
    if (status == HARPE_OK)
        status =
            harpe_controller_gpu_take(&controller->gpu, controller->changes, &highest_mhz, error);
    if (status == HARPE_OK) /* again, with the clocks that the driver has locked */
        status = harpe_controller_save_settings(&controller->gpu, &controller->header,
                                                controller->changes, controller->claim, error);
    if (status == HARPE_OK) {
        harpe_obedience_start(&controller->obedience, controller->slot, &controller->gpu);
        harpe_obedience_begin(&controller->obedience, highest_mhz);
        status = start_clock_thread(controller, highest_mhz, error);
    }
    if (status != HARPE_OK) {
        end_claim(controller, harpe_controller_gpu_restore(&controller->gpu, controller->changes,
                                                           ~0U, &ignored));
    }
    return status;
}

/* ---- End ------------------------------------------------------------------------------------- */

static bool ends_within(harpe_clock_thread *clock_thread, double timeout_s) {
    double give_up_at = harpe_clock_s() + timeout_s;
    while (!atomic_load(&clock_thread->has_ended)) {
        if (harpe_clock_s() > give_up_at) return false;
        /* Again, because a hostile trainer can write to the futex on which the thread waits. */
        harpe_controller_stop_clock_thread(clock_thread);
        harpe_sleep_ns(LOOK_NS);
    }
    return true;
}

/* Restores the GPU. The request thread resets the clocks after its present driver call. Meanwhile
 * this thread restores the power limit. */
static harpe_status restore(controller_process *controller, harpe_error *error) {
    harpe_clock_thread *clock_thread = &controller->clock_thread;
    harpe_controller_stop_clock_thread(clock_thread);
    harpe_status status = harpe_controller_gpu_restore(&controller->gpu, controller->changes,
                                                       HARPE_TOUCHED_POWER_LIMIT, error);
    if (!ends_within(clock_thread, TIMEOUT_S)) {
        harpe_error ignored;
        (void)harpe_controller_gpu_restore(
            &controller->gpu, controller->changes,
            HARPE_TOUCHED_GRAPHICS_CLOCKS | HARPE_TOUCHED_MEMORY_CLOCKS, &ignored);
        if (!ends_within(clock_thread, LONGEST_TIMEOUT_S))
            return harpe_fail(error, HARPE_DRIVER_ERROR, "a driver call does not return");
    }
    harpe_thread_join(controller->thread);
    if (clock_thread->status != HARPE_OK) {
        *error = clock_thread->error;
        status = clock_thread->status;
    }
    harpe_controller_gpu_close(&clock_thread->gpu);
    return status;
}

int harpe_controller_main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    /* Not freed if a thread hangs in the driver, which may outlive this function. */
    controller_process *controller = harpe_calloc(1, sizeof *controller);
    harpe_error error = {.status = HARPE_OK};
    harpe_helper_process_begin();
    harpe_status status = controller ? start(controller, &error) : harpe_fail_memory(&error);
    tell(HARPE_CONTROLLER_READY, status, &error);
    if (status == HARPE_OK) {
        harpe_helper_process_leave_directory();
        (void)harpe_helper_process_wait(-1);
        status = restore(controller, &error);
        end_claim(controller, status);
        if (status != HARPE_OK)
            syslog(LOG_USER | LOG_ERR, "harpe: a GPU could not be restored: %s", error.message);
        tell_end(controller, status, &error);
    }
    if (!controller) return EXIT_FAILURE;
    /* A thread is still in a call. */
    if (!harpe_obedience_stop(&controller->obedience))
        harpe_process_exit(status == HARPE_OK ? EXIT_SUCCESS : EXIT_FAILURE);
    if (controller->clock_thread.gpu.gpus) harpe_process_exit(EXIT_FAILURE);
    harpe_controller_gpu_close(&controller->gpu);
    harpe_process_unmap(controller->slot, sizeof *controller->slot);
    free(controller);
    return status == HARPE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
