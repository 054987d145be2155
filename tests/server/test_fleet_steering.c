/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the decisions of the fleet with simulated jobs and a clock that the test sets. A lost
 * answer lets the fleet exceed no budget. Jobs are lowered before other jobs are raised. No job is
 * slower than it accepts. After a restart, the fleet continues with the same split. */
#include "test.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

#include "server/fleet/fleet_state.h"

enum { JOBS_MAX = 12, PLANS_MAX = 12 };
#define TICK_S 0.5

/* The real state of a simulated job. The fleet knows only what the job reports. */
typedef struct real_job {
    harpe_member *member;
    double factor; /* its real power divided by the power that its plan predicts */
    double round_s;
    double ends_s;  /* when its round ends */
    size_t plan;    /* the plan that it runs */
    bool is_capped; /* its round runs under the last cap */
    double hangs_until_s;
    bool is_measured; /* the member has measured the factor */
} real_job;

static void set_factor(real_job *job, double factor) {
    job->factor = factor;
    job->is_measured = false;
}

typedef struct world {
    harpe_fleet_state state;
    uint64_t random;
    real_job jobs[JOBS_MAX];
    size_t job_count;
    double now_s;
    size_t raises;
    struct world *next; /* another one of the same test */
} world;

static harpe_fleet_now now_of(const world *w) { return (harpe_fleet_now){w->now_s, w->now_s}; }

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t random_bits(world *w) {
    uint64_t z = (w->random += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

static double between(world *w, double low, double high) {
    return low + (high - low) * ((double)(random_bits(w) >> 11) * 0x1p-53);
}

static size_t any(world *w, size_t count) { return (size_t)(random_bits(w) % count); }

/* ---- Settings -------------------------------------------------------------------------------- */

/* Makes a request as a client does. Returns the HTTP status. */
static int try_set(world *w, harpe_call_kind kind, const char *id, const char *body) {
    harpe_fleet_note note;
    harpe_error error = {0};
    int status;
    if (harpe_bodies_read(&w->state, kind, id, body, body ? strlen(body) : 0, w->now_s, &note,
                          &status, &error) != HARPE_OK) {
        assert_true(error.message[0] && !strchr(error.message, '\n'));
        return status;
    }
    if (harpe_notes_apply(&w->state, note.key, note.text, strlen(note.text), false, &error))
        fail_msg("%s", error.message);
    harpe_fleet_note_clear(&note);
    return 200;
}

static void HARPE_PRINTF(4, 5)
    set(world *w, harpe_call_kind kind, const char *id, const char *format, ...) {
    char body[2000];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(body, sizeof body, format, arguments);
    va_end(arguments);
    int status = try_set(w, kind, id, body);
    if (status != 200) fail_msg("%d for %s", status, body);
}

static void set_budget(world *w, double watts) {
    set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":%g}", watts);
}

static void begin(world *w, uint64_t seed) {
    *w = (world){.now_s = 1e9};
    w->random = seed * 7919;
    assert_true(harpe_fleet_begin(&w->state));
}

static void end(world *w) { harpe_fleet_end(&w->state); }

/* Makes a world that ends with the test. */
static world *fresh(void **state, uint64_t seed) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    begin(w, seed);
    w->next = *state;
    *state = w;
    return w;
}

static int end_worlds(void **state) {
    for (world *w = *state, *next; w; w = next) {
        next = w->next;
        end(w);
        free(w);
    }
    return 0;
}

/* Adds a job with plans whose power falls from `highest_w`. */
static real_job *add_job(world *w, const char *group, double highest_w, size_t plans) {
    char name[16];
    (void)snprintf(name, sizeof name, "job%zu", w->job_count);
    real_job *job = &w->jobs[w->job_count++];
    harpe_fleet_plan *list = calloc(plans, sizeof *list);
    double time_s = between(w, 0.5, 20), power_w = highest_w;
    for (size_t i = 0; i < plans; i++) {
        list[i] = (harpe_fleet_plan){time_s, power_w};
        time_s *= between(w, 1.001, 1.06);
        power_w *= between(w, 0.88, 0.99);
    }
    harpe_member *member = harpe_member_add(&w->state, HARPE_MEMBER_JOB, name);
    member->world_size = 4;
    member->said.weight = between(w, 0.1, 10);
    if (*group) {
        (void)snprintf(member->said.group, sizeof member->said.group, "%s", group);
        member->said.has_group = true;
    }
    harpe_groups_place(&w->state, member);
    harpe_member_set_plans(member, list, plans);
    member->rounds.plan_count = (int64_t)plans;
    harpe_member_hear(member, now_of(w));
    *job = (real_job){
        .member = member, .factor = 1, .is_measured = true, .round_s = between(w, 0.3, 12)};
    job->ends_s = w->now_s + job->round_s;
    return job;
}

static void add_jobs(world *w, int count, size_t plans, double round_s) {
    for (int j = 0; j < count; j++)
        add_job(w, "", 1000, plans)->round_s = round_s;
}

/* ---- Time ------------------------------------------------------------------------------------ */

static double real_power(const real_job *job) {
    return job->member->plans[job->plan].power_w * job->factor;
}

/* Ends a round: the job reports it, and takes its cap for the next one. */
static void end_round(world *w, real_job *job) {
    harpe_member *member = job->member;
    harpe_member_hear(member, now_of(w));
    member->round_s = job->round_s;
    job->is_measured = true;
    harpe_member_measure(member, real_power(job), member->plans[job->plan].power_w);
    if (job->is_capped) harpe_member_confirm(member);
    job->is_capped = !member->has_command;
    if (job->is_capped) job->plan = harpe_member_plan_within(member, member->cap_w);
    job->ends_s = w->now_s + job->round_s;
}

static double counted_in(const world *w, int group) {
    double sum_w = 0;
    for (size_t i = 0; i < w->state.member_count; i++) {
        int g = w->state.members[i]->group;
        while (g >= 0 && g != group)
            g = w->state.groups[g].parent;
        if (g == group) sum_w += harpe_member_counted_w(w->state.members[i]);
    }
    return sum_w;
}

/* Checks that a member that was raised has kept the limits of its groups. */
static void check_raise(world *w, const harpe_member *member) {
    w->raises++;
    for (int g = member->group; g >= 0; g = w->state.groups[g].parent)
        assert_true(counted_in(w, g) <= w->state.groups[g].ahead_w + 0.01);
}

static void decide(world *w) {
    harpe_error error = {0};
    double counted[JOBS_MAX];
    if (harpe_decide_prepare(&w->state, now_of(w))) {
        harpe_decide_solve(&w->state);
        if (harpe_decide_take(&w->state, &error)) fail_msg("%s", error.message);
        if (harpe_fleet_verify(w->state.solver, &error)) fail_msg("%s", error.message);
    }
    harpe_limits_sum(&w->state);
    for (size_t j = 0; j < w->job_count; j++)
        counted[j] = harpe_member_counted_w(w->jobs[j].member);
    harpe_decide_caps(&w->state, now_of(w));
    for (size_t j = 0; j < w->job_count; j++) {
        harpe_member *member = w->jobs[j].member;
        if (harpe_member_counted_w(member) > counted[j]) check_raise(w, member);
        /* A job gets its command late: in each tick with a probability of 0.7. */
        if (member->has_command) w->jobs[j].is_capped = false;
        if (member->has_command && between(w, 0, 1) < 0.7) member->has_command = false;
    }
}

static void check_powers(const world *w) {
    for (size_t j = 0; j < w->job_count; j++) {
        const real_job *job = &w->jobs[j];
        double counted_w = harpe_member_counted_w(job->member);
        if (job->is_measured && real_power(job) > counted_w * (1 + 1e-9))
            fail_msg("%s draws %g W, and %g W are counted", job->member->id, real_power(job),
                     counted_w);
        /* The target is checked, not the plan that runs: after an event that has permitted a larger
         * slowdown, a job speeds up only when there is room. */
        const harpe_member *member = job->member;
        double most = harpe_member_max_slowdown(member);
        if (!member->has_target || !(most > 0) || member->may_exceed) continue;
        double slowdown = member->plans[member->target].time_s / member->plans[0].time_s;
        assert_true(slowdown <= most * (1 + 1e-9));
    }
}

