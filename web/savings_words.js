// SPDX-License-Identifier: Apache-2.0
// Describes the savings of a job against the highest clocks, as the server computes them. The text
// always contains the uncertainty (95 %), and says "within noise" if the uncertainty is not smaller.
import { ago, changeWithin, joules, joulesWithin, percentWithin, seconds, secondsWithin, within } from "./format.js";

/** Describes a round that ran a plan: "8.34 % ± 0.72 % less energy, time within noise (0.21 %
 * ± 0.83 %)". */
export function savingsOfRound({ time, energy, baseline, uncertainty }) {
    const [ofTime, ofEnergy] = [0, 1].map((i) => uncertainty?.[i] == null ? null : uncertainty[i] / baseline[i]);
    const saved = energy / baseline[1] - 1;
    const words = changeWithin(saved, ofEnergy, "more", "less");
    return `${Math.abs(saved) > (ofEnergy ?? Infinity) ? `${words} energy` : `energy ${words}`}, ` +
        `time ${changeWithin(time / baseline[0] - 1, ofTime, "longer", "shorter")}`;
}

/** Describes the savings of the newest rounds. Returns null if no round was compared yet. */
export function recentWords({ saved }) {
    const recent = saved?.recent;
    if (!recent) return null;
    const energy = percentWithin(recent.energy, recent.energy_uncertainty);
    return `${recent.energy_is_significant ? energy : `within noise: ${energy}`} of the energy, time ` +
        `${changeWithin(recent.time, recent.time_uncertainty, "longer", "shorter")} ` +
        `(${recent.rounds === 1 ? "last round" : `last ${recent.rounds} rounds`})`;
}

const energyOf = (value, uncertainty) => uncertainty === null ? joules(value) : joulesWithin(value, uncertainty);
const timeOf = (value, uncertainty) => uncertainty === null ? seconds(value) : secondsWithin(value, uncertainty);

/** Describes the savings since the job began. Returns null if there is no baseline. */
export function savedWords(saved) {
    if (!saved) return null;
    const { energy, energy_uncertainty: energyWithin, time, time_uncertainty: timeWithin } = saved;
    if (energy === 0 && energyWithin === 0) return "nothing compared yet";
    const isEnergy = energyWithin !== null && Math.abs(energy) > energyWithin;
    const isTime = timeWithin !== null && Math.abs(time) > timeWithin;
    return `${energyOf(Math.abs(energy), energyWithin)}${isEnergy ? energy < 0 ? " more used" : "" : ", within noise"} ` +
        `(${percentWithin(energy / saved.energy_baseline, energyWithin === null ? null : energyWithin / saved.energy_baseline)}), ` +
        `${timeOf(Math.abs(time), timeWithin)} ${isTime ? time < 0 ? "less time" : "more time" : "of time, within noise"}; measuring included`;
}

/** Describes the baseline of the savings. */
export function baselineWords({ baseline }) {
    if (!baseline) return "not measured";
    const [first, last] = baseline.between_rounds;
    return `${timeOf(baseline.time, baseline.time_uncertainty)} and ${energyOf(baseline.energy, baseline.energy_uncertainty)} an iteration, ` +
        `measured ${baseline.iterations} times in ${baseline.rounds} rounds (${first}–${last}), ${ago(baseline.measured_at[1])}`;
}

/** The text before the first savings are known. */
const PHASE_WORDS = { count: "counting", sweep: "measuring", explore: "exploring", plan: "not measured yet", hold: "holds its clocks" };

/** Returns a figure of a job in a list and its note, which is the share of the baseline. `unit` is that of the list. */
function figureInList(value, uncertainty, baseline, unit, phase) {
    if (!(uncertainty > 0) || !(baseline > 0)) return [PHASE_WORDS[phase] ?? "–", ""];
    const isNoise = Math.abs(value) <= uncertainty;
    return [within(value, uncertainty, unit), percentWithin(value / baseline, uncertainty / baseline) + (isNoise ? ", within noise" : "")];
}
/** Return the saved energy and the lost time of a job in a list, each as [text, note]. */
export const savedInList = ({ saved, phase }, unit) => figureInList(saved?.energy, saved?.energy_uncertainty, saved?.energy_baseline, unit, phase);
export const lostInList = ({ saved }, unit) => figureInList(saved?.time, saved?.time_uncertainty, saved?.time_baseline, unit);
