/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which server leads. A server that does not lead tries twice a second to own the store.
 * When it owns the store, it loads the jobs and leads. It stops leading when the message queue or
 * the store reports that it is no longer the leader.
 *
 * A leader may be suspended or lose its network while another server becomes the leader. When it
 * continues, it does no harm. It cannot write, because only the session that owns the store can
 * write. It does not answer with old data either. A leader answers only during HARPE_LEASE_NS after
 * the database has confirmed that it leads, and a new leader waits for this time before its first
 * answer. */
#include "server/cluster/peers.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "server/cluster/peers_internal.h"

static const int64_t try_every_ns =
    450000000; /* a little less than half a second, so that every tick tries */
enum { TICK_MS = 500, LOAD_AGAIN_MS = 5000 };

static void tick(void *user);

/* ---- Looking --------------------------------------------------------------------------------- */

const harpe_jobs *harpe_peers_jobs(const harpe_peers *peers) { return peers->jobs; }

const harpe_steering *harpe_peers_steering(const harpe_peers *peers) { return peers->steering; }

bool harpe_peers_lead(const harpe_peers *peers) {
    if (!peers->queue) return true;
    if (!peers->jobs) return false;
    harpe_message_queue_view view = harpe_message_queue_get_view(peers->queue);
    return view.me == peers->lead_as && view.leader == view.me &&
           harpe_clock_boot_ns() - view.confirmed_ns < HARPE_LEASE_NS;
}

const char *harpe_peers_fault(const harpe_peers *peers) {
    if (!peers->queue) return NULL;
    harpe_message_queue_view view = harpe_message_queue_get_view(peers->queue);
    if (view.me == 0 || harpe_clock_boot_ns() - view.confirmed_ns >= HARPE_HEARTBEAT_DEAD_NS)
        return "the database does not answer this server";
    if (view.leader == 0 || (view.leader == view.me && !peers->jobs))
        return "no server leads yet: one begins in a moment";
    return NULL;
}

/* ---- Beginning and end of the lead ----------------------------------------------------------- */

/* Takes a new id. The servers that have sent calls to this server learn that its old id has ended,
 * and send these calls to the next leader. */
static void give_up_lead(harpe_peers *peers) {
    harpe_message_queue_begin_anew(peers->queue, peers->lead_as);
    harpe_peers_drop_remotes(peers);
    peers->lead_as = 0;
    peers->lead_at_ns = harpe_clock_boot_ns() + try_every_ns;
}

/* Makes the engine and the fleet, and loads both. */
static harpe_status load_jobs(harpe_peers *peers, harpe_error *error) {
    harpe_status status = harpe_jobs_new(&peers->engine, &peers->jobs, error);
    if (status != HARPE_OK) return status;
    status = harpe_steering_new(&peers->engine, peers->jobs, &peers->steering, error);
    if (status == HARPE_OK) return HARPE_OK;
    /* The engine has already given work to the loop and to the store, so it ends like one that has
     * led. It holds no calls. */
    (void)harpe_jobs_retire(peers->jobs);
    peers->retired_steering[peers->retired_count] = NULL;
    peers->retired[peers->retired_count++] = peers->jobs;
    peers->jobs = NULL;
    return status;
}

static void begin_to_lead(harpe_peers *peers) {
    harpe_error error;
    if (load_jobs(peers, &error) != HARPE_OK) {
        harpe_log_line(&peers->engine.log, HARPE_LOG_ERROR, "cannot load the jobs: %s",
                       error.message);
        /* Another server may be able to load them. */
        harpe_store_disown(peers->engine.store);
        give_up_lead(peers);
        peers->lead_at_ns = harpe_clock_boot_ns() + LOAD_AGAIN_MS * INT64_C(1000000);
        return;
    }
    harpe_log_line(&peers->engine.log, HARPE_LOG_INFO, "this server leads");
    harpe_peers_place_all(peers, true);
}

/* Stops leading. Held calls of ranks continue to wait, here or at the next leader. All other calls
 * end. */
static void stop_leading(harpe_peers *peers) {
    harpe_log_line(&peers->engine.log, HARPE_LOG_WARNING, "this server leads no longer");
    give_up_lead(peers);
    harpe_jobs *jobs = peers->jobs;
    harpe_steering_stop(peers->steering, false);
    peers->retired_steering[peers->retired_count] = peers->steering;
    peers->retired[peers->retired_count++] = jobs;
    peers->jobs = NULL;
    peers->steering = NULL;
    harpe_call *held = harpe_jobs_retire(jobs);
    for (harpe_call *next; held; held = next) {
        next = held->next;
        harpe_peers_place(peers, held, false);
    }
}

static void has_tried(void *user) {
    harpe_peers *peers = user;
    peers->is_trying = false;
    if (peers->tried || !peers->ownership.is_ours) return;
    peers->lead_as = peers->tried_as;
    peers->lead_at_ns =
        harpe_clock_boot_ns() + (peers->ownership.may_have_rival ? HARPE_LEASE_NS : 0);
    harpe_message_queue_hurry(peers->queue);
}

static void try_to_own(void *user) {
    harpe_peers *peers = user;
    peers->tried = harpe_store_own(peers->engine.store, peers->tried_as, &peers->ownership, NULL);
}

static void begin_to_try(harpe_peers *peers) {
    peers->is_trying = true;
    peers->tried_as = peers->view.me;
    peers->lead_as = 0;
    peers->lead_at_ns = harpe_clock_boot_ns() + try_every_ns;
    peers->work = (harpe_work){
        .work = try_to_own, .done = has_tried, .user = peers, .pool = HARPE_POOL_STORE};
    harpe_workers_submit(peers->engine.workers, &peers->work);
}