static void pass(world *w, double seconds) {
    for (double until_s = w->now_s + seconds; w->now_s < until_s;) {
        w->now_s += TICK_S;
        for (size_t j = 0; j < w->job_count; j++) {
            real_job *job = &w->jobs[j];
            if (w->now_s >= job->ends_s && w->now_s >= job->hangs_until_s) end_round(w, job);
        }
        for (size_t i = 0; i < w->state.member_count; i++) {
            harpe_member *member = w->state.members[i];
            bool is_over = harpe_limits_are_exceeded(&w->state, member->group);
            harpe_member_watch(member, is_over, now_of(w));
        }
        harpe_limits_update(&w->state, now_of(w));
        decide(w);
        (void)harpe_limits_watch(&w->state, now_of(w));
        check_powers(w);
    }
}

/* Returns false if a group's members draw more than its limit although they could draw less. */
static bool is_kept(const world *w) {
    for (size_t g = 0; g < w->state.group_count; g++) {
        const harpe_fleet_group_state *group = &w->state.groups[g];
        double limit_w = fmax(group->limit_w, group->least_w);
        if (counted_in(w, (int)g) > limit_w * (1 + 1e-6) + 0.01) return false;
    }
    return true;
}

/* ---- Properties ------------------------------------------------------------------------------ */

static void make_fleet(world *w) {
    static const char *const groups[] = {"", "a", "b", "c"};
    double sum_w = 0;
    set(w, HARPE_CALL_FLEET_PUT_GROUP, "a", "{}");
    set(w, HARPE_CALL_FLEET_PUT_GROUP, "b", "{\"parent\":\"a\"}");
    set(w, HARPE_CALL_FLEET_PUT_GROUP, "c", "{\"parent\":null}");
    size_t jobs = 2 + any(w, JOBS_MAX - 2);
    for (size_t j = 0; j < jobs; j++) {
        double highest_w = between(w, 100, 5000);
        real_job *job = add_job(w, groups[any(w, 4)], highest_w, 1 + any(w, PLANS_MAX));
        if (any(w, 3) == 0) job->member->said.max_slowdown = between(w, 1, 1.3);
        sum_w += highest_w;
    }
    if (any(w, 2)) set(w, HARPE_CALL_FLEET_PUT_LOAD, "pumps", "{\"watts\":%g}", sum_w / 20);
    set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":%g,\"margin\":0.02,\"overhead\":1.2}",
        between(w, 0.6, 1.4) * sum_w * 1.2);
    if (any(w, 2))
        set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"group\":\"a\",\"watts\":%g}",
            between(w, 0.2, 1) * sum_w);
}

/* Something happens: an event, a job that hangs, another weight, or another budget. */
static void disturb(world *w) {
    real_job *job = &w->jobs[any(w, w->job_count)];
    switch (any(w, 6)) {
    case 0:
    case 1:
        set(w, HARPE_CALL_FLEET_POST_EVENT, NULL,
            "{\"from\":%.3f,\"duration_s\":%g,\"share\":%g,\"notice_s\":%g,\"ramp_s\":%g}",
            w->now_s + between(w, 0, 90), between(w, 20, 200), between(w, 0.05, 0.4),
            between(w, 0, 90), between(w, 0, 60));
        break;
    case 2: job->hangs_until_s = w->now_s + between(w, 10, 200); break;
    case 3: set_factor(job, between(w, 0.9, 1.1)); break;
    case 4:
        set(w, HARPE_CALL_FLEET_PUT_JOB, job->member->id, "{\"weight\":%g}", between(w, 0, 20));
        break;
    default:
        set(w, HARPE_CALL_FLEET_POST_EVENT, NULL,
            "{\"duration_s\":%g,\"watts\":%g,\"group\":\"a\",\"may_exceed_slowdown\":true}",
            between(w, 20, 100), between(w, 10, 3000));
        break;
    }
}

TEST(budgets_hold_whatever_is_lost) {
    size_t raises = 0;
    for (int trial = 0; trial < test_trials(40); trial++) {
        world w;
        begin(&w, (uint64_t)trial + 1);
        make_fleet(&w);
        pass(&w, 150);
        if (!is_kept(&w)) fail_msg("trial %d: a budget is broken after the start", trial);
        for (int i = 0; i < 10; i++) {
            disturb(&w);
            pass(&w, between(&w, 1, 60));
        }
        for (size_t j = 0; j < w.job_count; j++)
            w.jobs[j].hangs_until_s = 0;
        pass(&w, 500); /* events and ramps are over */
        if (!is_kept(&w)) fail_msg("trial %d: a budget is broken in the steady state", trial);
        raises += w.raises;
        end(&w);
    }
    assert_true(raises > (size_t)test_trials(40) * 5 / 2);
}

