/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether a text is UTF-8. */
#ifndef HARPE_PFO_UTF8_H
#define HARPE_PFO_UTF8_H

#include <stddef.h>

/* Returns how many bytes from the start are valid UTF-8. */
size_t harpe_utf8_span(const char *text, size_t length);

#endif
