/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a fleet: its plans, its messages, its terms, and the thread that talks to the server.
 *
 * A server runs the first plan whose power is within the member's cap, so a plan that another plan
 * beats would only make the numbers of the plans ambiguous. The plan of the chosen limit always
 * stays, because the job runs it when no budget is short.
 *
 * If the caller gives no name, a name is made that is different for every job, because two jobs of
 * one name would replace each other's plans.
 *
 * The thread declares the job, reports which limit the job runs, and passes on the limit that the
 * server asks for. Plans, changes and powers pass between the training thread and this thread
 * through atomic variables. Each request has one of these outcomes:
 *
 *   accepted   the thread reports again after report_s, or after a change
 *   forgotten  the server does not know the member of a report: the thread declares the job again
 *   refused    the thread tries again after refused_s
 *   lost       no harpe server has answered: the thread tries again soon
 *
 * If the server gives no limit for hold_s, the job runs its own limit again.
 * The log gets a line when the outcome changes, not for each attempt. */
#include "power_limit/member.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#include <jansson.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/process.h"
#include "base/text.h"
#include "base/token.h"
#include "base/wait.h"
#include "http/client/connection.h"

typedef enum member_standing {
    UNDECLARED, /* the server does not know the member */
    UNSTEERED,  /* declared with one plan, the highest power */
    STEERED,    /* declared with its plans */
} member_standing;

typedef enum member_contact {
    CONTACT_NONE,    /* nothing has been answered yet */
    CONTACT_KEPT,    /* the server answers */
    CONTACT_LOST,    /* no answer of a harpe server */
    CONTACT_REFUSED, /* the server refuses the member */
} member_contact;

/* Used by the member's thread alone. */
typedef struct member_talk {
    harpe_connection *connection;
    member_standing standing;
    member_contact contact;
    bool may_be_known;        /* a declaration was sent, so the server may know the member */
    bool has_told_forgotten;  /* the log says that the server has forgotten the member */
    int64_t asked_ns;         /* time of the first report that got no limit; 0: the last report got
                               * one */
    int64_t lost_since_ns;    /* time at which the contact was lost */
    int64_t leave_until_ns;   /* limit for the requests at the end; 0: the end has not come */
    uint64_t metered_changes; /* the value of `changes` at the last reading of the power; odd: the
                               * reading is of no use */
    double pause_s;           /* before the next attempt */
    unsigned random;
    char reason[HARPE_REASON_SIZE]; /* why the last request was refused or lost */
} member_talk;

struct harpe_power_member {
    const harpe_power_limit_fleet *terms;
    harpe_power_member_job job;
    harpe_power_member_times times;
    pid_t owner;
    pthread_t thread;
    int bell; /* eventfd: something has changed for the thread */

    /* Written by the training thread. */
    atomic_bool is_leaving, has_given_up;
    _Atomic(const harpe_limit_plans *) plans; /* NULL: not measured yet */
    _Atomic size_t plan;                      /* the plan that runs */
    _Atomic uint64_t changes;                 /* odd while the power limit is being changed */
    _Atomic double noted_w;                   /* below 0: reported already */
    _Atomic uint64_t noted_changes;           /* the value of `changes` for `noted_w` */

    _Atomic int64_t told; /* written by the member's thread; -1: nothing */

    member_talk talk;
};

/* ---- Plans ----------------------------------------------------------------------------------- */

/* The ranges that a server accepts. */
#define TIME_MIN_S 1e-9
#define TIME_MAX_S 1e9
#define POWER_MAX_W 1e8

static bool is_valid(const harpe_limit_plan *plan) {
    return plan->time_s >= TIME_MIN_S && plan->time_s <= TIME_MAX_S && plan->power_w > 0 &&
           plan->power_w <= POWER_MAX_W;
}

static int compare(const void *a, const void *b) {
    const harpe_limit_plan *x = a;
    const harpe_limit_plan *y = b;
    if (x->time_s != y->time_s) return x->time_s > y->time_s ? 1 : -1;
    if (x->power_w != y->power_w) return x->power_w > y->power_w ? 1 : -1;
    return (x->limit_w < y->limit_w) - (x->limit_w > y->limit_w);
}

