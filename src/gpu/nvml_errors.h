/* SPDX-License-Identifier: Apache-2.0 */
/* NVML's error codes in Harpe's terms: status, name, and what a person can do about it. */
#ifndef HARPE_GPU_NVML_ERRORS_H
#define HARPE_GPU_NVML_ERRORS_H

#include <harpe/status.h>

/* HARPE_OK for NVML_SUCCESS; HARPE_DRIVER_ERROR for a code that is not known. */
harpe_status harpe_nvml_status(int code);
/* "NVML_ERROR_NO_PERMISSION", or "NVML error" for a code that is not known. Static storage. */
const char *harpe_nvml_error_name(int code);
/* One clause on cause and remedy, never empty. Static storage. */
const char *harpe_nvml_error_advice(int code);

#endif
