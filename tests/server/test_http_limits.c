/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of the server: large bodies, many connections, no free descriptors. */
#include "test.h"

#include <stdatomic.h>
#include <sys/resource.h>

#include "server/http_world.h"

enum { CONNECTIONS = 40 };

#define FIXTURE_TEST(name) WORLD_TEST(name, .max_connections = CONNECTIONS)

/* ---- Size ------------------------------------------------------------------------------------ */

FIXTURE_TEST(a_body_that_is_announced_too_large_is_refused_at_once) {
    expect_once(w, POST("/echo", "1000000000"), 413, "{\"detail\":\"the body is too large\"}");
    expect_once(w, POST("/echo", "99999999999999999999999"), 413, NULL);
    expect_once(w, POST("/tiny", "11"), 413, NULL);
}

FIXTURE_TEST(the_refusal_reaches_a_client_that_goes_on_sending) {
    char block[4096];
    memset(block, 'x', sizeof block);
    int fd = ask(w, POST("/echo", "1000000000"));
    for (int i = 0; i < 64 && say_bytes(fd, block, sizeof block); i++)
        continue;
    expect_answer(fd, 413, NULL);
}

FIXTURE_TEST(a_chunked_body_is_refused_when_it_passes_the_limit) {
    expect_once(w, CHUNKED("/tiny") "5\r\nabcde\r\n6\r\nabcdef\r\n", 413, NULL);
    expect_once(w, CHUNKED("/tiny") "fffffffffffffff\r\nabcdefghijk", 413, NULL);
    expect_once(w, CHUNKED("/tiny") "ffffffffffffffffff\r\n", 400, NULL);
}

