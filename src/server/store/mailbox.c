/* SPDX-License-Identifier: Apache-2.0 */
/* The thread behind mailbox.h: beats, buries the dead, sends what the loop wrote and fetches what
 * came, and begins a new life when its session is lost. What it says in SQL is in mail.c.
 *
 * Letters go through the database and not from server to server: it is the one thing that all
 * servers reach anyway. So there are no addresses to configure, no second set of certificates and
 * tokens, no connection for each rank that is held elsewhere, and the same failure that takes a
 * server's letters takes its ownership. It costs a call some milliseconds. */
#include "server/mailbox.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/store/letters.h"
#include "server/store/lives.h"

static const int64_t pause_ns = 500000000; /* between attempts to connect */
static const int64_t clean_every_ns = INT64_C(60000000000);

struct harpe_mailbox {
    char *where;
    harpe_log log;
    void (*has_news)(void *user);
    void *user;
    harpe_watch *watch;
    int wake_event, news_event; /* eventfds: to the thread, to the loop */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock; /* up to the next blank line */
    harpe_mailbox_view view;
    harpe_letters outgoing, incoming;
    size_t sending_bytes; /* of what the thread has taken out */
    bool is_closing, hurries, begins_anew;

    /* The thread's: */
    PGconn *connection; /* NULL: lost */
    int64_t me;
    harpe_lives others;
    int64_t next_beat_ns, next_clean_ns; /* or, without connection, when to try again */
    bool has_failed;                     /* and it was logged */
};

static void log_line(const harpe_mailbox *mailbox, harpe_log_level level, const char *line) {
    if (mailbox->log.write) mailbox->log.write(mailbox->log.user, level, line);
}

/* ---- Lives ---------------------------------------------------------------------------------- */

static void tell_loop(const harpe_mailbox *mailbox) { (void)eventfd_write(mailbox->news_event, 1); }

/* A life ends; nothing written or received in it counts any more. */
static void end_session(harpe_mailbox *mailbox) {
    pthread_mutex_lock(&mailbox->lock);
    mailbox->view = (harpe_mailbox_view){0};
    mailbox->begins_anew = false;
    harpe_letters_clear(&mailbox->outgoing);
    harpe_letters_clear(&mailbox->incoming);
    pthread_mutex_unlock(&mailbox->lock);
    PQfinish(mailbox->connection);
    mailbox->connection = NULL;
    mailbox->me = 0;
    mailbox->next_beat_ns = 0;
    harpe_lives_free(&mailbox->others);
    tell_loop(mailbox);
}

static void lose_session(harpe_mailbox *mailbox, const harpe_error *why) {
    end_session(mailbox);
    mailbox->next_beat_ns = harpe_clock_boot_ns() + pause_ns;
    if (!mailbox->has_failed) {
        char line[HARPE_ERROR_MESSAGE_SIZE + 64];
        (void)snprintf(line, sizeof line, "cannot go on with the other servers: %s", why->message);
        log_line(mailbox, HARPE_LOG_WARNING, line);
    }
    mailbox->has_failed = true;
}

static harpe_status begin_session(harpe_mailbox *mailbox, harpe_error *error) {
    harpe_status status = harpe_pg_connect(mailbox->where, &mailbox->connection, error);
    if (status == HARPE_OK) {
        status = harpe_mail_register(mailbox->connection, &mailbox->me, error);
    }
    if (status != HARPE_OK) return status;
    if (mailbox->has_failed) {
        log_line(mailbox, HARPE_LOG_WARNING, "among the other servers again");
    }
    mailbox->has_failed = false;
    pthread_mutex_lock(&mailbox->lock);
    mailbox->view = (harpe_mailbox_view){.me = mailbox->me};
    pthread_mutex_unlock(&mailbox->lock);
    mailbox->next_beat_ns = 0;
    return HARPE_OK;
}

/* ---- Beats ---------------------------------------------------------------------------------- */

/* The loop hears of those who are no longer there. */
static harpe_status announce_gone(harpe_mailbox *mailbox, const harpe_beat *beat,
                                  harpe_error *error) {
    for (int64_t id; (id = harpe_lives_take_gone(&mailbox->others, beat)) != 0;) {
        harpe_letter *letter = harpe_calloc(1, sizeof *letter);
        if (!letter) return harpe_fail_memory(error);
        letter->kind = HARPE_LETTER_GONE;
        letter->peer = id;
        pthread_mutex_lock(&mailbox->lock);
        harpe_letters_append(&mailbox->incoming, letter);
        pthread_mutex_unlock(&mailbox->lock);
        tell_loop(mailbox);
    }
    return HARPE_OK;
}

