/* SPDX-License-Identifier: Apache-2.0 */
/* Implements TLS 1.2 and 1.3 with OpenSSL. This file uses OpenSSL's defaults, except for the oldest
 * allowed TLS version and the settings that save memory in connections that wait. */
#include "http/http_internal.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"

/* OpenSSL counts the references to a context, and frees the context with the last reference. The
 * owner of the context has one reference, and each session has one. */
static SSL_CTX *context_of(harpe_http_tls *tls) { return (SSL_CTX *)tls; }
static SSL *session_of(harpe_http_tls_session *session) { return (SSL *)session; }

/* ---- What can be wrong with a certificate ---------------------------------------------------- */

/* This code explains why a certificate and a key cannot be used. For most mistakes, OpenSSL reports
 * only that a line is missing. So this code examines the texts and the certificate's dates itself.
 */

static const char begin[] = "-----BEGIN ";

/* Returns true if `pem` has a block of this kind. "EC PRIVATE KEY" counts as "PRIVATE KEY";
 * "CERTIFICATE REQUEST" does not count as "CERTIFICATE". */
static bool has_block(const char *pem, const char *kind) {
    for (const char *at = strstr(pem, begin); at; at = strstr(at + 1, begin)) {
        const char *name = at + strlen(begin);
        size_t length = strcspn(name, "\r\n");
        const char *end = memmem(name, length, "-----", 5);
        size_t kind_length = strlen(kind);
        if (end && (size_t)(end - name) >= kind_length &&
            memcmp(end - kind_length, kind, kind_length) == 0)
            return true;
    }
    return false;
}

static bool is_encrypted(const char *pem) {
    return has_block(pem, "ENCRYPTED PRIVATE KEY") || strstr(pem, "Proc-Type: 4,ENCRYPTED");
}

/* These functions check the two texts before OpenSSL gets the texts, and the dates of a
 * certificate. The error explains what is wrong. */
static harpe_status check_texts(const char *cert_pem, const char *key_pem, harpe_error *error) {
    bool has_cert = has_block(cert_pem, "CERTIFICATE");
    bool has_key = has_block(key_pem, "PRIVATE KEY");
    const char *fault = NULL;
    if (!has_cert && !has_key && has_block(cert_pem, "PRIVATE KEY") &&
        has_block(key_pem, "CERTIFICATE"))
        fault = "tls_cert holds a private key and tls_key a certificate: swap the two";
    else if (!has_cert && strstr(cert_pem, begin))
        fault = "tls_cert: holds PEM data, but no certificate";
    else if (!has_cert)
        fault = "tls_cert: is not a certificate in PEM, a text with '-----BEGIN CERTIFICATE-----' "
                "(convert DER with "
                "openssl x509 -inform DER)";
    else if (!has_key && strstr(key_pem, begin))
        fault = "tls_key: holds PEM data, but no private key";
    else if (!has_key)
        fault = "tls_key: is not a private key in PEM, a text with '-----BEGIN PRIVATE KEY-----' "
                "(convert DER with "
                "openssl pkey -inform DER)";
    else if (is_encrypted(key_pem))
        fault = "tls_key: is protected by a passphrase, which the server cannot ask for (openssl "
                "pkey writes it without one)";
    return fault ? harpe_fail(error, HARPE_INVALID_INPUT, "%s", fault) : HARPE_OK;
}

static harpe_status check_dates(const X509 *certificate, harpe_error *error) {
    time_t now = harpe_clock_wall_whole_s();
    bool is_early = X509_cmp_time(X509_get0_notBefore(certificate), &now) > 0;
    bool is_late = X509_cmp_time(X509_get0_notAfter(certificate), &now) < 0;
    char when[32];
    struct tm utc;
    if (!is_early && !is_late) return HARPE_OK;
    (void)ASN1_TIME_to_tm(
        is_early ? X509_get0_notBefore(certificate) : X509_get0_notAfter(certificate), &utc);
    (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &utc);
    return is_early ? harpe_fail(error, HARPE_INVALID_INPUT,
                                 "tls_cert: the certificate is not valid before %s UTC; is the "
                                 "clock right?",
                                 when)
                    : harpe_fail(error, HARPE_INVALID_INPUT,
                                 "tls_cert: the certificate expired on %s UTC: renew it", when);
}

/* ---- Certificate ----------------------------------------------------------------------------- */

/* Fails with the newest error of OpenSSL, and empties OpenSSL's queue of errors. */
static harpe_status fail_tls(const char *what, harpe_error *error) {
    char reason[128];
    ERR_error_string_n(ERR_peek_last_error(), reason, sizeof reason);
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    harpe_status status =
        harpe_fail(error, HARPE_INVALID_INPUT, "%s: %s", what, text ? text : reason);
    ERR_clear_error();
    return status;
}