/* A test of a world with this seed. */
#define FIXTURE_TEST(name, seed) \
    static void name##_on(world *w, void **state __attribute__((unused))); \
    TEST_WITH(name, NULL, end_worlds) { name##_on(fresh(state, seed), state); } \
    static void name##_on(world *w, void **state __attribute__((unused)))

/* A job that hangs counts with the power that it may draw, so the other jobs get less. */
FIXTURE_TEST(silent_job_is_counted_with_what_it_may_draw, 5) {
    add_jobs(w, 4, 10, 2);
    set_budget(w, 4000);
    pass(w, 60);
    assert_true(counted_in(w, 0) <= 4000.01);
    w->jobs[0].hangs_until_s = w->now_s + 1000;
    double stuck_w = real_power(&w->jobs[0]);
    pass(w, 1);
    set_budget(w, 3300);
    pass(w, 120);
    assert_string_equal(harpe_fleet_member_state_name(w->jobs[0].member, true), "silent");
    assert_true(harpe_member_counted_w(w->jobs[0].member) >= stuck_w);
    assert_true(counted_in(w, 0) <= 3300.01);
}

/* A silent job keeps its power, so the budget does not hold. The server then asks this job for its
 * least power. The job was overdue before it was silent. */
FIXTURE_TEST(silent_job_is_lowered_while_the_budget_does_not_hold, 5) {
    add_jobs(w, 2, 10, 2);
    set_budget(w, 1950);
    pass(w, 60);
    const harpe_member *member = w->jobs[0].member;
    w->jobs[0].hangs_until_s = w->now_s + 1000;
    set_budget(w, 1400);
    pass(w, 20);
    assert_true(member->is_overdue && !member->is_silent);
    double least_w = member->plans[member->plan_count - 1].power_w;
    assert_true(member->cap_w > least_w * 1.05);
    pass(w, 100);
    assert_true(member->is_silent);
    assert_true(counted_in(w, 0) > 1400.01);
    assert_true(fabs(member->cap_w - least_w) < 1e-6 * least_w);
    w->jobs[0].hangs_until_s = 0;
    pass(w, 60);
    assert_true(counted_in(w, 0) <= 1400.01);
}

FIXTURE_TEST(power_above_the_plan_is_corrected_within_two_rounds, 6) {
    add_jobs(w, 3, 12, 5);
    set_budget(w, 2500);
    pass(w, 100);
    for (int j = 0; j < 3; j++)
        set_factor(&w->jobs[j], 1.08);
    /* One round that measures, and one that ends after the job got its new cap. A command is lost
     * with some probability in a tick, so there is one more round of time. */
    pass(w, 3 * 5 + 5);
    double sum_w = 0;
    for (int j = 0; j < 3; j++)
        sum_w += real_power(&w->jobs[j]);
    assert_true(sum_w <= 2500.01);
    assert_true(w->jobs[0].member->scale >= 1.08);
}

/* Returns what GET /fleet shows to a client with this scope, a new reference. */
static json_t *shown(const world *w, const char *scope) {
    harpe_text text = {0};
    harpe_fleet_show(&w->state, scope, now_of(w), &text);
    json_t *json = json_loads(text.data, 0, NULL);
    harpe_text_free(&text);
    assert_non_null(json);
    return json;
}

static void keep(world *to, harpe_fleet_note *note) {
    harpe_error error = {0};
    if (harpe_notes_apply(&to->state, note->key, note->text, strlen(note->text), true, &error))
        fail_msg("%s", error.message);
    harpe_fleet_note_clear(note);
}

/* ---- Events ---------------------------------------------------------------------------------- */

FIXTURE_TEST(fleet_is_under_an_event_with_notice_when_it_begins, 7) {
    add_jobs(w, 5, 12, 8);
    set_budget(w, 5000);
    pass(w, 60);
    set(w, HARPE_CALL_FLEET_POST_EVENT, NULL,
        "{\"from\":%.3f,\"duration_s\":100,\"share\":0.2,\"notice_s\":60,\"ramp_s\":100}",
        w->now_s + 100);
    double from_s = w->now_s + 100;
    pass(w, 50);
    assert_true(counted_in(w, 0) > 4000); /* not long before the event */
    pass(w, from_s - w->now_s);
    assert_true(counted_in(w, 0) <= 4000.01);
    pass(w, 90);
    assert_true(counted_in(w, 0) <= 4000.01);
    const harpe_fleet_event *event = &w->state.events[0];
    assert_int_equal(event->breaches, 0);
    assert_true(event->reached_s > 0 && event->highest_w <= 4000.01);
    pass(w, 60); /* in the ramp */
    double limit_w = 4000 + 1000 * (w->now_s - from_s - 100) / 100;
    assert_true(counted_in(w, 0) <= limit_w);
    pass(w, 200);
    assert_true(counted_in(w, 0) > 4500);
}

/* A job stops answering just before an event without notice. The other jobs are lowered in its
 * place within 30 s. */
TEST(event_is_kept_although_a_job_does_not_answer) {
    int late = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        world w;
        begin(&w, 100 + seed);
        double round_s = between(&w, 0.5, 10);
        for (int j = 0; j < 8; j++)
            add_job(&w, "", 1000, 12)->round_s = round_s * between(&w, 0.5, 1);
        set_budget(&w, 7800);
        pass(&w, 60 + between(&w, 0, 10));
        real_job *job = &w.jobs[any(&w, 8)];
        job->hangs_until_s = w.now_s + between(&w, 40, 80);
        set(&w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":200,\"share\":0.25}");
        pass(&w, 30);
        if (counted_in(&w, 0) > 0.75 * 7800 + 0.01)
            fail_msg("seed %d: %g W count, and the limit is %g W", (int)seed, counted_in(&w, 0),
                     0.75 * 7800);
        late += real_power(job) > job->member->cap_w * (1 + 1e-9);
        pass(&w, 160); /* it answers again, and the others are as before */
        assert_false(job->member->is_overdue);
        assert_true(counted_in(&w, 0) > 0.7 * 7800);
        assert_true(w.state.events[0].breaches == 0);
        end(&w);
    }
    assert_true(late > 20);
}

/* While no limit is exceeded, a job that answers late is not overdue. */
FIXTURE_TEST(answer_is_not_overdue_while_the_budget_holds, 11) {
    add_jobs(w, 4, 12, 1);
    set_budget(w, 3500);
    pass(w, 60);
    real_job *job = &w->jobs[1];
    job->hangs_until_s = w->now_s + 25;
    pass(w, 20);
    assert_false(job->member->is_overdue || job->member->is_silent);
    assert_true(harpe_member_can_follow(job->member));
}

static harpe_member *declare(world *w) {
    set(w, HARPE_CALL_FLEET_PUT_MEMBER, "m",
        "{\"plans\":[{\"time\":1,\"power\":500},{\"time\":1.2,\"power\":400}]}");
    return harpe_member_find(&w->state, HARPE_MEMBER_DECLARED, "m");
}

/* The member reports so many times, every `pause_s`. */
static void report(world *w, harpe_member *member, int times, double pause_s) {
    for (int i = 0; i < times; i++) {
        w->now_s += pause_s;
        harpe_member_follow(member, 0, 500, now_of(w));
    }
}

/* A pause between two reports of a member counts little for its round, which is its usual time
 * between reports. */
FIXTURE_TEST(pause_is_no_longer_round, 12) {
    harpe_member *member = declare(w);
    report(w, member, 5, 5);
    assert_float_equal(member->round_s, 5, 1e-9);
    report(w, member, 1, 20);
    assert_float_equal(member->round_s, 10, 1e-6);
    report(w, member, 5, 5);
    w->now_s += 80;
    harpe_member_watch(member, false, now_of(w));
    assert_true(member->is_silent);
    report(w, member, 1, 0);
    assert_float_equal(member->round_s, 10, 1e-6);
}

/* The time before a member's first report is not a round. If a member sends two reports at once,
 * its round is right again after two further reports. */
FIXTURE_TEST(round_of_a_member_is_known_after_few_reports, 13) {
    harpe_member *member = declare(w);
    harpe_member_watch(member, false, now_of(w));
    report(w, member, 1, 0.01);
    assert_true(member->round_s == 0);
    report(w, member, 1, 0.01);
    report(w, member, 2, 20);
    assert_float_equal(member->round_s, 20, 1e-6);
}

/* If a job answers late, no other job gets a cap below the power of its slowest plan. */
FIXTURE_TEST(late_answer_drives_nobody_below_the_slowest_plan, 14) {
    add_jobs(w, 3, 3, 2);
    set_budget(w, 3000);
    pass(w, 60);
    double least_w = 0;
    for (int j = 0; j < 3; j++)
        least_w += w->jobs[j].member->plans[2].power_w;
    w->jobs[0].hangs_until_s = w->now_s + 20;
    set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":%g}", least_w * 1.001);
    pass(w, 15);
    assert_true(w->jobs[0].member->is_overdue);
    for (int j = 1; j < 3; j++)
        assert_true(w->jobs[j].member->cap_w >= w->jobs[j].member->plans[2].power_w * (1 - 1e-9));
}

FIXTURE_TEST(event_that_cannot_be_met_says_by_how_much, 8) {
    harpe_text text = {0};
    real_job *job = add_job(w, "", 1000, 12);
    job->member->said.max_slowdown = 1;
    set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":1250,\"overhead\":1.25}");
    pass(w, 60);
    set(w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":100,\"watts\":250}");
    harpe_fleet_show_event_answer(&w->state, 1, &text);
    assert_string_equal(text.data, "{\"id\":1,\"promised_w\":1000,\"missing_w\":250}");
    harpe_text_free(&text);
    pass(w, 60);
    assert_string_equal(harpe_fleet_state_name(&w->state, w->now_s), "infeasible");
    assert_int_equal(job->plan, 0);
    set(w, HARPE_CALL_FLEET_POST_EVENT, NULL,
        "{\"duration_s\":50,\"watts\":100,\"may_exceed_slowdown\":true}");
    pass(w, 40);
    assert_true(job->plan > 0);
    pass(w, 200);
    assert_int_equal(job->plan, 0);
}

/* Returns a member of an event as GET /fleet shows it. */
static double shown_of_event(const world *w, int64_t id, const char *name) {
    json_t *json = shown(w, NULL), *event;
    double value = NAN;
    size_t i;
    json_array_foreach(json_object_get(json, "events"), i, event) {
        const json_t *member = json_object_get(event, name);
        if (json_integer_value(json_object_get(event, "id")) == id && json_is_number(member))
            value = json_number_value(member);
    }
    json_decref(json);
    return value;
}

/* The promise of an event does not change if the budget changes, or when the event ends or is
 * cancelled. The event is judged by this promise. */
