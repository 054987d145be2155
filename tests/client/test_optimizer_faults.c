/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer in case of failures: training goes on and never waits, the log has one line for
 * each cause, everything works again after the cause has ended, and the GPU's settings are
 * restored. */
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "client/controller.h"
#include "client/optimizer_answers.h"
#include "client/training_world.h"

#define NO_SCHEDULES "no schedules for now"
#define BACK "the server is back"

static void end_with_warnings(training *one, int warnings) {
    stop_steps(one);
    one->thread = 0;
    if (count_warnings(one) != warnings) print_lines(one);
    assert_int_equal(count_warnings(one), warnings);
    end_training(one);
}

/* ---- Attempts -------------------------------------------------------------------------------- */

void __real_harpe_reply_to_registration(harpe_connection *connection, const char *job_body,
                                        char *job_id, size_t size, harpe_reply *reply);
void __wrap_harpe_reply_to_registration(harpe_connection *connection, const char *job_body,
                                        char *job_id, size_t size, harpe_reply *reply);
harpe_status __real_harpe_frequency_controller_start_unless(
    const harpe_frequency_controller_options *options, const atomic_bool *gives_up,
    harpe_frequency_controller **out, harpe_error *error);
harpe_status __wrap_harpe_frequency_controller_start_unless(
    const harpe_frequency_controller_options *options, const atomic_bool *gives_up,
    harpe_frequency_controller **out, harpe_error *error);

static atomic_int attempts; /* to register a job */
static atomic_int starts;   /* of a controller */

void __wrap_harpe_reply_to_registration(harpe_connection *connection, const char *job_body,
                                        char *job_id, size_t size, harpe_reply *reply) {
    __real_harpe_reply_to_registration(connection, job_body, job_id, size, reply);
    atomic_fetch_add(&attempts, 1);
}

harpe_status __wrap_harpe_frequency_controller_start_unless(
    const harpe_frequency_controller_options *options, const atomic_bool *gives_up,
    harpe_frequency_controller **out, harpe_error *error) {
    harpe_status status =
        __real_harpe_frequency_controller_start_unless(options, gives_up, out, error);
    atomic_fetch_add(&starts, 1);
    return status;
}

/* ---- No server ------------------------------------------------------------------------------- */

static void a_server_that_never_comes_is_one_line(void **state) {
    (void)state;
    training *one = start_training("http://127.0.0.1:9", 0, 1);
    WAIT_UNTIL(one, count_lines(one, NO_SCHEDULES) == 1);
    int before = atomic_load(&attempts);
    WAIT_UNTIL(one, atomic_load(&attempts) >= before + 4);
    assert_trains_on(one);
    assert_int_equal(look(one).state, HARPE_PFO_REGISTERING);
    assert_int_equal(look(one).round, -1);
    end_with_warnings(one, 1);
}

static void a_server_that_comes_late_is_found(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    kill_server(&one);
    training *early = start_training(one.url, 0, 1);
    WAIT_UNTIL(early, count_lines(early, NO_SCHEDULES) == 1);
    one = start_server(files->root, "jobs.db", one.port, NULL);
    assert_reaches_round(early, 2);
    assert_int_equal(count_lines(early, BACK), 1);
    assert_int_equal(look(early).reconnects, 1);
    end_with_warnings(early, 1);
    kill_server(&one);
}

static void a_server_that_comes_back_goes_on_with_the_job(void **state) {
    scratch *files = *state;
    write_plan(files->root, 2);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *ranks[] = {start_training(one.url, 0, 2), start_training(one.url, 1, 2)};
    assert_reaches_round(ranks[0], 1);
    harpe_pipeline_frequency_status before = look(ranks[0]);
    kill_server(&one);
    for (int r = 0; r < 2; r++) {
        WAIT_UNTIL(ranks[r], count_lines(ranks[r], NO_SCHEDULES) == 1);
        assert_trains_on(ranks[r]);
    }
    one = start_server(files->root, "jobs.db", one.port, NULL);
    for (int r = 0; r < 2; r++) {
        assert_reaches_round(ranks[r], before.round + 3);
        assert_string_equal(look(ranks[r]).job_id, before.job_id);
        assert_int_equal(count_lines(ranks[r], BACK), 1);
        end_with_warnings(ranks[r], 1);
    }
    kill_server(&one);
}

