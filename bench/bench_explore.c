/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how online jobs learn: random jobs, or a job with a measured profile, in virtual time.
 * Prints a line for each job and then the distribution of the results, with the goals.
 *
 *   bench_explore [--jobs N] [--seed N] [--args JSON] [--verbose]
 *                 [--latency SECONDS|random|wild] [--silent] [--law NAME|random] [--amount SHARE]
 *   bench_explore --profile FILE.csv --microbatches N --power W [--jitter SHARE] [--jobs N]
 *                 [--law NAME|random] [--amount SHARE]
 *
 * With --law, the times of the jobs break the law that the exploration assumes, in one of the ways
 * of tests/server/explored_law.h. */
#include <getopt.h>

#include "../tests/server/explored_job.h"

enum { ROUNDS_MAX = 400 };

typedef struct options {
    int jobs, microbatches;
    uint64_t seed;
    const char *args, *profile;
    double power_w, jitter;
    double latency_s; /* of changes of the clock; negative: random */
    bool is_verbose, is_silent, is_wild;
    const char *law;
    double law_amount; /* 0: random */
} options;

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints median, 90th and 99th percentile, and the largest value. */
static void print_row(const char *name, double *values, int count, double goal, double scale) {
    int met = 0;
    for (int i = 0; i < count; i++)
        met += values[i] <= goal;
    qsort(values, (size_t)count, sizeof *values, compare);
    printf("%-44s %8.3f %8.3f %8.3f %8.3f", name, scale * values[count / 2],
           scale * values[(int)(0.9 * count)], scale * values[(int)(0.99 * count)],
           scale * values[count - 1]);
    if (isfinite(goal)) printf("   <= %g: %.1f %% of jobs", scale * goal, 100.0 * met / count);
    printf("\n");
}

static void print_all(const explored_way *ways, int count) {
    static const struct {
        const char *name;
        size_t offset;
        double goal, scale;
    } rows[] = {
        {"plan: energy more than of the truth's, %", offsetof(explored_way, plan_energy), 0.005,
         100},
        {"plan: time more than T_min, %", offsetof(explored_way, plan_time), 0.005, 100},
        {"slowest round of the way, %", offsetof(explored_way, worst_time), 0.02, 100},
        {"the same of one iteration, %", offsetof(explored_way, worst_iteration), 0.02, 100},
        {"all of the way, time, %", offsetof(explored_way, mean_time), 0.01, 100},
        {"largest energy from 2nd planned round, %", offsetof(explored_way, worst_energy), 0, 100},
        {"all of the way, energy, %", offsetof(explored_way, mean_energy), INFINITY, 100},
        {"the truth's plan, energy, %", offsetof(explored_way, best_energy), INFINITY, 100},
    };
    double *values = calloc((size_t)count, sizeof *values);
    printf("%-44s %8s %8s %8s %8s\n", "", "median", "90 %", "99 %", "most");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (int i = 0; i < count; i++)
            values[i] = *(const double *)((const char *)&ways[i] + rows[r].offset);
        print_row(rows[r].name, values, count, rows[r].goal, rows[r].scale);
    }
    for (int i = 0; i < count; i++)
        values[i] = ways[i].rounds;
    print_row("rounds", values, count, INFINITY, 1);
    free(values);
}

