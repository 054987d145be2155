/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of HTTP/1.1. These functions are the first to see bytes from outside. They accept or
 * refuse these bytes and allocate nothing. */
#include "http/http_internal.h"

#include <string.h>
#include <strings.h>

/* ---- Characters ------------------------------------------------------------------------------ */

static bool is_token_character(unsigned char c) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c);
}

static bool is_token(const char *text) {
    if (*text == '\0') return false;
    for (; *text != '\0'; text++)
        if (!is_token_character((unsigned char)*text)) return false;
    return true;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool harpe_http_decode(const char *encoded, size_t length, bool plus_is_space, char *decoded) {
    for (size_t i = 0; i < length; i++) {
        char c = encoded[i];
        if (c == '%') {
            int high = i + 2 < length ? hex_value(encoded[i + 1]) : -1;
            int low = high >= 0 ? hex_value(encoded[i + 2]) : -1;
            if (low < 0) return false;
            c = (char)(high * 16 + low);
            if (c == '\0') return false;
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        *decoded++ = c;
    }
    *decoded = '\0';
    return true;
}

/* ---- Head ------------------------------------------------------------------------------------ */

size_t harpe_http_head_length(const char *bytes, size_t length, size_t scanned) {
    size_t from = scanned > 3 ? scanned - 3 : 0; /* the end may have begun in an earlier call */
    const char *end = memmem(bytes + from, length - from, "\r\n\r\n", 4);
    return end ? (size_t)(end - bytes) + 4 : 0;
}

const char *harpe_http_field(const char *fields, const char *name) {
    while (*fields != '\0') {
        const char *value = fields + strlen(fields) + 1;
        if (strcasecmp(fields, name) == 0) return value;
        fields = value + strlen(value) + 1;
    }
    return NULL;
}

static int refuse(const char **why, int status, const char *reason) {
    *why = reason;
    return status;
}

static bool is_version(const char *text) {
    return strncmp(text, "HTTP/", 5) == 0 && strspn(text + 5, "0123456789") == 1 &&
           text[6] == '.' && strspn(text + 7, "0123456789") == 1 && text[8] == '\0';
}

/* Parses a line such as "METHOD target HTTP/1.1". The line ends with NUL and has no control
 * characters. */
static int parse_request_line(char *line, harpe_http_head *head, const char **why) {
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version) return refuse(why, 400, "the request line is not 'METHOD path HTTP/1.1'");
    *target++ = '\0';
    *version++ = '\0';
    if (!is_token(line)) return refuse(why, 400, "the method is not a word");

    if (strcmp(version, "HTTP/1.0") == 0)
        head->is_http_1_0 = true;
    else if (strcmp(version, "HTTP/1.1") != 0)
        return is_version(version) ? refuse(why, 505, "only HTTP/1.1 and HTTP/1.0 are supported")
                                   : refuse(why, 400, "the request line does not end in HTTP/1.1");

    if (strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0) {
        char *path = strchr(strchr(target, ':') + 3, '/');
        if (!path) return refuse(why, 400, "the request's address has no path");
        target = path;
    }
    if (target[0] != '/' && strcmp(target, "*") != 0)
        return refuse(why, 400, "the path does not start with '/'");
    head->method = line;
    head->target = target;
    return 0;
}

/* Returns true if `word` is one of the comma-separated words of `value`. */
static bool has_word(const char *value, const char *word) {
    size_t length = strlen(word);
    while (*value != '\0') {
        value += strspn(value, " \t,");
        size_t span = strcspn(value, " \t,");
        if (span == length && strncasecmp(value, word, length) == 0) return true;
        value += span;
    }
    return false;
}

static int parse_content_length(const char *value, harpe_http_head *head, const char **why) {
    uint64_t length = 0;
    if (*value == '\0') return refuse(why, 400, "content-length is not a number");
    for (; *value != '\0'; value++) {
        if (*value < '0' || *value > '9') return refuse(why, 400, "content-length is not a number");
        uint64_t digit = (uint64_t)(*value - '0');
        if (length > (UINT64_MAX - digit) / 10) return refuse(why, 413, "the body is too large");
        length = length * 10 + digit;
    }
    head->content_length = length;
    return 0;
}

typedef struct seen_fields {
    bool content_length, host;
} seen_fields;

/* Reads a field that has a meaning for the server itself. */
static int understand_field(const char *name, const char *value, harpe_http_head *head,
                            seen_fields *seen, const char **why) {
    if (strcasecmp(name, "content-length") == 0) {
        if (seen->content_length) return refuse(why, 400, "content-length is given twice");
        seen->content_length = true;
        return parse_content_length(value, head, why);
    }
    if (strcasecmp(name, "transfer-encoding") == 0) {
        if (head->is_chunked || head->is_http_1_0)
            return refuse(why, 400, "transfer-encoding cannot be used like this");
        if (strcasecmp(value, "chunked") != 0)
            return refuse(why, 501, "the only transfer-encoding understood is 'chunked'");
        head->is_chunked = true;
    } else if (strcasecmp(name, "host") == 0) {
        if (seen->host) return refuse(why, 400, "host is given twice");
        seen->host = true;
    } else if (strcasecmp(name, "connection") == 0) {
        if (has_word(value, "close"))
            head->keep_alive = false;
        else if (has_word(value, "keep-alive"))
            head->keep_alive = true;
    } else if (strcasecmp(name, "expect") == 0) {
        if (strcasecmp(value, "100-continue") != 0)
            return refuse(why, 417, "the only expectation understood is '100-continue'");
        head->expects_continue = true;
    }
    return 0;
}

/* Parses a "name: value" line that ends with NUL, and writes it to `*out` as name NUL value NUL.
 * The output may overwrite the text in place, because it is never longer than the input. */
static int parse_field(char *line, char **out, harpe_http_head *head, seen_fields *seen,
                       const char **why) {
    char *colon = strchr(line, ':');
    if (!colon) return refuse(why, 400, "a header line has no colon");
    *colon = '\0';
    if (!is_token(line)) return refuse(why, 400, "a header's name is not a word");
    char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t value_length = strlen(value);
    while (value_length > 0 && strchr(" \t", value[value_length - 1]))
        value_length--;
    value[value_length] = '\0';

    int status = understand_field(line, value, head, seen, why);
    if (status != 0) return status;
    size_t name_length = (size_t)(colon - line);
    memmove(*out, line, name_length + 1);
    memmove(*out + name_length + 1, value, value_length + 1);
    *out += name_length + value_length + 2;
    return 0;
}

/* Replaces the CR at the end of each line by NUL. */
static bool split_lines(char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\r' && i + 1 < length && text[i + 1] == '\n')
            text[i++] = '\0';
        else if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

int harpe_http_head_parse(char *text, size_t length, harpe_http_head *head, const char **why) {
    if (!split_lines(text, length))
        return refuse(why, 400, "the request's head contains control characters");
    harpe_http_head parsed = {0};
    seen_fields seen = {0};
    if (strchr(text, '\t')) return refuse(why, 400, "the request line contains a tab");
    size_t first_length = strlen(text);
    int status = parse_request_line(text, &parsed, why);
    if (status != 0) return status;
    parsed.keep_alive = !parsed.is_http_1_0;

    char *line = text + first_length + 2;
    char *out = line;
    parsed.fields = out;
    while (*line != '\0') { /* the head's last line is empty */
        char *next = line + strlen(line) + 2;
        status = parse_field(line, &out, &parsed, &seen, why);
        if (status != 0) return status;
        line = next;
    }
    *out = '\0';
    if (parsed.is_chunked && seen.content_length)
        return refuse(why, 400, "content-length and transfer-encoding contradict each other");
    if (!seen.host && !parsed.is_http_1_0) return refuse(why, 400, "the host header is missing");
    *head = parsed;
    return 0;
}

/* ---- Chunked bodies -------------------------------------------------------------------------- */

enum {
    AT_SIZE,
    AT_EXTENSION,
    AT_SIZE_LF,
    AT_DATA,
    AT_DATA_CR,
    AT_DATA_LF,
    AT_TRAILER, /* at the start of a trailer line */
    IN_TRAILER,
    AT_TRAILER_LF,
    AT_LAST_LF,
    AT_END,
    AT_ERROR,
};

enum { LINES_LIMIT = 1 << 20, DIGITS_LIMIT = 15 };

static int after_size(harpe_http_chunks *chunks, char c) {
    int value = hex_value(c);
    if (value >= 0) {
        if (++chunks->digits > DIGITS_LIMIT) return AT_ERROR;
        chunks->left = chunks->left * 16 + (uint64_t)value;
        return AT_SIZE;
    }
    if (chunks->digits == 0) return AT_ERROR;
    if (c == '\r') return AT_SIZE_LF;
    return c == ';' || c == ' ' || c == '\t' ? AT_EXTENSION : AT_ERROR;
}

/* Returns the state after one byte that is not data. */
static int after_byte(harpe_http_chunks *chunks, char c) {
    if (++chunks->line_length > LINES_LIMIT) return AT_ERROR;
    switch (chunks->state) {
    case AT_SIZE: return after_size(chunks, c);
    case AT_EXTENSION: return c == '\r' ? AT_SIZE_LF : c == '\n' ? AT_ERROR : AT_EXTENSION;
    case AT_SIZE_LF:
        if (c != '\n') return AT_ERROR;
        chunks->digits = 0;
        return chunks->left > 0 ? AT_DATA : AT_TRAILER;
    case AT_DATA_CR: return c == '\r' ? AT_DATA_LF : AT_ERROR;
    case AT_DATA_LF: return c == '\n' ? AT_SIZE : AT_ERROR;
    case AT_TRAILER: return c == '\r' ? AT_LAST_LF : c == '\n' ? AT_ERROR : IN_TRAILER;
    case IN_TRAILER: return c == '\r' ? AT_TRAILER_LF : c == '\n' ? AT_ERROR : IN_TRAILER;
    case AT_TRAILER_LF: return c == '\n' ? AT_TRAILER : AT_ERROR;
    case AT_LAST_LF: return c == '\n' ? AT_END : AT_ERROR;
    default: return AT_ERROR;
    }
}

harpe_http_chunk_result harpe_http_chunks_take(harpe_http_chunks *chunks, const char **bytes,
                                               size_t *length, const char **data,
                                               size_t *data_length) {
    while (*length > 0 && chunks->state != AT_END && chunks->state != AT_ERROR) {
        if (chunks->state == AT_DATA) {
            size_t taken = chunks->left < *length ? (size_t)chunks->left : *length;
            *data = *bytes;
            *data_length = taken;
            *bytes += taken;
            *length -= taken;
            chunks->left -= taken;
            if (chunks->left == 0) chunks->state = AT_DATA_CR;
            return HARPE_HTTP_CHUNK_DATA;
        }
        chunks->state = after_byte(chunks, **bytes);
        ++*bytes;
        --*length;
    }
    if (chunks->state == AT_END) return HARPE_HTTP_CHUNK_END;
    return chunks->state == AT_ERROR ? HARPE_HTTP_CHUNK_INVALID : HARPE_HTTP_CHUNK_MORE;
}
