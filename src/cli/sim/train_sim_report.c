/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the result of a run: measured and predicted values side by side, then the run's events. */
#include "cli/sim/train_sim_report.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/job_report.h"
#include "sim/steps.h"
#include "sim/summary.h"

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

/* Returns the plan that should run in the end. */
static const harpe_sim_prediction *expected(const harpe_sim_run *run, harpe_sim_kind kind) {
    return kind == HARPE_SIM_ANSWERED ? &run->plan->slowed : &run->plan->fastest;
}

/* One clock for all GPUs, computed from the profile: the alternative that needs no planner. */
typedef struct one_clock {
    harpe_sim_prediction of;
    int clock_mhz;                             /* 0: no clock is better than the highest clocks */
    double savings_percent, more_time_percent; /* against the highest clocks */
} one_clock;

/* Finds the best clock that is as fast as the highest clocks or, if it is slower, as the steps of
 * the plan. */
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

/* Returns what measured steps save against one clock, in percent. Both are compared with the
 * highest clocks, which are measured and computed. */
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

/* Prints the measured step at the highest clocks, changed as the profile says. */
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

/* Prints the result: what the plan saves against the highest clocks and against one clock, with the
 * noise of both sides. */
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
           "profile. "
           "Against it\n  the plan saves %.2f %%%s\n",
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

/* Prints the slowest step. In real time, the ranks wake up late on a busy machine, and the time
 * scale multiplies the delay; steps to which this happened are counted. */
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
        printf(
            ". In %d of them this machine woke a rank late by more than\n  %g %% of a step (%.3f s "
            "of GPU time in the slowest step); delays of controllers are not known",
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

/* Prints what the server says of the whole job, as harpe jobs does. Leaves out its savings: the
 * server has another baseline, which it measured earlier and with fewer steps. */
static void print_trust(const harpe_sim_run *run) {
    harpe_text text = {0};
    if (!run->story.job) return;
    harpe_job_report_conduct(run->story.job, &text);
    if (text.length > 0 && !text.failed)
        printf("\n%s  the server's report of the whole job%s\n%s", harpe_bold_start(),
               harpe_bold_end(), text.data);
    harpe_text_free(&text);
}

static void print_report(const harpe_sim_run *run, const harpe_sim_summary *sums) {
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

/* Shows a number, or null if it is not known. */
static json_t *show_known(double value) { return isfinite(value) ? json_real(value) : json_null(); }

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
                     show_known(harpe_sim_summary_uncertainty(sums, kind)), "time_error_percent",
                     percent_over(of->time_s, plan->time_s), "energy_error_percent",
                     percent_over(of->energy_j, plan->energy_j));
}

static json_t *show_steps(const harpe_sim_run *run) {
    json_t *steps = json_array();
    for (int step = 0; step < run->story.step_count; step++)
        json_array_append_new(steps,
                              harpe_sim_show_step(run->board, harpe_sim_step_at(run->board, step)));
    return steps;
}

static json_t *show_baseline_steps(const harpe_sim_run *run) {
    json_t *steps = json_array();
    for (int i = 0; i < atomic_load(&run->board->baseline_count); i++)
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
    json_object_set_new(object, "steps", show_steps(run));
    json_object_set_new(object, "baseline_steps", show_baseline_steps(run));
    json_object_set(object, "frontier", run->story.frontier ? run->story.frontier : json_null());
    json_t *job = run->story.job;
    json_object_set(object, "figures", job ? json_object_get(job, "figures") : json_null());
    json_object_set(object, "report", job ? json_object_get(job, "report") : json_null());
    return object;
}

harpe_status harpe_sim_print_report(const harpe_sim_run *run, harpe_error *error) {
    harpe_sim_summary sums;
    harpe_status status = harpe_sim_summary_make(run, &sums, error);
    if (status != HARPE_OK) return status;
    if (run->options->is_json)
        status = harpe_command_print_json(show_report(run, &sums), error);
    else
        print_report(run, &sums);
    harpe_sim_summary_free(&sums);
    return status;
}
