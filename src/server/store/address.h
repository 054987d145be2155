/* SPDX-License-Identifier: Apache-2.0 */
/* Handles connection strings of PostgreSQL in the setting `store`: recognises them, shows them
 * without their secrets, and adds a password. Opens no connection. */
#ifndef HARPE_SERVER_STORE_ADDRESS_H
#define HARPE_SERVER_STORE_ADDRESS_H

#include <stdbool.h>

#include <harpe/status.h>

/* Returns true if the text is meant for PostgreSQL: a URI (postgresql://...) or a list of key=value
 * pairs. Also returns true if such a text has a mistake. Otherwise it would be taken for a file
 * name and shown with its password. */
bool harpe_store_is_postgres(const char *where);

/* Returns true if libpq probably splits the string as the user intended. An '@' in the host, or a
 * port that is not a number, comes from a password with special characters that are not escaped. */
bool harpe_store_address_is_sound(const char *where);

/* Returns the setting in a form that may be shown. A file name is unchanged. A connection string
 * has "***" in the place of each password. For a string that cannot be parsed, returns only the
 * scheme. Free it with free(). NULL: out of memory. */
char *harpe_store_address_shown(const char *where);

/* Writes a connection string with this password, which replaces any password in `where`. `where`
 * must be sound. Free `*out` with free(). */
harpe_status harpe_store_address_with_password(const char *where, const char *password, char **out,
                                               harpe_error *error);

#endif
