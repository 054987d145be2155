/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share a run; see search_internal.h. */
#include "plan/search_internal.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"

#define MOST_THREADS 64
/* The time between two reports, in a long step or while the others work. */
#define REPORT_PERIOD_S 0.05

/* The state of a run. */
typedef struct run_state {
    const harpe_crew_run *run;
    pthread_mutex_t lock; /* protects what follows */
    size_t next;          /* the number that is begun next */
    size_t working_count; /* steps that are not finished */
    bool is_over, is_stopped;
    pthread_cond_t given_back; /* a step has ended */
} run_state;

typedef struct harpe_crew_member {
    harpe_tools tools;
    run_state *state; /* of the present run */
    pthread_t thread;
    bool is_started, reports;
    double reported_s;
    size_t number; /* of the present step */
    harpe_status status;
    harpe_error error;
} member;

/* ---- Members --------------------------------------------------------------------------------- */

static harpe_status tools_init(harpe_tools *tools, const harpe_problem *problem,
                               const harpe_network *network, const harpe_relaxation_curves *curves,
                               harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    tools->option = harpe_calloc(count, sizeof *tools->option);
    tools->ordered = harpe_calloc(count, sizeof *tools->ordered);
    if (!tools->option || !tools->ordered) return harpe_fail_memory(error);
    harpe_status status = harpe_assignment_init(&tools->assignment, problem, error);
    if (status == HARPE_OK)
        status = harpe_splicer_init(&tools->splicer, problem->instruction_count, error);
    tools->diver = harpe_diver_make(problem, network, curves);
    return status;
}

static void tools_clear(harpe_tools *tools) {
    free(tools->option);
    free(tools->ordered);
    harpe_assignment_clear(&tools->assignment);
    harpe_splicer_clear(&tools->splicer);
    harpe_diver_clear(&tools->diver);
    if (tools->is_walking) harpe_walk_clear(&tools->walk);
}

static size_t count_cores(int threads) {
    cpu_set_t cores;
    int count = 1;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) count = CPU_COUNT(&cores);
    if (threads > 0 && threads < count) count = threads;
    return (size_t)(count < MOST_THREADS ? count : MOST_THREADS);
}

/* The tools point to the crew's curves, so the crew is made in its place. It is smaller if there is
 * no memory for more tools. */
harpe_status harpe_crew_init(harpe_crew *crew, const harpe_problem *problem,
                             const harpe_network *network, int threads, harpe_error *error) {
    size_t wanted = count_cores(threads);
    *crew = (harpe_crew){.problem = problem, .network = network};
    harpe_status status = HARPE_OK;
    if (problem) status = harpe_relaxation_curves_init(&crew->curves, problem, network, error);
    if (status != HARPE_OK) return status;
    crew->members = harpe_calloc(wanted, sizeof *crew->members);
    if (!crew->members) status = harpe_fail_memory(error);
    while (status == HARPE_OK && crew->member_count < wanted) {
        harpe_tools *tools = &crew->members[crew->member_count].tools;
        if (problem) status = tools_init(tools, problem, network, &crew->curves, error);
        if (status == HARPE_OK)
            crew->member_count++;
        else
            tools_clear(tools);
    }
    if (crew->member_count > 0) return HARPE_OK;
    harpe_crew_clear(crew);
    return status;
}

void harpe_crew_clear(harpe_crew *crew) {
    for (size_t k = 0; k < crew->member_count; k++)
        tools_clear(&crew->members[k].tools);
    free(crew->members);
    harpe_relaxation_curves_clear(&crew->curves);
    memset(crew, 0, sizeof *crew);
}

harpe_tools *harpe_crew_tools(harpe_crew *crew) { return &crew->members[0].tools; }

/* ---- A run ----------------------------------------------------------------------------------- */

/* Takes the next number. Returns false if there is none. */
static bool take(run_state *s, size_t *number) {
    harpe_lock(&s->lock);
    bool found = !s->is_over && s->next < s->run->count;
    if (found) {
        *number = s->next++;
        s->working_count++;
    }
    harpe_unlock(&s->lock);
    return found;
}

