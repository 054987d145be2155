/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl reads no environment variable with the authorities, so this file does. curl is built for
 * the place where one system keeps its authorities. A library that a wheel brings also runs on
 * other systems, so this file looks for their places where curl's does not exist. It never replaces
 * a file that exists. */
#include "http/client/trust_store.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const places[] = {
    "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Arch */
    "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
    "/etc/ssl/ca-bundle.pem",             /* SUSE */
    "/etc/ssl/cert.pem",                  /* Alpine */
};

const char *harpe_named_trust_store(bool is_harpe_server, const char **variable) {
    static const char *const variables[] = {"HARPE_CA_FILE", "SSL_CERT_FILE"};
    for (size_t i = is_harpe_server ? 0 : 1; i < sizeof variables / sizeof *variables; i++) {
        const char *named = secure_getenv(variables[i]);
        if (!named || !*named) continue;
        *variable = variables[i];
        return named;
    }
    return NULL;
}

const char *harpe_other_trust_store(const char *own) {
    if (!own || access(own, R_OK) == 0) return NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], R_OK) == 0) return places[i];
    return NULL;
}
