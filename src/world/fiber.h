/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: stacks between which one thread of the system switches. */
#ifndef HARPE_WORLD_FIBER_H
#define HARPE_WORLD_FIBER_H

#include <stdbool.h>
#include <stddef.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

typedef struct harpe_fiber {
#ifdef __x86_64__
    void *top; /* of its stack */
#else
    ucontext_t context;
#endif
    void *stack; /* NULL: that of the system's thread */
    void *sanitizer_state;
    void (*run)(void *user);
    void *user;
} harpe_fiber;

/* Makes a fiber that calls `run`, which must not return. Returns false without memory. */
bool harpe_fiber_make(harpe_fiber *fiber, void (*run)(void *user), void *user);
/* Frees the stack. The fiber must not run. */
void harpe_fiber_free(harpe_fiber *fiber);
/* Frees the stacks that are kept for new fibers. */
void harpe_fiber_end_all(void);
/* Continues `to`, and returns when another fiber continues `from`. */
void harpe_fiber_switch(harpe_fiber *from, harpe_fiber *to);
/* The first call of a new fiber, which `from` has continued. */
void harpe_fiber_began(harpe_fiber *fiber, harpe_fiber *from);

#endif
