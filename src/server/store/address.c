/* SPDX-License-Identifier: Apache-2.0 */
/* Connection strings are parsed only by libpq. Therefore all values that libpq treats as secret are
 * hidden, and no others. */
#include "server/store/store_tools.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <libpq-fe.h>

#include "base/error.h"
#include "base/text.h"

/* ---- Kinds ----------------------------------------------------------------------------------- */

/* Returns true if the text begins with "postgresql:" or "postgres:" in any case. */
static bool has_scheme(const char *where) {
    if (strncasecmp(where, "postgres", 8) != 0) return false;
    where += strncasecmp(where + 8, "ql", 2) == 0 ? 10 : 8;
    return *where == ':';
}

/* Returns true if the text begins with a keyword of libpq and '='. */
static bool has_pair(const char *where) {
    size_t length = strcspn(where, "= \t\r\n");
    size_t blank = strspn(where + length, " \t\r\n");
    if (length == 0 || where[length + blank] != '=') return false;
    PQconninfoOption *known = PQconninfoParse("", NULL);
    bool is_known = false;
    for (const PQconninfoOption *o = known; o && o->keyword && !is_known; o++)
        is_known = strlen(o->keyword) == length && strncasecmp(o->keyword, where, length) == 0;
    PQconninfoFree(known);
    return is_known;
}

bool harpe_store_is_postgres(const char *where) {
    where += strspn(where, " \t\r\n");
    return has_scheme(where) || has_pair(where);
}

/* ---- Parsing --------------------------------------------------------------------------------- */

static bool is_set(const PQconninfoOption *option) { return option->val && *option->val; }

static bool is_option_sound(const PQconninfoOption *option) {
    if (!is_set(option)) return true;
    if (strcmp(option->keyword, "host") == 0 || strcmp(option->keyword, "hostaddr") == 0)
        return !strchr(option->val, '@');
    if (strcmp(option->keyword, "port") == 0)
        return option->val[strspn(option->val, "0123456789,")] == '\0';
    if (strcmp(option->keyword, "dbname") == 0)
        return !strpbrk(option->val, "@=") && !strstr(option->val, "://");
    return true;
}

/* Parses a connection string. Returns NULL if this fails, or if libpq splits the string in a way
 * that the user probably did not intend. */
static PQconninfoOption *parse(const char *where) {
    PQconninfoOption *options = PQconninfoParse(where, NULL);
    for (const PQconninfoOption *o = options; o && o->keyword; o++) {
        if (is_option_sound(o)) continue;
        PQconninfoFree(options);
        return NULL;
    }
    return options;
}

bool harpe_store_address_is_sound(const char *where) {
    PQconninfoOption *options = parse(where);
    PQconninfoFree(options);
    return options != NULL;
}

static const char *value_of(const PQconninfoOption *options, const char *keyword) {
    for (const PQconninfoOption *o = options; o->keyword; o++)
        if (strcmp(o->keyword, keyword) == 0) return is_set(o) ? o->val : NULL;
    return NULL;
}

/* ---- Showing --------------------------------------------------------------------------------- */

/* Returns true if libpq marks the option with '*': a dialogue must not show its value. */
static bool is_secret(const PQconninfoOption *option) {
    return (option->dispchar && *option->dispchar == '*') || strstr(option->keyword, "password") ||
           strstr(option->keyword, "secret") || strncmp(option->keyword, "scram_", 6) == 0;
}

static void append_escaped(harpe_text *text, const char *value, const char *plain) {
    for (const char *c = value; *c; c++)
        if (isalnum((unsigned char)*c) || strchr(plain, *c))
            harpe_text_append(text, c, 1);
        else
            harpe_text_printf(text, "%%%02X", (unsigned)(unsigned char)*c);
}

/* Returns true for a host that can be in the host part of a URI. Lists, sockets and IPv6 addresses
 * are written as a parameter instead. */
static bool is_plain_host(const char *host) {
    return host && host[strcspn(host, ",/:[]%")] == '\0';
}

static void append_authority(harpe_text *text, const PQconninfoOption *options) {
    const char *user = value_of(options, "user");
    const char *host = value_of(options, "host");
    const char *port = value_of(options, "port");
    bool has_password = value_of(options, "password") != NULL;
    if (user) append_escaped(text, user, "-._~");
    if (has_password) harpe_text_printf(text, ":***");
    if (user || has_password) harpe_text_printf(text, "@");
    if (!is_plain_host(host)) return;
    append_escaped(text, host, "-._~");
    if (port && !strchr(port, ',')) harpe_text_printf(text, ":%s", port);
}

static bool is_in_authority(const PQconninfoOption *options, const char *keyword) {
    if (strcmp(keyword, "user") == 0 || strcmp(keyword, "password") == 0) return true;
    if (strcmp(keyword, "dbname") == 0) return true;
    if (!is_plain_host(value_of(options, "host"))) return false;
    if (strcmp(keyword, "port") == 0) return !strchr(value_of(options, "port"), ',');
    return strcmp(keyword, "host") == 0;
}

static void append_parameters(harpe_text *text, const PQconninfoOption *options) {
    char separator = '?';
    for (const PQconninfoOption *o = options; o->keyword; o++) {
        if (!is_set(o) || is_in_authority(options, o->keyword)) continue;
        harpe_text_printf(text, "%c%s=", separator, o->keyword);
        if (is_secret(o))
            harpe_text_printf(text, "***");
        else
            append_escaped(text, o->val, "-._~/:,");
        separator = '&';
    }
}

static void append_shown(harpe_text *text, const char *where) {
    PQconninfoOption *options = parse(where);
    harpe_text_printf(text, "postgresql://");
    if (!options) {
        harpe_text_printf(text, "***");
        return;
    }
    append_authority(text, options);
    const char *database = value_of(options, "dbname");
    if (database) {
        harpe_text_printf(text, "/");
        append_escaped(text, database, "-._~");
    }
    append_parameters(text, options);
    PQconninfoFree(options);
}

char *harpe_store_address_shown(const char *where) {
    harpe_text text = {0};
    const char *scheme = strstr(where, "://");
    if (harpe_store_is_postgres(where))
        append_shown(&text, where);
    else if (scheme && strncmp(where, "sqlite:", 7) != 0)
        harpe_text_printf(&text, "%.*s***", (int)(scheme - where) + 3, where);
    else
        harpe_text_printf(&text, "%s", where);
    return harpe_text_take(&text);
}

/* ---- A password from elsewhere --------------------------------------------------------------- */

static void append_pair(harpe_text *text, const char *keyword, const char *value) {
    harpe_text_printf(text, "%s%s='", text->length > 0 ? " " : "", keyword);
    for (const char *c = value; *c; c++) {
        if (*c == '\'' || *c == '\\') harpe_text_append(text, "\\", 1);
        harpe_text_append(text, c, 1);
    }
    harpe_text_append(text, "'", 1);
}

harpe_status harpe_store_address_with_password(const char *where, const char *password, char **out,
                                               harpe_error *error) {
    PQconninfoOption *options = parse(where);
    harpe_text text = {0};
    if (!options) return harpe_fail_memory(error);
    for (const PQconninfoOption *o = options; o->keyword; o++)
        if (is_set(o) && strcmp(o->keyword, "password") != 0)
            append_pair(&text, o->keyword, o->val);
    PQconninfoFree(options);
    append_pair(&text, "password", password);
    *out = harpe_text_take(&text);
    return *out ? HARPE_OK : harpe_fail_memory(error);
}
