// SPDX-License-Identifier: Apache-2.0
// Energy, money and carbon of several jobs together. The savings of jobs are measured independently,
// so the square of a sum's uncertainty is the sum of the squares.
import { carbon, carbonWithin, money, moneyWithin, percentWithin, wattHours, wattHoursWithin, watts } from "./format.js";
import { FLEET_HELP } from "./fleet_words.js";
import { isOver } from "./state.js";

/** Returns the sums over the figures of jobs: energies in J, power in W. */
export function sumOf(jobs) {
    const sum = { jobs: 0, used: 0, power: 0, compared: 0, saved: 0, squares: 0, baseline: 0 };
    for (const { figures } of jobs) {
        if (!(figures?.energy > 0)) continue;
        sum.jobs++;
        sum.used += figures.energy;
        sum.power += figures.power ?? 0;
        const { saved } = figures;
        if (!saved || saved.energy_uncertainty === null || !(saved.energy_baseline > 0)) continue;
        sum.compared++;
        sum.saved += saved.energy;
        sum.squares += saved.energy_uncertainty ** 2;
        sum.baseline += saved.energy_baseline;
    }
    return { ...sum, uncertainty: Math.sqrt(sum.squares) };
}

/** Describes saved energy in J: "41.2 ± 0.8 kWh (11.3 % ± 0.2 %)". */
export function savedText({ saved, uncertainty, baseline }) {
    const isMore = saved < 0;
    const words = `${wattHoursWithin(Math.abs(saved), uncertainty)}${isMore ? " more used" : ""}`;
    const share = baseline > 0 ? ` (${percentWithin(saved / baseline, uncertainty / baseline)})` : "";
    return Math.abs(saved) > uncertainty ? words + share : `${words}${share}, within noise`;
}

/** Sets what the fleet's energy has cost, by the price of its time. `energy` is that of GET /fleet, or null. */
export function setCosts(list, energy) {
    const { currency, cost_saved_uncertainty: ofCost, carbon_kg_saved_uncertainty: ofCarbon } = energy ?? {};
    setOrRemove(list, "Cost", energy?.cost, (value) => money(value, currency));
    setOrRemove(list, "Cost saved", energy?.cost_saved, (value) => moneyWithin(value, ofCost ?? 0, currency));
    setOrRemove(list, "Carbon", energy?.carbon_kg, carbon);
    setOrRemove(list, "Carbon saved", energy?.carbon_kg_saved, (value) => carbonWithin(value, ofCarbon ?? 0));
}

export function setOrRemove(list, name, value, format) {
    if (Number.isFinite(value)) list.set(name, format(value));
    else list.remove(name);
}

/** Sets the figures of all jobs in a list of facts. `energy` is that of GET /fleet, or null. */
export function showTotals(list, live, finished, energy) {
    const sum = sumOf([...live, ...finished]);
    list.set("Power now", watts(sumOf(live.filter((job) => !isOver(job))).power));
    list.set("Energy used", wattHours(sum.used));
    list.set("Energy saved", sum.compared > 0 ? savedText(sum) : "no baseline measured yet");
    setCosts(list, energy);
    return sum;
}

/** Help texts of the figures. */
export const TOTALS_HELP = {
    "Power now": "Sum over the jobs that have not ended: the average power of a job's ranks in its last round.",
    "Energy used": "Sum over all jobs on this page and all final reports that the server keeps. It comes from the energy counters of the GPUs: machines and cooling are not in it.",
    "Energy saved": "Against the baselines that the jobs measured at their highest clocks, energy for measuring included. Only jobs with a baseline count. " +
        "± is the half-width of the 95 % confidence interval; if the interval contains 0, the figure is called noise.",
    ...Object.fromEntries(["Cost", "Cost saved", "Carbon", "Carbon saved"].map((name) => [name,
        `The whole fleet, as on the page Fleet, since there are prices. ${FLEET_HELP[name]}`])),
};
