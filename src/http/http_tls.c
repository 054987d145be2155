/* SPDX-License-Identifier: Apache-2.0 */
/* Implements TLS 1.2 and 1.3 with GnuTLS. GnuTLS is loaded at run time through one table of its
 * functions. This file sets nothing but the oldest TLS version that is allowed. */
#include "http/http_tls.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"

/* The name by which dlopen finds GnuTLS. NULL is the program itself, which then loads GnuTLS as it
 * starts. */
#ifdef HARPE_GNUTLS_IS_LINKED
#define GNUTLS_LIBRARY NULL
#else
#define GNUTLS_LIBRARY "libgnutls.so.30"
#endif

static const char priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

#define GNUTLS_FUNCTIONS(X) \
    X(certificate_allocate_credentials) \
    X(certificate_set_x509_key_mem) \
    X(certificate_free_credentials) \
    X(x509_crt_init) \
    X(x509_crt_deinit) \
    X(x509_crt_import) \
    X(x509_crt_get_activation_time) \
    X(x509_crt_get_expiration_time) \
    X(priority_init) \
    X(priority_deinit) \
    X(init) \
    X(deinit) \
    X(credentials_set) \
    X(priority_set) \
    X(transport_set_int2) \
    X(handshake) \
    X(record_recv) \
    X(record_send) \
    X(bye) \
    X(strerror)

struct harpe_http_tls {
    void *library;
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priority;
    size_t users; /* its owner and the sessions, which may outlive the owner's use */
#define POINTER(name) __typeof__(gnutls_##name) *name;
    GNUTLS_FUNCTIONS(POINTER)
#undef POINTER
};

struct harpe_http_tls_session {
    harpe_http_tls *tls;
    gnutls_session_t session;
};

/* ---- What can be wrong with a certificate ---------------------------------------------------- */

/* Explains why a certificate and a key cannot be used. For most mistakes GnuTLS reports only that
 * data is missing. So this code examines the texts and the certificate's dates itself. */

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

/* Check the two texts before GnuTLS gets them, and the dates of a certificate (-1: unknown). The
 * error explains what is wrong with them. */
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

static harpe_status check_dates(time_t valid_from, time_t valid_until, harpe_error *error) {
    time_t now = harpe_clock_wall_whole_s();
    bool is_early = valid_from != (time_t)-1 && now < valid_from;
    bool is_late = valid_until != (time_t)-1 && now > valid_until;
    char when[32];
    struct tm utc;
    if (!is_early && !is_late) return HARPE_OK;
    (void)gmtime_r(is_early ? &valid_from : &valid_until, &utc);
    (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &utc);
    return is_early ? harpe_fail(error, HARPE_INVALID_INPUT,
                                 "tls_cert: the certificate is not valid before %s UTC; is the "
                                 "clock right?",
                                 when)
                    : harpe_fail(error, HARPE_INVALID_INPUT,
                                 "tls_cert: the certificate expired on %s UTC: renew it", when);
}

/* ---- Certificate ----------------------------------------------------------------------------- */

