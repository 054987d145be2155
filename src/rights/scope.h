/* SPDX-License-Identifier: Apache-2.0 */
/* The groups to which a token is limited, as one text: "row1,row2". NULL: not limited. */
#ifndef HARPE_RIGHTS_SCOPE_H
#define HARPE_RIGHTS_SCOPE_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

#include "rights/group_tree.h"

/* The longest name of a group and the longest scope, in bytes. */
enum { HARPE_GROUP_NAME_MAX = 127, HARPE_SCOPE_MAX = 4096 };

/* Returns true if the scope is NULL, or names the group or a group around it. `group` NULL or "" is
 * the whole fleet, which only the scope NULL covers. `tree` NULL: no group is inside of another. */
bool harpe_scope_covers(const harpe_group_tree *tree, const char *scope, const char *group);

/* Returns true if a group can have this name: 1 to HARPE_GROUP_NAME_MAX bytes of UTF-8 without
 * white space, control characters and the characters , ; + that separate words of a job's metadata.
 */
bool harpe_group_name_is_sound(const char *name, size_t length);

/* Returns true if both scopes name the same groups in the same order. */
bool harpe_scope_equal(const char *a, const char *b);

/* Writes "the group row1", "the groups row1,row2" or "the whole fleet" for a message. Cuts a long
 * scope. */
const char *harpe_scope_words(const char *scope, char *buffer, size_t size);

#endif
