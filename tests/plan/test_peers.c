/* SPDX-License-Identifier: Apache-2.0 */
/* The combined options of several GPUs are those that trying all combinations finds. */
#include "test.h"

#include "instances.h"
#include "plan/replica_internal.h"

#define MOST_PEERS 4
#define MOST_POINTS 6

typedef struct peer_case {
    int peers;
    harpe_profile_point points[MOST_PEERS][MOST_POINTS];
    harpe_profile_entry entry[MOST_PEERS];
    const harpe_profile_entry *entries[MOST_PEERS];
    double power_w[MOST_PEERS];
} peer_case;

/* Makes points of any order, and often of equal times or energies. */
static peer_case make_case(test_random *random, int peers) {
    peer_case c = {.peers = peers};
    bool has_ties = random_int(random, 0, 2) == 0;
    for (int g = 0; g < peers; g++) {
        size_t count = (size_t)random_int(random, 1, MOST_POINTS);
        c.power_w[g] = random_int(random, 0, 1) ? random_between(random, 0, 200) : 70;
        for (size_t p = 0; p < count; p++)
            c.points[g][p] = (harpe_profile_point){
                1410 - 15 * (int)p,
                has_ties ? random_int(random, 1, 4) : random_between(random, 0.5, 4),
                has_ties ? 100 * random_int(random, 1, 4) : random_between(random, 50, 900)};
        c.entry[g] = (harpe_profile_entry){0, "forward", count, c.points[g], 0};
    }
    return c;
}

static void point_entries(peer_case *c) {
    for (int g = 0; g < c->peers; g++) {
        c->entry[g].points = c->points[g];
        c->entries[g] = &c->entry[g];
    }
}

/* Returns the least effective energy of all combinations that take at most a time. */
static double least_effective_j(const peer_case *c, double time_s) {
    double least = INFINITY;
    size_t total = 1;
    for (int g = 0; g < c->peers; g++)
        total *= c->entry[g].point_count;
    for (size_t number = 0; number < total; number++) {
        size_t rest = number;
        double sum_j = 0, longest_s = 0;
        for (int g = 0; g < c->peers; g++) {
            const harpe_profile_point *point = &c->points[g][rest % c->entry[g].point_count];
            rest /= c->entry[g].point_count;
            sum_j += point->energy_j - c->power_w[g] * point->time_s;
            longest_s = fmax(longest_s, point->time_s);
        }
        if (longest_s <= time_s) least = fmin(least, sum_j);
    }
    return least;
}

static double total_power_w(const peer_case *c) {
    double sum_w = 0;
    for (int g = 0; g < c->peers; g++)
        sum_w += c->power_w[g];
    return sum_w;
}

/* Checks that the clocks of a combination give its time and energy. */
static void check_option(const peer_case *c, const harpe_peer_options *options, size_t k) {
    double longest_s = 0, energy_j = 0;
    const int *mhz = options->frequency_mhz + k * (size_t)c->peers;
    for (int g = 0; g < c->peers; g++)
        longest_s = fmax(longest_s, c->points[g][(1410 - mhz[g]) / 15].time_s);
    for (int g = 0; g < c->peers; g++) {
        const harpe_profile_point *point = &c->points[g][(1410 - mhz[g]) / 15];
        energy_j += point->energy_j + c->power_w[g] * (longest_s - point->time_s);
    }
    assert_near(options->time_s[k], longest_s, 1e-12);
    assert_near(options->energy_j[k], energy_j, 1e-12);
}

static void check_case(const peer_case *c) {
    AT_END(harpe_arena_free) harpe_arena arena = {0};
    harpe_peer_options options;
    assert_works(harpe_peers_combine(c->entries, c->power_w, c->peers, &arena, &options, &failure));
    for (int g = 0; g < c->peers; g++)
        assert_int_equal(options.frequency_mhz[g], 1410);
    double power_w = total_power_w(c);
    for (size_t k = 0; k < options.count; k++) {
        check_option(c, &options, k);
        double effective_j = options.energy_j[k] - power_w * options.time_s[k];
        size_t clocks_size = (size_t)c->peers * sizeof(int);
        const int *mhz = options.frequency_mhz + k * (size_t)c->peers;
        if (k > 0) assert_int_not_equal(memcmp(mhz, options.frequency_mhz, clocks_size), 0);
        if (k > 0) assert_near(effective_j, least_effective_j(c, options.time_s[k]), 1e-9);
        if (k > 1) {
            double before_j = options.energy_j[k - 1] - power_w * options.time_s[k - 1];
            assert_true(options.time_s[k] > options.time_s[k - 1]);
            assert_true(effective_j < before_j);
        }
    }
    /* For every time at which some peer has a point, the best combination is in the list. */
    for (int g = 0; g < c->peers; g++) {
        for (size_t p = 0; p < c->entry[g].point_count; p++) {
            double time_s = c->points[g][p].time_s, found_j = INFINITY;
            for (size_t k = 0; k < options.count; k++)
                if (options.time_s[k] <= time_s)
                    found_j = fmin(found_j, options.energy_j[k] - power_w * options.time_s[k]);
            double least_j = least_effective_j(c, time_s);
            if (isinf(least_j))
                assert_true(isinf(found_j));
            else
                assert_near(found_j, least_j, 1e-9);
        }
    }
}

TEST(combinations_are_those_of_brute_force) {
    test_random random = {77};
    for (int trial = 0; trial < test_trials(300); trial++) {
        peer_case c = make_case(&random, random_int(&random, 1, MOST_PEERS));
        point_entries(&c);
        check_case(&c);
    }
}

/* A peer that is faster at each clock runs at a lower clock. */
TEST(faster_peer_takes_a_lower_clock) {
    peer_case c = {.peers = 2, .power_w = {50, 50}};
    for (int p = 0; p < 4; p++) {
        c.points[0][p] = (harpe_profile_point){1410 - 15 * p, 1 + 0.1 * p, 300 - 20 * p};
        c.points[1][p] = (harpe_profile_point){1410 - 15 * p, 1.1 * (1 + 0.1 * p), 300 - 20 * p};
    }
    c.entry[0] = c.entry[1] =
        (harpe_profile_entry){.instruction = "forward", .point_count = 4, .points = NULL};
    point_entries(&c);
    AT_END(harpe_arena_free) harpe_arena arena = {0};
    harpe_peer_options options;
    assert_works(harpe_peers_combine(c.entries, c.power_w, 2, &arena, &options, &failure));
    /* All at the highest clock, then the fastest combination: gpu 0 has 0.1 s to spare. */
    assert_near(options.time_s[0], options.time_s[1], 1e-12);
    assert_true(options.energy_j[1] < options.energy_j[0]);
    assert_int_equal(options.frequency_mhz[2], 1395);
    assert_int_equal(options.frequency_mhz[3], 1410);
}
