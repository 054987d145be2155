/* SPDX-License-Identifier: Apache-2.0 */
/* The names that users give to GPUs: a number as `harpe gpus` counts, a UUID or a PCI address. The
 * numbers of all commands are those of harpe_gpus_open in the process that the user has started. A
 * command turns a number into a GPU once. From then on, only UUIDs pass between processes. */
#ifndef HARPE_CLI_GPU_NAMES_H
#define HARPE_CLI_GPU_NAMES_H

#include <stdbool.h>

#include <jansson.h>

#include <harpe/gpu.h>

#include "cli/command.h"

typedef struct harpe_gpu_names {
    const harpe_gpus *gpus; /* as this process counts them; NULL: this process has none */
    json_t *lent; /* the GPUs that the node agent has found at its start; NULL: not known */
} harpe_gpu_names;

/* Asks the agent at `socket` for its GPUs. `socket` NULL: the agent that jobs use, if there is one.
 * Without an answer, `lent` is NULL. Waits at most some seconds. */
harpe_gpu_names harpe_gpu_names_ask(const harpe_gpus *gpus, const char *socket);
void harpe_gpu_names_free(harpe_gpu_names *names);

/* Asks an agent for its status, and waits for at most `limit_ms`. The caller releases `*answer`. */
harpe_status harpe_gpu_names_ask_status(const char *socket, int limit_ms, json_t **answer,
                                        harpe_error *error);
/* Returns the GPU with this UUID in a list of the agent; NULL: there is none. */
const json_t *harpe_gpu_names_lent(const json_t *list, const char *uuid);

/* Returns true if a user's name is a number. */
bool harpe_gpu_name_is_number(const char *name);
/* Returns true if a user's name that is no number means the GPU with this UUID and PCI address. */
bool harpe_gpu_name_means(const char *name, const char *uuid, const char *pci_bus_id);
/* Returns the number of a GPU in this process, or -1 if this process does not see the GPU. */
int harpe_gpu_number_of(const harpe_gpus *gpus, const char *uuid);

/* The models of harpe_synth_gpu_models: the end of --help, and the reader of a flag whose value is
 * one of them. The member is a const char *. */
void harpe_gpu_models_help(harpe_text *text);
void harpe_gpu_model_read(void *into, struct argp_state *state, const char *flag, char *text);

/* Finds the GPU of a name among the GPUs of this process. Fails with HARPE_INVALID_ARGUMENT if
 * there is none. Also refuses a number that may have meant another GPU when the agent started,
 * because a GPU was lost or has come since; the message has the UUID to use. Messages begin with
 * `flag`. */
harpe_status harpe_gpu_names_find(const harpe_gpu_names *names, const char *flag, const char *name,
                                  int *gpu, harpe_error *error);

#endif
