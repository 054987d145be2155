/* SPDX-License-Identifier: Apache-2.0 */
/* May this client make this request? Compares the role of a client's token with the right that a
 * route needs, and checks requests that a browser makes for another site's page. */
#include "server/api/api_internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "rights/tokens.h"

/* A browser sends the origin of a page in Origin, and the name of the server that it addresses in
 * Host. If the name of a page's site was made to resolve to this server (DNS rebinding), both
 * headers have that name. */

/* room for the longest DNS name */
enum { HOST_SIZE = 256 };

/* ---- Names of the server --------------------------------------------------------------------- */

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

/* Returns true if the value of a Host header is a name of a server that listens on the numeric
 * address `listen`. On a loopback address these are loopback addresses, localhost and names below
 * it. On another address they are any numeric address, the machine's own host name, and for the
 * wildcard address also localhost. The names in `allowed_hosts` are always allowed. They are
 * separated by commas or white space: "NAME", ".DOMAIN" for all names below a domain, "*" for every
 * name. Ports are not compared, because tunnels and proxies change them. */
static bool host_is_known(const char *host, const char *listen, const char *allowed_hosts) {
    char name[HOST_SIZE];
    if (!read_name(host, name)) return false;
    if (is_allowed(name, allowed_hosts)) return true;
    bool is_wildcard = kind_of(listen) == OF_LOOPBACK && !is_loopback(listen);
    address_kind kind = kind_of(name);
    if (is_loopback(listen)) return kind == OF_LOOPBACK || is_localhost(name);
    /* No DNS server can make a numeric address resolve to another address. */
    return kind != NO_ADDRESS || is_host_name(name) || (is_wildcard && is_localhost(name));
}

/* ---- Requests from other origins ------------------------------------------------------------- */

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
    if (host && *host && !host_is_known(host, rules.listen, rules.allowed_hosts))
        return "the name in Host is not a known name of this server: add the name with "
               "--allowed-hosts, or give the server a token (--token-file)";
    return NULL;
}

/* Compares the role of a client's token with the right that a route needs. A timer looks at the
 * file of tokens every second. A worker lets a file process read it, because it may be on a file
 * server that does not answer. If a changed file cannot be read, the tokens stay as they were, the
 * log says why, and each later look tries again. */

enum { LOOK_EVERY_MS = 1000 };

struct harpe_access {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_file_processes *files;
    const char *path; /* NULL: no file of tokens */
    harpe_log log;
    void (*has_changed)(void *user);
    void *user;
    harpe_timer *timer;
    harpe_tokens tokens;
    harpe_work work;
    char told[HARPE_ERROR_MESSAGE_SIZE]; /* why the last look failed; "": it did not fail */

    /* Only the worker uses these while it runs. */
    harpe_tokens_stamp stamp; /* of the file whose tokens were read last */
    bool is_changed;          /* the file is another one than before */
    harpe_status status;
    harpe_tokens fresh;
    harpe_error error;
};

/* ---- Reading the file of tokens again -------------------------------------------------------- */

static void look_later(harpe_access *access);

static void look(void *user) {
    harpe_access *access = user;
    access->status =
        harpe_tokens_file_read_changed(access->files, access->path, "tokens", &access->fresh,
                                       &access->stamp, &access->is_changed, &access->error);
}

static void has_looked(void *user) {
    harpe_access *access = user;
    bool has_failed = access->is_changed && access->status != HARPE_OK;
    if (has_failed && strcmp(access->told, access->error.message) != 0)
        harpe_log_line(&access->log, HARPE_LOG_ERROR,
                       "%s; the tokens that were read before stay valid", access->error.message);
    (void)snprintf(access->told, sizeof access->told, "%s",
                   has_failed ? access->error.message : "");
    if (access->is_changed && access->status == HARPE_OK) {
        harpe_tokens_free(&access->tokens);
        access->tokens = access->fresh;
        access->fresh = (harpe_tokens){0};
        harpe_log_line(&access->log, HARPE_LOG_INFO, "read %zu tokens from %.300s",
                       access->tokens.count, access->path);
        access->has_changed(access->user);
    }
    look_later(access);
}

