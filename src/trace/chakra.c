/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Chakra traces, as Protocol Buffers and in JSON. Both readers make nodes, of which
 * add_node makes events. */
#include "trace/trace.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"

/* ---- The wire format of Protocol Buffers ----------------------------------------------------- */

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

static bool wire_bytes(harpe_wire *wire, harpe_wire *bytes) {
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
    case HARPE_WIRE_BYTES: is_valid = wire_bytes(&rest, &field->bytes); break;
    case HARPE_WIRE_FIXED32: is_valid = read_fixed(&rest, 4, &field->value); break;
    default: break;
    }
    if (is_valid) wire->next = rest.next;
    return is_valid;
}

/* ---- Events of nodes ------------------------------------------------------------------------- */

/* Makes an event of a Chakra node. The names of the attributes are those that Chakra's converter
 * writes and its feeder reads (src/converter and src/feeder in github.com/mlcommons/chakra). */

/* The values of NodeType in et_def.proto (github.com/mlcommons/chakra, schema/protobuf). */
enum {
    COMP_NODE = 4,
    COMM_SEND_NODE = 5,
    COMM_RECV_NODE = 6,
    COMM_COLL_NODE = 7,
    NODE_TYPES = 11,
};

#define GROUP_KEY "pg_name" /* the only attribute with a text that Harpe needs */

typedef struct chakra_node {
    uint64_t id;
    const char *name; /* lives as long as the trace; NULL: missing */
    int64_t type;
    uint64_t start_us, time_us; /* the start may be missing: 0 */
    int64_t stream;             /* -1: missing */
    bool is_on_cpu;
    const char *group;           /* GROUP_KEY; lives as long as the trace; NULL: missing */
    int64_t source, target, tag; /* comm_src, comm_dst, comm_tag; -1: missing */
    int64_t collective;          /* comm_type; -1: missing */
    /* As in harpe_trace_event: numbers of nodes; the first `parent_count` ones are the parents,
     * which Chakra calls control dependencies. */
    size_t wait_count, parent_count;
    uint64_t *waits;
} chakra_node;

/* A node without attributes. */
#define NEW_NODE \
    (chakra_node) { .stream = -1, .source = -1, .target = -1, .collective = -1 }

/* The values of CollectiveCommType in et_def.proto. */
static const char *const collective_names[] = {
    "all_reduce", "reduce",         "all_gather",           "gather",  "scatter", "broadcast",
    "all_to_all", "reduce_scatter", "reduce_scatter_block", "barrier",
};
#define COLLECTIVE_COUNT ((int64_t)(sizeof collective_names / sizeof collective_names[0]))

/* Sets an attribute that is a whole number by its name. Other names are ignored. */
static void set_integer(chakra_node *node, const char *name, int64_t value) {
    if (strcmp(name, "is_cpu_op") == 0) node->is_on_cpu = value != 0;
    if (strcmp(name, "stream") == 0) node->stream = value;
    if (strcmp(name, "comm_src") == 0) node->source = value;
    if (strcmp(name, "comm_dst") == 0) node->target = value;
    if (strcmp(name, "comm_tag") == 0) node->tag = value;
    if (strcmp(name, "comm_type") == 0) node->collective = value;
}

/* Makes a communication of a kernel whose name says that it is one. */
static void set_named(const chakra_node *node, harpe_trace_event *event) {
    event->kind = HARPE_TRACE_COLLECTIVE;
    event->group = node->group;
    event->name = node->name;
}

static void set_communication(const harpe_trace *trace, const chakra_node *node,
                              harpe_trace_event *event) {
    event->group = node->group ? node->group : ""; /* without pg_name: all ranks */
    if (node->type == COMM_COLL_NODE) {
        event->kind = HARPE_TRACE_COLLECTIVE;
        event->name = node->collective >= 0 && node->collective < COLLECTIVE_COUNT
                          ? collective_names[node->collective]
                          : "collective";
        return;
    }
    bool is_send = node->type == COMM_SEND_NODE;
    event->kind = is_send ? HARPE_TRACE_SEND : HARPE_TRACE_RECEIVE;
    event->name = is_send ? "send" : "recv";
    event->source = node->source < 0 && is_send ? trace->rank : node->source;
    event->target = node->target < 0 && !is_send ? trace->rank : node->target;
    event->tag = node->tag;
    if (event->source < 0 || event->target < 0 || event->source == event->target)
        event->group = NULL;
}

