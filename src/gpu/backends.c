/* SPDX-License-Identifier: Apache-2.0 */
/* The table of GPU vendors, which are tried in order until one has a GPU. To add a vendor, write a
 * file backend_<vendor>.c and add a row here; nothing else changes. */
#include "gpu/backend.h"

const harpe_backend *const harpe_backends[] = {
    &harpe_backend_nvml,
    &harpe_backend_amdsmi,
    NULL,
};
