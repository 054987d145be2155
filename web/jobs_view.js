// SPDX-License-Identifier: Apache-2.0
// A page of the list of jobs. The server sorts, searches and sums up, so that the page stays fast
// with ten thousand jobs. A row is created once, and later only its changed texts are set. The sums
// above the list include the final reports of finished jobs.
import { fleetEnergy, get, jobPath } from "./api.js";
import { h, setText } from "./dom.js";
import { cell, columnHelp, facts, tableHead } from "./figures.js";
import { ago, energyUnit, inUnit, plural, powerUnit, ranges, timeUnit, when, within } from "./format.js";
import { onDemand, poll } from "./live.js";
import { nameAndId } from "./names.js";
import { lostInList, savedInList } from "./savings_words.js";
import { isOver, stateBadge } from "./state.js";
import { addSums, showTotals, TOTALS_HELP } from "./totals.js";

const EVERY_MS = 2000;
const TOTALS_EVERY_MS = 60000;
const ROWS = 50;

/* The columns of the table: title, sort key of the server, help. A key with "-" sorts the largest value first. */
const COLUMNS = [
    ["Job", "name", "The job's name, and its id in small letters."],
    ["State", "state", "What the job does now: registering (its ranks announce themselves), preparing (the server plans), gathering (ranks ask for schedules), running, " +
        "observing (the server reads results), ended, failed. No contact means that the connections of all its ranks have ended without a report of their end. " +
        "Quiet means that no request has come for five minutes. Below it: the ranks for which the job waits, or its round."],
    ["User", "user", "Who runs the job, as the job says, and its group."],
    ["GPUs", "-gpus", "The number of the job's ranks, each with a GPU, and the node of one of them, as the job says."],
    ["Slurm job", "-slurm_job", "The number of the job in Slurm, as the job says."],
    ["Started", "-start", "When the job registered, and when its last request came."],
    ["Power", "-power", "Average power of all ranks in the last round, and the cap on it."],
    ["Used", "-energy", "Energy of all reported iterations and all ranks, from the energy counters of the GPUs."],
    ["Saved", "-saved", "Energy of all reported iterations, measuring included, against the job's own baseline, which it measured at the highest clocks. ± is the half-width of the " +
        "95 % confidence interval. A figure whose interval contains 0 is within noise."],
    ["Time lost", "-time_lost", "Time of the same iterations against the same baseline."],
];
const FIRST_NUMBER = 6;
/* Further keys of the list "Sort by". */
const OTHER_KEYS = [["Group", "group"], ["Node", "node"], ["Round", "-round"], ["Last seen", "-seen"], ["Power cap", "-power_cap"]];

/* What the list shows. It stays while the tab shows other views. */
const query = { sort: "-start", search: "", offset: 0 };

/** Lists the ranks for which the job waits, in words. Returns "" if it waits for none. */
export function missingRanks(job) {
    const wanted = { registering: [["unknown", "not registered"]], running: [["served", "without result"]],
                     gathering: [["registered", "not asking yet"], ["reported", "not asking yet"]] };
    return (wanted[job.state] ?? []).filter(([state]) => job.rank_states[state]).map(
        ([state, words]) => `${words}: ${ranges(job.rank_states[state])}`).join("; ");
}

/** Returns the text and the note of each column behind the state. `units` are those of the page. */
function textsOf(job, units) {
    const { figures, power_cap: cap } = job;
    const others = job.nodes > 1 ? ` and ${job.nodes - 1} more` : "";
    return [[job.user ?? "–", job.group ?? ""],
        [job.ranks_registered < job.world_size ? `${job.ranks_registered} of ${job.world_size}` : `${job.world_size}`, job.node ? job.node + others : ""],
        [job.slurm_job ?? "–", ""], [when(job.registered_at), `seen ${ago(job.last_seen)}`],
        [figures.power > 0 && !isOver(job) && !job.no_contact_since ? inUnit(figures.power, units.power) : "–", cap ? `cap ${inUnit(cap, units.power)}` : ""],
        [figures.energy > 0 ? inUnit(figures.energy, units.energy) : "–", ""],
        savedInList(figures, units.energy), lostInList(figures, units.time)];
}

