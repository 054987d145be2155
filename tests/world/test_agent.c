/* SPDX-License-Identifier: Apache-2.0 */
/* The node agent, its helper processes and its clients in virtual time. */
#include "test.h"

#include <inttypes.h>

#include "world/node.h"

static world_node_result run(uint64_t seed, unsigned faults) {
    world_node_options options = {.seed = seed, .faults = faults};
    world_node_result result = world_node_run(&options);
    if (*result.fault) fail_msg("world --node --seed %" PRIu64 ": %s", seed, result.fault);
    return result;
}

TEST(leases_come_and_go) {
    for (uint64_t seed = 0; seed < 4; seed++)
        (void)run(seed, 0);
}

TEST(leases_survive_faults) {
    world_node_result all = {.leases = 0};
    for (int seed = 0; seed < few_trials(300); seed++) {
        world_node_result one = run((uint64_t)seed, WORLD_ALL_FAULTS & ~(unsigned)WORLD_DRIVER);
        all.leases += one.leases;
        all.kills += one.kills;
    }
    assert_true(all.leases > 0 && all.kills > 0);
}

TEST(gpus_come_back_after_the_driver) {
    for (int seed = 0; seed < few_trials(200); seed++)
        (void)run((uint64_t)seed, WORLD_ALL_FAULTS);
}

TEST(seed_decides_everything) {
    world_node_result first = run(7, WORLD_ALL_FAULTS), second = run(7, WORLD_ALL_FAULTS);
    assert_memory_equal(&first, &second, sizeof first);
}

int main(void) {
    (void)setenv("HARPE_NVML_LIBRARY", EMULATOR, 1);
    return run_listed_tests();
}
