/* SPDX-License-Identifier: Apache-2.0 */
/* Connection strings of PostgreSQL: recognises them among values of the setting `store`, shows them
 * without their secrets, and adds a password from a file. Opens no connection. */
#ifndef HARPE_SERVER_STORE_ADDRESS_H
#define HARPE_SERVER_STORE_ADDRESS_H

#include <stdbool.h>

#include <harpe/status.h>

/* True if the text is meant for PostgreSQL: a URI (postgresql://...) or a list of key=value pairs.
 * Also true if it has a mistake, so that it is not taken for a file name and shown. */
bool harpe_store_is_postgres(const char *where);

/* True if libpq probably splits the string as its author intended. An '@' in the host, or a port
 * that is not a number, comes from a password with special characters that are not escaped. */
bool harpe_store_address_is_sound(const char *where);

/* The setting in a form that may be shown: a file name unchanged, a connection string with "***"
 * for each password, and only the scheme of a string that cannot be parsed. To be freed with
 * free(); NULL: out of memory. */
char *harpe_store_address_shown(const char *where);

/* A connection string with this password in it, in place of any that it had; `where` must be
 * sound. `*out` is to be freed with free(). */
harpe_status harpe_store_address_with_password(const char *where, const char *password, char **out,
                                               harpe_error *error);

#endif
