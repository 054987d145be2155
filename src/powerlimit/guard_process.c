/* SPDX-License-Identifier: Apache-2.0 */
/* The guard's side: claims the GPUs, records their settings, waits for the trainer's end, and
 * restores the GPUs if the trainer has not restored them. The process runs the program
 * harpe, or the node agent's program, and does no other work. While the trainer runs, the guard
 * changes nothing, except settings that a dead job has left changed. */
#include "powerlimit/guard_process.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include <harpe/gpu.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/process.h"
#include "base/thread.h"
#include "base/wait.h"
#include "lease/lease.h"
#include "powerlimit/claims.h"
#include "powerlimit/guard.h"

#define CHECK_PERIOD_NS 20000000 /* time between setting a limit and checking that it holds */
#define TRY_FOR_S 30.0
#define CHECKS_PASSED 3 /* checks in a row that must succeed */

/* The restoration of one GPU. */
typedef struct restoration {
    const struct guarded *all;
    size_t gpu;
    bool is_restored;
} restoration;

typedef struct guarded {
    harpe_lease_terms terms;
    harpe_guarded_gpu *saved;
    int *index; /* in `gpus` */
    size_t count;
    harpe_gpus *gpus;
    harpe_power_claims claims;
    restoration *restorations; /* allocated before they are needed */
    pthread_t *threads;
} guarded;

/* ---- Taking over ----------------------------------------------------------------------------- */

static bool receive(void *data, size_t size) {
    return harpe_helper_process_receive(harpe_helper_socket(), data, size, -1);
}

static harpe_status receive_header(harpe_guard_header *header, harpe_error *error) {
    if (!receive(header, sizeof *header) || header->magic != HARPE_GUARD_MAGIC)
        return harpe_fail(error, HARPE_INVALID_INPUT, "not started by a power limit optimizer");
    if (header->version != HARPE_GUARD_VERSION || header->gpu_size != sizeof(harpe_guarded_gpu)) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "the program harpe is of another version than the library");
    }
    if (header->gpu_count < 1 || header->gpu_count > HARPE_GUARD_GPU_LIMIT) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "from 1 to %d GPUs can be guarded, not %u",
                          HARPE_GUARD_GPU_LIMIT, header->gpu_count);
    }
    header->library_path[sizeof header->library_path - 1] = '\0';
    if (header->terms.is_lease) return harpe_helper_process_end_on_signal(error);
    return HARPE_OK;
}

static harpe_status receive_gpus(guarded *all, size_t count, harpe_error *error) {
    all->count = count;
    all->saved = harpe_calloc(all->count, sizeof *all->saved);
    all->index = harpe_calloc(all->count, sizeof *all->index);
    all->restorations = harpe_calloc(all->count, sizeof *all->restorations);
    all->threads = harpe_calloc(all->count, sizeof *all->threads);
    if (!all->saved || !all->index || !all->restorations || !all->threads)
        return harpe_fail_memory(error);
    if (!receive(all->saved, all->count * sizeof *all->saved))
        return harpe_fail(error, HARPE_INVALID_INPUT, "the optimizer ended too early");
    return HARPE_OK;
}

/* Finds the GPUs by UUID and not by number, because the guard sees all GPUs, and the trainer sees
 * only the GPUs in CUDA_VISIBLE_DEVICES. */
static harpe_status match_gpus(guarded *all, harpe_error *error) {
    for (size_t i = 0; i < all->count; i++) {
        all->index[i] = -1;
        all->saved[i].uuid[sizeof all->saved[i].uuid - 1] = '\0';
        for (int gpu = 0; gpu < harpe_gpus_count(all->gpus); gpu++)
            if (strcmp(harpe_gpu_info_at(all->gpus, gpu)->uuid, all->saved[i].uuid) == 0)
                all->index[i] = gpu;
        if (all->index[i] < 0)
            return harpe_fail(error, HARPE_NOT_FOUND, "there is no GPU %s", all->saved[i].uuid);
    }
    return HARPE_OK;
}

static bool trainer_is_gone(void *user) {
    (void)user;
    return harpe_helper_process_wait(0);
}

