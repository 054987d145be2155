// SPDX-License-Identifier: Apache-2.0
// Selects the data of savings: iterations at the highest clocks and with one clock for all GPUs, and
// rounds that ran a plan.
import { change, percent } from "./format.js";

const pair = (values) => ({ time: values?.[0] ?? 0, energy: values?.[1] ?? 0 });

/** Returns the measured time in s and energy in J of an iteration outside of all plans. */
export const outsideOf = (frontier) => pair(frontier.outside);
/** Returns the part of it that job requests take into account: without what appeared later and is
 * unexplained. */
export const requestOutsideOf = (frontier) => pair(frontier.job_request_outside ?? frontier.outside);

/** Returns the time and energy of an iteration at the highest clocks in the profile of the plans, or
 * null before there is a plan. */
export function baselineOf(frontier) {
    if (!frontier.all_maximum) return null;
    const outside = outsideOf(frontier);
    return { time: frontier.all_maximum.time + outside.time,
             energy: frontier.all_maximum.energy + outside.energy };
}

/** Describes the one clock for all GPUs that needs the least energy of those that are as fast as a plan,
 * or as the highest clocks if these are slower: "1380 MHz, saves 1.2 % at +0.0 % time; this plan: 14.9 %
 * less". Returns null if it is not known. */
export function oneClockWords(frontier, plan) {
    const most = Math.max(plan.time, frontier.all_maximum?.time ?? 0) * (1 + 1e-9);
    const kept = (frontier.one_clock ?? []).filter((one) => one.time <= most);
    if (!kept.length) return null;
    const one = kept.reduce((best, other) => other.energy < best.energy ? other : best);
    const outside = outsideOf(frontier);
    const baseline = baselineOf(frontier);
    const [time, energy] = [one.time + outside.time, one.energy + outside.energy];
    const more = percent(time / baseline.time - 1);
    return `${one.frequency ? `${one.frequency} MHz` : "none is better than the highest clocks"}, saves ${percent(1 - energy / baseline.energy)} ` +
        `at ${more.startsWith("-") ? "" : "+"}${more} time; this plan: ${change((plan.energy + outside.energy) / energy - 1, "more", "less")}`;
}

/** Returns the measured rounds that ran a plan. Each has a `baseline`: its time and energy at the
 * highest clocks. */
export const plannedRounds = (frontier) => (frontier.measured ?? []).filter((one) => one.baseline && one.energy > 0);
