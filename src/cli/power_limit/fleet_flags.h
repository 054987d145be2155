/* SPDX-License-Identifier: Apache-2.0 */
/* The flags with which `harpe power-limit run` makes its job a member of a fleet. */
#ifndef HARPE_CLI_POWER_LIMIT_FLEET_FLAGS_H
#define HARPE_CLI_POWER_LIMIT_FLEET_FLAGS_H

#include <argp.h>

#include <harpe/power_limit.h>

typedef struct harpe_fleet_flags {
    harpe_power_limit_fleet fleet;
    const char *token_file;
    char *token;     /* owned */
    const char *own; /* name of a flag that needs a server; NULL: none was given */
} harpe_fleet_flags;

/* A child parser of argp. Its input is a harpe_fleet_flags, which it initialises. */
extern const struct argp harpe_fleet_argp;

/* Reads the file of the token. Returns the fleet of the job in `*out`; NULL: none. */
harpe_status harpe_fleet_flags_finish(harpe_fleet_flags *flags, const harpe_power_limit_fleet **out,
                                      harpe_error *error);
void harpe_fleet_flags_free(harpe_fleet_flags *flags);

#endif
