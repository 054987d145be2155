/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the thread of a fleet's member with a scripted server. The tests check what the thread
 * declares and reports. They also check what it does if the server cannot be reached, does not
 * answer, refuses a request, sends nonsense, or does not know the member any more. */
#include "power_limit/fleet_server.h"
#include "power_limit/member.h"
#include <math.h>

/* Short times, so that many attempts fit into a test. */
static const harpe_power_member_times quick = {
    .report_s = 0.02, .answer_s = LIMIT_S, .retry_s = 0.01, .refused_s = 0.01, .leave_s = LIMIT_S};
/* Times for tests in which the server does not answer. */
static const harpe_power_member_times impatient = {
    .report_s = 0.02, .answer_s = 0.3, .retry_s = 0.01, .refused_s = 0.01, .leave_s = LIMIT_S};

/* ---- The job --------------------------------------------------------------------------------- */

typedef struct job {
    fleet_server server;
    harpe_power_limit_fleet asked;
    harpe_power_limit_fleet *terms;
    harpe_power_limit_device device;
    harpe_power_member *member;
    harpe_limit_plans *plans;
    double power_w;
    double later_w; /* the power from the second reading on; 0: the same */
    int warnings;
    char lines[4096];
} job;

static void write_log(void *user, harpe_log_level level, const char *line) {
    job *self = user;
    self->warnings += level >= HARPE_LOG_WARNING;
    size_t used = strlen(self->lines);
    snprintf(self->lines + used, sizeof self->lines - used, "%s\n", line);
}

static bool has_logged(const job *self, const char *text) { return strstr(self->lines, text); }

static harpe_status mean_power(void *user, double *power_w, harpe_error *error) {
    (void)error;
    job *self = user;
    *power_w = self->power_w;
    if (self->later_w > 0) self->power_w = self->later_w;
    return HARPE_OK;
}

static void join(job *self, const harpe_power_member_times *times) {
    harpe_power_member_job how = {
        .highest_w = 600, .device = &self->device, .log = {write_log, self}};
    if (harpe_power_member_take_terms(&self->asked, &self->terms, &failure) != HARPE_OK ||
        harpe_power_member_join(self->terms, &how, times, &self->member, &failure) != HARPE_OK)
        fail_msg("%s", failure.message);
}

/* Three plans: 500, 400 and 300 W. The second is the job's own choice. */
static void measure(job *self) {
    static const harpe_power_limit_measurement all[] = {
        {300, 5000, 10}, {200, 4400, 11}, {100, 3600, 12}};
    assert_works(harpe_limit_plans_make(all, 3, 200, 10, &self->plans, &failure));
    harpe_power_member_take_plans(self->member, self->plans);
}

static void begin(job *self) {
    memset(self, 0, sizeof *self);
    self->device = (harpe_power_limit_device){.user = self, .mean_power = mean_power};
    start_fleet_server(&self->server);
    self->asked = (harpe_power_limit_fleet){
        .server_url = self->server.url, .member = "job 1", .token = "secret"};
}

static void finish(job *self) {
    harpe_power_member_leave(self->member);
    self->member = NULL;
}

static void end(job *self) {
    finish(self);
    stop_fleet_server(&self->server);
    harpe_power_member_forget_terms(self->terms);
    free(self->plans);
}