static harpe_status bury_dead(harpe_mailbox *mailbox, const harpe_beat *beat, int64_t asked_ns,
                              harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < beat->count && status == HARPE_OK; i++) {
        const harpe_beat_row *row = &beat->rows[i];
        bool is_buried = false;
        if (row->id == mailbox->me) continue;
        if (!harpe_lives_look_dead(&mailbox->others, row, asked_ns)) continue;
        status = harpe_mail_bury(mailbox->connection, row, &is_buried, error);
        if (is_buried) mailbox->next_clean_ns = 0;
    }
    return status;
}

static harpe_status beat_once(harpe_mailbox *mailbox, harpe_error *error) {
    int64_t asked_ns = harpe_clock_boot_ns();
    int64_t asked_awake_ns = harpe_clock_ns();
    harpe_beat beat = {0};
    harpe_status status = harpe_mail_beat(mailbox->connection, mailbox->me, &beat, error);
    if (status == HARPE_OK && !beat.is_alive) {
        status = harpe_fail(error, HARPE_IO_ERROR, "they have taken this one for dead");
    }
    if (status == HARPE_OK) {
        pthread_mutex_lock(&mailbox->lock);
        bool is_new = mailbox->view.leader != beat.leader || mailbox->view.confirmed_ns == 0;
        mailbox->view.leader = beat.leader;
        mailbox->view.confirmed_ns = asked_ns;
        pthread_mutex_unlock(&mailbox->lock);
        if (is_new) tell_loop(mailbox);
        bool was_silent = harpe_clock_ns() - asked_awake_ns > HARPE_BEAT_DEAD_NS / 2;
        if (was_silent) harpe_lives_forgive(&mailbox->others);
        status = announce_gone(mailbox, &beat, error);
        if (status == HARPE_OK) status = bury_dead(mailbox, &beat, asked_awake_ns, error);
    }
    harpe_beat_free(&beat);
    if (status == HARPE_OK && asked_ns >= mailbox->next_clean_ns) {
        mailbox->next_clean_ns = asked_ns + clean_every_ns;
        status = harpe_mail_clean(mailbox->connection, error);
    }
    mailbox->next_beat_ns = asked_ns + HARPE_BEAT_EVERY_NS;
    return status;
}

/* ---- Letters -------------------------------------------------------------------------------- */

static harpe_status send_letters(harpe_mailbox *mailbox, harpe_letters *letters,
                                 harpe_error *error) {
    /* Not what was written in an earlier life. */
    harpe_letters_keep_from(letters, mailbox->me);
    if (!letters->first) return HARPE_OK;
    return harpe_mail_send(mailbox->connection, letters->first, error);
}

/* Is there anything in the box, and has the leader changed? */
static harpe_status read_notices(harpe_mailbox *mailbox, bool *has_letters, harpe_error *error) {
    if (PQconsumeInput(mailbox->connection) != 1) return harpe_pg_fail(mailbox->connection, error);
    for (PGnotify *notice; (notice = PQnotifies(mailbox->connection)) != NULL; PQfreemem(notice)) {
        if (strcmp(notice->relname, "harpe_leader") == 0)
            mailbox->next_beat_ns = 0;
        else
            *has_letters = true;
    }
    return HARPE_OK;
}

static harpe_status take_letters(harpe_mailbox *mailbox, harpe_error *error) {
    harpe_letters came;
    harpe_letters_init(&came);
    harpe_status status = harpe_mail_take(mailbox->connection, mailbox->me, &came.end, error);
    *came.end = NULL;
    for (const harpe_letter *letter = came.first; letter && status == HARPE_OK;
         letter = letter->next) {
        if (!harpe_lives_note(&mailbox->others, letter->peer)) status = harpe_fail_memory(error);
    }
    if (status != HARPE_OK) {
        harpe_letters_clear(&came);
        return status;
    }
    pthread_mutex_lock(&mailbox->lock);
    harpe_letters_append(&mailbox->incoming, came.first);
    pthread_mutex_unlock(&mailbox->lock);
    if (came.first) tell_loop(mailbox);
    return HARPE_OK;
}

/* ---- The thread ----------------------------------------------------------------------------- */

