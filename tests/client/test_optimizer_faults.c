/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the optimizer behaves when the server fails. Training goes on and never waits. The log
 * has one line for each cause. After the cause has ended, everything works again, and the GPU's
 * settings are restored. test_optimizer_local_faults.c tests failures of steps and GPUs. */
#include "client/optimizer_internal.h"
#include "client/training_world.h"
#include "world/scripted_server.h"

#define SERVER "http://127.0.0.1:7787" /* also of start_server */
#define NO_SCHEDULES "no schedules for now"
#define BACK "the server is back"

/* ---- Attempts -------------------------------------------------------------------------------- */

void __real_harpe_reply_to_registration(harpe_connection *connection, const char *job_body,
                                        char *job_id, size_t size, harpe_reply *reply);
void __wrap_harpe_reply_to_registration(harpe_connection *connection, const char *job_body,
                                        char *job_id, size_t size, harpe_reply *reply);

static atomic_int attempts; /* to register a job */

void __wrap_harpe_reply_to_registration(harpe_connection *connection, const char *job_body,
                                        char *job_id, size_t size, harpe_reply *reply) {
    __real_harpe_reply_to_registration(connection, job_body, job_id, size, reply);
    atomic_fetch_add(&attempts, 1);
}

/* ---- No server ------------------------------------------------------------------------------- */

WORLD_TEST(a_server_that_never_comes_is_one_line) {
    training *one = start_training(NOBODY, 0, 1);
    WAIT_UNTIL(one, count_lines(one, NO_SCHEDULES) == 1);
    int before = atomic_load(&attempts);
    WAIT_UNTIL(one, atomic_load(&attempts) >= before + 4);
    assert_trains_on(one);
    assert_int_equal(look(one).state, HARPE_PFO_REGISTERING);
    assert_int_equal(look(one).round, -1);
    end_with_warnings(one, 1);
}

WORLD_TEST(a_server_that_comes_late_is_found) {
    server *one = start_server(files, 1);
    kill_server(one);
    training *early = start_training(one->url, 0, 1);
    WAIT_UNTIL(early, count_lines(early, NO_SCHEDULES) == 1);
    restart_server(one);
    assert_reaches_round(early, 2);
    assert_int_equal(count_lines(early, BACK), 1);
    assert_int_equal(look(early).reconnects, 1);
    end_with_warnings(early, 1);
}

WORLD_TEST(a_server_that_comes_back_goes_on_with_the_job) {
    server *one = start_server(files, 2);
    training *ranks[] = {start_training(one->url, 0, 2), start_training(one->url, 1, 2)};
    assert_reaches_round(ranks[0], 1);
    harpe_pipeline_frequency_status before = look(ranks[0]);
    kill_server(one);
    for (int r = 0; r < 2; r++) {
        WAIT_UNTIL(ranks[r], count_lines(ranks[r], NO_SCHEDULES) == 1);
        assert_trains_on(ranks[r]);
    }
    restart_server(one);
    for (int r = 0; r < 2; r++) {
        assert_reaches_round(ranks[r], before.round + 3);
        assert_string_equal(look(ranks[r]).job_id, before.job_id);
        assert_int_equal(count_lines(ranks[r], BACK), 1);
        end_with_warnings(ranks[r], 1);
    }
}

WORLD_TEST(a_server_that_forgot_the_job_gets_it_anew) {
    server *one = start_server(files, 2);
    training *ranks[] = {start_training(one->url, 0, 2), start_training(one->url, 1, 2)};
    assert_reaches_round(ranks[0], 1);
    kill_server(one);
    for (int r = 0; r < 2; r++)
        WAIT_UNTIL(ranks[r], count_lines(ranks[r], NO_SCHEDULES) == 1);
    pause_s(1); /* a job of another second has another id */
    char before[256];
    snprintf(before, sizeof before, "%s", look(ranks[0]).job_id);
    empty_store(one, "second");
    restart_server(one);
    for (int r = 0; r < 2; r++) {
        WAIT_UNTIL(ranks[r], count_lines(ranks[r], "registering again") == 1);
        WAIT_UNTIL(ranks[r], strcmp(look(ranks[r]).job_id, before) != 0 &&
                                 look(ranks[r]).job_id[0] && look(ranks[r]).round >= 1);
    }
    assert_string_equal(look(ranks[0]).job_id, look(ranks[1]).job_id);
    end_with_warnings(ranks[0], 2);
    end_with_warnings(ranks[1], 2);
}

/* ---- Servers that answer garbage ------------------------------------------------------------- */

typedef struct garbage {
    const char *name, *answer;
    size_t more; /* zero bytes follow */
} garbage;

