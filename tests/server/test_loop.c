/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop and its workers: order, cancelling, removal inside callbacks, threads that post
 * events, signals. */
#include "test.h"

#include <signal.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/loop.h"

enum { LONG_MS = 300000 };

static const harpe_pool_kind one_pool[] = {{.name = "work", .subject = "subject"}, {0}};

typedef struct world {
    harpe_loop *loop;
    char order[256];
    int calls;
    bool stops_when_written;
    harpe_timer *timer;
    harpe_watch *watch, *other_watch;
    int pipe[2], other_pipe[2];
    harpe_workers *workers;
} world;

static void give_up(void *user) {
    (void)user;
    fail_msg("the loop was not stopped in time");
}

static int set_up(void **state) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    assert_int_equal(harpe_loop_new(&w->loop, NULL), HARPE_OK);
    assert_int_equal(pipe(w->pipe), 0);
    assert_int_equal(pipe(w->other_pipe), 0);
    *state = w;
    return 0;
}

static int tear_down(void **state) {
    world *w = *state;
    harpe_workers_free(w->workers);
    harpe_loop_free(w->loop);
    for (int i = 0; i < 2; i++) {
        close(w->pipe[i]);
        close(w->other_pipe[i]);
    }
    free(w);
    return 0;
}

static void run(world *w) {
    harpe_timer *limit;
    assert_int_equal(harpe_loop_after(w->loop, LONG_MS, give_up, NULL, &limit, NULL), HARPE_OK);
    assert_int_equal(harpe_loop_run(w->loop, NULL), HARPE_OK);
    harpe_timer_cancel(limit);
}

static void note(world *w, char c) {
    size_t length = strlen(w->order);
    assert_true(length + 1 < sizeof w->order);
    w->order[length] = c;
}

static void stop(void *user) { harpe_loop_stop(((world *)user)->loop); }
static void note_a(void *user) { note(user, 'a'); }
static void note_b(void *user) { note(user, 'b'); }
static void note_c(void *user) { note(user, 'c'); }

/* ---- Timers ---------------------------------------------------------------------------------- */

#define FIXTURE_TEST(name) TEST_ON(name, world *w, set_up, tear_down)

FIXTURE_TEST(timers_fire_in_the_order_of_their_times) {
    int64_t begin_ns = 0;
    bool is_prompt = false;
    /* A timer's time begins with its call, and on a busy machine a call may be late. */
    for (int i = 0; i < 20 && !is_prompt; i++) {
        w->calls = 0;
        memset(w->order, 0, sizeof w->order);
        int64_t first_ns = harpe_clock_ns();
        harpe_loop_after(w->loop, 30, note_c, w, NULL, NULL);
        harpe_loop_after(w->loop, 10, note_a, w, NULL, NULL);
        harpe_loop_after(w->loop, 20, note_b, w, NULL, NULL);
        harpe_loop_after(w->loop, 40, stop, w, NULL, NULL);
        begin_ns = harpe_clock_ns();
        is_prompt = begin_ns - first_ns < 5 * 1000000LL;
        run(w);
    }
    assert_true(is_prompt);
    assert_string_equal(w->order, "abc");
    assert_true(harpe_clock_ns() - begin_ns >= 40 * 1000000LL);
}

FIXTURE_TEST(timers_due_at_once_fire_first_in_first_out) {
    harpe_loop_after(w->loop, 0, note_b, w, NULL, NULL);
    harpe_loop_after(w->loop, -5, note_a, w, NULL, NULL);
    harpe_loop_after(w->loop, 0, note_c, w, NULL, NULL);
    harpe_loop_after(w->loop, 20, stop, w, NULL, NULL);
    run(w);
    assert_string_equal(w->order, "bac");
}

FIXTURE_TEST(a_cancelled_timer_does_not_fire) {
    harpe_timer *timers[100];
    for (int i = 0; i < 100; i++)
        assert_int_equal(harpe_loop_after(w->loop, (i * 37) % 50, note_a, w, &timers[i], NULL),
                         HARPE_OK);
    for (int i = 0; i < 100; i++)
        if ((i * 7) % 100 != 50) harpe_timer_cancel(timers[(i * 7) % 100]);
    harpe_timer_cancel(NULL);
    harpe_loop_after(w->loop, 80, stop, w, NULL, NULL);
    run(w);
    assert_string_equal(w->order, "a");
}

