// SPDX-License-Identifier: Apache-2.0
// All jobs, newest first, one row each. A row is created once, and later only its changed texts are
// set, so that the page stays fast with a thousand jobs. The server sends only the jobs that have
// changed. It does not send savings; the page requests savings for the rows that are in sight. The
// sums above the list include the final reports of finished jobs.
import { finishedJobs, fleetEnergy, get, jobPath } from "./api.js";
import { h, setText } from "./dom.js";
import { columnHelp, facts, tableHead } from "./figures.js";
import { ago, joules, percent, plural, ranges, wattHours, wattHoursWithin, watts } from "./format.js";
import { follow, onDemand } from "./live.js";
import { jobName, nameAndId } from "./names.js";
import { stateBadge } from "./state.js";
import { showTotals, TOTALS_HELP } from "./totals.js";

const SAVINGS_EVERY_MS = 3000;
const SAVINGS_WITHIN_MS = 2000;
const SAVINGS_AT_ONCE = 2;
const TOTALS_EVERY_MS = 60000;
const TOTALS_AT_MOST_EVERY_MS = 3000; // they are out of date when a job is evicted

const COLUMNS = [
    ["State", "What the job does now: registering (its ranks announce themselves), preparing (the server plans), gathering (ranks ask for schedules), running, " +
        "observing (the server reads results), ended, failed. Quiet means that no request has come for five minutes."],
    ["Ranks", "Processes that have registered, of all processes of the job, and what the others are waiting for."],
    ["Round", "The number of the schedule that runs now, from 0."],
    ["Saves", "Energy that the newest ten rounds of a plan saved, against the job's own baseline, with the 95 % confidence interval; below it, what the job saved since it began."],
    ["Power, used", "Average power of all ranks in the last round, and the energy of all reported iterations."],
    ["Last seen", "The time of the job's last request."],
];

/** The text before the first savings are known. */
const PHASE_WORDS = { count: "counting", sweep: "measuring", explore: "exploring", plan: "not measured yet", hold: "holds its clocks" };

/** Lists the ranks for which the job waits, in words. Returns "" if it waits for none. */
export function missingRanks(job) {
    const wanted = { registering: [["unknown", "not registered"]], running: [["served", "without result"]],
                     gathering: [["registered", "not asking yet"], ["reported", "not asking yet"]] };
    return (wanted[job.state] ?? []).filter(([state]) => job.rank_states[state]).map(
        ([state, words]) => `${words}: ${ranges(job.rank_states[state])}`).join("; ");
}

function makeRow(job) {
    const state = stateBadge();
    const ranks = h("span");
    const missing = h("span", { class: "note" });
    const savings = h("span", null, "–");
    const uncertainty = h("span", { class: "note" });
    const soFar = h("span", { class: "note" });
    const power = h("span", null, "–");
    const used = h("span", { class: "note" });
    const cells = { round: h("td", { class: "number" }), savings: h("td", { class: "number" }, savings, uncertainty, soFar),
                    power: h("td", { class: "number" }, power, used),
                    seen: h("td", { class: "number" }) };
    const row = h("tr", null,
        h("th", { scope: "row" }, h("a", { href: `#${jobPath(job.job_id)}` }, nameAndId(job)),
            job.job_metadata && job.job_metadata !== jobName(job) ? h("span", { class: "note" }, job.job_metadata) : null),
        h("td", null, state.badge), h("td", null, ranks, missing), cells.round, cells.savings, cells.power, cells.seen);
    for (const [name, cell] of [["Round", cells.round], ["Saves", cells.savings], ["Power", cells.power], ["Last seen", cells.seen]])
        cell.dataset.label = name;
    const text = `${job.job_id} ${job.job_metadata ?? ""}`.toLowerCase();
    let shown = null;
    return {
        row,
        isInSight: false,
        askedIn: null, // the round for which savings were last requested
        get job() { return shown; },
        matches: (words) => words.every((word) => text.includes(word) || shown.state.includes(word)),
        set(next) {
            shown = next;
            setText(ranks, `${next.ranks_registered} of ${next.world_size}` + (next.state === "running"
                ? `, ${next.ranks_reported} reported` : `, ${next.ranks_waiting} waiting`));
            setText(cells.round, next.round < 0 ? "–" : `${next.round}`);
            setText(missing, missingRanks(next));
            const { energy, energy_uncertainty: within } = next.figures?.saved ?? {};
            setText(soFar, within === null || !(Math.abs(energy) > within) ? ""
                : `${joules(Math.abs(energy))} ± ${joules(within)} ${energy < 0 ? "more used" : ""} so far`.replace("  ", " "));
            setText(power, next.figures?.power > 0 ? watts(next.figures.power) : "–");
            setText(used, next.figures?.energy > 0 ? joules(next.figures.energy) : "");
            this.age();
        },
        age() {
            setText(cells.seen, ago(shown.last_seen));
            state.set(shown.state, shown.last_seen);
        },
        setSavings(frontier) {
            const recent = frontier.saved?.recent;
            setText(savings, recent ? percent(recent.energy) : PHASE_WORDS[frontier.phase] ?? frontier.phase);
            setText(uncertainty, !recent ? "" : recent.energy_is_significant ? `± ${percent(recent.energy_uncertainty)}`
                : recent.energy_uncertainty === null ? "not certain yet" : `± ${percent(recent.energy_uncertainty)}: noise`);
        },
    };
}

