/* SPDX-License-Identifier: Apache-2.0 */
/* Makes texts from outside safe for terminals, logs and pictures. */
#ifndef HARPE_BASE_CLEAN_H
#define HARPE_BASE_CLEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the first character of `text`, which must not be empty. `*length` receives its length in
 * bytes. Returns -1 and the length 1 if the text does not begin with valid UTF-8. */
int32_t harpe_character(const char *text, size_t *length);
/* Returns true if the character may be shown. Returns false for -1, for control characters (C0,
 * DEL, C1), which terminals obey, and for characters that change the direction of text, separate
 * lines or are invisible. */
bool harpe_character_is_safe(int32_t code);
/* Returns how many bytes of `text` fit into `limit` bytes without cutting a character in two. */
size_t harpe_cut_length(const char *text, size_t limit);
/* Replaces every character that is not safe, and every byte that is not valid UTF-8, by '?'. */
void harpe_clean_in_place(char *text);

#endif