FIXTURE_TEST(promise_of_an_event_does_not_change, 20) {
    world *again = fresh(state, 20);
    harpe_fleet_note note;
    real_job *job = add_job(w, "", 1000, 12);
    job->member->said.max_slowdown = 1;
    set_budget(w, 1600);
    pass(w, 60);
    set(w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":200,\"share\":0.25}");
    set(w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":100,\"watts\":1500,\"from\":%.1f}",
        w->now_s + 1000);
    pass(w, 60);
    assert_true(w->state.events[0].reached_s > 0 && w->state.events[0].breaches == 0);
    set_budget(w, 1200); /* the limit is 900 W */
    set(w, HARPE_CALL_FLEET_DELETE_EVENT, "2", "%s", "");
    for (int i = 0; i < 2; i++) {
        assert_float_equal(shown_of_event(w, 1, "promised_w"), 1200, 1e-6);
        assert_float_equal(shown_of_event(w, 1, "missing_w"), 0, 1e-6);
        assert_int_equal(shown_of_event(w, 1, "breaches"), 0);
        assert_float_equal(shown_of_event(w, 2, "promised_w"), 100, 1e-6);
        assert_float_equal(shown_of_event(w, 2, "missing_w"), 900, 1e-6);
        pass(w, 300); /* the events are over */
    }
    for (size_t i = 0; i < 2; i++) {
        assert_true(harpe_notes_of_event(&w->state.events[i], &note));
        keep(again, &note);
    }
    again->now_s = w->now_s;
    assert_float_equal(shown_of_event(again, 1, "promised_w"), 1200, 1e-6);
    assert_float_equal(shown_of_event(again, 2, "missing_w"), 900, 1e-6);
}

/* If the budget rises during an event, the jobs may draw more than the event promises. That is a
 * breach of the event, and not of the budget. */
FIXTURE_TEST(power_above_the_promise_is_a_breach, 21) {
    add_job(w, "", 1000, 12);
    set_budget(w, 1000);
    pass(w, 60);
    set(w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":200,\"share\":0.25}");
    pass(w, 60);
    uint64_t before =
        w->state.groups[0].breaches; /* at the beginning of the event, which had no notice */
    set_budget(w, 2000);
    pass(w, 60);
    assert_float_equal(shown_of_event(w, 1, "promised_w"), 750, 1e-6);
    assert_true(shown_of_event(w, 1, "highest_w") > 750);
    assert_int_equal(shown_of_event(w, 1, "breaches"), 1);
    assert_int_equal(w->state.groups[0].breaches, before);
}

TEST(promise_is_the_highest_limit_during_the_event) {
    static const struct {
        double from_s, duration_s, promised_w; /* of an event of 10 %, beside two of 20 % */
    } cases[] = {
        {-200, 100, 900}, /* before both */
        {-50, 80, 900},   /* the limit is 900 W until the first event begins */
        {10, 50, 720},    /* inside of the first */
        {10, 105, 756},   /* ends in its ramp, after 4 of 20 steps */
        {120, 10, 801},   /* begins in its ramp, and ends after 9 steps */
        {120, 400, 900},  /* the ramp ends, and then the second event begins */
        {310, 1000, 900}, /* begins in the second and ends after it */
        {310, 50, 720},   /* inside of the second */
        {200, 100, 900},  /* between the two */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world w;
        begin(&w, 23);
        add_job(&w, "", 1000, 12);
        set_budget(&w, 1000);
        double start_s = w.now_s + 1000;
        for (int e = 0; e < 2; e++)
            set(&w, HARPE_CALL_FLEET_POST_EVENT, NULL,
                "{\"from\":%.1f,\"duration_s\":100,\"share\":0.2,\"ramp_s\":60}",
                start_s + 300 * e);
        set(&w, HARPE_CALL_FLEET_POST_EVENT, NULL,
            "{\"from\":%.1f,\"duration_s\":%g,\"share\":0.1}", start_s + cases[i].from_s,
            cases[i].duration_s);
        double promised_w = shown_of_event(&w, 3, "promised_w"), highest_w = 0;
        assert_float_equal(promised_w, cases[i].promised_w, 1e-6);
        for (double s = 0; s < cases[i].duration_s; s += 0.25)
            highest_w = fmax(highest_w,
                             harpe_fleet_events_watts(&w.state, 0, start_s + cases[i].from_s + s));
        assert_float_equal(promised_w, highest_w, 1e-6);
        end(&w);
    }
}

/* The power that a job may draw before its first results is counted power. It is not measured
 * power, so it causes no breach. */
FIXTURE_TEST(assumed_power_is_not_measured, 24) {
    add_job(w, "", 1000, 12)->round_s = 2;
    set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":1500,\"group\":\"a\"}");
    set_budget(w, 1500);
    pass(w, 60);
    double measured_w = w->state.groups[0].measured_w;
    assert_true(measured_w > 0);
    set(w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":300,\"watts\":100}");
    pass(w, 60);
    harpe_member *member = harpe_member_add(&w->state, HARPE_MEMBER_JOB, "new");
    member->world_size = 4; /* 2800 W are assumed */
    member->said.has_group = true;
    (void)snprintf(member->said.group, sizeof member->said.group, "a");
    harpe_groups_place(&w->state, member);
    set(w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":100,\"watts\":0,\"group\":\"a\"}");
    pass(w, 60);
    double most_w = w->jobs[0].member->measured_w;
    assert_true(w->state.groups[0].measured_w == most_w && w->state.groups[0].unmeasured == 1);
    assert_true(w->state.groups[0].counted_w >= 2800);
    assert_true(w->state.groups[w->jobs[0].member->group].unmeasured == 1);
    assert_int_equal(shown_of_event(w, 1, "breaches"), 0);
    assert_true(shown_of_event(w, 1, "highest_w") <= measured_w);
    /* Nothing of the other group is measured, and it may draw more than the promise. */
    assert_true(isnan(shown_of_event(w, 2, "reached_at")));
    assert_int_equal(shown_of_event(w, 2, "breaches"), 0);
    for (int i = 0; i < 2; i++) {
        harpe_member_measure(member, 1800 - 1000 * i, 0);
        pass(w, 1);
    }
    assert_int_equal(shown_of_event(w, 2, "breaches"), 1);
    assert_true(shown_of_event(w, 2, "reached_at") > 0);
}

FIXTURE_TEST(event_is_repeated_by_its_key_and_cancelled, 9) {
    add_job(w, "", 1000, 12);
    set_budget(w, 1000);
    pass(w, 40);
    for (int i = 0; i < 2; i++)
        set(w, HARPE_CALL_FLEET_POST_EVENT, NULL,
            "{\"duration_s\":1000,\"share\":0.3,\"key\":\"k\",\"ramp_s\":20}");
    assert_int_equal(w->state.event_count, 1);
    pass(w, 60);
    assert_true(counted_in(w, 0) <= 700.01);
    set(w, HARPE_CALL_FLEET_DELETE_EVENT, "1", "%s", "");
    pass(w, 10);
    assert_true(counted_in(w, 0) <= 1000);
    assert_string_equal(
        harpe_fleet_event_state_name(harpe_fleet_event_state_of(&w->state.events[0], w->now_s)),
        "ramp");
    pass(w, 60);
    assert_true(counted_in(w, 0) > 900);
    assert_int_equal(try_set(w, HARPE_CALL_FLEET_DELETE_EVENT, "7", NULL), 404);
    assert_int_equal(try_set(w, HARPE_CALL_FLEET_DELETE_EVENT, "x", NULL), 404);
}

/* ---- Restart --------------------------------------------------------------------------------- */

FIXTURE_TEST(restart_continues_with_the_same_split, 10) {
    world *again = fresh(state, 10);
    harpe_fleet_note note;
    for (int j = 0; j < 6; j++)
        set_factor(add_job(w, j % 2 ? "a" : "", 1000, 12), 1.02);
    set_budget(w, 5000);
    pass(w, 200);
    again->now_s = w->now_s;
    again->state.groups[0].budget = w->state.groups[0].budget;
    for (int j = 0; j < 6; j++) {
        const harpe_member *member = w->jobs[j].member;
        assert_true(harpe_notes_of_cap(member, &note));
        keep(again, &note);
        assert_true(harpe_notes_of_plans(member, &note));
        keep(again, &note);
        harpe_member *copy = again->state.members[j];
        copy->said = member->said;
        harpe_groups_place(&again->state, copy);
        again->jobs[j] = w->jobs[j];
        again->jobs[j].member = copy;
        again->job_count++;
        assert_true(copy->cap_w == member->cap_w && copy->most_w == member->most_w);
        assert_false(copy->has_command);
    }
    pass(again, 30);
    for (int j = 0; j < 6; j++)
        assert_int_equal(again->jobs[j].plan, w->jobs[j].plan);
    assert_int_equal(again->raises, 0);
}

