/* SPDX-License-Identifier: Apache-2.0 */
/* The two forms of `harpe gpus`: tables for people, one JSON object for programs. */
#ifndef HARPE_CLI_GPUS_GPUS_VIEW_H
#define HARPE_CLI_GPUS_GPUS_VIEW_H

#include <jansson.h>

#include "cli/gpus/gpus_facts.h"

/* `problems`: the doctor's lines; borrowed. */
void harpe_gpus_print_text(const harpe_machine_facts *machine, const json_t *problems);
harpe_status harpe_gpus_print_json(const harpe_machine_facts *machine, json_t *problems,
                                   harpe_error *error);

#endif