static void again_at_once(void *user) {
    world *w = user;
    if (++w->calls == 1000) harpe_loop_stop(w->loop);
    harpe_loop_after(w->loop, 0, again_at_once, w, NULL, NULL);
}

static void written(void *user, uint32_t events) {
    world *w = user;
    char c;
    assert_true((events & EPOLLIN) != 0);
    assert_int_equal(read(w->pipe[0], &c, 1), 1);
    note(w, c);
    if (w->stops_when_written) stop(w);
}

FIXTURE_TEST(a_timer_that_renews_itself_does_not_starve_others) {
    assert_int_equal(harpe_loop_watch(w->loop, w->pipe[0], EPOLLIN, written, w, NULL, NULL),
                     HARPE_OK);
    assert_int_equal(write(w->pipe[1], "x", 1), 1);
    harpe_loop_after(w->loop, 0, again_at_once, w, NULL, NULL);
    run(w);
    assert_string_equal(w->order, "x");
}

/* ---- Watches --------------------------------------------------------------------------------- */

static void remove_both(void *user, uint32_t events) {
    (void)events;
    world *w = user;
    w->calls++;
    harpe_watch_remove(w->watch);
    harpe_watch_remove(w->other_watch);
    harpe_loop_after(w->loop, 20, stop, w, NULL, NULL);
}

FIXTURE_TEST(watches_can_be_removed_while_their_events_wait) {
    harpe_loop_watch(w->loop, w->pipe[0], EPOLLIN, remove_both, w, &w->watch, NULL);
    harpe_loop_watch(w->loop, w->other_pipe[0], EPOLLIN, remove_both, w, &w->other_watch, NULL);
    assert_int_equal(write(w->pipe[1], "x", 1), 1);
    assert_int_equal(write(w->other_pipe[1], "x", 1), 1);
    run(w);
    assert_int_equal(w->calls, 1);
}

FIXTURE_TEST(a_watch_can_be_paused_and_resumed) {
    harpe_loop_watch(w->loop, w->pipe[0], EPOLLIN, written, w, &w->watch, NULL);
    assert_int_equal(harpe_watch_change(w->watch, 0, NULL), HARPE_OK);
    assert_int_equal(write(w->pipe[1], "x", 1), 1);
    harpe_loop_after(w->loop, 20, stop, w, NULL, NULL);
    run(w);
    assert_string_equal(w->order, "");
    assert_int_equal(harpe_watch_change(w->watch, EPOLLIN, NULL), HARPE_OK);
    w->stops_when_written = true;
    run(w);
    assert_string_equal(w->order, "x");
}

FIXTURE_TEST(watching_no_file_is_an_error_that_names_it) {
    harpe_error error;
    harpe_watch *watch = NULL;
    assert_int_not_equal(harpe_loop_watch(w->loop, -1, EPOLLIN, written, w, &watch, &error),
                         HARPE_OK);
    assert_null(watch);
    assert_non_null(strstr(error.message, "-1"));
}

/* ---- Posting --------------------------------------------------------------------------------- */

enum { POSTERS = 4, POSTS = 5000 };

typedef struct post {
    harpe_posted posted;
    world *w;
    int number, *last;
} post;

typedef struct poster {
    world *w;
    int last; /* number of the last call that the loop has made */
    post posts[POSTS];
} poster;

static void posted_call(void *user) {
    post *p = user;
    assert_int_equal(p->number, *p->last + 1);
    *p->last = p->number;
    if (++p->w->calls == POSTERS * POSTS) harpe_loop_stop(p->w->loop);
}

static void *post_many(void *user) {
    poster *p = user;
    for (int i = 0; i < POSTS; i++) {
        post *one = &p->posts[i];
        *one = (post){.w = p->w, .number = i + 1, .last = &p->last};
        one->posted = (harpe_posted){.call = posted_call, .user = one};
        harpe_loop_post(p->w->loop, &one->posted);
    }
    return NULL;
}

FIXTURE_TEST(calls_posted_by_many_threads_all_come_and_in_order) {
    poster *posters = calloc(POSTERS, sizeof *posters);
    pthread_t threads[POSTERS];
    assert_non_null(posters);
    for (int i = 0; i < POSTERS; i++) {
        posters[i].w = w;
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, &posters[i]), 0);
    }
    run(w);
    for (int i = 0; i < POSTERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(w->calls, POSTERS * POSTS);
    free(posters);
}

