/* SPDX-License-Identifier: Apache-2.0 */
/* The table of GPU vendors, tried in order until one of them has a GPU. A new vendor is a file
 * backend_<vendor>.c and a row here; nothing else changes. */
#include "gpu/backend.h"

const harpe_backend *const harpe_backends[] = {
    &harpe_backend_nvml,
    &harpe_backend_amdsmi,
    NULL,
};
