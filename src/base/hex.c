/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hex.h"

void harpe_hex_put(char *text, const void *bytes, size_t length) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    for (size_t i = 0; i < length; i++) {
        text[2 * i] = digits[from[i] >> 4];
        text[2 * i + 1] = digits[from[i] & 15];
    }
    text[2 * length] = '\0';
}

static int value_of(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

bool harpe_hex_take(const char *text, void *bytes, size_t length) {
    unsigned char *to = bytes;
    for (size_t i = 0; i < length; i++) {
        int high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        to[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}
