/* SPDX-License-Identifier: Apache-2.0 */
/* The data that a test and the scripted AMD SMI library exchange: the library exports one
 * `scripted` of this type. */
#ifndef HARPE_TESTS_SCRIPTED_AMDSMI_H
#define HARPE_TESTS_SCRIPTED_AMDSMI_H

#include <stdbool.h>
#include <stdint.h>

typedef struct scripted_amdsmi {
    /* Set by the test. */
    uint32_t version;     /* 0: 26 */
    uint32_t refused_set; /* this set call, counted from 1, returns `refusal`; 0: none */
    uint32_t refusal;
    bool refuses_all_sets;
    uint32_t power_w;  /* what all GPUs draw, and 1 W more; 0: their own power */
    bool ignores_caps; /* a power cap is accepted without effect */
    bool has_levels;   /* the graphics clock has levels instead of a range */
    /* Set by the library. */
    char sets[4096]; /* the set calls, one per line, in order */
    uint32_t set_count;
    uint32_t overlaps; /* number of calls that began before another had returned */
    int starts;        /* calls of amdsmi_init minus calls of amdsmi_shut_down */
} scripted_amdsmi;

#endif