static void count_waits(void *user) {
    world *w = user;
    if (++w->calls == 50) harpe_loop_stop(w->loop);
}

static int64_t wait_for_count(void *user) {
    world *w = user;
    return w->calls < 40 ? 0 : 1;
}

static void do_nothing(void *user) { (void)user; }
static int64_t wait_for_ever(void *user) {
    (void)user;
    return -1;
}

FIXTURE_TEST(what_runs_before_a_wait_limits_it) {
    harpe_before_wait entry = {.run = count_waits, .wait_ns = wait_for_count, .user = w};
    harpe_loop_before_wait_add(w->loop, &entry);
    run(w);
    assert_int_equal(w->calls, 50);
}

/* An entry that may wait for ever does not make the loop wait for another entry. */
FIXTURE_TEST(the_shortest_wait_of_several_entries_holds) {
    harpe_before_wait first = {.run = do_nothing, .wait_ns = wait_for_ever};
    harpe_before_wait counting = {.run = count_waits, .wait_ns = wait_for_count, .user = w};
    harpe_before_wait last = {.run = do_nothing, .wait_ns = wait_for_ever};
    harpe_loop_before_wait_add(w->loop, &first);
    harpe_loop_before_wait_add(w->loop, &counting);
    harpe_loop_before_wait_add(w->loop, &last);
    run(w);
    assert_int_equal(w->calls, 50);
}

/* The second entry gets work from the last one, after its own `run`. */
typedef struct handed {
    bool has_work;
    world *w;
} handed;

static void take_work(void *user) {
    handed *h = user;
    if (h->has_work) harpe_loop_stop(h->w->loop);
}

static int64_t wait_without_work(void *user) {
    const handed *h = user;
    return h->has_work ? 0 : -1;
}

static void give_work(void *user) {
    handed *h = user;
    h->has_work = true;
}

FIXTURE_TEST(work_that_one_entry_gives_another_is_done) {
    handed h = {.w = w};
    harpe_before_wait taker = {.run = take_work, .wait_ns = wait_without_work, .user = &h};
    harpe_before_wait giver = {.run = give_work, .wait_ns = wait_for_ever, .user = &h};
    harpe_loop_before_wait_add(w->loop, &taker);
    harpe_loop_before_wait_add(w->loop, &giver);
    run(w);
    assert_true(h.has_work);
}

typedef struct removal {
    world *w;
    harpe_before_wait own, other;
} removal;

static void remove_entries(void *user) {
    removal *r = user;
    harpe_loop_before_wait_remove(r->w->loop, &r->other);
    harpe_loop_before_wait_remove(r->w->loop, &r->own);
    harpe_loop_stop(r->w->loop);
}

static void must_not_run(void *user) {
    (void)user;
    fail_msg("a removed entry runs");
}

FIXTURE_TEST(an_entry_may_remove_entries) {
    removal r = {.w = w};
    r.own = (harpe_before_wait){.run = remove_entries, .wait_ns = wait_for_ever, .user = &r};
    r.other = (harpe_before_wait){.run = must_not_run, .wait_ns = wait_for_ever};
    harpe_loop_before_wait_add(r.w->loop, &r.own);
    harpe_loop_before_wait_add(r.w->loop, &r.other);
    run(r.w);
    harpe_loop_before_wait_remove(r.w->loop, &r.other); /* a second removal does nothing */
}

/* ---- Signals --------------------------------------------------------------------------------- */

static void received(void *user, int signal_number) {
    world *w = user;
    note(w, signal_number == SIGUSR1 ? '1' : '2');
    if (signal_number == SIGUSR2) harpe_loop_stop(w->loop);
}

static void send_signals(void *user) {
    (void)user;
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGUSR2);
}

FIXTURE_TEST(signals_come_as_calls) {
    const int signals[] = {SIGUSR1, SIGUSR2, 0};
    assert_int_equal(harpe_loop_on_signals(w->loop, signals, received, w, NULL), HARPE_OK);
    assert_int_equal(harpe_workers_new(w->loop, one_pool, 1, &w->workers, NULL), HARPE_OK);
    harpe_loop_after(w->loop, 0, send_signals, w, NULL, NULL);
    run(w);
    assert_string_equal(w->order, "12");
}

/* ---- Workers --------------------------------------------------------------------------------- */

enum { PIECES = 200 };

