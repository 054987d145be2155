/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as FIPS 180-4 defines it, sections 4.1.2, 4.2.2, 5 and 6.2. The names of the small
 * functions are those of the standard. It is a plain loop over 32-bit words: Harpe hashes only a
 * few bytes at a time. */
#include "base/sha256.h"

#include <string.h>

enum { BLOCK_BYTES = 64, LENGTH_AT = 56 };

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t word_at(const unsigned char *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void put_word(unsigned char *bytes, uint32_t word) {
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(word >> (24 - 8 * i));
}

static void take_block(uint32_t state[8], const unsigned char *block) {
    uint32_t w[64], s[8];
    for (int t = 0; t < 16; t++)
        w[t] = word_at(block + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t sigma0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t sigma1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + sigma0 + w[t - 7] + sigma1;
    }
    memcpy(s, state, sizeof s);
    for (int t = 0; t < 64; t++) {
        uint32_t sum1 = rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25);
        uint32_t ch = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t sum0 = rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22);
        uint32_t maj = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t first = s[7] + sum1 + ch + K[t] + w[t];
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += first;
        s[0] = first + sum0 + maj;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void harpe_sha256_begin(harpe_sha256 *hash) {
    *hash = (harpe_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                     0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void harpe_sha256_append(harpe_sha256 *hash, const void *bytes, size_t length) {
    const unsigned char *from = bytes;
    while (length > 0) {
        size_t used = (size_t)(hash->length % BLOCK_BYTES);
        size_t taken = BLOCK_BYTES - used < length ? BLOCK_BYTES - used : length;
        memcpy(hash->block + used, from, taken);
        hash->length += taken;
        from += taken;
        length -= taken;
        if (used + taken == BLOCK_BYTES) take_block(hash->state, hash->block);
    }
}

void harpe_sha256_end(harpe_sha256 *hash, unsigned char out[HARPE_SHA256_BYTES]) {
    static const unsigned char padding[BLOCK_BYTES] = {0x80};
    unsigned char bits[8];
    put_word(bits, (uint32_t)(hash->length >> 29));
    put_word(bits + 4, (uint32_t)(hash->length << 3));
    size_t used = (size_t)(hash->length % BLOCK_BYTES);
    harpe_sha256_append(hash, padding,
                        used < LENGTH_AT ? LENGTH_AT - used : BLOCK_BYTES + LENGTH_AT - used);
    harpe_sha256_append(hash, bits, sizeof bits);
    for (int i = 0; i < 8; i++)
        put_word(out + 4 * i, hash->state[i]);
    explicit_bzero(hash, sizeof *hash);
}
