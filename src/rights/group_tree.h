/* SPDX-License-Identifier: Apache-2.0 */
/* Which group is inside of which other group. A group that is directly inside of the whole fleet
 * has no entry. The fleet keeps the tree, and everything that compares a group with a token reads
 * it. One thread uses a tree. */
#ifndef HARPE_RIGHTS_GROUP_TREE_H
#define HARPE_RIGHTS_GROUP_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct harpe_group_place {
    char *name, *parent;
} harpe_group_place;

/* Initialise it with zeros. */
typedef struct harpe_group_tree {
    harpe_group_place *places; /* by name */
    size_t count, capacity;
    uint64_t moves; /* how often a group has got another parent */
} harpe_group_tree;

void harpe_group_tree_free(harpe_group_tree *tree);

/* Moves a group into `parent`; NULL or "": into the whole fleet, which also removes a group. If
 * memory runs out, the group is in the whole fleet, so that no token gets more rights, and the
 * function returns false. */
bool harpe_group_tree_put(harpe_group_tree *tree, const char *name, const char *parent);

/* Returns the group around a group, or NULL if that is the whole fleet. Valid until the next change
 * of the tree. `tree` may be NULL. */
const char *harpe_group_tree_parent(const harpe_group_tree *tree, const char *name);

#endif
