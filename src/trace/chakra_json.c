/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Chakra traces in JSON. There are two forms. chakra_jsonizer writes each message of a trace
 * in the JSON form of Protocol Buffers, in which a 64-bit number is a text, a value of an
 * enumeration is its name, and a member with the default value is missing. Chakra's feeder reads
 * one object with a list "workload_graph" (src/feeder/JSONNode.cpp), in which the attributes are
 * members of the node. Unknown members are ignored. */
#include "trace/chakra_json.h"

#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "trace/chakra_node.h"

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

typedef struct reader {
    harpe_trace *trace;
    size_t index; /* of the node */
    harpe_error *error;
} reader;

static harpe_status fail_at(const reader *r, const char *key, const char *what) {
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

static harpe_status read_type(const reader *r, const json_t *value, harpe_chakra_node *node) {
    const char *name = json_string_value(value);
    for (int64_t i = 0; name && i < HARPE_CHAKRA_NODE_TYPES; i++) {
        if (strcmp(name, types[i]) != 0) continue;
        node->type = i;
        return HARPE_OK;
    }
    if (json_is_integer(value)) node->type = json_integer_value(value);
    return !value || json_is_integer(value) ? HARPE_OK
                                            : fail_at(r, "type", "is not a type of Chakra's nodes");
}

/* Sets an attribute that is a text. */
static harpe_status set_text(const reader *r, const char *name, const json_t *value,
                             harpe_chakra_node *node) {
    if (strcmp(name, HARPE_CHAKRA_GROUP) != 0) return HARPE_OK;
    node->group =
        harpe_arena_strdup(&r->trace->arena, json_string_value(value), json_string_length(value));
    return node->group ? HARPE_OK : harpe_fail_memory(r->error);
}

/* Reads the attributes of Protocol Buffers: {"name": ..., "int64Val": ...}. */
static harpe_status read_attributes(const reader *r, const json_t *list, harpe_chakra_node *node) {
    size_t index;
    const json_t *attribute;
    json_array_foreach(list, index, attribute) {
        const char *name = json_string_value(json_object_get(attribute, "name")), *key;
        json_t *value;
        if (!name) return fail_at(r, "attr", "has an attribute without a name");
        json_object_foreach((json_t *)attribute, key, value) {
            int64_t number;
            bool is_text = strcmp(key, "stringVal") == 0 || strcmp(key, "string_val") == 0;
            if (strcmp(key, "name") == 0) continue;
            harpe_status status = HARPE_OK;
            if (is_text && json_is_string(value))
                status = set_text(r, name, value, node);
            else if (!is_text && read_integer(value, &number))
                harpe_chakra_set_integer(node, name, number);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
}

/* Reads the attributes that are members of the node. */
static harpe_status read_members(const reader *r, const json_t *object, harpe_chakra_node *node) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        int64_t number;
        harpe_status status = HARPE_OK;
        if (json_is_string(value)) status = set_text(r, key, value, node);
        if (status != HARPE_OK) return status;
        if (read_integer(value, &number)) harpe_chakra_set_integer(node, key, number);
    }
    return HARPE_OK;
}

static harpe_status read_waits(const reader *r, const json_t *list, const char *key,
                               harpe_chakra_node *node) {
    if (list && !json_is_array(list)) return fail_at(r, key, "must be a list");
    size_t index;
    const json_t *value;
    json_array_foreach(list, index, value) {
        if (!read_unsigned(value, &node->waits[node->wait_count++]))
            return fail_at(r, key, "must contain ids: whole numbers from 0 to 2^64 - 1");
    }
    return HARPE_OK;
}

static harpe_status read_node(const reader *r, const json_t *object) {
    harpe_chakra_node node = HARPE_CHAKRA_NODE;
    if (!json_is_object(object)) return fail_at(r, "workload_graph", "must contain objects");
    const json_t *id = member(object, id_names), *time = member(object, time_names);
    const json_t *control = member(object, control_names), *data = member(object, data_names);
    if (id && !read_unsigned(id, &node.id))
        return fail_at(r, "id", "must be a whole number from 0 to 2^64 - 1");
    if (time && !read_unsigned(time, &node.time_us))
        return fail_at(r, "duration_micros", "must be a whole number of microseconds");
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
    if (status == HARPE_OK) status = read_waits(r, control, "ctrl_deps", &node);
    node.parent_count = node.wait_count;
    if (status == HARPE_OK) status = read_waits(r, data, "data_deps", &node);
    return status == HARPE_OK ? harpe_chakra_add_node(r->trace, &node, r->error) : status;
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
        harpe_status status = read_node(&r, object);
        if (status != HARPE_OK) return status;
    }
    return harpe_chakra_finish(trace, error);
}
