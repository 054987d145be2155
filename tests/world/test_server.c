/* SPDX-License-Identifier: Apache-2.0 */
/* The whole server in virtual time, with jobs whose ranks are processes of the world. */
#include "test.h"

#include <jansson.h>

#include "base/clock.h"
#include "base/wait.h"
#include "http/client/connection.h"
#include "server/server.h"
#include "world/disk.h"
#include "world/transport.h"
#include "world/world.h"

OWNER(harpe_connection)

#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)

static const char url[] = "http://127.0.0.1:7787";

enum { RANKS = 4, ROUNDS = 20 };

/* ---- The server ------------------------------------------------------------------------------ */

/* One world at a time. */
static struct {
    harpe_disk *disk; /* of the store; NULL: in memory */
    harpe_server *server;
    pid_t process;
    bool is_ready;
    char job[64];
    int ended;
    bool restarts;
    uint64_t turns;
    int64_t end_ns;
} all;

static void write_log(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level >= HARPE_LOG_ERROR) printf("%s\n", line);
}

static bool adopt(void *user, int socket) {
    (void)user;
    return harpe_server_adopt(all.server, socket);
}

static void set(harpe_settings *settings, const char *name, const char *value) {
    assert_works(harpe_settings_set(settings, name, value, HARPE_FROM_FLAG, name, &failure));
}

static int serve(void *user) {
    (void)user;
    AT_END(harpe_settings_free) harpe_settings settings;
    static const char *const environment[] = {NULL};
    assert_works(harpe_settings_init(&settings, &failure));
    set(&settings, "store", all.disk ? "world:disk/store.db" : "memory");
    set(&settings, "worker_threads", "2");
    assert_works(harpe_settings_complete(&settings, environment, false, &failure));
    harpe_log log = {.write = write_log};
    assert_works(harpe_server_new_enclosed(&settings, log, &all.server, &failure));
    all.is_ready = true;
    assert_works(harpe_server_run(all.server, &failure));
    harpe_server_free(all.server);
    return 0;
}