/* Adds the event of a node. */
static harpe_status add_node(harpe_trace *trace, const chakra_node *node, harpe_error *error) {
    if (node->type < 0 || node->type >= NODE_TYPES) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: node %" PRIu64 ": its type is %" PRId64
                          ", and Chakra has the types 0 to %d",
                          trace->file, node->id, node->type, NODE_TYPES - 1);
    }
    double time_s = (double)node->time_us * 1e-6;
    if (time_s > HARPE_TRACE_TIME_MAX_S) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: node %" PRIu64 ": its duration is %g s, more than %g s: "
                          "duration_micros is in microseconds",
                          trace->file, node->id, time_s, HARPE_TRACE_TIME_MAX_S);
    }
    harpe_trace_event event = {
        .kind = HARPE_TRACE_OTHER,
        .stream = node->is_on_cpu ? -1 : node->stream,
        .start_s = (double)node->start_us * 1e-6,
        .time_s = time_s,
        .sequence = -1,
        .id = node->id,
        .wait_count = node->wait_count,
        .parent_count = node->parent_count,
        .waits = node->waits,
    };
    bool is_computation = node->type == COMP_NODE && !node->is_on_cpu;
    if (is_computation && node->time_us > 0) event.kind = HARPE_TRACE_COMPUTE;
    if (event.kind == HARPE_TRACE_COMPUTE && node->name &&
        harpe_kernel_names_communicate(trace->names, node->name, time_s))
        set_named(node, &event);
    if (node->type >= COMM_SEND_NODE && node->type <= COMM_COLL_NODE && !node->is_on_cpu)
        set_communication(trace, node, &event);
    return harpe_trace_add(trace, &event, error);
}

/* ---- Protocol Buffers ------------------------------------------------------------------------ */

/* Reads Chakra traces as Protocol Buffers. The numbers of the fields are those of et_def.proto
 * (github.com/mlcommons/chakra, schema/protobuf). Fields that this file does not know are skipped.
 */

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
    size_t index; /* of the message in the file, or of the node in the JSON text */
    harpe_error *error;
} reader;

static harpe_status fail_message(const reader *r, const char *what) {
    return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s: message %zu (the first is 0): %s",
                      r->trace->file, r->index, what);
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

static harpe_status read_attribute(const reader *r, harpe_wire bytes, chakra_node *node) {
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
    if (has_value) set_integer(node, name, value);
    if (!text.next || strcmp(name, GROUP_KEY) != 0) return HARPE_OK;
    node->group = copy_text(r, text);
    return node->group ? HARPE_OK : harpe_fail_memory(r->error);
}

/* ---- Nodes in Protocol Buffers --------------------------------------------------------------- */

/* Reads dependencies: a list of numbers in one field (packed), or one number. With `waits` NULL it
 * only counts them. */
static bool read_some_waits(const harpe_wire_field *field, uint64_t *waits, size_t *count) {
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
        if (field.number == number && !read_some_waits(&field, waits, count)) return false;
    return true;
}

/* Puts the control dependencies first. */
static harpe_status read_all_waits(const reader *r, harpe_wire bytes, chakra_node *node) {
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
    chakra_node node = NEW_NODE;
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
    return status == HARPE_OK ? add_node(r->trace, &node, r->error) : status;
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
    if (!wire_bytes(&file, &message) || !is_metadata(message)) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: neither JSON nor a Chakra trace: it does not begin with Chakra's "
                          "GlobalMetadata",
                          trace->file);
    }
    harpe_status status = HARPE_OK;
    for (r.index = 1; status == HARPE_OK && file.next < file.end; r.index++) {
        if (!wire_bytes(&file, &message))
            return fail_message(&r, "it is cut off: the file is not complete");
        status = read_node(&r, message);
    }
    return status == HARPE_OK ? harpe_trace_resolve(trace, error) : status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Reads Chakra traces in JSON. There are two forms. chakra_jsonizer writes each message of a trace
 * in the JSON form of Protocol Buffers, in which a 64-bit number is a text, a value of an
 * enumeration is its name, and a member with the default value is missing. Chakra's feeder reads
 * one object with a list "workload_graph" (src/feeder/JSONNode.cpp), in which the attributes are
 * members of the node. Unknown members are ignored. */

