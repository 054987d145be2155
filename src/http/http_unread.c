/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the memory of answers that clients do not read. Such an answer stays in memory until the
 * socket has taken all of it. If all of these answers together exceed the limit, the connection
 * that has made no progress for the longest time is closed. An answer counts from the first write
 * that does not send all of it. An answer that the first write sends whole never counts. */
#include "http/http_internal.h"

static void append(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    connection->longer_unread = http->shortest_unread;
    connection->shorter_unread = NULL;
    if (http->shortest_unread)
        http->shortest_unread->shorter_unread = connection;
    else
        http->longest_unread = connection;
    http->shortest_unread = connection;
    connection->unread_memory = connection->out_length + connection->out_body_length;
    http->unread_memory += connection->unread_memory;
    connection->is_unread = true;
}

void harpe_http_unread_forget(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    if (!connection->is_unread) return;
    if (connection->longer_unread)
        connection->longer_unread->shorter_unread = connection->shorter_unread;
    else
        http->longest_unread = connection->shorter_unread;
    if (connection->shorter_unread)
        connection->shorter_unread->longer_unread = connection->longer_unread;
    else
        http->shortest_unread = connection->longer_unread;
    http->unread_memory -= connection->unread_memory;
    connection->is_unread = false;
}

bool harpe_http_unread_note(harpe_http_connection *connection, bool has_progressed) {
    harpe_http *http = connection->http;
    if (has_progressed) harpe_http_unread_forget(connection);
    if (!connection->is_unread) append(connection);
    while (http->unread_memory > http->options.max_unread_bytes &&
           http->longest_unread != http->shortest_unread) {
        http->counts.evicted++;
        if (http->longest_unread == connection) return false;
        harpe_http_connection_close(http->longest_unread);
    }
    return true;
}
