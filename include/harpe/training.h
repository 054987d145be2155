/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks of a training loop. Every optimizer fills in one table of callbacks. A set combines
 * several tables, including your own, so that a loop makes one call for each event.
 *
 *     on_train_begin
 *       on_epoch_begin
 *         on_step_begin   on_instruction_begin / _end (each forward and backward)   on_step_end
 *       on_evaluate
 *       on_epoch_end
 *     on_train_end
 *
 * Call a set from the training thread only. On a NULL set, events do nothing. Callbacks do not
 * fail. The callbacks of the pipeline frequency optimizer never block. The callbacks of the power
 * limit optimizer sometimes set a limit and wait for the driver. */
#ifndef HARPE_TRAINING_H
#define HARPE_TRAINING_H

#include <stddef.h>

#include <harpe/api.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

/* Each function receives `user`. NULL: the event is ignored. */
typedef struct harpe_training_callback {
    void *user;
    void (*on_train_begin)(void *user);
    void (*on_train_end)(void *user);
    void (*on_epoch_begin)(void *user);
    void (*on_epoch_end)(void *user);
    void (*on_step_begin)(void *user);
    void (*on_step_end)(void *user);
    void (*on_evaluate)(void *user, double metric);
    void (*on_instruction_begin)(void *user, const char *instruction);
    void (*on_instruction_end)(void *user, const char *instruction);
} harpe_training_callback;

typedef struct harpe_callback_set harpe_callback_set;

/* Makes a set. `callbacks` are copied and called in this order. Free with
 * harpe_callback_set_free, which does not free the objects that `user` points to. */
HARPE_API harpe_status harpe_callback_set_new(const harpe_training_callback *callbacks,
                                              size_t count, harpe_callback_set **out,
                                              harpe_error *error);
HARPE_API void harpe_callback_set_free(harpe_callback_set *set);
HARPE_API harpe_status harpe_callback_set_add(harpe_callback_set *set,
                                              const harpe_training_callback *callback,
                                              harpe_error *error);

HARPE_API void harpe_on_train_begin(const harpe_callback_set *set);
HARPE_API void harpe_on_train_end(const harpe_callback_set *set);
HARPE_API void harpe_on_epoch_begin(const harpe_callback_set *set);
HARPE_API void harpe_on_epoch_end(const harpe_callback_set *set);
HARPE_API void harpe_on_step_begin(const harpe_callback_set *set);
HARPE_API void harpe_on_step_end(const harpe_callback_set *set);
HARPE_API void harpe_on_evaluate(const harpe_callback_set *set, double metric);
HARPE_API void harpe_on_instruction_begin(const harpe_callback_set *set, const char *instruction);
HARPE_API void harpe_on_instruction_end(const harpe_callback_set *set, const char *instruction);

HARPE_END_DECLS

#endif