/* Keeps the chosen plan. Leaves out plans that beat it, and plans that it or another plan beats.
 * `all` is sorted by time. */
static void keep_best(harpe_limit_plans *all, const harpe_limit_plan *chosen) {
    double least_w = INFINITY;
    size_t kept = 0;
    for (size_t i = 0; i < all->count; i++) {
        harpe_limit_plan plan = all->plans[i];
        bool is_chosen = plan.limit_w == chosen->limit_w;
        bool is_beaten = plan.power_w >= least_w ||
                         (plan.time_s <= chosen->time_s && plan.power_w <= chosen->power_w);
        if (is_beaten && !is_chosen) continue;
        if (is_chosen) all->chosen = kept;
        least_w = plan.power_w;
        all->plans[kept++] = plan;
    }
    all->count = kept;
}

/* Keeps the fastest, the slowest and the chosen plan, and others at equal distances. */
static void thin(harpe_limit_plans *all) {
    size_t count = all->count, chosen = all->chosen, kept = 0;
    if (count <= HARPE_LIMIT_PLANS_MAX) return;
    size_t slots = HARPE_LIMIT_PLANS_MAX - 1; /* the chosen plan may come in addition */
    size_t next = 0;                          /* number of the next plan at equal distances */
    for (size_t i = 0; i < count; i++) {
        bool is_next = i == next * (count - 1) / (slots - 1);
        if (is_next) next++;
        if (!is_next && i != chosen) continue;
        if (i == chosen) all->chosen = kept;
        all->plans[kept++] = all->plans[i];
    }
    all->count = kept;
}

harpe_status harpe_limit_plans_make(const harpe_power_limit_measurement *measurements, size_t count,
                                    int optimum_w, int steps, harpe_limit_plans **out,
                                    harpe_error *error) {
    harpe_limit_plans *all = harpe_calloc(1, sizeof *all + count * sizeof *all->plans);
    harpe_limit_plan chosen = {0};
    if (!all) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        const harpe_power_limit_measurement *one = &measurements[i];
        harpe_limit_plan plan = {one->power_limit_w, one->time_s / steps,
                                 one->energy_j / one->time_s};
        if (!is_valid(&plan)) continue;
        if (one->power_limit_w == optimum_w) chosen = plan;
        all->plans[all->count++] = plan;
    }
    if (chosen.limit_w == 0) {
        free(all);
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the measurement at %d W is outside of what a fleet accepts", optimum_w);
    }
    qsort(all->plans, all->count, sizeof *all->plans, compare);
    keep_best(all, &chosen);
    thin(all);
    *out = all;
    return HARPE_OK;
}

/* ---- Messages -------------------------------------------------------------------------------- */

#define UNKNOWN_TIME_S 1.0

static void append_plan(harpe_text *body, const char *before, double time_s, double power_w) {
    harpe_json_raw(body, before);
    harpe_json_number(body, "{\"time\":", time_s);
    harpe_json_number(body, ",\"power\":", power_w);
    harpe_json_raw(body, "}");
}

static void append_terms(harpe_text *body, const harpe_power_limit_fleet *terms) {
    harpe_json_raw(body, "]");
    if (terms->group) harpe_json_string(body, ",\"group\":", terms->group);
    if (terms->weight > 0) harpe_json_number(body, ",\"weight\":", terms->weight);
    if (terms->max_slowdown > 0) harpe_json_number(body, ",\"max_slowdown\":", terms->max_slowdown);
}

void harpe_member_declare_unsteered(const harpe_power_limit_fleet *terms, double highest_w,
                                    harpe_text *body) {
    append_plan(body, "{\"plans\":[", UNKNOWN_TIME_S, highest_w);
    append_terms(body, terms);
    harpe_json_raw(body, "}");
}

void harpe_member_declare(const harpe_power_limit_fleet *terms, const harpe_limit_plans *plans,
                          harpe_text *body) {
    for (size_t i = 0; i < plans->count; i++)
        append_plan(body, i == 0 ? "{\"plans\":[" : ",", plans->plans[i].time_s,
                    plans->plans[i].power_w);
    append_terms(body, terms);
    harpe_json_number(body, ",\"most_w\":", plans->plans[plans->chosen].power_w);
    harpe_json_raw(body, "}");
}

