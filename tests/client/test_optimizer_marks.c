/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the three kinds of marks: those of the host, those of a CUDA stream, and those after a
 * synchronisation. A stand-in for the driver's library provides the stream, and runs its writes and
 * host functions in order. All tests of the stream run twice: first the
 * stream can write to memory, and then it has only host functions. */
#include <dlfcn.h>
#include <sys/mman.h>

#include "client/optimizer_internal.h"
#include "client/training_world.h"

OWNER(harpe_stream_events)

#define STANDIN_CUDA HARPE_BINARY_DIR "/tests/standin/libcuda.so.1"

static void (*run_stream)(void);
static void (*hold_stream)(bool hold);
static void (*refuse)(bool refuse);
static void (*capture)(bool capture);
static void (*have_no_writes)(bool no_writes);
static size_t (*captured)(void);
static size_t (*count_writes)(void);
static size_t (*count_functions)(void);
static void (*have_no_context)(bool no_context);
static void *(*registered)(void);
static bool has_writes = true; /* false: the stream has only host functions */

static void *find(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    return symbol;
}

/* Loads the stand-in. It stays loaded, as the driver's library does. */
static void load_cuda(void) {
    void *library = dlopen(STANDIN_CUDA, RTLD_NOW);
    assert_non_null(library);
    *(void **)&run_stream = find(library, "standin_cuda_run");
    *(void **)&hold_stream = find(library, "standin_cuda_hold");
    *(void **)&refuse = find(library, "standin_cuda_refuse");
    *(void **)&capture = find(library, "standin_cuda_capture");
    *(void **)&captured = find(library, "standin_cuda_captured");
    *(void **)&have_no_writes = find(library, "standin_cuda_have_no_writes");
    *(void **)&count_writes = find(library, "standin_cuda_writes");
    *(void **)&count_functions = find(library, "standin_cuda_functions");
    *(void **)&have_no_context = find(library, "standin_cuda_have_no_context");
    *(void **)&registered = find(library, "standin_cuda_registered");
    run_stream(); /* from now on, be_the_stream does it */
}

/* This test runs first, before anything has loaded CUDA. */
WORLD_TEST(without_cuda_the_host_marks) {
    server *one = start_server(files, 1);
    training *rank = new_training(one->url, 0, 1);
    rank->options.mark = HARPE_MARK_STREAM;
    begin_training(rank);
    assert_reaches_round(rank, 1);
    assert_int_equal(count_lines(rank, "has not loaded CUDA"), 1);
    end_training(rank);
}

/* ---- The queue alone ------------------------------------------------------------------------- */

typedef struct arrivals {
    size_t count;
    char order[64];
} arrivals;

static void arrive(void *user, const harpe_stream_event *event) {
    arrivals *seen = user;
    if (seen->count < sizeof seen->order - 1)
        seen->order[seen->count] = event->kind == HARPE_STREAM_EVENT_BEGIN ? event->name[0] : '.';
    seen->count++;
}

static void *be_the_stream(void *unused) {
    for (;; harpe_sleep_ns(100000))
        run_stream();
    return unused;
}

/* Makes a queue. The stream runs until the end of the world. */
static harpe_stream_events *new_events(arrivals *seen) {
    (void)start_thread(be_the_stream, NULL);
    harpe_stream_events *events = harpe_stream_events_new(NULL, arrive, seen);
    assert_non_null(events);
    return events;
}

static bool send_begin(harpe_stream_events *events, const char *name) {
    return harpe_stream_events_send(
        events, &(harpe_stream_event){.kind = HARPE_STREAM_EVENT_BEGIN, .name = name});
}

WORLD_TEST(events_arrive_in_order_when_the_stream_is_there) {
    arrivals seen = {.count = 0};
    OWNED(harpe_stream_events) events = new_events(&seen);
    hold_stream(true);
    char name[] = "abcdef";
    for (size_t i = 0; i < 6; i++) {
        assert_true(send_begin(events, name + i));
        assert_true(harpe_stream_events_send(
            events, &(harpe_stream_event){.kind = HARPE_STREAM_EVENT_END}));
    }
    memset(name, '?', 6); /* the names were copied */
    pause_s(0.05);
    assert_int_equal(seen.count, 0);
    hold_stream(false);
    WAIT_FOR(seen.count == 12);
    assert_string_equal(seen.order, "a.b.c.d.e.f.");
}