/* ---- Settings -------------------------------------------------------------------------------- */

FIXTURE_TEST(wrong_settings_are_refused, 11) {
    static const struct {
        harpe_call_kind kind;
        const char *id, *body;
        int status;
    } cases[] = {
        {HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{", 422},
        {HARPE_CALL_FLEET_PUT_BUDGET, NULL, "[]", 422},
        {HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{}", 422},
        {HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":-1}", 422},
        {HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":1,\"margin\":1}", 422},
        {HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":1,\"overhead\":0.5}", 422},
        {HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":1,\"wats\":1}", 422},
        {HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":\"1\"}", 422},
        {HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":1,\"group\":\"a\\u0007\"}", 422},
        {HARPE_CALL_FLEET_DELETE_BUDGET, NULL, NULL, 404},
        {HARPE_CALL_FLEET_DELETE_BUDGET, "nowhere", NULL, 404},
        {HARPE_CALL_FLEET_PUT_GROUP, "x", "{\"parent\":\"nowhere\"}", 404},
        {HARPE_CALL_FLEET_PUT_GROUP, "a", "{\"parent\":\"a\"}", 409},
        {HARPE_CALL_FLEET_PUT_GROUP, "a", "{\"parent\":\"b\"}", 409},
        {HARPE_CALL_FLEET_DELETE_GROUP, "a", NULL, 409},
        {HARPE_CALL_FLEET_PUT_JOB, "j", "{\"max_slowdown\":0.9}", 422},
        {HARPE_CALL_FLEET_PUT_LOAD, "l", "{}", 422},
        {HARPE_CALL_FLEET_DELETE_LOAD, "l", NULL, 404},
        {HARPE_CALL_FLEET_PUT_MEMBER, "m", "{\"plans\":[]}", 422},
        {HARPE_CALL_FLEET_PUT_MEMBER, "m", "{\"plans\":[{\"time\":1}]}", 422},
        {HARPE_CALL_FLEET_PUT_MEMBER, "m", "{\"plans\":[1]}", 422},
        {HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":10}", 422},
        {HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":10,\"share\":1.5}", 422},
        {HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":10,\"share\":0.5,\"watts\":1}", 422},
        {HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":9,\"share\":0.5,\"from\":5}", 422},
        {HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":9,\"share\":0,\"group\":\"z\"}", 404},
        {HARPE_CALL_FLEET_PUT_PRICES, NULL, "{\"series\":[]}", 422},
        {HARPE_CALL_FLEET_PUT_PRICES, NULL, "{\"series\":[{\"at\":0,\"energy_per_kwh\":-1.1e6}]}",
         422},
        {HARPE_CALL_FLEET_PUT_PRICES, NULL,
         "{\"series\":[{\"at\":2,\"energy_per_kwh\":1},{\"at\":1,\"energy_per_kwh\":1}]}", 422},
        {HARPE_CALL_FLEET_DELETE_PRICES, NULL, NULL, 404},
    };
    set(w, HARPE_CALL_FLEET_PUT_GROUP, "a", "{}");
    set(w, HARPE_CALL_FLEET_PUT_GROUP, "b", "{\"parent\":\"a\"}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = try_set(w, cases[i].kind, cases[i].id, cases[i].body);
        if (status != cases[i].status)
            fail_msg("%s: %d", cases[i].body ? cases[i].body : "", status);
    }
    assert_int_equal(w->state.group_count, 3);
    assert_int_equal(w->state.event_count, 0);
}

TEST(metadata_says_the_terms) {
    char name[HARPE_FLEET_TEXT_MAX + 1];
    harpe_member_terms terms =
        harpe_member_read_words("llama tokens_per_step=9,fleet_weight=2.5+fleet_max_slowdown=1.2;"
                                "fleet_priority=-3 fleet_name=chat fleet_weight=x "
                                "fleet_highest_w=1e99 fleet_max_slowdown=0.9",
                                name);
    assert_string_equal(name, "chat");
    assert_true(terms.weight == 2.5 && terms.max_slowdown == 1.2 && terms.priority == -3);
    assert_true(isnan(terms.highest_w) && isnan(terms.most_w));
    terms = harpe_member_read_words(NULL, name);
    assert_true(isnan(terms.weight) && !*name);
}

/* With a price alone, each job runs where energy and time cost least. */
FIXTURE_TEST(price_chooses_the_cheapest_plan, 12) {
    real_job *job = add_job(w, "", 1000, 12);
    job->member->said.weight = 1;
    set(w, HARPE_CALL_FLEET_PUT_PRICES, NULL,
        "{\"currency\":\"EUR\",\"value_per_s\":0.001,\"series\":["
        "{\"at\":0,\"energy_per_kwh\":0.0001},{\"at\":%.1f,\"energy_per_kwh\":100}]}",
        w->now_s + 100);
    pass(w, 90);
    assert_int_equal(job->plan, 0);
    pass(w, 90);
    assert_true(job->plan > 0);
}

static double shown_of(const world *w, const char *part, const char *name) {
    json_t *json = shown(w, NULL);
    const json_t *value = json_object_get(part ? json_object_get(json, part) : json, name);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(json);
    return number;
}

static double shown_of_energy(const world *w, const char *name) {
    return shown_of(w, "energy", name);
}

static void use(world *w, real_job *job, double used_j, double saved_j, double uncertainty_j,
                bool is_steered) {
    harpe_fleet_energy *energy = &w->state.energy;
    bool is_new = is_steered && energy->is_counting;
    w->now_s += 10;
    energy->is_known = true;
    if (!is_steered) harpe_fleet_energy_end(&w->state);
    if (!is_steered) return;
    harpe_fleet_energy_begin(&w->state, w->now_s);
    harpe_fleet_account *account = harpe_fleet_account_need(&w->state, job->member->id, is_new);
    assert_non_null(account);
    harpe_fleet_account_take(&w->state, account, w->now_s,
                             (harpe_fleet_used){used_j, saved_j, uncertainty_j, true});
}

static bool is_near(double a, double b) { return fabs(a - b) < 1e-9 * (1 + fabs(b)); }

/* Energy counts only while a budget, an event or a price is set. `since` is the beginning of that
 * time. */
FIXTURE_TEST(energy_of_an_idle_fleet_is_not_counted, 27) {
    real_job *job = add_job(w, "", 1000, 3);
    use(w, job, 1000, 100, 30, false);
    use(w, job, 5000, 500, 150, false);
    use(w, job, 9000, 900, 270, true);
    double since_s = w->now_s;
    use(w, job, 10000, 1000, 300, true);
    const harpe_fleet_energy *energy = &w->state.energy;
    assert_true(energy->since_s == since_s && energy->used_j == 1000 && energy->saved_j == 100);
    assert_true(is_near(harpe_fleet_energy_uncertainty_j(&w->state), 30));
    use(w, job, 20000, 2000, 600, false);
    use(w, job, 30000, 3000, 900, true);
    use(w, job, 31000, 3100, 930, true);
    assert_true(energy->since_s == since_s && energy->used_j == 2000 && energy->saved_j == 200);
    assert_true(is_near(harpe_fleet_energy_uncertainty_j(&w->state), 60));
}

/* A server that is killed loses nothing: the next one adds what the stored sums lack of each job. A
 * job that has begun since then has no account, and all of its energy counts. */
FIXTURE_TEST(restart_adds_what_the_stored_sums_lack, 26) {
    world *again = fresh(state, 26);
    harpe_fleet_note note;
    real_job *job = add_job(w, "", 1000, 3), *other = add_job(w, "", 1000, 3);
    use(w, job, 9000, 900, 270, true);
    use(w, job, 10000, 1000, 300, true);
    use(w, other, 500, 50, 15, true);
    assert_true(harpe_notes_of_energy(&w->state, &note));
    use(w, job, 11000, 1100, 330, true); /* not stored */
    keep(again, &note);
    assert_false(again->state.energy.is_known);
    assert_true(isnan(shown_of_energy(again, "used_kwh")));
    (void)add_job(again, "", 1000, 3);
    (void)add_job(again, "", 1000, 3);
    real_job *third = add_job(again, "", 1000, 3);
    for (int i = 0; i < 3; i++) {
        use(again, &again->jobs[0], 12000, 1200, 360, true);
        use(again, &again->jobs[1], 500, 50, 15, true);
        use(again, third, 70, 7, 2, true);
    }
    assert_true(again->state.energy.used_j == 3000 + 500 + 70);
    assert_true(is_near(again->state.energy.saved_j, 300 + 50 + 7));
    assert_true(is_near(shown_of_energy(again, "used_kwh"), 3570 / 3.6e6));
    /* Figures that are below what was added, as those of a job without figures, change nothing. */
    use(again, &again->jobs[0], 0, 0, 0, true);
    use(again, &again->jobs[0], 12000, 1200, 360, true);
    assert_true(again->state.energy.used_j == 3570);
}

/* After a restart, the uncertainty goes on with that of the accounts that were stored. */
FIXTURE_TEST(uncertainty_is_that_of_the_counted_savings, 28) {
    world *again = fresh(state, 28);
    harpe_fleet_note note;
    set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":5000,\"overhead\":1.5}");
    set(again, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":5000,\"overhead\":1.5}");
    real_job *job = add_job(w, "", 1000, 3), *other = add_job(w, "", 1000, 3);
    for (int i = 0; i < 2; i++) {
        use(w, job, 1000 * i, 100 * i, 30 * i, true);
        use(w, other, 1000 * i, 100 * i, 40 * i, true);
    }
    assert_true(is_near(harpe_fleet_energy_uncertainty_j(&w->state), 1.5 * 50));
    assert_true(harpe_notes_of_energy(&w->state, &note));
    keep(again, &note);
    assert_true(is_near(harpe_fleet_energy_uncertainty_j(&again->state), 75));
    use(again, add_job(again, "", 1000, 3), 2000, 200, 60, true);
    assert_true(again->state.energy.used_j == 1.5 * 3000);
    assert_true(is_near(harpe_fleet_energy_uncertainty_j(&again->state), 1.5 * hypot(60, 40)));
}

static bool has_currency(const world *w, const char *name) {
    json_t *json = shown(w, NULL);
    const char *shown_name =
        json_string_value(json_object_get(json_object_get(json, "energy"), "currency"));
    bool is_equal = strcmp(shown_name ? shown_name : "", name) == 0;
    json_decref(json);
    return is_equal;
}

/* When the prices are removed, the costs keep their currency. When prices in another currency are
 * set, the costs begin again at 0. */
FIXTURE_TEST(costs_have_a_currency, 30) {
    static const char prices[] = "{\"currency\":\"%s\",\"carbon_per_kg\":0,\"series\":[{\"at\":0,"
                                 "\"energy_per_kwh\":0.2,\"carbon_g_per_kwh\":500}]}";
    harpe_fleet_note note;
    real_job *job = add_job(w, "", 1000, 3);
    double kwh = 3.6e6;
    use(w, job, 0, 0, 0, true);
    assert_true(isnan(shown_of_energy(w, "cost")));
    assert_true(isnan(shown_of_energy(w, "cost_saved_uncertainty")));
    set(w, HARPE_CALL_FLEET_PUT_PRICES, NULL, prices, "EUR");
    use(w, job, 10 * kwh, 2 * kwh, 0.5 * kwh, true);
    set(w, HARPE_CALL_FLEET_DELETE_PRICES, NULL, "%s", "");
    assert_true(is_near(shown_of_energy(w, "cost"), 2) && has_currency(w, "EUR"));
    assert_true(is_near(shown_of_energy(w, "cost_saved_uncertainty"), 0.1));
    assert_true(is_near(shown_of_energy(w, "carbon_kg_saved_uncertainty"), 0.25));
    set(w, HARPE_CALL_FLEET_PUT_PRICES, NULL, prices, "USD");
    assert_true(is_near(shown_of_energy(w, "cost"), 2) && has_currency(w, "EUR"));
    use(w, job, 15 * kwh, 3 * kwh, 0.75 * kwh, true);
    assert_true(is_near(shown_of_energy(w, "cost"), 1) && has_currency(w, "USD"));
    assert_true(is_near(shown_of_energy(w, "cost_saved"), 0.2));
    assert_true(is_near(shown_of_energy(w, "carbon_kg"), 7.5));
    /* Prices without a currency are of another one, too, also after a restart. */
    set(w, HARPE_CALL_FLEET_PUT_PRICES, NULL, prices, "");
    use(w, job, 25 * kwh, 5 * kwh, 1.25 * kwh, true);
    assert_true(is_near(shown_of_energy(w, "cost"), 2) && has_currency(w, ""));
    assert_true(harpe_notes_of_energy(&w->state, &note));
    keep(w, &note);
    set(w, HARPE_CALL_FLEET_PUT_PRICES, NULL, prices, "EUR");
    use(w, job, 30 * kwh, 6 * kwh, 1.5 * kwh, true);
    assert_true(is_near(shown_of_energy(w, "cost"), 1) && has_currency(w, "EUR"));
}

/* While the price is negative, the cost falls, so it is a gauge and no counter. */
FIXTURE_TEST(cost_falls_while_the_price_is_negative, 31) {
    static const char sample[] = "\nharpe_fleet_cost{currency=\"EUR\"} ";
    real_job *job = add_job(w, "", 1000, 3);
    use(w, job, 0, 0, 0, true);
    for (int i = 0; i < 2; i++) {
        harpe_text text = {0};
        set(w, HARPE_CALL_FLEET_PUT_PRICES, NULL,
            "{\"currency\":\"EUR\",\"series\":[{\"at\":0,\"energy_per_kwh\":%s}]}",
            i == 0 ? "0.2" : "-0.3");
        use(w, job, 3.6e6 * 5 * (i + 1), 0, 0, true);
        harpe_fleet_metrics(&w->state, now_of(w), &text);
        const char *found = strstr(text.data, sample);
        assert_non_null(found);
        assert_true(is_near(strtod(found + strlen(sample), NULL), i == 0 ? 1 : -0.5));
        assert_non_null(strstr(text.data, "# TYPE harpe_fleet_cost gauge\n"));
        harpe_text_free(&text);
    }
}

/* Without a value of time, nothing says what a slower job costs. Prices then value the energy and
 * the power, and the split is that without prices. */
FIXTURE_TEST(prices_without_a_value_of_time_change_no_split, 32) {
    real_job *job = add_job(w, "", 1000, 12);
    set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":2000,\"overhead\":1.5}");
    set(w, HARPE_CALL_FLEET_PUT_PRICES, NULL,
        "{\"currency\":\"EUR\",\"carbon_per_kg\":0.1,\"series\":[{\"at\":0,"
        "\"energy_per_kwh\":100,\"carbon_g_per_kwh\":500}]}");
    pass(w, 90);
    assert_int_equal(job->plan, 0);
    assert_true(isnan(shown_of(w, "price", "value_per_s")) && shown_of(w, NULL, "objective") == 0);
    double cost = shown_of(w, "price", "cost_per_h");
    double meter_kw = 1.5 * job->member->measured_w / 1000;
    assert_true(meter_kw > 1 && fabs(cost - meter_kw * (100 + 0.05)) < 1e-6);
}

/* With prices, the objective and its bound are costs per second, also if the price of energy is 0.
 */
FIXTURE_TEST(objective_has_the_unit_of_the_prices, 26) {
    real_job *job = add_job(w, "", 1000, 12);
    job->member->said.weight = 2;
    set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":600,\"overhead\":1}");
    set(w, HARPE_CALL_FLEET_PUT_PRICES, NULL,
        "{\"value_per_s\":0.01,\"series\":[{\"at\":0,\"energy_per_kwh\":0},"
        "{\"at\":%.1f,\"energy_per_kwh\":0.2}]}",
        w->now_s + 100);
    for (int i = 0; i < 2; i++) {
        pass(w, 90);
        const harpe_fleet_plan *plan = &job->member->plans[job->plan];
        double slowdown = plan->time_s / job->member->plans[0].time_s;
        double per_j = i == 0 ? 0 : 0.2 / 3.6e6;
        double objective = shown_of(w, NULL, "objective"), bound = shown_of(w, NULL, "lower_bound");
        double weighted = shown_of(w, NULL, "weighted_slowdown");
        double cost = 0.02 * (slowdown - 1) + per_j * plan->power_w * slowdown;
        assert_true(fabs(weighted - 2 * (slowdown - 1)) < 1e-9 && fabs(objective - cost) < 1e-9);
        assert_true(slowdown > 1.01 && bound <= objective && bound > 0.5 * objective);
    }
}

