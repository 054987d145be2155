/* SPDX-License-Identifier: Apache-2.0 */
/* A browser sends the origin of a page in Origin, and the name of the server that it addresses in
 * Host. If the name of a page's site was made to resolve to this server (DNS rebinding), both
 * headers have that name. */
#include "server/api/origin.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* room for the longest DNS name */
enum { HOST_SIZE = 256 };

/* ---- Names ----------------------------------------------------------------------------------- */

/* Reads the name or address from "name", "name:port" or "[::1]:port", without a dot at the end of a
 * name. Returns false if the value has no such form. */
static bool read_name(const char *host, char name[HOST_SIZE]) {
    bool is_bracketed = *host == '[';
    size_t length = is_bracketed ? strcspn(++host, "]") : strcspn(host, ":");
    const char *rest = host + length;
    if (is_bracketed && *rest++ != ']') return false;
    if (*rest == ':') rest += 1 + strspn(rest + 1, "0123456789");
    if (*rest != '\0') return false;
    if (length > 0 && host[length - 1] == '.') length--;
    if (length == 0 || length >= HOST_SIZE) return false;
    memcpy(name, host, length);
    name[length] = '\0';
    return true;
}

typedef enum address_kind { NO_ADDRESS, OF_LOOPBACK, OF_ANYBODY } address_kind;

/* Returns the kind of an address. 127.1 is an address too. 0.0.0.0 means the machine itself. */
static address_kind kind_of_ipv4(struct in_addr address) {
    uint32_t bits = ntohl(address.s_addr);
    return bits >> 24 == 127 || bits == 0 ? OF_LOOPBACK : OF_ANYBODY;
}

static address_kind kind_of(const char *name) {
    struct in6_addr address;
    struct in_addr old;
    if (name[strspn(name, "0123456789.")] == '\0')
        return inet_aton(name, &old) ? kind_of_ipv4(old) : NO_ADDRESS;
    if (inet_pton(AF_INET6, name, &address) != 1) return NO_ADDRESS;
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
        memcpy(&old, address.s6_addr + 12, sizeof old);
        return kind_of_ipv4(old);
    }
    return IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_UNSPECIFIED(&address) ? OF_LOOPBACK
                                                                               : OF_ANYBODY;
}

/* Returns true if `name` is `domain` or a name below it. */
static bool is_below(const char *name, const char *domain, size_t length) {
    size_t own = strlen(name);
    return own > length && name[own - length - 1] == '.' &&
           strncasecmp(name + own - length, domain, length) == 0;
}

static bool is_localhost(const char *name) {
    return strcasecmp(name, "localhost") == 0 || is_below(name, "localhost", strlen("localhost"));
}

/* Returns true if `name` is the machine's host name, whole or up to its first dot. */
static bool is_host_name(const char *name) {
    char own[HOST_SIZE] = "";
    if (gethostname(own, sizeof own - 1) != 0 || *own == '\0') return false;
    if (strcasecmp(name, own) == 0) return true;
    size_t length = strcspn(own, ".");
    return strlen(name) == length && strncasecmp(name, own, length) == 0;
}

static bool matches(const char *name, const char *allowed, size_t length) {
    if (length == 1 && *allowed == '*') return true;
    if (*allowed == '.') return is_below(name, allowed + 1, length - 1);
    return strlen(name) == length && strncasecmp(name, allowed, length) == 0;
}

static bool is_allowed(const char *name, const char *allowed_hosts) {
    static const char separators[] = ", \t";
    for (const char *at = allowed_hosts + strspn(allowed_hosts, separators); *at;) {
        size_t length = strcspn(at, separators);
        if (matches(name, at, length)) return true;
        at += length;
        at += strspn(at, separators);
    }
    return false;
}

static bool is_loopback(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

bool harpe_host_is_known(const char *host, const char *listen, const char *allowed_hosts) {
    char name[HOST_SIZE];
    if (!read_name(host, name)) return false;
    if (is_allowed(name, allowed_hosts)) return true;
    bool is_wildcard = kind_of(listen) == OF_LOOPBACK && !is_loopback(listen);
    address_kind kind = kind_of(name);
    if (is_loopback(listen)) return kind == OF_LOOPBACK || is_localhost(name);
    /* No DNS server can make a numeric address resolve to another address. */
    return kind != NO_ADDRESS || is_host_name(name) || (is_wildcard && is_localhost(name));
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Returns true if the request comes from the server's own page. Browsers send Origin with every
 * request that changes something, and with those whose answer a page of another site could read. */
static bool is_own_page(const char *origin, const char *host) {
    const char *name = strstr(origin, "://");
    return name && host && strcasecmp(name + 3, host) == 0;
}

/* Returns true if a browser has made the request. Training programs send none of these headers. A
 * page can sometimes avoid sending them. */
static bool is_from_browser(const harpe_http_request *request) {
    const char *agent = harpe_http_header(request, "user-agent");
    return (agent && strncmp(agent, "Mozilla/", 8) == 0) ||
           harpe_http_header(request, "sec-fetch-site") || harpe_http_header(request, "origin");
}

static const char FOREIGN[] =
    "a page of another site made this request: open this server's own page";

const char *harpe_cross_site_fault(const harpe_http_request *request, bool is_page) {
    const char *site = harpe_http_header(request, "sec-fetch-site");
    const char *use = harpe_http_header(request, "sec-fetch-dest");
    if (!site || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0) return NULL;
    return is_page && use && strcmp(use, "document") == 0 ? NULL : FOREIGN;
}

const char *harpe_origin_fault(const harpe_http_request *request, harpe_origin_rules rules) {
    const char *host = harpe_http_header(request, "host");
    const char *origin = harpe_http_header(request, "origin");
    bool is_browser = is_from_browser(request);
    if (is_browser && rules.for_ranks)
        return "this is for training processes: a browser that asks would take the place of a rank";
    if (origin && !is_own_page(origin, host)) return FOREIGN;
    /* If a foreign name resolves to this server, a foreign page looks like a page of the server.
     * Every browser sends a name. */
    if (host && *host && !harpe_host_is_known(host, rules.listen, rules.allowed_hosts))
        return "the name in Host is not a known name of this server: add the name with "
               "--allowed-hosts, or give the server a token (--token-file)";
    return NULL;
}
