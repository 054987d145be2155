/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a moment that a person or another program has written. */
#ifndef HARPE_FLEET_MOMENT_H
#define HARPE_FLEET_MOMENT_H

#include <stdbool.h>
#include <stddef.h>

/* The latest moment, in seconds since 1970. */
#define HARPE_MOMENT_MAX_S 1e11

/* Reads seconds since 1970, such as 1764100000.5, or a time of ISO 8601 with its offset from UTC,
 * such as 2026-11-26T06:00Z, 2026-11-26 07:00:00+01:00 or 2026-11-26T07:00:00.5+0100. Returns false
 * for another text, and for a moment before 1970 or after HARPE_MOMENT_MAX_S. */
bool harpe_moment_read(const char *text, size_t length, double *seconds);

#endif
