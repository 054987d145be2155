/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a kind of scheduler, for the two files that implement scheduler_host.h. */
#ifndef HARPE_SERVER_SCHEDULER_SCHEDULER_KIND_H
#define HARPE_SERVER_SCHEDULER_SCHEDULER_KIND_H

#include <stdbool.h>

#include "server/scheduler/child.h"
#include "server/scheduler/scheduler_host.h"

struct harpe_scheduler_kind {
    const harpe_scheduler_class *class;
    bool is_3d;                          /* it uses the 3D wrapper */
    harpe_scheduler_class library_class; /* for a shared object: asks the process */
    char *library_name;
    char *command;    /* the program, or NULL */
    const char *what; /* "scheduler program", and so on, for messages */
    char *shown;      /* the program, the class or the file, for messages */
    bool is_library;  /* a shared object, which the process loads */
    char *name, *args_json, *settings_json;
    int timeout_s;
    harpe_log log;
    harpe_children children; /* the programs that run */
};

#endif