static void a_server_that_forgot_the_job_gets_it_anew(void **state) {
    scratch *files = *state;
    write_plan(files->root, 2);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *ranks[] = {start_training(one.url, 0, 2), start_training(one.url, 1, 2)};
    assert_reaches_round(ranks[0], 1);
    time_t registered_s = time(NULL);
    kill_server(&one);
    for (int r = 0; r < 2; r++)
        WAIT_UNTIL(ranks[r], count_lines(ranks[r], NO_SCHEDULES) == 1);
    WAIT_UNTIL(ranks[0], time(NULL) > registered_s); /* a job of another second has another id */
    char before[256];
    snprintf(before, sizeof before, "%s", look(ranks[0]).job_id);
    one = start_server(files->root, "empty.db", one.port, NULL);
    for (int r = 0; r < 2; r++) {
        WAIT_UNTIL(ranks[r], count_lines(ranks[r], "registering again") == 1);
        WAIT_UNTIL(ranks[r], strcmp(look(ranks[r]).job_id, before) != 0 &&
                                 look(ranks[r]).job_id[0] && look(ranks[r]).round >= 1);
    }
    assert_string_equal(look(ranks[0]).job_id, look(ranks[1]).job_id);
    end_with_warnings(ranks[0], 2);
    end_with_warnings(ranks[1], 2);
    kill_server(&one);
}

/* ---- Servers that answer garbage ------------------------------------------------------------- */

typedef struct garbage {
    const char *name, *answer;
    size_t more; /* zero bytes follow */
} garbage;

typedef struct garbage_server {
    garbage kind;
    int listener, port;
    atomic_int answers;
    pthread_t thread;
} garbage_server;

static void answer_with_garbage(garbage_server *one, int peer) {
    static const char zeros[1 << 16];
    char request[4096];
    (void)!recv(peer, request, sizeof request, 0);
    atomic_fetch_add(&one->answers, 1);
    size_t left = one->kind.more;
    ssize_t sent = send(peer, one->kind.answer, strlen(one->kind.answer), MSG_NOSIGNAL);
    while (sent >= 0 && left > 0) {
        sent = send(peer, zeros, left < sizeof zeros ? left : sizeof zeros, MSG_NOSIGNAL);
        left -= sent > 0 ? (size_t)sent : 0;
    }
    close(peer);
}

static void *serve_garbage(void *user) {
    garbage_server *one = user;
    for (int peer; (peer = accept(one->listener, NULL, NULL)) >= 0;)
        answer_with_garbage(one, peer);
    return NULL;
}

static void start_garbage(garbage_server *one) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    one->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* A real server takes over the port while old connections are still closing. */
    setsockopt(one->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    assert_int_equal(bind(one->listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(one->listener, 8), 0);
    getsockname(one->listener, (struct sockaddr *)&address, &length);
    one->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&one->thread, NULL, serve_garbage, one), 0);
}

static void stop_garbage(garbage_server *one) {
    shutdown(one->listener, SHUT_RDWR);
    pthread_join(one->thread, NULL);
    close(one->listener);
}

static void garbage_is_one_line_and_a_real_server_is_welcome(void **state) {
    scratch *files = *state;
    static const garbage kinds[] = {
        {"wrong JSON", "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{\"a\":[[}", 0},
        {"other JSON", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n42", 0},
        {"HTML", "HTTP/1.1 500 Oops\r\nContent-Length: 13\r\n\r\n<html></html>", 0},
        {"not found", "HTTP/1.1 404 No\r\nContent-Length: 13\r\n\r\n<html></html>", 0},
        {"half", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n\"2026", 0},
        {"nothing", "", 0},
        {"no HTTP", "SSH-2.0-OpenSSH_9.2\r\n", 0},
        {"huge", "HTTP/1.1 200 OK\r\n\r\n\"", 65 << 20},
    };
    write_plan(files->root, 1);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        garbage_server bad = {.kind = kinds[i]};
        char url[64], store[32];
        start_garbage(&bad);
        snprintf(url, sizeof url, "http://127.0.0.1:%d", bad.port);
        training *one = start_training(url, 0, 1);
        WAIT_UNTIL(one, atomic_load(&bad.answers) >= 3);
        assert_trains_on(one);
        stop_garbage(&bad);
        snprintf(store, sizeof store, "jobs-%zu.db", i);
        server good = start_server(files->root, store, bad.port, NULL);
        assert_reaches_round(one, 1);
        if (count_lines(one, NO_SCHEDULES) != 1) print_message("%s\n", kinds[i].name);
        assert_int_equal(count_lines(one, NO_SCHEDULES), 1);
        assert_int_equal(count_lines(one, BACK), 1);
        end_with_warnings(one, 1);
        kill_server(&good);
    }
}

