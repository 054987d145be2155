/* SPDX-License-Identifier: Apache-2.0 */
/* Learns, for each position of a step, the time until the next instruction begins and the time
 * until its own end, and looks along the coming instructions for the next change of clock.
 *
 * A change to a higher clock is over a little before its instruction begins, and a change to a
 * lower clock a little after the end of the instruction before. So a change falls into the wait
 * between the two, if there is one that is long enough, and otherwise slows neither of the two
 * down. Changes that follow each other faster than a GPU can make them become one change to the
 * highest of their clocks. */
#include "client/control.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum {
    KEPT = 8,      /* remembered durations of each kind for a position */
    ENOUGH = 2,    /* of them, for a prediction */
    FURTHEST = 64, /* number of instructions to look ahead */
};

#define SHORTEST_TOLERANCE_NS INT64_C(2000000) /* see is_stalled */

/* Durations in us, of which the oldest is replaced. */
typedef struct durations {
    uint32_t us[KEPT];
    uint32_t count; /* of all so far */
    uint32_t median_us, spread_us;
} durations;

typedef struct step_position {
    uint32_t mhz;     /* of an instruction at 0 MHz: that of the instruction before */
    durations period; /* from the begin of this instruction to that of the next one */
    durations busy;   /* from its begin to its end */
} step_position;

struct harpe_anticipation {
    uint32_t series;
    uint32_t length; /* instructions of a step; 0: no complete step yet */
    uint32_t seen;   /* this step has had the positions 0 to seen - 1, in order */
    uint32_t at;     /* position of the instruction that has begun last */
    bool is_following, is_running;
    bool is_held; /* a prediction has failed: no request before the end of the instruction */
    int64_t begin_ns, end_ns; /* of the instruction at `at`; the end only if it has ended */
    uint32_t decided;         /* number of instructions, from `at` on, whose clock is decided */
    uint32_t asked_mhz;       /* 0: unknown */
    step_position positions[HARPE_ANTICIPATION_POSITIONS];
};

harpe_anticipation *harpe_anticipation_new(void) {
    return harpe_calloc(1, sizeof(harpe_anticipation));
}

void harpe_anticipation_free(harpe_anticipation *self) { free(self); }

/* ---- Learning -------------------------------------------------------------------------------- */

/* The spread is half of the distance between the lowest and the highest duration, without one of
 * each if there are many. */
static void record(durations *all, int64_t duration_ns) {
    uint32_t sorted[KEPT];
    if (duration_ns < 0 || duration_ns / 1000 > UINT32_MAX) return;
    all->us[all->count++ % KEPT] = (uint32_t)(duration_ns / 1000);
    uint32_t count = all->count < KEPT ? all->count : KEPT;
    memcpy(sorted, all->us, sizeof sorted);
    qsort(sorted, count, sizeof *sorted, harpe_compare_uint32);
    uint32_t left_out = count == KEPT ? 1 : 0;
    all->median_us =
        count % 2 == 1 ? sorted[count / 2] : sorted[count / 2 - 1] / 2 + sorted[count / 2] / 2;
    all->spread_us = (sorted[count - 1 - left_out] - sorted[left_out]) / 2;
}

static void begin_series(harpe_anticipation *self, uint32_t series) {
    uint32_t asked_mhz = self->asked_mhz;
    memset(self, 0, sizeof *self);
    self->series = series;
    self->asked_mhz = asked_mhz;
}

void harpe_anticipation_lose(harpe_anticipation *self) {
    self->is_following = false;
    self->is_running = false;
    self->is_held = false;
    self->decided = 0;
    self->seen = 0;
}

/* Returns true if the position follows the last one. The first step that begins again at 0 after
 * all of its positions shows the length of a step. */
static bool follows(harpe_anticipation *self, uint32_t position) {
    if (!self->is_following) return false;
    if (self->length > 0 && position >= self->length) self->length = 0;
    if (position > 0) return position == self->at + 1;
    if (self->length == 0 && self->seen == self->at + 1) self->length = self->seen;
    return self->length == self->at + 1;
}

/* Returns the clock of an instruction that leaves the clock as it is; 0: not known. */
static uint32_t kept_mhz(const harpe_anticipation *self, uint32_t position) {
    if (self->is_following) return self->positions[self->at].mhz;
    uint32_t learnt_mhz = self->positions[position].mhz;
    return learnt_mhz > 0 ? learnt_mhz : self->asked_mhz;
}

