/* SPDX-License-Identifier: Apache-2.0 */
/* Frees the files that schedulers have made. */
#include "server/scheduler/scheduler_file.h"

#include <stdlib.h>

void harpe_scheduler_file_free(harpe_scheduler_file *file) {
    free(file->path);
    free(file->text);
    free(file->directory);
    *file = (harpe_scheduler_file){0};
}
