/* SPDX-License-Identifier: Apache-2.0 */
/* The reason in an answer of a harpe server: {"detail": "a line"}, or a list of wrong fields. */
#ifndef HARPE_HTTP_CLIENT_DETAIL_H
#define HARPE_HTTP_CLIENT_DETAIL_H

#include <stdbool.h>
#include <stddef.h>

#include "http/client/connection.h"

/* Writes the reason to `text`. Returns false if the answer does not have the form of a harpe
 * server's answers: a proxy or another program has answered. */
bool harpe_answer_detail(const harpe_answer *answer, char *text, size_t size);

#endif