/* A member that has different names in the two forms, and in the two spellings of the first. */
typedef const char *const names[4];
static names id_names = {"id", "Id", NULL};
static names name_names = {"name", "Name", NULL};
static names type_names = {"type", "NodeType", NULL};
static names time_names = {"durationMicros", "duration_micros", "runtime", NULL};
static names start_names = {"startTimeMicros", "start_time_micros", NULL};
static names control_names = {"ctrlDeps", "ctrl_deps", NULL};
static names data_names = {"dataDeps", "data_deps", NULL};

static const char *const types[] = {
    "INVALID_NODE", "METADATA_NODE",  "MEM_LOAD_NODE",   "MEM_STORE_NODE",
    "COMP_NODE",    "COMM_SEND_NODE", "COMM_RECV_NODE",  "COMM_COLL_NODE",
    "STORAGE_NODE", "BATCH_NODE",     "CHECKPOINT_NODE",
};

static harpe_status fail_node(const reader *r, const char *key, const char *what) {
    return harpe_fail(r->error, HARPE_INVALID_INPUT,
                      "%s: node number %zu (the first is 0): \"%s\" %s", r->trace->file, r->index,
                      key, what);
}

static const json_t *member(const json_t *object, names keys) {
    for (size_t i = 0; keys[i]; i++) {
        const json_t *value = json_object_get(object, keys[i]);
        if (value) return value;
    }
    return NULL;
}

/* Reads a number from 0 to 2^64 - 1: a number or a text of digits. */
static bool read_unsigned(const json_t *value, uint64_t *out) {
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        return true;
    }
    const char *digits = json_string_value(value);
    uint64_t number = 0;
    if (!digits || !*digits) return false;
    for (; *digits >= '0' && *digits <= '9'; digits++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*digits - '0'), &number))
            return false;
    if (*digits) return false;
    *out = number;
    return true;
}

/* Reads the value of an attribute that is a whole number or true or false. */
static bool read_integer(const json_t *value, int64_t *out) {
    if (json_is_boolean(value)) *out = json_is_true(value);
    if (json_is_integer(value)) *out = json_integer_value(value);
    if (json_is_string(value))
        return harpe_parse_int(json_string_value(value), json_string_length(value), out);
    return json_is_boolean(value) || json_is_integer(value);
}

static harpe_status read_type(const reader *r, const json_t *value, chakra_node *node) {
    const char *name = json_string_value(value);
    for (int64_t i = 0; name && i < NODE_TYPES; i++) {
        if (strcmp(name, types[i]) != 0) continue;
        node->type = i;
        return HARPE_OK;
    }
    if (json_is_integer(value)) node->type = json_integer_value(value);
    return !value || json_is_integer(value)
               ? HARPE_OK
               : fail_node(r, "type", "is not a type of Chakra's nodes");
}

/* Sets an attribute that is a text. */
static harpe_status set_text(const reader *r, const char *name, const json_t *value,
                             chakra_node *node) {
    if (strcmp(name, GROUP_KEY) != 0) return HARPE_OK;
    node->group =
        harpe_arena_strdup(&r->trace->arena, json_string_value(value), json_string_length(value));
    return node->group ? HARPE_OK : harpe_fail_memory(r->error);
}

