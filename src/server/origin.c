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
    if (strspn(host, "0123456789.") == length) return strncmp(host, "127.", 4) == 0;
    if (length < strlen(local)) return false;
    const char *end = host + length - strlen(local);
    return strncasecmp(end, local, strlen(local)) == 0 && (end == host || end[-1] == '.');
}

/* Pages name where they come from in whatever changes something. */
static bool is_own_page(const char *origin, const char *host) {
    const char *name = strstr(origin, "://");
    return name && host && strcasecmp(name + 3, host) == 0;
}

const char *harpe_origin_fault(const harpe_http_request *request, bool is_local) {
    const char *host = harpe_http_header(request, "host");
    const char *origin = harpe_http_header(request, "origin");
    bool only_reads = strcmp(harpe_http_method(request), "GET") == 0;
    if (origin && !only_reads && !is_own_page(origin, host))
        return "this was asked by a page of another site: open this server's own page, or give it "
               "a token (--token-file)";
    /* A foreign name that leads here makes a foreign page look like ours. */
    if (is_local && host && *host && !names_this_machine(host))
        return "this server knows itself as localhost and 127.0.0.1 only: to be called by another "
               "name it needs a token (--token-file)";
    return NULL;
}