/* Ends a step. Returns the number of steps that were begun. */
static size_t give_back(run_state *s, bool has_failed) {
    harpe_lock(&s->lock);
    s->working_count--;
    if (has_failed) s->is_over = true;
    size_t begun = s->next;
    harpe_signal(&s->given_back);
    harpe_unlock(&s->lock);
    return begun;
}

static void stop(run_state *s) {
    harpe_lock(&s->lock);
    s->is_over = s->is_stopped = true;
    harpe_unlock(&s->lock);
}

static bool report_begun(member *m, size_t begun) {
    const harpe_crew_run *run = m->state->run;
    if (!m->reports || !run->report || m->state->is_stopped) return true;
    m->reported_s = harpe_clock_s();
    if (run->report(run->user, begun)) return true;
    stop(m->state);
    return false;
}

bool harpe_crew_is_over(harpe_tools *tools) {
    member *m = (member *)tools; /* its first member */
    run_state *s = m->state;
    double now_s = harpe_clock_s();
    harpe_lock(&s->lock);
    bool is_over = s->is_over;
    size_t begun = s->next;
    harpe_unlock(&s->lock);
    if (is_over || now_s < m->reported_s + REPORT_PERIOD_S) return is_over;
    return !report_begun(m, begun);
}

static void work(member *m) {
    run_state *s = m->state;
    const harpe_crew_run *run = s->run;
    while (m->status == HARPE_OK && take(s, &m->number)) {
        m->status = run->step(run->user, &m->tools, m->number, &m->error);
        size_t begun = give_back(s, m->status != HARPE_OK);
        (void)report_begun(m, begun);
    }
}

/* Waits for the end of another thread's step. Returns false if none works, or the run is over. */
static bool wait_for_others(run_state *s, size_t *begun) {
    harpe_lock(&s->lock);
    bool waits = s->working_count > 0 && !s->is_over;
    if (waits) {
        int64_t until_ns = harpe_clock_ns() + (int64_t)(REPORT_PERIOD_S * 1e9);
        (void)harpe_wait_until(&s->given_back, &s->lock, until_ns);
    }
    *begun = s->next;
    harpe_unlock(&s->lock);
    return waits;
}

/* Reports while other threads have the last numbers, so that they can be stopped. */
static void watch(run_state *s) {
    size_t begun;
    while (s->run->report && wait_for_others(s, &begun))
        if (!s->run->report(s->run->user, begun)) stop(s);
}

static void *run_member(void *user) {
    work(user);
    return NULL;
}

/* Starts the other threads, works, and waits for them. A thread that cannot start is left out. */
static harpe_status run_members(harpe_crew *crew, run_state *s, harpe_error *error) {
    size_t count = crew->member_count < s->run->count ? crew->member_count : s->run->count;
    for (size_t k = 0; k < count; k++) {
        member *m = &crew->members[k];
        m->state = s;
        m->status = HARPE_OK;
        m->reports = k == 0;
        m->is_started = k > 0 && harpe_thread_start(&m->thread, "harpe-plan", run_member, m) == 0;
    }
    if (count > 0) {
        work(&crew->members[0]);
        watch(s);
    }
    const member *failed = NULL;
    for (size_t k = 0; k < count; k++) {
        member *m = &crew->members[k];
        if (m->is_started) harpe_thread_join(m->thread);
        if (m->status != HARPE_OK && (!failed || m->number < failed->number)) failed = m;
    }
    if (failed && error) *error = failed->error;
    return failed ? failed->status : HARPE_OK;
}

harpe_status harpe_crew_do(harpe_crew *crew, const harpe_crew_run *run, harpe_error *error) {
    run_state s = {.run = run};
    (void)pthread_mutex_init(&s.lock, NULL);
    (void)pthread_cond_init(&s.given_back, NULL);
    harpe_status status = run_members(crew, &s, error);
    (void)pthread_cond_destroy(&s.given_back);
    (void)pthread_mutex_destroy(&s.lock);
    if (status == HARPE_OK && s.is_stopped)
        status = harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
    return status;
}
