/* SPDX-License-Identifier: Apache-2.0 */
/* Tells by their names which kernels communicate. */
#ifndef HARPE_TRACE_KERNEL_NAMES_H
#define HARPE_TRACE_KERNEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

#include "base/text.h"

typedef struct harpe_kernel_names harpe_kernel_names;

/* Makes names: those of known libraries, and those that match one of the patterns, which are POSIX
 * extended regular expressions. The patterns must stay valid. Fails if a pattern is wrong. Free
 * `*out` with harpe_kernel_names_free. */
harpe_status harpe_kernel_names_new(const char *const *patterns, size_t pattern_count,
                                    harpe_kernel_names **out, harpe_error *error);
/* Returns true if an event of this name communicates, and counts its time. */
bool harpe_kernel_names_communicate(harpe_kernel_names *names, const char *name, double time_s);
/* Append a sentence without a full stop, or nothing: about the longest kernels that did not count
 * as communication but look like it, and about the first pattern that no name matched. */
void harpe_kernel_names_note_similar(const harpe_kernel_names *names, harpe_text *text);
void harpe_kernel_names_note_unmatched(const harpe_kernel_names *names, harpe_text *text);
void harpe_kernel_names_free(harpe_kernel_names *names);

#endif
