/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that a browser makes for another site's page. Where a token is wanted none of them
 * passes, for they have none; where none is wanted, what is open to every program of this machine
 * or network must not be open to every page that somebody there looks at. */
#ifndef HARPE_SERVER_ORIGIN_H
#define HARPE_SERVER_ORIGIN_H

#include <stdbool.h>

#include "server/http.h"

typedef struct harpe_origin_rules {
    const char *listen;        /* the numeric address that is listened on */
    const char *allowed_hosts; /* other names of the server, as the setting has them */
    bool changes;              /* the request may change something */
    bool for_ranks;            /* it is of a training process, which it makes wait */
} harpe_origin_rules;
/* The reason why a request is refused (one line), or NULL. Host must be a name of this server for
 * every client: a page can send any User-Agent, but no other Host. Browsers must fulfil further
 * conditions. */
const char *harpe_origin_fault(const harpe_http_request *request, harpe_origin_rules rules);

/* Is the value of a Host header a name of a server that listens on the numeric address `listen`?
 * On a loopback address: loopback addresses, localhost and names below it. On another: any numeric
 * address, the machine's own host name, and for the wildcard address localhost too. Everywhere the
 * names in `allowed_hosts`, separated by commas or white space: "NAME", ".DOMAIN" for all names
 * below a domain, "*" for every name. Ports are not compared: tunnels and proxies change them. */
bool harpe_host_is_known(const char *host, const char *listen, const char *allowed_hosts);

#endif