function makeRow(job) {
    const state = stateBadge();
    const note = h("span", { class: "note" });
    const pairs = COLUMNS.slice(2).map(() => [h("span"), h("span", { class: "note" })]);
    const row = h("tr", null, h("th", { scope: "row" }, h("a", { href: `#${jobPath(job.job_id)}` }, nameAndId(job))),
        cell("State", null, state.badge, note),
        pairs.map((pair, i) => cell(COLUMNS[i + 2][0], i + 2 >= FIRST_NUMBER ? "number" : null, ...pair)));
    return { row, set(next, units) {
        state.set(next.state, next.last_seen, next.no_contact_since);
        setText(note, next.no_contact_since ? `since ${when(next.no_contact_since)}, ${ago(next.no_contact_since)}`
            : missingRanks(next) || (next.round < 0 ? "" : `round ${next.round}`));
        textsOf(next, units).forEach((texts, i) => texts.forEach((text, k) => setText(pairs[i][k], text)));
    } };
}

/** Returns the units of a page of jobs: one for all its energies, powers and times. `total` serves if no job has
 * an energy. */
function unitsOf(jobs, total) {
    const all = (value) => jobs.flatMap(({ figures, power_cap: cap }) => value(figures, cap));
    const used = all(({ energy }) => energy ?? []);
    return { energy: energyUnit(used.length ? used : [total]), power: powerUnit(all(({ power }, cap) => [power, cap])),
             time: timeUnit(all(({ saved }) => saved?.time_uncertainty ? [saved.time, saved.time_uncertainty] : [])) };
}

/** Creates the controls of the order: a button in the head of each column, and a list for all keys. */
function makeOrder(change) {
    const keys = [...COLUMNS, ...OTHER_KEYS];
    const bare = (key) => key.replace("-", "");
    const isDown = () => query.sort.startsWith("-");
    const heads = COLUMNS.map(([name, key]) => h("button", { type: "button", class: "sort", onclick: () => {
        sortBy(bare(query.sort) !== bare(key) ? key : isDown() ? bare(key) : `-${key}`);
    } }, name, h("span", { "aria-hidden": "true" })));
    const list = h("select", { id: "sort", onchange: () => sortBy(list.value) }, keys.map(([name, key]) => h("option", { value: key }, name)));
    const turn = h("button", { type: "button", onclick: () => sortBy(isDown() ? bare(query.sort) : `-${query.sort}`) });

    function sortBy(key) {
        query.sort = key;
        show();
        change();
    }

    function show() {
        COLUMNS.forEach(([, key], i) => {
            const isKey = bare(key) === bare(query.sort);
            setText(heads[i].lastChild, isKey ? isDown() ? " ▼" : " ▲" : "");
            if (isKey) heads[i].parentElement?.setAttribute("aria-sort", isDown() ? "descending" : "ascending");
            else heads[i].parentElement?.removeAttribute("aria-sort");
        });
        list.value = keys.find(([, key]) => bare(key) === bare(query.sort))[1];
        setText(turn, isDown() ? "▼ Descending" : "▲ Ascending");
    }
    return { heads, controls: [h("label", { for: "sort" }, "Sort by"), list, turn], show };
}

