/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's own process: takes the GPU to its highest clocks, has wishes obeyed by a thread,
 * waits for the trainer's end, and puts everything back. It runs as the program harpe, alone in its
 * process. */
#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/side_process.h"
#include "client/controller.h"
#include "client/controller_claim.h"
#include "client/controller_gpu.h"
#include "client/controller_obey.h"

/* How long a driver call of the obeying thread may go on after the trainer's end before this thread
 * resets the clocks on its own, and before the process gives up on it. */
#define PATIENCE_S 0.3
#define LONGEST_PATIENCE_S 60.0
#define LOOK_NS 2000000

typedef struct controller_process {
    harpe_controller_header header;
    harpe_controller_slot *slot;
    harpe_controller_gpu gpu; /* this thread's */
    harpe_found_claim *claim;
    harpe_obedience obedience;
    pthread_t thread;
} controller_process;

static void tell(harpe_controller_news news, harpe_status status, const harpe_error *error) {
    harpe_controller_message message = {.news = news, .process = (int32_t)getpid()};
    if (status != HARPE_OK) {
        message.error = *error;
        message.error.status = status;
    }
    /* A trainer that is gone is noticed elsewhere. */
    (void)harpe_side_process_send(HARPE_SIDE_SOCKET, &message, sizeof message);
}

/* ---- Start ---------------------------------------------------------------------------------- */

static harpe_status receive_header(harpe_controller_header *header, harpe_error *error) {
    if (!harpe_side_process_receive(HARPE_SIDE_SOCKET, header, sizeof *header, -1) ||
        header->magic != HARPE_CONTROLLER_MAGIC || header->version != HARPE_CONTROLLER_VERSION ||
        header->slot_size != sizeof(harpe_controller_slot)) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "the program harpe is of another version than the library");
    }
    header->uuid[sizeof header->uuid - 1] = '\0';
    header->library_path[sizeof header->library_path - 1] = '\0';
    header->zeusd_socket[sizeof header->zeusd_socket - 1] = '\0';
    return HARPE_OK;
}

static harpe_status map_slot(harpe_controller_slot **out, harpe_error *error) {
    void *memory = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                        HARPE_SIDE_MEMORY, 0);
    if (memory == MAP_FAILED) return harpe_fail_errno(error, errno, "memory shared with training");
    *out = memory;
    return HARPE_OK;
}

static harpe_status start_obeying(controller_process *controller, uint32_t highest_mhz,
                                  harpe_error *error) {
    harpe_obedience *obedience = &controller->obedience;
    obedience->header = &controller->header;
    obedience->slot = controller->slot;
    obedience->current_mhz = highest_mhz;
    harpe_status status = harpe_controller_gpu_open(&controller->header, &obedience->gpu, error);
    if (status != HARPE_OK) return status;
    int result = pthread_create(&controller->thread, NULL, harpe_controller_obey, obedience);
    if (result != 0) return harpe_fail_errno(error, result, "starting a thread");
    return HARPE_OK;
}

/* The record on disk is removed once the GPU is as it was found. A lost GPU comes back by a reset,
 * which forgets its settings. */
static void end_claim(controller_process *controller, harpe_status put_back) {
    harpe_found_release(controller->claim, put_back == HARPE_OK || put_back == HARPE_GPU_LOST);
    controller->claim = NULL;
}

/* On failure nothing of the GPU is changed any more, as far as the driver allows. */
static harpe_status start(controller_process *controller, harpe_error *error) {
    uint32_t highest_mhz = 0;
    harpe_error ignored;
    harpe_status status = receive_header(&controller->header, error);
    if (status == HARPE_OK) {
        status = map_slot(&controller->slot, error);
    }
    if (status == HARPE_OK) {
        status = harpe_controller_gpu_open(&controller->header, &controller->gpu, error);
    }
    if (status == HARPE_OK) {
        status = harpe_controller_claim_gpu(&controller->gpu, &controller->header, controller->slot,
                                            &controller->claim, error);
    }
    if (status != HARPE_OK) return status;
    harpe_controller_gpu_remember(&controller->gpu, controller->slot);
    status = harpe_controller_note_found(&controller->gpu, &controller->header, controller->slot,
                                         controller->claim, error);
    if (status == HARPE_OK) {
        status = harpe_controller_gpu_take(&controller->gpu, controller->slot, &highest_mhz, error);
    }
    if (status == HARPE_OK) {
        status = start_obeying(controller, highest_mhz, error);
    }
    if (status != HARPE_OK) {
        end_claim(controller,
                  harpe_controller_gpu_put_back(&controller->gpu, controller->slot, ~0U, &ignored));
    }
    return status;
}

/* ---- End ------------------------------------------------------------------------------------ */

static bool ends_within(const harpe_obedience *obedience, double patience_s) {
    double give_up_at = harpe_clock_s() + patience_s;
    while (!atomic_load(&obedience->has_ended)) {
        if (harpe_clock_s() > give_up_at) return false;
        struct timespec pause = {.tv_nsec = LOOK_NS};
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

/* The obeying thread resets the clocks after whatever driver call it is in; the rest is put back
 * here at the same time. */
static harpe_status put_back(controller_process *controller, harpe_error *error) {
    harpe_obedience *obedience = &controller->obedience;
    harpe_controller_obey_no_more(obedience);
    harpe_status status = harpe_controller_gpu_put_back(&controller->gpu, controller->slot,
                                                        HARPE_TOUCHED_POWER_LIMIT, error);
    if (!ends_within(obedience, PATIENCE_S)) {
        harpe_error ignored;
        (void)harpe_controller_gpu_put_back(
            &controller->gpu, controller->slot,
            HARPE_TOUCHED_GRAPHICS_CLOCKS | HARPE_TOUCHED_MEMORY_CLOCKS, &ignored);
        if (!ends_within(obedience, LONGEST_PATIENCE_S)) {
            return harpe_fail(error, HARPE_DRIVER_ERROR, "a driver call does not return");
        }
    }
    (void)pthread_join(controller->thread, NULL);
    if (obedience->status != HARPE_OK) {
        *error = obedience->error;
        status = obedience->status;
    }
    harpe_controller_gpu_close(&obedience->gpu);
    return status;
}

int harpe_controller_main(void) {
    static controller_process
        controller; /* a thread that hangs in the driver may outlive this function */
    harpe_error error = {.status = HARPE_OK};
    harpe_side_process_begin();
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    harpe_status status = start(&controller, &error);
    tell(HARPE_CONTROLLER_READY, status, &error);
    if (status == HARPE_OK) {
        int ignored = chdir("/"); /* so that no file system is held */
        (void)ignored;
        (void)harpe_side_process_wait(-1);
        status = put_back(&controller, &error);
        end_claim(&controller, status);
        if (status != HARPE_OK) {
            syslog(LOG_USER | LOG_ERR, "harpe: a GPU could not be put back: %s", error.message);
        }
        tell(HARPE_CONTROLLER_RESTORED, status, &error);
    }
    if (controller.obedience.gpu.gpus) _exit(EXIT_FAILURE); /* its thread is still in a call */
    harpe_controller_gpu_close(&controller.gpu);
    if (controller.slot) (void)munmap(controller.slot, sizeof *controller.slot);
    curl_global_cleanup();
    return status == HARPE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
