/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of message_queue.h: it sends heartbeats, removes dead servers, sends and receives
 * messages, and starts a new session when the session is lost. cluster_sql.c contains the SQL
 * statements.
 *
 * Messages go through the database and not directly from server to server, because all servers can
 * reach the database anyway. So nobody has to configure addresses, certificates and tokens for
 * connections between servers, and no held request needs a connection between servers. A failure
 * that stops a server's messages also ends its ownership of the store. Each call takes some
 * milliseconds longer. */
#include "server/cluster/message_queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/wait.h"
#include "server/cluster/heartbeats.h"
#include "server/cluster/message_list.h"
#include "server/store/postgres_result.h"
#include "server/store/postgres_wait.h"

static const int64_t pause_ns = 500000000; /* between attempts to connect */
static const int64_t clean_every_ns = INT64_C(60000000000);

struct harpe_message_queue {
    char *where;
    harpe_log log;
    void (*has_news)(void *user);
    void *user;
    harpe_watch *watch;
    int wake_event, news_event; /* eventfds; wake_event wakes the thread, news_event the loop */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock; /* protects the members up to the next blank line */
    harpe_message_queue_view view;
    harpe_message_list outgoing, incoming;
    size_t sending_bytes; /* bytes of the messages that the thread is sending */
    bool is_closing, hurries, begins_anew;

    /* Only the thread uses the members below. */
    PGconn *connection; /* NULL: lost */
    int64_t me;
    harpe_heartbeats others;
    /* Without a connection, next_heartbeat_ns is the time of the next attempt to connect. */
    int64_t next_heartbeat_ns, next_clean_ns;
    bool has_failed; /* the session was lost, and this was logged */
};

/* ---- Sessions -------------------------------------------------------------------------------- */

static void tell_loop(const harpe_message_queue *queue) {
    (void)eventfd_write(queue->news_event, 1);
}

/* Ends the session. Drops all messages that it has not sent or passed to the loop. */
static void end_session(harpe_message_queue *queue) {
    harpe_lock(&queue->lock);
    queue->view = (harpe_message_queue_view){0};
    queue->begins_anew = false;
    harpe_message_list_clear(&queue->outgoing);
    harpe_message_list_clear(&queue->incoming);
    harpe_unlock(&queue->lock);
    PQfinish(queue->connection);
    queue->connection = NULL;
    queue->me = 0;
    queue->next_heartbeat_ns = 0;
    harpe_heartbeats_free(&queue->others);
    tell_loop(queue);
}

static void lose_session(harpe_message_queue *queue, const harpe_error *why) {
    end_session(queue);
    queue->next_heartbeat_ns = harpe_clock_boot_ns() + pause_ns;
    if (!queue->has_failed) {
        harpe_log_line(&queue->log, HARPE_LOG_WARNING, "cannot go on with the other servers: %s",
                       why->message);
    }
    queue->has_failed = true;
}

static harpe_status begin_session(harpe_message_queue *queue, harpe_error *error) {
    harpe_status status = harpe_pg_connect(queue->where, &queue->connection, error);
    /* The timeout is longer, so that this server keeps its id when a statement waits for a lock. */
    if (status == HARPE_OK && !harpe_pg_extend_timeout(queue->connection))
        status = harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = harpe_cluster_sql_register(queue->connection, &queue->me, error);
    if (status != HARPE_OK) return status;
    if (queue->has_failed)
        harpe_log_line(&queue->log, HARPE_LOG_WARNING, "among the other servers again");
    queue->has_failed = false;
    harpe_lock(&queue->lock);
    queue->view = (harpe_message_queue_view){.me = queue->me};
    harpe_unlock(&queue->lock);
    queue->next_heartbeat_ns = 0;
    return HARPE_OK;
}

/* ---- Heartbeats ------------------------------------------------------------------------------ */

/* Tells the loop which servers are gone. */
static harpe_status announce_gone(harpe_message_queue *queue, const harpe_heartbeat *heartbeat,
                                  harpe_error *error) {
    for (int64_t id; (id = harpe_heartbeats_take_gone(&queue->others, heartbeat)) != 0;) {
        harpe_message *message = harpe_calloc(1, sizeof *message);
        if (!message) return harpe_fail_memory(error);
        message->kind = HARPE_MESSAGE_GONE;
        message->peer = id;
        harpe_lock(&queue->lock);
        harpe_message_list_append(&queue->incoming, message);
        harpe_unlock(&queue->lock);
        tell_loop(queue);
    }
    return HARPE_OK;
}

