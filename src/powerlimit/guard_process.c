/* SPDX-License-Identifier: Apache-2.0 */
/* The guard's own side: claims the GPUs, notes what is found on them, waits for the trainer's end,
 * and puts them back if the trainer did not. It runs as the program harpe, alone in its process. It
 * changes nothing while the trainer lives, except what a dead job has left. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include <harpe/gpu.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/side_process.h"
#include "powerlimit/claims.h"
#include "powerlimit/guard.h"

#define CHECK_PERIOD_NS 20000000 /* between a set and the look whether it has held */
#define TRY_FOR_S 30.0
#define CHECKS_PASSED 3 /* in a row, before the guard believes it */

/* One GPU's share of putting back. */
typedef struct restoration {
    const struct guarded *all;
    size_t gpu;
    bool is_restored;
} restoration;

typedef struct guarded {
    harpe_guarded_gpu *found;
    int *index; /* in `gpus` */
    size_t count;
    harpe_gpus *gpus;
    harpe_power_claims claims;
    restoration *restorations; /* had before they are needed */
    pthread_t *threads;
} guarded;

/* ---- Taking over ---------------------------------------------------------------------------- */

static bool receive(void *data, size_t size) {
    return harpe_side_process_receive(HARPE_SIDE_SOCKET, data, size, -1);
}

static harpe_status receive_header(harpe_guard_header *header, harpe_error *error) {
    if (!receive(header, sizeof *header) || header->magic != HARPE_GUARD_MAGIC) {
        return harpe_fail(error, HARPE_INVALID_INPUT, "not started by a power limit optimizer");
    }
    if (header->version != HARPE_GUARD_VERSION || header->gpu_size != sizeof(harpe_guarded_gpu)) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "the program harpe is of another version than the library");
    }
    if (header->gpu_count < 1 || header->gpu_count > HARPE_GUARD_GPU_LIMIT) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "from 1 to %d GPUs can be guarded, not %u",
                          HARPE_GUARD_GPU_LIMIT, header->gpu_count);
    }
    header->library_path[sizeof header->library_path - 1] = '\0';
    return HARPE_OK;
}

static harpe_status receive_gpus(guarded *all, size_t count, harpe_error *error) {
    all->count = count;
    all->found = harpe_calloc(all->count, sizeof *all->found);
    all->index = harpe_calloc(all->count, sizeof *all->index);
    all->restorations = harpe_calloc(all->count, sizeof *all->restorations);
    all->threads = harpe_calloc(all->count, sizeof *all->threads);
    if (!all->found || !all->index || !all->restorations || !all->threads)
        return harpe_fail_memory(error);
    if (!receive(all->found, all->count * sizeof *all->found)) {
        return harpe_fail(error, HARPE_INVALID_INPUT, "the optimizer ended too early");
    }
    return HARPE_OK;
}

/* By UUID: the guard sees all GPUs, the trainer those that CUDA_VISIBLE_DEVICES leaves it. */
static harpe_status match_gpus(guarded *all, harpe_error *error) {
    for (size_t i = 0; i < all->count; i++) {
        all->index[i] = -1;
        all->found[i].uuid[sizeof all->found[i].uuid - 1] = '\0';
        for (int gpu = 0; gpu < harpe_gpus_count(all->gpus); gpu++) {
            if (strcmp(harpe_gpu_info_at(all->gpus, gpu)->uuid, all->found[i].uuid) == 0) {
                all->index[i] = gpu;
            }
        }
        if (all->index[i] < 0) {
            return harpe_fail(error, HARPE_NOT_FOUND, "there is no GPU %s", all->found[i].uuid);
        }
    }
    return HARPE_OK;
}

static bool trainer_is_gone(void *user) {
    (void)user;
    return harpe_side_process_wait(0);
}

static harpe_status take_over(guarded *all, harpe_error *error) {
    harpe_guard_header header;
    harpe_status status = receive_header(&header, error);
    if (status == HARPE_OK) {
        status = receive_gpus(all, header.gpu_count, error);
    }
    if (status == HARPE_OK) {
        harpe_gpus_options options = {.library_path =
                                          header.library_path[0] ? header.library_path : NULL,
                                      .visible_devices = "all"};
        status = harpe_gpus_open(&options, &all->gpus, error);
    }
    if (status == HARPE_OK) {
        status = match_gpus(all, error);
    }
    if (status != HARPE_OK) return status;
    return harpe_power_claims_take(all->gpus, all->index, all->found, all->count,
                                   (pid_t)header.trainer, trainer_is_gone, &all->claims, error);
}

/* ---- Waiting -------------------------------------------------------------------------------- */

/* Until the trainer speaks, closes its end, or dies. True when it has said that everything is put
 * back. */
