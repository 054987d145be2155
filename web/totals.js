// SPDX-License-Identifier: Apache-2.0
// Energy, money and carbon of several jobs together. The savings of jobs are measured independently,
// so the square of a sum's uncertainty is the sum of the squares. The server adds most of them up.
import { carbon, carbonWithin, energyUnit, inUnit, money, moneyWithin, percentWithin, watts, within } from "./format.js";
import { FLEET_HELP } from "./fleet_words.js";

/** Adds two sums of the server over different jobs: energies in J, power in W. */
export function addSums(a, b) {
    const sums = Object.fromEntries(Object.keys(a).map((name) => [name, a[name] + b[name]]));
    return { ...sums, saved_uncertainty: Math.hypot(a.saved_uncertainty, b.saved_uncertainty) };
}

/** Describes saved energy in J: "41.23 ± 0.81 kWh (11.32 % ± 0.22 %)". */
export function savedText({ saved, uncertainty, baseline }, unit = energyUnit([saved, uncertainty])) {
    const isMore = saved < 0;
    const words = `${within(Math.abs(saved), uncertainty, unit)}${isMore ? " more used" : ""}`;
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

/** Sets the figures of jobs in a list of facts, energies in `unit`. `costs` is the energy of GET /fleet, or null. */
export function showTotals(list, sums, costs, unit) {
    list.set("Power now", watts(sums.power));
    list.set("Energy used", inUnit(sums.energy, unit));
    list.set("Energy saved", sums.compared > 0 ? savedText({ saved: sums.saved, uncertainty: sums.saved_uncertainty, baseline: sums.energy_baseline }, unit)
        : "no baseline measured yet");
    setCosts(list, costs);
}

/** Help texts of the figures. */
export const TOTALS_HELP = {
    "Power now": "Sum over the jobs that have not ended: the average power of a job's ranks in its last round.",
    "Energy used": "Sum over all jobs of the server and all final reports that it keeps; while the list is searched, only over the jobs that match. It comes from the energy counters of the GPUs: machines and cooling are not in it.",
    "Energy saved": "Against the baselines that the jobs measured at their highest clocks, energy for measuring included. Only jobs with a baseline count. " +
        "Against one clock for all GPUs it is not measured: the page of a job says what its profile predicts. " +
        "± is the half-width of the 95 % confidence interval; if the interval contains 0, the figure is within noise.",
    ...Object.fromEntries(["Cost", "Cost saved", "Carbon", "Carbon saved"].map((name) => [name,
        `The whole fleet, as on the page Fleet, since there are prices. ${FLEET_HELP[name]}`])),
};
