/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one token from a text. It does not use HTTP. */
#include "base/token.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/socket_owner.h"

#define FILE_LIMIT_BYTES ((size_t)64 << 10)
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Narrows the range to the first line that is not blank, without the white space around it. */
static void find_line(const char **begin, const char **end) {
    if (*end - *begin >= 3 && memcmp(*begin, BYTE_ORDER_MARK, 3) == 0) *begin += 3;
    while (*begin < *end && is_blank(**begin))
        (*begin)++;
    for (const char *c = *begin; c < *end; c++)
        if (*c == '\n') *end = c;
    while (*end > *begin && is_blank((*end)[-1]))
        (*end)--;
}

harpe_status harpe_token_parse(const char *text, size_t length, const char *what, char **token,
                               harpe_error *error) {
    const char *begin = text;
    const char *end = text + length;
    find_line(&begin, &end);
    if (begin == end)
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s: the first line must be the token", what);
    for (const char *c = begin; c < end; c++) {
        if (*c > ' ' && *c < 0x7f) continue;
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: character %zu of the token is %s; a token is one word of visible "
                          "ASCII characters",
                          what, (size_t)(c - begin) + 1,
                          is_blank(*c)                            ? "white space"
                          : (unsigned char)*c < ' ' || *c == 0x7f ? "a control character"
                                                                  : "not ASCII");
    }
    *token = strndup(begin, (size_t)(end - begin));
    return *token ? HARPE_OK : harpe_fail_memory(error);
}

harpe_status harpe_token_read(const char *path, const char *flag, char **token,
                              harpe_error *error) {
    size_t length;
    char *text;
    char what[300];
    harpe_status status = harpe_file_read_promptly(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    (void)snprintf(what, sizeof what, "%s %.200s", flag, path);
    status = harpe_token_parse(text, length, what, token, error);
    explicit_bzero(text, length);
    free(text);
    return status;
}

harpe_status harpe_token_take(const char *text, const char *what, char **token,
                              harpe_error *error) {
    if (!text) text = "";
    const char *begin = text, *end = text + strlen(text);
    *token = NULL;
    find_line(&begin, &end);
    if (begin == end) return HARPE_OK;
    return harpe_token_parse(text, strlen(text), what, token, error);
}

/* ---- The machine's token --------------------------------------------------------------------- */

enum {
    HOST_SIZE = 64,
    FIRST_ORDINARY_UID = 1000, /* as on Debian; lower ids are system accounts */
    FIRST_DYNAMIC_UID = 61184, /* first uid of services that systemd starts with DynamicUser */
    LAST_DYNAMIC_UID = 65519,
};

/* Reads the numeric loopback address and the port of "http://HOST:PORT/". The host localhost gives
 * the address "". Returns false for another address, and for an unusual form of a loopback address.
 */
static bool read_loopback(const char *url, char host[HOST_SIZE], int *port) {
    bool is_https = strncasecmp(url, "https://", 8) == 0;
    if (!is_https && strncasecmp(url, "http://", 7) != 0) return false;
    const char *begin = url + (is_https ? 8 : 7);
    bool is_bracketed = *begin == '[';
    begin += is_bracketed;
    size_t length = strcspn(begin, is_bracketed ? "]/@?#" : ":/@?#");
    const char *rest = begin + length;
    if (length == 0 || length >= HOST_SIZE || (is_bracketed && *rest++ != ']')) return false;
    memcpy(host, begin, length);
    host[length] = '\0';
    *port = is_https ? 443 : 80;
    if (*rest == ':') {
        size_t digits = strspn(++rest, "0123456789");
        if (digits == 0 || digits > 5) return false;
        *port = (int)strtol(rest, NULL, 10);
        rest += digits;
    }
    if ((*rest != '\0' && *rest != '/') || *port > 65535) return false;
    struct in_addr v4;
    if (is_bracketed) return strcmp(host, "::1") == 0;
    if (strcasecmp(host, "localhost") == 0) return *host = '\0', true;
    return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

/* Returns true for root, this user, a system account, or an account that systemd made for a service
 * (DynamicUser). */
static bool is_trusted(uid_t uid) {
    return uid == 0 || uid == geteuid() || uid < FIRST_ORDINARY_UID ||
           (uid >= FIRST_DYNAMIC_UID && uid <= LAST_DYNAMIC_UID);
}

/* Returns true if a trusted user listens on the address. The name localhost can mean 127.0.0.1 and
 * ::1, so no untrusted user may listen on either of them. */
static bool is_server_trusted(const char *host, int port) {
    const char *both[] = {"127.0.0.1", "::1"};
    const char *one[] = {host};
    const char **addresses = *host ? one : both;
    int count = *host ? 1 : 2;
    int trusted = 0;
    for (int i = 0; i < count; i++) {
        uid_t uid;
        if (!harpe_socket_owner_of_listener(addresses[i], port, &uid)) continue;
        if (!is_trusted(uid)) return false;
        trusted++;
    }
    return trusted > 0;
}

char *harpe_token_of_machine(const char *server_url) {
    char host[HOST_SIZE];
    int port;
    char *token = NULL;
    if (access(HARPE_MACHINE_TOKEN_FILE, R_OK) != 0) return NULL;
    if (!read_loopback(server_url, host, &port) || !is_server_trusted(host, port)) return NULL;
    if (harpe_token_read(HARPE_MACHINE_TOKEN_FILE, "the file", &token, NULL)) return NULL;
    return token;
}

const char *harpe_token_hint(void) {
    bool is_closed = access(HARPE_MACHINE_TOKEN_FILE, R_OK) != 0 && errno == EACCES;
    return is_closed ? "; members of the group harpe may read that of this machine's service "
                       "in " HARPE_MACHINE_TOKEN_FILE
                     : "";
}