static bool read_options(int argc, char **argv, options *out) {
    static const struct option known[] = {{"jobs", required_argument, NULL, 'j'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"args", required_argument, NULL, 'a'},
                                          {"profile", required_argument, NULL, 'p'},
                                          {"power", required_argument, NULL, 'w'},
                                          {"microbatches", required_argument, NULL, 'm'},
                                          {"jitter", required_argument, NULL, 'i'},
                                          {"latency", required_argument, NULL, 'l'},
                                          {"law", required_argument, NULL, 'b'},
                                          {"amount", required_argument, NULL, 'n'},
                                          {"silent", no_argument, NULL, 'q'},
                                          {"verbose", no_argument, NULL, 'v'},
                                          {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 'j': out->jobs = atoi(optarg); break;
        case 's': out->seed = strtoull(optarg, NULL, 10); break;
        case 'a': out->args = optarg; break;
        case 'p': out->profile = optarg; break;
        case 'w': out->power_w = atof(optarg); break;
        case 'm': out->microbatches = atoi(optarg); break;
        case 'i': out->jitter = atof(optarg); break;
        case 'l':
            out->latency_s = strcmp(optarg, "random") == 0 ? -1 : atof(optarg);
            out->is_wild = strcmp(optarg, "wild") == 0;
            break;
        case 'b': out->law = optarg; break;
        case 'n': out->law_amount = atof(optarg); break;
        case 'q': out->is_silent = true; break;
        case 'v': out->is_verbose = true; break;
        default: return false;
        }
    }
    return out->jobs > 0;
}

static char *arguments(const explored_job *s, const options *o) {
    json_t *args = json_pack("{s:i}", "num_microbatches", s->microbatches);
    json_t *own = json_loads(o->args, 0, NULL);
    json_object_update(args, own);
    char *text = json_dumps(args, JSON_COMPACT);
    json_decref(own);
    json_decref(args);
    return text;
}

/* Returns how the job with a seed breaks the law. */
static explored_law law_of(const options *o, uint64_t seed) {
    explored_law law = explored_any_law(seed);
    if (!o->law) return (explored_law){0};
    for (int i = 0; i < EXPLORED_LAWS; i++)
        if (strcmp(o->law, explored_law_names[i]) == 0) law.kind = (explored_law_kind)i;
    if (o->law_amount > 0) law.amount = o->law_amount;
    return law;
}

int main(int argc, char **argv) {
    options o = {.jobs = 1000, .seed = 1, .args = "{}", .microbatches = 24, .power_w = 83.64};
    if (!read_options(argc, argv, &o)) {
        (void)fprintf(stderr, "bench_explore: see the first lines of bench/bench_explore.c\n");
        return 2;
    }
    explored_way *ways = calloc((size_t)o.jobs, sizeof *ways);
    for (int i = 0; i < o.jobs; i++) {
        uint64_t seed = o.seed + (uint64_t)i;
        explored_job *s = o.profile
                              ? explored_measured(o.profile, law_of(&o, seed), o.microbatches,
                                                  o.power_w, o.jitter, seed)
                              : explored_under(law_of(&o, seed), seed, EXPLORED_STAGES_MAX, 24);
        char *args = arguments(s, &o);
        s->logs = o.is_verbose;
        s->is_silent = o.is_silent;
        double latency_s = o.latency_s;
        if (latency_s < 0) latency_s = pow(10, explored_uniform(s, -3, -0.7)); /* 1 to 200 ms */
        if (latency_s > 0) explored_make_late(s, latency_s);
        if (o.is_wild) explored_make_wild(s);
        must(s, simulated_open_kind(s, "Perseus", args));
        simulated_new_scheduler(s);
        ways[i] = explored_go(s, ROUNDS_MAX);
        printf("%5llu %s: %3d rounds, slowest %+.2f %%, all %+.2f %%, energy %+.2f %% (%+.2f %%), "
               "plan %+.2f %% time, %+.2f %% energy\n",
               (unsigned long long)seed, s->words, ways[i].rounds, 100 * ways[i].worst_time,
               100 * ways[i].mean_time, 100 * ways[i].mean_energy, 100 * ways[i].best_energy,
               100 * ways[i].plan_time, 100 * ways[i].plan_energy);
        (void)fflush(stdout);
        free(args);
        explored_free(s);
    }
    print_all(ways, o.jobs);
    int broken = 0;
    for (int i = 0; i < o.jobs; i++)
        broken += ways[i].worst_time > 0.01 + 1e-9;
    printf("a round more than 1 %% slower: %d of %d jobs\n", broken, o.jobs);
    free(ways);
    return 0;
}
