/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one token from a text. It does not use HTTP. */
#include "base/token.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

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
    const char *begin = text ? text : "";
    const char *end = begin + strlen(begin);
    *token = NULL;
    find_line(&begin, &end);
    if (begin == end) return HARPE_OK;
    return harpe_token_parse(text, strlen(text), what, token, error);
}
