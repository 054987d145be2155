// SPDX-License-Identifier: Apache-2.0
// Iterations at the highest clocks, and rounds that ran a plan.

const pair = (values) => ({ time: values?.[0] ?? 0, energy: values?.[1] ?? 0 });

/** Seconds and joules of an iteration that no plan changes, as measured. */
export const outsideOf = (frontier) => pair(frontier.outside);
/** The same as wishes count with it: without what came unexplained since. */
export const wishOutsideOf = (frontier) => pair(frontier.wish_outside ?? frontier.outside);

/** An iteration at the highest clocks as the plans' profile has it; null before there is a plan. */
export function baselineOf(frontier) {
    if (!frontier.all_maximum) return null;
    const outside = outsideOf(frontier);
    return { time: frontier.all_maximum.time + outside.time,
             energy: frontier.all_maximum.energy + outside.energy };
}

/** Measured rounds that ran a plan; each has its `baseline`: the same at the highest clocks. */
export const plannedRounds = (frontier) => (frontier.measured ?? []).filter((one) => one.baseline && one.energy > 0);