void harpe_member_report(size_t plan, double power_w, harpe_text *body) {
    harpe_text_printf(body, "{\"plan\":%zu", plan);
    if (power_w >= 0) harpe_json_number(body, ",\"power\":", power_w);
    harpe_json_raw(body, "}");
}

bool harpe_member_read_answer(const char *bytes, size_t length, size_t count, size_t *plan) {
    json_t *answer = json_loadb(bytes, length, 0, NULL);
    const json_t *number = json_object_get(answer, "plan");
    json_int_t value = json_is_integer(number) ? json_integer_value(number) : -1;
    json_decref(answer);
    if (value < 0 || (unsigned long long)value >= count) return false;
    *plan = (size_t)value;
    return true;
}

/* ---- Terms ----------------------------------------------------------------------------------- */

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
    /* The result is ignored, because the kernel always has this many random bytes. */
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

/* ---- The outcome of a request ---------------------------------------------------------------- */

#define FIRST_PAUSE_S 0.5

typedef enum outcome { ACCEPTED, FORGOTTEN, REFUSED, LOST, ENDED } outcome;

/* A server counts a member as silent after 30 s. A report comes much more often, because a job
 * follows a new budget only with its next report. */
const harpe_power_member_times harpe_power_member_usual_times = {
    .report_s = 5, .answer_s = 10, .retry_s = 5, .refused_s = 60, .leave_s = 5};

/* Writes a line to the log. */
static void HARPE_PRINTF(3, 4)
    say(const harpe_power_member *member, harpe_log_level level, const char *format, ...) {
    char prefix[300];
    (void)snprintf(prefix, sizeof prefix, "fleet member %.255s: ", member->terms->member);
    va_list arguments;
    va_start(arguments, format);
    harpe_log_prefixed_line(&member->job.log, level, prefix, format, arguments);
    va_end(arguments);
}

/* ---- The hold -------------------------------------------------------------------------------- */

/* Returns for how many seconds the job still keeps the limit that the server has given. The time
 * begins with the first report that gets no limit, so it does not depend on the time between two
 * reports. Returns INFINITY if the last report got a limit, or if the job keeps no limit. */
static double hold_left_s(const harpe_power_member *member) {
    const member_talk *talk = &member->talk;
    if (talk->asked_ns == 0 || atomic_load(&member->told) < 0) return INFINITY;
    return member->terms->hold_s - (double)(harpe_clock_ns() - talk->asked_ns) * 1e-9;
}

/* Returns the job to its own limit if hold_s have passed since the first report that got no limit.
 */