static harpe_status take_over(guarded *all, harpe_error *error) {
    harpe_guard_header header;
    harpe_status status = receive_header(&header, error);
    if (status == HARPE_OK) all->terms = header.terms;
    if (status == HARPE_OK) status = receive_gpus(all, header.gpu_count, error);
    if (status == HARPE_OK) {
        harpe_gpus_options options = {.library_path =
                                          header.library_path[0] ? header.library_path : NULL,
                                      .visible_devices = "all"};
        status = harpe_gpus_open(&options, &all->gpus, error);
    }
    if (status == HARPE_OK) status = match_gpus(all, error);
    if (status != HARPE_OK) return status;
    return harpe_power_claims_take(all->gpus, all->index, all->saved, all->count,
                                   (pid_t)header.trainer, trainer_is_gone, &all->claims, error);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Waits until the trainer sends a message, closes its end, or dies. Returns true if the trainer
 * has reported that everything is restored. */
static bool wait_for_end(void) {
    char byte = 0;
    (void)harpe_helper_process_wait(-1);
    return harpe_helper_process_receive(harpe_helper_socket(), &byte, 1, 0) &&
           byte == HARPE_GUARD_RESTORED;
}

/* ---- Requests of the holder of a lease ------------------------------------------------------- */

static harpe_status check_limit(const harpe_lease_terms *terms, uint32_t limit_mw,
                                harpe_error *error) {
    if (terms->lowest_mw > 0 && limit_mw < terms->lowest_mw)
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "the node agent refuses %u W: its rule lowest_power_limit_w is %u; its "
                          "administrator can change the rule",
                          limit_mw / 1000, terms->lowest_mw / 1000);
    if (terms->highest_mw > 0 && limit_mw > terms->highest_mw)
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "the node agent refuses %u W: its rule highest_power_limit_w is %u; its "
                          "administrator can change the rule",
                          limit_mw / 1000, terms->highest_mw / 1000);
    return HARPE_OK;
}

static harpe_status carry_out(const guarded *all, const harpe_lease_power_request *request,
                              harpe_error *error) {
    int gpu = all->index[0];
    harpe_status status;
    switch (request->setting) {
    case HARPE_LEASE_POWER_LIMIT:
        status = check_limit(&all->terms, request->value, error);
        if (status != HARPE_OK) return status;
        return harpe_gpu_set_power_limit(all->gpus, gpu, request->value, error);
    case HARPE_LEASE_PERSISTENCE:
        return harpe_gpu_set_persistence_mode(all->gpus, gpu, request->value != 0, error);
    default:
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "there is no setting %u",
                          request->setting);
    }
}

/* Carries out requests until the lease ends. Waits between two requests if the terms limit the
 * number of changes per second. */
static void serve_holder(const guarded *all) {
    harpe_lease_power_request request;
    int64_t not_before_ns = 0;
    for (;;) {
        (void)harpe_helper_process_wait(-1);
        int64_t pause_ns = not_before_ns - harpe_clock_ns();
        int pause_ms = pause_ns > 0 ? (int)(pause_ns / 1000000) + 1 : 0;
        if (harpe_helper_process_is_over_within(pause_ms)) return;
        if (!harpe_helper_process_receive(harpe_helper_socket(), &request, sizeof request, 0))
            return;
        harpe_error result = {.status = HARPE_OK};
        result.status = carry_out(all, &request, &result);
        not_before_ns = harpe_clock_ns() + all->terms.shortest_change_ns;
        /* Ends the lease of a holder that does not read its answers. While the guard waited for
         * such a holder, it would not notice the holder's end. */
        if (!harpe_helper_process_send_now(harpe_helper_socket(), &result, sizeof result)) return;
    }
}

/* ---- Restoring ------------------------------------------------------------------------------- */

typedef enum restore_result {
    IS_BACK, /* the GPU has its saved settings */
    WAS_SET, /* a setting differed, and the driver has accepted the saved value; or another process
              * will set it soon */
    FAILED,  /* a setting differed or could not be read, and the driver has refused the saved
              * value */
} restore_result;

/* Returns the limit that the GPU must have now. Sets `*is_final` to false if a frequency controller
 * is about to restore the limit that it has found. */
static uint32_t limit_now(const guarded *all, size_t i, bool *is_final) {
    const harpe_guarded_gpu *saved = &all->saved[i];
    harpe_saved_settings found;
    bool is_in_use = false;
    bool is_controlled = saved->controlled_mw > 0 &&
                         harpe_saved_settings_find(all->gpus, all->index[i], HARPE_SAVED_CLOCKS,
                                                   &found, &is_in_use) &&
                         found.power_limit_mw > 0;
    *is_final = !is_controlled || is_in_use;
    return is_controlled ? saved->controlled_mw : saved->limit_mw;
}

