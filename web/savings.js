// SPDX-License-Identifier: Apache-2.0
// What a job saves against the highest clocks, by what it measured.

const pair = (values) => ({ time: values?.[0] ?? 0, energy: values?.[1] ?? 0 });

/** Seconds and joules of an iteration that no plan changes, as measured. */
export const outsideOf = (frontier) => pair(frontier.outside);
/** The same as wishes count with it: without what came unexplained since. */
export const wishOutsideOf = (frontier) => pair(frontier.wish_outside ?? frontier.outside);

/** An iteration at the highest clocks, all of it; null before there is a plan. */
export function baselineOf(frontier) {
    if (!frontier.all_maximum) return null;
    const outside = outsideOf(frontier);
    return { time: frontier.all_maximum.time + outside.time,
             energy: frontier.all_maximum.energy + outside.energy };
}

/** Measured rounds that ran a plan; each has its `baseline`: the same at the highest clocks. */
export const plannedRounds = (frontier) => (frontier.measured ?? []).filter((one) => one.baseline && one.energy > 0);

/** Energy saved and time lost (fractions) in one of them. */
export const savingsIn = ({ time, energy, baseline }) => ({ energy: 1 - energy / baseline[1], time: time / baseline[0] - 1 });

/** The same over the newest ten of them, null when there is none. */
export function recentSavings(frontier) {
    const planned = plannedRounds(frontier).slice(-10);
    if (planned.length === 0) return null;
    const sum = (value) => planned.reduce((all, one) => all + value(one), 0);
    return { ...savingsIn({ time: sum((one) => one.time), energy: sum((one) => one.energy),
                            baseline: [0, 1].map((i) => sum((one) => one.baseline[i])) }), rounds: planned.length };
}
