/* SPDX-License-Identifier: Apache-2.0 */
/* Writing compact JSON piece by piece. Each piece may begin with literal text such as
 * ",\"rank\":". Private to src/pfo. */
#ifndef HARPE_PFO_WRITING_H
#define HARPE_PFO_WRITING_H

#include <harpe/status.h>

#include "base/text.h"

void harpe_write_raw(harpe_text *text, const char *literal);
void harpe_write_int_member(harpe_text *text, const char *literal, int value);
/* A text in quotes, escaped; bytes that are no UTF-8 become U+FFFD. NULL: null. */
void harpe_write_text_member(harpe_text *text, const char *literal, const char *value);

/* Hands the text over, or frees it when memory ran out on the way. */
harpe_status harpe_write_end(harpe_text *text, char **json, harpe_error *error);

#endif
