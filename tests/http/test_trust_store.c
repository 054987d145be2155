/* SPDX-License-Identifier: Apache-2.0 */
/* Which certificates of authorities a client uses on a system for which curl was not built. */
#include "test.h"

#include "http/client/connection.h"

#include <unistd.h>

TEST(the_file_for_which_curl_was_built_comes_before_those_of_other_systems) {
    assert_null(harpe_other_trust_store("/proc/self/exe"));
    assert_null(harpe_other_trust_store(NULL));
}

TEST(the_user_names_a_file_in_the_environment) {
    const char *variable = NULL;
    unsetenv("HARPE_CA_FILE");
    setenv("SSL_CERT_FILE", "", 1);
    assert_null(harpe_named_trust_store(true, &variable));
    setenv("SSL_CERT_FILE", "/all.pem", 1);
    assert_string_equal(harpe_named_trust_store(true, &variable), "/all.pem");
    assert_string_equal(variable, "SSL_CERT_FILE");
    setenv("HARPE_CA_FILE", "/harpe.pem", 1);
    assert_string_equal(harpe_named_trust_store(true, &variable), "/harpe.pem");
    assert_string_equal(variable, "HARPE_CA_FILE");
    assert_string_equal(harpe_named_trust_store(false, &variable), "/all.pem");
}

/* This machine has one of the known files, or none. */
TEST(without_a_name_a_known_file_is_used_if_it_can_be_read) {
    const char *found = harpe_other_trust_store("/nonexistent/authorities.pem");
    if (access("/etc/ssl/certs/ca-certificates.crt", R_OK) == 0)
        assert_string_equal(found, "/etc/ssl/certs/ca-certificates.crt");
    else if (found)
        assert_int_equal(access(found, R_OK), 0);
}
