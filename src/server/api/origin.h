/* SPDX-License-Identifier: Apache-2.0 */
/* Checks requests that a browser makes for another site's page. If the server requires a token,
 * such requests have no token and are refused. If the server requires no token, it is open to every
 * program of this machine or network. It must still not be open to every web page that somebody
 * views on this machine or network. */
#ifndef HARPE_SERVER_API_ORIGIN_H
#define HARPE_SERVER_API_ORIGIN_H

#include <stdbool.h>

#include "http/http.h"

typedef struct harpe_origin_rules {
    const char *listen;        /* the numeric address on which the server listens */
    const char *allowed_hosts; /* other names of the server, in the form of the setting */
    bool for_ranks;            /* the request comes from a training process and may be held */
} harpe_origin_rules;
/* Returns the reason why a request is refused, or NULL, if the browser says that a page of another
 * origin made it. Only a link to a page of this server may lead here from there. It needs no rules:
 * such a page has no business with a server that has tokens either. */
const char *harpe_cross_site_fault(const harpe_http_request *request, bool is_page);
/* Returns the reason why a request is refused (one line), or NULL. Host must be a name of this
 * server for every client: a page can send any User-Agent, but no other Host. Browsers must fulfil
 * further conditions. */
const char *harpe_origin_fault(const harpe_http_request *request, harpe_origin_rules rules);

/* Returns true if the value of a Host header is a name of a server that listens on the numeric
 * address `listen`. On a loopback address these are loopback addresses, localhost and names below
 * it. On another address they are any numeric address, the machine's own host name, and for the
 * wildcard address also localhost. The names in `allowed_hosts` are always allowed. They are
 * separated by commas or white space: "NAME", ".DOMAIN" for all names below a domain, "*" for every
 * name. Ports are not compared, because tunnels and proxies change them. */
bool harpe_host_is_known(const char *host, const char *listen, const char *allowed_hosts);

#endif
