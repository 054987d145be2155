// SPDX-License-Identifier: Apache-2.0
// The power of all jobs together: power now against the budget, the last day, the share of each job,
// budgets, and events with their promised and measured power.
import { get } from "./api.js";
import { h, setText } from "./dom.js";
import { facts, section } from "./figures.js";
import { ago, JOULES_PER_KWH, money, percent, wattHours, wattHoursWithin, watts, when } from "./format.js";
import { fleetForms } from "./fleet_forms.js";
import { fleetBudgets, fleetEvents, fleetJobs, stateWords } from "./fleet_tables.js";
import { FLEET_HELP, FLEET_STATES, SECTION_HELP, unmeasuredWords } from "./fleet_words.js";
import { poll } from "./live.js";
import { powerChart } from "./power_chart.js";
import { timeRange } from "./time_range.js";
import { savedText, setCosts, setOrRemove } from "./totals.js";

const EVERY_MS = 2000;
const HISTORY_EVERY_MS = 10000;
const POINTS = 720;
/** The shortest time on the chart. A server that has just begun to steer has few points. */
const LEAST_S = 600;

const kilowattHours = (kwh) => wattHours(JOULES_PER_KWH * kwh);
const kilowattHoursWithin = (kwh, within) => Number.isFinite(within) ? wattHoursWithin(JOULES_PER_KWH * kwh, JOULES_PER_KWH * within) : kilowattHours(kwh);
const plain = (value) => value === 0 ? "0" : value.toPrecision(3);

function setPower(list, { power, state, price, weighted_slowdown: slowdown, objective, lower_bound: bound }) {
    list.set("State", stateWords(state, FLEET_STATES));
    const limit = power.limit_w;
    list.set("Power measured", [watts(power.measured_w), Number.isFinite(limit) && limit > 0 ? `${percent(power.measured_w / limit)} of the limit` : "",
        unmeasuredWords(power)].filter(Boolean).join(", "));
    list.set("Power limit", Number.isFinite(limit) ? watts(limit) : "none");
    list.set("Power counted", watts(power.counted_w));
    list.set("Power planned", watts(power.planned_w));
    const isSteered = state !== "none";
    const least = Number.isFinite(bound) ? `, lower bound ${plain(bound)}` : "";
    const isWeighed = price?.value_per_s > 0; // lost time against energy
    setOrRemove(list, "Weighted slowdown", isSteered ? slowdown : null, (value) => plain(value) + (isWeighed ? "" : least));
    setOrRemove(list, "Cost of power", price?.cost_per_h, (value) => `${money(value, price.currency)} per h`);
    setOrRemove(list, "Cost rate", isSteered && isWeighed ? objective : null,
        (value) => `${plain(value)} ${price.currency ? `${price.currency} ` : ""}per s${least}`);
}

/** Without a baseline, both figures are 0. */
function energySaved({ used_kwh: used, saved_kwh: saved, saved_kwh_uncertainty: uncertainty }) {
    if (!saved && !uncertainty) return "no baseline measured yet";
    const [own, within, baseline] = [saved, uncertainty, used + saved].map((kwh) => JOULES_PER_KWH * kwh);
    return savedText({ saved: own, uncertainty: within, baseline });
}

function setEnergy(list, { energy, price }) {
    if (energy) {
        list.set("Energy used", Number.isFinite(energy.since) ? `${kilowattHours(energy.used_kwh)} since ${when(energy.since)}` : kilowattHours(energy.used_kwh));
        list.set("Energy saved", energySaved(energy));
        setCosts(list, energy);
    }
    const parts = !price ? [] : [Number.isFinite(price.energy_per_kwh) ? `${money(price.energy_per_kwh, price.currency)} per kWh` : "",
        Number.isFinite(price.carbon_g_per_kwh) ? `${price.carbon_g_per_kwh.toPrecision(3)} g CO₂ per kWh` : "",
        price.set_at ? `set ${ago(price.set_at)}` : ""].filter(Boolean);
    if (parts.length > 0) list.set("Price now", parts.join(", "));
    else list.remove("Price now");
}

/** Says how to begin, while nothing steers the fleet. */
const beginning = () => h("div", { class: "empty", hidden: true },
    h("p", null, "The fleet is not steered: there is no budget, no event and no price. Jobs run as they would alone."),
    h("p", null, "To set a budget of 60 kW for all jobs, use the form below, or run ", h("code", null, `harpe fleet budget set 60000 --server ${location.origin}`)));

export function showFleet(content, tell) {
    const headline = h("p", { class: "headline", role: "status" });
    const now = facts(FLEET_HELP, "facts big");
    const energy = facts(FLEET_HELP);
    const chart = powerChart();
    const jobs = fleetJobs();
    const empty = beginning();
    const forms = fleetForms(() => refresh.now());
    const budgets = fleetBudgets(forms.removeBudget);
    const events = fleetEvents(forms.cancelEvent);
    const range = timeRange(() => history.now(), ["hour", "day"]);
    content.append(h("h1", null, "Fleet"), headline, now.element, energy.element, empty,
        section("Power over time", SECTION_HELP["Power over time"], h("div", { class: "toolbar" }, range.element), chart.element),
        section("Jobs", SECTION_HELP.Jobs, jobs.element), section("Budgets", SECTION_HELP.Budgets, budgets.element),
        section("Events", SECTION_HELP.Events, events.element), section("Change the budget", SECTION_HELP["Change the budget"], forms.element));
    document.title = "Harpe: fleet";
    let shown = "";

    function show(fleet) {
        tell(null);
        const { power, state, energy: sums } = fleet;
        setText(headline, state === "none" ? "" : `${watts(power.measured_w)}${Number.isFinite(power.limit_w) ? ` of ${watts(power.limit_w)}` : ""}: ${FLEET_STATES[state]?.[1] ?? state}.` +
            (sums?.saved_kwh > (sums?.saved_kwh_uncertainty ?? Infinity) ? ` The fleet has saved ${kilowattHoursWithin(sums.saved_kwh, sums.saved_kwh_uncertainty)}.` : ""));
        setPower(now, fleet);
        setEnergy(energy, fleet);
        empty.hidden = state !== "none";
        forms.set(fleet);
        /* A table that is drawn again would take the focus away, so it is drawn only after a change. */
        const data = JSON.stringify([fleet.jobs, fleet.budgets, fleet.events]);
        if (data === shown) return;
        shown = data;
        jobs.set(fleet.jobs, fleet.jobs_total);
        budgets.set(fleet.budgets);
        events.set(fleet.events);
    }

    function fail(error) {
        tell(error);
        if (error.status === 404) setText(headline, "This server does not steer a fleet: it is of an earlier version.");
    }

    const refresh = poll((signal) => get("/fleet", signal), show, fail, EVERY_MS);
    const history = poll(async (signal) => {
        const to = Date.now() / 1000;
        const from = to - range.length();
        return { from, to, data: await get(`/fleet/history?from=${from.toFixed(0)}&to=${to.toFixed(0)}&points=${POINTS}`, signal) };
    }, ({ from, to, data }) => chart.set(data, Math.max(from, Math.min(data.at[0] ?? from, to - LEAST_S)), to), () => {}, HISTORY_EVERY_MS);

    return () => {
        refresh();
        history();
        chart.end();
    };
}