/* The address space, because memory that is reserved and never used appears nowhere else. */
static size_t virtual_bytes(void) {
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");
    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%lu", &pages), 1); // NOLINT(cert-err34-c)
    fclose(statm);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

WORLD_TEST(a_claimed_length_takes_no_memory, .max_body_bytes = (size_t)4 << 30) {
    size_t before = virtual_bytes();
    for (int i = 0; i < 20; i++)
        (void)ask(w, POST("/echo", "1000000000") "x");
    expect_counts(w, "connections 21");
    assert_true(virtual_bytes() < before + 1000000000);
}

enum { HOARDS = 40 };

/* Returns how many of the connections have an answer to read or have ended. */
static int count_answered(const int *fds, int count) {
    int answered = 0;
    for (int i = 0; i < count; i++) {
        struct pollfd waiting = {.fd = fds[i], .events = POLLIN};
        answered += poll(&waiting, 1, 0);
    }
    return answered;
}

WORLD_TEST(bodies_hoarded_by_many_give_way_to_new_ones, .max_all_bodies_bytes = 16384) {
    char most[1000];
    int hoards[HOARDS], answered = 0;
    memset(most, 'x', sizeof most);
    for (int i = 0; i < HOARDS; i++) {
        hoards[i] = ask(w, POST("/echo", "1024"));
        say_bytes(hoards[i], most, sizeof most);
    }
    expect_answer(hoards[0], 503, NULL); /* this request is the oldest */
    expect_once(w, POST("/echo", "4") "good", 200, "good");
    /* The server may have answered before it has read the data of all others. */
    for (int i = 0; i < TIMEOUT_S * 100 && answered < 20; i++) {
        if (i > 0) usleep(10000);
        answered = count_answered(hoards + 1, HOARDS - 1);
    }
    assert_in_range(answered, 20, 38);
}

WORLD_TEST(bodies_that_are_worked_on_cost_no_other_sender_its_place,
           .max_all_bodies_bytes = 16384) {
    char most[12000];
    memset(most, 'x', sizeof most);
    int worked_on = dial(w), small = dial(w), bare = dial(w), chatty = dial(w);
    say(worked_on, POST("/hold", "12000"));
    say_bytes(worked_on, most, sizeof most);
    expect_soon("kept", &w->kept, 1);
    say(small, POST("/echo", "100") "0123456789");
    say(bare, POST("/echo", "4"));
    say(chatty, "GET /sl");
    expect_counts(w, "connections 5");
    /* More memory than the closing of all senders would free. */
    int newcomer = ask(w, POST("/echo", "12000"));
    say_bytes(newcomer, most, sizeof most);
    expect_answer(newcomer, 503, NULL);
    say_bytes(small, most, 90);
    expect_answer(small, 200, NULL);
    expect_reply(bare, "good", 200, "good");
    say(chatty, "ow HTTP/1.1\r\nhost: x\r\n\r\n");
    expect_answer(chatty, 200, NULL);
    expect_counts(w, "evicted 0");
    expect_once(w, GET("/release"), 200, "done");
    expect_answer(worked_on, 200, "released");
}

WORLD_TEST(who_holds_no_memory_is_not_refused_for_the_sake_of_others,
           .max_all_bodies_bytes = 16384) {
    char most[12000];
    memset(most, 'x', sizeof most);
    int bare = dial(w), hoard = dial(w), newcomer = dial(w);
    say(bare, POST("/echo", "4"));
    expect_counts(w, "connections 4");
    say(hoard, POST("/echo", "12001"));
    say_bytes(hoard, most, sizeof most);
    expect_counts(w, "connections 4");
    say(newcomer, POST("/echo", "12000"));
    say_bytes(newcomer, most, sizeof most);
    expect_answer(newcomer, 200, NULL);
    expect_answer(hoard, 503, NULL);
    expect_reply(bare, "good", 200, "good");
}

WORLD_TEST(memory_of_answered_bodies_is_free_again, .max_all_bodies_bytes = 16384) {
    char most[1024];
    memset(most, 'x', sizeof most);
    int fd = dial(w);
    for (int i = 0; i < 100; i++) {
        say(fd, POST("/echo", "1024"));
        say_bytes(fd, most, sizeof most);
        expect_answer(fd, 200, NULL);
    }
}

/* ---- Answers that are not read --------------------------------------------------------------- */

enum { LARGE = 32 << 20 };

/* Reads the head and `length` bytes. Returns false if the server has closed before. */
static bool read_large(int fd, size_t length, bool has_head) {
    char *bytes = malloc(length);
    char head[4] = "";
    bool is_good = true;
    while (has_head && is_good && memcmp(head, "\r\n\r\n", 4) != 0) {
        memmove(head, head + 1, 3);
        is_good = read_exactly(fd, head + 3, 1);
    }
    is_good = is_good && read_exactly(fd, bytes, length);
    free(bytes);
    return is_good;
}

WORLD_TEST(whoever_has_not_read_for_longest_gives_way, .max_unread_bytes = (size_t)80 << 20,
           .request_timeout_ms = TIMEOUT_S * 1000) {
    int reads = ask(w, GET("/large"));
    expect_counts(w, "unread 32 MiB");
    int first = ask(w, GET("/large"));
    expect_counts(w, "unread 64 MiB");
    /* More than the sockets hold, so the server has sent some of it since. */
    assert_true(read_large(reads, LARGE / 2, true));
    int second = ask(w, GET("/large"));
    expect_counts(w, "evicted 1 refused 0 timeouts 0 unread 64 MiB");
    assert_false(read_large(first, LARGE, true));
    assert_true(read_large(reads, LARGE / 2, false));
    assert_true(read_large(second, LARGE, true));
    expect_counts(w, "evicted 1 refused 0 timeouts 0 unread 0 MiB");
}

WORLD_TEST(a_single_answer_may_be_larger_than_all_together, .max_unread_bytes = 1 << 20,
           .request_timeout_ms = TIMEOUT_S * 1000) {
    int only = ask(w, GET("/large"));
    expect_counts(w, "unread 32 MiB");
    assert_true(read_large(only, LARGE, true));
    expect_counts(w, "evicted 0 refused 0 timeouts 0 unread 0 MiB");
}

/* ---- Number ---------------------------------------------------------------------------------- */

FIXTURE_TEST(a_full_house_makes_room_but_never_drops_a_held_request) {
    int held[10], idle[CONNECTIONS * 2];
    for (int i = 0; i < 10; i++)
        held[i] = ask(w, GET("/hold"));
    expect_counts(w, "held 10");
    for (int i = 0; i < CONNECTIONS * 2; i++) {
        idle[i] = dial(w);
        if (i % 2 == 0) say(idle[i], "GET /slow");
    }
    expect_counts(w, "connections 40 held 10");
    expect_end(idle[0]);
    expect_once(w, GET("/release"), 200, "done");
    for (int i = 0; i < 10; i++)
        expect_answer(held[i], 200, "released");
    assert_int_equal(atomic_load(&w->gone), 0);
}

FIXTURE_TEST(a_house_full_of_held_requests_refuses_more) {
    int held[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++)
        held[i] = ask(w, GET("/hold"));
    expect_soon("kept", &w->kept, CONNECTIONS);
    expect_end(dial(w));
    for (int i = 0; i < CONNECTIONS; i++)
        hang_up(held[i]);
    expect_soon("gone", &w->gone, CONNECTIONS);
    expect_once(w, GET("/b"), 200, NULL);
}

/* ---- Replaced connections and the reserve ---------------------------------------------------- */

static bool is_open(int fd) {
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    return poll(&waiting, 1, 0) == 0;
}

FIXTURE_TEST(strangers_give_way_before_all_others) {
    int held[5], strangers[CONNECTIONS - 6], idle = dial(w);
    for (int i = 0; i < 5; i++)
        held[i] = ask(w, GET("/hold"));
    for (int i = 0; i < CONNECTIONS - 6; i++) {
        strangers[i] = ask(w, GET("/stranger"));
        expect_soon("kept", &w->kept, 6 + i);
    }
    int newcomer = ask(w, GET("/a"));
    expect_answer(newcomer, 200, NULL);
    assert_int_equal(atomic_load(&w->gone), 1);
    expect_end(strangers[0]);
    assert_true(is_open(strangers[1]));
    assert_true(is_open(idle));
    expect_reply(newcomer, GET("/release"), 200, "done");
    for (int i = 0; i < 5; i++)
        expect_answer(held[i], 200, "released");
    for (int i = 1; i < CONNECTIONS - 6; i++)
        expect_answer(strangers[i], 200, "released");
}

FIXTURE_TEST(who_is_no_longer_a_stranger_stays) {
    int known[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS - 1; i++)
        known[i] = ask(w, GET("/stranger"));
    expect_soon("kept", &w->kept, CONNECTIONS - 1);
    expect_once(w, GET("/meet"), 200, "met");
    known[CONNECTIONS - 1] = dial(w);
    say(known[CONNECTIONS - 1], GET("/hold"));
    expect_soon("kept", &w->kept, CONNECTIONS);
    expect_end(dial(w));
    assert_int_equal(atomic_load(&w->gone), 0);
}

WORLD_TEST(who_looks_is_answered_while_all_others_are_held, .max_connections = CONNECTIONS,
           .reserved_connections = 8) {
    int held[CONNECTIONS], newcomers[30], stream;
    for (int i = 0; i < CONNECTIONS; i++) {
        held[i] = ask(w, i == 0 ? GET("/stranger") : GET("/hold"));
        expect_soon("kept", &w->kept, i + 1);
    }
    expect_counts(w, "connections 41 held 40");
    stream = ask(w, GET("/stream"));
    free(hear_answer(stream, false).body);
    assert_true(read_large(stream, 100001, false));
    /* One more connection takes the stranger's place; the next finds no place. */
    int late = ask(w, GET("/hold"));
    expect_end(held[0]);
    expect_once(w, GET("/hold"), 503, NULL);
    /* New connections replace each other, not the stream. */
    for (int i = 0; i < 30; i++)
        newcomers[i] = dial(w);
    expect_counts(w, "held 40");
    assert_true(is_open(stream));
    expect_end(newcomers[0]);
    expect_once(w, GET("/release"), 200, "done");
    for (int i = 1; i < CONNECTIONS; i++)
        expect_answer(held[i], 200, "released");
    expect_answer(late, 200, "released");
}

static atomic_int warnings;

static void count_warning(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level == HARPE_LOG_WARNING && strstr(line, "cannot accept")) atomic_fetch_add(&warnings, 1);
}

TEST(running_out_of_descriptors_is_survived_and_told_once) {
    atomic_store(&warnings, 0);
    world *w = open_world((harpe_http_options){.log = {count_warning, NULL}});
    struct rlimit before;
    int fds[20], fillers[4096], filled = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < 20; i++)
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct rlimit low = {(rlim_t)fds[19] + 11, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (filled < 4096 && (fillers[filled] = dup(0)) >= 0)
        filled++;
    close(fillers[--filled]); /* one connection is accepted, the next are not */
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)harpe_http_port(w->http)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    for (int i = 0; i < 20; i++)
        assert_int_equal(connect(fds[i], (struct sockaddr *)&address, sizeof address), 0);
    expect_soon("warnings", &warnings, 1);
    usleep(300000); /* a second warning would come in this time */
    for (int i = 0; i < filled; i++)
        close(fillers[i]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    expect_once(w, GET("/b"), 200, NULL);
    for (int i = 0; i < 20; i++)
        close(fds[i]);
    close_world(w);
    assert_int_equal(atomic_load(&warnings), 1);
}

int main(void) { return run_listed_tests(); }