void harpe_anticipation_begin(harpe_anticipation *self, uint32_t series, uint32_t position,
                              uint32_t mhz, int64_t now_ns) {
    bool is_lost = position >= HARPE_ANTICIPATION_POSITIONS;
    if (!is_lost && series != self->series) begin_series(self, series);
    if (!is_lost && mhz == 0) mhz = kept_mhz(self, position);
    if (is_lost || mhz == 0) {
        harpe_anticipation_lose(self);
        return;
    }
    bool is_next = follows(self, position);
    if (is_next) record(&self->positions[self->at].period, now_ns - self->begin_ns);
    step_position *new = &self->positions[position];
    if (new->mhz != mhz) *new = (step_position){.mhz = mhz};
    if (position == 0)
        self->seen = 1;
    else
        self->seen = is_next && self->seen == position ? position + 1 : 0;
    self->decided = is_next && self->decided > 0 ? self->decided - 1 : 0;
    self->at = position;
    self->begin_ns = now_ns;
    self->is_following = self->is_running = true;
    self->is_held = false;
}

void harpe_anticipation_end(harpe_anticipation *self, int64_t now_ns) {
    if (!self->is_following || !self->is_running) return;
    record(&self->positions[self->at].busy, now_ns - self->begin_ns);
    self->end_ns = now_ns;
    self->is_running = false;
    self->is_held = false;
}

bool harpe_anticipation_is_following(const harpe_anticipation *self) { return self->is_following; }

/* ---- Predicting ------------------------------------------------------------------------------ */