static void end_hold_in_time(harpe_power_member *member) {
    double left_s = hold_left_s(member);
    if (left_s > 0) return;
    atomic_store(&member->told, -1);
    say(member, HARPE_LOG_WARNING,
        "the server has given no limit for %s: the job runs its own power limit again",
        HARPE_TIME(member->terms->hold_s - left_s));
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* The connection's `go_on`. `user`: the member. */
static bool go_on(void *user) {
    harpe_power_member *member = user;
    member_talk *talk = &member->talk;
    if (!atomic_load(&member->is_leaving)) {
        end_hold_in_time(member);
        return true;
    }
    if (talk->leave_until_ns == 0)
        talk->leave_until_ns = harpe_clock_ns() + (int64_t)(member->times.leave_s * 1e9);
    return harpe_clock_ns() < talk->leave_until_ns;
}

static void silence_bell(const harpe_power_member *member) {
    uint64_t rings;
    ssize_t ignored = read(member->bell, &rings, sizeof rings);
    (void)ignored;
}

/* Waits until the time has passed or the member leaves. If `hears`, also ends when the bell rings:
 * the job has changed something that this thread must tell the server. */
static void rest(harpe_power_member *member, double seconds, bool hears) {
    int64_t end_ns = harpe_clock_ns() + (int64_t)(seconds * 1e9);
    while (!atomic_load(&member->is_leaving)) {
        end_hold_in_time(member);
        double left_s = (double)(end_ns - harpe_clock_ns()) * 1e-9;
        double wait_s = fmax(0, fmin(left_s, hold_left_s(member)));
        struct pollfd bell = {.fd = member->bell, .events = POLLIN};
        if (left_s <= 0) return;
        bool has_rung = harpe_poll(&bell, 1, (int64_t)ceil(wait_s * 1e9)) > 0;
        if (has_rung) silence_bell(member);
        if (has_rung && hears) return;
    }
}

static double first_pause_s(const harpe_power_member *member) {
    return member->times.retry_s < FIRST_PAUSE_S ? member->times.retry_s : FIRST_PAUSE_S;
}

/* ---- The contact ----------------------------------------------------------------------------- */

static void tell_kept(harpe_power_member *member) {
    member_talk *talk = &member->talk;
    if (talk->contact == CONTACT_NONE)
        say(member, HARPE_LOG_INFO, "declared to %.200s",
            harpe_connection_server(talk->connection));
    else if (talk->contact != CONTACT_KEPT)
        say(member, HARPE_LOG_INFO, "the server is back after %s",
            HARPE_TIME((double)(harpe_clock_ns() - talk->lost_since_ns) * 1e-9));
    talk->contact = CONTACT_KEPT;
    talk->pause_s = first_pause_s(member);
}

static void tell_lost(harpe_power_member *member, member_contact contact) {
    member_talk *talk = &member->talk;
    bool is_new = talk->contact != CONTACT_LOST && talk->contact != CONTACT_REFUSED;
    if (is_new) talk->lost_since_ns = harpe_clock_ns();
    if (talk->contact == contact) return;
    talk->contact = contact;
    say(member, HARPE_LOG_WARNING, "no power limits from the fleet for now, training continues: %s",
        talk->reason);
}

/* Logs a change of the outcome, and waits if the request has failed. Returns true if the request
 * was accepted. */
static bool settle(harpe_power_member *member, outcome got) {
    member_talk *talk = &member->talk;
    switch (got) {
    case ACCEPTED: tell_kept(member); return true;
    case REFUSED:
        tell_lost(member, CONTACT_REFUSED);
        rest(member, member->times.refused_s, false);
        return false;
    case LOST: {
        double jitter = 0.5 + (double)rand_r(&talk->random) / RAND_MAX / 2;
        tell_lost(member, CONTACT_LOST);
        rest(member, talk->pause_s * jitter, false);
        talk->pause_s =
            talk->pause_s * 2 < member->times.retry_s ? talk->pause_s * 2 : member->times.retry_s;
        return false;
    }
    case FORGOTTEN:
    case ENDED:
    default: return false;
    }
}

/* ---- Requests -------------------------------------------------------------------------------- */

static outcome nonsense(harpe_power_member *member, long http_status) {
    harpe_tell_nonsense(http_status, member->talk.reason);
    return LOST;
}

static outcome outcome_of(long http_status) {
    switch (http_status) {
    case 404: return FORGOTTEN;
    case 400:
    case 401:
    case 403:
    case 409:
    case 413:
    case 422:
    case 429: return REFUSED;
    default: return LOST;
    }
}

/* Sends a request about the member. `*answer` is valid if the outcome is ACCEPTED. */
static outcome send_request(harpe_power_member *member, const char *method, const harpe_text *body,
                            harpe_answer *answer) {
    harpe_request request = {.path = "/fleet/members/",
                             .segment = member->terms->member,
                             .body = body ? body->data : NULL,
                             .method = method};
    if (body && body->failed) {
        (void)strcpy(member->talk.reason, "out of memory");
        return LOST;
    }
    switch (harpe_exchange(member->talk.connection, &request, answer, member->talk.reason)) {
    case HARPE_EXCHANGE_ACCEPTED: return ACCEPTED;
    case HARPE_EXCHANGE_REFUSED: return outcome_of(answer->http_status);
    case HARPE_EXCHANGE_INTERRUPTED: return ENDED;
    case HARPE_EXCHANGE_NONSENSE:
    case HARPE_EXCHANGE_UNANSWERED:
    default: return LOST;
    }
}

/* Sends a request whose answer has no content. */
static outcome send_without_content(harpe_power_member *member, const char *method,
                                    const harpe_text *body) {
    harpe_answer answer;
    outcome got = send_request(member, method, body, &answer);
    bool has_content = got == ACCEPTED && strncmp(answer.body, "null", 4) != 0;
    return has_content ? nonsense(member, answer.http_status) : got;
}

/* ---- Declaring ------------------------------------------------------------------------------- */

static member_standing wanted_standing(const harpe_power_member *member) {
    bool is_steered = atomic_load(&member->plans) && !atomic_load(&member->has_given_up);
    return is_steered ? STEERED : UNSTEERED;
}

static void declare(harpe_power_member *member, member_standing standing) {
    member_talk *talk = &member->talk;
    harpe_text body = {0};
    if (standing == STEERED)
        harpe_member_declare(member->terms, atomic_load(&member->plans), &body);
    else
        harpe_member_declare_unsteered(member->terms, member->job.highest_w, &body);
    talk->may_be_known = true;
    outcome got = send_without_content(member, "PUT", &body);
    harpe_text_free(&body);
    if (got == FORGOTTEN) got = REFUSED; /* it is the route that is not known */
    if (settle(member, got)) talk->standing = standing;
}

/* ---- Reporting ------------------------------------------------------------------------------- */

/* Returns the mean power of the job since the last report. `changes`: the value of member->changes
 * before the plan was read. If the limit has changed since the last report, the power belongs to no
 * plan, and the function returns -1. Also returns -1 if the power is not known. */
static double measured_w(harpe_power_member *member, uint64_t changes) {
    member_talk *talk = &member->talk;
    const harpe_power_limit_device *device = member->job.device;
    double power_w = 0;
    if (!device || !device->mean_power) {
        bool is_current = changes % 2 == 0 && atomic_load(&member->noted_changes) == changes;
        if (!is_current) return -1;
        power_w = atomic_exchange(&member->noted_w, -1);
        return atomic_load(&member->changes) == changes && power_w > 0 ? power_w : -1;
    }
    harpe_status status = device->mean_power(device->user, &power_w, NULL);
    bool has_changed =
        status != HARPE_OK || changes % 2 != 0 || atomic_load(&member->changes) != changes;
    bool is_of_plan = !has_changed && talk->metered_changes == changes;
    talk->metered_changes = has_changed ? 1 : changes;
    return is_of_plan && power_w > 0 ? power_w : -1;
}

static void tell_forgotten(harpe_power_member *member) {
    member_talk *talk = &member->talk;
    if (!talk->has_told_forgotten)
        say(member, HARPE_LOG_WARNING,
            "the server does not know this member any more: declaring it again");
    talk->has_told_forgotten = true;
    talk->standing = UNDECLARED;
}

/* Sends a report, and takes the limit of the answer. Returns true if the report was accepted. */
static bool report(harpe_power_member *member) {
    member_talk *talk = &member->talk;
    bool is_steered = talk->standing == STEERED;
    size_t count = is_steered ? atomic_load(&member->plans)->count : 1;
    size_t plan = 0;
    harpe_text body = {0};
    harpe_answer answer;
    /* If the plan changes after this line, measured_w returns -1. */
    uint64_t changes = atomic_load(&member->changes);
    size_t running = is_steered ? atomic_load(&member->plan) : 0;
    double power_w = measured_w(member, changes);
    if (talk->asked_ns == 0) talk->asked_ns = harpe_clock_ns();
    harpe_member_report(running, power_w, &body);
    outcome got = send_request(member, "POST", &body, &answer);
    harpe_text_free(&body);
    if (got == ACCEPTED && !harpe_member_read_answer(answer.body, answer.length, count, &plan))
        got = nonsense(member, answer.http_status);
    if (got == FORGOTTEN) {
        tell_forgotten(member);
        rest(member, first_pause_s(member), false);
    }
    if (!settle(member, got)) return false;
    talk->has_told_forgotten = false;
    talk->asked_ns = 0;
    atomic_store(&member->told, is_steered ? (int64_t)plan : -1);
    return true;
}

/* ---- The end --------------------------------------------------------------------------------- */

static void leave(harpe_power_member *member) {
    if (!member->talk.may_be_known) return;
    outcome got = send_without_content(member, "DELETE", NULL);
    if (got == ACCEPTED || got == FORGOTTEN) return;
    say(member, HARPE_LOG_WARNING,
        "the server may still count this member (%s): when the server answers, "
        "remove it with 'harpe fleet member remove'",
        got == ENDED ? "it does not answer" : member->talk.reason);
}

/* ---- The thread ------------------------------------------------------------------------------ */

static void *run_member(void *user) {
    harpe_power_member *member = user;
    member->talk.pause_s = first_pause_s(member);
    while (!atomic_load(&member->is_leaving)) {
        member_standing wanted = wanted_standing(member);
        if (member->talk.standing != wanted)
            declare(member, wanted);
        else if (report(member))
            rest(member, member->times.report_s, true);
    }
    leave(member);
    return NULL;
}

/* ---- Joining and leaving --------------------------------------------------------------------- */

static void ring(const harpe_power_member *member) {
    uint64_t one = 1;
    int errno_before = errno;
    ssize_t ignored = write(member->bell, &one, sizeof one);
    (void)ignored;
    errno = errno_before;
}

static void free_member(harpe_power_member *member) {
    harpe_connection_free(member->talk.connection);
    if (member->bell >= 0) (void)close(member->bell);
    free(member);
}

static harpe_status start(harpe_power_member *member, harpe_error *error) {
    const harpe_power_limit_fleet *terms = member->terms;
    harpe_connection_options how = {.server_url = terms->server_url,
                                    .token = terms->token,
                                    .ca_file = terms->ca_file,
                                    .connect_limit_s = member->times.answer_s,
                                    .answer_limit_s = member->times.answer_s,
                                    .answer_limit_bytes = 1 << 20,
                                    .go_on = go_on,
                                    .user = member};
    harpe_status status = harpe_connection_new(&how, &member->talk.connection, error);
    if (status != HARPE_OK) return status;
    member->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (member->bell < 0) return harpe_fail_errno(error, errno, "a member of a fleet");
    int failure = harpe_thread_start(&member->thread, "harpe-fleet", run_member, member);
    if (failure) return harpe_fail_errno(error, failure, "a thread for a member of a fleet");
    return HARPE_OK;
}

harpe_status harpe_power_member_join(const harpe_power_limit_fleet *terms,
                                     const harpe_power_member_job *job,
                                     const harpe_power_member_times *times,
                                     harpe_power_member **out, harpe_error *error) {
    harpe_power_member *member = harpe_calloc(1, sizeof *member);
    if (!member) return harpe_fail_memory(error);
    member->terms = terms;
    member->job = *job;
    member->times = *times;
    member->owner = harpe_process_self();
    member->bell = -1;
    member->told = -1;
    member->noted_w = -1;
    member->talk.metered_changes = 1;
    member->talk.random = (unsigned)harpe_clock_ns() ^ (unsigned)member->owner;
    harpe_status status = start(member, error);
    if (status != HARPE_OK) {
        free_member(member);
        return status;
    }
    *out = member;
    return HARPE_OK;
}

void harpe_power_member_leave(harpe_power_member *member) {
    if (!member || member->owner != harpe_process_self()) return;
    atomic_store(&member->is_leaving, true);
    ring(member);
    harpe_connection_wake(member->talk.connection);
    harpe_thread_join(member->thread);
    free_member(member);
}

/* ---- Training thread ------------------------------------------------------------------------- */

void harpe_power_member_take_plans(harpe_power_member *member, const harpe_limit_plans *plans) {
    if (!member) return;
    /* Until now, limits were measured. A power from that time belongs to no plan. */
    atomic_fetch_add(&member->changes, 2);
    atomic_store(&member->plan, plans->chosen);
    atomic_store(&member->plans, plans);
    ring(member);
}

void harpe_power_member_give_up(harpe_power_member *member) {
    if (!member) return;
    atomic_store(&member->has_given_up, true);
    ring(member);
}

int64_t harpe_power_member_told(const harpe_power_member *member) {
    return member ? atomic_load(&member->told) : -1;
}

void harpe_power_member_begin_change(harpe_power_member *member) {
    if (member) atomic_fetch_add(&member->changes, 1);
}

void harpe_power_member_end_change(harpe_power_member *member, size_t plan) {
    if (!member) return;
    atomic_store(&member->plan, plan);
    atomic_fetch_add(&member->changes, 1);
    ring(member);
}

void harpe_power_member_note_power(harpe_power_member *member, double power_w) {
    if (!member) return;
    atomic_store(&member->noted_w, power_w);
    atomic_store(&member->noted_changes, atomic_load(&member->changes));
}
