/* SPDX-License-Identifier: Apache-2.0 */
/* Writes numbers with the fewest digits, in any locale. */
#ifndef HARPE_BASE_NUMBER_PRINT_H
#define HARPE_BASE_NUMBER_PRINT_H

#include <stddef.h>

/* Writes a finite number like harpe_text_number, NUL-terminated. Returns its length, or 0 if the
 * C library has no memory for its C locale. */
#define HARPE_NUMBER_SIZE 40
size_t harpe_print_number(char into[HARPE_NUMBER_SIZE], double value);

#endif