/* ---- Servers that say no --------------------------------------------------------------------- */

static void a_job_that_fails_on_the_server_keeps_training(void **state) {
    scratch *files = *state;
    write_plan(files->root, 2); /* two lists for a single rank */
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *rank = start_training(one.url, 0, 1);
    WAIT_UNTIL(rank, count_lines(rank, "the server answered 500") == 1);
    assert_trains_on(rank);
    end_with_warnings(rank, 1);
    kill_server(&one);
}

static void a_job_that_is_refused_turns_the_optimizer_off(void **state) {
    scratch *files = *state;
    write_plan(files->root, 2);
    setenv("HARPE_PFO_MAX_RANKS_PER_JOB", "1", 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    unsetenv("HARPE_PFO_MAX_RANKS_PER_JOB");
    training *rank = start_training(one.url, 0, 2);
    WAIT_UNTIL(rank, look(rank).state == HARPE_PFO_OFF);
    assert_int_equal(harpe_pipeline_frequency_wait_for_round(rank->optimizer, 0, LIMIT_S, NULL),
                     HARPE_UNAVAILABLE);
    assert_trains_on(rank);
    assert_int_equal(count_lines(rank, "max_ranks_per_job"), 1);
    end_with_warnings(rank, 1);
    kill_server(&one);
}

static void a_server_that_wants_a_token_gets_it(void **state) {
    scratch *files = *state;
    char flag[600];
    const char *more[] = {flag, NULL};
    snprintf(flag, sizeof flag, "--token-file=%s", scratch_path(files, "token"));
    put_file(files->path, "open-sesame \r\n");
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, more);
    training *stranger = start_training(one.url, 0, 1);
    WAIT_UNTIL(stranger, count_lines(stranger, "HARPE_TOKEN") == 1);
    end_with_warnings(stranger, 1);
    training *friend = new_training(one.url, 0, 1);
    friend->options.token = " open-sesame\n";
    construct(friend);
    assert_int_equal(pthread_create(&friend->thread, NULL, train, friend), 0);
    assert_reaches_round(friend, 1);
    end_with_warnings(friend, 0);
    kill_server(&one);
}

/* ---- Steps that do not fit ------------------------------------------------------------------- */

static void evaluation_steps_are_one_line_and_rounds_go_on(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *rank = new_training(one.url, 0, 1);
    rank->evaluate_every = 2;
    construct(rank);
    assert_int_equal(pthread_create(&rank->thread, NULL, train, rank), 0);
    assert_reaches_round(rank, 3);
    WAIT_UNTIL(rank, look(rank).misfits > 3);
    assert_int_equal(count_lines(rank, "instruction 2 is 'forward' where 'backward'"), 1);
    end_with_warnings(rank, 1);
    kill_server(&one);
}

typedef struct odd_step {
    const char *names[6];
    size_t count;
    const char *message;
} odd_step;

static const odd_step odd_steps[] = {
    {{"forward", "forward", "backward"}, 3, "it ended after 3 instructions, before 'backward'"},
    {{"forward", "forward", "backward", "backward", "forward"}, 5, "'forward', is one too many"},
    {{"forward", "vorwaerts", "backward", "backward"}, 4, "'vorwaerts' where 'forward'"},
    {{"forward", NULL, "backward", "backward"}, 4, "an instruction has no name"},
};