typedef struct piece {
    harpe_work work;
    world *w;
    int number;
    char name;
    pthread_t worked_by;
    atomic_int *worked;
} piece;

/* Submits work for a piece. */
static void submit(piece *p, void (*work)(void *user), void (*done)(void *user),
                   const char *subject) {
    p->work = (harpe_work){.work = work, .done = done, .user = p, .subject = subject};
    harpe_workers_submit(p->w->workers, &p->work);
}

static void do_piece(void *user) {
    piece *p = user;
    p->worked_by = pthread_self();
    atomic_fetch_add(p->worked, 1);
}

static void piece_done(void *user) {
    piece *p = user;
    assert_false(pthread_equal(p->worked_by, pthread_self()));
    if (++p->w->calls == PIECES) harpe_loop_stop(p->w->loop);
}

FIXTURE_TEST(work_is_done_on_workers_and_ends_on_the_loop) {
    piece *pieces = calloc(PIECES, sizeof *pieces);
    atomic_int worked = 0;
    assert_non_null(pieces);
    assert_int_equal(harpe_workers_new(w->loop, one_pool, 3, &w->workers, NULL), HARPE_OK);
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = (piece){.w = w, .worked = &worked};
        submit(&pieces[i], do_piece, piece_done, NULL);
    }
    run(w);
    assert_int_equal(atomic_load(&worked), PIECES);
    assert_int_equal(harpe_workers_pending(w->workers), 0);
    free(pieces);
}

static void free_itself(void *user) {
    piece *p = user;
    world *w = p->w;
    free(p);
    harpe_loop_stop(w->loop);
}

FIXTURE_TEST(work_without_an_end_may_free_itself) {
    piece *p = calloc(1, sizeof *p);
    assert_non_null(p);
    assert_int_equal(harpe_workers_new(w->loop, one_pool, 1, &w->workers, NULL), HARPE_OK);
    p->w = w;
    submit(p, free_itself, NULL, NULL);
    run(w);
}

static void sleep_a_little(void *user) {
    usleep(200000); /* 50 of them: 10 s */
    do_piece(user);
}

/* ---- Turns of subjects ----------------------------------------------------------------------- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool has_begun;
static int ended; /* used on the loop's thread only */

static void write_name(void *user) {
    piece *self = user;
    atomic_store(&has_begun, true);
    pthread_mutex_lock(&gate);
    self->w->order[self->w->calls++] = self->name;
    pthread_mutex_unlock(&gate);
}

static void name_is_written(void *user) {
    const piece *self = user;
    if (++ended == 16) harpe_loop_stop(self->w->loop);
}

static void wait_until_begun(void) {
    while (!atomic_load(&has_begun))
        usleep(1000);
}

/* One thread. The first piece is in progress while the others arrive. */
FIXTURE_TEST(subjects_take_turns) {
    static const char names[] = "-aaaaaaabbb.cab.";
    static const char subjects[128][2] = {['a'] = "a", ['b'] = "b", ['c'] = "c"};
    piece pieces[16];
    assert_int_equal(harpe_workers_new(w->loop, one_pool, 1, &w->workers, NULL), HARPE_OK);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 16; i++) {
        const char *subject = subjects[(int)names[i]];
        pieces[i] = (piece){.w = w, .name = names[i]};
        submit(&pieces[i], write_name, name_is_written, *subject ? subject : NULL);
        wait_until_begun();
    }
    pthread_mutex_unlock(&gate);
    run(w);
    assert_string_equal(w->order, "-ab.cab.ababaaaa");
}

FIXTURE_TEST(stuck_work_is_named_by_its_pool_and_subject) {
    static const harpe_pool_kind pools[] = {{"kitchen", "dish", 0}, {"cellar", "wine", 0}, {0}};
    char line[200] = "";
    piece stuck = {.w = w, .name = 's'};
    stuck.work = (harpe_work){.work = write_name, .user = &stuck, .pool = 1, .subject = "port"};
    atomic_store(&has_begun, false);
    assert_int_equal(harpe_workers_new(w->loop, pools, 1, &w->workers, NULL), HARPE_OK);
    assert_false(harpe_workers_fault(w->workers, 0, line, sizeof line));
    pthread_mutex_lock(&gate);
    harpe_workers_submit(w->workers, &stuck.work);
    wait_until_begun();
    bool is_stuck = harpe_workers_fault(w->workers, 0, line, sizeof line);
    pthread_mutex_unlock(&gate);
    harpe_workers_free(w->workers);
    w->workers = NULL;
    assert_true(is_stuck);
    assert_non_null(strstr(line, "cellar: 1 of at most 1 threads are stuck"));
    assert_non_null(strstr(line, "with wine port"));
}