export function showJobs(content, tell) {
    const count = h("p", { class: "note", role: "status" });
    const filter = h("input", { type: "search", id: "filter", placeholder: "name, user, node …", value: query.search });
    const order = makeOrder(() => turnTo(0));
    const body = h("tbody");
    const table = h("table", { class: "jobs" }, tableHead(order.heads, FIRST_NUMBER), body);
    const columns = columnHelp(COLUMNS.map(([name, , text]) => [name, text]));
    const headline = h("p", { class: "headline" });
    const totals = facts(TOTALS_HELP, "facts big");
    const empty = h("p", { class: "empty", hidden: true }, "No job is registered. To register one, start a training process with this server as its ",
        h("code", null, "server_url"), ". For a demonstration, run ", h("code", null, `harpe train-sim --server ${location.origin}`));
    const back = h("button", { type: "button", onclick: () => turnTo(query.offset - ROWS, true) }, "‹ Previous");
    const place = h("span", { role: "status" });
    const on = h("button", { type: "button", onclick: () => turnTo(query.offset + ROWS, true) }, "Next ›");
    const pages = h("nav", { class: "buttons", "aria-label": "Pages of the list" }, back, place, on);
    const toolbar = h("div", { class: "toolbar" }, h("label", { for: "filter" }, "Show"), filter, order.controls, count);
    content.append(h("h1", null, "Jobs"), headline, totals.element, toolbar, table, pages, columns, empty);
    document.title = "Harpe: jobs";
    order.show();

    let rows = new Map();
    let last = null; // the last answer
    let units = null; // in it
    let finished = null;
    let costs = null;

    function turnTo(offset, isPage = false) {
        query.offset = Math.max(0, offset);
        ask.now();
        if (isPage) toolbar.scrollIntoView();
    }

    function sum() {
        if (!last) return;
        const isAll = !query.search;
        const sums = isAll && finished ? addSums(last.sums, finished.sums) : last.sums;
        const { energy: used, saved, saved_uncertainty: uncertainty, compared } = sums;
        showTotals(totals, sums, isAll ? costs : null, units.energy);
        const who = isAll ? `${plural(last.count, "job")} and ${plural(finished?.count ?? 0, "finished job")}` : `These ${plural(last.count, "job")}`;
        setText(headline, used === 0 ? "" : `${who} used ${inUnit(used, units.energy)}` +
            (compared > 0 && saved > uncertainty ? ` and saved ${within(saved, uncertainty, units.energy)}.` : "."));
        totals.element.hidden = used === 0;
    }

    const around = onDemand(async (signal) => Promise.all([get("/finished?limit=0", signal), fleetEnergy(signal)]), ([reports, found]) => {
        finished = reports;
        costs = found;
        sum();
    }, () => {});
    around();
    const aroundClock = setInterval(() => document.hidden || around(), TOTALS_EVERY_MS);

    function show(answer) {
        tell(null);
        const { jobs, count: fitting, all } = answer;
        if (last && all < last.all) around(); // a job was evicted
        last = answer;
        if (query.offset >= fitting && query.offset > 0) {
            turnTo((Math.ceil(fitting / ROWS) - 1) * ROWS);
            return;
        }
        units = unitsOf(jobs, answer.sums.energy + (finished?.sums.energy ?? 0));
        rows = new Map(jobs.map((job) => [job.job_id, rows.get(job.job_id) ?? makeRow(job)]));
        const shown = [...rows.values()];
        for (const old of [...body.children]) if (!shown.some(({ row }) => row === old)) old.remove();
        // A row that stays in its place keeps the focus.
        shown.forEach(({ row }, i) => body.children[i] === row || body.insertBefore(row, body.children[i] ?? null));
        for (const job of jobs) rows.get(job.job_id).set(job, units);
        setText(count, fitting === all ? plural(all, "job") : `${fitting} of ${all} jobs`);
        setText(place, `${answer.offset + 1}–${answer.offset + jobs.length} of ${fitting}`);
        back.disabled = query.offset === 0;
        on.disabled = query.offset + ROWS >= fitting;
        pages.hidden = fitting <= ROWS;
        empty.hidden = all > 0;
        table.hidden = columns.hidden = fitting === 0;
        sum();
    }
    filter.addEventListener("input", () => {
        query.search = filter.value.trim();
        turnTo(0);
    });
    const ask = poll(async (signal) => {
        const { offset } = query;
        return { ...await get(`/jobs?${new URLSearchParams({ ...query, limit: ROWS })}`, signal), offset };
    }, show, tell, EVERY_MS);

    return () => {
        ask();
        around.stop();
        clearInterval(aroundClock);
    };
}
