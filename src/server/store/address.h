/* SPDX-License-Identifier: Apache-2.0 */
/* Connection strings of PostgreSQL: which values of the setting `store` are one, how one is shown
 * without its secrets, and how a password from a file is added. Opens no connection. */
#ifndef HARPE_SERVER_STORE_ADDRESS_H
#define HARPE_SERVER_STORE_ADDRESS_H

#include <stdbool.h>

#include <harpe/status.h>

/* Is this meant for PostgreSQL? A URI (postgresql://...) or a list of key=value pairs; also one
 * that has a mistake, so that nobody takes it for the name of a file and shows it. */
bool harpe_store_is_postgres(const char *where);

/* Whether libpq takes the string apart at the places that its author meant: an '@' in the host or
 * a port that is no number come from a password whose special characters are not escaped. */
bool harpe_store_address_is_sound(const char *where);

/* The setting as people may see it: file names as they are, a connection string with each password
 * as "***", and nothing behind the scheme of a string that cannot be parsed. To be freed with
 * free(); NULL: out of memory. */
char *harpe_store_address_shown(const char *where);

/* A connection string with this password in it, in place of any that it had; `where` must be
 * sound. `*out` is to be freed with free(). */
harpe_status harpe_store_address_with_password(const char *where, const char *password, char **out,
                                               harpe_error *error);

#endif
