/* SPDX-License-Identifier: Apache-2.0 */
/* What the audit log says about a request. */
#ifndef HARPE_SERVER_API_AUDIT_NOTE_H
#define HARPE_SERVER_API_AUDIT_NOTE_H

#include "http/http.h"
#include "server/api/access.h"

/* Who asks for what. The texts belong to the note. */
typedef struct harpe_audit_note {
    char *who, *what, *body; /* NULL: none */
    const char *role;
    bool is_operator;
    char address[HARPE_HTTP_ADDRESS_SIZE];
} harpe_audit_note;

/* Describes a request whose body has come. Returns false if memory runs out. */
bool harpe_audit_note_take(harpe_audit_note *note, harpe_http_request *request,
                           const harpe_route *route, const harpe_client *client);
void harpe_audit_note_clear(harpe_audit_note *note);

#endif
