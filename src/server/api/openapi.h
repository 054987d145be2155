/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the OpenAPI document from the table of routes. */
#ifndef HARPE_SERVER_API_OPENAPI_H
#define HARPE_SERVER_API_OPENAPI_H

#include <jansson.h>

/* Returns the members of a schema, an object by their names, or NULL. The caller drops it. */
json_t *harpe_openapi_members(const char *schema);
/* Returns the OpenAPI 3 document. Free it with free(). */
char *harpe_routes_openapi(void);

#endif
