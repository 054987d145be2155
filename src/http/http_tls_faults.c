/* SPDX-License-Identifier: Apache-2.0 */
/* Explains why a certificate and a key cannot be used. For most mistakes GnuTLS reports only that
 * data is missing. So this code examines the texts and the certificate's dates itself. */
#include "http/http_tls_faults.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"

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

harpe_status harpe_http_tls_check_texts(const char *cert_pem, const char *key_pem,
                                        harpe_error *error) {
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

harpe_status harpe_http_tls_check_dates(time_t valid_from, time_t valid_until, harpe_error *error) {
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