static harpe_status do_what_is_due(harpe_mailbox *mailbox, harpe_letters *letters,
                                   harpe_error *error) {
    harpe_status status = HARPE_OK;
    bool has_letters = false;
    if (!mailbox->connection) {
        if (harpe_clock_boot_ns() < mailbox->next_beat_ns) return HARPE_OK;
        status = begin_session(mailbox, error);
    }
    if (status == HARPE_OK) status = send_letters(mailbox, letters, error);
    if (status == HARPE_OK) status = read_notices(mailbox, &has_letters, error);
    if (status == HARPE_OK && has_letters) status = take_letters(mailbox, error);
    if (status == HARPE_OK && harpe_clock_boot_ns() >= mailbox->next_beat_ns) {
        status = beat_once(mailbox, error);
    }
    return status;
}

/* Notices that came with an answer are in libpq's memory, where poll does not see them. */
static bool has_notices(harpe_mailbox *mailbox) {
    bool has_letters = false;
    if (!mailbox->connection) return false;
    if (read_notices(mailbox, &has_letters, NULL) != HARPE_OK) return true;
    if (!has_letters) return false;
    harpe_error error = {0};
    if (take_letters(mailbox, &error) != HARPE_OK) lose_session(mailbox, &error);
    return true;
}

static void wait_for_news(harpe_mailbox *mailbox) {
    if (has_notices(mailbox)) return;
    int64_t left_ns = mailbox->next_beat_ns - harpe_clock_boot_ns();
    int timeout_ms = left_ns <= 0 ? 0 : (int)(left_ns / 1000000) + 1;
    struct pollfd waited[] = {
        {.fd = mailbox->wake_event, .events = POLLIN},
        {.fd = mailbox->connection ? PQsocket(mailbox->connection) : -1, .events = POLLIN},
    };
    (void)poll(waited, 2, timeout_ms);
    eventfd_t count = 0;
    (void)eventfd_read(mailbox->wake_event, &count);
}

static void *live(void *user) {
    harpe_mailbox *mailbox = user;
    for (;;) {
        pthread_mutex_lock(&mailbox->lock);
        harpe_letters letters;
        harpe_letters_init(&letters);
        harpe_letters_append(&letters, harpe_letters_take(&mailbox->outgoing));
        mailbox->sending_bytes = letters.bytes;
        bool is_closing = mailbox->is_closing;
        bool begins_anew = mailbox->begins_anew && mailbox->connection;
        if (mailbox->hurries && mailbox->connection) mailbox->next_beat_ns = 0;
        mailbox->hurries = false;
        pthread_mutex_unlock(&mailbox->lock);
        harpe_error error = {0};
        harpe_status status = do_what_is_due(mailbox, &letters, &error);
        if (status == HARPE_OK && begins_anew) {
            status = harpe_mail_deregister(mailbox->connection, mailbox->me, &error);
            if (status == HARPE_OK) end_session(mailbox);
        }
        if (status != HARPE_OK) lose_session(mailbox, &error);
        harpe_letters_clear(&letters);
        pthread_mutex_lock(&mailbox->lock);
        mailbox->sending_bytes = 0;
        pthread_mutex_unlock(&mailbox->lock);
        if (is_closing) return NULL;
        wait_for_news(mailbox);
    }
}

/* ---- Opening and closing -------------------------------------------------------------------- */

static void hear_news(void *user, uint32_t events) {
    (void)events;
    harpe_mailbox *mailbox = user;
    eventfd_t count = 0;
    (void)eventfd_read(mailbox->news_event, &count);
    mailbox->has_news(mailbox->user);
}

static harpe_status start_thread(harpe_mailbox *mailbox, harpe_error *error) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&mailbox->thread, NULL, live, mailbox);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0) return harpe_fail_errno(error, result, "starting the mailbox's thread");
    mailbox->has_thread = true;
    return HARPE_OK;
}

static harpe_status make_events(harpe_mailbox *mailbox, harpe_loop *loop, harpe_error *error) {
    mailbox->wake_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    mailbox->news_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mailbox->wake_event < 0 || mailbox->news_event < 0) {
        return harpe_fail_errno(error, errno, "making the mailbox's eventfds");
    }
    return harpe_loop_watch(loop, mailbox->news_event, EPOLLIN, hear_news, mailbox, &mailbox->watch,
                            error);
}

