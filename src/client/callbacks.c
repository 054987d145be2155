/* SPDX-License-Identifier: Apache-2.0 */
/* A set of training callbacks. One call per event reaches every callback of the set, in the order
 * in which they were added. This file also makes the callback of the power limit optimizer. For
 * this it uses only the optimizer's public header. */
#include <stdlib.h>
#include <string.h>

#include <harpe/power_limit.h>
#include <harpe/training.h>

#include "base/array.h"
#include "base/error.h"

struct harpe_callback_set {
    harpe_training_callback *callbacks;
    size_t count, capacity;
};

harpe_status harpe_callback_set_new(const harpe_training_callback *callbacks, size_t count,
                                    harpe_callback_set **out, harpe_error *error) {
    if (!out || (!callbacks && count > 0))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "callback set: no callbacks were given");
    harpe_callback_set *set = harpe_calloc(1, sizeof *set);
    if (!set || !HARPE_ARRAY_RESERVE(set->callbacks, set->capacity, count)) {
        free(set);
        return harpe_fail_memory(error);
    }
    if (count > 0) memcpy(set->callbacks, callbacks, count * sizeof *callbacks);
    set->count = count;
    *out = set;
    return HARPE_OK;
}

void harpe_callback_set_free(harpe_callback_set *set) {
    if (!set) return;
    free(set->callbacks);
    free(set);
}

harpe_status harpe_callback_set_add(harpe_callback_set *set,
                                    const harpe_training_callback *callback, harpe_error *error) {
    if (!set || !callback) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "callback set: no set or no callback was given");
    }
    if (!HARPE_ARRAY_RESERVE(set->callbacks, set->capacity, set->count + 1))
        return harpe_fail_memory(error);
    set->callbacks[set->count++] = *callback;
    return HARPE_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Calls each callback. `arguments` are in parentheses; `one` is the callback that receives them. */
#define CALL_ALL(event, arguments) \
    for (size_t i = 0; set && i < set->count; i++) { \
        const harpe_training_callback *one = &set->callbacks[i]; \
        if (one->event) one->event arguments; \
    }

void harpe_on_train_begin(const harpe_callback_set *set) { CALL_ALL(on_train_begin, (one->user)) }

void harpe_on_train_end(const harpe_callback_set *set) { CALL_ALL(on_train_end, (one->user)) }

void harpe_on_epoch_begin(const harpe_callback_set *set) { CALL_ALL(on_epoch_begin, (one->user)) }

void harpe_on_epoch_end(const harpe_callback_set *set) { CALL_ALL(on_epoch_end, (one->user)) }

void harpe_on_step_begin(const harpe_callback_set *set) { CALL_ALL(on_step_begin, (one->user)) }

void harpe_on_step_end(const harpe_callback_set *set) { CALL_ALL(on_step_end, (one->user)) }

void harpe_on_evaluate(const harpe_callback_set *set, double metric) {
    CALL_ALL(on_evaluate, (one->user, metric))
}

void harpe_on_instruction_begin(const harpe_callback_set *set, const char *instruction) {
    CALL_ALL(on_instruction_begin, (one->user, instruction))
}

void harpe_on_instruction_end(const harpe_callback_set *set, const char *instruction) {
    CALL_ALL(on_instruction_end, (one->user, instruction))
}

/* ---- The power limit optimizer --------------------------------------------------------------- */

static void power_limit_epoch_begin(void *user) { harpe_power_limit_on_epoch_begin(user); }

static void power_limit_epoch_end(void *user) { harpe_power_limit_on_epoch_end(user); }

static void power_limit_step_begin(void *user) { harpe_power_limit_on_step_begin(user); }

static void power_limit_step_end(void *user) { harpe_power_limit_on_step_end(user); }

harpe_training_callback harpe_power_limit_callback(harpe_power_limit_optimizer *optimizer) {
    return (harpe_training_callback){.user = optimizer,
                                     .on_epoch_begin = power_limit_epoch_begin,
                                     .on_epoch_end = power_limit_epoch_end,
                                     .on_step_begin = power_limit_step_begin,
                                     .on_step_end = power_limit_step_end};
}