static void steps_that_never_fit_hold_up_no_round(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    for (size_t i = 0; i < sizeof odd_steps / sizeof odd_steps[0]; i++) {
        char store[32];
        snprintf(store, sizeof store, "jobs-%zu.db", i);
        server one = start_server(files->root, store, 0, NULL);
        training *rank = new_training(one.url, 0, 1);
        rank->step = odd_steps[i].names;
        rank->step_length = odd_steps[i].count;
        construct(rank);
        assert_int_equal(pthread_create(&rank->thread, NULL, train, rank), 0);
        WAIT_UNTIL(rank, look(rank).misfits > 5);
        WAIT_UNTIL(rank, count_lines(rank, odd_steps[i].message) == 1);
        assert_reaches_round(rank, 2);
        end_with_warnings(rank, 1);
        kill_server(&one);
    }
}

/* The steps have four instructions, but the scheduler expects eight. */
static void a_wrong_number_of_microbatches_is_told_by_the_server(void **state) {
    scratch *files = *state;
    static const char *const more[] = {
        "--scheduler=InstructionProfiler",
        "--scheduler-args={\"schedule\":\"1f1b\",\"num_microbatches\":4}", NULL};
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, more);
    training *rank = start_training(one.url, 0, 1);
    WAIT_UNTIL(rank, count_lines(rank, "the server answered 500") == 1);
    assert_int_equal(count_lines(rank, "ran 'forward' 2 times in an iteration"), 1);
    assert_trains_on(rank);
    end_training(rank);
    kill_server(&one);
}

