/* SPDX-License-Identifier: Apache-2.0 */
/* Reads bearer tokens from files and environment variables. These often have white space around the
 * token, which HTTP does not transmit. The server and the clients use this code, so they agree on
 * the token. */
#ifndef HARPE_BASE_TOKEN_H
#define HARPE_BASE_TOKEN_H

#include <stddef.h>

#include <harpe/status.h>

/* Reads the token from the first line of `text` that is not blank, without the white space (and the
 * byte-order mark) around it. Refuses characters other than visible ASCII. An error message begins
 * with `what` ("--token-file FILE") and does not contain the token. The caller frees `*token`. */
harpe_status harpe_token_parse(const char *text, size_t length, const char *what, char **token,
                               harpe_error *error);

/* Reads the token from a file of at most 64 KiB. An error message begins with `flag`
 * ("--token-file"). */
harpe_status harpe_token_read(const char *path, const char *flag, char **token, harpe_error *error);

/* Reads the token from a text that a caller gives or that is in the environment. `*token` is NULL
 * if the text is NULL or blank. */
harpe_status harpe_token_take(const char *text, const char *what, char **token, harpe_error *error);

#endif
