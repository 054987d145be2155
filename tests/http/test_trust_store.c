/* SPDX-License-Identifier: Apache-2.0 */
/* Which certificates of authorities a client uses on a system for which curl was not built. */
#include "http/client/trust_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void the_file_for_which_curl_was_built_comes_first(void **state) {
    (void)state;
    setenv("SSL_CERT_FILE", "/named.pem", 1);
    assert_null(harpe_other_trust_store("/proc/self/exe"));
    assert_null(harpe_other_trust_store(NULL));
}

static void a_named_file_replaces_one_that_is_missing(void **state) {
    (void)state;
    setenv("SSL_CERT_FILE", "/named.pem", 1);
    assert_string_equal(harpe_other_trust_store("/nonexistent/authorities.pem"), "/named.pem");
}

/* This machine has one of the known files, or none. */
static void without_a_name_a_known_file_is_used_if_it_can_be_read(void **state) {
    (void)state;
    for (int is_empty = 0; is_empty < 2; is_empty++) {
        if (is_empty)
            setenv("SSL_CERT_FILE", "", 1);
        else
            unsetenv("SSL_CERT_FILE");
        const char *found = harpe_other_trust_store("/nonexistent/authorities.pem");
        if (access("/etc/ssl/certs/ca-certificates.crt", R_OK) == 0)
            assert_string_equal(found, "/etc/ssl/certs/ca-certificates.crt");
        else if (found)
            assert_int_equal(access(found, R_OK), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_for_which_curl_was_built_comes_first),
        cmocka_unit_test(a_named_file_replaces_one_that_is_missing),
        cmocka_unit_test(without_a_name_a_known_file_is_used_if_it_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