static void begin_to_look(void *user) {
    harpe_access *access = user;
    access->timer = NULL;
    access->work = (harpe_work){.work = look,
                                .done = has_looked,
                                .user = access,
                                .pool = HARPE_POOL_TOKENS,
                                .subject = access->path};
    harpe_workers_submit(access->workers, &access->work);
}

static void look_later(harpe_access *access) {
    /* Without memory for a timer, the next look begins at once, so that the looks do not end. */
    if (harpe_loop_after(access->loop, LOOK_EVERY_MS, begin_to_look, access, &access->timer, NULL))
        begin_to_look(access);
}

/* ---- Life ------------------------------------------------------------------------------------ */

harpe_status harpe_access_new(harpe_loop *loop, harpe_workers *workers, harpe_file_processes *files,
                              const harpe_settings *settings, harpe_log log,
                              void (*has_changed)(void *user), void *user, harpe_access **out,
                              harpe_error *error) {
    harpe_access *access = harpe_calloc(1, sizeof *access);
    if (!access) return harpe_fail_memory(error);
    access->loop = loop;
    access->workers = workers;
    access->files = files;
    access->log = log;
    access->has_changed = has_changed;
    access->user = user;
    access->path = *settings->tokens ? settings->tokens : NULL;
    harpe_status status = HARPE_OK;
    if (access->path) {
        access->stamp = HARPE_TOKENS_NO_STAMP;
        status = harpe_tokens_file_read_changed(files, access->path, "tokens", &access->tokens,
                                                &access->stamp, &access->is_changed, error);
        if (status == HARPE_OK) look_later(access);
    }
    if (status != HARPE_OK) {
        harpe_access_free(access);
        return status;
    }
    *out = access;
    return HARPE_OK;
}

void harpe_access_free(harpe_access *access) {
    if (!access) return;
    harpe_timer_cancel(access->timer);
    harpe_tokens_free(&access->tokens);
    harpe_tokens_free(&access->fresh);
    free(access);
}

/* ---- Clients --------------------------------------------------------------------------------- */

bool harpe_access_has_tokens(const harpe_access *access) { return access->path != NULL; }

bool harpe_access_knows(const harpe_access *access, const char *text) {
    return harpe_tokens_find(&access->tokens, text) != NULL;
}

bool harpe_access_client(const harpe_access *access, const harpe_http_request *request,
                         harpe_client *out) {
    bool has_own = harpe_http_has_own_token(request);
    *out = (harpe_client){
        .name = has_own ? "token file" : NULL, .role = HARPE_ROLE_OPERATOR, .watts = -1};
    if (has_own || !access->path) return true;
    const char *text = harpe_http_bearer(request);
    const harpe_named_token *token = text ? harpe_tokens_find(&access->tokens, text) : NULL;
    if (!token) return false;
    *out = (harpe_client){token->name, token->role, token->scope, harpe_token_claim_w(token)};
    return true;
}

bool harpe_access_fault(const harpe_client *client, const harpe_route *route, char *line,
                        size_t size) {
    static const char *const needed[] = {
        [HARPE_RIGHT_ENTER] = "a token",
        [HARPE_RIGHT_READ] = "the role viewer or operator",
        [HARPE_RIGHT_TRAIN] = "the role job or operator",
        [HARPE_RIGHT_STEER] = "the role operator",
        [HARPE_RIGHT_OVERSEE] = "the role operator for the whole fleet",
    };
    static const harpe_right lent[][2] = {
        [HARPE_ROLE_VIEWER] = {HARPE_RIGHT_ENTER, HARPE_RIGHT_READ},
        [HARPE_ROLE_JOB] = {HARPE_RIGHT_ENTER, HARPE_RIGHT_TRAIN},
    };
    harpe_right right = harpe_route_right(route);
    bool may = client->role == HARPE_ROLE_OPERATOR
                   ? right != HARPE_RIGHT_OVERSEE || !client->scope
                   : right == lent[client->role][0] || right == lent[client->role][1];
    if (may) return false;
    char words[256];
    (void)snprintf(line, size, "this needs %s; the token '%s' has the role %s for %s",
                   needed[right], client->name, harpe_role_name(client->role),
                   harpe_scope_words(client->scope, words, sizeof words));
    return true;
}