static harpe_status load_functions(harpe_http_tls *tls, harpe_error *error) {
    tls->library = dlopen(GNUTLS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!tls->library)
        return harpe_fail(error, HARPE_UNAVAILABLE, "TLS needs GnuTLS: %s", dlerror());
#define LOAD(name) \
    *(void **)&tls->name = dlsym(tls->library, "gnutls_" #name); \
    if (!tls->name) return harpe_fail(error, HARPE_UNAVAILABLE, "GnuTLS lacks gnutls_" #name);
    GNUTLS_FUNCTIONS(LOAD)
#undef LOAD
    return HARPE_OK;
}

static gnutls_datum_t datum(const char *text) {
    return (gnutls_datum_t){.data = (unsigned char *)text, .size = (unsigned)strlen(text)};
}

/* Checks the first certificate of the chain, which must be the server's own. GnuTLS 3.7 leaks
 * memory if it gets a key with a certificate that it cannot parse. */
static harpe_status check_certificate(harpe_http_tls *tls, const gnutls_datum_t *pem,
                                      harpe_error *error) {
    gnutls_x509_crt_t crt;
    if (tls->x509_crt_init(&crt) < 0) return harpe_fail_memory(error);
    int failed = tls->x509_crt_import(crt, pem, GNUTLS_X509_FMT_PEM);
    time_t from = failed < 0 ? -1 : tls->x509_crt_get_activation_time(crt);
    time_t until = failed < 0 ? -1 : tls->x509_crt_get_expiration_time(crt);
    tls->x509_crt_deinit(crt);
    if (failed < 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "tls_cert: the certificate cannot be used: %s", tls->strerror(failed));
    return check_dates(from, until, error);
}

static harpe_status load_certificate(harpe_http_tls *tls, const char *cert_pem, const char *key_pem,
                                     harpe_error *error) {
    gnutls_datum_t cert = datum(cert_pem), key = datum(key_pem);
    harpe_status status = check_texts(cert_pem, key_pem, error);
    if (status == HARPE_OK) status = check_certificate(tls, &cert, error);
    if (status != HARPE_OK) return status;
    if (tls->certificate_allocate_credentials(&tls->credentials) < 0)
        return harpe_fail_memory(error);
    int failed =
        tls->certificate_set_x509_key_mem(tls->credentials, &cert, &key, GNUTLS_X509_FMT_PEM);
    if (failed == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "tls_key: is not the key of the certificate in tls_cert (whose first "
                          "certificate must be the server's own)");
    if (failed < 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the TLS certificate and its key cannot be used: %s",
                          tls->strerror(failed));
    failed = tls->priority_init(&tls->priority, priorities, NULL);
    if (failed < 0)
        return harpe_fail(error, HARPE_UNAVAILABLE, "GnuTLS refuses '%s': %s", priorities,
                          tls->strerror(failed));
    return HARPE_OK;
}

harpe_status harpe_http_tls_new(const char *cert_pem, const char *key_pem, harpe_http_tls **out,
                                harpe_error *error) {
    harpe_http_tls *tls = calloc(1, sizeof *tls);
    if (!tls) return harpe_fail_memory(error);
    tls->users = 1;
    harpe_status status = load_functions(tls, error);
    if (status == HARPE_OK) status = load_certificate(tls, cert_pem, key_pem, error);
    if (status != HARPE_OK) {
        harpe_http_tls_free(tls);
        return status;
    }
    *out = tls;
    return HARPE_OK;
}

void harpe_http_tls_free(harpe_http_tls *tls) {
    if (!tls || --tls->users > 0) return;
    if (tls->priority) tls->priority_deinit(tls->priority);
    if (tls->credentials) tls->certificate_free_credentials(tls->credentials);
    if (tls->library) dlclose(tls->library);
    free(tls);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

harpe_http_tls_session *harpe_http_tls_session_new(harpe_http_tls *tls, int fd) {
    harpe_http_tls_session *session = malloc(sizeof *session);
    if (!session) return NULL;
    *session = (harpe_http_tls_session){.tls = tls};
    if (tls->init(&session->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        free(session);
        return NULL;
    }
    tls->users++;
    if (tls->priority_set(session->session, tls->priority) < 0 ||
        tls->credentials_set(session->session, GNUTLS_CRD_CERTIFICATE, tls->credentials) < 0) {
        harpe_http_tls_session_free(session);
        return NULL;
    }
    tls->transport_set_int2(session->session, fd, fd);
    return session;
}

void harpe_http_tls_session_free(harpe_http_tls_session *session) {
    if (!session) return;
    session->tls->deinit(session->session);
    harpe_http_tls_free(session->tls);
    free(session);
}

static ssize_t as_errno(ssize_t result) {
    if (result >= 0) return result;
    errno = result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED ? EAGAIN : EPROTO;
    return -1;
}

int harpe_http_tls_handshake(harpe_http_tls_session *session) {
    return (int)as_errno(session->tls->handshake(session->session));
}

ssize_t harpe_http_tls_receive(harpe_http_tls_session *session, void *buffer, size_t size) {
    return as_errno(session->tls->record_recv(session->session, buffer, size));
}

ssize_t harpe_http_tls_send(harpe_http_tls_session *session, const void *bytes, size_t length) {
    return as_errno(session->tls->record_send(session->session, bytes, length));
}

void harpe_http_tls_end(harpe_http_tls_session *session) {
    session->tls->bye(session->session, GNUTLS_SHUT_WR);
}
