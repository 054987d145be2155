/* SPDX-License-Identifier: Apache-2.0 */
/* `world --seed N`: runs one training job, or one machine with a node agent, in a world with
 * faults, and says what did not hold. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/number.h"
#include "world/job.h"
#include "world/node.h"

static int show_usage(FILE *to, int code) {
    fprintf(
        to,
        "Usage: world --seed N [--count N] [--faults LIST] [--ranks N] [--steps N] [--trace]\n"
        "       world --node --seed N [--count N] [--faults LIST] [--trace]\n\n"
        "Runs a training job in virtual time in this process: ranks, optimizers, controllers,\n"
        "emulated GPUs, the server and its store. The seed decides the job and its faults, so\n"
        "that a failure can be repeated. Prints a line for each seed. Exits with 1 if something\n"
        "did not hold.\n\n"
        "  --node         a machine: the node agent, trainers that take leases, and helper "
        "processes\n"
        "  --seed N       the seed, from 0 on\n"
        "  --count N      also the N-1 seeds after it, each in a process of its own (1)\n"
        "  --faults LIST  all (default), none, or some of\n"
        "                 %s\n"
        "  --ranks N      ranks of the job, 1 to 8 (drawn)\n"
        "  --steps N      training steps (drawn)\n"
        "  --trace        prints each event with its virtual time\n",
        world_fault_names);
    return code;
}

static bool read_number(const char *text, int64_t least, int64_t most, int64_t *out) {
    return text && harpe_parse_int(text, strlen(text), out) && *out >= least && *out <= most;
}

static int fail_argument(const char *argument, const char *expected) {
    fprintf(stderr, "world: %s: expected %s; see world --help\n", argument, expected);
    return 2;
}

static bool run_node(const world_job_options *options) {
    const world_node_options node = {options->seed, options->faults, options->trace};
    world_node_result result = world_node_run(&node);
    printf("seed %" PRIu64 ": %d GPUs, %d trainers, %d leases, %.3f s, %" PRIu64
           " turns; faults: %d kills, %d stops, %d stalls, %d jumps, %d of the driver; %s%s\n",
           options->seed, result.gpus, result.trainers, result.leases, result.virtual_s,
           result.turns, result.kills, result.stops, result.stalls, result.jumps,
           result.driver_faults, *result.fault ? "FAILED " : "well", result.fault);
    (void)fflush(stdout);
    return !*result.fault;
}

static bool run_job(const world_job_options *options) {
    world_job_result result = world_job_run(options);
    printf("seed %" PRIu64 ": %d ranks, %d steps, round %" PRId64 ", %.3f s, %.3f J, %" PRIu64
           " turns; faults: %d messages, %d kills, %d stalls, %d jumps, %d of the driver, %d of "
           "the store; digest %016" PRIx64 "; %s%s\n",
           options->seed, result.ranks, result.steps, result.last_round, result.virtual_s,
           result.energy_j, result.turns, result.message_faults, result.kills, result.stalls,
           result.jumps, result.driver_faults, result.store_faults, result.digest,
           *result.fault ? "FAILED " : "well", result.fault);
    (void)fflush(stdout);
    return !*result.fault;
}

static bool is_node;

static bool run(const world_job_options *options) {
    return is_node ? run_node(options) : run_job(options);
}

/* Runs it in a process of its own, because a killed process of the world leaves its memory. */
static bool run_apart(const world_job_options *options) {
    int status;
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(run(options) ? 0 : 1);
    if (child < 0 || waitpid(child, &status, 0) != child) return false;
    if (WIFSIGNALED(status))
        printf("seed %" PRIu64 ": FAILED by signal %d\n", options->seed, WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv) {
    world_job_options options = {.faults = WORLD_ALL_FAULTS};
    (void)setenv("TMPDIR", "/dev/shm", 0); /* the files of a run */
    int64_t seed = -1, ranks = 0, steps = 0, count = 1;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0) return show_usage(stdout, 0);
        if (strcmp(argv[i], "--node") == 0) {
            is_node = setenv("HARPE_NVML_LIBRARY", EMULATOR, 1) == 0;
            continue;
        }
        if (strcmp(argv[i], "--trace") == 0) {
            options.trace = stdout;
            continue;
        }
        if (strcmp(argv[i], "--seed") == 0 && !read_number(value, 0, INT64_MAX, &seed))
            return fail_argument(argv[i], "a number");
        if (strcmp(argv[i], "--count") == 0 && !read_number(value, 1, 1000000000, &count))
            return fail_argument(argv[i], "a number from 1 on");
        if (strcmp(argv[i], "--ranks") == 0 && !read_number(value, 1, 8, &ranks))
            return fail_argument(argv[i], "a number from 1 to 8");
        if (strcmp(argv[i], "--steps") == 0 && !read_number(value, 1, 10000, &steps))
            return fail_argument(argv[i], "a number from 1 to 10000");
        if (strcmp(argv[i], "--faults") == 0 &&
            (!value || !world_faults_read(value, &options.faults)))
            return fail_argument(argv[i], world_fault_names);
        if (strcmp(argv[i], "--seed") != 0 && strcmp(argv[i], "--count") != 0 &&
            strcmp(argv[i], "--ranks") != 0 && strcmp(argv[i], "--steps") != 0 &&
            strcmp(argv[i], "--faults") != 0)
            return fail_argument(argv[i], "a flag");
        i++;
    }
    if (seed < 0) return show_usage(stderr, 2);
    options.ranks = (int)ranks;
    options.steps = (int)steps;
    int failed = 0;
    for (int64_t i = 0; i < count; i++) {
        options.seed = (uint64_t)(seed + i);
        failed += count == 1 ? !run(&options) : !run_apart(&options);
    }
    return failed > 0;
}
