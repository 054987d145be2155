/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a request as the server understands it: the decoded path, and of the body the members
 * that the route has, each with a bounded length. The bytes that a client sends could hide these in
 * white space, in members that nobody reads, or behind a value that a later one replaces. */
#include "server/api/audit_note.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clean.h"
#include "base/json_text.h"
#include "base/text.h"
#include "pfo/json_tree.h"
#include "server/api/openapi.h"

enum {
    WHAT_BYTES = 2000, /* of the path */
    RAW_BYTES = 1000,  /* of a body that is not an object */
    WORD_BYTES = 600,  /* of a text in a body; no valid text is longer */
    LIST_BYTES = 200,  /* of a list or an object in a body, and one item more */
};

/* ---- Bodies ---------------------------------------------------------------------------------- */

static void put_number(harpe_text *text, double value) {
    if (isfinite(value))
        harpe_text_number(text, value);
    else
        harpe_json_raw(text, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

static void put_word(harpe_text *text, const harpe_json *json, size_t node) {
    size_t length;
    const char *bytes = harpe_json_bytes(json, node, &length);
    char *word = strndup(bytes, length < WORD_BYTES ? length : WORD_BYTES);
    text->failed |= !word;
    harpe_json_string(text, "", word);
    free(word);
}

static void put_value(harpe_text *text, const harpe_json *json, size_t node);

static void put_items(harpe_text *text, const harpe_json *json, size_t node, bool is_object) {
    size_t end = harpe_json_next(json, node), begin = text->length;
    harpe_json_raw(text, is_object ? "{" : "[");
    for (size_t item = node + 1; item < end; item = harpe_json_next(json, item)) {
        if (item > node + 1) harpe_json_raw(text, ", ");
        if (text->length - begin > LIST_BYTES) {
            harpe_json_raw(text, "...");
            break;
        }
        put_value(text, json, item);
        if (!is_object) continue;
        harpe_json_raw(text, ": ");
        item = harpe_json_next(json, item);
        put_value(text, json, item);
    }
    harpe_json_raw(text, is_object ? "}" : "]");
}

/* A document has at most HARPE_JSON_DEPTH levels. */
static void put_value(harpe_text *text, const harpe_json *json, size_t node) {
    switch (harpe_json_kind_of(json, node)) {
    case HARPE_JSON_NULL: harpe_json_raw(text, "null"); return;
    case HARPE_JSON_FALSE: harpe_json_raw(text, "false"); return;
    case HARPE_JSON_TRUE: harpe_json_raw(text, "true"); return;
    case HARPE_JSON_INTEGER:
    case HARPE_JSON_REAL: put_number(text, json->nodes[node].number); return;
    case HARPE_JSON_TEXT:
    case HARPE_JSON_DECODED_TEXT: put_word(text, json, node); return;
    case HARPE_JSON_LIST: put_items(text, json, node, false); return;
    case HARPE_JSON_OBJECT: put_items(text, json, node, true); return;
    }
}

/* Writes the members of the body that the schema has, in the schema's order. */
static void put_members(harpe_text *text, const harpe_json *json, json_t *schema) {
    const char *name;
    json_t *unused;
    harpe_json_raw(text, "{");
    json_object_foreach(schema, name, unused) {
        size_t node = harpe_json_member(json, 0, name);
        if (node == 0) continue;
        harpe_text_printf(text, "%s\"%s\": ", text->length > 1 ? ", " : "", name);
        put_value(text, json, node);
    }
    harpe_json_raw(text, "}");
}

/* Returns what the server understands of the body, or the beginning of a body that is not an
 * object; NULL: out of memory. */
static char *understood(const harpe_route *route, const char *body, size_t length) {
    harpe_json json = {0};
    harpe_json_failure failure;
    harpe_text text = {0};
    json_t *members = route->body_schema ? harpe_openapi_members(route->body_schema) : NULL;
    if (members && harpe_json_read(body, length, &json, &failure) &&
        harpe_json_kind_of(&json, 0) == HARPE_JSON_OBJECT)
        put_members(&text, &json, members);
    else
        harpe_text_append(&text, body, harpe_cut_length(body, RAW_BYTES));
    json_decref(members);
    harpe_json_free(&json);
    if (!text.failed) return text.data ? text.data : strdup("");
    harpe_text_free(&text);
    return NULL;
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static char *path_of(harpe_http_request *request, const harpe_route *route) {
    harpe_text text = {0};
    const char *group = harpe_http_query(request, "group");
    harpe_text_printf(&text, "%s ", harpe_http_method(request));
    for (int i = 0; i < harpe_http_segment_count(request); i++)
        harpe_text_printf(&text, "/%s", harpe_http_segment(request, i));
    if (group && route->call == HARPE_CALL_FLEET_DELETE_BUDGET)
        harpe_text_printf(&text, "?group=%s", group);
    if (text.failed) harpe_text_free(&text);
    if (text.data) text.data[harpe_cut_length(text.data, WHAT_BYTES)] = '\0';
    return text.data;
}

bool harpe_audit_note_take(harpe_audit_note *note, harpe_http_request *request,
                           const harpe_route *route, const harpe_client *client) {
    size_t length;
    const char *body = harpe_http_body(request, &length);
    *note = (harpe_audit_note){.role = client->name ? harpe_role_name(client->role) : NULL,
                               .is_operator = client->role == HARPE_ROLE_OPERATOR};
    harpe_http_client_address(request, note->address);
    note->what = path_of(request, route);
    if (note->what) harpe_clean_in_place(note->what);
    if (length > 0) note->body = understood(route, body, length);
    if (note->body) harpe_clean_in_place(note->body);
    if (client->name) note->who = strdup(client->name);
    if (note->what && (note->body || length == 0) && (note->who || !client->name)) return true;
    harpe_audit_note_clear(note);
    return false;
}

void harpe_audit_note_clear(harpe_audit_note *note) {
    free(note->who);
    free(note->what);
    free(note->body);
    *note = (harpe_audit_note){0};
}
