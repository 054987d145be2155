/* SPDX-License-Identifier: Apache-2.0 */
/* Bearer tokens as people keep them: in a file or a variable, often with white space around them
 * that HTTP would not carry. Server and clients read them here, so that they agree. */
#ifndef HARPE_BASE_TOKEN_H
#define HARPE_BASE_TOKEN_H

#include <stddef.h>

#include <harpe/status.h>

/* The token on the first line of `text` that is not blank, without the white space (and the
 * byte-order mark) around it. Refuses anything but visible ASCII characters in it. `what` begins
 * the message ("--token-file FILE"); the token is in no message. `*token` is to be freed with
 * free(). */
harpe_status harpe_token_parse(const char *text, size_t length, const char *what, char **token,
                               harpe_error *error);

/* The same of a file, of at most 64 KiB; `flag` begins the message ("--token-file"). */
harpe_status harpe_token_read(const char *path, const char *flag, char **token, harpe_error *error);

/* The same of a text from a caller or the environment: NULL, and a text that is blank, give NULL.
 */
harpe_status harpe_token_take(const char *text, const char *what, char **token, harpe_error *error);

#endif
