/* SPDX-License-Identifier: Apache-2.0 */
/* Browsers say where a page comes from in Origin, and whom they believe to talk to in Host. */
#include "server/origin.h"

#include <string.h>
#include <strings.h>

bool harpe_address_is_local(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* "name", "name:port", "[::1]:port": is the name one of this machine alone? */
static bool names_this_machine(const char *host) {
    static const char local[] = "localhost";
    size_t length = strcspn(host, ":");
    if (*host == '[') return strncmp(host, "[::1]", 5) == 0 && (host[5] == '\0' || host[5] == ':');
    if (strspn(host, "0123456789.") == length)
        return strncmp(host, "127.", 4) == 0 || strncmp(host, "0.0.0.0", length) == 0;
    if (length < strlen(local)) return false;
    const char *end = host + length - strlen(local);
    return strncasecmp(end, local, strlen(local)) == 0 && (end == host || end[-1] == '.');
}

/* Pages name where they come from in whatever changes something. */
static bool is_own_page(const char *origin, const char *host) {
    const char *name = strstr(origin, "://");
    return name && host && strcasecmp(name + 3, host) == 0;
}

/* Pages can change none of these; programs that train send none of them. */
static bool is_from_browser(const harpe_http_request *request) {
    const char *agent = harpe_http_header(request, "user-agent");
    return (agent && strncmp(agent, "Mozilla/", 8) == 0) ||
           harpe_http_header(request, "sec-fetch-site") || harpe_http_header(request, "origin");
}

const char *harpe_origin_fault(const harpe_http_request *request, harpe_origin_rules rules) {
    if (!is_from_browser(request)) return NULL;
    const char *host = harpe_http_header(request, "host");
    const char *origin = harpe_http_header(request, "origin");
    if (rules.for_ranks)
        return "this is for training processes: a browser that asks takes a rank's place";
    if (origin && rules.changes && !is_own_page(origin, host))
        return "this was asked by a page of another site: open this server's own page, or give it "
               "a token (--token-file)";
    /* A foreign name that leads here makes a foreign page look like ours. */
    if (rules.is_local && host && *host && !names_this_machine(host))
        return "this server knows itself as localhost and 127.0.0.1 only: to be called by another "
               "name it needs a token (--token-file)";
    return NULL;
}
