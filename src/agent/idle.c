/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the rule "idle" of the node agent. It locks the graphics clock of a GPU on which a
 * process has a context and nothing runs, and unlocks the clock at the first sign of work. For each
 * GPU with such a rule, a thread looks at the GPU. The lock yields (gpu/saved_settings.h): a
 * process that claims the GPU ends the lock. */
#include "agent/agent_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "gpu/settings.h"

/* Times between two looks at a GPU. */
#define HELD_NS INT64_C(20000000)       /* while the clock is locked */
#define UNUSED_NS INT64_C(160000000)    /* unused: drivers report the use of 1/6 s or more */
#define USED_NS INT64_C(1000000000)     /* while the GPU works, or its clock may not be locked */
#define REFUSED_NS INT64_C(60000000000) /* after the driver has refused to lock the clock */

/* Power that rises by RISE_MW and by 1/RISE_SHARE above the lowest power shows work. An idle GPU's
 * sensor varies less. */
enum { RISE_MW = 5000, RISE_SHARE = 16 };

/* ---- The decision ---------------------------------------------------------------------------- */

static bool has_risen(const harpe_idle_state *state, uint32_t power_mw) {
    uint32_t rise_mw = state->floor_mw / RISE_SHARE;
    if (rise_mw < RISE_MW) rise_mw = RISE_MW;
    return state->floor_mw > 0 && power_mw > state->floor_mw + rise_mw;
}

harpe_idle_step harpe_idle_take(harpe_idle_state *state, const harpe_idle_rule *rule, bool is_used,
                                uint32_t power_mw, int64_t now_ns) {
    if (state->is_held) {
        if (is_used || has_risen(state, power_mw)) state->must_free = true;
        bool is_lowest = state->floor_mw == 0 || power_mw < state->floor_mw;
        if (is_lowest && power_mw > 0) state->floor_mw = power_mw;
        return state->must_free ? HARPE_IDLE_FREE : HARPE_IDLE_STAY;
    }
    if (is_used || state->unused_ns == 0) state->unused_ns = now_ns;
    state->is_used = is_used;
    bool is_due = now_ns - state->unused_ns >= rule->after_ns && now_ns >= state->not_before_ns;
    return is_due ? HARPE_IDLE_HOLD : HARPE_IDLE_STAY;
}

int64_t harpe_idle_pause_ns(const harpe_idle_state *state, const harpe_idle_rule *rule,
                            int64_t now_ns) {
    if (state->is_held) return HELD_NS;
    bool may_wait = state->is_used || now_ns < state->not_before_ns;
    int64_t pause_ns = may_wait ? USED_NS : UNUSED_NS;
    return rule->after_ns / 2 < pause_ns ? rule->after_ns / 2 : pause_ns;
}

/* ---- A GPU (on its thread) ------------------------------------------------------------------- */

typedef struct idler {
    harpe_agent_idle *all;
    int gpu;
    harpe_idle_rule rule; /* its clock is one of the GPU's clocks; 0: there is no rule */
    uint32_t highest_mhz;
    harpe_default_locks locks;
    pthread_t thread;
    bool has_thread;
    /* The mutex guards these members. */
    bool is_to_end;       /* the clock must be unlocked */
    harpe_idle_view view; /* without the time of the present lock */
    int64_t changed_ns;

    harpe_idle_state state; /* these members belong to the thread */
    int64_t checked_ns;     /* time of the last check in may_stay */
    harpe_status told;      /* the failure that was logged last */
} idler;

struct harpe_agent_idle {
    const harpe_agent *agent;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_stopping;
    atomic_int running; /* threads */
    int count;
    idler each[];
};

static harpe_gpus *gpus_of(const idler *self) { return self->all->agent->gpus; }

/* Logs a failure, unless the last failure had the same status. */
static void tell(idler *self, harpe_status status, const char *what, const harpe_error *error) {
    if (status != HARPE_OK && status != self->told)
        harpe_log_line(
            &self->all->agent->options.log, HARPE_LOG_WARNING, "GPU %d: rule idle: %s: %s",
            harpe_gpu_info_at(gpus_of(self), self->gpu)->driver_index, what, error->message);
    self->told = status;
}

/* Reads the utilisation and, of a GPU whose clock is locked, the power. The utilisation shows work
 * of the last second, and the power shows work of this moment. Returns true if the utilisation is
 * above 0 or not known. */
