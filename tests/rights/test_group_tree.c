/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of groups against a plain list of parents, and the groups that a scope reaches. */
#include "test.h"

#include "rights/tokens.h"

enum { GROUPS = 12, CHANGES = 3000 };

static const char *name_of(int group) {
    static char names[GROUPS][8];
    (void)snprintf(names[group], sizeof names[group], "g%d", group * 7 % GROUPS);
    return names[group];
}

static bool is_inside(const int parents[GROUPS], int group, int around) {
    for (; group >= 0; group = parents[group])
        if (group == around) return true;
    return false;
}

TEST(a_scope_reaches_what_is_inside) {
    harpe_group_tree tree = {0};
    int parents[GROUPS];
    unsigned seed = 1;
    for (int g = 0; g < GROUPS; g++)
        parents[g] = -1;
    for (int i = 0; i < CHANGES; i++) {
        int group = rand_r(&seed) % GROUPS, parent = rand_r(&seed) % (GROUPS + 3) - 3;
        if (parent < 0) parent = -1;
        if (parent >= 0 && is_inside(parents, parent, group)) continue; /* a circle */
        parents[group] = parent;
        assert_true(harpe_group_tree_put(&tree, name_of(group), parent < 0 ? "" : name_of(parent)));
        int a = rand_r(&seed) % GROUPS, b = rand_r(&seed) % GROUPS;
        char scope[32];
        (void)snprintf(scope, sizeof scope, "%s,%s", name_of(a), name_of(b));
        for (int g = 0; g < GROUPS; g++) {
            bool reaches = is_inside(parents, g, a) || is_inside(parents, g, b);
            assert_int_equal(harpe_scope_covers(&tree, scope, name_of(g)), reaches);
            const char *above = harpe_group_tree_parent(&tree, name_of(g));
            if (parents[g] < 0)
                assert_null(above);
            else
                assert_string_equal(above, name_of(parents[g]));
        }
        assert_false(harpe_scope_covers(&tree, scope, ""));
        assert_false(harpe_scope_covers(&tree, scope, "unknown"));
        assert_true(harpe_scope_covers(&tree, NULL, "unknown"));
    }
    for (int g = 0; g < GROUPS; g++)
        assert_true(harpe_group_tree_put(&tree, name_of(g), NULL));
    assert_int_equal(tree.count, 0);
    harpe_group_tree_free(&tree);
}

TEST(a_circle_ends) {
    harpe_group_tree tree = {0};
    assert_true(harpe_group_tree_put(&tree, "a", "b"));
    assert_true(harpe_group_tree_put(&tree, "b", "a"));
    assert_true(harpe_scope_covers(&tree, "b", "a"));
    assert_false(harpe_scope_covers(&tree, "c", "a"));
    harpe_group_tree_free(&tree);
}