TEST(history_is_kept_for_a_day) {
    harpe_fleet_history *history = harpe_fleet_history_new();
    harpe_fleet_history *again = harpe_fleet_history_new();
    harpe_text text = {0}, saved = {0}, second = {0};
    double start_s = 1200000000;
    for (int i = 0; i < 200000; i += 5)
        harpe_fleet_history_add(history, start_s + i, 100 + i % 10, 200, i < 199000 ? -1 : 300);
    harpe_fleet_history_show(history, start_s + 199940, start_s + 200000, 0, &text);
    assert_string_equal(text.data,
                        "{\"at\":[1200199940,1200199950,1200199960,1200199970,1200199980,"
                        "1200199990],\"measured_w\":[102.5,102.5,102.5,102.5,102.5,102.5],"
                        "\"counted_w\":[200,200,200,200,200,200],"
                        "\"limit_w\":[300,300,300,300,300,300]}");
    harpe_fleet_history_save(history, &saved);
    harpe_fleet_history_load(again, saved.data, saved.length);
    harpe_fleet_history_show(again, start_s, start_s + 199000, 2, &second);
    assert_non_null(strstr(second.data, "\"limit_w\":[null,null]}"));
    harpe_text_free(&text);
    harpe_text_free(&saved);
    harpe_text_free(&second);
    harpe_fleet_history_free(history);
    harpe_fleet_history_free(again);
}

