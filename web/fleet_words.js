// SPDX-License-Identifier: Apache-2.0
// Describes the fleet in words: states, events, and the help texts of its figures.
import { duration, percent, watts, when } from "./format.js";

/** [sign, words, tone] of each state of the fleet. The signs differ in shape. "bad" is drawn in the
 * colour of warnings, "good" in green. */
export const FLEET_STATES = {
    none: ["○", "not steered"], within: ["●", "within the budget", "good"], lowering: ["▼", "lowering the power"],
    over: ["×", "above the budget", "bad"], infeasible: ["×", "the budget cannot be met", "bad"],
};

/** [sign, words, tone] of each state of a job in the fleet. */
export const JOB_STATES = {
    follows: ["●", "follows", "good"], lowering: ["▼", "lowering"], raising: ["▲", "raising"], learning: ["≡", "learning"],
    silent: ["…", "silent", "bad"], "not steered": ["○", "not steered"],
};

/** [sign, words, tone] of each state of an event. */
export const EVENT_STATES = {
    planned: ["○", "planned"], announced: ["◊", "announced"], active: ["►", "active", "good"], ramp: ["▲", "coming back"],
    over: ["■", "over"], cancelled: ["–", "cancelled"],
};

export const groupName = (group) => group || "whole fleet";
/** Names a group inside of a sentence. */
export const groupWords = (group) => group ? `group ${group}` : "the whole fleet";

/** Describes what a budget counts beside the watts of the GPUs: "counted × 1.25 for machines and cooling, 2.0 % margin". */
export const factorWords = ({ overhead, margin }) => [overhead > 1 ? `counted × ${overhead} for machines and cooling` : "",
                                                      margin > 0 ? `${percent(margin)} margin` : ""].filter(Boolean).join(", ");

/** Describes what an event asks for: "25 % less" or "10 kW less". */
export const eventSize = ({ watts: less, share }) => less !== null && less !== undefined ? `${watts(less)} less` : `${percent(share)} less`;

export function eventTime({ from, duration_s: length, notice_s: notice, ramp_s: ramp }) {
    const more = [notice > 0 ? `${duration(notice)} notice` : "", ramp > 0 ? `back within ${duration(ramp)}` : ""].filter(Boolean);
    return `${when(from)} to ${when(from + length)}${more.length ? `; ${more.join(", ")}` : ""}`;
}

/** Describes what the server has promised for an event. */
export function promiseWords({ promised_w: promised, missing_w: missing }) {
    const most = promised === null || promised === undefined ? "–" : `at most ${watts(promised)}`;
    return missing > 0 ? `${most}; ${watts(missing)} were missing when it was posted` : most;
}

/** Describes the result of an event: whether and when the power came below the promise, and the
 * highest power that was measured from then on. */
export function resultWords(event) {
    const { state, from, reached_at: reached, highest_w: highest, promised_w: promised, breaches } = event;
    if (state === "planned" || state === "announced") return "not begun";
    if (state === "cancelled" && !reached) return "cancelled before it held";
    const parts = [];
    if (reached) parts.push(reached - from <= 1 ? "reached in time" : `reached after ${duration(reached - from)}`);
    else parts.push("not reached");
    if (highest !== null && highest !== undefined)
        parts.push(`then ${watts(highest)} at most${promised && highest > promised ? `, ${highest - promised < 1 ? "less than 1 W" : watts(highest - promised)} above` : ""}`);
    if (!Number.isFinite(highest) && state !== "active") return [...parts, "not judged: shorter than the time that the jobs have to follow"].join("; ");
    parts.push(breaches > 0 ? `${breaches} ${breaches === 1 ? "breach" : "breaches"}` : "no breach");
    return parts.join("; ");
}

/** Names the jobs that are not in the measured power. Returns "" if there are none. */
export const unmeasuredWords = ({ unmeasured }) => unmeasured > 0 ? `${unmeasured} ${unmeasured === 1 ? "job" : "jobs"} not measured yet` : "";

/** Describes the slowdown of a job against its fastest plan: "4.2 %". */
export function slowdownWords({ slowdown }) {
    return !Number.isFinite(slowdown) ? "–" : slowdown < 1.0005 ? "none" : percent(slowdown - 1);
}

