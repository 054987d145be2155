/* SPDX-License-Identifier: Apache-2.0 */
/* Contains the short names of the statuses. The text of a failure is written where the failure
 * happens, with base/error.h. */
#include <harpe/status.h>

const char *harpe_status_name(harpe_status status) {
    switch (status) {
    case HARPE_OK: return "ok";
    case HARPE_INVALID_ARGUMENT: return "invalid argument";
    case HARPE_INVALID_INPUT: return "invalid input";
    case HARPE_NOT_FOUND: return "not found";
    case HARPE_ALREADY_EXISTS: return "already exists";
    case HARPE_PERMISSION_DENIED: return "permission denied";
    case HARPE_IO_ERROR: return "input/output error";
    case HARPE_OUT_OF_MEMORY: return "out of memory";
    case HARPE_LIMIT_EXCEEDED: return "limit exceeded";
    case HARPE_INTERRUPTED: return "interrupted";
    case HARPE_INFEASIBLE: return "infeasible";
    case HARPE_NOT_SUPPORTED: return "not supported";
    case HARPE_INTERNAL: return "internal error";
    case HARPE_GPU_LOST: return "GPU lost";
    case HARPE_DRIVER_ERROR: return "driver error";
    case HARPE_UNAVAILABLE: return "unavailable";
    }
    return "unknown status";
}