/* A limit that falls within a minute is no breach of the time before: the mean power of the minute
 * stands beside the mean limit. If a part of the minute had no limit, the minute has none. */
TEST(mean_power_stands_beside_the_mean_limit) {
    static const double limits[][2] = {{1000, 400}, {-1, 400}, {300, 400}};
    static const char *const shown_limits[] = {"[700]", "[null]", "[350]"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        harpe_fleet_history *history = harpe_fleet_history_new(),
                            *again = harpe_fleet_history_new();
        harpe_text texts[2] = {{0}}, saved = {0};
        double start_s = 1200000000;
        for (int t = 0; t < 60; t++) /* within each limit, but for the last one */
            harpe_fleet_history_add(history, start_s + t, t < 30 ? 900 : 400, 900,
                                    limits[i][t >= 30]);
        for (int t = 60; t < 6000; t++)
            harpe_fleet_history_add(history, start_s + t, 0, 0, 1000);
        harpe_fleet_history_save(history, &saved);
        harpe_fleet_history_load(again, saved.data, saved.length);
        harpe_fleet_history_show(history, start_s, start_s + 59, 0, &texts[0]);
        harpe_fleet_history_show(again, start_s, start_s + 59, 0, &texts[1]);
        for (int t = 0; t < 2; t++) {
            assert_non_null(strstr(texts[t].data, "\"measured_w\":[650]"));
            assert_non_null(strstr(texts[t].data, shown_limits[i]));
            harpe_text_free(&texts[t]);
        }
        harpe_text_free(&saved);
        harpe_fleet_history_free(history);
        harpe_fleet_history_free(again);
    }
}

static void note_gone(void *user, int64_t id) {
    int64_t *sum = user;
    *sum += id;
}

static void prune(world *w, double wall_s, double steady_s, int64_t *gone) {
    harpe_fleet_events_prune(&w->state, (harpe_fleet_now){wall_s, steady_s}, note_gone, gone);
}

/* An event is kept for a week after its end. Then harpe_fleet_events_prune removes it, and tells
 * the caller its number, so that the caller can remove it from the store. */
FIXTURE_TEST(old_events_are_removed_and_named, 13) {
    add_job(w, "", 1000, 12);
    set_budget(w, 1000);
    for (int i = 0; i < 2; i++)
        set(w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":%d,\"watts\":10}",
            10 + i * 1000);
    int64_t gone = 0;
    double day_s = 86400, from_s = w->now_s;
    prune(w, from_s + 10, 50, &gone);
    prune(w, from_s + 10 + 7 * day_s - 1, 50 + 7 * day_s - 1, &gone);
    assert_int_equal(gone, 0);
    prune(w, from_s + 10 + 7 * day_s, 50 + 7 * day_s, &gone);
    assert_int_equal(gone, 1);
    assert_int_equal(w->state.event_count, 1);
    assert_int_equal(w->state.events[0].id, 2);
}

/* A clock that is wrong for some minutes makes no event too old, also not one of too many. */
TEST(clock_that_jumps_removes_no_event) {
    enum { EVENTS = 300 };
    world w;
    begin(&w, 13);
    add_job(&w, "", 1000, 12);
    set_budget(&w, 1000);
    for (int i = 0; i < EVENTS; i++)
        set(&w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"from\":%.0f,\"duration_s\":60,\"watts\":1}",
            w.now_s + 86400 + i);
    int64_t gone = 0;
    double year_s = 365 * 86400.0, day_s = 86400;
    for (int i = 0; i < 10; i++) {
        double jump_s = i % 3 == 1 ? year_s : i % 3 == 2 ? -year_s : 0;
        prune(&w, w.now_s + jump_s, 1000 + 300 * i, &gone);
    }
    assert_int_equal(gone, 0);
    assert_int_equal(w.state.event_count, EVENTS);
    /* When they are really over, the newest 200 stay for a week. */
    prune(&w, w.now_s + 2 * day_s, 2 * day_s, &gone);
    prune(&w, w.now_s + 2 * day_s + 3600, 2 * day_s + 3600, &gone);
    assert_int_equal(w.state.event_count, 200);
    prune(&w, w.now_s + 9 * day_s, 9 * day_s, &gone);
    assert_int_equal(w.state.event_count, 0);
    end(&w);
}

/* Events that end at once do not fill the memory. */
FIXTURE_TEST(many_events_that_are_over_are_removed_at_once, 13) {
    add_job(w, "", 1000, 12);
    set_budget(w, 1000);
    for (int i = 0; i < 1300; i++) {
        set(w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":1,\"watts\":1000}");
        if (i % 600 == 599) w->now_s += 10;
    }
    int64_t gone = 0;
    assert_int_equal(w->state.event_count, 1300);
    prune(w, w->now_s + 10, 50, &gone);
    assert_int_equal(w->state.event_count, 1200);
    assert_int_equal(w->state.events[0].id, 101);
}

FIXTURE_TEST(state_of_a_job_says_what_happens_to_it, 14) {
    real_job *job = add_job(w, "", 1000, 12);
    pass(w, 10);
    assert_string_equal(harpe_fleet_member_state_name(job->member, false), "not steered");
    set_budget(w, 600);
    pass(w, 60);
    assert_string_equal(harpe_fleet_member_state_name(job->member, true), "follows");
    /* All plans need more than this budget, so the cap is below all plans. The job runs its slowest
     * plan, and is not raised. */
    set_budget(w, 1);
    pass(w, 60);
    assert_int_equal(job->plan, 11);
    assert_string_equal(harpe_fleet_member_state_name(job->member, true), "follows");
}

