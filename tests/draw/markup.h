/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the XML of a picture is well-formed. It accepts only the parts of XML that Harpe's
 * pictures use. */
#ifndef HARPE_TESTS_DRAW_MARKUP_H
#define HARPE_TESTS_DRAW_MARKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/text.h"

/* Checks an entity or a plain character of a text, and moves `*at` behind it. */
static inline bool markup_text_character(const char **at, const char *end) {
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    unsigned char byte = (unsigned char)**at;
    if (byte == '&') {
        for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++) {
            size_t length = strlen(entities[i]);
            if ((size_t)(end - *at) >= length && memcmp(*at, entities[i], length) == 0) {
                *at += length;
                return true;
            }
        }
        return false;
    }
    if (byte == '<' || (byte < 0x20 && byte != '\n' && byte != '\t')) return false;
    *at += 1;
    return true;
}

/* Checks the attributes of a tag, whose values are in double quotes. Moves `*at` to their end. */
static inline bool markup_attributes(const char **at, const char *end) {
    while (*at < end && **at != '>' && **at != '/' && **at != '?') {
        if (**at == ' ') {
            *at += 1;
            continue;
        }
        const char *equals = memchr(*at, '=', (size_t)(end - *at));
        if (!equals || equals + 1 >= end || equals[1] != '"') return false;
        for (const char *name = *at; name < equals; name++)
            if (strchr(" <>\"'&/", *name)) return false;
        *at = equals + 2;
        while (*at < end && **at != '"')
            if (!markup_text_character(at, end)) return false;
        if (*at >= end) return false;
        *at += 1;
    }
    return *at < end;
}

/* Checks the tag at `*at`, which is a '<', and moves `*at` behind it. Updates the stack of open
 * elements. */
static inline bool markup_tag(const char **at, const char *end, char stack[][32], size_t *depth) {
    bool closes = *at + 1 < end && (*at)[1] == '/';
    bool declares = *at + 1 < end && (*at)[1] == '?';
    *at += closes || declares ? 2 : 1;
    char name[32];
    size_t length = 0;
    while (*at < end && !strchr(" />?", **at) && length + 1 < sizeof name)
        name[length++] = *(*at)++;
    name[length] = '\0';
    if (length == 0 || !markup_attributes(at, end)) return false;
    if (closes) {
        if (*depth == 0 || strcmp(stack[*depth - 1], name) != 0) return false;
        *depth -= 1;
    } else if (!declares && **at != '/') {
        if (*depth >= 16) return false;
        strcpy(stack[(*depth)++], name);
    }
    if (**at == '/' || **at == '?') *at += 1;
    if (*at >= end || **at != '>') return false;
    *at += 1;
    return true;
}

/* Checks that a text consists of elements that are complete and nested. */
static inline bool markup_is_well_formed(const char *text, size_t length) {
    char stack[16][32];
    size_t depth = 0;
    const char *end = text + length;
    for (const char *at = text; at < end;) {
        bool fits =
            *at == '<' ? markup_tag(&at, end, stack, &depth) : markup_text_character(&at, end);
        if (!fits) return false;
    }
    return depth == 0;
}

/* Checks that a text is one complete picture. */
static inline bool markup_is_picture(const harpe_text *text) {
    return markup_is_well_formed(text->data, text->length) && strstr(text->data, "</svg>");
}

#endif
