/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and loads the state of an online scheduler, and writes the frontier as JSON. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_STATE_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_STATE_H

#include <stddef.h>

#include <harpe/status.h>

harpe_status harpe_perseus_save(const void *state, char **text, size_t *length, harpe_error *error);
harpe_status harpe_perseus_load(void *state, const char *text, size_t length, harpe_error *error);
harpe_status harpe_perseus_frontier(const void *state, char **text, harpe_error *error);

#endif
