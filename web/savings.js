// SPDX-License-Identifier: Apache-2.0
// What a job saves against the highest clocks, by what it measured.

/** Seconds and joules of an iteration that no plan changes. */
export function outsideOf(frontier) {
    return { time: frontier.outside?.[0] ?? 0, energy: frontier.outside?.[1] ?? 0 };
}

/** An iteration at the highest clocks, all of it; null before there is a plan. */
export function baselineOf(frontier) {
    if (!frontier.all_maximum) return null;
    const outside = outsideOf(frontier);
    return { time: frontier.all_maximum.time + outside.time,
             energy: frontier.all_maximum.energy + outside.energy };
}

/** Mean energy saved and time lost (fractions) over the measured rounds that ran a plan (the newest
 * ten), null when there is none. */
export function recentSavings(frontier) {
    const baseline = baselineOf(frontier);
    const planned = baseline ? frontier.measured.filter(
        (one) => one.energy > 0 && one.round > (frontier.sweep?.rounds ?? 0)).slice(-10) : [];
    if (planned.length === 0) return null;
    const mean = (name) => planned.reduce((sum, one) => sum + one[name], 0) / planned.length;
    return { energy: 1 - mean("energy") / baseline.energy,
             time: mean("time") / baseline.time - 1, rounds: planned.length };
}
