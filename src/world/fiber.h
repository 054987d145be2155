/* SPDX-License-Identifier: Apache-2.0 */
/* A fiber is a function that runs on a stack of its own. One thread of the system runs all fibers,
 * one at a time, and switches from one stack to another. */
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
/* Frees the stack. Do not call it on the fiber itself. */
void harpe_fiber_free(harpe_fiber *fiber);
/* Stacks of freed fibers are kept for new fibers. This frees them. */
void harpe_fiber_end_all(void);
/* Lets `to` continue. Returns when another fiber lets `from` continue. */
void harpe_fiber_switch(harpe_fiber *from, harpe_fiber *to);
/* A new fiber calls this first. */
void harpe_fiber_began(harpe_fiber *fiber);

#endif
