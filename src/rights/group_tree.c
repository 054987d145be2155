/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the tree of groups as an array that is sorted by name. */
#include "rights/group_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* Returns the index of the entry with this name, or the index at which it would be inserted. */
static size_t find(const harpe_group_tree *tree, const char *name, bool *is_found) {
    size_t low = 0, high = tree->count;
    *is_found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, tree->places[middle].name);
        if (order == 0) {
            *is_found = true;
            return middle;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void free_place(harpe_group_place *place) {
    free(place->name);
    free(place->parent);
}

void harpe_group_tree_free(harpe_group_tree *tree) {
    for (size_t i = 0; i < tree->count; i++)
        free_place(&tree->places[i]);
    free(tree->places);
    *tree = (harpe_group_tree){0};
}

static void take_out(harpe_group_tree *tree, const char *name) {
    bool is_found;
    size_t at = find(tree, name, &is_found);
    if (!is_found) return;
    free_place(&tree->places[at]);
    tree->count--;
    memmove(&tree->places[at], &tree->places[at + 1], (tree->count - at) * sizeof *tree->places);
}

bool harpe_group_tree_put(harpe_group_tree *tree, const char *name, const char *parent) {
    bool is_found;
    const char *before = harpe_group_tree_parent(tree, name);
    if (strcmp(before ? before : "", parent ? parent : "") == 0) return true;
    tree->moves++;
    take_out(tree, name);
    if (!parent || !*parent) return true;
    harpe_group_place place = {strdup(name), strdup(parent)};
    if (!place.name || !place.parent ||
        !HARPE_ARRAY_RESERVE(tree->places, tree->capacity, tree->count + 1)) {
        free_place(&place);
        return false;
    }
    size_t at = find(tree, name, &is_found);
    memmove(&tree->places[at + 1], &tree->places[at], (tree->count - at) * sizeof *tree->places);
    tree->places[at] = place;
    tree->count++;
    return true;
}

const char *harpe_group_tree_parent(const harpe_group_tree *tree, const char *name) {
    bool is_found = false;
    size_t at = tree && tree->count > 0 ? find(tree, name, &is_found) : 0;
    return is_found ? tree->places[at].parent : NULL;
}
