/* SPDX-License-Identifier: Apache-2.0 */
/* Routes: one table of method, path, parameters, body and answers, from which requests are
 * dispatched, 404 and 405 are decided and /openapi.json is made. Between HTTP and the engine. */
#ifndef HARPE_SERVER_ROUTES_H
#define HARPE_SERVER_ROUTES_H

#include "server/http.h"
#include "server/peers.h"

typedef struct harpe_routes harpe_routes;

typedef struct harpe_routes_options {
    harpe_loop *loop;
    harpe_peers *peers;
    harpe_store *store;
    const harpe_workers *workers;
    const harpe_settings *settings;
    harpe_log log;
} harpe_routes_options;

harpe_status harpe_routes_new(const harpe_routes_options *options, harpe_routes **out,
                              harpe_error *error);
void harpe_routes_free(harpe_routes *routes);
/* What to give harpe_http_new; valid as long as `routes`. */
harpe_http_handler harpe_routes_handler(harpe_routes *routes);
/* Once HTTP is there: for the counts in /metrics. */
void harpe_routes_set_http(harpe_routes *routes, const harpe_http *http);
/* Before `peers` is freed while connections are still open: nobody is told any more what became of
 * their answers. */
void harpe_routes_leave_peers(harpe_routes *routes);
/* The OpenAPI 3 document; to be freed with free(). */
char *harpe_routes_openapi(void);

#endif
