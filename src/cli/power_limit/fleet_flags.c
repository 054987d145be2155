/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the flags of a member of a fleet. The names of the flags and variables are those of the
 * other clients of a server. */
#include "cli/power_limit/fleet_flags.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/token.h"
#include "cli/command.h"
#include "http/client/connection.h"

enum {
    FLAG_SERVER = 0x700,
    FLAG_MEMBER,
    FLAG_GROUP,
    FLAG_WEIGHT,
    FLAG_MAX_SLOWDOWN,
    FLAG_HOLD,
    FLAG_TOKEN_FILE,
    FLAG_CA_FILE,
};

static const struct argp_option flags_table[] = {
    {NULL, 0, NULL, 0, "Fleet:", 4},
    {"server", FLAG_SERVER, "URL", 0,
     "Be a member of the fleet of this server ($HARPE_SERVER; an empty URL: of none)", 4},
    {"member", FLAG_MEMBER, "NAME", 0, "Name of the member (default: made from host and job)", 4},
    {"group", FLAG_GROUP, "NAME", 0, "Group of the member (default: none)", 4},
    {"weight", FLAG_WEIGHT, "N", 0, "Value of the job's time (default 1)", 4},
    {"max-slowdown", FLAG_MAX_SLOWDOWN, "X", 0,
     "Accept at most X times the time of the fastest plan (default: any)", 4},
    {"hold", FLAG_HOLD, "SECONDS", 0,
     "Keep the fleet's limit so long if the server gives none (default 3600; inf: for ever)", 4},
    {"token-file", FLAG_TOKEN_FILE, "FILE", 0,
     "File whose first line is the server's bearer token (HARPE_TOKEN)", 4},
    {"ca-file", FLAG_CA_FILE, "FILE", 0, "Trust these certificate authorities (PEM)", 4},
    {0},
};

static void initialise(harpe_fleet_flags *flags) {
    *flags = (harpe_fleet_flags){.fleet = {.server_url = getenv("HARPE_SERVER")}};
}

static void check_complete(const struct argp_state *state, const harpe_fleet_flags *flags) {
    const char *url = flags->fleet.server_url;
    harpe_error error;
    if (flags->own && (!url || !*url))
        harpe_flag_fail(state, "--%s needs --server URL, or HARPE_SERVER", flags->own);
    if (url && *url && harpe_server_url_check("--server", url, &error) != HARPE_OK)
        harpe_flag_fail(state, "%s", error.message);
}

static double read_hold(const struct argp_state *state, const char *argument) {
    if (strcmp(argument, "inf") == 0) return INFINITY;
    return harpe_flag_double_above(state, "--hold", argument, 0, 1e9);
}

/* Returns the name of the flag, such as "group"; NULL: `key` is no flag that needs a server. */
static const char *flag_that_needs_server(int key) {
    for (const struct argp_option *flag = flags_table; flag->name || flag->doc; flag++)
        if (flag->key == key && key > FLAG_SERVER) return flag->name;
    return NULL;
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    harpe_fleet_flags *flags = state->input;
    harpe_power_limit_fleet *fleet = &flags->fleet;
    const char *own = flag_that_needs_server(key);
    if (own) flags->own = own;
    switch (key) {
    case ARGP_KEY_INIT: initialise(flags); return 0;
    case ARGP_KEY_SUCCESS: check_complete(state, flags); return 0;
    case FLAG_SERVER: fleet->server_url = argument; return 0;
    case FLAG_MEMBER: fleet->member = argument; return 0;
    case FLAG_GROUP: fleet->group = argument; return 0;
    case FLAG_WEIGHT:
        fleet->weight = harpe_flag_double_above(state, "--weight", argument, 0, 1e12);
        return 0;
    case FLAG_MAX_SLOWDOWN:
        fleet->max_slowdown = harpe_flag_double(state, "--max-slowdown", argument, 1, 1e9);
        return 0;
    case FLAG_HOLD: fleet->hold_s = read_hold(state, argument); return 0;
    case FLAG_TOKEN_FILE: flags->token_file = argument; return 0;
    case FLAG_CA_FILE: fleet->ca_file = argument; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp harpe_fleet_argp = {.options = flags_table, .parser = parse_flag};

harpe_status harpe_fleet_flags_finish(harpe_fleet_flags *flags, const harpe_power_limit_fleet **out,
                                      harpe_error *error) {
    harpe_power_limit_fleet *fleet = &flags->fleet;
    *out = NULL;
    if (!fleet->server_url || !*fleet->server_url) return HARPE_OK;
    if (flags->token_file) {
        harpe_status status =
            harpe_token_read(flags->token_file, "--token-file", &flags->token, error);
        if (status != HARPE_OK) return status;
        fleet->token = flags->token;
    }
    *out = fleet;
    return HARPE_OK;
}

void harpe_fleet_flags_free(harpe_fleet_flags *flags) {
    if (flags->token) explicit_bzero(flags->token, strlen(flags->token));
    free(flags->token);
    flags->token = NULL;
    flags->fleet.token = NULL;
}