static harpe_status remove_dead(harpe_message_queue *queue, const harpe_heartbeat *heartbeat,
                                int64_t asked_ns, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < heartbeat->count && status == HARPE_OK; i++) {
        const harpe_heartbeat_row *row = &heartbeat->rows[i];
        bool is_removed = false;
        if (row->id == queue->me) continue;
        if (!harpe_heartbeats_check_dead(&queue->others, row, asked_ns)) continue;
        status = harpe_cluster_sql_remove_dead(queue->connection, row, &is_removed, error);
        if (is_removed) queue->next_clean_ns = 0;
    }
    return status;
}

static harpe_status send_heartbeat(harpe_message_queue *queue, harpe_error *error) {
    int64_t asked_ns = harpe_clock_boot_ns();
    int64_t asked_awake_ns = harpe_clock_ns();
    harpe_heartbeat heartbeat = {0};
    harpe_status status =
        harpe_cluster_sql_heartbeat(queue->connection, queue->me, &heartbeat, error);
    if (status == HARPE_OK && !heartbeat.is_alive)
        status = harpe_fail(error, HARPE_IO_ERROR, "they have removed this one as dead");
    if (status == HARPE_OK) {
        harpe_lock(&queue->lock);
        bool is_new = queue->view.leader != heartbeat.leader || queue->view.confirmed_ns == 0;
        queue->view.leader = heartbeat.leader;
        queue->view.confirmed_ns = asked_ns;
        harpe_unlock(&queue->lock);
        if (is_new) tell_loop(queue);
        bool was_silent = harpe_clock_ns() - asked_awake_ns > HARPE_HEARTBEAT_DEAD_NS / 2;
        if (was_silent) harpe_heartbeats_restart(&queue->others);
        status = announce_gone(queue, &heartbeat, error);
        if (status == HARPE_OK) status = remove_dead(queue, &heartbeat, asked_awake_ns, error);
    }
    harpe_heartbeat_free(&heartbeat);
    if (status == HARPE_OK && asked_ns >= queue->next_clean_ns) {
        queue->next_clean_ns = asked_ns + clean_every_ns;
        status = harpe_cluster_sql_clean(queue->connection, error);
    }
    queue->next_heartbeat_ns = asked_ns + HARPE_HEARTBEAT_EVERY_NS;
    return status;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static harpe_status send_messages(harpe_message_queue *queue, harpe_message_list *messages,
                                  harpe_error *error) {
    /* Messages of an earlier session are dropped. */
    harpe_message_list_keep_from(messages, queue->me);
    if (!messages->first) return HARPE_OK;
    return harpe_cluster_sql_send(queue->connection, messages->first, error);
}

/* Reads the notices that came. `*has_messages` becomes true if messages wait for this server. If
 * the leader has changed, the next heartbeat is due at once. */
static harpe_status read_notices(harpe_message_queue *queue, bool *has_messages,
                                 harpe_error *error) {
    if (PQconsumeInput(queue->connection) != 1) return harpe_pg_fail(queue->connection, error);
    for (PGnotify *notice; (notice = PQnotifies(queue->connection)); PQfreemem(notice))
        if (strcmp(notice->relname, "harpe_leader") == 0)
            queue->next_heartbeat_ns = 0;
        else
            *has_messages = true;
    return HARPE_OK;
}

static harpe_status take_messages(harpe_message_queue *queue, harpe_error *error) {
    harpe_message_list came;
    harpe_message_list_init(&came);
    harpe_status status = harpe_cluster_sql_take(queue->connection, queue->me, &came.end, error);
    *came.end = NULL;
    for (const harpe_message *message = came.first; message && status == HARPE_OK;
         message = message->next)
        if (!harpe_heartbeats_note(&queue->others, message->peer))
            status = harpe_fail_memory(error);
    if (status != HARPE_OK) {
        harpe_message_list_clear(&came);
        return status;
    }
    harpe_lock(&queue->lock);
    harpe_message_list_append(&queue->incoming, came.first);
    harpe_unlock(&queue->lock);
    if (came.first) tell_loop(queue);
    return HARPE_OK;
}

/* ---- The thread ------------------------------------------------------------------------------ */

static harpe_status do_what_is_due(harpe_message_queue *queue, harpe_message_list *messages,
                                   harpe_error *error) {
    harpe_status status = HARPE_OK;
    bool has_messages = false;
    if (!queue->connection) {
        if (harpe_clock_boot_ns() < queue->next_heartbeat_ns) return HARPE_OK;
        status = begin_session(queue, error);
    }
    if (status == HARPE_OK) status = send_messages(queue, messages, error);
    if (status == HARPE_OK) status = read_notices(queue, &has_messages, error);
    if (status == HARPE_OK && has_messages) status = take_messages(queue, error);
    if (status == HARPE_OK && harpe_clock_boot_ns() >= queue->next_heartbeat_ns)
        status = send_heartbeat(queue, error);
    return status;
}

/* Takes the messages that a notice has announced, and returns true if there was such a notice. A
 * notice that came with an answer is in libpq's memory, where poll does not see it. */
static bool has_notices(harpe_message_queue *queue) {
    bool has_messages = false;
    if (!queue->connection) return false;
    if (read_notices(queue, &has_messages, NULL) != HARPE_OK) return true;
    if (!has_messages) return false;
    harpe_error error = {0};
    if (take_messages(queue, &error) != HARPE_OK) lose_session(queue, &error);
    return true;
}

static void wait_for_news(harpe_message_queue *queue) {
    if (has_notices(queue)) return;
    int64_t left_ns = queue->next_heartbeat_ns - harpe_clock_boot_ns();
    struct pollfd waited[] = {
        {.fd = queue->wake_event, .events = POLLIN},
        {.fd = queue->connection ? PQsocket(queue->connection) : -1, .events = POLLIN},
    };
    (void)harpe_poll(waited, 2, left_ns > 0 ? left_ns : 0);
    eventfd_t count = 0;
    (void)eventfd_read(queue->wake_event, &count);
}

static void *run_thread(void *user) {
    harpe_message_queue *queue = user;
    for (;;) {
        harpe_lock(&queue->lock);
        harpe_message_list messages;
        harpe_message_list_init(&messages);
        harpe_message_list_append(&messages, harpe_message_list_take(&queue->outgoing));
        queue->sending_bytes = messages.bytes;
        bool is_closing = queue->is_closing;
        bool begins_anew = queue->begins_anew && queue->connection;
        if (queue->hurries && queue->connection) queue->next_heartbeat_ns = 0;
        queue->hurries = false;
        harpe_unlock(&queue->lock);
        harpe_error error = {0};
        harpe_status status = do_what_is_due(queue, &messages, &error);
        if (status == HARPE_OK && begins_anew) {
            status = harpe_cluster_sql_deregister(queue->connection, queue->me, &error);
            if (status == HARPE_OK) end_session(queue);
        }
        if (status != HARPE_OK) lose_session(queue, &error);
        harpe_message_list_clear(&messages);
        harpe_lock(&queue->lock);
        queue->sending_bytes = 0;
        harpe_unlock(&queue->lock);
        if (is_closing) return NULL;
        wait_for_news(queue);
    }
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static void hear_news(void *user, uint32_t events) {
    (void)events;
    harpe_message_queue *queue = user;
    eventfd_t count = 0;
    (void)eventfd_read(queue->news_event, &count);
    queue->has_news(queue->user);
}

static harpe_status start_thread(harpe_message_queue *queue, harpe_error *error) {
    int result = harpe_thread_start(&queue->thread, "harpe-messages", run_thread, queue);
    if (result != 0) return harpe_fail_errno(error, result, "starting the message queue's thread");
    queue->has_thread = true;
    return HARPE_OK;
}

static harpe_status make_events(harpe_message_queue *queue, harpe_loop *loop, harpe_error *error) {
    queue->wake_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    queue->news_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->wake_event < 0 || queue->news_event < 0)
        return harpe_fail_errno(error, errno, "making the message queue's eventfds");
    return harpe_loop_watch(loop, queue->news_event, EPOLLIN, hear_news, queue, &queue->watch,
                            error);
}

harpe_status harpe_message_queue_open(const char *where, harpe_loop *loop, harpe_log log,
                                      void (*has_news)(void *user), void *user,
                                      harpe_message_queue **out, harpe_error *error) {
    harpe_message_queue *queue = harpe_calloc(1, sizeof *queue);
    if (!queue) return harpe_fail_memory(error);
    *queue = (harpe_message_queue){
        .log = log, .has_news = has_news, .user = user, .wake_event = -1, .news_event = -1};
    harpe_message_list_init(&queue->outgoing);
    harpe_message_list_init(&queue->incoming);
    pthread_mutex_init(&queue->lock, NULL);
    queue->where = strdup(where);
    harpe_status status = queue->where ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = make_events(queue, loop, error);
    if (status == HARPE_OK) status = begin_session(queue, error);
    if (status == HARPE_OK) status = start_thread(queue, error);
    if (status != HARPE_OK) {
        harpe_message_queue_close(queue);
        return status;
    }
    *out = queue;
    return HARPE_OK;
}

void harpe_message_queue_close(harpe_message_queue *queue) {
    if (!queue) return;
    if (queue->has_thread) {
        harpe_lock(&queue->lock);
        queue->is_closing = true;
        harpe_unlock(&queue->lock);
        (void)eventfd_write(queue->wake_event, 1);
        harpe_thread_join(queue->thread);
    }
    if (queue->me != 0) (void)harpe_cluster_sql_deregister(queue->connection, queue->me, NULL);
    PQfinish(queue->connection);
    harpe_watch_remove(queue->watch);
    if (queue->wake_event >= 0) (void)close(queue->wake_event);
    if (queue->news_event >= 0) (void)close(queue->news_event);
    harpe_message_list_clear(&queue->outgoing);
    harpe_message_list_clear(&queue->incoming);
    pthread_mutex_destroy(&queue->lock);
    harpe_heartbeats_free(&queue->others);
    free(queue->where);
    free(queue);
}

/* ---- The loop's side ------------------------------------------------------------------------- */

harpe_message_queue_view harpe_message_queue_get_view(harpe_message_queue *queue) {
    harpe_lock(&queue->lock);
    harpe_message_queue_view view = queue->view;
    harpe_unlock(&queue->lock);
    return view;
}

harpe_message *harpe_message_queue_take(harpe_message_queue *queue,
                                        harpe_message_queue_view *view) {
    harpe_lock(&queue->lock);
    *view = queue->view;
    harpe_message *messages = harpe_message_list_take(&queue->incoming);
    harpe_unlock(&queue->lock);
    return messages;
}

void harpe_message_queue_send(harpe_message_queue *queue, harpe_message *message) {
    message->next = NULL;
    harpe_lock(&queue->lock);
    bool is_first = !queue->outgoing.first;
    harpe_message_list_append(&queue->outgoing, message);
    harpe_unlock(&queue->lock);
    if (is_first) (void)eventfd_write(queue->wake_event, 1);
}

size_t harpe_message_queue_backlog(harpe_message_queue *queue) {
    harpe_lock(&queue->lock);
    size_t backlog = queue->outgoing.bytes + queue->sending_bytes;
    harpe_unlock(&queue->lock);
    return backlog;
}

bool harpe_message_queue_withdraw(harpe_message_queue *queue, int64_t peer, int64_t call) {
    harpe_lock(&queue->lock);
    bool is_withdrawn = harpe_message_list_withdraw(&queue->outgoing, peer, call);
    harpe_unlock(&queue->lock);
    return is_withdrawn;
}

void harpe_message_queue_begin_anew(harpe_message_queue *queue, int64_t me) {
    harpe_lock(&queue->lock);
    queue->begins_anew = queue->view.me == me;
    harpe_unlock(&queue->lock);
    (void)eventfd_write(queue->wake_event, 1);
}

void harpe_message_queue_hurry(harpe_message_queue *queue) {
    harpe_lock(&queue->lock);
    queue->hurries = true;
    harpe_unlock(&queue->lock);
    (void)eventfd_write(queue->wake_event, 1);
}