enum { SUBJECTS = 10000, PIECES_OF_EACH = 3 };

static int numbers[SUBJECTS * PIECES_OF_EACH]; /* of the pieces, as they were worked on */

static void note_number(void *user) {
    const piece *self = user;
    atomic_store(&has_begun, true);
    pthread_mutex_lock(&gate);
    numbers[self->w->calls++] = self->number;
    pthread_mutex_unlock(&gate);
}

static void last_number_is_noted(void *user) {
    const piece *self = user;
    if (self->number == SUBJECTS * PIECES_OF_EACH - 1) harpe_loop_stop(self->w->loop);
}

/* The subjects come one after the other, each with all of its pieces. */
FIXTURE_TEST(many_subjects_take_turns) {
    static char subjects[SUBJECTS][1];
    static piece pieces[SUBJECTS * PIECES_OF_EACH];
    atomic_store(&has_begun, false);
    assert_int_equal(harpe_workers_new(w->loop, one_pool, 1, &w->workers, NULL), HARPE_OK);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < SUBJECTS * PIECES_OF_EACH; i++) {
        pieces[i] = (piece){.w = w, .number = i};
        submit(&pieces[i], note_number, last_number_is_noted, subjects[i / PIECES_OF_EACH]);
        wait_until_begun();
    }
    pthread_mutex_unlock(&gate);
    run(w);
    /* The first piece of subject 0 had begun before the others arrived. */
    int at = 1;
    assert_int_equal(w->calls, SUBJECTS * PIECES_OF_EACH);
    assert_int_equal(numbers[0], 0);
    for (int turn = 1; turn <= PIECES_OF_EACH; turn++) {
        for (int subject = turn == PIECES_OF_EACH; subject < SUBJECTS; subject++) {
            int own = subject == 0 ? turn : turn - 1;
            assert_int_equal(numbers[at++], subject * PIECES_OF_EACH + own);
        }
    }
}

/* ---- Idle threads ---------------------------------------------------------------------------- */

static int thread_count(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    assert_non_null(tasks);
    for (const struct dirent *one; (one = readdir(tasks));)
        count += one->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void wait_for_threads(int wanted) {
    for (int i = 0; i < LONG_MS && thread_count() != wanted; i++)
        usleep(1000);
    assert_int_equal(thread_count(), wanted);
}

/* Keeps as many threads busy as there are pieces of work, and then lets all of them end. */
static void work_at_once(world *w, piece *pieces, int count) {
    int before = thread_count();
    ended = 16 - count; /* name_is_written stops the loop at 16 */
    w->calls = 0;
    pthread_mutex_lock(&gate);
    for (int i = 0; i < count; i++) {
        pieces[i] = (piece){.w = w, .name = 'a'};
        submit(&pieces[i], write_name, name_is_written, NULL);
    }
    /* One thread exists already and takes the first piece. */
    wait_for_threads(before + count - 1);
    pthread_mutex_unlock(&gate);
    run(w);
}

FIXTURE_TEST(threads_without_work_end_but_for_one) {
    piece pieces[16];
    int others = thread_count();
    assert_int_equal(harpe_workers_new(w->loop, one_pool, 16, &w->workers, NULL), HARPE_OK);
    harpe_workers_keep_idle(w->workers, 1);
    for (int times = 0; times < 3; times++) {
        work_at_once(w, pieces, 16);
        wait_for_threads(others + 1);
    }
    assert_int_equal(harpe_workers_pending(w->workers), 0);
}

FIXTURE_TEST(freeing_workers_lets_running_work_end_and_drops_the_rest) {
    piece pieces[50];
    atomic_int worked = 0;
    assert_int_equal(harpe_workers_new(w->loop, one_pool, 1, &w->workers, NULL), HARPE_OK);
    for (int i = 0; i < 50; i++) {
        pieces[i] = (piece){.w = w, .worked = &worked};
        submit(&pieces[i], sleep_a_little, NULL, NULL);
    }
    harpe_workers_free(w->workers);
    w->workers = NULL;
    assert_true(atomic_load(&worked) < 50);
}

int main(void) { return run_listed_tests(); }
