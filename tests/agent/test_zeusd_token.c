/* SPDX-License-Identifier: Apache-2.0 */
/* Tests tokens of zeusd: signatures that other programs have made, expiry to the second, and the
 * encoding. The tests of the routes try the other faults. */
#include "test.h"

#include "agent/issued_token.h"
#include "agent/zeusd_internal.h"

/* The key of the example in RFC 7515, A.1 (HMAC-SHA256). Its claims are not those of zeusd. */
static const unsigned char rfc_key[] = {
    3,   35,  53, 75,  43,  15, 165, 188, 131, 126, 6,   101, 119, 123, 166, 143,
    90,  179, 40, 230, 240, 84, 201, 40,  169, 15,  132, 178, 210, 80,  46,  191,
    211, 251, 90, 146, 210, 6,  71,  239, 150, 138, 180, 195, 119, 98,  61,  34,
    61,  46,  33, 114, 5,   46, 79,  8,   192, 205, 154, 245, 103, 208, 128, 163};
static const char rfc_token[] =
    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9."
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
    ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

static harpe_zeusd_tokens *tokens; /* of the latest key */
static harpe_zeusd_claims claims;  /* of the latest token that was taken */
static harpe_error error;

static void use_key(const void *key, size_t length) {
    harpe_zeusd_tokens_free(tokens);
    if (harpe_zeusd_tokens_new(key, length, &tokens, &error) != HARPE_OK)
        fail_msg("%s", error.message);
}

static int tear_down(void **state __attribute__((unused))) {
    harpe_zeusd_tokens_free(tokens);
    tokens = NULL;
    return 0;
}

#define TOKEN_TEST(name) TEST_WITH(name, NULL, tear_down)

static void assert_check(const char *token, int64_t now_s, harpe_status wanted) {
    assert_int_equal(harpe_zeusd_token_check(tokens, token, now_s, &claims, &error), wanted);
}

/* The signature is valid, so the first fault is the missing name of a user. */
TOKEN_TEST(the_example_of_the_rfc_has_a_valid_signature) {
    use_key(rfc_key, sizeof rfc_key);
    assert_check(rfc_token, 0, HARPE_PERMISSION_DENIED);
    assert_non_null(strstr(error.message, "missing field `sub`"));
}

/* HMAC hashes a key that is longer than a block of 64 bytes. Python's hmac has signed the token. */
TOKEN_TEST(a_long_key_is_taken) {
    static const char token[] = "eyJhbGciOiJIUzI1NiJ9."
                                "eyJzdWIiOiJ4Iiwic2NvcGVzIjpbImdwdS1yZWFkIl19."
                                "aaaXnPfROqY0GansVv9TdRkVBzEEWRIm_gn1I3tsZRw";
    unsigned char key[131];
    memset(key, 0xaa, sizeof key);
    use_key(key, sizeof key);
    assert_check(token, 0, HARPE_OK);
    use_key(key, sizeof key - 1);
    assert_check(token, 0, HARPE_PERMISSION_DENIED);
}

/* A change of any character of the example makes the signature or the form invalid. */
TOKEN_TEST(every_changed_character_is_noticed) {
    use_key(rfc_key, sizeof rfc_key);
    for (size_t i = 0; i < strlen(rfc_token); i++) {
        char changed[sizeof rfc_token];
        memcpy(changed, rfc_token, sizeof changed);
        changed[i] = changed[i] == 'A' ? 'B' : 'A';
        assert_check(changed, 0, HARPE_PERMISSION_DENIED);
        assert_null(strstr(error.message, "missing field `sub`"));
    }
}

TOKEN_TEST(a_token_of_zeusd_is_taken) {
    use_key(issued_key, strlen(issued_key));
    assert_check(issued_for_ever, 1, HARPE_OK);
    assert_string_equal(claims.subject, "somebody");
    assert_int_equal(claims.scope_count, 2);
    assert_true(harpe_zeusd_claims_grant(&claims, HARPE_ZEUSD_GPU_CONTROL));
    assert_true(harpe_zeusd_claims_grant(&claims, HARPE_ZEUSD_CPU_READ));
    assert_false(harpe_zeusd_claims_grant(&claims, HARPE_ZEUSD_GPU_READ));
    assert_false(claims.expires);
}

TOKEN_TEST(a_token_expires_to_the_second) {
    use_key(issued_key, strlen(issued_key));
    assert_check(issued_with_expiry, 1, HARPE_OK);
    assert_true(claims.expires);
    int64_t last_s = (int64_t)claims.expiry_s + HARPE_ZEUSD_LEEWAY_S;
    assert_check(issued_with_expiry, last_s, HARPE_OK);
    harpe_zeusd_claims unchanged = claims;
    assert_check(issued_with_expiry, last_s + 1, HARPE_PERMISSION_DENIED);
    assert_string_equal(error.message, "Token has expired.");
    assert_memory_equal(&claims, &unchanged, sizeof claims);
}

TEST(an_empty_key_is_refused) {
    assert_int_equal(harpe_zeusd_tokens_new("", 0, &tokens, &error), HARPE_INVALID_ARGUMENT);
    assert_null(tokens);
}

TEST(only_exact_encodings_are_decoded) {
    static const struct {
        const char *text, *bytes;
        ptrdiff_t length;
    } cases[] = {{"", "", 0},        {"Zg", "f", 1},        {"Zm8", "fo", 2},
                 {"Zm9v", "foo", 3}, {"Zm9vYg", "foob", 4}, {"-_8", "\xfb\xff", 2},
                 {"Z", "", -1},      {"Zh", "", -1},        {"Zm9", "", -1},
                 {"Zg==", "", -1},   {"Zm 8", "", -1},      {"+/8", "", -1},
                 {"Zm9vY", "", -1},  {"Zm8\n", "", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[32];
        ptrdiff_t length = harpe_zeusd_base64url(cases[i].text, strlen(cases[i].text), bytes);
        if (length != cases[i].length) fail_msg("'%s' gives %td", cases[i].text, length);
        if (length > 0) assert_memory_equal(bytes, cases[i].bytes, (size_t)length);
    }
}
