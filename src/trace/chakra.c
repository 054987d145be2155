/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Chakra traces as Protocol Buffers. The numbers of the fields are those of et_def.proto
 * (github.com/mlcommons/chakra, schema/protobuf). Fields that this file does not know are skipped.
 */
#include "trace/chakra.h"

#include <string.h>

#include "base/error.h"
#include "trace/chakra_node.h"
#include "trace/wire.h"

enum { /* of Node */
       NODE_ID = 1,
       NODE_NAME = 2,
       NODE_TYPE = 3,
       NODE_CTRL_DEPS = 4,
       NODE_DATA_DEPS = 5,
       NODE_START_MICROS = 6,
       NODE_DURATION_MICROS = 7,
       NODE_ATTR = 10,
};

enum { /* of AttributeProto */
       ATTRIBUTE_NAME = 1,
       ATTRIBUTE_INT32 = 7,
       ATTRIBUTE_INT64 = 9,
       ATTRIBUTE_UINT32 = 11,
       ATTRIBUTE_UINT64 = 13,
       ATTRIBUTE_SINT32 = 15,
       ATTRIBUTE_SINT64 = 17,
       ATTRIBUTE_FIXED32 = 19,
       ATTRIBUTE_FIXED64 = 21,
       ATTRIBUTE_SFIXED32 = 23,
       ATTRIBUTE_SFIXED64 = 25,
       ATTRIBUTE_BOOL = 27,
       ATTRIBUTE_STRING = 29,
};

typedef struct reader {
    harpe_trace *trace;
    size_t message; /* number of the message in the file */
    harpe_error *error;
} reader;

static harpe_status fail_message(const reader *r, const char *what) {
    return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s: message %zu (the first is 0): %s",
                      r->trace->file, r->message, what);
}

static char *copy_text(const reader *r, harpe_wire bytes) {
    return harpe_arena_strdup(&r->trace->arena, (const char *)bytes.next,
                              (size_t)(bytes.end - bytes.next));
}

/* ---- Attributes ------------------------------------------------------------------------------ */

/* Reads the value of an attribute that is a whole number. */
static bool integer_value(const harpe_wire_field *field, int64_t *value) {
    switch (field->number) {
    case ATTRIBUTE_INT32:
    case ATTRIBUTE_INT64:
    case ATTRIBUTE_UINT32:
    case ATTRIBUTE_UINT64:
    case ATTRIBUTE_FIXED32:
    case ATTRIBUTE_FIXED64:
    case ATTRIBUTE_SFIXED64:
    case ATTRIBUTE_BOOL: *value = (int64_t)field->value; return true;
    case ATTRIBUTE_SFIXED32: *value = (int32_t)(uint32_t)field->value; return true;
    case ATTRIBUTE_SINT32:
    case ATTRIBUTE_SINT64: /* "zigzag": 0, -1, 1, -2 ... */
        *value = (int64_t)(field->value >> 1) ^ -(int64_t)(field->value & 1);
        return true;
    default: return false;
    }
}

