/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the import of Chakra traces, as Protocol Buffers and as JSON; see trace_checks.h. Uses no
 * files. */
#include <stddef.h>
#include <stdint.h>

#include "trace_checks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_traces(data, size, HARPE_TRACE_CHAKRA);
    return 0;
}
