/* SPDX-License-Identifier: Apache-2.0 */
/* What a kind of scheduler is inside, for the two files behind scheduler_host.h. */
#ifndef HARPE_SERVER_SCHEDULER_KIND_H
#define HARPE_SERVER_SCHEDULER_KIND_H

#include <stdbool.h>

#include "server/scheduler_host.h"
#include "server/schedulers/child.h"

struct harpe_scheduler_kind {
    const harpe_scheduler_class *class;
    bool is_3d;    /* behind the 3D wrapper */
    void *library; /* the shared object, or NULL */
    char *command; /* the program, or NULL */
    char *name, *args_json, *settings_json;
    int timeout_s;
    harpe_log log;
    harpe_children children; /* the programs that run */
};

#endif
