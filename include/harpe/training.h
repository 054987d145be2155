/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks of a training loop: one table that every optimizer fills in, and a set of them, so that
 * several optimizers, and one of your own, ride in one loop with one call per event.
 *
 *     on_train_begin
 *       on_epoch_begin
 *         on_step_begin   on_instruction_begin / _end (each forward and backward)   on_step_end
 *       on_evaluate
 *       on_epoch_end
 *     on_train_end
 *
 * Call a set from the training thread only; on a NULL set, events do nothing. Callbacks do not
 * fail. Those of the pipeline frequency optimizer never block; the power limit optimizer's set a
 * limit now and then. */
#ifndef HARPE_TRAINING_H
#define HARPE_TRAINING_H

#include <stddef.h>

#include <harpe/api.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

/* Each gets `user`; NULL: not interested. */
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

/* `callbacks` are copied and called in this order. Free with harpe_callback_set_free, which does
 * not free what their `user` points to. */
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
