/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of the node agent's lease files with any bytes. The members of an accepted
 * record must be in their ranges. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_lease_record record;
    if (!harpe_lease_files_parse((const char *)data, size, &record)) return 0;
    require(record.id > 0 && record.since_s >= 0 && record.control < HARPE_SAVED_KINDS);
    require(record.holder.process >= 1 && record.helper.process >= 0); /* 0: none yet */
    require(memchr(record.uuid, '\0', sizeof record.uuid));
    require(memchr(record.command, '\0', sizeof record.command));
    require(memchr(record.job, '\0', sizeof record.job));
    return 0;
}
