/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4). Use it for data of which one needs a fingerprint. It is too fast for
 * passwords that people choose. */
#ifndef HARPE_BASE_SHA256_H
#define HARPE_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { HARPE_SHA256_BYTES = 32 };

typedef struct harpe_sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    unsigned char block[64];
} harpe_sha256;

/* Begins a hash. Then append bytes any number of times, and end once. */
void harpe_sha256_begin(harpe_sha256 *hash);
void harpe_sha256_append(harpe_sha256 *hash, const void *bytes, size_t length);
/* Writes the hash, and overwrites the working state. */
void harpe_sha256_end(harpe_sha256 *hash, unsigned char out[HARPE_SHA256_BYTES]);

#endif