static void strict_mode_tells_the_caller(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *rank = new_training(one.url, 0, 1);
    rank->options.is_strict = true;
    construct(rank);
    assert_reaches_round(rank, 0);
    for (size_t i = 0; i < sizeof odd_steps / sizeof odd_steps[0]; i++) {
        harpe_error error = {.message = ""};
        run_step(rank, step_of_4, 4);
        assert_int_equal(harpe_pipeline_frequency_check(rank->optimizer, &error), HARPE_OK);
        run_step(rank, odd_steps[i].names, odd_steps[i].count);
        assert_int_equal(harpe_pipeline_frequency_check(rank->optimizer, &error),
                         HARPE_INVALID_INPUT);
        assert_non_null(strstr(error.message, odd_steps[i].message));
        assert_int_equal(harpe_pipeline_frequency_check(rank->optimizer, &error), HARPE_OK);
    }
    end_training(rank);
    kill_server(&one);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static void permission_that_comes_late_is_used(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    setenv("HARPE_EMULATOR_FAULTS_FILE", scratch_path(files, "faults"), 1);
    put_file(files->path, "no_permission\n");
    training *rank = start_training(one.url, 0, 1);
    assert_int_equal(count_lines(rank, "clocks are not controlled"), 1);
    assert_reaches_round(rank, 2);
    int before = atomic_load(&starts);
    WAIT_UNTIL(rank, atomic_load(&starts) >= before + 2); /* they are not logged */
    put_file(files->path, "\n");
    WAIT_UNTIL(rank, count_lines(rank, "clocks are controlled again") == 1);
    WAIT_UNTIL(rank, look(rank).controller.clock_requests > 0);
    end_with_warnings(rank, 1);
    unsetenv("HARPE_EMULATOR_FAULTS_FILE");
    kill_server(&one);
}

static void without_a_gpu_times_are_measured(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *rank = new_training(one.url, 0, 1);
    rank->options.device_id = 7;
    construct(rank);
    assert_int_equal(pthread_create(&rank->thread, NULL, train, rank), 0);
    assert_reaches_round(rank, 2);
    assert_int_equal(count_lines(rank, "there is no GPU 7"), 1);
    rank->options.device_id = 0; /* its settings have not changed */
    end_with_warnings(rank, 1);
    kill_server(&one);
}

static void without_an_energy_counter_rounds_go_on(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    setenv("HARPE_EMULATOR_FAULTS", "no_energy_counter", 1);
    training *rank = start_training(one.url, 0, 1);
    assert_reaches_round(rank, 2);
    end_training(rank);
    unsetenv("HARPE_EMULATOR_FAULTS");
    kill_server(&one);
}

static void strict_mode_wants_its_gpu(void **state) {
    (void)state;
    training *rank = new_training("http://127.0.0.1:9", 0, 1);
    harpe_error error = {.message = ""};
    rank->options.is_strict = true;
    rank->options.device_id = 7;
    assert_int_equal(harpe_pipeline_frequency_new(&rank->options, &rank->optimizer, &error),
                     HARPE_NOT_FOUND);
    assert_non_null(strstr(error.message, "there is no GPU 7"));
    free(rank);
}

/* Returns the process of this test's only controller: a detached `harpe` that is neither a child
 * nor a server. */
static pid_t find_controller(void) {
    DIR *folder = opendir("/proc");
    char mine[64];
    pid_t found = 0;
    assert_non_null(folder);
    snprintf(mine, sizeof mine, "HARPE_EMULATOR_CLUSTER=test-training-%d", (int)getpid());
    for (const struct dirent *entry; !found && (entry = readdir(folder));) {
        char path[300], text[256];
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        FILE *file = fopen(path, "r");
        size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        text[length] = '\0';
        /* the server's command line has its whole path */
        if (length < 7 || strcmp(text, "harpe") != 0) continue;
        snprintf(path, sizeof path, "/proc/%s/environ", entry->d_name);
        char *environment = read_text(path);
        if (memmem(environment, 1 << 16, mine, strlen(mine))) found = atoi(entry->d_name);
        free(environment);
    }
    closedir(folder);
    return found;
}

static void a_killed_controller_is_replaced(void **state) {
    scratch *files = *state;
    write_plan(files->root, 1);
    server one = start_server(files->root, "jobs.db", 0, NULL);
    training *rank = start_training(one.url, 0, 1);
    assert_reaches_round(rank, 1);
    pid_t controller = find_controller();
    assert_true(controller > 0);
    kill(controller, SIGKILL);
    WAIT_UNTIL(rank, count_lines(rank, "clocks are not controlled") == 1);
    WAIT_UNTIL(rank, count_lines(rank, "clocks are controlled again") == 1);
    uint64_t written = look(rank).controller.written;
    WAIT_UNTIL(rank, look(rank).controller.written > written);
    assert_reaches_round(rank, look(rank).round + 2);
    end_with_warnings(rank, 1);
    kill_server(&one);
}

/* Simulates a process whose driver hangs: it accepts data and sends nothing. */
static void a_controller_that_does_not_answer_does_not_hold_up_the_end(void **state) {
    scratch *files = *state;
    char program[600], started[600], script[1400];
    snprintf(started, sizeof started, "%s", scratch_path(files, "started"));
    snprintf(program, sizeof program, "%s", scratch_path(files, "program"));
    setenv("HARPE_PROGRAM", program, 1);
    training *rank = start_training("http://127.0.0.1:9", 0, 1);
    assert_int_equal(count_lines(rank, "clocks are not controlled"), 1);
    snprintf(script, sizeof script, "#!/bin/sh\n: > '%s'\nexec cat <&3 >/dev/null\n", started);
    put_file(program, script);
    assert_int_equal(chmod(program, 0700), 0);
    WAIT_UNTIL(rank, access(started, F_OK) == 0);
    stop_steps(rank);
    rank->thread = 0;
    double begin_s = harpe_clock_s();
    end_training(rank);
    assert_true(harpe_clock_s() - begin_s < LIMIT_S); /* it never answers */
    setenv("HARPE_PROGRAM", PROGRAM, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_world, remove_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_server_that_never_comes_is_one_line),
        TEST(a_server_that_comes_late_is_found),
        TEST(a_server_that_comes_back_goes_on_with_the_job),
        TEST(a_server_that_forgot_the_job_gets_it_anew),
        TEST(garbage_is_one_line_and_a_real_server_is_welcome),
        TEST(a_job_that_fails_on_the_server_keeps_training),
        TEST(a_job_that_is_refused_turns_the_optimizer_off),
        TEST(a_server_that_wants_a_token_gets_it),
        TEST(evaluation_steps_are_one_line_and_rounds_go_on),
        TEST(steps_that_never_fit_hold_up_no_round),
        TEST(a_wrong_number_of_microbatches_is_told_by_the_server),
        TEST(strict_mode_tells_the_caller),
        TEST(permission_that_comes_late_is_used),
        TEST(without_a_gpu_times_are_measured),
        TEST(without_an_energy_counter_rounds_go_on),
        TEST(strict_mode_wants_its_gpu),
        TEST(a_killed_controller_is_replaced),
        TEST(a_controller_that_does_not_answer_does_not_hold_up_the_end),
    };
    return cmocka_run_group_tests(tests, start_machine, stop_machine);
}
