/* SPDX-License-Identifier: Apache-2.0 */
/* Explains what is wrong with a certificate and its key. */
#ifndef HARPE_HTTP_HTTP_TLS_FAULTS_H
#define HARPE_HTTP_HTTP_TLS_FAULTS_H

#include <time.h>

#include <harpe/status.h>

/* Check the two texts before GnuTLS gets them, and the dates of a certificate (-1: unknown). The
 * error explains what is wrong with them. */
harpe_status harpe_http_tls_check_texts(const char *cert_pem, const char *key_pem,
                                        harpe_error *error);
harpe_status harpe_http_tls_check_dates(time_t valid_from, time_t valid_until, harpe_error *error);

#endif
