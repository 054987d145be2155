/* SPDX-License-Identifier: Apache-2.0 */
/* Texts from outside on their way to a terminal, a log or a picture. */
#ifndef HARPE_BASE_CLEAN_H
#define HARPE_BASE_CLEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character that `text` (not empty) begins with, and its length in bytes; -1 and 1 where that
 * is no valid UTF-8. */
int32_t harpe_character(const char *text, size_t *length);
/* Whether it may be shown: no control character (C0, DEL, C1: terminals obey them), none that turns
 * the direction of writing, separates lines or is hidden, and not -1. */
bool harpe_character_is_safe(int32_t code);
/* Replaces every character that is not safe, and every byte that is not valid UTF-8, by '?'. */
void harpe_clean_in_place(char *text);

#endif