WORLD_TEST(marks_are_writes_if_the_stream_has_them) {
    arrivals seen = {.count = 0};
    size_t writes = count_writes(), functions = count_functions();
    OWNED(harpe_stream_events) events = new_events(&seen);
    for (size_t i = 0; i < 5; i++)
        assert_true(send_begin(events, "x"));
    WAIT_FOR(seen.count == 5);
    assert_int_equal(count_writes() - writes, has_writes ? 6 : 0); /* one is the trial */
    assert_int_equal(count_functions() - functions, has_writes ? 0 : 5);
    assert_int_equal(harpe_stream_events_call(events), !has_writes);
}

/* The stream refuses two marks. They never arrive, and the marks before and after them arrive in
 * their order. */
WORLD_TEST(a_refused_mark_disturbs_no_other) {
    arrivals seen = {.count = 0};
    OWNED(harpe_stream_events) events = new_events(&seen);
    hold_stream(true);
    assert_true(send_begin(events, "a"));
    refuse(true);
    assert_false(send_begin(events, "b"));
    assert_false(send_begin(events, "c"));
    refuse(false);
    assert_true(send_begin(events, "d"));
    hold_stream(false);
    WAIT_FOR(seen.count == 2);
    assert_string_equal(seen.order, "ad");
}

/* If CUDA does not unregister the page, the page must stay mapped. Otherwise the process could get
 * other memory at the same address, and CUDA would treat that memory as the registered page. */
WORLD_TEST(a_page_that_cuda_keeps_stays_mapped) {
    arrivals seen = {.count = 0};
    for (int i = 0; i < 2; i++) {
        harpe_stream_events *events = new_events(&seen);
        assert_true(send_begin(events, "a"));
        WAIT_FOR(seen.count == (size_t)i + 1);
        have_no_context(i == 0);
        void *page = registered();
        harpe_stream_events_free(events);
        have_no_context(false);
        unsigned char is_resident;
        if (has_writes) assert_int_equal(mincore(page, 1, &is_resident) == 0, i == 0);
    }
}

WORLD_TEST(a_stream_that_refused_first_is_tried_again) {
    arrivals seen = {.count = 0};
    refuse(true);
    OWNED(harpe_stream_events) events = new_events(&seen);
    assert_false(send_begin(events, "refused"));
    refuse(false);
    size_t writes = count_writes();
    assert_true(send_begin(events, "a"));
    WAIT_FOR(seen.count == 1);
    assert_int_equal(count_writes() - writes, has_writes ? 2 : 0);
    assert_int_equal(harpe_stream_events_call(events), !has_writes);
}

WORLD_TEST(a_full_queue_and_a_refusing_stream_are_told) {
    arrivals seen = {.count = 0};
    harpe_stream_events *events = new_events(&seen);
    size_t sent = 0;
    refuse(true);
    assert_false(send_begin(events, "refused"));
    refuse(false);
    hold_stream(true);
    while (sent < 100000 && send_begin(events, "x"))
        sent++;
    assert_in_range(sent, 1000, 99999);
    hold_stream(false);
    WAIT_FOR(seen.count == sent);
    assert_true(send_begin(events, "again"));
    WAIT_FOR(seen.count == sent + 1);
    harpe_stream_events_free(events);
    assert_int_equal(seen.count, sent + 1);
}

WORLD_TEST(a_stream_that_never_comes_there_is_left_behind) {
    arrivals seen = {.count = 0};
    harpe_stream_events *events = new_events(&seen);
    hold_stream(true);
    assert_true(send_begin(events, "late"));
    harpe_stream_events_free(events);
    hold_stream(false);
    pause_s(0.1);
    assert_int_equal(seen.count, 0);
}

/* The thread that follows the stream falls asleep after some time without marks. A new mark wakes
 * it. */
