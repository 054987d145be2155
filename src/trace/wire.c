/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the wire format of Protocol Buffers. The two old types of groups are refused. */
#include "trace/wire.h"

bool harpe_wire_varint(harpe_wire *wire, uint64_t *value) {
    uint64_t result = 0;
    const uint8_t *at = wire->next;
    for (unsigned shift = 0; shift < 64 && at < wire->end; shift += 7) {
        uint64_t bits = *at & 0x7f;
        if (shift == 63 && bits > 1) return false;
        result |= bits << shift;
        if ((*at++ & 0x80) != 0) continue;
        *value = result;
        wire->next = at;
        return true;
    }
    return false;
}

bool harpe_wire_bytes(harpe_wire *wire, harpe_wire *bytes) {
    harpe_wire rest = *wire;
    uint64_t length;
    if (!harpe_wire_varint(&rest, &length)) return false;
    if (length > (uint64_t)(rest.end - rest.next)) return false;
    *bytes = (harpe_wire){rest.next, rest.next + length};
    wire->next = bytes->end;
    return true;
}

/* Reads a number of `size` bytes, the lowest byte first. */
static bool read_fixed(harpe_wire *wire, size_t size, uint64_t *value) {
    if ((size_t)(wire->end - wire->next) < size) return false;
    *value = 0;
    for (size_t i = size; i-- > 0;)
        *value = *value << 8 | wire->next[i];
    wire->next += size;
    return true;
}

bool harpe_wire_field_next(harpe_wire *wire, harpe_wire_field *field) {
    harpe_wire rest = *wire;
    uint64_t key;
    if (!harpe_wire_varint(&rest, &key) || key >> 3 == 0 || key > UINT32_MAX) return false;
    *field = (harpe_wire_field){.number = (uint32_t)(key >> 3), .type = (harpe_wire_type)(key & 7)};
    bool is_valid = false;
    switch (key & 7) {
    case HARPE_WIRE_VARINT: is_valid = harpe_wire_varint(&rest, &field->value); break;
    case HARPE_WIRE_FIXED64: is_valid = read_fixed(&rest, 8, &field->value); break;
    case HARPE_WIRE_BYTES: is_valid = harpe_wire_bytes(&rest, &field->bytes); break;
    case HARPE_WIRE_FIXED32: is_valid = read_fixed(&rest, 4, &field->value); break;
    default: break;
    }
    if (is_valid) wire->next = rest.next;
    return is_valid;
}
