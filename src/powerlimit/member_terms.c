/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and copies the terms on which a job is a member of a fleet, and makes its name and its
 * token if the caller gives none. A made name is different for every job, because two jobs of one
 * name would replace each other's plans. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clean.h"
#include "base/error.h"
#include "base/process.h"
#include "base/random.h"
#include "base/token.h"
#include "http/client/connection.h"
#include "powerlimit/member.h"

#define HOLD_S 3600.0
#define WEIGHT_MAX 1e12
#define SLOWDOWN_MAX 1e9

enum { NAME_MAX_BYTES = 255 };

/* ---- Checks ---------------------------------------------------------------------------------- */

static harpe_status check_name(const char *what, const char *name, harpe_error *error) {
    if (!name) return HARPE_OK;
    size_t length = strlen(name);
    bool is_safe = length > 0 && length <= NAME_MAX_BYTES;
    for (const char *c = name; is_safe && *c;) {
        size_t step;
        is_safe = harpe_character_is_safe(harpe_character(c, &step));
        c += step;
    }
    if (is_safe) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "fleet: %s must have 1 to %d bytes of UTF-8 without control characters", what,
                      NAME_MAX_BYTES);
}

/* A value of 0 means the default. So if `least` is 0, the value must be above 0. */
static harpe_status check_number(const char *what, double value, double least, double most,
                                 harpe_error *error) {
    if (value == 0 || (value >= least && value <= most)) return HARPE_OK;
    if (least > 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "fleet: %s must be from %g to %g, not %g",
                          what, least, most, value);
    if (isinf(most))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "fleet: %s must be above 0, not %g", what,
                          value);
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "fleet: %s must be above 0 and at most %g, not %g", what, most, value);
}

static harpe_status check(const harpe_power_limit_fleet *terms, harpe_error *error) {
    harpe_status status = harpe_server_url_check("fleet: server_url", terms->server_url, error);
    if (status == HARPE_OK) status = check_name("the name of the member", terms->member, error);
    if (status == HARPE_OK) status = check_name("group", terms->group, error);
    if (status == HARPE_OK) status = check_number("weight", terms->weight, 0, WEIGHT_MAX, error);
    if (status == HARPE_OK)
        status = check_number("max_slowdown", terms->max_slowdown, 1, SLOWDOWN_MAX, error);
    if (status == HARPE_OK) status = check_number("hold_s", terms->hold_s, 0, INFINITY, error);
    return status;
}

/* ---- The name -------------------------------------------------------------------------------- */

static bool is_job_number(const char *text) {
    size_t digits = text ? strspn(text, "0123456789") : 0;
    return digits > 0 && digits <= 20 && !text[digits];
}

/* Makes a name from the host, the number of the Slurm job or of this process, and random bits. The
 * random bits make it unique even in containers with the same host name and process numbers. */
static char *make_name(void) {
    char host[65] = "";
    char name[NAME_MAX_BYTES + 1];
    unsigned random = 0;
    if (gethostname(host, sizeof host - 1) != 0 || !*host) (void)strcpy(host, "host");
    host[strcspn(host, ".")] = '\0';
    harpe_clean_in_place(host);
    /* Ignores the result, because the kernel always has this many random bytes. */
    (void)harpe_random(&random, sizeof random);
    const char *job = secure_getenv("SLURM_JOB_ID");
    if (is_job_number(job))
        (void)snprintf(name, sizeof name, "%s-%s-%06x", host, job, random & 0xffffffU);
    else
        (void)snprintf(name, sizeof name, "%s-%ld-%06x", host, (long)harpe_process_self(),
                       random & 0xffffffU);
    return strdup(name);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static char *copy(const char *text) { return text ? strdup(text) : NULL; }

static bool copy_texts(const harpe_power_limit_fleet *terms, harpe_power_limit_fleet *own) {
    own->server_url = copy(terms->server_url);
    own->member = terms->member ? copy(terms->member) : make_name();
    own->group = copy(terms->group);
    own->ca_file = copy(terms->ca_file);
    return own->server_url && own->member && (own->group || !terms->group) &&
           (own->ca_file || !terms->ca_file);
}

harpe_status harpe_power_member_take_terms(const harpe_power_limit_fleet *terms,
                                           harpe_power_limit_fleet **own, harpe_error *error) {
    if (!terms || !terms->server_url || !*terms->server_url) {
        *own = NULL;
        return HARPE_OK;
    }
    harpe_status status = check(terms, error);
    if (status != HARPE_OK) return status;
    harpe_power_limit_fleet *made = harpe_calloc(1, sizeof *made);
    char *token = NULL;
    if (!made) return harpe_fail_memory(error);
    made->weight = terms->weight;
    made->max_slowdown = terms->max_slowdown;
    made->hold_s = terms->hold_s > 0 ? terms->hold_s : HOLD_S;
    if (!copy_texts(terms, made)) status = harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = terms->token
                     ? harpe_token_take(terms->token, "the option token", &token, error)
                     : harpe_token_take(secure_getenv("HARPE_TOKEN"), "HARPE_TOKEN", &token, error);
    made->token = token;
    if (status != HARPE_OK) {
        harpe_power_member_forget_terms(made);
        return status;
    }
    *own = made;
    return HARPE_OK;
}

void harpe_power_member_forget_terms(harpe_power_limit_fleet *terms) {
    if (!terms) return;
    free((char *)terms->server_url);
    free((char *)terms->member);
    free((char *)terms->group);
    free((char *)terms->ca_file);
    if (terms->token) explicit_bzero((char *)terms->token, strlen(terms->token));
    free((char *)terms->token);
    free(terms);
}
