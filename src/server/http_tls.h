/* SPDX-License-Identifier: Apache-2.0 */
/* TLS over a connected, non-blocking socket. GnuTLS behind it is loaded when the first certificate
 * is, so that a server without TLS does not carry it. Private to the HTTP server. */
#ifndef HARPE_SERVER_HTTP_TLS_H
#define HARPE_SERVER_HTTP_TLS_H

#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include <harpe/status.h>

typedef struct harpe_http_tls harpe_http_tls;
typedef struct harpe_http_tls_session harpe_http_tls_session;

/* Certificate chain and key as PEM texts. */
harpe_status harpe_http_tls_new(const char *cert_pem, const char *key_pem, harpe_http_tls **out,
                                harpe_error *error);
void harpe_http_tls_free(harpe_http_tls *tls);

/* NULL: out of memory. The fd stays the caller's. */
harpe_http_tls_session *harpe_http_tls_session_new(harpe_http_tls *tls, int fd);
void harpe_http_tls_session_free(harpe_http_tls_session *session);

/* Like recv and send: 0 (recv: the peer has ended), -1 with errno, EAGAIN among them. A send that
 * said EAGAIN is repeated with the same bytes. Handshake: 0 when done. */
int harpe_http_tls_handshake(harpe_http_tls_session *session);
ssize_t harpe_http_tls_receive(harpe_http_tls_session *session, void *buffer, size_t size);
ssize_t harpe_http_tls_send(harpe_http_tls_session *session, const void *bytes, size_t length);
/* Tells the peer that nothing more comes. */
void harpe_http_tls_end(harpe_http_tls_session *session);

/* http_tls_faults.c: explains faults of the texts before GnuTLS gets them, and of a certificate's
 * dates (-1: unknown). */
harpe_status harpe_http_tls_check_texts(const char *cert_pem, const char *key_pem,
                                        harpe_error *error);
harpe_status harpe_http_tls_check_dates(time_t valid_from, time_t valid_until, harpe_error *error);

#endif