/* Gives no passphrase, so that OpenSSL does not ask for one on the terminal. */
static int no_passphrase(char *buffer, int size, int is_written, void *user) {
    (void)buffer, (void)size, (void)is_written, (void)user;
    return -1;
}

/* Uses the first certificate of the text, which must be the server's own, and sends the other
 * certificates of the text with it. */
static harpe_status use_certificates(SSL_CTX *context, BIO *pem, harpe_error *error) {
    X509 *own = PEM_read_bio_X509_AUX(pem, NULL, no_passphrase, NULL);
    harpe_status status = own ? check_dates(own, error) : HARPE_OK;
    bool is_used = own && (status != HARPE_OK || SSL_CTX_use_certificate(context, own) == 1);
    X509_free(own);
    if (status != HARPE_OK) return status;
    if (!is_used) return fail_tls("tls_cert: the certificate cannot be used", error);
    X509 *next = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL);
    while (next && SSL_CTX_add0_chain_cert(context, next) == 1)
        next = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL);
    X509_free(next);
    bool is_end = !next && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    if (!is_end) return fail_tls("tls_cert: a certificate of the chain cannot be used", error);
    ERR_clear_error();
    return HARPE_OK;
}

static harpe_status use_key(SSL_CTX *context, BIO *pem, harpe_error *error) {
    EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, no_passphrase, NULL);
    bool is_used = key && SSL_CTX_use_PrivateKey(context, key) == 1;
    EVP_PKEY_free(key);
    if (is_used) return HARPE_OK;
    int reason = ERR_GET_REASON(ERR_peek_last_error());
    if (!key || (reason != X509_R_KEY_VALUES_MISMATCH && reason != X509_R_KEY_TYPE_MISMATCH))
        return fail_tls("the TLS certificate and its key cannot be used", error);
    ERR_clear_error();
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "tls_key: is not the key of the certificate in tls_cert (whose first "
                      "certificate must be the server's own)");
}

/* Makes a context whose idle sessions have no buffers. The server keeps no session for clients that
 * come back. */
static SSL_CTX *new_context(void) {
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (!context) return NULL;
    (void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(context, 0);
    (void)SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    (void)SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return context;
}

harpe_status harpe_http_tls_new(const char *cert_pem, const char *key_pem, harpe_http_tls **out,
                                harpe_error *error) {
    harpe_status status = check_texts(cert_pem, key_pem, error);
    if (status != HARPE_OK) return status;
    SSL_CTX *context = new_context();
    BIO *certificates = BIO_new_mem_buf(cert_pem, -1), *key = BIO_new_mem_buf(key_pem, -1);
    status = context && certificates && key ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = use_certificates(context, certificates, error);
    if (status == HARPE_OK) status = use_key(context, key, error);
    BIO_free(certificates);
    BIO_free(key);
    if (status != HARPE_OK) {
        SSL_CTX_free(context);
        return status;
    }
    *out = (harpe_http_tls *)context;
    return HARPE_OK;
}

void harpe_http_tls_free(harpe_http_tls *tls) { SSL_CTX_free(context_of(tls)); }

/* ---- Sessions -------------------------------------------------------------------------------- */

harpe_http_tls_session *harpe_http_tls_session_new(harpe_http_tls *tls, int fd) {
    SSL *session = SSL_new(context_of(tls));
    if (session && SSL_set_fd(session, fd) == 1) {
        SSL_set_accept_state(session);
        return (harpe_http_tls_session *)session;
    }
    SSL_free(session);
    return NULL;
}

void harpe_http_tls_session_free(harpe_http_tls_session *session) { SSL_free(session_of(session)); }

/* Converts the result of a call of OpenSSL to the result that recv or send would return. */
static ssize_t as_errno(harpe_http_tls_session *session, int result) {
    if (result > 0) return result;
    int failure = SSL_get_error(session_of(session), result);
    ERR_clear_error();
    if (failure == SSL_ERROR_ZERO_RETURN) return 0;
    errno = failure == SSL_ERROR_WANT_READ || failure == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return -1;
}

int harpe_http_tls_handshake(harpe_http_tls_session *session) {
    ssize_t result = as_errno(session, SSL_do_handshake(session_of(session)));
    if (result == 0) errno = EPROTO; /* the peer has ended */
    return result > 0 ? 0 : -1;
}

ssize_t harpe_http_tls_receive(harpe_http_tls_session *session, void *buffer, size_t size) {
    return as_errno(session, SSL_read(session_of(session), buffer, (int)size));
}

ssize_t harpe_http_tls_send(harpe_http_tls_session *session, const void *bytes, size_t length) {
    return as_errno(session, SSL_write(session_of(session), bytes, (int)length));
}

void harpe_http_tls_end(harpe_http_tls_session *session) {
    (void)SSL_shutdown(session_of(session));
    ERR_clear_error();
}
