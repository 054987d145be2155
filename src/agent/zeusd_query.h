/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the query of a request as zeusd does: the fields of a route, their types, and lists of
 * device numbers. Error messages have the same text as zeusd's. This code does not use HTTP
 * connections or devices. */
#ifndef HARPE_AGENT_ZEUSD_QUERY_H
#define HARPE_AGENT_ZEUSD_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

typedef enum harpe_zeusd_field_type {
    HARPE_ZEUSD_TEXT,   /* any text */
    HARPE_ZEUSD_SWITCH, /* "true" or "false" */
    HARPE_ZEUSD_NUMBER, /* 0 .. 2^32 - 1 */
} harpe_zeusd_field_type;

enum { HARPE_ZEUSD_FIELDS_MAX = 4 };

/* A field that a route accepts. An array of fields ends with a NULL name. */
typedef struct harpe_zeusd_field {
    const char *name;
    harpe_zeusd_field_type type;
    bool is_optional;
} harpe_zeusd_field;

typedef struct harpe_zeusd_value {
    bool is_given;
    bool is_on;      /* of a switch */
    uint32_t number; /* of a number */
    char *text;      /* the decoded text, UTF-8 without NUL */
    size_t text_length;
} harpe_zeusd_value;

/* Reads `query` (NULL: there is none) into one value for each field. Fails with
 * HARPE_INVALID_ARGUMENT if a field is unknown, repeated or missing, or if its value is not valid.
 * `*why` is then the text of the answer, which the caller frees. Free the values with
 * harpe_zeusd_values_free, also after a failure. */
harpe_status harpe_zeusd_query_read(const char *query, const harpe_zeusd_field *fields,
                                    harpe_zeusd_value values[HARPE_ZEUSD_FIELDS_MAX], char **why);
void harpe_zeusd_values_free(harpe_zeusd_value values[HARPE_ZEUSD_FIELDS_MAX]);

/* Reads a list of numbers that commas separate. White space around a number is allowed. The result
 * is in ascending order without repetition; the caller frees `*ids` with free(). On failure `*why`
 * is the message, which the caller frees. `device` is "GPU" or "CPU". */
harpe_status harpe_zeusd_ids_read(const char *text, size_t length, const char *device,
                                  uint64_t **ids, size_t *count, char **why);

#endif