typedef struct garbage_server {
    scripted_server server;
    garbage kind;
    const char *dripped; /* one byte after the other, the last one again and again */
    int answers;
} garbage_server;

static bool answer_with_garbage(void *user, int peer, const char *request, const char *body) {
    static const char zeros[1 << 16];
    garbage_server *one = user;
    (void)request, (void)body;
    one->answers++;
    if (one->kind.answer && send_bytes(peer, one->kind.answer, strlen(one->kind.answer)))
        for (size_t left = one->kind.more; left > 0 && send_bytes(peer, zeros, sizeof zeros);)
            left -= sizeof zeros;
    for (const char *next = one->dripped; next && send_bytes(peer, next, 1); pause_s(0.01))
        if (next[1]) next++;
    return false;
}

static void start_garbage(garbage_server *one) {
    one->server = (scripted_server){.name = SERVER, .answer = answer_with_garbage, .user = one};
    start_scripted(&one->server);
}

WORLD_TEST(garbage_is_one_line_and_a_real_server_is_welcome) {
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
    static bool has_run; /* the huge answer takes long, so it is only in the first world */
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] - has_run; i++) {
        garbage_server bad = {.kind = kinds[i]};
        start_garbage(&bad);
        training *one = start_training(SERVER, 0, 1);
        WAIT_UNTIL(one, bad.answers >= 3);
        assert_trains_on(one);
        server *good = start_server(files, 1); /* takes the name over */
        assert_reaches_round(one, 1);
        if (count_lines(one, NO_SCHEDULES) != 1) print_message("%s\n", kinds[i].name);
        assert_int_equal(count_lines(one, NO_SCHEDULES), 1);
        assert_int_equal(count_lines(one, BACK), 1);
        end_with_warnings(one, 1);
        kill_server(good);
    }
    has_run = true;
}

/* ---- Servers that drip ----------------------------------------------------------------------- */

WORLD_TEST(a_server_that_drips_is_one_line) {
    static const char *const answers[] = {"HTTP/1.1 200 OOOO",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n\" ",
                                          "HTTP/1.1 200 OK\r\n\r\n\" "};
    harpe_pipeline_timeouts times = short_pauses();
    times.answer_s = times.end_notice_s = 0.2;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        garbage_server slow = {.dripped = answers[i]};
        start_garbage(&slow);
        training *one = new_training(SERVER, 0, 1);
        construct_with(one, &times);
        one->thread = start_thread(train, one);
        WAIT_UNTIL(one, slow.answers >= 3); /* two requests have ended */
        assert_int_equal(count_lines(one, NO_SCHEDULES), 1);
        assert_int_equal(count_lines(one, "timed out after"), 1);
        assert_trains_on(one);
        end_with_warnings(one, 1);
        stop_scripted(&slow.server);
    }
}

/* ---- Servers that say no --------------------------------------------------------------------- */

WORLD_TEST(a_job_that_fails_on_the_server_keeps_training) {
    server *one = start_server(files, 2); /* two lists for a single rank */
    training *rank = start_training(one->url, 0, 1);
    WAIT_UNTIL(rank, count_lines(rank, "the server answered 500") == 1);
    assert_trains_on(rank);
    end_with_warnings(rank, 1);
}

WORLD_TEST(a_job_that_is_refused_turns_the_optimizer_off) {
    static const char *const more[][2] = {{"max_ranks_per_job", "1"}, {NULL, NULL}};
    write_plan(files->root, 2);
    server *one = start_server_with(files, more);
    training *rank = start_training(one->url, 0, 2);
    WAIT_UNTIL(rank, look(rank).state == HARPE_PFO_OFF);
    assert_int_equal(harpe_pipeline_frequency_wait_for_round(rank->optimizer, 0, LIMIT_S, NULL),
                     HARPE_UNAVAILABLE);
    assert_trains_on(rank);
    assert_int_equal(count_lines(rank, "max_ranks_per_job"), 1);
    end_with_warnings(rank, 1);
}

WORLD_TEST(a_server_that_wants_a_token_gets_it) {
    const char *const more[][2] = {{"token_file", scratch_path(files, "token")}, {NULL, NULL}};
    put_file(files->path, "open-sesame \r\n");
    write_plan(files->root, 1);
    server *one = start_server_with(files, more);
    training *stranger = start_training(one->url, 0, 1);
    WAIT_UNTIL(stranger, count_lines(stranger, "HARPE_TOKEN") == 1);
    end_with_warnings(stranger, 1);
    training *friend = new_training(one->url, 0, 1);
    friend->options.token = " open-sesame\n";
    begin_training(friend);
    assert_reaches_round(friend, 1);
    end_with_warnings(friend, 0);
}
