/* SPDX-License-Identifier: Apache-2.0 */
/* What a test tells the scripted AMD SMI library, and what that tells the test: the library exports
 * one `scripted` of this type. */
#ifndef HARPE_TESTS_SCRIPTED_AMDSMI_H
#define HARPE_TESTS_SCRIPTED_AMDSMI_H

#include <stdbool.h>
#include <stdint.h>

typedef struct scripted_amdsmi {
    /* From the test. */
    uint32_t version;     /* 0: 26 */
    uint32_t refused_set; /* this set call, counted from 1, answers `refusal`; 0: none */
    uint32_t refusal;
    bool refuses_all_sets;
    bool has_levels; /* the graphics clock has levels instead of a range */
    /* To the test. */
    char sets[4096]; /* the calls that set something, one a line, in order */
    uint32_t set_count;
    uint32_t overlaps; /* calls that began before another had returned */
    int starts;        /* amdsmi_init less amdsmi_shut_down */
} scripted_amdsmi;

#endif