/* Reads the attributes of Protocol Buffers: {"name": ..., "int64Val": ...}. */
static harpe_status read_attributes(const reader *r, const json_t *list, chakra_node *node) {
    size_t index;
    const json_t *attribute;
    json_array_foreach(list, index, attribute) {
        const char *name = json_string_value(json_object_get(attribute, "name")), *key;
        json_t *value;
        if (!name) return fail_node(r, "attr", "has an attribute without a name");
        json_object_foreach((json_t *)attribute, key, value) {
            int64_t number;
            bool is_text = strcmp(key, "stringVal") == 0 || strcmp(key, "string_val") == 0;
            if (strcmp(key, "name") == 0) continue;
            harpe_status status = HARPE_OK;
            if (is_text && json_is_string(value))
                status = set_text(r, name, value, node);
            else if (!is_text && read_integer(value, &number))
                set_integer(node, name, number);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
}

/* Reads the attributes that are members of the node. */
static harpe_status read_members(const reader *r, const json_t *object, chakra_node *node) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        int64_t number;
        harpe_status status = HARPE_OK;
        if (json_is_string(value)) status = set_text(r, key, value, node);
        if (status != HARPE_OK) return status;
        if (read_integer(value, &number)) set_integer(node, key, number);
    }
    return HARPE_OK;
}

static harpe_status read_json_waits(const reader *r, const json_t *list, const char *key,
                                    chakra_node *node) {
    if (list && !json_is_array(list)) return fail_node(r, key, "must be a list");
    size_t index;
    const json_t *value;
    json_array_foreach(list, index, value) {
        if (!read_unsigned(value, &node->waits[node->wait_count++]))
            return fail_node(r, key, "must contain ids: whole numbers from 0 to 2^64 - 1");
    }
    return HARPE_OK;
}

static harpe_status read_json_node(const reader *r, const json_t *object) {
    chakra_node node = NEW_NODE;
    if (!json_is_object(object)) return fail_node(r, "workload_graph", "must contain objects");
    const json_t *id = member(object, id_names), *time = member(object, time_names);
    const json_t *control = member(object, control_names), *data = member(object, data_names);
    if (id && !read_unsigned(id, &node.id))
        return fail_node(r, "id", "must be a whole number from 0 to 2^64 - 1");
    if (time && !read_unsigned(time, &node.time_us))
        return fail_node(r, "duration_micros", "must be a whole number of microseconds");
    (void)read_unsigned(member(object, start_names), &node.start_us); /* only an order */
    size_t count = json_array_size(control) + json_array_size(data);
    node.waits = harpe_arena_alloc(&r->trace->arena, count, sizeof *node.waits);
    if (!node.waits) return harpe_fail_memory(r->error);
    const char *name = json_string_value(member(object, name_names));
    node.name = name ? harpe_arena_strdup(&r->trace->arena, name, strlen(name)) : NULL;
    if (name && !node.name) return harpe_fail_memory(r->error);
    harpe_status status = read_type(r, member(object, type_names), &node);
    if (status == HARPE_OK) status = read_members(r, object, &node);
    if (status == HARPE_OK) status = read_attributes(r, json_object_get(object, "attr"), &node);
    if (status == HARPE_OK) status = read_json_waits(r, control, "ctrl_deps", &node);
    node.parent_count = node.wait_count;
    if (status == HARPE_OK) status = read_json_waits(r, data, "data_deps", &node);
    return status == HARPE_OK ? add_node(r->trace, &node, r->error) : status;
}

harpe_status harpe_trace_read_chakra_json(const json_t *objects, harpe_trace *trace,
                                          harpe_error *error) {
    const json_t *first = json_array_get(objects, 0);
    const json_t *nodes = json_object_get(first, "workload_graph");
    if (json_is_array(json_object_get(first, "nodes"))) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "%s: an execution trace of PyTorch, whose nodes have no durations: link "
                          "it with a Kineto trace (chakra_trace_link) and convert it "
                          "(chakra_converter), or import the Kineto trace",
                          trace->file);
    }
    bool has_metadata = !nodes;
    if (!nodes) nodes = objects;
    if (!json_is_array(nodes)) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: not a Chakra trace: \"workload_graph\" must be a list", trace->file);
    }
    reader r = {.trace = trace, .error = error};
    trace->has_dependencies = true;
    trace->step = -1;
    size_t index;
    const json_t *object;
    json_array_foreach(nodes, index, object) {
        if (index == 0 && has_metadata) continue;
        r.index = has_metadata ? index - 1 : index;
        harpe_status status = read_json_node(&r, object);
        if (status != HARPE_OK) return status;
    }
    return harpe_trace_resolve(trace, error);
}