/** Help texts of the figures of the fleet. */
export const FLEET_HELP = {
    State: "Whether the measured and the counted power are within the limit. Not steered means that there is no budget, event or price.",
    "Power measured": "Sum of the powers that the jobs reported last. A job that has not reported its power yet is not in it. Loads that cannot be steered count with their declared power.",
    "Power limit": "The budget of the whole fleet now, less events, ramps and the safety margin.",
    "Power counted": "The power that the server must assume: a job that does not answer is counted with what it may draw. The limit holds for this figure.",
    "Power planned": "Sum of the powers of the plans that the jobs have now, by prediction.",
    "Weighted slowdown": "Sum over all jobs of weight × (time of the plan ÷ time of the fastest plan − 1). Without a value of time, the server minimises it, and no choice of plans can be below the lower bound.",
    "Cost of power": "The measured power for an hour at the present price, with the price of its carbon. The factor for machines and cooling is included.",
    "Cost rate": "What the server minimises while there are prices and a value of time (harpe fleet prices set --time-value): the value of the time that jobs lose in a second against their fastest plans, plus the cost of the energy for the work that the fastest plans do in a second. No choice of plans can be below the lower bound.",
    "Energy used": "Energy of all jobs since this time, while a budget, an event or a price was set. The factor for machines and cooling is included.",
    "Energy saved": "Against the baselines that the jobs measured at their highest clocks. The factor for machines and cooling is included. The percentage is of the energy that all jobs together would have used. ± is the half-width of the 95 % confidence interval.",
    Cost: "Energy at the price that held when it was used, plus the price of its carbon. The factor for machines and cooling is included. With another currency, the sum begins again.",
    "Cost saved": "Saved energy at the price that held when it was saved, plus the price of its carbon. The factor for machines and cooling is included. ± is that of the saved energy, at the mean price.",
    Carbon: "Energy times the carbon intensity that held when it was used. The factor for machines and cooling is included.",
    "Carbon saved": "Saved energy times the carbon intensity that held when it was saved. The factor for machines and cooling is included. ± is that of the saved energy, at the mean intensity.",
    "Price now": "The present price of energy, its carbon intensity, and when the prices were set.",
};

export const SECTION_HELP = {
    "Power over time": "Measured is what the jobs report. Counted is what the server must assume, and stays at or below the limit in the steady state. " +
        "The server keeps a day: one point every 10 s for the last hour, and one a minute before.",
    Jobs: "Each job's share of the power. At the best split, the gain per kW is about the same for all jobs that can still change.",
    Budgets: "Watts for the whole fleet and for groups. A group counts its own jobs and those of the groups in it.",
    "Change the budget": "These forms do what harpe fleet budget and harpe fleet event do. The margin is the part of a budget that stays unused. " +
        "“Counted ×” is what the meter of the budget counts for a watt of a GPU, with machines and cooling. If the server requires a token, they need the token of an operator.",
    Events: "Times with less power. What was promised is the limit that the server announced before the event; the result is the highest power that was measured while the limit had to hold.",
};

export const JOB_COLUMNS = [
    ["State", "Follows: runs its plan. Lowering, raising: gets another plan, and changes to it after its present round. Learning: has no plans yet, or still measures clocks. Silent: does not answer, and is counted with what it may draw."],
    ["Power", "Measured power, or planned power while nothing is measured, and its share of all jobs. The bar shows the share."],
    ["Slowdown", "How much longer an iteration takes than with the job's fastest plan, and the largest slowdown that the job accepts."],
    ["Gain per kW", "Marginal time per watt: how much the weighted slowdown would fall for the job's next watts, as a rate for 1 kW. 0.5 means: 10 W more make an iteration of a job of weight 1 shorter by 0.5 % of its fastest time. The job with the highest figure gets the next watt. While there are prices and a value of time, it is the fall of the cost rate instead."],
    ["Plan", "The number of the plan that runs, from 0, the fastest, and the number of the job's plans."],
    ["Weight", "The value of the job's time against that of other jobs, and its priority."],
];
export const BUDGET_COLUMNS = [
    ["Limit now", "The budget less events, ramps and margin; below it, the watts that were set, and the factor for machines and cooling if there is one."],
    ["Planned", "Power of the plans that the jobs of this budget have now."],
    ["Measured", "Power that these jobs reported last. A job that has not reported its power yet is not in it."],
    ["Counted", "Power that the server must assume. The limit holds for this figure."],
    ["Least", "The least power that is possible within the slowdowns that the jobs accept. If it is above the limit, watts are missing."],
    ["Price per kW", "How much the weighted slowdown would fall with more watts in this budget, as a rate for 1 kW. While there are prices and a value of time, it is the fall of the cost rate instead. 0: more watts in this budget would help no job."],
];
export const EVENT_COLUMNS = [
    ["State", "Planned, announced (the power is being lowered), active, coming back (the power rises in a ramp), over or cancelled."],
    ["Asked", "How much less power, and for which group."],
    ["Time", "When the event holds, how long before it was announced, and the time of the ramp after it."],
    ["Promised", "The power limit during the event, as it was announced when the event was posted. Later changes of the budget or of other events do not change it. If the jobs could not draw so little then, the watts that were missing."],
    ["Result", "When the power was below the promise, the highest power that was measured while the event had to hold, and the number of breaches."],
];
