// SPDX-License-Identifier: Apache-2.0
// The tables of the fleet's page: jobs, budgets, events.
import { jobPath } from "./api.js";
import { h, setText } from "./dom.js";
import { cell, columnHelp, tableHead } from "./figures.js";
import { duration, percent, watts } from "./format.js";
import { BUDGET_COLUMNS, EVENT_COLUMNS, EVENT_STATES, eventSize, eventTime, factorWords, groupName, groupWords, JOB_COLUMNS, JOB_STATES, promiseWords,
         resultWords, slowdownWords, unmeasuredWords } from "./fleet_words.js";
import { nameAndId } from "./names.js";

const SHOWN = 200;

/** Shows a state as a sign and words. `states` maps a state to both. */
export function stateWords(state, states) {
    const [sign, words, tone] = states[state] ?? ["?", state];
    const badge = h("span", { class: "state" }, h("span", { "aria-hidden": "true" }, sign), " ", words);
    if (tone) badge.dataset.tone = tone;
    return badge;
}

const power = (value) => Number.isFinite(value) ? watts(value) : "–";
const note = (text) => text ? h("span", { class: "note" }, text) : null;

/** Describes how much the weighted slowdown, or with a price the cost rate, would fall with 1 kW more. */
const perKilowatt = (value) => Number.isFinite(value) ? value === 0 ? "0" : value.toPrecision(3) : "–";

/* ---- Jobs ---- */

const powerOf = (job) => Number.isFinite(job.measured_w) ? job.measured_w : job.planned_w ?? 0;

function jobRow(job, total) {
    const share = total > 0 ? powerOf(job) / total : 0;
    const bar = h("span", { class: "share", "aria-hidden": "true" }, h("span"));
    bar.firstChild.style.width = `${(100 * share).toFixed(1)}%`;
    const title = job.kind !== "pipeline" ? h("span", { class: "name" }, job.name ?? job.job_id) : h("a", { href: `#${jobPath(job.job_id)}` }, nameAndId(job));
    return h("tr", null,
        h("th", { scope: "row" }, title, note([job.group, job.kind === "load" ? "load that is not steered" : job.kind === "power limit" ? "power limit only" : ""]
            .filter(Boolean).join(" · "))),
        cell("State", null, stateWords(job.state, JOB_STATES), note(job.reason)),
        cell("Power", "number", power(powerOf(job)), note(percent(share)), bar),
        cell("Slowdown", "number", slowdownWords(job), job.max_slowdown && job.kind !== "load" ? note(`at most ${percent(job.max_slowdown - 1)}`) : null),
        cell("Gain per kW", "number", perKilowatt(job.gain_per_kw)),
        cell("Plan", "number", job.plans > 0 ? `${job.plan} of 0–${job.plans - 1}` : "–"),
        cell("Weight", "number", Number.isFinite(job.weight) ? `${job.weight}` : "–", job.priority ? note(`priority ${job.priority}`) : null));
}

/** Shows at most SHOWN jobs, those with most power, until the user asks for all. */
export function fleetJobs() {
    const body = h("tbody");
    const more = h("button", { type: "button", hidden: true, onclick: () => { limit = Infinity; draw(); } });
    const empty = h("p", { class: "note" }, "No job is registered.");
    const table = h("table", { class: "jobs fleet" }, tableHead(["Job", "State", "Power", "Slowdown", "Gain per kW", "Plan", "Weight"], 2), body);
    const columns = columnHelp(JOB_COLUMNS);
    const left = h("p", { class: "note", hidden: true });
    let jobs = [];
    let limit = SHOWN;

    function draw() {
        const total = jobs.reduce((sum, job) => sum + powerOf(job), 0);
        const sorted = jobs.toSorted((a, b) => powerOf(b) - powerOf(a));
        body.replaceChildren(...sorted.slice(0, limit).map((job) => jobRow(job, total)));
        more.hidden = jobs.length <= limit;
        setText(more, `Show all ${jobs.length} jobs`);
        empty.hidden = jobs.length > 0;
        table.hidden = columns.hidden = jobs.length === 0;
    }
    return { element: h("div", null, empty, table, more, left, columns), set(next, total) {
        jobs = next;
        left.hidden = !(total > next.length);
        setText(left, `The server shows ${next.length} of ${total} jobs.`);
        draw();
    } };
}

/* ---- Budgets ---- */

function budgetRow(budget, remove) {
    const set = [Number.isFinite(budget.watts) ? watts(budget.watts) : "an event", factorWords(budget)].filter(Boolean).join(", ");
    return h("tr", null, h("th", { scope: "row" }, groupName(budget.group)),
        cell("Limit now", "number", power(budget.limit_w), note(`of ${set}`)),
        cell("Planned", "number", power(budget.power_w)), cell("Measured", "number", power(budget.measured_w), note(unmeasuredWords(budget))),
        cell("Counted", "number", power(budget.counted_w)),
        cell("Least", "number", power(budget.least_w), budget.missing_w > 0 ? h("span", { class: "note bad" }, `${watts(budget.missing_w)} are missing`) : null),
        cell("Price per kW", "number", perKilowatt(budget.price_per_kw)),
        cell("", null, !Number.isFinite(budget.watts) ? null : h("button", { type: "button", "aria-label": `Remove the budget of ${groupWords(budget.group)}`, onclick: () => remove(budget) }, "Remove …")));
}

/** `remove(budget)` is called when the user asks for it. */
export function fleetBudgets(remove) {
    const body = h("tbody");
    const table = h("table", { class: "jobs fleet" },
        tableHead(["Group", "Limit now", "Planned", "Measured", "Counted", "Least", "Price per kW", ""], 1), body);
    const empty = h("p", { class: "note" }, "No budget is set.");
    const columns = columnHelp(BUDGET_COLUMNS);
    return { element: h("div", null, empty, table, columns), set(budgets) {
        body.replaceChildren(...budgets.map((budget) => budgetRow(budget, remove)));
        empty.hidden = budgets.length > 0;
        table.hidden = columns.hidden = budgets.length === 0;
    } };
}

/* ---- Events ---- */

function eventRow(event, cancel) {
    const isOpen = !["over", "cancelled"].includes(event.state);
    const result = cell("Result", null, resultWords(event));
    if (event.breaches > 0) result.dataset.tone = "bad";
    return h("tr", null, h("th", { scope: "row" }, event.note || `Event ${event.id}`, note(event.note ? `event ${event.id}` : "")),
        cell("State", null, stateWords(event.state, EVENT_STATES)),
        cell("Asked", null, `${eventSize(event)}, ${groupName(event.group)}`),
        cell("Time", null, eventTime(event), note(`${duration(event.duration_s)} long`)),
        cell("Promised", null, promiseWords(event)), result,
        cell("", null, isOpen ? h("button", { type: "button", "aria-label": `Cancel event ${event.id}`, onclick: () => cancel(event) }, "Cancel …") : null));
}

/** `cancel(event)` is called when the user asks for it. */
export function fleetEvents(cancel) {
    const body = h("tbody");
    const table = h("table", { class: "jobs fleet" }, tableHead(["Event", "State", "Asked", "Time", "Promised", "Result", ""]), body);
    const empty = h("p", { class: "note" }, "There has been no event.");
    const columns = columnHelp(EVENT_COLUMNS);
    return { element: h("div", null, empty, table, columns), set(events) {
        body.replaceChildren(...events.toSorted((a, b) => b.from - a.from).map((event) => eventRow(event, cancel)));
        empty.hidden = events.length > 0;
        table.hidden = columns.hidden = events.length === 0;
    } };
}
