/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers of the system. No other file asks the system for them. */
#ifndef HARPE_BASE_RANDOM_H
#define HARPE_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>

/* Fills at most 256 bytes with random numbers that nobody can guess. Waits if the system has none
 * yet, early after its start. Returns false with errno if the system gives none. */
bool harpe_random(void *bytes, size_t size);
/* The same, but returns false instead of waiting. */
bool harpe_random_now(void *bytes, size_t size);

#endif