static bool look_at(idler *self, uint32_t *power_mw) {
    harpe_error error;
    uint32_t percent = 0;
    harpe_status status = harpe_gpu_utilization(gpus_of(self), self->gpu, &percent, &error);
    if (status != HARPE_OK) tell(self, status, "has no effect", &error);
    if (self->state.is_held)
        (void)harpe_gpu_instant_power(gpus_of(self), self->gpu, power_mw, NULL);
    return status != HARPE_OK || percent > 0;
}

/* Returns true if a process has a context on the GPU, and no process holds its power limit. */
static bool is_loaded_and_free(const idler *self) {
    uint32_t processes = 0;
    harpe_saved_settings saved;
    bool is_limited = false;
    (void)harpe_saved_settings_find(gpus_of(self), self->gpu, HARPE_SAVED_POWER, &saved,
                                    &is_limited);
    (void)harpe_gpu_process_count(gpus_of(self), self->gpu, &processes, NULL);
    return processes > 0 && !is_limited;
}

/* Returns false if the clock is low already, or if somebody seems to have locked it. Drivers do not
 * report locks, but an idle GPU with a context and without a lock has its highest clock. */
static bool has_own_clock(idler *self) {
    uint32_t mhz = 0;
    const harpe_error error = {.message = "somebody has locked its clock"};
    if (harpe_gpu_current_clocks(gpus_of(self), self->gpu, &mhz, NULL, NULL) != HARPE_OK ||
        mhz <= self->rule.clock_mhz)
        return false;
    const harpe_default_locks *own = &self->locks;
    bool is_own = mhz == self->highest_mhz ||
                  (mhz >= own->graphics_minimum_mhz && mhz <= own->graphics_maximum_mhz);
    if (!is_own) tell(self, HARPE_ALREADY_EXISTS, "leaves the GPU alone", &error);
    return is_own;
}

/* Changes the state, and counts the time for which the clock was locked. */
static void become(idler *self, harpe_idle_state state) {
    int64_t now_ns = harpe_clock_ns();
    harpe_lock(&self->all->mutex);
    if (self->view.is_held) self->view.held_ns += now_ns - self->changed_ns;
    self->view.is_held = state.is_held;
    self->view.entries += state.is_held;
    self->changed_ns = self->checked_ns = now_ns;
    harpe_unlock(&self->all->mutex);
    self->state = state;
}

static void hold(idler *self) {
    harpe_error error;
    self->state.not_before_ns = harpe_clock_ns() + USED_NS;
    if (!is_loaded_and_free(self) || !has_own_clock(self)) return;
    harpe_status status = harpe_gpu_lock_yielding(gpus_of(self), self->gpu, self->rule.clock_mhz,
                                                  &self->locks, &error);
    if (status == HARPE_ALREADY_EXISTS) return;
    tell(self, status, "the clock is not locked", &error);
    if (harpe_gpu_refused(status))
        self->state.not_before_ns += REFUSED_NS;
    else /* after another failure, the clock may be locked */
        become(self, (harpe_idle_state){.is_held = true, .must_free = status != HARPE_OK});
}

/* Unlocks the clock. After a failure, the next look tries again, unless the GPU is lost. */
static void let_go(idler *self) {
    harpe_error error;
    harpe_status status = harpe_gpu_unlock_yielding(gpus_of(self), self->gpu, self->rule.clock_mhz,
                                                    &self->locks, &error);
    tell(self, status, "the clock is not unlocked", &error);
    if (status == HARPE_OK || status == HARPE_GPU_LOST)
        become(self, (harpe_idle_state){.is_held = false});
}

/* Waits until the next look is due. Returns false when the thread must end. `*is_to_end` becomes
 * true if the clock must be unlocked. */
static bool wait_for_look(idler *self, bool *is_to_end) {
    harpe_agent_idle *all = self->all;
    int64_t now_ns = harpe_clock_ns();
    int64_t due_ns = now_ns + harpe_idle_pause_ns(&self->state, &self->rule, now_ns);
    harpe_lock(&all->mutex);
    while (!all->is_stopping && !self->is_to_end &&
           harpe_wait_until(&all->changed, &all->mutex, due_ns))
        continue;
    bool goes_on = !all->is_stopping;
    *is_to_end = self->is_to_end;
    self->is_to_end = false;
    harpe_unlock(&all->mutex);
    return goes_on;
}

/* Returns true if the clock may stay locked. Checks this only once a second, because the check is
 * slower than a look. */
