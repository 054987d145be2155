/* SPDX-License-Identifier: Apache-2.0 */
/* Every server looks at the database twice a second. When the leader looks, it counts a heartbeat,
 * and the database confirms that it leads. When another server looks, it reads the leader's
 * heartbeat and tries to own the store. A server that owns the store loads the jobs and leads.
 *
 * A leader may be suspended or lose its network while another server becomes the leader. When it
 * continues, it does no harm. It cannot write, because only the session that owns the store can
 * write. It does not answer with old data either. A leader answers only during LEASE_NS after the
 * database has confirmed that it leads, and a new leader waits for this time before its first
 * answer. */
#include "server/lead/lead.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/platform.h"
#include "server/engine/engine.h"

/* A leader counts as dead when its heartbeat has not changed for DEAD_NS. If a look takes SLOW_NS
 * or longer, the database is slow, and the leader's heartbeat may be late for this reason. */
#define LEASE_NS INT64_C(2000000000)
#define DEAD_NS INT64_C(6000000000)
#define SLOW_NS INT64_C(1000000000)
#define LONGEST_WAIT_NS INT64_C(30000000000) /* of a call while no server leads */
#define LOAD_AGAIN_NS INT64_C(5000000000)
enum { LOOK_EVERY_MS = 500, RETIRED_MAX = 4 };

/* An engine and its fleet. */
typedef struct pair {
    harpe_jobs *jobs;
    harpe_steering *steering; /* NULL: it could not be loaded */
} pair;

struct harpe_lead {
    harpe_jobs_options engine;
    pair leading; /* zeros: another server leads, or no server leads */
    /* Engines from earlier times of leading that still finish their work. */
    pair retired[RETIRED_MAX];
    int retired_count;
    bool is_stopping;

    /* The members below are zero if the store belongs to this server alone. */
    harpe_store_server me;
    harpe_timer *timer;
    harpe_work work; /* looks at the database */
    bool is_looking, may_own;
    int64_t asked_ns;          /* when the look began, harpe_clock_boot_ns */
    int64_t beats_as;          /* the id with which it counts a heartbeat; 0: it counts none */
    int64_t dead_beat;         /* see harpe_store_watch */
    harpe_store_leader seen;   /* what the look has found */
    harpe_ownership ownership; /* whether the look has made this server the owner */
    harpe_status looked;

    harpe_store_leader leader; /* at the last look that succeeded */
    int64_t looked_ns;         /* when that look began */
    int64_t alive_ns;          /* when the leader's heartbeat was last seen to change */
    int64_t led_ns;            /* when a server was last seen to lead */
    bool is_owner;
    int64_t lead_at_ns; /* when the owner may begin to lead, or another server may try to own */
    harpe_call_list waiting;
    char elsewhere[HARPE_STORE_ADDRESS_SIZE + 80];
};

static void tick(void *user);

/* ---- Looking at the state -------------------------------------------------------------------- */

const harpe_jobs *harpe_lead_jobs(const harpe_lead *lead) { return lead->leading.jobs; }

const harpe_steering *harpe_lead_steering(const harpe_lead *lead) { return lead->leading.steering; }

static bool is_shared(const harpe_lead *lead) { return lead->me.id != 0; }

/* Returns true if this server may give answers at this moment. */
static bool leads(const harpe_lead *lead) {
    if (!lead->leading.jobs) return false;
    return !is_shared(lead) || harpe_clock_boot_ns() - lead->looked_ns < LEASE_NS;
}

static bool is_elsewhere(const harpe_lead *lead) {
    return is_shared(lead) && lead->leader.id != 0 && lead->leader.id != lead->me.id;
}

const char *harpe_lead_elsewhere(const harpe_lead *lead) {
    bool is_alive = harpe_clock_boot_ns() - lead->alive_ns < LEASE_NS;
    return is_elsewhere(lead) && is_alive ? lead->elsewhere : NULL;
}

