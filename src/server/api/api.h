/* SPDX-License-Identifier: Apache-2.0 */
/* Stands between HTTP and the engine. One table lists method, path, parameters, body and answers of
 * each route. routes.c uses the table to dispatch requests and to answer 404 and 405. /openapi.json
 * is made from the same table. */
#ifndef HARPE_SERVER_API_API_H
#define HARPE_SERVER_API_API_H

#include "base/file_processes.h"
#include "http/http.h"
#include "server/lead/lead.h"

/* ---- Routes ---------------------------------------------------------------------------------- */

typedef struct harpe_routes harpe_routes;

typedef struct harpe_routes_options {
    harpe_loop *loop;
    harpe_lead *lead;
    harpe_store *store;
    harpe_workers *workers;
    const harpe_settings *settings;
    harpe_log log;
    /* They use the file of tokens and the audit log. NULL: the workers do it themselves. */
    harpe_file_processes *tokens_files, *audit_files;
} harpe_routes_options;

harpe_status harpe_routes_new(const harpe_routes_options *options, harpe_routes **out,
                              harpe_error *error);
void harpe_routes_free(harpe_routes *routes);
/* Returns the handler for harpe_http_new. The handler is valid until harpe_routes_free. */
harpe_http_handler harpe_routes_handler(harpe_routes *routes);
/* Sets the HTTP server whose counts /metrics shows. Call it after the HTTP server was made. */
void harpe_routes_set_http(harpe_routes *routes, const harpe_http *http);
/* Call it before `lead` is freed while connections are still open. From then on the engine is not
 * told whether answers arrived. */
void harpe_routes_leave_engine(harpe_routes *routes);

/* ---- Audit ----------------------------------------------------------------------------------- */

/* What a file process does. */
harpe_status harpe_audit_file_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                   harpe_error *error);

#endif