static restore_result restore_one(const guarded *all, size_t i, harpe_error *error) {
    const harpe_guarded_gpu *saved = &all->saved[i];
    int gpu = all->index[i];
    bool is_final = true;
    uint32_t wanted_mw = limit_now(all, i, &is_final);
    uint32_t limit_mw = 0;
    bool persistence = false;
    restore_result result = is_final ? IS_BACK : WAS_SET;
    if (harpe_gpu_power_limit(all->gpus, gpu, &limit_mw, error) != HARPE_OK ||
        limit_mw != wanted_mw) {
        result = WAS_SET;
        if (harpe_gpu_set_power_limit(all->gpus, gpu, wanted_mw, error) != HARPE_OK)
            result = FAILED;
    }
    if (saved->persistence < 0) return result;
    if (harpe_gpu_persistence_mode(all->gpus, gpu, &persistence, error) != HARPE_OK ||
        persistence != (saved->persistence == 1)) {
        if (result == IS_BACK) result = WAS_SET;
        if (harpe_gpu_set_persistence_mode(all->gpus, gpu, saved->persistence == 1, error) !=
            HARPE_OK)
            result = FAILED;
    }
    return result;
}

/* Restores a GPU. Checks the settings again after each call, because an earlier call of the trainer
 * may take effect late, and a driver call may fail once. At the deadline, a GPU that has its saved
 * settings counts as restored, and a GPU that was just set is checked one last time. */
static void *restore_gpu(void *argument) {
    restoration *one = argument;
    harpe_error error;
    harpe_patience patience = harpe_patience_for(TRY_FOR_S);
    int late_sets = 0;
    for (int passed = 0; passed < CHECKS_PASSED;) {
        restore_result result = restore_one(one->all, one->gpu, &error);
        bool is_late = harpe_patience_is_over(&patience);
        passed = result == IS_BACK ? passed + 1 : 0;
        if (is_late && result == IS_BACK) break;
        if (is_late && result == WAS_SET) late_sets++;
        /* A lost GPU returns only after a reset. Then its record is used. */
        if ((result == FAILED && (is_late || error.status == HARPE_GPU_LOST)) || late_sets > 1) {
            syslog(LOG_USER | LOG_ERR, "harpe: a GPU's power limit could not be restored: %s",
                   result == FAILED ? error.message : "something else keeps changing it");
            return NULL;
        }
        harpe_sleep_ns(CHECK_PERIOD_NS);
    }
    one->is_restored = true;
    return NULL;
}

/* Restores all GPUs at the same time, because slow driver calls one after the other would take too
 * long. Removes the record of each restored GPU, even if another GPU could not be restored. */
static int restore(guarded *all) {
    restoration *each = all->restorations;
    pthread_t *threads = all->threads;
    bool all_restored = true;
    for (size_t i = 0; i < all->count; i++) {
        each[i] = (restoration){.all = all, .gpu = i};
        if (harpe_thread_start(&threads[i], "harpe-restore", restore_gpu, &each[i]) != 0) {
            threads[i] = pthread_self();
            (void)restore_gpu(&each[i]);
        }
    }
    for (size_t i = 0; i < all->count; i++) {
        if (!pthread_equal(threads[i], pthread_self())) harpe_thread_join(threads[i]);
        all_restored = all_restored && each[i].is_restored;
        harpe_power_claims_release_one(&all->claims, i, each[i].is_restored);
    }
    return all_restored ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Waits for the end. Returns true if there is nothing to restore. */
static bool wait_until_over(const guarded *all) {
    if (!all->terms.is_lease) return wait_for_end();
    int32_t process = (int32_t)harpe_process_self();
    if (harpe_helper_process_send(harpe_helper_socket(), &process, sizeof process))
        serve_holder(all);
    return false;
}

int harpe_power_limit_guard_main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    guarded all = {0};
    harpe_error error = {.status = HARPE_OK};
    harpe_helper_process_begin();
    harpe_status status = take_over(&all, &error);
    error.status = status;
    /* If the trainer is gone, the code below notices it. */
    (void)harpe_helper_process_send(harpe_helper_socket(), &error, sizeof error);
    int code = EXIT_FAILURE;
    if (status == HARPE_OK) {
        (void)harpe_helper_process_send(harpe_helper_socket(), all.saved,
                                        all.count * sizeof *all.saved);
        harpe_helper_process_leave_directory();
        code = wait_until_over(&all) ? EXIT_SUCCESS : restore(&all);
        harpe_power_claims_release(&all.claims, code == EXIT_SUCCESS);
    }
    harpe_gpus_close(all.gpus);
    free(all.saved);
    free(all.index);
    free(all.restorations);
    free(all.threads);
    return code;
}
