/* SPDX-License-Identifier: Apache-2.0 */
/* Appends JSON to a text. The server writes its answers in this way, because a tree of JSON values
 * would take more time and memory. `name` is the text before the value, for example ",\"power\":".
 */
#ifndef HARPE_BASE_JSON_TEXT_H
#define HARPE_BASE_JSON_TEXT_H

#include "base/text.h"

/* Appends `bytes` as they are. */
void harpe_json_raw(harpe_text *text, const char *bytes);
/* Appends `name`, and then `value`, or null if `value` is not finite. */
void harpe_json_number(harpe_text *text, const char *name, double value);
/* Appends `name`, and then `value` as a JSON string, or null if `value` is NULL or memory runs out.
 * Replaces bytes that are not UTF-8. */
void harpe_json_string(harpe_text *text, const char *name, const char *value);

#endif
