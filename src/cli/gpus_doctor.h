/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a machine's GPUs, and what to do about it. */
#ifndef HARPE_CLI_GPUS_DOCTOR_H
#define HARPE_CLI_GPUS_DOCTOR_H

#include <jansson.h>

#include "cli/gpus_facts.h"

/* A list of lines, empty when nothing is wrong. NULL: out of memory. */
json_t *harpe_gpus_diagnose(const harpe_machine_facts *machine);

#endif
