// SPDX-License-Identifier: Apache-2.0
// Describes how far the figures of a job can be trusted, from "report" in the server's JSON. Each
// figure has a text and a help text: what it is, what it is compared with, how certain it is.
import { joules, joulesWithin } from "./format.js";

const REASONS = [["misfit", "steps did not fit the schedule"], ["disobeyed", "a GPU did not obey its clock"],
                 ["jitter", "a burst of jitter"], ["missing", "a rank had no result"],
                 ["impossible", "a GPU had an impossible energy"]];

const times = (count) => count === 1 ? "1 round" : `${count} rounds`;

function roundWords({ observed, spoiled, last, ...counts }) {
    if (observed === 0) return "no round has ended yet";
    const reasons = REASONS.filter(([name]) => counts[name] > 0).map(([name, words]) => `${words} in ${times(counts[name])}`);
    return `${spoiled} of ${observed} spoiled` + (reasons.length ? `: ${reasons.join(", ")}` : "") +
        (last ? `; the last was round ${last.round}, by rank ${last.rank}` : "");
}

function stepWords(steps) {
    if (!steps) return "not told by the ranks";
    const share = steps.share_as_planned;
    // A share below 1 is never shown as 100 %.
    const shown = share === 1 ? "100 %" : `${(Math.min(Math.floor(1000 * share), 999) / 10).toFixed(1)} %`;
    const clocks = steps.disobedience;
    return `${shown} as planned (${steps.as_planned} of ${steps.run}, summed over the ranks), ${steps.left_out} left out of the measurements` +
        (clocks ? `; ${steps.disobeyed} at a wrong clock, the last on rank ${clocks.rank}: ${clocks.held_mhz} MHz instead of ${clocks.wanted_mhz} MHz` : "");
}

const ratio = (pair) => `${pair.ratio.toFixed(4)} ± ${Math.max(pair.ratio_uncertainty, 0.0001).toFixed(4)}`;

function counterWords(check) {
    if (!check) return "not compared";
    const { worst, ranks } = check;
    const whole = `${ratio(check)} times the integrated power` + (check.agrees ? ", no difference beyond the uncertainty" : ": they differ by more than the uncertainty");
    return `${whole} (${ranks === 1 ? "1 rank" : `${ranks} ranks`})` +
        (ranks > 1 && !worst.agrees ? `; rank ${worst.rank} differs: ${ratio(worst)}` : "");
}

function tokenWords(tokens) {
    if (!tokens) return "the job does not say how many tokens a step has";
    if (tokens.saved === null) return `${joules(tokens.energy)}, with ${tokens.tokens_per_step} tokens in a step`;
    const isKnown = tokens.saved_uncertainty !== null;
    const isSignificant = isKnown && Math.abs(tokens.saved) > tokens.saved_uncertainty;
    return `${joules(tokens.energy)}, ${isKnown ? joulesWithin(Math.abs(tokens.saved), tokens.saved_uncertainty) : joules(Math.abs(tokens.saved))} ` +
        `${tokens.saved < 0 ? "more" : "less"} than ${joules(tokens.baseline)} at the highest clocks${isSignificant ? "" : ", within noise"}; ` +
        `${tokens.tokens_per_step} tokens in a step`;
}

/** Returns [name, text, help] of each figure of the report. */
export function reportFacts(report) {
    return [
        ["Rounds", roundWords(report.rounds), "Rounds whose measurements are spoiled, and why. A round can have several reasons. " +
            "A burst of jitter is a step that took over 10 % and six standard deviations more time than the median of its round. " +
            "Counted exactly, since the job began; a rank of an older version does not report clocks."],
        ["Steps", stepWords(report.steps), "A step ran as planned if its instructions fitted the schedule while its GPU had the set clocks. " +
            "The clocks are looked at about ten times a second, so shorter deviations are not counted. Steps that were left out are in no other figure."],
        ["Energy counter", counterWords(report.energy_check), "Energy of the GPUs' counters divided by their integrated power over the same time, " +
            "sampled about ten times a second, with the 95 % confidence interval. A difference beyond it means that one of the two is wrong; all energies here come from the counter."],
        ["Energy per token", tokenWords(report.per_token), "Energy of all reported iterations, of all ranks, divided by their tokens, with the 95 % confidence interval of the difference " +
            "to the measured baseline. The job tells the tokens of a step (tokens_per_step)."],
    ];
}

/** Help texts of the other figures of a job. */
export const HELP = {
    State: "What the job does now. Quiet means that no request has come for five minutes: a published client does not report its end.",
    Round: "The number of the schedule that runs now, from 0. All ranks of a job change their schedule together.",
    Ranks: "Processes of the job that have registered, of all, and how they are divided: into pipeline stages (PP), replicas of the data (DP) and slices of the tensors (TP).",
    Waiting: "Ranks that have asked for their next schedule. It is handed out when all ranks have asked; the ranks for which the others wait are named.",
    Scheduler: "The part of the server that chooses the clocks of this job.",
    "Last seen": "The time of the job's last request, by the clock of the server.",
    Phase: "Whether the job learns its frequencies, runs a plan, or keeps its highest clocks, and why.",
    Plan: "Plans are numbered from the fastest, 0, to the one with the least energy.",
    Evicted: "The time at which the server removed the job, on request or because it had sent no request for a long time.",
    Registered: "The time at which the job announced itself to the server.",
    "Energy used": "Sum over all reported iterations and all ranks, from the energy counters of the GPUs.",
    Power: "Average power of all ranks in the last round: energy divided by time.",
    "Saved so far": "All reported iterations, also those that tried frequencies, against the baseline. ± is the half-width of the 95 % confidence interval; " +
        "if the interval contains 0, the figure is within noise.",
    Saves: "The newest ten rounds that ran a plan, against the baseline, with the 95 % confidence interval.",
    Baseline: "Measured by this job: the mean of all rounds in which every instruction ran at its highest clock, with the 95 % confidence interval, " +
        "and the rounds and the time of the last measurement.",
    Iteration: "Predicted time of an iteration of this plan with the time outside of the pipeline, against the fastest plan. The prediction comes from the job's own measurements.",
    Energy: "Predicted energy of an iteration of this plan, all ranks, against the prediction for the highest clocks. What was really saved is above, with its uncertainty.",
    "Average power": "Predicted energy of an iteration divided by its predicted time, all ranks.",
    "One clock for all GPUs": "The best clock of those that all GPUs can hold and that are as fast as this plan, or as the highest clocks if these are slower. It is computed from the profile of the plans. Without a planner you could set this clock.",
    "Above the lower bound": "No plan of this time can need less energy than the lower bound. The share is an upper limit of what a better plan could save.",
};

/** Help texts of the parts of a job's page. */
export const SECTION_HELP = {
    Ranks: "The ranks in each state. A rank is one process of the job, and usually has one GPU.",
    Report: "How far the figures of this job can be trusted.",
    Frontier: "Each point is a plan: the time of an iteration against its energy. The dashed line is the lower bound, below which no plan can be. " +
        "Crosses are measured rounds that ran a plan, within the time that is selected below Rounds.",
    Pipeline: "The instructions of the selected plan in the order of time, a lane for each pipeline stage. All values are predictions.",
    "Measured and predicted": "Time and energy of each stage's instructions as planned, and as the last round of this plan measured them.",
    Rounds: "Energy and time of an iteration in each round, as measured. The dashed line is the measured baseline at the highest clocks. The server keeps the last 200 rounds.",
};
