/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe profile switch` measures how long a GPU takes to change its clock. */
#ifndef HARPE_CLI_PROFILE_PROFILE_COMMAND_SWITCH_H
#define HARPE_CLI_PROFILE_PROFILE_COMMAND_SWITCH_H

#include <stdbool.h>

#include <harpe/status.h>

enum { HARPE_SWITCH_REQUEST_CLOCKS = 64 };

typedef struct harpe_switch_request {
    const char *gpu_name; /* as a user names it (cli/gpu_names.h); NULL: GPU 0 */
    int clock_mhz[HARPE_SWITCH_REQUEST_CLOCKS]; /* the clocks to measure */
    int clock_count;
    int spread_count; /* if no clocks are given: so many, evenly spread over those of the GPU */
    int repetitions;  /* for each clock */
    const char *output_path; /* NULL: no CSV */
    char **command;          /* keeps a real GPU busy; NULL: none */
    bool force, json;
} harpe_switch_request;

harpe_status harpe_profile_switch(const harpe_switch_request *request, harpe_error *error);

#endif
