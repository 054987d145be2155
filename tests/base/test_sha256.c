/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256: the examples of the standard, every length around the block size in any pieces, and a
 * long text. */
#include "test.h"

#include "base/sha256.h"

static void check(const char *bytes, size_t length, size_t piece, const char *expected) {
    harpe_sha256 hash;
    unsigned char out[HARPE_SHA256_BYTES];
    char hex[2 * HARPE_SHA256_BYTES + 1];
    harpe_sha256_begin(&hash);
    for (size_t at = 0; at < length; at += piece)
        harpe_sha256_append(&hash, bytes + at, length - at < piece ? length - at : piece);
    harpe_sha256_end(&hash, out);
    for (size_t i = 0; i < sizeof out; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", out[i]);
    assert_string_equal(hex, expected);
}

/* The examples of FIPS 180-4 (csrc.nist.gov, "Examples with intermediate values"), and the empty
 * text. */
TEST(the_examples_of_the_standard) {
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    check("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    for (size_t piece = 1; piece <= 64; piece++) {
        check("abc", 3, piece, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check(two_blocks, strlen(two_blocks), piece,
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
}

TEST(a_million_letters) {
    static char text[1000000];
    memset(text, 'a', sizeof text);
    for (size_t piece = 999983; piece > 50; piece /= 7)
        check(text, sizeof text, piece,
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* The expected value is the hash of the hashes of 0, 1, ... 200 zero bytes, computed with
 * hashlib of Python. */
TEST(every_length_around_a_block) {
    static const char zeros[200];
    harpe_sha256 all;
    unsigned char one[HARPE_SHA256_BYTES], out[HARPE_SHA256_BYTES];
    char hex[2 * HARPE_SHA256_BYTES + 1];
    harpe_sha256_begin(&all);
    for (size_t length = 0; length <= sizeof zeros; length++) {
        harpe_sha256 hash;
        harpe_sha256_begin(&hash);
        harpe_sha256_append(&hash, zeros, length);
        harpe_sha256_end(&hash, one);
        harpe_sha256_append(&all, one, sizeof one);
    }
    harpe_sha256_end(&all, out);
    for (size_t i = 0; i < sizeof out; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", out[i]);
    assert_string_equal(hex, "b9c4ebeeb7d1825824131cf7b7d28469cca4f9166473bf51bb519365ae27eccd");
}

int main(void) { return run_listed_tests(); }
