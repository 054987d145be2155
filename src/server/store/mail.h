/* SPDX-License-Identifier: Apache-2.0 */
/* The statements of the mailbox: registering a server, its beat, letters out and in. Private to the
 * mailbox; one thread. After a failure the connection is good for nothing. */
#ifndef HARPE_SERVER_STORE_MAIL_H
#define HARPE_SERVER_STORE_MAIL_H

#include "server/mailbox.h"
#include "server/store/postgres_connection.h"

/* Makes this server known and begins to listen; its id lasts as long as the connection. */
harpe_status harpe_mail_register(PGconn *connection, int64_t *me, harpe_error *error);
harpe_status harpe_mail_deregister(PGconn *connection, int64_t me, harpe_error *error);

typedef struct harpe_beat_row {
    int64_t id, beat;
    bool has_ended; /* its session */
} harpe_beat_row;

typedef struct harpe_beat {
    bool is_alive;        /* am I? false: others have taken me for dead */
    int64_t leader;       /* 0: none that is among them */
    harpe_beat_row *rows; /* all servers */
    size_t count;
} harpe_beat;
harpe_status harpe_mail_beat(PGconn *connection, int64_t me, harpe_beat *out, harpe_error *error);
void harpe_beat_free(harpe_beat *beat);

/* Takes a server away whose beat is still `row`'s, and ends its sessions: both or nothing. */
harpe_status harpe_mail_bury(PGconn *connection, const harpe_beat_row *row, bool *is_buried,
                             harpe_error *error);
/* Letters to those who are gone go. */
harpe_status harpe_mail_clean(PGconn *connection, harpe_error *error);

/* All letters (a list; they stay the caller's) in one transaction. */
harpe_status harpe_mail_send(PGconn *connection, const harpe_letter *letters, harpe_error *error);
/* Appends what came to the list that ends at *end. */
harpe_status harpe_mail_take(PGconn *connection, int64_t me, harpe_letter ***end,
                             harpe_error *error);

#endif
