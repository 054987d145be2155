/* SPDX-License-Identifier: Apache-2.0 */
#include "world/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ADDRESS_SANITIZER 1
#endif
#endif

#ifdef HAS_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = 512 << 10 }; /* the system gives the pages that are used */

/* The stacks of freed fibers. The first word of each is a pointer to the next. */
static struct free_stack { struct free_stack *next; } * free_stacks;

static size_t guard_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static void *take_stack(void) {
    if (free_stacks) {
        void *stack = free_stacks;
        free_stacks = free_stacks->next;
        return stack;
    }
    size_t guard = guard_bytes();
    char *memory = mmap(NULL, STACK_BYTES + guard, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    if (mprotect(memory, guard, PROT_NONE) != 0) {
        (void)munmap(memory, STACK_BYTES + guard);
        return NULL;
    }
    return memory + guard;
}

#ifdef __x86_64__
/* swapcontext also saves the mask of signals, with two system calls. This saves what a function
 * must keep: six registers on the stack. */
__attribute__((naked, noinline)) static void swap_stacks(__attribute__((unused)) void **from,
                                                         __attribute__((unused)) void *to) {
    __asm__("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
            "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
            "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret");
}

/* The first return address of a fiber. */
__attribute__((naked, noinline)) static void begin(void) {
    __asm__("movq %r12, %rdi\n callq *%r13\n ud2");
}

static void enter(harpe_fiber *fiber) { fiber->run(fiber->user); }

static bool prepare(harpe_fiber *fiber) {
    enum { R13 = 2, R12 = 3, RETURN = 6, SAVED = 7 };
    /* Otherwise the tops of all stacks were in one set of the processor's cache. */
    size_t apart = ((uintptr_t)fiber->stack >> 12) % 13 * 320;
    uintptr_t *top = (uintptr_t *)((char *)fiber->stack + STACK_BYTES - 64 - apart) - SAVED;
    top[R13] = (uintptr_t)enter;
    top[R12] = (uintptr_t)fiber;
    top[RETURN] = (uintptr_t)begin;
    fiber->top = top;
    return true;
}

static void swap(harpe_fiber *from, const harpe_fiber *to) { swap_stacks(&from->top, to->top); }
#else
/* makecontext passes int arguments only. */
static void enter(unsigned int high, unsigned int low) {
    harpe_fiber *fiber = (harpe_fiber *)((uintptr_t)high << 32 | low);
    fiber->run(fiber->user);
}

static bool prepare(harpe_fiber *fiber) {
    if (getcontext(&fiber->context) != 0) return false;
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    fiber->context.uc_link = NULL;
    uintptr_t address = (uintptr_t)fiber;
    makecontext(&fiber->context, (void (*)(void))enter, 2, (unsigned int)(address >> 32),
                (unsigned int)address);
    return true;
}

static void swap(harpe_fiber *from, const harpe_fiber *to) {
    (void)swapcontext(&from->context, &to->context);
}
#endif

bool harpe_fiber_make(harpe_fiber *fiber, void (*run)(void *user), void *user) {
    fiber->run = run;
    fiber->user = user;
    fiber->stack = take_stack();
    return fiber->stack && prepare(fiber);
}

void harpe_fiber_free(harpe_fiber *fiber) {
    struct free_stack *stack = fiber->stack;
    if (!stack) return;
#ifdef HAS_ADDRESS_SANITIZER
    /* Frames of a fiber that did not end are still poisoned. */
    __asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
    stack->next = free_stacks;
    free_stacks = stack;
    fiber->stack = NULL;
}

void harpe_fiber_end_all(void) {
    size_t guard = guard_bytes();
    while (free_stacks) {
        struct free_stack *stack = free_stacks;
        free_stacks = stack->next;
        (void)munmap((char *)stack - guard, STACK_BYTES + guard);
    }
}

#ifdef HAS_ADDRESS_SANITIZER
static const void *thread_stack;
static size_t thread_stack_bytes;

static void arrive(harpe_fiber *fiber) {
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fiber->sanitizer_state, &bottom, &bytes);
    if (thread_stack) return;
    thread_stack = bottom;
    thread_stack_bytes = bytes;
}
#endif

void harpe_fiber_switch(harpe_fiber *from, harpe_fiber *to) {
#ifdef HAS_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(&from->sanitizer_state, to->stack ? to->stack : thread_stack,
                                   to->stack ? STACK_BYTES : thread_stack_bytes);
#endif
    swap(from, to);
#ifdef HAS_ADDRESS_SANITIZER
    arrive(from);
#endif
}

void harpe_fiber_began(harpe_fiber *fiber) {
#ifdef HAS_ADDRESS_SANITIZER
    arrive(fiber);
#else
    (void)fiber;
#endif
}