export function showJobs(content, tell) {
    const count = h("p", { class: "note", role: "status" });
    const filter = h("input", { type: "search", id: "filter", placeholder: "name, state …" });
    const body = h("tbody");
    const table = h("table", { class: "jobs" },
        tableHead(["Job", "State", "Ranks", "Round", "Saves", "Power, used", "Last seen"], 3), body);
    const columns = columnHelp(COLUMNS);
    const headline = h("p", { class: "headline" });
    const totals = facts(TOTALS_HELP, "facts big");
    const empty = h("p", { class: "empty", hidden: true }, "No job is registered. To register one, start a training process with this server as its ",
        h("code", null, "server_url"), ". For a demonstration, run ", h("code", null, `harpe train-sim --server ${location.origin}`));
    content.append(h("h1", null, "Jobs"), headline, totals.element, h("div", { class: "toolbar" },
        h("label", { for: "filter" }, "Show"), filter, count), table, columns, empty);
    document.title = "Harpe: jobs";

    const rows = new Map();
    const isShown = (row) => row.isInSight && !row.row.hidden;
    const sight = new IntersectionObserver((entries) => {
        for (const entry of entries) entry.target.harpeRow.isInSight = entry.isIntersecting;
        savings();
    });

    function applyFilter() {
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        let visible = 0;
        for (const row of rows.values()) {
            row.row.hidden = !row.matches(words);
            if (!row.row.hidden) visible++;
        }
        setText(count, visible === rows.size ? plural(rows.size, "job") : `${visible} of ${rows.size} jobs`);
    }
    filter.addEventListener("input", applyFilter);

    /* ---- All jobs together ---- */

    let finished = [];
    let costs = null;

    function sum() {
        const live = [...rows.values()].map((row) => row.job);
        const { used, saved, uncertainty, compared } = showTotals(totals, live, finished, costs);
        const isSaved = compared > 0 && saved > uncertainty;
        setText(headline, used === 0 ? "" : `${plural(live.length, "job")} and ${plural(finished.length, "finished job")} used ${wattHours(used)}` +
            (isSaved ? ` and saved ${wattHoursWithin(saved, uncertainty)}.` : "."));
        totals.element.hidden = used === 0;
    }

    const around = onDemand(async (signal) => Promise.all([finishedJobs(signal), fleetEnergy(signal)]), ([reports, found]) => {
        finished = reports;
        costs = found;
        sum();
    }, () => {}, TOTALS_AT_MOST_EVERY_MS);
    around();
    const aroundClock = setInterval(() => document.hidden || around(), TOTALS_EVERY_MS);

    function forget(id) {
        const { row } = rows.get(id);
        sight.unobserve(row);
        row.remove();
        rows.delete(id);
    }

    /* As the list is newest first, each new row goes above the rows that are already there. */
    function show({ whole, jobs, gone }) {
        tell(null);
        for (const id of gone) if (rows.has(id)) forget(id);
        if (gone.length > 0) around();
        if (whole) {
            const known = new Set(jobs.map((job) => job.job_id));
            for (const id of [...rows.keys()]) if (!known.has(id)) forget(id);
        }
        for (const job of jobs.toReversed()) {
            let row = rows.get(job.job_id);
            if (!row) {
                row = makeRow(job);
                row.row.harpeRow = row;
                rows.set(job.job_id, row);
                body.prepend(row.row);
                sight.observe(row.row);
            }
            row.set(job);
        }
        empty.hidden = rows.size > 0;
        table.hidden = columns.hidden = rows.size === 0;
        sum();
        applyFilter();
        savings();
    }

    async function askRow(row, signal) {
        const { job_id: id, round, failure } = row.job;
        try {
            if (round >= 0 && !failure && !row.hasNoFrontier)
                row.setSavings(await get(`${jobPath(id)}/frontier`, signal));
            row.askedIn = round;
        } catch (error) {
            row.hasNoFrontier = error.status === 409;
            // Status 409 does not change with time; after another error the row is tried again.
            if (!row.hasNoFrontier && !signal.aborted) row.askedIn = round;
        }
    }

    async function loadSavings(signal) {
        const old = [...rows.values()].filter((row) => isShown(row) && row.askedIn !== row.job.round).values();
        /* A planning job answers only after it has planned. Its request must not delay the other
         * jobs or the page. */
        await Promise.all(Array.from({ length: SAVINGS_AT_ONCE }, async () => {
            for (const row of old) await askRow(row, AbortSignal.any([signal, AbortSignal.timeout(SAVINGS_WITHIN_MS)]));
        }));
        // Tries the rows again that have no answer yet.
        if ([...rows.values()].some((row) => isShown(row) && row.askedIn !== row.job.round)) savings();
    }
    const savings = onDemand(loadSavings, () => {}, () => {}, SAVINGS_EVERY_MS);
    const clock = setInterval(() => {
        for (const row of rows.values()) if (isShown(row)) row.age();
    }, 1000);
    const end = follow("/events", show, tell);

    return () => {
        end();
        savings.stop();
        around.stop();
        clearInterval(clock);
        clearInterval(aroundClock);
        sight.disconnect();
    };
}