WORLD_TEST(a_stream_is_followed_again_after_a_pause) {
    arrivals seen = {.count = 0};
    OWNED(harpe_stream_events) events = new_events(&seen);
    for (size_t i = 1; i <= 40; i++) {
        pause_s((double)(i % 8) * 0.01); /* it falls asleep after 20 ms and more */
        assert_true(send_begin(events, "x"));
        WAIT_FOR(seen.count == i);
    }
}

/* The marks follow one another without a pause, so the thread does not see every value of the
 * number in memory. */
WORLD_TEST(a_thousand_marks_arrive_once_each) {
    arrivals seen = {.count = 0};
    harpe_stream_events *events = new_events(&seen);
    for (size_t i = 0; i < 1000; i++)
        assert_true(send_begin(events, "x"));
    WAIT_FOR(seen.count == 1000);
    harpe_stream_events_free(events);
    assert_int_equal(seen.count, 1000);
}

/* If the trial write ran on a stream that captures a graph, it would become a part of the graph. */
WORLD_TEST(a_capturing_stream_is_not_tried) {
    arrivals seen = {.count = 0};
    capture(true);
    OWNED(harpe_stream_events) events = new_events(&seen);
    assert_int_equal(captured(), 0);
    capture(false);
    size_t writes = count_writes();
    assert_true(send_begin(events, "a"));
    WAIT_FOR(seen.count == 1);
    assert_int_equal(count_writes() - writes, has_writes ? 2 : 0); /* the trial was made up for */
}

WORLD_TEST(nothing_is_left_in_a_captured_graph) {
    arrivals seen = {.count = 0};
    OWNED(harpe_stream_events) events = new_events(&seen);
    hold_stream(true);
    capture(true);
    assert_true(send_begin(events, "a"));
    assert_int_equal(seen.count, 1);
    capture(false);
    assert_true(send_begin(events, "b"));
    capture(true);
    assert_false(send_begin(events, "c")); /* would overtake b */
    assert_int_equal(captured(), 0);
    capture(false);
    hold_stream(false);
    WAIT_FOR(seen.count == 2);
    assert_string_equal(seen.order, "ab");
}

/* ---- In an optimizer ------------------------------------------------------------------------- */

#define REFUSED "does not accept all marks"
#define CALLED "marks of the CUDA stream are host functions"

WORLD_TEST(rounds_go_on_with_marks_of_a_stream) {
    server *one = start_server(files, 1);
    training *rank = new_training(one->url, 0, 1);
    rank->options.mark = HARPE_MARK_STREAM;
    (void)start_thread(be_the_stream, NULL);
    begin_training(rank);
    assert_reaches_round(rank, 2);
    assert_true(look(rank).controller.clock_requests > 0);
    if (!has_writes) WAIT_UNTIL(rank, count_lines(rank, CALLED) == 1);
    assert_int_equal(count_warnings(rank), 0);
    refuse(true);
    WAIT_UNTIL(rank, count_lines(rank, REFUSED) == 1);
    assert_trains_on(rank);
    refuse(false);
    assert_reaches_round(rank, look(rank).round + 2);
    end_training(rank);
}

static void count_synchronisation(void *user) { atomic_fetch_add((atomic_int *)user, 1); }

WORLD_TEST(synchronised_marks_synchronise_at_every_event) {
    atomic_int count = 0;
    training *rank = new_training(NOBODY, 0, 1);
    rank->options.mark = HARPE_MARK_SYNCHRONIZED;
    rank->options.synchronize = count_synchronisation;
    rank->options.synchronize_user = &count;
    construct(rank);
    run_step(rank, step_of_4, 4);
    assert_int_equal(atomic_load(&count), 2 + 2 * 4);
    end_training(rank);
}

static int run_tests_from(const char *group, size_t first, size_t count) {
    return _cmocka_run_group_tests(group, listed_tests + first, count, NULL, NULL);
}

/* The first test is without CUDA. The last one synchronises, and knows no stream. */
int main(void) {
    size_t of_a_stream = listed_count - 2;
    int failed = run_tests_from("without CUDA", 0, 1);
    load_cuda();
    failed += run_tests_from("writes of a stream", 1, of_a_stream);
    have_no_writes(true);
    has_writes = false;
    failed += run_tests_from("host functions", 1, of_a_stream);
    return failed + run_tests_from("synchronised", listed_count - 1, 1);
}
