/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that their readers do not take. Such an answer stays in memory until the socket has taken
 * all of it. All of them together have a limit; if it is exceeded, the connection that has made no
 * progress for longest is closed. An answer that the socket takes at once is never counted. */
#include "server/http_parts.h"

static void append(harpe_http_connection *connection) {
    harpe_http *http = connection->http;
    connection->longer_unread = http->shortest_unread;
    connection->shorter_unread = NULL;
    if (http->shortest_unread != NULL)
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
    if (connection->longer_unread != NULL)
        connection->longer_unread->shorter_unread = connection->shorter_unread;
    else
        http->longest_unread = connection->shorter_unread;
    if (connection->shorter_unread != NULL)
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