static bool may_stay(idler *self, int64_t now_ns) {
    if (!self->state.is_held || now_ns - self->checked_ns < USED_NS) return true;
    self->checked_ns = now_ns;
    return is_loaded_and_free(self) && harpe_gpu_is_yielding(gpus_of(self), self->gpu);
}

static void *watch_gpu(void *user) {
    idler *self = user;
    for (bool is_to_end; wait_for_look(self, &is_to_end);) {
        uint32_t power_mw = 0;
        int64_t now_ns = harpe_clock_ns();
        bool is_used = look_at(self, &power_mw) || is_to_end || !may_stay(self, now_ns);
        harpe_idle_step step =
            harpe_idle_take(&self->state, &self->rule, is_used, power_mw, now_ns);
        if (step == HARPE_IDLE_HOLD) hold(self);
        if (step == HARPE_IDLE_FREE) let_go(self);
    }
    for (; self->state.is_held; harpe_sleep_ns(HELD_NS))
        let_go(self);
    atomic_fetch_sub(&self->all->running, 1);
    return NULL;
}

/* ---- For the agent --------------------------------------------------------------------------- */

void harpe_agent_idle_end(harpe_agent_idle *idle, int gpu, bool is_last) {
    if (!idle) return;
    harpe_lock(&idle->mutex);
    for (int i = 0; i < idle->count; i++)
        if (gpu < 0 || gpu == i) idle->each[i].is_to_end = true;
    idle->is_stopping = idle->is_stopping || is_last;
    harpe_broadcast(&idle->changed);
    harpe_unlock(&idle->mutex);
}

harpe_idle_view harpe_agent_idle_view(harpe_agent_idle *idle, int gpu) {
    const idler *self = &idle->each[gpu];
    harpe_lock(&idle->mutex);
    harpe_idle_view view = self->view;
    if (view.is_held) view.held_ns += harpe_clock_ns() - self->changed_ns;
    harpe_unlock(&idle->mutex);
    return view;
}

bool harpe_agent_idle_has_ended(harpe_agent_idle *idle) {
    return !idle || atomic_load(&idle->running) == 0;
}

void harpe_agent_idle_free(harpe_agent_idle *idle) {
    if (!idle) return;
    for (int i = 0; i < idle->count; i++)
        if (idle->each[i].has_thread) harpe_thread_join(idle->each[i].thread);
    pthread_mutex_destroy(&idle->mutex);
    pthread_cond_destroy(&idle->changed);
    free(idle);
}

/* Starts the thread of a GPU that has a rule and offers clocks. */
static harpe_status start(idler *self, harpe_error *error) {
    const harpe_agent *agent = self->all->agent;
    const harpe_gpu_info *info = harpe_gpu_info_at(agent->gpus, self->gpu);
    uint32_t lowest_mhz = 0;
    self->rule = harpe_agent_policy_idle(&agent->policy, info);
    self->locks = harpe_agent_policy_terms(&agent->policy, info).locks;
    uint32_t *mhz = &self->rule.clock_mhz;
    if (*mhz == 0 || harpe_gpus_nearest_clock(agent->gpus, self->gpu, *mhz, mhz, &self->highest_mhz,
                                              &lowest_mhz, NULL) != HARPE_OK)
        return HARPE_OK;
    self->view.clock_mhz = *mhz;
    int failure = harpe_thread_start(&self->thread, "harpe-idle", watch_gpu, self);
    if (failure) return harpe_fail_errno(error, failure, "starting a thread");
    self->has_thread = true;
    atomic_fetch_add(&self->all->running, 1);
    return HARPE_OK;
}

harpe_status harpe_agent_idle_new(const harpe_agent *agent, harpe_agent_idle **out,
                                  harpe_error *error) {
    int count = harpe_gpus_count(agent->gpus);
    harpe_agent_idle *idle = harpe_calloc(1, sizeof *idle + (size_t)count * sizeof idle->each[0]);
    if (!idle) return harpe_fail_memory(error);
    *out = idle;
    *idle = (harpe_agent_idle){.agent = agent, .count = count};
    pthread_mutex_init(&idle->mutex, NULL);
    pthread_cond_init(&idle->changed, NULL);
    harpe_status status = HARPE_OK;
    for (int gpu = 0; gpu < count && status == HARPE_OK; gpu++) {
        idle->each[gpu] = (idler){.all = idle, .gpu = gpu};
        status = start(&idle->each[gpu], error);
    }
    return status;
}
