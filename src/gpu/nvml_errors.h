/* SPDX-License-Identifier: Apache-2.0 */
/* Maps NVML's error codes to a status, a name, and advice for a person. */
#ifndef HARPE_GPU_NVML_ERRORS_H
#define HARPE_GPU_NVML_ERRORS_H

#include <harpe/status.h>

/* Returns HARPE_OK for NVML_SUCCESS, and HARPE_DRIVER_ERROR for an unknown code. */
harpe_status harpe_nvml_status(int code);
/* Returns "NVML_ERROR_NO_PERMISSION", for example, or "NVML error" for an unknown code. Static
 * storage. */
const char *harpe_nvml_error_name(int code);
/* Returns a phrase about cause and remedy, never empty. Static storage. */
const char *harpe_nvml_error_advice(int code);

#endif