const char *harpe_lead_fault(const harpe_lead *lead) {
    if (!is_shared(lead)) return NULL;
    int64_t now_ns = harpe_clock_boot_ns();
    if (now_ns - lead->looked_ns >= DEAD_NS) return "the database does not answer this server";
    if (!lead->leading.jobs && now_ns - lead->led_ns >= DEAD_NS) return "no server leads";
    return NULL;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void handle_here(harpe_lead *lead, harpe_call *call) {
    if (harpe_steering_takes(lead->leading.steering, call))
        harpe_steering_handle(lead->leading.steering, call);
    else
        harpe_jobs_handle(lead->leading.jobs, call);
}

/* Gives a call to the engine, refuses it, or lets it wait until a server leads. */
static void place(harpe_lead *lead, harpe_call *call) {
    if (lead->is_stopping)
        harpe_reply_detail(call, 503, "the server is stopping: try again");
    else if (leads(lead))
        handle_here(lead, call);
    else if (harpe_lead_elsewhere(lead))
        harpe_reply_detail(call, 503, "%s", lead->elsewhere);
    else
        harpe_calls_append(&lead->waiting, call);
}

void harpe_lead_handle(harpe_lead *lead, harpe_call *call) {
    call->waits_since_ns = harpe_clock_boot_ns();
    place(lead, call);
}

/* Places all waiting calls again. Refuses those that have waited for too long. */
static void place_waiting(harpe_lead *lead) {
    int64_t now_ns = harpe_clock_boot_ns();
    for (size_t left = lead->waiting.count; left > 0; left--) {
        harpe_call *call = harpe_calls_take_first(&lead->waiting);
        bool is_late = !leads(lead) && now_ns - call->waits_since_ns >= LONGEST_WAIT_NS;
        if (is_late)
            harpe_reply_detail(call, 503,
                               "no server leads: the database does not answer; try again");
        else
            place(lead, call);
    }
}

static void forget(const pair *of, harpe_call *call) {
    harpe_steering_forget(of->steering, call);
    harpe_jobs_forget(of->jobs, call);
}

void harpe_lead_forget(harpe_lead *lead, harpe_call *call) {
    if (call->list == &lead->waiting) {
        harpe_calls_remove(call);
        return;
    }
    /* The call is in at most one of these engines. */
    if (lead->leading.jobs) forget(&lead->leading, call);
    for (int i = 0; i < lead->retired_count; i++)
        forget(&lead->retired[i], call);
}

void harpe_lead_delivered(harpe_lead *lead, const harpe_call *call, int64_t round,
                          bool has_arrived) {
    if (lead->leading.jobs)
        harpe_jobs_delivered(lead->leading.jobs, call->job_id, (int)call->rank, round, has_arrived);
}

/* ---- Beginning and end of the lead ----------------------------------------------------------- */

/* Returns the held calls of ranks. */
static harpe_call *retire(harpe_lead *lead) {
    harpe_jobs *jobs = lead->leading.jobs;
    lead->retired[lead->retired_count++] = lead->leading;
    lead->leading = (pair){0};
    return harpe_jobs_retire(jobs);
}

/* Makes the engine and the fleet, and loads both. */
static harpe_status load_jobs(harpe_lead *lead, harpe_error *error) {
    harpe_status status = harpe_jobs_new(&lead->engine, &lead->leading.jobs, error);
    if (status != HARPE_OK) return status;
    status = harpe_steering_new(&lead->engine, lead->leading.jobs, &lead->leading.steering, error);
    if (status == HARPE_OK) return HARPE_OK;
    /* The engine has already given work to the loop and to the store, so it ends like one that has
     * led. It holds no calls. */
    (void)retire(lead);
    return status;
}

static void begin_to_lead(harpe_lead *lead) {
    harpe_error error;
    if (load_jobs(lead, &error) == HARPE_OK) {
        harpe_log_line(&lead->engine.log, HARPE_LOG_INFO, "this server leads");
        return;
    }
    harpe_log_line(&lead->engine.log, HARPE_LOG_ERROR, "cannot load the jobs: %s", error.message);
    /* Another server may be able to load them. */
    harpe_store_disown(lead->engine.store);
    lead->is_owner = false;
    lead->lead_at_ns = harpe_clock_boot_ns() + LOAD_AGAIN_NS;
}

/* Stops leading. Held calls of ranks wait until a server leads. All other calls end. */
static void stop_leading(harpe_lead *lead) {
    harpe_log_line(&lead->engine.log, HARPE_LOG_WARNING, "this server leads no longer");
    harpe_steering_stop(lead->leading.steering, false);
    harpe_call *held = retire(lead);
    for (harpe_call *next; held; held = next) {
        next = held->next;
        harpe_lead_handle(lead, held);
    }
}

static bool is_idle(const pair *of) {
    return harpe_jobs_are_idle(of->jobs) && harpe_steering_is_idle(of->steering);
}

static void free_pair(const pair *of) {
    harpe_steering_free(of->steering);
    harpe_jobs_free(of->jobs);
}

static void free_idle_retired(harpe_lead *lead) {
    int left = 0;
    for (int i = 0; i < lead->retired_count; i++)
        if (is_idle(&lead->retired[i]))
            free_pair(&lead->retired[i]);
        else
            lead->retired[left++] = lead->retired[i];
    lead->retired_count = left;
}

/* Returns true if everything that a retired engine has submitted to the store is stored or has
 * failed. A retired engine submits nothing more, and its other work, such as a scheduler's turn
 * that takes minutes, does no harm. */
static bool may_lead_again(const harpe_lead *lead) {
    return harpe_store_count(lead->engine.store).queued == 0 && lead->retired_count < RETIRED_MAX;
}

/* ---- Looking at the database ----------------------------------------------------------------- */

static void look(void *user) {
    harpe_lead *lead = user;
    harpe_store *store = lead->engine.store;
    lead->asked_ns = harpe_clock_boot_ns();
    lead->ownership = (harpe_ownership){0};
    lead->looked = harpe_store_watch(store, lead->beats_as, lead->dead_beat, &lead->seen, NULL);
    if (lead->looked == HARPE_OK && lead->may_own) /* after a failure the next look tries again */
        (void)harpe_store_own(store, &lead->me, &lead->ownership, NULL);
}

/* Notes what a look has seen. */
static void note(harpe_lead *lead) {
    const harpe_store_leader *seen = &lead->seen;
    int64_t now_ns = harpe_clock_boot_ns();
    bool is_slow =
        now_ns - lead->asked_ns >= SLOW_NS || lead->asked_ns - lead->looked_ns >= DEAD_NS;
    bool is_same = seen->id == lead->leader.id && seen->beat == lead->leader.beat;
    if (is_slow || !is_same) lead->alive_ns = now_ns;
    lead->leader = *seen;
    lead->looked_ns = lead->asked_ns;
    if (seen->id != 0 && now_ns - lead->alive_ns < DEAD_NS) lead->led_ns = now_ns;
    bool is_dead = seen->id != 0 && lead->asked_ns - lead->alive_ns >= DEAD_NS;
    lead->dead_beat = is_dead && !lead->is_owner ? seen->beat : -1;
    (void)snprintf(lead->elsewhere, sizeof lead->elsewhere,
                   "this server stands by: the server at %s leads", seen->address);
    if (!lead->ownership.is_ours) return;
    lead->leader = (harpe_store_leader){.id = lead->me.id, .beat = -1};
    lead->is_owner = true;
    lead->lead_at_ns = now_ns + (lead->ownership.may_have_rival ? LEASE_NS : 0);
}

/* Stops or begins to lead, as the current state requires. */
static void go_on(harpe_lead *lead) {
    free_idle_retired(lead);
    if (lead->leader.id != lead->me.id || !harpe_store_is_owned(lead->engine.store))
        lead->is_owner = false;
    if (lead->leading.jobs && !lead->is_owner) stop_leading(lead);
    bool is_time = harpe_clock_boot_ns() >= lead->lead_at_ns;
    if (!lead->leading.jobs && lead->is_owner && is_time && may_lead_again(lead))
        begin_to_lead(lead);
    place_waiting(lead);
}

static void has_looked(void *user) {
    harpe_lead *lead = user;
    lead->is_looking = false;
    if (lead->is_stopping) return;
    if (lead->looked == HARPE_OK) note(lead);
    go_on(lead);
}

static void begin_to_look(harpe_lead *lead) {
    lead->is_looking = true;
    lead->beats_as = lead->is_owner ? lead->me.id : 0;
    lead->may_own = !lead->is_owner && !lead->leading.jobs && may_lead_again(lead) &&
                    harpe_clock_boot_ns() >= lead->lead_at_ns;
    lead->work =
        (harpe_work){.work = look, .done = has_looked, .user = lead, .pool = HARPE_POOL_STORE};
    harpe_workers_submit(lead->engine.workers, &lead->work);
}

static void tick(void *user) {
    harpe_lead *lead = user;
    harpe_error error;
    lead->timer = NULL;
    go_on(lead);
    if (!lead->is_looking) begin_to_look(lead);
    if (harpe_loop_after(lead->engine.loop, LOOK_EVERY_MS, tick, lead, &lead->timer, &error))
        harpe_log_line(&lead->engine.log, HARPE_LOG_ERROR,
                       "cannot watch the other servers: out of memory");
}

/* ---- Start and end --------------------------------------------------------------------------- */

/* Begins to look at the database. The first look is due at once. */
static harpe_status stand_by(harpe_lead *lead, harpe_error *error) {
    uint64_t number = 0;
    (void)harpe_random(&number, sizeof number);
    lead->me.id = (int64_t)(number >> 1) | 1;
    lead->dead_beat = -1;
    lead->looked_ns = lead->led_ns = lead->alive_ns = harpe_clock_boot_ns();
    return harpe_loop_after(lead->engine.loop, 0, tick, lead, &lead->timer, error);
}

void harpe_lead_set_address(harpe_lead *lead, const char *listen, int port) {
    char host[256] = "";
    bool is_any = strcmp(listen, "0.0.0.0") == 0 || strcmp(listen, "::") == 0;
    if (is_any) (void)gethostname(host, sizeof host - 1);
    (void)snprintf(lead->me.address, sizeof lead->me.address,
                   !is_any && strchr(listen, ':') ? "[%.255s]:%d" : "%.255s:%d",
                   is_any ? host : listen, port);
}

harpe_status harpe_lead_new(const harpe_jobs_options *engine, harpe_lead **out,
                            harpe_error *error) {
    harpe_lead *lead = harpe_calloc(1, sizeof *lead);
    if (!lead) return harpe_fail_memory(error);
    lead->engine = *engine;
    harpe_status status =
        harpe_store_is_shared(engine->store) ? stand_by(lead, error) : load_jobs(lead, error);
    if (status != HARPE_OK) {
        harpe_lead_free(lead);
        return status;
    }
    *out = lead;
    return HARPE_OK;
}

void harpe_lead_stop(harpe_lead *lead) {
    lead->is_stopping = true;
    harpe_timer_cancel(lead->timer);
    lead->timer = NULL;
    place_waiting(lead);
    if (lead->leading.jobs) {
        harpe_steering_stop(lead->leading.steering, true);
        harpe_jobs_stop(lead->leading.jobs);
    }
    for (int i = 0; i < lead->retired_count; i++)
        harpe_jobs_stop(lead->retired[i].jobs);
}

bool harpe_lead_is_idle(const harpe_lead *lead) {
    for (int i = 0; i < lead->retired_count; i++)
        if (!is_idle(&lead->retired[i])) return false;
    return !lead->leading.jobs || is_idle(&lead->leading);
}

void harpe_lead_free(harpe_lead *lead) {
    if (!lead) return;
    harpe_lead_stop(lead);
    free_pair(&lead->leading);
    for (int i = 0; i < lead->retired_count; i++)
        free_pair(&lead->retired[i]);
    free(lead);
}
