// SPDX-License-Identifier: Apache-2.0
// Selects the data of savings: iterations at the highest clocks, and rounds that ran a plan.

const pair = (values) => ({ time: values?.[0] ?? 0, energy: values?.[1] ?? 0 });

/** Returns the measured time in s and energy in J of an iteration outside of all plans. */
export const outsideOf = (frontier) => pair(frontier.outside);
/** Returns the part of it that job requests take into account: without what appeared later and is
 * unexplained. */
export const wishOutsideOf = (frontier) => pair(frontier.wish_outside ?? frontier.outside);

/** Returns the time and energy of an iteration at the highest clocks in the profile of the plans, or
 * null before there is a plan. */
export function baselineOf(frontier) {
    if (!frontier.all_maximum) return null;
    const outside = outsideOf(frontier);
    return { time: frontier.all_maximum.time + outside.time,
             energy: frontier.all_maximum.energy + outside.energy };
}

/** Returns the measured rounds that ran a plan. Each has a `baseline`: its time and energy at the
 * highest clocks. */
export const plannedRounds = (frontier) => (frontier.measured ?? []).filter((one) => one.baseline && one.energy > 0);