/* A declared member reports a plan that does not exist, while a higher cap is not stored yet. Its
 * answer has the plan of the cap that is stored. */
FIXTURE_TEST(declared_member_waits_for_a_stored_cap, 15) {
    harpe_text text = {0};
    harpe_member *member = declare(w);
    member->stored_w = 400;
    harpe_member_decide(member, 500, now_of(w));
    harpe_member_follow(member, 5000, 450, now_of(w));
    harpe_fleet_show_plan(member, fmin(member->cap_w, member->stored_w), &text);
    assert_string_equal(text.data, "{\"plan\":1,\"watts\":400,\"time_s\":1.2}");
    harpe_text_free(&text);
}

/* A second request with the same key and group makes no second event. Another group may use the
 * same key. */
FIXTURE_TEST(key_of_an_event_counts_in_its_group, 16) {
    for (int i = 0; i < 2; i++)
        set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":1000,\"group\":\"row%d\"}", i);
    for (int i = 0; i < 4; i++)
        set(w, HARPE_CALL_FLEET_POST_EVENT, NULL,
            "{\"duration_s\":100,\"watts\":10,\"key\":\"k\",\"group\":\"row%d\"}", i % 2);
    assert_int_equal(w->state.event_count, 2);
    assert_string_equal(w->state.events[0].group, "row0");
    assert_string_equal(w->state.events[1].group, "row1");
}

FIXTURE_TEST(too_many_groups_are_refused, 17) {
    harpe_error error;
    for (int i = 0; !harpe_groups_are_full(&w->state); i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "g%d", i);
        assert_true(harpe_groups_need(&w->state, name) >= 0);
    }
    assert_int_equal(
        try_set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":1,\"group\":\"more\"}"), 429);
    assert_int_equal(try_set(w, HARPE_CALL_FLEET_PUT_GROUP, "more", "{}"), 429);
    set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":1,\"group\":\"g1\"}");
    /* A server must start with a store that has too many groups. */
    assert_int_equal(harpe_notes_apply(&w->state, "budget/more", "{}", 2, true, &error), HARPE_OK);
    assert_int_equal(harpe_notes_apply(&w->state, "budget/more", "{}", 2, false, &error),
                     HARPE_LIMIT_EXCEEDED);
}

FIXTURE_TEST(notes_of_another_shape_are_refused, 17) {
    static const char *const notes[][2] = {
        {"prices", "{\"series\":[[0,1,2]]}"}, {"plans/j", "{\"plans\":[[1,2]]}"}, {"load/l", "[]"}};
    harpe_error error;
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        assert_int_equal(harpe_notes_apply(&w->state, notes[i][0], notes[i][1], strlen(notes[i][1]),
                                           true, &error),
                         HARPE_INVALID_INPUT);
    assert_int_equal(w->state.member_count, 0);
}

/* A member leaves while the solver works. The next solution gives its power to the others. */
FIXTURE_TEST(member_that_leaves_during_a_solution_frees_its_power, 18) {
    harpe_error error;
    for (int i = 0; i < 2; i++)
        add_job(w, "", 1000, 12);
    set_budget(w, 1200);
    harpe_limits_update(&w->state, now_of(w));
    assert_true(harpe_decide_prepare(&w->state, now_of(w)));
    harpe_member_remove(&w->state, 1);
    harpe_decide_solve(&w->state);
    assert_int_equal(harpe_decide_take(&w->state, &error), HARPE_OK);
    assert_true(harpe_decide_prepare(&w->state, now_of(w)));
    w->job_count = 1;
    pass(w, 120);
    assert_int_equal(w->jobs[0].plan, 0);
}

FIXTURE_TEST(events_that_run_are_always_shown, 19) {
    set(w, HARPE_CALL_FLEET_PUT_BUDGET, NULL, "{\"watts\":1000,\"group\":\"row\"}");
    set_budget(w, 1000);
    set(w, HARPE_CALL_FLEET_POST_EVENT, NULL,
        "{\"duration_s\":100000,\"watts\":7,\"group\":\"row\"}");
    for (int i = 0; i < 250; i++) {
        set(w, HARPE_CALL_FLEET_POST_EVENT, NULL, "{\"duration_s\":1,\"watts\":1}");
        w->now_s += 2;
    }
    json_t *json = shown(w, "row");
    assert_int_equal(json_array_size(json_object_get(json, "events")), 1);
    json_decref(json);
    json = shown(w, NULL);
    json_t *events = json_object_get(json, "events");
    assert_int_equal(json_array_size(events), 201); /* the newest 200 that are over */
    assert_true(json_number_value(json_object_get(json_array_get(events, 0), "watts")) == 7);
    json_decref(json);
}

/* After a pause, new points have replaced some old points of the ring. The history must not show
 * the gaps between the old points that are left. */
TEST(history_has_no_hole_after_a_pause) {
    harpe_text text = {0};
    harpe_fleet_history *history = harpe_fleet_history_new();
    double now_s = 1e9;
    assert_non_null(history);
    for (int i = 0; i < 360; i++, now_s += 10)
        harpe_fleet_history_add(history, now_s, 1, 1, -1);
    double pause_s = now_s;
    now_s += 1800;
    for (int i = 0; i < 90; i++, now_s += 10)
        harpe_fleet_history_add(history, now_s, 2, 2, -1);
    harpe_fleet_history_show(history, pause_s - 3600, now_s, 0, &text);
    json_t *json = json_loads(text.data, 0, NULL);
    const json_t *at = json_object_get(json, "at");
    /* Except for the pause, no two points are more than a minute apart. */
    for (size_t i = 1; i < json_array_size(at); i++) {
        double before_s = json_number_value(json_array_get(at, i - 1));
        double step_s = json_number_value(json_array_get(at, i)) - before_s;
        if (step_s > 60) assert_true(before_s < pause_s && before_s + step_s >= pause_s + 1740);
    }
    json_decref(json);
    harpe_text_free(&text);
    harpe_fleet_history_free(history);
}

static size_t points_shown(const harpe_fleet_history *history) {
    harpe_text text = {0};
    harpe_fleet_history_show(history, 0, 1e11, 0, &text);
    json_t *json = json_loads(text.data, 0, NULL);
    size_t count = json_array_size(json_object_get(json, "at"));
    json_decref(json);
    harpe_text_free(&text);
    return count;
}

/* Points of the time in which the clock was a year ahead are not shown, and hide no others. */
TEST(history_is_shown_after_the_clock_was_set_back) {
    double now_s = 1e9, year_s = 365 * 86400;
    harpe_fleet_history *history = harpe_fleet_history_new(), *again = harpe_fleet_history_new();
    harpe_text saved = {0};
    for (int i = 0; i < 100; i++, now_s += 10)
        harpe_fleet_history_add(history, now_s, 1, 1, -1);
    for (int i = 0; i < 7; i++, now_s += 10)
        harpe_fleet_history_add(history, now_s + year_s, 2, 2, -1);
    harpe_fleet_history_add(history, now_s, 3, 3, -1);
    size_t shown = points_shown(history);
    assert_in_range(shown, 90, 120);
    /* The next server reads the minutes. */
    harpe_fleet_history_save(history, &saved);
    harpe_fleet_history_load(again, saved.data, saved.length);
    harpe_fleet_history_add(again, now_s + 10, 3, 3, -1);
    assert_in_range(points_shown(again), 15, 20);
    /* The time that was a year ahead comes, and the clock goes on. */
    harpe_fleet_history_add(history, now_s + year_s, 4, 4, -1);
    assert_in_range(points_shown(history), 1, 10);
    harpe_text_free(&saved);
    harpe_fleet_history_free(history);
    harpe_fleet_history_free(again);
}

int main(void) { return run_listed_tests(); }
