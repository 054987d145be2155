/* SPDX-License-Identifier: Apache-2.0 */
/* Compares groups with the scope of a token. A token reaches the groups that it names and the
 * groups inside of them, as the tree is at that moment. */
#include "rights/scope.h"

#include <stdio.h>
#include <string.h>

#include <harpe/fleet.h>

#include "base/clean.h"

static bool names(const char *scope, const char *group) {
    size_t length = strlen(group);
    for (const char *at = scope; *at;) {
        size_t own = strcspn(at, ",");
        if (own == length && memcmp(at, group, length) == 0) return true;
        at += own;
        at += *at == ',';
    }
    return false;
}

bool harpe_scope_covers(const harpe_group_tree *tree, const char *scope, const char *group) {
    if (!scope) return true;
    /* A tree has fewer levels. The limit ends the loop if groups form a circle. */
    for (int depth = 0; group && *group && depth < HARPE_FLEET_DEPTH_MAX; depth++) {
        if (names(scope, group)) return true;
        group = harpe_group_tree_parent(tree, group);
    }
    return false;
}

bool harpe_group_name_is_sound(const char *name, size_t length) {
    if (length == 0 || length > HARPE_GROUP_NAME_MAX || memchr(name, '\0', length)) return false;
    char copy[HARPE_GROUP_NAME_MAX + 1];
    memcpy(copy, name, length);
    copy[length] = '\0';
    if (strcspn(copy, " \t,;+") != length) return false;
    for (size_t at = 0, size; at < length; at += size)
        if (!harpe_character_is_safe(harpe_character(copy + at, &size))) return false;
    return true;
}

bool harpe_scope_equal(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

const char *harpe_scope_words(const char *scope, char *buffer, size_t size) {
    size_t length = scope ? strlen(scope) : 0;
    if (length == 0)
        (void)snprintf(buffer, size, "the whole fleet");
    else if (length > 200)
        (void)snprintf(buffer, size, "the groups %.*s...", (int)harpe_cut_length(scope, 200),
                       scope);
    else
        (void)snprintf(buffer, size, "the group%s %s", strchr(scope, ',') ? "s" : "", scope);
    return buffer;
}