static bool is_confirmed(const harpe_peers *peers) {
    return peers->lead_as != 0 && peers->view.me == peers->lead_as &&
           harpe_store_is_owned(peers->engine.store);
}

static void free_idle_retired(harpe_peers *peers) {
    int left = 0;
    for (int i = 0; i < peers->retired_count; i++) {
        if (harpe_jobs_are_idle(peers->retired[i]) &&
            harpe_steering_is_idle(peers->retired_steering[i])) {
            harpe_steering_free(peers->retired_steering[i]);
            harpe_jobs_free(peers->retired[i]);
            continue;
        }
        peers->retired_steering[left] = peers->retired_steering[i];
        peers->retired[left++] = peers->retired[i];
    }
    peers->retired_count = left;
}

/* Returns true if everything that a retired engine has submitted to the store is stored or has
 * failed. A retired engine submits nothing more, and its other work, such as a scheduler's turn
 * that takes minutes, does no harm. */
static bool may_lead_again(const harpe_peers *peers) {
    return harpe_store_count(peers->engine.store).queued == 0 &&
           peers->retired_count < HARPE_RETIRED_MAX;
}

/* Stops or begins to lead, as the current state requires. */
static void go_on(harpe_peers *peers) {
    if (peers->is_stopping) return;
    free_idle_retired(peers);
    bool has_lost = !is_confirmed(peers) || peers->view.leader != peers->view.me;
    if (peers->jobs && has_lost) stop_leading(peers);
    if (peers->jobs || peers->is_trying || peers->view.me == 0 || !may_lead_again(peers)) return;
    bool is_time = harpe_clock_boot_ns() >= peers->lead_at_ns;
    if (!is_confirmed(peers)) {
        if (is_time) begin_to_try(peers);
    } else if (is_time && peers->view.leader == peers->view.me) {
        begin_to_lead(peers);
    }
}

/* ---- What happens ---------------------------------------------------------------------------- */

static void has_news(void *user) {
    harpe_peers *peers = user;
    harpe_message_queue_view before = peers->view;
    harpe_message *messages = harpe_message_queue_take(peers->queue, &peers->view);
    bool is_new = before.me != peers->view.me || before.leader != peers->view.leader;
    if (before.me != peers->view.me) harpe_peers_drop_remotes(peers);
    go_on(peers);
    for (harpe_message *next; messages; messages = next) {
        next = messages->next;
        harpe_peers_read(peers, messages);
    }
    if (is_new) harpe_peers_place_all(peers, true);
}

static void watch_time(harpe_peers *peers, int64_t delay_ms) {
    harpe_error error;
    if (harpe_loop_after(peers->engine.loop, delay_ms, tick, peers, &peers->timer, &error)) {
        harpe_log_line(&peers->engine.log, HARPE_LOG_ERROR,
                       "cannot watch the other servers: out of memory");
    }
}

static void tick(void *user) {
    harpe_peers *peers = user;
    peers->timer = NULL;
    has_news(peers);
    harpe_peers_place_all(peers, false);
    harpe_peers_refuse_late(peers);
    watch_time(peers, TICK_MS);
}

/* ---- Start and end --------------------------------------------------------------------------- */

static harpe_status join_others(harpe_peers *peers, harpe_error *error) {
    const harpe_jobs_options *engine = &peers->engine;
    harpe_status status =
        harpe_message_queue_open(harpe_store_where(engine->store), engine->loop, engine->log,
                                 has_news, peers, &peers->queue, error);
    if (status == HARPE_OK)
        status = harpe_loop_after(engine->loop, 0, tick, peers, &peers->timer, error);
    return status;
}

harpe_status harpe_peers_new(const harpe_jobs_options *engine, harpe_peers **out,
                             harpe_error *error) {
    harpe_peers *peers = harpe_calloc(1, sizeof *peers);
    if (!peers) return harpe_fail_memory(error);
    peers->engine = *engine;
    (void)harpe_random(&peers->tag, sizeof peers->tag);
    harpe_status status =
        harpe_store_is_shared(engine->store) ? join_others(peers, error) : load_jobs(peers, error);
    if (status != HARPE_OK) {
        harpe_peers_free(peers);
        return status;
    }
    *out = peers;
    return HARPE_OK;
}

/* Calls of other servers do not get 503, because these servers send them to the next leader.
 */
void harpe_peers_stop(harpe_peers *peers) {
    peers->is_stopping = true;
    harpe_timer_cancel(peers->timer);
    peers->timer = NULL;
    harpe_peers_drop_remotes(peers);
    harpe_peers_refuse_all(peers);
    if (peers->jobs) {
        harpe_steering_stop(peers->steering, true);
        harpe_jobs_stop(peers->jobs);
    }
    for (int i = 0; i < peers->retired_count; i++)
        harpe_jobs_stop(peers->retired[i]);
}

bool harpe_peers_are_idle(const harpe_peers *peers) {
    for (int i = 0; i < peers->retired_count; i++)
        if (!harpe_jobs_are_idle(peers->retired[i]) ||
            !harpe_steering_is_idle(peers->retired_steering[i]))
            return false;
    return !peers->jobs ||
           (harpe_jobs_are_idle(peers->jobs) && harpe_steering_is_idle(peers->steering));
}

void harpe_peers_free(harpe_peers *peers) {
    if (!peers) return;
    harpe_peers_stop(peers);
    harpe_message_queue_close(peers->queue);
    harpe_steering_free(peers->steering);
    harpe_jobs_free(peers->jobs);
    for (int i = 0; i < peers->retired_count; i++) {
        harpe_steering_free(peers->retired_steering[i]);
        harpe_jobs_free(peers->retired[i]);
    }
    free(peers);
}