static void start_server(void) {
    all.is_ready = false;
    all.process = harpe_world_start("server", serve, NULL);
    while (!all.is_ready)
        harpe_sleep_ns(MS);
    assert_true(harpe_transport_serve(url, all.process, adopt, NULL));
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

/* Asks until the server answers 200. */
static void ask(harpe_connection *connection, const harpe_request *request, harpe_answer *answer) {
    for (;;) {
        harpe_status status = harpe_connection_call(connection, request, answer, &failure);
        if (status == HARPE_OK && answer->http_status == 200) return;
        if (status == HARPE_OK && answer->http_status < 500)
            fail_msg("%ld: %s", answer->http_status, answer->body);
        harpe_sleep_ns(SECOND);
    }
}

static harpe_connection *open_connection(void) {
    harpe_connection *connection = NULL;
    harpe_connection_options options = {.server_url = url, .held_s = 600};
    assert_works(harpe_connection_new(&options, &connection, &failure));
    return connection;
}

static void register_job(void) {
    harpe_answer answer;
    OWNED(harpe_connection) connection = open_connection();
    harpe_request request = {.path = "/register_job",
                             .body = "{\"job_id\": \"\", \"pp_degree\": 4, \"dp_degree\": 1, "
                                     "\"tp_degree\": 1, \"world_size\": 4}"};
    ask(connection, &request, &answer);
    json_t *id = json_loads(answer.body, JSON_DECODE_ANY, NULL);
    assert_true(json_is_string(id));
    (void)snprintf(all.job, sizeof all.job, "%s", json_string_value(id));
    json_decref(id);
}

static int train(void *user) {
    int rank = (int)(intptr_t)user;
    char body[600], query[60];
    harpe_answer answer;
    harpe_connection *connection = open_connection();
    (void)snprintf(body, sizeof body,
                   "{\"rank\": %d, \"dp_rank\": 0, \"pp_rank\": %d, \"tp_rank\": 0, "
                   "\"available_frequencies\": [1740, 1200, 810]}",
                   rank, rank);
    harpe_request request = {.path = "/register_rank/", .segment = all.job, .body = body};
    ask(connection, &request, &answer);
    for (int round = 0; round < ROUNDS; round++) {
        (void)snprintf(query, sizeof query, "?rank=%d&round=%d", rank, round);
        request = (harpe_request){
            .path = "/schedule/", .segment = all.job, .query = query, .is_held = true};
        ask(connection, &request, &answer);
        harpe_sleep_ns(SECOND + rank * MS); /* trains */
        (void)snprintf(body, sizeof body,
                       "{\"rank\": %d, \"iter_time\": [1.5, 1.5], \"iter_energy\": [200, 201], "
                       "\"time_breakdown\": {\"forward\": [[0.5, 0.25], [0.5, 0.25]], "
                       "\"backward\": [[0.5, 0.25], [0.5, 0.25]]}, "
                       "\"energy_breakdown\": {\"forward\": [[50, 25], [50, 25.5]], "
                       "\"backward\": [[50, 25], [50, 25.5]]}}",
                       rank);
        (void)snprintf(query, sizeof query, "?round=%d", round);
        request =
            (harpe_request){.path = "/result/", .segment = all.job, .query = query, .body = body};
        ask(connection, &request, &answer);
    }
    harpe_connection_free(connection);
    all.ended++;
    return 0;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

static harpe_message_fate decide(void *user, const harpe_message *message) {
    (void)user;
    (void)message;
    return (harpe_message_fate){.request_late_ns = (int64_t)harpe_world_draw(1000) * 1000};
}

static void look_at_job(int rounds) {
    harpe_answer answer;
    OWNED(harpe_connection) connection = open_connection();
    harpe_request request = {.path = "/jobs/", .segment = all.job};
    ask(connection, &request, &answer);
    json_t *job = json_loadb(answer.body, answer.length, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(job, "round")), rounds);
    json_decref(job);
}

static void run_job(void *user) {
    (void)user;
    pid_t ranks[RANKS];
    const harpe_transport_options options = {.latency_ns = MS, .fate = decide};
    assert_works(harpe_transport_begin(&options, &failure));
    start_server();
    register_job();
    for (intptr_t rank = 0; rank < RANKS; rank++)
        ranks[rank] = harpe_world_start("rank", train, (void *)rank);
    for (int i = 0; i < 3 && all.restarts; i++) {
        harpe_sleep_ns(5 * SECOND + 300 * MS);
        harpe_world_kill(all.process);
        harpe_disk_crash(all.disk);
        start_server();
    }
    for (int rank = 0; rank < RANKS; rank++)
        assert_true(harpe_world_await(ranks[rank], INT64_MAX));
    assert_int_equal(all.ended, RANKS);
    look_at_job(ROUNDS - 1);
    harpe_server_end(all.server);
    assert_true(harpe_world_await(all.process, INT64_MAX));
    harpe_transport_end();
    all.turns = harpe_world_turns();
    all.end_ns = harpe_clock_ns();
}

/* With restarts, the machine of the server fails three times. */
static void run(uint64_t seed, bool restarts) {
    memset(&all, 0, sizeof all);
    all.restarts = restarts;
    if (restarts) all.disk = harpe_disk_new("disk", seed);
    harpe_world_options options = {.seed = seed,
                                   .shuffles = true,
                                   .wall_ns = INT64_C(1700000000) * SECOND,
                                   .longest_ns = 100000 * SECOND,
                                   .most_turns = 1000000};
    assert_works(harpe_world_run(&options, run_job, NULL, &failure));
    harpe_disk_free(all.disk);
}

TEST(job_trains_in_memory) {
    for (uint64_t seed = 0; seed < 3; seed++)
        run(seed, false);
}

TEST(job_survives_crashed_servers) {
    for (uint64_t seed = 0; seed < 5; seed++)
        run(seed, true);
}

TEST(seed_decides_everything) {
    run(7, true);
    uint64_t turns = all.turns;
    int64_t end_ns = all.end_ns;
    run(7, true);
    assert_int_equal(all.turns, turns);
    assert_int_equal(all.end_ns, end_ns);
    run(8, true);
    assert_int_not_equal(all.end_ns, end_ns);
}
