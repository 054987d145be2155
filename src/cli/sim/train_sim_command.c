/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe train-sim`: runs a simulated training job (src/sim) and prints the report: measured and
 * predicted values side by side, then the run's events. docs/simulation.md describes the values. */
#include <math.h>

#include <harpe/profile.h>

#include "cli/cli.h"
#include "sim/sim.h"

#define REAL_LIMIT_S 600.0
#define VIRTUAL_LIMIT_S 20000.0 /* of the GPUs' time */

enum { STEPS_MAX = HARPE_SIM_STEP_MAX / 2 };

/* Reads an event, "[RANK@][+]STEP[=FACTOR]". */
static void read_event(void *into, struct argp_state *state, const char *flag, char *text) {
    bool has_factor = strcmp(flag, "--straggler") == 0;
    bool has_rank = has_factor || strcmp(flag, "--kill-rank") == 0;
    const char *at = has_rank ? strchr(text, '@') : NULL;
    const char *equals = has_factor ? strchr(text, '=') : NULL;
    const char *step = at ? at + 1 : text;
    bool is_after_steady = *step == '+';
    step += is_after_steady;
    size_t step_length = equals && equals > step ? (size_t)(equals - step) : strlen(step);
    int64_t rank = 0, number = 0;
    double factor = 1;
    bool is_good =
        harpe_parse_int(step, step_length, &number) && number >= 0 && number < HARPE_SIM_STEP_MAX;
    if (has_rank)
        is_good = is_good && at && harpe_parse_int(text, (size_t)(at - text), &rank) && rank >= 0 &&
                  rank < HARPE_SIM_RANK_MAX;
    if (has_factor)
        is_good = is_good && equals &&
                  harpe_parse_double(equals + 1, strlen(equals + 1), &factor) && factor >= 1 &&
                  factor <= 100;
    if (!is_good)
        harpe_flag_fail(
            state,
            "%s: expected %s%s%s, found '%s'; a step such as +5 counts from the steady state", flag,
            has_rank ? "RANK@" : "", "STEP", has_factor ? "=FACTOR" : "", text);
    *(harpe_sim_event *)into = (harpe_sim_event){.is_given = true,
                                                 .is_after_steady = is_after_steady,
                                                 .rank = (int)rank,
                                                 .step = (int)number,
                                                 .factor = factor};
}

static void read_json(void *into, struct argp_state *state, const char *flag, char *text) {
    json_t *value = json_loads(text, 0, NULL);
    bool is_object = json_is_object(value);
    json_decref(value);
    if (!is_object) harpe_flag_fail(state, "%s: expected a JSON object, found '%s'", flag, text);
    *(const char **)into = text;
}

/* Sets the variable, which the processes of the ranks read, too. */
static void set_ca_file(void *into, struct argp_state *state, const char *flag, char *text) {
    (void)into;
    if (setenv("HARPE_CA_FILE", text, 1) != 0) harpe_flag_fail(state, "%s: out of memory", flag);
}

static const harpe_flag flags[] = {
    {.help = "The job:", .group = 1},
    {"inst-profile", 'i', "FILE",
     "Measured profile that the GPUs follow (default: a synthesised one)", 1,
     HARPE_INTO(harpe_sim_options, profile_path)},
    {"p2p-power", 0, "W", "Power of a GPU that waits for a peer (default: the GPU model's own)", 1,
     HARPE_INTO(harpe_sim_options, blocking_power_w), 0, 1000, .is_above = true},
    {"pp", 0, "N", "Ranks of a pipeline (4)", 1, HARPE_INTO(harpe_sim_options, pp), 1,
     HARPE_SIM_RANK_MAX},
    {"stages", .how = OPTION_ALIAS, .group = 1},
    {"dp", 0, "N", "Pipelines that share the data (1)", 1, HARPE_INTO(harpe_sim_options, dp), 1,
     HARPE_SIM_RANK_MAX},
    {"tp", 0, "N", "GPUs that share a stage (1)", 1, HARPE_INTO(harpe_sim_options, tp), 1,
     HARPE_SIM_RANK_MAX},
    {"num-mbs", 0, "N", "Microbatches of a step (8)", 1,
     HARPE_INTO(harpe_sim_options, microbatches), 1, 10000},
    {"schedule", 0, "NAME", "Pipeline schedule (1f1b); see harpe plan --help", 1,
     HARPE_INTO(harpe_sim_options, schedule_name)},
    {"chunks", 0, "N", "Stages per rank, if the schedule has several", 1,
     HARPE_INTO(harpe_sim_options, chunks), 1, 64},
    {"microbatch-group-size", 0, "N", "interleaved-1f1b: see harpe plan --help", 1,
     HARPE_INTO(harpe_sim_options, group_size), 1, 10000},
    {"overlap-moe-expert-parallel-comm", 0, NULL,
     "interleaved-1f1b and 1f1b: see harpe plan --help", 1,
     HARPE_INTO(harpe_sim_options, overlaps_moe_expert_parallel_comm)},
    {"gpu", 0, "MODEL", "Emulated GPU: V100, A40, A100 or H100 (A100)", 1,
     HARPE_READ(harpe_gpu_model_read, harpe_sim_options, gpu_model)},
    {"physics", 0, "ideal|real|FILE",
     "How the GPUs differ from ideal ones; see harpe emulate --help (ideal)", 1,
     HARPE_INTO(harpe_sim_options, physics)},
    {"imbalance", 0, "X", "Synthesised: slowest stage divided by the mean (1.15)", 1,
     HARPE_INTO(harpe_sim_options, imbalance), 1, 10},
    {"forward-time", 0, "S", "Synthesised: mean forward time (0.05)", 1,
     HARPE_INTO(harpe_sim_options, forward_time_s), 0.001, 100},
    {"seed", 0, "N", "Seed of the synthesised profile and of the physics (1)", 1,
     HARPE_INTO(harpe_sim_options, seed), 0, INT32_MAX},
    {.help = "The optimizer:", .group = 2},
    {"anticipate", 0, NULL, "Set clocks that change late before their instructions begin", 2,
     HARPE_INTO(harpe_sim_options, may_anticipate)},
    {"offline", 0, NULL,
     "Serve the plan of T_min made from the profile, instead of learning it online", 2,
     HARPE_INTO(harpe_sim_options, is_offline)},
    {"plan", 0, "FILE.py", "Serve this plan", 2, HARPE_INTO(harpe_sim_options, plan_path)},
    {"scheduler", 0, "NAME", "The server's scheduler (Perseus without a profile)", 2,
     HARPE_INTO(harpe_sim_options, scheduler)},
    {"scheduler-args", 0, "JSON", "Its arguments", 2,
     HARPE_READ(read_json, harpe_sim_options, scheduler_args)},
    {"server", 0, "URL", "Use a running server, with its own scheduler; implies --real-time", 2,
     HARPE_INTO(harpe_sim_options, server_url)},
    {"ca-file", 0, "FILE", "Trust these certificate authorities (PEM)", 2, .read = set_ca_file},
    {.help = "The run:", .group = 3},
    {"steps", 0, "N", "Steps to measure after the plan has started (10)", 3,
     HARPE_INTO(harpe_sim_options, steps), 1, STEPS_MAX},
    {"real-time", 0, NULL, "Run in real processes that wait for real time, and over HTTP", 3,
     HARPE_INTO(harpe_sim_options, is_real_time)},
    {"time-scale", 0, "X",
     "In real time: the GPUs' time runs X times as fast (10); implies --real-time", 3,
     HARPE_INTO(harpe_sim_options, time_scale), 0.1, 1000,
     .given = offsetof(harpe_sim_options, is_real_time)},
    {"learning-limit", 0, "S",
     "Give up if there is no plan after S seconds (in real time 600, otherwise 20000)", 3,
     HARPE_INTO(harpe_sim_options, learning_limit_s), 0, 1e6, .is_above = true},
    {"straggler", 0, "RANK@STEP=FACTOR",
     "Throttle the rank's GPU from this step on, and report it to the server", 3,
     HARPE_READ(read_event, harpe_sim_options, straggler)},
    {"kill-rank", 0, "RANK@STEP", "Kill the rank, and restart the job", 3,
     HARPE_READ(read_event, harpe_sim_options, kill_rank)},
    {"restart-server", 0, "STEP", "Kill the server, and restart it with its store", 3,
     HARPE_READ(read_event, harpe_sim_options, restart_server)},
    {.help = "Output:", .group = 4},
    {"json", 0, NULL, "Print the result as JSON", 4, HARPE_INTO(harpe_sim_options, is_json)},
    {"log-steps", 0, "FILE", "Write a line of JSON to FILE after each step", 4,
     HARPE_INTO(harpe_sim_options, step_log_path)},
    {"quiet", 'q', NULL, "Show no progress and no warnings", 4,
     HARPE_INTO(harpe_sim_options, is_quiet)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .about =
        "Train on emulated GPUs with everything else real: the optimizer of each rank, its "
        "controller, the coordination server. They run in virtual time, in one process, and print "
        "the same figures on every machine; --real-time runs them in processes of their own. "
        "Prints the time and energy at the highest clocks, the predictions of the plan, and the "
        "time and energy with the optimizer.\vExamples:\n  harpe train-sim\n  harpe train-sim "
        "--inst-profile gpt3.csv --p2p-power 84 --pp 8 --num-mbs 32 \\\n      --offline\n\n"
        "See also: man harpe-train-sim",
};

static void check_together(const struct argp_state *state, const harpe_sim_options *options) {
    int ranks = harpe_sim_world_size(options);
    int ways = options->is_offline + (options->plan_path != NULL) + (options->scheduler != NULL) +
               (options->server_url != NULL);
    if (ranks > HARPE_SIM_RANK_MAX)
        harpe_flag_fail(state, "--pp, --dp and --tp: %d ranks are more than the emulator's %d GPUs",
                        ranks, HARPE_SIM_RANK_MAX);
    if (ways > 1)
        harpe_flag_fail(state, "--offline, --plan, --scheduler and --server exclude each other");
    if (options->straggler.rank >= ranks || options->kill_rank.rank >= ranks)
        harpe_flag_fail(state, "--straggler, --kill-rank: ranks are 0 to %d", ranks - 1);
    if (options->restart_server.is_given && options->server_url)
        harpe_flag_fail(state, "--restart-server: the server at --server is not ours");
}

/* Chooses real time if other programs take part: a running server, a foreign scheduler. */
static void choose_time(harpe_sim_options *options) {
    const char *scheduler = options->scheduler ? options->scheduler : "";
    if (options->server_url || strpbrk(scheduler, ":/.")) options->is_real_time = true;
    if (!options->is_real_time) options->time_scale = 1;
    if (options->learning_limit_s == 0)
        options->learning_limit_s = options->is_real_time ? REAL_LIMIT_S : VIRTUAL_LIMIT_S;
}

/* Fills in `options`. Messages of the run are printed to stderr. Prints an error and exits if the
 * command line is invalid. */
static void parse_options(int argc, char **argv, harpe_sim_options *options) {
    *options = (harpe_sim_options){.gpu_model = "A100",
                                   .imbalance = HARPE_SIM_IMBALANCE,
                                   .seed = 1,
                                   .blocking_power_w = -1,
                                   .schedule_name = "1f1b",
                                   .microbatches = 8,
                                   .pp = 4,
                                   .dp = 1,
                                   .tp = 1,
                                   .steps = 10,
                                   .time_scale = 10,
                                   .log = harpe_command_log("harpe train-sim")};
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, options);
    check_together(&state, options);
    choose_time(options);
}

static double percent_over(double value, double reference) {
    double percent = reference > 0 ? 100 * (value / reference - 1) : 0;
    return fabs(percent) < 0.005 ? 0 : percent;
}

static double savings_percent(double energy_j, double highest_j) {
    return 0.0 - percent_over(energy_j, highest_j); /* never minus zero */
}

static double power_w(const harpe_sim_run *run, double time_s, double energy_j) {
    return time_s > 0 ? energy_j / time_s / run->board->world_size : 0;
}

/* Returns the prediction with which measured steps of this kind are compared. */
static const harpe_sim_prediction *expected(const harpe_sim_run *run, harpe_sim_kind kind) {
    return kind == HARPE_SIM_ANSWERED ? &run->plan->slowed : &run->plan->fastest;
}

/* One clock for all GPUs, as the profile predicts it. A user can set it without a planner. */
typedef struct one_clock {
    harpe_sim_prediction of;
    int clock_mhz;                             /* 0: no clock is better than the highest clocks */
    double savings_percent, more_time_percent; /* against the highest clocks */
} one_clock;

/* Finds the clock of least energy that is as fast as the highest clocks, or as fast as the steps of
 * the plan if those are slower. `planned`: the steps of the plan; NULL: none. */
static one_clock find_one_clock(const harpe_sim_run *run, const harpe_sim_stretch *highest,
                                const harpe_sim_stretch *planned) {
    const harpe_sim_prediction *all = &run->plan->all_maximum;
    bool is_measured = planned && planned->steps > 0 && highest->steps > 0;
    double slowdown = is_measured ? fmax(1, planned->time_s / highest->time_s) : 1;
    one_clock found;
    found.of = harpe_sim_predict_one_clock(run->options, run->plan, slowdown, &found.clock_mhz);
    found.savings_percent = savings_percent(found.of.energy_j, all->energy_j);
    found.more_time_percent = percent_over(found.of.time_s, all->time_s);
    return found;
}

/* Returns what measured steps save against one clock, in percent. The energy of one clock is the
 * measured energy of the highest clocks without the savings that the profile predicts. */
static double savings_against(const one_clock *of, double energy_j, double highest_j) {
    return savings_percent(energy_j, highest_j * (1 - of->savings_percent / 100));
}

/* ---- For people ------------------------------------------------------------------------------ */

static void print_measured(const harpe_sim_run *run, const char *name,
                           const harpe_sim_stretch *measured, double highest_j) {
    if (measured->steps == 0) return;
    printf("  %-26s %10.4f s %11.1f J %9.1f W %8.2f %% %9.1f\n", name, measured->time_s,
           measured->energy_j, power_w(run, measured->time_s, measured->energy_j),
           savings_percent(measured->energy_j, highest_j),
           measured->clock_writes / measured->steps);
}

static void print_difference(const char *name, const harpe_sim_stretch *measured,
                             const harpe_sim_prediction *predicted) {
    if (measured->steps == 0) return;
    printf("  %-26s %+10.2f %% %+11.2f %%\n", name,
           percent_over(measured->time_s, predicted->time_s),
           percent_over(measured->energy_j, predicted->energy_j));
}

/* Prints a step with one clock: the measured step at the highest clocks, changed by the differences
 * that the profile predicts. */
static void print_one_clock(const harpe_sim_run *run, const harpe_sim_stretch *highest,
                            const one_clock *of) {
    double time_s = highest->time_s * (1 + of->more_time_percent / 100);
    double energy_j = highest->energy_j * (1 - of->savings_percent / 100);
    if (highest->steps == 0) return;
    char name[64] = "one clock: none saves";
    if (of->clock_mhz > 0) snprintf(name, sizeof name, "one clock, %d MHz", of->clock_mhz);
    printf("  %-26s %10.4f s %11.1f J %9.1f W %8.2f %% %9s\n", name, time_s, energy_j,
           power_w(run, time_s, energy_j), of->savings_percent, "-");
}

static void print_sides(const harpe_sim_run *run, const harpe_sim_summary *sums) {
    const harpe_sim_plan *plan = run->plan;
    const harpe_sim_stretch *highest = &sums->kinds[HARPE_SIM_HIGHEST_CLOCKS];
    printf("%s  %-26s %12s %13s %11s %10s %9s%s\n", harpe_bold_start(), "per step", "time",
           "energy", "power/GPU", "savings", "clk sets", harpe_bold_end());
    print_measured(run, "highest clocks", highest, highest->energy_j);
    print_difference("  against the profile", highest, &plan->all_maximum);
    one_clock as_fast = find_one_clock(run, highest, NULL);
    one_clock as_slow = find_one_clock(run, highest, &sums->kinds[HARPE_SIM_PLANNED]);
    print_one_clock(run, highest, &as_fast);
    if (as_slow.clock_mhz != as_fast.clock_mhz) print_one_clock(run, highest, &as_slow);
    print_measured(run, "under the optimizer", &sums->kinds[HARPE_SIM_PLANNED], highest->energy_j);
    if (!run->options->scheduler && !run->options->server_url)
        print_difference("  against the plan", &sums->kinds[HARPE_SIM_PLANNED], &plan->fastest);
    if (run->story.straggler_step < 0) return;
    const harpe_sim_stretch *answered = &sums->kinds[HARPE_SIM_ANSWERED];
    print_measured(run, "straggler",
                   answered->steps ? answered : &sums->kinds[HARPE_SIM_UNANSWERED],
                   highest->energy_j);
    print_difference("  against the plan", answered, &plan->slowed);
}

/* Prints what the plan saves against the highest clocks and against one clock. A saving that is not
 * larger than its uncertainty is within noise. */
static void print_savings(const harpe_sim_run *run, const harpe_sim_summary *sums) {
    const harpe_sim_stretch *highest = &sums->kinds[HARPE_SIM_HIGHEST_CLOCKS];
    const harpe_sim_stretch *planned = &sums->kinds[HARPE_SIM_PLANNED];
    double uncertainty = harpe_sim_summary_uncertainty(sums, HARPE_SIM_PLANNED);
    if (planned->steps == 0 || highest->steps == 0) return;
    double saved = savings_percent(planned->energy_j, highest->energy_j);
    printf("\n  The plan saves %.2f %% of the energy", saved);
    if (isfinite(uncertainty))
        printf(" (+- %.2f %%%s)", uncertainty, fabs(saved) > uncertainty ? "" : ", within noise");
    printf(" and takes %+.2f %% time: %d %s, in turns with %d at\n  the highest clocks\n",
           percent_over(planned->time_s, highest->time_s), planned->steps,
           planned->steps == 1 ? "step" : "steps", highest->steps);
    one_clock other = find_one_clock(run, highest, planned);
    double saved_more = savings_against(&other, planned->energy_j, highest->energy_j);
    printf("  One clock for all GPUs saves %.2f %% and takes %+.2f %% time, computed from the "
           "profile. Against it\n  the plan saves %.2f %%%s\n",
           other.savings_percent, other.more_time_percent, saved_more,
           isfinite(uncertainty) && fabs(saved_more) <= uncertainty ? " (within noise)" : "");
}

static void print_history(const harpe_sim_summary *sums) {
    const harpe_sim_stretch *highest = &sums->kinds[HARPE_SIM_HIGHEST_CLOCKS];
    printf("\n%s  %-26s %6s %12s %12s %12s %12s%s\n", harpe_bold_start(), "history", "steps",
           "rounds", "time/step", "energy/step", "cost", harpe_bold_end());
    for (int k = 0; k < HARPE_SIM_KINDS; k++) {
        const harpe_sim_stretch *kind = &sums->kinds[k];
        char rounds[64] = "-";
        if (kind->steps == 0) continue;
        if (kind->last_round >= 0)
            snprintf(rounds, sizeof rounds, "%lld-%lld", (long long)kind->first_round,
                     (long long)kind->last_round);
        printf("  %-26s %6d %12s %+10.2f %% %+10.2f %%", kind->name, kind->steps, rounds,
               percent_over(kind->time_s, highest->time_s),
               percent_over(kind->energy_j, highest->energy_j));
        printf(" %+10.1f s\n", kind->total_s - kind->steps * highest->time_s);
    }
}

/* Prints the slowest step. In real time, a busy machine wakes ranks late, and the time scale
 * multiplies the delay. The text then says in how many slow steps this has happened. */
static void print_slow(const harpe_sim_run *run, const harpe_sim_summary *sums) {
    const harpe_sim_slow *slow = &sums->slow;
    double usual_s = sums->kinds[HARPE_SIM_HIGHEST_CLOCKS].time_s;
    if (slow->slowest < 0) return;
    printf("\n  slowest of %d steps: %+.2f %% time (step %d), compared with the highest clocks\n",
           slow->steps, percent_over(slow->slowest_s, usual_s), slow->slowest);
    if (slow->slow_steps == 0) return;
    printf("  %d %s more than %g %% slower", slow->slow_steps,
           slow->slow_steps == 1 ? "step was" : "steps were", 100 * HARPE_SIM_SLOW_SHARE);
    if (run->options->is_real_time)
        printf(". In %d of them this machine woke a rank late by more than\n  %g %% of a step "
               "(%.3f s of GPU time in the slowest step); delays of controllers are not known",
               slow->late_steps, 100 * HARPE_SIM_SLOW_SHARE, slow->late_s);
    printf("\n");
}

static void print_events(const harpe_sim_run *run) {
    const harpe_sim_story *story = &run->story;
    const harpe_sim_options *options = run->options;
    const char *of_time = options->is_real_time ? "real time" : "virtual time";
    if (story->straggler_step >= 0) {
        printf("\n  Straggler: rank %d was %.3g times as slow from step %d on",
               options->straggler.rank, options->straggler.factor, story->straggler_step);
        if (story->answered_step >= 0)
            printf("; its plan ran from step %d (round %lld)", story->answered_step,
                   (long long)story->straggler_round);
        printf("\n");
    }
    if (story->kill_step >= 0)
        printf("\n  Rank %d was killed in step %d: its GPU was free after %.2f s, the job trained "
               "again after %.2f s\n  of %s\n",
               options->kill_rank.rank, story->kill_step, story->gpu_back_s, story->downtime_s,
               of_time);
    if (story->restart_step >= 0)
        printf("\n  The server was killed in step %d and answered again after %.2f s of %s\n",
               story->restart_step, story->server_gone_s, of_time);
}

/* Prints the server's report of the whole job, as `harpe jobs` does, but without the savings. The
 * server has another baseline, which it has measured earlier and with fewer steps. */
static void print_trust(const harpe_sim_run *run) {
    harpe_text text = {0};
    if (!run->story.job) return;
    harpe_job_report_conduct(run->story.job, &text);
    if (text.length > 0 && !text.failed)
        printf("\n%s  the server's report of the whole job%s\n%s", harpe_bold_start(),
               harpe_bold_end(), text.data);
    harpe_text_free(&text);
}

static void print_for_people(const harpe_sim_run *run, const harpe_sim_summary *sums) {
    const harpe_sim_options *options = run->options;
    printf("%d emulated %s (pp %d, dp %d, tp %d), %s, %d microbatches, %s; ",
           run->board->world_size, options->gpu_model, options->pp, options->dp, options->tp,
           options->schedule_name, options->microbatches,
           options->server_url ? "server's own scheduler" : run->server->scheduler);
    if (options->is_real_time)
        printf("time runs %g times as fast\n\n", options->time_scale);
    else
        printf("virtual time\n\n");
    if (options->physics) printf("Physics of the GPUs: %s\n\n", options->physics);
    print_sides(run, sums);
    print_savings(run, sums);
    print_history(sums);
    print_slow(run, sums);
    print_events(run);
    print_trust(run);
}

/* ---- For programs ---------------------------------------------------------------------------- */

static json_t *show_prediction(const harpe_sim_run *run, const harpe_sim_prediction *of) {
    return json_pack("{s:f, s:f, s:f}", "time_s", of->time_s, "energy_j", of->energy_j,
                     "average_power_w", power_w(run, of->time_s, of->energy_j));
}

static json_t *show_one_clock(const harpe_sim_run *run, const one_clock *of) {
    json_t *shown = show_prediction(run, &of->of);
    json_object_set_new(shown, "frequency_mhz", json_integer(of->clock_mhz));
    return shown;
}

static json_t *show_stretch(const harpe_sim_run *run, const harpe_sim_summary *sums,
                            harpe_sim_kind kind) {
    const harpe_sim_stretch *of = &sums->kinds[kind];
    double highest_j = sums->kinds[HARPE_SIM_HIGHEST_CLOCKS].energy_j;
    if (of->steps == 0) return json_null();
    const harpe_sim_prediction *plan =
        kind == HARPE_SIM_HIGHEST_CLOCKS ? &run->plan->all_maximum : expected(run, kind);
    one_clock one = find_one_clock(run, &sums->kinds[HARPE_SIM_HIGHEST_CLOCKS], of);
    return json_pack("{s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:f, s:f}",
                     "steps", of->steps, "first_round", (json_int_t)of->first_round, "last_round",
                     (json_int_t)of->last_round, "time_s", of->time_s, "energy_j", of->energy_j,
                     "mean_time_s", of->total_s / of->steps, "worst_time_s",
                     of->times_s[of->steps - 1], "mean_energy_j", of->total_j / of->steps,
                     "average_power_w", power_w(run, of->time_s, of->energy_j), "clock_writes",
                     of->clock_writes / of->steps, "savings_percent",
                     savings_percent(of->energy_j, highest_j), "one_clock_savings_percent",
                     savings_against(&one, of->energy_j, highest_j), "savings_uncertainty_percent",
                     harpe_command_json_number(harpe_sim_summary_uncertainty(sums, kind)),
                     "time_error_percent", percent_over(of->time_s, plan->time_s),
                     "energy_error_percent", percent_over(of->energy_j, plan->energy_j));
}

/* Returns an array of `count` steps of the board, beginning with the step at index `first`. */
static json_t *show_steps(const harpe_sim_run *run, int first, int count) {
    json_t *steps = json_array();
    for (int i = first; i < first + count; i++)
        json_array_append_new(
            steps, harpe_sim_show_step(run->board, harpe_sim_baseline_at(run->board, i)));
    return steps;
}

static json_t *show_story(const harpe_sim_run *run) {
    const harpe_sim_story *story = &run->story;
    return json_pack("{s:I, s:i, s:i, s:i, s:I, s:i, s:f, s:f, s:i, s:f}", "planned_round",
                     (json_int_t)harpe_sim_planned_round(story), "steady_step", story->steady_step,
                     "straggler_step", story->straggler_step, "answered_step", story->answered_step,
                     "straggler_round", (json_int_t)story->straggler_round, "kill_step",
                     story->kill_step, "gpu_back_s", story->gpu_back_s, "downtime_s",
                     story->downtime_s, "restart_step", story->restart_step, "server_gone_s",
                     story->server_gone_s);
}

static json_t *show_ranks(const harpe_sim_run *run) {
    json_t *ranks = json_array();
    for (int r = 0; r < run->board->world_size; r++) {
        harpe_sim_rank_state *state = &run->board->rank[r];
        json_array_append_new(ranks,
                              json_pack("{s:i, s:I, s:I}", "rank", r, "misfits",
                                        (json_int_t)atomic_load(&state->mismatches), "reconnects",
                                        (json_int_t)atomic_load(&state->reconnects)));
    }
    return ranks;
}

static json_t *show_job(const harpe_sim_run *run) {
    const harpe_sim_options *options = run->options;
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:f, s:b, s:f, s:s}", "gpu",
                     options->gpu_model, "physics", options->physics ? options->physics : "ideal",
                     "pp", options->pp, "dp", options->dp, "tp", options->tp, "microbatches",
                     options->microbatches, "schedule", options->schedule_name, "blocking_power_w",
                     run->plan->blocking_power_w, "virtual_time", !options->is_real_time,
                     "time_scale", options->time_scale, "scheduler",
                     options->server_url ? "" : run->server->scheduler);
}

static json_t *show_report(const harpe_sim_run *run, const harpe_sim_summary *sums) {
    json_t *object = show_job(run);
    const harpe_sim_stretch *highest = &sums->kinds[HARPE_SIM_HIGHEST_CLOCKS];
    one_clock as_fast = find_one_clock(run, highest, NULL);
    one_clock as_slow = find_one_clock(run, highest, &sums->kinds[HARPE_SIM_PLANNED]);
    json_object_set_new(object, "predicted",
                        json_pack("{s:o, s:{s:o, s:o}, s:o, s:o}", "highest_clocks",
                                  show_prediction(run, &run->plan->all_maximum), "one_clock",
                                  "highest_clocks", show_one_clock(run, &as_fast), "plan",
                                  show_one_clock(run, &as_slow), "plan",
                                  show_prediction(run, &run->plan->fastest), "straggler",
                                  show_prediction(run, &run->plan->slowed)));
    static const char *const keys[] = {"highest_clocks", "no_schedule",          "learning",
                                       "plan",           "straggler_unanswered", "straggler"};
    json_t *measured = json_object();
    for (int k = 0; k < HARPE_SIM_KINDS; k++)
        json_object_set_new(measured, keys[k], show_stretch(run, sums, (harpe_sim_kind)k));
    json_object_set_new(object, "measured", measured);
    json_object_set_new(object, "story", show_story(run));
    json_object_set_new(object, "ranks", show_ranks(run));
    json_object_set_new(object, "steps",
                        show_steps(run, HARPE_SIM_BASELINE_MAX, run->story.step_count));
    json_object_set_new(object, "baseline_steps",
                        show_steps(run, 0, atomic_load(&run->board->baseline_count)));
    json_object_set(object, "frontier", run->story.frontier ? run->story.frontier : json_null());
    json_t *job = run->story.job;
    json_object_set(object, "figures", job ? json_object_get(job, "figures") : json_null());
    json_object_set(object, "report", job ? json_object_get(job, "report") : json_null());
    return object;
}

/* Prints the report for people, or as JSON with --json. */
static harpe_status print_report(const harpe_sim_run *run, harpe_error *error) {
    harpe_sim_summary sums;
    harpe_status status = harpe_sim_summary_make(run, &sums, error);
    if (status != HARPE_OK) return status;
    if (run->options->is_json)
        status = harpe_command_print_json(show_report(run, &sums), error);
    else
        print_for_people(run, &sums);
    harpe_sim_summary_free(&sums);
    return status;
}

int harpe_train_sim_command(int argc, char **argv) {
    harpe_sim_options options;
    harpe_error error;
    parse_options(argc, argv, &options);
    harpe_command_catch_signals(); /* a signal now ends the run cleanly */
    harpe_sim_staging staging = {.report = print_report};
    harpe_status status = harpe_sim_run_job(&options, &staging, &error);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("train-sim", &error);
}
