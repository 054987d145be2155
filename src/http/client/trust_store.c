/* SPDX-License-Identifier: Apache-2.0 */
/* curl is built for the place where one system keeps its authorities. A library that a wheel brings
 * also runs on other systems, so this file looks for their places where curl's does not exist. It
 * never replaces a file that exists. */
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

const char *harpe_other_trust_store(const char *own) {
    if (!own || access(own, R_OK) == 0) return NULL;
    const char *named = secure_getenv("SSL_CERT_FILE");
    if (named && *named) return named;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], R_OK) == 0) return places[i];
    return NULL;
}