harpe_status harpe_mailbox_open(const char *where, harpe_loop *loop, harpe_log log,
                                void (*has_news)(void *user), void *user, harpe_mailbox **out,
                                harpe_error *error) {
    harpe_mailbox *mailbox = harpe_calloc(1, sizeof *mailbox);
    if (!mailbox) return harpe_fail_memory(error);
    *mailbox = (harpe_mailbox){
        .log = log, .has_news = has_news, .user = user, .wake_event = -1, .news_event = -1};
    harpe_letters_init(&mailbox->outgoing);
    harpe_letters_init(&mailbox->incoming);
    pthread_mutex_init(&mailbox->lock, NULL);
    mailbox->where = strdup(where);
    harpe_status status = mailbox->where ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = make_events(mailbox, loop, error);
    if (status == HARPE_OK) status = begin_session(mailbox, error);
    if (status == HARPE_OK) status = start_thread(mailbox, error);
    if (status != HARPE_OK) {
        harpe_mailbox_close(mailbox);
        return status;
    }
    *out = mailbox;
    return HARPE_OK;
}

void harpe_mailbox_close(harpe_mailbox *mailbox) {
    if (!mailbox) return;
    if (mailbox->has_thread) {
        pthread_mutex_lock(&mailbox->lock);
        mailbox->is_closing = true;
        pthread_mutex_unlock(&mailbox->lock);
        (void)eventfd_write(mailbox->wake_event, 1);
        pthread_join(mailbox->thread, NULL);
    }
    if (mailbox->me != 0) (void)harpe_mail_deregister(mailbox->connection, mailbox->me, NULL);
    PQfinish(mailbox->connection);
    harpe_watch_remove(mailbox->watch);
    if (mailbox->wake_event >= 0) (void)close(mailbox->wake_event);
    if (mailbox->news_event >= 0) (void)close(mailbox->news_event);
    harpe_letters_clear(&mailbox->outgoing);
    harpe_letters_clear(&mailbox->incoming);
    pthread_mutex_destroy(&mailbox->lock);
    harpe_lives_free(&mailbox->others);
    free(mailbox->where);
    free(mailbox);
}

/* ---- The loop's side ------------------------------------------------------------------------ */

harpe_mailbox_view harpe_mailbox_look(harpe_mailbox *mailbox) {
    pthread_mutex_lock(&mailbox->lock);
    harpe_mailbox_view view = mailbox->view;
    pthread_mutex_unlock(&mailbox->lock);
    return view;
}

harpe_letter *harpe_mailbox_take(harpe_mailbox *mailbox, harpe_mailbox_view *view) {
    pthread_mutex_lock(&mailbox->lock);
    *view = mailbox->view;
    harpe_letter *letters = harpe_letters_take(&mailbox->incoming);
    pthread_mutex_unlock(&mailbox->lock);
    return letters;
}

void harpe_mailbox_send(harpe_mailbox *mailbox, harpe_letter *letter) {
    letter->next = NULL;
    pthread_mutex_lock(&mailbox->lock);
    bool is_first = mailbox->outgoing.first == NULL;
    harpe_letters_append(&mailbox->outgoing, letter);
    pthread_mutex_unlock(&mailbox->lock);
    if (is_first) (void)eventfd_write(mailbox->wake_event, 1);
}

size_t harpe_mailbox_backlog(harpe_mailbox *mailbox) {
    pthread_mutex_lock(&mailbox->lock);
    size_t backlog = mailbox->outgoing.bytes + mailbox->sending_bytes;
    pthread_mutex_unlock(&mailbox->lock);
    return backlog;
}

bool harpe_mailbox_withdraw(harpe_mailbox *mailbox, int64_t peer, int64_t call) {
    pthread_mutex_lock(&mailbox->lock);
    bool is_withdrawn = harpe_letters_withdraw(&mailbox->outgoing, peer, call);
    pthread_mutex_unlock(&mailbox->lock);
    return is_withdrawn;
}

void harpe_mailbox_begin_anew(harpe_mailbox *mailbox, int64_t me) {
    pthread_mutex_lock(&mailbox->lock);
    mailbox->begins_anew = mailbox->view.me == me;
    pthread_mutex_unlock(&mailbox->lock);
    (void)eventfd_write(mailbox->wake_event, 1);
}

void harpe_mailbox_hurry(harpe_mailbox *mailbox) {
    pthread_mutex_lock(&mailbox->lock);
    mailbox->hurries = true;
    pthread_mutex_unlock(&mailbox->lock);
    (void)eventfd_write(mailbox->wake_event, 1);
}
