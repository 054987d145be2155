/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL statements of the message queue. They register a server, renew its heartbeat, and send
 * and receive messages. Private to the message queue's thread. Close the connection after a
 * failure. */
#ifndef HARPE_SERVER_CLUSTER_CLUSTER_SQL_H
#define HARPE_SERVER_CLUSTER_CLUSTER_SQL_H

#include "server/cluster/message.h"
#include "server/store/postgres_connection.h"

/* Registers this server and begins to listen for notices. `*me` receives the server's id, which
 * lasts as long as the connection. */
harpe_status harpe_cluster_sql_register(PGconn *connection, int64_t *me, harpe_error *error);
harpe_status harpe_cluster_sql_deregister(PGconn *connection, int64_t me, harpe_error *error);

typedef struct harpe_heartbeat_row {
    int64_t id, heartbeat;
    bool has_ended; /* the server's session has ended */
} harpe_heartbeat_row;

typedef struct harpe_heartbeat {
    bool is_alive;             /* false: another server has removed this one */
    int64_t leader;            /* 0: no registered server leads */
    harpe_heartbeat_row *rows; /* all registered servers */
    size_t count;
} harpe_heartbeat;
harpe_status harpe_cluster_sql_heartbeat(PGconn *connection, int64_t me, harpe_heartbeat *out,
                                         harpe_error *error);
void harpe_heartbeat_free(harpe_heartbeat *heartbeat);

/* Removes a server if its heartbeat is still that of `row`, and ends its sessions. Does both or
 * neither. */
harpe_status harpe_cluster_sql_remove_dead(PGconn *connection, const harpe_heartbeat_row *row,
                                           bool *is_removed, harpe_error *error);
/* Deletes the messages to servers that are no longer registered. */
harpe_status harpe_cluster_sql_clean(PGconn *connection, harpe_error *error);

/* Sends all messages of a list in one transaction. The list stays the caller's. */
harpe_status harpe_cluster_sql_send(PGconn *connection, const harpe_message *messages,
                                    harpe_error *error);
/* Takes the messages to `me` out of the table and appends them to the list that ends at `*end`. */
harpe_status harpe_cluster_sql_take(PGconn *connection, int64_t me, harpe_message ***end,
                                    harpe_error *error);

#endif
