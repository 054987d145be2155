/* SPDX-License-Identifier: Apache-2.0 */
/* Knows who makes a request, and what that client may do. Without a file of tokens, and for the
 * token of --token-file, every client may do everything. The file is read again when it changes. */
#ifndef HARPE_SERVER_API_ACCESS_H
#define HARPE_SERVER_API_ACCESS_H

#include "base/file_processes.h"
#include "http/http.h"
#include "http/workers.h"
#include "pfo/settings.h"
#include "rights/tokens.h"
#include "server/api/route_table.h"

typedef struct harpe_access harpe_access;

/* Who makes a request. The texts are valid until the loop does something else. */
typedef struct harpe_client {
    const char *name; /* of its token; NULL: it needs none */
    harpe_role role;
    const char *scope; /* see rights/scope.h */
    int64_t watts;     /* that the members that it declares may have together; negative: no limit */
} harpe_client;

/* Reads the file of tokens that the settings name. `files` use it, or this thread and later the
 * workers if `files` is NULL. `settings` stay valid until harpe_access_free.
 * `has_changed` is called after the tokens have changed. */
harpe_status harpe_access_new(harpe_loop *loop, harpe_workers *workers, harpe_file_processes *files,
                              const harpe_settings *settings, harpe_log log,
                              void (*has_changed)(void *user), void *user, harpe_access **out,
                              harpe_error *error);
/* Call it after harpe_workers_free, or if no worker runs. */
void harpe_access_free(harpe_access *access);

/* Returns true if the settings name a file of tokens. */
bool harpe_access_has_tokens(const harpe_access *access);
/* Returns true if this is the text of a token of the file. */
bool harpe_access_knows(const harpe_access *access, const char *text);
/* Returns false if the token of a request was removed after the request began. */
bool harpe_access_client(const harpe_access *access, const harpe_http_request *request,
                         harpe_client *out);
/* Writes one line that says which role is needed, and returns true, if the client may not use the
 * route. The groups of the client are not compared. */
bool harpe_access_fault(const harpe_client *client, const harpe_route *route, char *line,
                        size_t size);

#endif
