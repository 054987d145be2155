/* SPDX-License-Identifier: Apache-2.0 */
/* Writes compact JSON piece by piece. Each piece may begin with literal text such as ",\"rank\":".
 * Private to src/pfo. */
#ifndef HARPE_PFO_WRITING_H
#define HARPE_PFO_WRITING_H

#include <harpe/status.h>

#include "base/text.h"

void harpe_write_raw(harpe_text *text, const char *literal);
void harpe_write_int_member(harpe_text *text, const char *literal, int value);
/* Writes a text in quotes, escaped. Bytes that are not UTF-8 become U+FFFD. NULL: null. */
void harpe_write_text_member(harpe_text *text, const char *literal, const char *value);

/* Passes the text to the caller, or frees it if memory ran out. */
harpe_status harpe_write_end(harpe_text *text, char **json, harpe_error *error);

#endif