/* Waits until a report that began later than this call is answered. */
static void wait_for_report(job *self) {
    int now = self->server.reported;
    WAIT_FOR(self->server.reported >= now + 2);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

JOB_TEST(a_job_is_declared_measured_told_and_removed) {
    join(self, &quick);
    WAIT_FOR(server->reported >= 3);
    assert_non_null(strstr(server->declaration, "600")); /* the highest power */
    assert_non_null(strstr(server->token, "secret"));
    assert_non_null(strstr(server->target, "/fleet/members/job%201"));
    assert_int_equal(harpe_power_member_told(self->member), -1);
    server->plan = 2;
    measure(self);
    WAIT_FOR(harpe_power_member_told(self->member) == 2);
    assert_int_equal(server->declared, 2);
    WAIT_FOR(strstr(server->report, "\"plan\":1"));
    harpe_power_member_begin_change(self->member);
    harpe_power_member_end_change(self->member, 2);
    WAIT_FOR(strstr(server->report, "\"plan\":2"));
    finish(self);
    assert_int_equal(server->removed, 1);
    assert_int_equal(self->warnings, 0);
}

JOB_TEST(a_power_belongs_to_the_plan_that_is_reported) {
    self->power_w = 440;
    join(self, &quick);
    measure(self);
    WAIT_FOR(strstr(server->report, "\"plan\":1,\"power\":440"));
    harpe_power_member_begin_change(self->member);
    wait_for_report(self);
    assert_null(strstr(server->report, "power")); /* the limit is being changed */
    harpe_power_member_end_change(self->member, 2);
    WAIT_FOR(strstr(server->report, "\"plan\":2"));
    WAIT_FOR(strstr(server->report, "\"plan\":2,\"power\":440"));
}

/* While limits are measured, the limit changes and the member is not told. */
JOB_TEST(no_plan_has_a_power_from_the_time_of_the_measurements) {
    self->power_w = 900;
    join(self, &quick);
    WAIT_FOR(strstr(server->report, "900"));
    watch_fleet(server, "\"plan\":1,\"power\":900");
    self->later_w = 400; /* the next reading still begins in the time of the measurements */
    measure(self);
    WAIT_FOR(strstr(server->report, "\"plan\":1,\"power\":400"));
    assert_int_equal(server->seen, 0);
}

JOB_TEST(the_power_of_several_ranks_is_reported_once) {
    self->device.mean_power = NULL;
    join(self, &quick);
    measure(self);
    WAIT_FOR(strstr(server->declaration, "most_w"));
    wait_for_report(self);
    assert_null(strstr(server->report, "power"));
    watch_fleet(server, "777");
    harpe_power_member_note_power(self->member, 777);
    WAIT_FOR(server->seen >= 1);
    wait_for_report(self);
    assert_null(strstr(server->report, "power"));
    assert_int_equal(server->seen, 1);
}

JOB_TEST(a_job_that_gives_up_counts_with_its_highest_power) {
    server->plan = 2;
    join(self, &quick);
    measure(self);
    WAIT_FOR(harpe_power_member_told(self->member) == 2);
    server->plan = 0;
    harpe_power_member_give_up(self->member);
    WAIT_FOR(strstr(server->declaration, "600"));
    WAIT_FOR(harpe_power_member_told(self->member) == -1);
}

JOB_TEST(a_server_that_forgets_gets_a_new_declaration) {
    server->plan = 1;
    join(self, &quick);
    measure(self);
    WAIT_FOR(harpe_power_member_told(self->member) == 1);
    int declared = server->declared;
    set_fleet_mode(server, FLEET_FORGETS, NULL);
    WAIT_FOR(server->declared >= declared + 1);
    wait_for_report(self);
    assert_non_null(strstr(server->declaration, "most_w"));
    assert_true(has_logged(self, "does not know this member"));
    assert_int_equal(self->warnings, 1);
}

/* The log has one line for the beginning of a fault of the server, and one for its end. Meanwhile
 * the job keeps the plan that it was told. */
static void check_fault(fleet_mode mode, const char *babble, const char *line) {
    job self;
    begin(&self);
    fleet_server *server = &self.server;
    server->plan = 2;
    const int *attempts = mode == FLEET_HANGS ? &server->unanswered : &server->reported;
    join(&self, mode == FLEET_HANGS ? &impatient : &quick);
    measure(&self);
    WAIT_FOR(harpe_power_member_told(self.member) == 2);
    set_fleet_mode(server, mode, babble);
    int before = *attempts;
    WAIT_FOR(*attempts >=
             before + 3); /* the second request has failed, so its line is in the log */
    assert_true(has_logged(&self, line));
    int warnings = self.warnings;
    assert_true(warnings >= 1);
    WAIT_FOR(*attempts >= before + 6);
    assert_int_equal(self.warnings, warnings);
    assert_int_equal(harpe_power_member_told(self.member), 2);
    server->plan = 1;
    set_fleet_mode(server, FLEET_SERVES, NULL);
    WAIT_FOR(harpe_power_member_told(self.member) == 1);
    WAIT_FOR(has_logged(&self, "the server is back after"));
    end(&self);
}

WORLD_TEST(faults_of_the_server_are_told_once) {
    check_fault(FLEET_HANGS, NULL, "training continues");
    check_fault(FLEET_REFUSES, NULL, "this needs another role");
    static const char *const nonsense[] = {"",
                                           "null",
                                           "{}",
                                           "<html>",
                                           "{\"plan\":3}",
                                           "{\"plan\":-1}",
                                           "\xff\xfe\x00",
                                           "{\"plan\":[]}"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
        check_fault(FLEET_BABBLES, nonsense[i], "not as harpe serve does");
}

JOB_TEST(a_server_may_come_late_and_go_and_come_back) {
    stop_fleet_server(server);
    join(self, &quick);
    measure(self);
    WAIT_FOR(has_logged(self, "no server answers"));
    for (int i = 0; i < 2; i++) {
        restart_fleet_server(server);
        server->plan = 1 + i;
        WAIT_FOR(harpe_power_member_told(self->member) == 1 + i);
        assert_int_equal(self->warnings, 1 + i);
        stop_fleet_server(server);
        WAIT_FOR(self->warnings == 2 + i);
    }
    restart_fleet_server(server);
}

/* The hold ends on time, whatever the thread waits for. `comes_back`: the thread asks again soon.
 */
static void check_hold(fleet_mode mode, harpe_power_member_times times, bool comes_back) {
    job self;
    begin(&self);
    fleet_server *server = &self.server;
    self.asked.hold_s = 0.1;
    server->plan = 2;
    join(&self, &times);
    measure(&self);
    WAIT_FOR(harpe_power_member_told(self.member) == 2);
    set_fleet_mode(server, mode, NULL);
    WAIT_FOR(harpe_power_member_told(self.member) == -1);
    WAIT_FOR(has_logged(&self, "has given no limit for"));
    set_fleet_mode(server, FLEET_SERVES, NULL);
    if (comes_back) WAIT_FOR(harpe_power_member_told(self.member) == 2);
    end(&self);
}

WORLD_TEST(the_hold_ends) {
    harpe_power_member_times endless = quick;
    endless.answer_s = endless.retry_s = endless.refused_s = 1e5;
    endless.leave_s = 0.05;
    check_hold(FLEET_HANGS, impatient, true);
    check_hold(FLEET_HANGS, endless, false);
    check_hold(FLEET_REFUSES, quick, true);
    check_hold(FLEET_REFUSES, endless, false);
}

/* The hold may be shorter than the time from one report to the next. */
JOB_TEST(a_short_hold_does_not_end_between_two_reports) {
    harpe_power_member_times times = quick;
    times.report_s = 0.2;
    self->asked.hold_s = 0.15;
    server->plan = 2;
    join(self, &times);
    measure(self);
    WAIT_FOR(harpe_power_member_told(self->member) == 2);
    for (int i = 0; i < 10; i++)
        wait_for_report(self);
    assert_int_equal(self->warnings, 0);
}

JOB_TEST(the_end_does_not_wait_for_a_server_that_hangs) {
    harpe_power_member_times times = quick;
    times.answer_s = 1e5; /* without leave_s, the member would not end */
    times.leave_s = 0.05;
    join(self, &times);
    WAIT_FOR(server->reported >= 1);
    set_fleet_mode(server, FLEET_HANGS, NULL);
    WAIT_FOR(server->unanswered >= 1);
    finish(self);
    assert_true(has_logged(self, "may still count this member"));
    assert_int_equal(self->warnings, 1);
}

JOB_TEST(a_server_that_was_never_there_delays_nothing) {
    stop_fleet_server(server);
    join(self, &quick);
    WAIT_FOR(has_logged(self, "no server answers"));
    finish(self);
    assert_true(has_logged(self, "may still count this member"));
    assert_int_equal(self->warnings, 2);
    start_fleet_server(server);
}

WORLD_TEST(wrong_terms_are_refused) {
    char longest[257];
    memset(longest, 'x', 256);
    longest[256] = '\0';
    const harpe_power_limit_fleet wrong[] = {{.server_url = "head-node:7787"},
                                             {.server_url = "http://h:1", .member = ""},
                                             {.server_url = "http://h:1", .member = longest},
                                             {.server_url = "http://h:1", .member = "a\nb"},
                                             {.server_url = "http://h:1", .group = "\xff"},
                                             {.server_url = "http://h:1", .weight = NAN},
                                             {.server_url = "http://h:1", .token = "two words"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        harpe_power_limit_fleet *own = NULL;
        assert_int_not_equal(harpe_power_member_take_terms(&wrong[i], &own, &failure), HARPE_OK);
        assert_null(own);
        assert_true(strlen(failure.message) > 10 && !strpbrk(failure.message, "\n\xff"));
    }
}

WORLD_TEST(the_range_of_a_wrong_number_is_told) {
    const struct {
        harpe_power_limit_fleet wrong;
        const char *text;
    } cases[] = {
        {{.server_url = "http://h:1", .weight = -1},
         "fleet: weight must be above 0 and at most 1e+12, not -1"},
        {{.server_url = "http://h:1", .weight = 1e13},
         "fleet: weight must be above 0 and at most 1e+12, not 1e+13"},
        {{.server_url = "http://h:1", .max_slowdown = 0.99},
         "fleet: max_slowdown must be from 1 to 1e+09, not 0.99"},
        {{.server_url = "http://h:1", .hold_s = -1}, "fleet: hold_s must be above 0, not -1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        harpe_power_limit_fleet *own = NULL;
        assert_int_equal(harpe_power_member_take_terms(&cases[i].wrong, &own, &failure),
                         HARPE_INVALID_ARGUMENT);
        assert_string_equal(failure.message, cases[i].text);
    }
}

WORLD_TEST(names_are_made_and_differ) {
    const harpe_power_limit_fleet asked = {.server_url = "http://h:1"};
    harpe_power_limit_fleet *own[3] = {NULL};
    for (int i = 0; i < 3; i++) {
        if (i == 2) setenv("SLURM_JOB_ID", "4711", 1);
        assert_works(harpe_power_member_take_terms(&asked, &own[i], &failure));
        assert_true(own[i]->hold_s == 3600);
    }
    unsetenv("SLURM_JOB_ID");
    assert_string_not_equal(own[0]->member, own[1]->member);
    assert_non_null(strstr(own[2]->member, "-4711-"));
    for (int i = 0; i < 3; i++)
        harpe_power_member_forget_terms(own[i]);
    const harpe_power_limit_fleet none = {.server_url = ""};
    harpe_power_limit_fleet *nothing = own[0];
    assert_works(harpe_power_member_take_terms(&none, &nothing, &failure));
    assert_null(nothing);
}

int main(void) {
    unsetenv("SLURM_JOB_ID");
    return run_listed_tests();
}
