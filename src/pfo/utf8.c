/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether a text is UTF-8. Every text from outside passes this check before it is read. */
#include "pfo/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Returns the number of bytes of the first character of `text`, 1 to 4. Returns 0 if the character
 * is invalid. Overlong forms, surrogates, and code points above U+10FFFF are invalid too. */
static size_t character_length(const unsigned char *text, size_t length) {
    unsigned char first = text[0];
    if (first < 0x80) return 1;
    size_t needed = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || length < needed) return 0;
    for (size_t i = 1; i < needed; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    bool is_overlong = (first == 0xE0 && text[1] < 0xA0) || (first == 0xF0 && text[1] < 0x90);
    bool is_surrogate = first == 0xED && text[1] > 0x9F;
    bool is_too_large = first == 0xF4 && text[1] > 0x8F;
    return is_overlong || is_surrogate || is_too_large ? 0 : needed;
}

size_t harpe_utf8_span(const char *text, size_t length) {
    size_t at = 0;
    while (at < length) {
        uint64_t block;
        while (length - at >= sizeof block) {
            memcpy(&block, text + at, sizeof block);
            if (block & 0x8080808080808080U) break;
            at += sizeof block;
        }
        if (at == length) break;
        size_t character = character_length((const unsigned char *)text + at, length - at);
        if (character == 0) break;
        at += character;
    }
    return at;
}
