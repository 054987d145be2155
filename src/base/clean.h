/* SPDX-License-Identifier: Apache-2.0 */
/* Makes texts from outside safe for terminals, logs and pictures. */
#ifndef HARPE_BASE_CLEAN_H
#define HARPE_BASE_CLEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first character of `text` (not empty), and its length in bytes; -1 and 1 if it is not valid
 * UTF-8. */
int32_t harpe_character(const char *text, size_t *length);
/* True if the character may be shown. False for -1, for control characters (C0, DEL, C1: terminals
 * obey them), and for characters that change the direction of text, separate lines or are
 * invisible. */
bool harpe_character_is_safe(int32_t code);
/* How many bytes of `text` fit into `limit` bytes without cutting a character in two. */
size_t harpe_cut_length(const char *text, size_t limit);
/* Replaces every character that is not safe, and every byte that is not valid UTF-8, by '?'. */
void harpe_clean_in_place(char *text);

#endif
