/* SPDX-License-Identifier: Apache-2.0 */
/* Training jobs in worlds with faults. job.c says what must hold. */
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "world/job.h"

/* Runs a job in a process of its own, because killed processes of a world leave their memory. */
static world_job_result run_job(const world_job_options *options) {
    int ends[2];
    world_job_result result;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        result = world_job_run(options);
        _exit(write(ends[1], &result, sizeof result) == (ssize_t)sizeof result ? 0 : 1);
    }
    (void)close(ends[1]);
    ssize_t got = read(ends[0], &result, sizeof result);
    (void)close(ends[0]);
    (void)waitpid(child, NULL, 0);
    if (got != (ssize_t)sizeof result)
        fail_msg("seed %llu crashed", (unsigned long long)options->seed);
    return result;
}

static void run_well(uint64_t seed, unsigned faults) {
    const world_job_options options = {.seed = seed, .faults = faults};
    world_job_result result = run_job(&options);
    if (*result.fault) fail_msg("world --seed %llu: %s", (unsigned long long)seed, result.fault);
}

TEST(jobs_train_without_faults) {
    for (int i = 0; i < few_trials(20); i++)
        run_well(500 + (uint64_t)i, 0);
}

TEST(jobs_survive_faults) {
    for (int i = 0; i < few_trials(100); i++)
        run_well(1000000 + (uint64_t)i, WORLD_ALL_FAULTS);
}

/* Seeds 119, 1042 and 1000003 found that a rank whose first schedule did not arrive waited without
 * end, and with it the job: its next request had no round, so it was for the round after. */
TEST(first_schedule_may_be_lost) {
    for (world_first_schedule first = WORLD_FIRST_IS_CUT; first <= WORLD_FIRST_IS_LOST; first++) {
        const world_job_options options = {.seed = 4, .ranks = 2, .steps = 20, .first = first};
        world_job_result result = run_job(&options);
        if (*result.fault) fail_msg("case %d: %s", (int)first, result.fault);
    }
}

TEST(same_seed_gives_the_same_run) {
    for (uint64_t seed = 700; seed < 702; seed++) {
        const world_job_options options = {.seed = seed, .faults = WORLD_ALL_FAULTS};
        world_job_result one = run_job(&options);
        world_job_result other = run_job(&options);
        assert_memory_equal(&one.digest, &other.digest, sizeof one.digest);
        assert_int_equal(one.turns, other.turns);
        assert_true(one.virtual_s == other.virtual_s && one.energy_j == other.energy_j);
        assert_true(one.steps > 0 && one.turns > 1000);
        assert_int_equal(one.message_faults, other.message_faults);
    }
}

/* The checks notice what they are for. */
TEST(sabotage_is_noticed) {
    static const struct {
        world_sabotage sabotage;
        unsigned faults;
        const char *expected[2];
    } cases[] = {
        {WORLD_IGNORES_SYNCS, WORLD_KILLS | WORLD_STORE, {"the server has", "after round"}},
        {WORLD_KILLS_PAIRS, WORLD_KILLS, {"without a holder", "without a holder"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool is_noticed = false;
        for (uint64_t seed = 0; seed < 200 && !is_noticed; seed++) {
            const world_job_options options = {
                .seed = seed, .faults = cases[i].faults, .sabotage = cases[i].sabotage};
            world_job_result result = run_job(&options);
            for (int k = 0; k < 2; k++)
                is_noticed = is_noticed || strstr(result.fault, cases[i].expected[k]);
        }
        if (!is_noticed) fail_msg("sabotage %d is not noticed", (int)cases[i].sabotage);
    }
}
