/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the wire format of Protocol Buffers (https://protobuf.dev/programming-guides/encoding/): a
 * message is a sequence of fields, each with a number and a value. It knows no message types. */
#ifndef HARPE_TRACE_WIRE_H
#define HARPE_TRACE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum harpe_wire_type {
    HARPE_WIRE_VARINT = 0,
    HARPE_WIRE_FIXED64 = 1,
    HARPE_WIRE_BYTES = 2,
    HARPE_WIRE_FIXED32 = 5,
} harpe_wire_type;

/* The rest of a message. */
typedef struct harpe_wire {
    const uint8_t *next, *end;
} harpe_wire;

typedef struct harpe_wire_field {
    uint32_t number;
    harpe_wire_type type;
    uint64_t value;   /* of a number */
    harpe_wire bytes; /* of a text or a message */
} harpe_wire_field;

/* Read the next number, piece of bytes with its length before it, or field. They return false at
 * the end of the message and for anything that is not valid; then `wire->next` is unchanged. */
bool harpe_wire_varint(harpe_wire *wire, uint64_t *value);
bool harpe_wire_bytes(harpe_wire *wire, harpe_wire *bytes);
bool harpe_wire_field_next(harpe_wire *wire, harpe_wire_field *field);

#endif