static const step_position *coming(const harpe_anticipation *self, uint32_t ahead) {
    return &self->positions[(self->at + ahead) % self->length];
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* A walk along the coming instructions. */
typedef struct forecast {
    const harpe_anticipation *self;
    int64_t now_ns;
    uint32_t ahead;           /* 0: the instruction that has begun last */
    int64_t begin_ns, end_ns; /* of this instruction, as predicted */
    int64_t spread_ns;        /* of the predictions so far */
} forecast;

static int64_t busy_ns(const step_position *position) {
    const durations *known = position->busy.count >= ENOUGH ? &position->busy : &position->period;
    return (int64_t)known->median_us * 1000;
}

/* An event that is predicted but has not happened yet happens now at the earliest. */
static forecast start_walk(const harpe_anticipation *self, int64_t now_ns) {
    const step_position *here = &self->positions[self->at];
    forecast walk = {.self = self, .now_ns = now_ns, .begin_ns = self->begin_ns};
    walk.end_ns = self->is_running ? later(self->begin_ns + busy_ns(here), now_ns) : self->end_ns;
    return walk;
}

/* Goes to the next instruction. Returns false if too little is known about it. */
static bool go_on(forecast *walk) {
    const step_position *here = coming(walk->self, walk->ahead);
    if (here->period.count < ENOUGH || walk->ahead == FURTHEST) return false;
    int64_t begin_ns = walk->begin_ns + (int64_t)here->period.median_us * 1000;
    walk->begin_ns = later(begin_ns, walk->ahead == 0 ? later(walk->end_ns, walk->now_ns) : 0);
    walk->spread_ns = later(walk->spread_ns, (int64_t)here->period.spread_us * 1000);
    walk->ahead++;
    const step_position *next = coming(walk->self, walk->ahead);
    walk->end_ns = walk->begin_ns + busy_ns(next);
    return next->mhz > 0 && next->period.count >= ENOUGH;
}

/* A change of clock between two instructions. */
typedef struct clock_change {
    int64_t ask_ns, done_ns;
} clock_change;

static clock_change plan_change(const forecast *before, const forecast *after, uint32_t from_mhz,
                                uint32_t to_mhz, const harpe_switch_time *takes) {
    int64_t margin_ns = takes->spread_ns + after->spread_ns;
    if (margin_ns > takes->latency_ns) margin_ns = takes->latency_ns;
    int64_t done_ns = to_mhz > from_mhz ? later(after->begin_ns - margin_ns, before->begin_ns)
                                        : before->end_ns + margin_ns;
    return (clock_change){.ask_ns = done_ns - takes->latency_ns, .done_ns = done_ns};
}

/* Returns the highest clock of the changes that must be asked for before the change is done. They
 * cannot be separate changes. */
static uint32_t join_changes(const forecast *first, const clock_change *first_change,
                             harpe_switch_time_of *switch_time, const void *user) {
    forecast after = *first;
    uint32_t mhz = coming(first->self, first->ahead)->mhz;
    uint32_t highest_mhz = mhz;
    for (;;) {
        forecast before = after;
        if (!go_on(&after) || after.ahead > first->ahead + first->self->length) return highest_mhz;
        uint32_t next_mhz = coming(first->self, after.ahead)->mhz;
        if (next_mhz == mhz) continue;
        harpe_switch_time takes = switch_time(user, next_mhz);
        clock_change next = plan_change(&before, &after, mhz, next_mhz, &takes);
        if (next.ask_ns >= first_change->done_ns) return highest_mhz;
        if (next_mhz > highest_mhz) highest_mhz = next_mhz;
        mhz = next_mhz;
    }
}

/* ---- Deciding -------------------------------------------------------------------------------- */

/* Returns true if the running instruction lasts longer than predicted, while a request for a later
 * instruction slows it down. `*at_ns` receives the time from which on this is so. */
static bool is_stalled(const harpe_anticipation *self, int64_t now_ns, int64_t *at_ns) {
    const step_position *here = &self->positions[self->at];
    if (!self->is_running || self->decided < 2 || self->asked_mhz == 0 ||
        self->asked_mhz >= here->mhz || here->busy.count < ENOUGH)
        return false;
    int64_t usual_ns = busy_ns(here);
    *at_ns = self->begin_ns + usual_ns +
             later(usual_ns / 4, SHORTEST_TOLERANCE_NS + (int64_t)here->busy.spread_us * 2000);
    return now_ns >= *at_ns;
}

/* The instruction that has begun last. Its clock is asked for at once, unless it is lower and there
 * is no time for it. */
static bool decide_present(harpe_anticipation *self, int64_t now_ns,
                           harpe_switch_time_of *switch_time, const void *user,
                           harpe_anticipated *request) {
    uint32_t mhz = self->positions[self->at].mhz;
    bool is_lower = self->asked_mhz > 0 && mhz < self->asked_mhz;
    if (is_lower && self->length > 0) {
        forecast here = start_walk(self, now_ns);
        clock_change now = {.ask_ns = now_ns,
                            .done_ns = now_ns + switch_time(user, mhz).latency_ns};
        if (join_changes(&here, &now, switch_time, user) > mhz) mhz = self->asked_mhz;
    }
    if (mhz == self->asked_mhz) {
        self->decided = 1;
        return false;
    }
    *request = (harpe_anticipated){.at_ns = now_ns, .mhz = mhz, .decided = 1};
    return true;
}

/* Finds the next change and when to ask for it. */
static void find_change(harpe_anticipation *self, int64_t now_ns, harpe_switch_time_of *switch_time,
                        const void *user, harpe_anticipated *request) {
    forecast after = start_walk(self, now_ns);
    for (;;) {
        forecast before = after;
        if (!go_on(&after)) return;
        if (after.ahead < self->decided) continue;
        uint32_t mhz = coming(self, after.ahead)->mhz;
        if (mhz != self->asked_mhz) {
            harpe_switch_time takes = switch_time(user, mhz);
            clock_change change = plan_change(&before, &after, self->asked_mhz, mhz, &takes);
            uint32_t joined_mhz = join_changes(&after, &change, switch_time, user);
            bool is_left_out = mhz < self->asked_mhz && joined_mhz > mhz;
            if (!is_left_out && joined_mhz != self->asked_mhz) {
                *request = (harpe_anticipated){.at_ns = change.ask_ns,
                                               .mhz = change.ask_ns <= now_ns ? joined_mhz : 0,
                                               .is_early = true,
                                               .decided = after.ahead + 1};
                return;
            }
            /* What comes later may change until the change would be asked for. */
            if (change.ask_ns > now_ns) {
                request->at_ns = change.ask_ns;
                return;
            }
        }
        self->decided = after.ahead + 1;
    }
}

harpe_anticipated harpe_anticipation_next(harpe_anticipation *self, int64_t now_ns,
                                          harpe_switch_time_of *switch_time, const void *user) {
    harpe_anticipated request = {.at_ns = HARPE_ANTICIPATION_NEVER};
    int64_t stall_ns = HARPE_ANTICIPATION_NEVER;
    if (!self->is_following) return request;
    if (self->decided == 0 && decide_present(self, now_ns, switch_time, user, &request))
        return request;
    if (is_stalled(self, now_ns, &stall_ns)) {
        return (harpe_anticipated){
            .at_ns = now_ns, .mhz = self->positions[self->at].mhz, .is_return = true, .decided = 1};
    }
    if (self->length > 0 && !self->is_held) find_change(self, now_ns, switch_time, user, &request);
    if (request.mhz == 0 && stall_ns < request.at_ns) request.at_ns = stall_ns;
    return request;
}

void harpe_anticipation_asked(harpe_anticipation *self, const harpe_anticipated *request) {
    self->asked_mhz = request->mhz;
    self->decided = request->decided;
    self->is_held = request->is_return;
}

void harpe_anticipation_set(harpe_anticipation *self, uint32_t mhz) {
    self->asked_mhz = mhz;
    self->decided = mhz == 0 ? 0 : 1;
}
