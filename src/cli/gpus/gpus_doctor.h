/* SPDX-License-Identifier: Apache-2.0 */
/* Problems of a machine's GPUs, and their solutions. */
#ifndef HARPE_CLI_GPUS_GPUS_DOCTOR_H
#define HARPE_CLI_GPUS_GPUS_DOCTOR_H

#include <jansson.h>

#include "cli/gpus/gpus_facts.h"

/* Returns a list of lines, which is empty if there are no problems. NULL: out of memory. */
json_t *harpe_gpus_diagnose(const harpe_machine_facts *machine);

#endif
