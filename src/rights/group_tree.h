/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of groups: it has the parent of each group, which is the group directly around it. A
 * group whose parent is the whole fleet has no entry. The fleet changes the tree. Code that
 * compares a group with the groups of a token reads it. Only one thread may use a tree. */
#ifndef HARPE_RIGHTS_GROUP_TREE_H
#define HARPE_RIGHTS_GROUP_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A group and its parent. */
typedef struct harpe_group_place {
    char *name, *parent;
} harpe_group_place;

/* Initialise it with zeros. */
typedef struct harpe_group_tree {
    harpe_group_place *places; /* sorted by name */
    size_t count, capacity;
    uint64_t moves; /* how many times the parent of a group has changed */
} harpe_group_tree;

void harpe_group_tree_free(harpe_group_tree *tree);

/* Sets the parent of a group. If `parent` is NULL or "", the parent is the whole fleet, and the
 * entry of the group is removed. Returns false if memory runs out. The parent is then the whole
 * fleet, so that no token reaches the group through another group. */
bool harpe_group_tree_put(harpe_group_tree *tree, const char *name, const char *parent);

/* Returns the parent of a group, or NULL if the parent is the whole fleet. The text is valid until
 * the tree changes. `tree` may be NULL; then the parent of each group is the whole fleet. */
const char *harpe_group_tree_parent(const harpe_group_tree *tree, const char *name);

#endif
