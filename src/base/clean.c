/* SPDX-License-Identifier: Apache-2.0 */
/* Reads UTF-8 character by character and decides which characters may be shown. */
#include "base/clean.h"

#include <string.h>

/* Returns the length in bytes of a UTF-8 sequence that begins with the byte `first`. Returns 0 if
 * no sequence begins with this byte. */
static size_t sequence_length(unsigned char first) {
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
}

int32_t harpe_character(const char *text, size_t *length) {
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    size_t count = sequence_length(bytes[0]);
    *length = 1;
    if (count <= 1) return count == 1 ? bytes[0] : -1;
    uint32_t code = bytes[0] & (0x7fu >> count);
    for (size_t i = 1; i < count; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return -1;
        code = code << 6 | (bytes[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    if (code < smallest[count] || code > 0x10ffff || is_surrogate || (code & 0xfffe) == 0xfffe)
        return -1;
    *length = count;
    return (int32_t)code;
}

bool harpe_character_is_safe(int32_t code) {
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false; /* C0, DEL, C1 */
    if (code < 0x61c) return true;
    bool is_separator = code == 0x2028 || code == 0x2029;
    bool is_direction = code == 0x61c || code == 0x200e || code == 0x200f ||
                        (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    bool is_hidden = code == 0xfeff || (code >= 0xfff9 && code <= 0xfffb) ||
                     (code >= 0xe0000 && code <= 0xe007f);
    return !is_separator && !is_direction && !is_hidden;
}

size_t harpe_cut_length(const char *text, size_t limit) {
    size_t length = strnlen(text, limit + 1);
    if (length <= limit) return length;
    size_t start = limit;
    while (start > 0 && limit - start < 3 && ((unsigned char)text[start] & 0xc0) == 0x80)
        start--;
    size_t whole = sequence_length((unsigned char)text[start]);
    return whole > 1 && start + whole > limit ? start : limit;
}

void harpe_clean_in_place(char *text) {
    while (*text >= 0x20 && *text < 0x7f) /* usually all characters */
        text++;
    char *to = text;
    for (const char *from = text; *from;) {
        size_t length;
        bool is_safe = harpe_character_is_safe(harpe_character(from, &length));
        if (is_safe)
            memmove(to, from, length);
        else
            *to = '?';
        to += is_safe ? length : 1;
        from += length;
    }
    *to = '\0';
}
