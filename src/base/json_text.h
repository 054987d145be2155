/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a JSON text. Answers are written directly as text, because a tree of JSON values would
 * take more time and memory. `name` is all that stands before the value, such as ",\"power\":". */
#ifndef HARPE_BASE_JSON_TEXT_H
#define HARPE_BASE_JSON_TEXT_H

#include "base/text.h"

/* Appends `bytes` as they are. */
void harpe_json_raw(harpe_text *text, const char *bytes);
/* Appends a number, or null if the number is not finite. */
void harpe_json_number(harpe_text *text, const char *name, double value);
/* Appends a string, or null if `value` is NULL or memory runs out. Bytes that are not UTF-8 are
 * replaced. */
void harpe_json_string(harpe_text *text, const char *name, const char *value);

#endif
