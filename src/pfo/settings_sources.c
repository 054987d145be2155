/* SPDX-License-Identifier: Apache-2.0 */
/* Reads settings from the environment and from a file of NAME=value lines. settings.c checks names
 * and values. */
#include "pfo/settings_sources.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "pfo/settings.h"

enum {
    FILE_LIMIT_BYTES = 1 << 20,
    NAME_SIZE = 64,
    WHERE_SIZE = 512,
};

/* In the order of precedence: a later prefix overrides an earlier one. */
#define OUR_PREFIX "HARPE_PFO_"
static const char *const PREFIXES[] = {"PERSEUS_", "ZEUS_PFO_", OUR_PREFIX};
enum { PREFIX_COUNT = sizeof PREFIXES / sizeof PREFIXES[0] };

/* ---- Environment ----------------------------------------------------------------------------- */

static bool is_setting(const char *name) {
    for (int i = 0; harpe_settings_name_at(i); i++)
        if (strcasecmp(harpe_settings_name_at(i), name) == 0) return true;
    return false;
}

static void warn_unknown(const char *variable, harpe_log log) {
    harpe_log_line(&log, HARPE_LOG_WARNING,
                   "environment: %.100s is not a setting of the server and is ignored (see harpe "
                   "serve --print-settings)",
                   variable);
}

/* Reads one variable if it has `prefix`. */
static harpe_status take_variable(harpe_settings *settings, const char *variable,
                                  const char *prefix, harpe_log log, harpe_error *error) {
    const char *equals = strchr(variable, '=');
    size_t prefix_length = strlen(prefix);
    if (!equals || strncasecmp(variable, prefix, prefix_length) != 0) return HARPE_OK;
    size_t length = (size_t)(equals - variable);
    if (length < prefix_length) return HARPE_OK;
    char whole[NAME_SIZE * 2];
    size_t kept = length < sizeof whole ? length : sizeof whole - 1;
    memcpy(whole, variable, kept);
    whole[kept] = '\0';
    const char *name = whole + prefix_length;
    if (kept < length || !is_setting(name)) {
        warn_unknown(whole, log);
        return HARPE_OK;
    }
    settings->follows_zeus = settings->follows_zeus || strcmp(prefix, OUR_PREFIX) != 0;
    return harpe_settings_set(settings, name, equals + 1, HARPE_FROM_ENVIRONMENT, whole, error);
}

harpe_status harpe_settings_from_environment(harpe_settings *settings,
                                             const char *const *environment, harpe_log log,
                                             harpe_error *error) {
    for (int p = 0; p < PREFIX_COUNT; p++) {
        for (const char *const *variable = environment; *variable; variable++) {
            harpe_status status = take_variable(settings, *variable, PREFIXES[p], log, error);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static char *trim(char *text) {
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

/* Removes quotes in place. Returns false if the closing quote is missing or text follows it. In
 * double quotes, a backslash is removed and the character after it is kept. */
static bool unquote(char **value) {
    char quote = **value;
    if (quote != '"' && quote != '\'') return true;
    char *read = *value + 1;
    char *write = *value;
    for (; *read && *read != quote; read++) {
        if (*read == '\\' && quote == '"' && read[1]) read++;
        *write++ = *read;
    }
    bool is_whole = *read == quote && read[1] == '\0';
    *write = '\0';
    return is_whole;
}

static harpe_status take_line(harpe_settings *settings, char *line, const char *where,
                              harpe_error *error) {
    line = trim(line);
    if (!*line || *line == '#') return HARPE_OK;
    char *equals = strchr(line, '=');
    if (!equals) return harpe_fail(error, HARPE_INVALID_INPUT, "%s: expected NAME=value", where);
    *equals = '\0';
    const char *name = trim(line);
    char *value = trim(equals + 1);
    if (!unquote(&value))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: the quote that begins the value does not end it", where);
    if (!is_setting(name))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: there is no setting '%.*s' (see harpe serve --print-settings)",
                          where, harpe_settings_name_length(name), name);
    char place[WHERE_SIZE];
    snprintf(place, sizeof place, "%s: %s", where, name);
    harpe_status status = harpe_settings_set(settings, name, value, HARPE_FROM_FILE, place, error);
    if (status == HARPE_INVALID_ARGUMENT && error) error->status = HARPE_INVALID_INPUT;
    return status == HARPE_INVALID_ARGUMENT ? HARPE_INVALID_INPUT : status;
}

harpe_status harpe_settings_from_text(harpe_settings *settings, const char *text, size_t length,
                                      const char *name, harpe_error *error) {
    if (memchr(text, '\0', length))
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s: not a text file (it holds a NUL byte)",
                          name);
    char *copy = strndup(text, length);
    if (!copy) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    int line_number = 0;
    for (char *line = copy; line && status == HARPE_OK;) {
        char *end = strchr(line, '\n');
        if (end) *end = '\0';
        char where[WHERE_SIZE / 2];
        snprintf(where, sizeof where, "%.200s:%d", name, ++line_number);
        status = take_line(settings, line, where, error);
        line = end ? end + 1 : NULL;
    }
    free(copy);
    return status;
}

harpe_status harpe_settings_from_file(harpe_settings *settings, const char *path,
                                      harpe_error *error) {
    char *text;
    size_t length;
    harpe_status status = harpe_file_read_promptly(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_settings_from_text(settings, text, length, path, error);
    free(text);
    return status;
}

harpe_status harpe_settings_from_config(harpe_settings *settings, const char *path,
                                        harpe_error *error) {
    bool may_be_missing = *path == '-';
    harpe_status status = harpe_settings_from_file(settings, path + may_be_missing, error);
    return may_be_missing && status == HARPE_NOT_FOUND ? HARPE_OK : status;
}