static bool wait_for_end(void) {
    char byte = 0;
    (void)harpe_side_process_wait(-1);
    return harpe_side_process_receive(HARPE_SIDE_SOCKET, &byte, 1, 0) &&
           byte == HARPE_GUARD_RESTORED;
}

/* ---- Putting back --------------------------------------------------------------------------- */

typedef enum put_back_result {
    IS_BACK, /* the GPU is as it was found */
    WAS_SET, /* it was not, and the driver has accepted what was found */
    FAILED,  /* it was not, or may not have been, and the driver has refused */
} put_back_result;

static put_back_result put_back(const guarded *all, size_t i, harpe_error *error) {
    const harpe_guarded_gpu *found = &all->found[i];
    int gpu = all->index[i];
    uint32_t limit_mw = 0;
    bool persistence = false;
    put_back_result result = IS_BACK;
    if (harpe_gpu_power_limit(all->gpus, gpu, &limit_mw, error) != HARPE_OK ||
        limit_mw != found->limit_mw) {
        result = WAS_SET;
        if (harpe_gpu_set_power_limit(all->gpus, gpu, found->limit_mw, error) != HARPE_OK)
            result = FAILED;
    }
    if (found->persistence < 0) return result;
    if (harpe_gpu_persistence_mode(all->gpus, gpu, &persistence, error) != HARPE_OK ||
        persistence != (found->persistence == 1)) {
        if (result == IS_BACK) result = WAS_SET;
        if (harpe_gpu_set_persistence_mode(all->gpus, gpu, found->persistence == 1, error) !=
            HARPE_OK)
            result = FAILED;
    }
    return result;
}

/* Looks again after it has set: a call of the trainer that was under way may land late, a driver
 * may fail once. When the time is over, a GPU that is back counts as restored however late that
 * was, and one that has just been set is looked at a last time. */
static void *restore_gpu(void *argument) {
    restoration *one = argument;
    harpe_error error = {.message = "something else keeps changing it"};
    double give_up_at = harpe_clock_s() + TRY_FOR_S;
    int late_sets = 0;
    for (int passed = 0; passed < CHECKS_PASSED;) {
        put_back_result result = put_back(one->all, one->gpu, &error);
        bool is_late = harpe_clock_s() > give_up_at;
        passed = result == IS_BACK ? passed + 1 : 0;
        if (is_late && result == IS_BACK) break;
        if (is_late && result == WAS_SET) late_sets++;
        /* A lost GPU comes back only by a reset, which forgets the limit as well. */
        if ((result == FAILED && (is_late || error.status == HARPE_GPU_LOST)) || late_sets > 1) {
            syslog(LOG_USER | LOG_ERR, "harpe: a GPU's power limit could not be put back: %s",
                   error.message);
            return NULL;
        }
        struct timespec pause = {.tv_nsec = CHECK_PERIOD_NS};
        (void)nanosleep(&pause, NULL);
    }
    one->is_restored = true;
    return NULL;
}

/* All GPUs at once: with slow calls, one after the other would take too long. */
static int restore(const guarded *all) {
    restoration *each = all->restorations;
    pthread_t *threads = all->threads;
    bool all_restored = true;
    for (size_t i = 0; i < all->count; i++) {
        each[i] = (restoration){.all = all, .gpu = i};
        if (pthread_create(&threads[i], NULL, restore_gpu, &each[i]) != 0) {
            threads[i] = pthread_self();
            (void)restore_gpu(&each[i]);
        }
    }
    for (size_t i = 0; i < all->count; i++) {
        if (!pthread_equal(threads[i], pthread_self())) {
            (void)pthread_join(threads[i], NULL);
        }
        all_restored = all_restored && each[i].is_restored;
    }
    return all_restored ? EXIT_SUCCESS : EXIT_FAILURE;
}

int harpe_power_limit_guard_main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    guarded all = {0};
    harpe_error error = {.status = HARPE_OK};
    harpe_side_process_begin();
    harpe_status status = take_over(&all, &error);
    error.status = status;
    /* If the trainer is gone by now, the code below notices it. */
    (void)harpe_side_process_send(HARPE_SIDE_SOCKET, &error, sizeof error);
    int code = EXIT_FAILURE;
    if (status == HARPE_OK) {
        (void)harpe_side_process_send(HARPE_SIDE_SOCKET, all.found, all.count * sizeof *all.found);
        int ignored_result = chdir("/"); /* so that no file system is held */
        (void)ignored_result;
        code = wait_for_end() ? EXIT_SUCCESS : restore(&all);
        harpe_power_claims_release(&all.claims, code == EXIT_SUCCESS);
    }
    harpe_gpus_close(all.gpus);
    free(all.found);
    free(all.index);
    free(all.restorations);
    free(all.threads);
    return code;
}
