/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how often something may happen, by a credit that grows with time. */
#ifndef HARPE_BASE_CREDIT_H
#define HARPE_BASE_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

/* Initialise with zeros. */
typedef struct harpe_credit {
    double left;
    int64_t at_ns; /* when `left` was right; 0: never */
} harpe_credit;

/* Takes one of the credit. The credit begins with `most`, grows by `per_s` each second, and is
 * never above `most`. Returns false if less than one is left. */
static inline bool harpe_credit_take(harpe_credit *self, double most, double per_s,
                                     int64_t now_ns) {
    self->left += self->at_ns == 0 ? most : per_s * (double)(now_ns - self->at_ns) * 1e-9;
    if (self->left > most) self->left = most;
    self->at_ns = now_ns > 0 ? now_ns : 1;
    if (self->left < 1) return false;
    self->left -= 1;
    return true;
}

#endif
