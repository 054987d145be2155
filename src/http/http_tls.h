/* SPDX-License-Identifier: Apache-2.0 */
/* TLS over a connected, non-blocking socket. The process must ignore SIGPIPE. This header is
 * private to the HTTP server. */
#ifndef HARPE_HTTP_HTTP_TLS_H
#define HARPE_HTTP_HTTP_TLS_H

#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include <harpe/status.h>

typedef struct harpe_http_tls harpe_http_tls;
typedef struct harpe_http_tls_session harpe_http_tls_session;

/* Makes a TLS context from a certificate chain and a key, both PEM texts. */
harpe_status harpe_http_tls_new(const char *cert_pem, const char *key_pem, harpe_http_tls **out,
                                harpe_error *error);
/* Frees a context. Sessions that were made with the context stay valid. */
void harpe_http_tls_free(harpe_http_tls *tls);

/* Makes a session on `fd`, which stays the caller's. Returns NULL if memory runs out. */
harpe_http_tls_session *harpe_http_tls_session_new(harpe_http_tls *tls, int fd);
void harpe_http_tls_session_free(harpe_http_tls_session *session);

/* `handshake` returns 0 when the handshake is complete, or -1 with errno. `receive` and `send` work
 * like recv and send: they return the number of bytes, 0 if the peer has ended the connection, or
 * -1 with errno. errno may be EAGAIN. After EAGAIN, `send` must be repeated with the same bytes. */
int harpe_http_tls_handshake(harpe_http_tls_session *session);
ssize_t harpe_http_tls_receive(harpe_http_tls_session *session, void *buffer, size_t size);
ssize_t harpe_http_tls_send(harpe_http_tls_session *session, const void *bytes, size_t length);
/* Tells the peer that no more data follows. */
void harpe_http_tls_end(harpe_http_tls_session *session);

#endif