static harpe_status read_attribute(const reader *r, harpe_wire bytes, harpe_chakra_node *node) {
    harpe_wire_field field;
    const char *name = "";
    harpe_wire text = {0};
    int64_t value = 0;
    bool has_value = false;
    while (harpe_wire_field_next(&bytes, &field)) {
        bool is_bytes = field.type == HARPE_WIRE_BYTES;
        if (field.number == ATTRIBUTE_NAME && is_bytes) name = copy_text(r, field.bytes);
        if (!name) return harpe_fail_memory(r->error);
        if (field.number == ATTRIBUTE_STRING && is_bytes) text = field.bytes;
        if (!is_bytes && integer_value(&field, &value)) has_value = true;
    }
    if (bytes.next != bytes.end) return fail_message(r, "an attribute is damaged");
    if (has_value) harpe_chakra_set_integer(node, name, value);
    if (!text.next || strcmp(name, HARPE_CHAKRA_GROUP) != 0) return HARPE_OK;
    node->group = copy_text(r, text);
    return node->group ? HARPE_OK : harpe_fail_memory(r->error);
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

/* Reads dependencies: a list of numbers in one field (packed), or one number. With `waits` NULL it
 * only counts them. */
static bool read_waits(const harpe_wire_field *field, uint64_t *waits, size_t *count) {
    harpe_wire bytes = field->bytes;
    uint64_t value = field->value;
    if (field->type == HARPE_WIRE_VARINT) {
        if (waits) waits[*count] = value;
        (*count)++;
        return true;
    }
    if (field->type != HARPE_WIRE_BYTES) return false;
    while (harpe_wire_varint(&bytes, &value)) {
        if (waits) waits[*count] = value;
        (*count)++;
    }
    return bytes.next == bytes.end;
}

/* Reads or counts the dependencies in the fields with this number. */
static bool read_waits_of(harpe_wire bytes, uint32_t number, uint64_t *waits, size_t *count) {
    harpe_wire_field field;
    while (harpe_wire_field_next(&bytes, &field))
        if (field.number == number && !read_waits(&field, waits, count)) return false;
    return true;
}

/* Puts the control dependencies first. */
static harpe_status read_all_waits(const reader *r, harpe_wire bytes, harpe_chakra_node *node) {
    for (int pass = 0; pass < 2; pass++) {
        size_t count = 0;
        bool is_sound = read_waits_of(bytes, NODE_CTRL_DEPS, node->waits, &count);
        node->parent_count = count;
        is_sound = is_sound && read_waits_of(bytes, NODE_DATA_DEPS, node->waits, &count);
        if (!is_sound) return fail_message(r, "the dependencies of the node are damaged");
        node->wait_count = count;
        if (pass == 1 || count == 0) break;
        node->waits = harpe_arena_alloc(&r->trace->arena, count, sizeof *node->waits);
        if (!node->waits) return harpe_fail_memory(r->error);
    }
    return HARPE_OK;
}

static harpe_status read_node(const reader *r, harpe_wire bytes) {
    harpe_chakra_node node = HARPE_CHAKRA_NODE;
    harpe_wire_field field;
    harpe_wire rest = bytes;
    harpe_status status = HARPE_OK;
    while (status == HARPE_OK && harpe_wire_field_next(&rest, &field)) {
        bool is_number = field.type == HARPE_WIRE_VARINT, is_bytes = field.type == HARPE_WIRE_BYTES;
        if (field.number == NODE_ID && is_number) node.id = field.value;
        if (field.number == NODE_TYPE && is_number) node.type = (int32_t)(uint32_t)field.value;
        if (field.number == NODE_START_MICROS && is_number) node.start_us = field.value;
        if (field.number == NODE_DURATION_MICROS && is_number) node.time_us = field.value;
        if (field.number == NODE_NAME && is_bytes) {
            node.name = copy_text(r, field.bytes);
            if (!node.name) status = harpe_fail_memory(r->error);
        }
        if (field.number == NODE_ATTR && is_bytes) status = read_attribute(r, field.bytes, &node);
    }
    if (status == HARPE_OK && rest.next != rest.end)
        status = fail_message(r, "it is not a Chakra node");
    if (status == HARPE_OK) status = read_all_waits(r, bytes, &node);
    return status == HARPE_OK ? harpe_chakra_add_node(r->trace, &node, r->error) : status;
}

/* Checks that the message is a GlobalMetadata: a version (1) and attributes (2). */
static bool is_metadata(harpe_wire bytes) {
    harpe_wire_field field;
    while (harpe_wire_field_next(&bytes, &field))
        if (field.number > 2 || field.type != HARPE_WIRE_BYTES) return false;
    return bytes.next == bytes.end;
}

harpe_status harpe_trace_read_chakra(const void *bytes, size_t length, harpe_trace *trace,
                                     harpe_error *error) {
    harpe_wire file = {bytes, (const uint8_t *)bytes + length}, message;
    reader r = {.trace = trace, .error = error};
    trace->has_dependencies = true;
    trace->step = -1;
    if (!harpe_wire_bytes(&file, &message) || !is_metadata(message)) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: neither JSON nor a Chakra trace: it does not begin with Chakra's "
                          "GlobalMetadata",
                          trace->file);
    }
    harpe_status status = HARPE_OK;
    for (r.message = 1; status == HARPE_OK && file.next < file.end; r.message++) {
        if (!harpe_wire_bytes(&file, &message))
            return fail_message(&r, "it is cut off: the file is not complete");
        status = read_node(&r, message);
    }
    return status == HARPE_OK ? harpe_chakra_finish(trace, error) : status;
}
