// SPDX-License-Identifier: Apache-2.0
// All jobs, newest first, a row each. A row is made once and then only its changed texts are set, so
// that a thousand cost nothing. What the list does not tell (missing ranks, savings) is asked for
// rows that are in sight only.
import { get, jobPath } from "./api.js";
import { h, setText } from "./dom.js";
import { ago, percent, ranges } from "./format.js";
import { keepFresh } from "./live.js";
import { recentSavings } from "./savings.js";

const DETAILS_EVERY_MS = 3000;

/** Signs that differ by shape; the word stands beside them. */
const SIGNS = { registering: "◌", preparing: "◔", gathering: "◑", running: "▶", observing: "◕",
                failed: "✖", evicted: "∅" };

export function stateBadge() {
    const sign = h("span", { "aria-hidden": "true" });
    const word = h("span");
    const badge = h("span", { class: "state" }, sign, " ", word);
    return { badge, set(state) {
        setText(sign, SIGNS[state] ?? "?");
        setText(word, state);
        badge.dataset.state = state;
    } };
}

/** Who is still waited for, in words; "" when nobody. */
export function missingRanks(job) {
    const wanted = { registering: ["unknown", "not registered"], gathering: ["asking", "not asking yet"],
                     running: ["served", "without result"] }[job.state];
    if (!wanted) return "";
    const [state, words] = wanted;
    const missing = job.ranks.filter((rank) =>
        state === "asking" ? rank.state !== "asking" : rank.state === state).map((rank) => rank.rank);
    return missing.length ? `${words}: ${ranges(missing)}` : "";
}

function makeRow(job) {
    const state = stateBadge();
    const ranks = h("span");
    const missing = h("span", { class: "note" });
    const cells = { round: h("td", { class: "number" }), savings: h("td", { class: "number" }),
                    seen: h("td", { class: "number" }) };
    const row = h("tr", null,
        h("th", { scope: "row" }, h("a", { href: `#${jobPath(job.job_id)}` }, job.job_id),
            job.job_metadata ? h("span", { class: "note" }, job.job_metadata) : null),
        h("td", null, state.badge), h("td", null, ranks, missing), cells.round, cells.savings, cells.seen);
    for (const [name, cell] of [["Round", cells.round], ["Saves", cells.savings], ["Last seen", cells.seen]])
        cell.dataset.label = name;
    const text = `${job.job_id} ${job.job_metadata ?? ""}`.toLowerCase();
    let shown = null;
    return {
        row,
        isInSight: false,
        get job() { return shown; },
        matches: (words) => words.every((word) => text.includes(word) || shown.state.includes(word)),
        set(next) {
            shown = next;
            state.set(next.state);
            setText(ranks, `${next.ranks_registered} of ${next.world_size}` + (next.state === "running"
                ? `, ${next.ranks_reported} reported` : `, ${next.ranks_waiting} waiting`));
            setText(cells.round, next.round < 0 ? "–" : `${next.round}`);
            setText(cells.seen, ago(next.last_seen));
        },
        setDetails(full, frontier) {
            setText(missing, full ? missingRanks(full) : "");
            const savings = frontier && recentSavings(frontier);
            setText(cells.savings, savings ? percent(savings.energy)
                : frontier ? frontier.phase : "–");
        },
    };
}

export function showJobs(content, tell) {
    const count = h("p", { class: "note", role: "status" });
    const filter = h("input", { type: "search", id: "filter", placeholder: "name, state …" });
    const body = h("tbody");
    const table = h("table", { class: "jobs" },
        h("thead", null, h("tr", null, ["Job", "State", "Ranks", "Round", "Saves", "Last seen"].map(
            (name, i) => h("th", { scope: "col", class: i > 2 ? "number" : null }, name)))), body);
    const empty = h("p", { class: "empty", hidden: true }, "No job is registered. A training process finds this server through ",
        h("code", null, "ZEUS_PFO_SERVER"), "; to see one at work: ", h("code", null, "harpe train-sim --server URL"));
    content.append(h("h1", null, "Jobs"), h("div", { class: "toolbar" },
        h("label", { for: "filter" }, "Show"), filter, count), table, empty);
    document.title = "Harpe: jobs";

    const rows = new Map();
    const sight = new IntersectionObserver((entries) => {
        for (const entry of entries) entry.target.harpeRow.isInSight = entry.isIntersecting;
        details();
    });

    function applyFilter() {
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        let visible = 0;
        for (const row of rows.values()) {
            row.row.hidden = !row.matches(words);
            if (!row.row.hidden) visible++;
        }
        setText(count, visible === rows.size ? (rows.size === 1 ? "1 job" : `${rows.size} jobs`) : `${visible} of ${rows.size} jobs`);
    }
    filter.addEventListener("input", applyFilter);

    function show({ jobs }) {
        tell(null);
        const known = new Set(jobs.map((job) => job.job_id));
        for (const [id, row] of rows) {
            if (known.has(id)) continue;
            sight.unobserve(row.row);
            row.row.remove();
            rows.delete(id);
        }
        let next = body.firstChild;
        for (const job of jobs) {
            let row = rows.get(job.job_id);
            if (!row) {
                row = makeRow(job);
                row.row.harpeRow = row;
                rows.set(job.job_id, row);
                body.insertBefore(row.row, next);
                sight.observe(row.row);
            } else if (row.row === next) {
                next = next.nextSibling;
            }
            row.set(job);
        }
        empty.hidden = jobs.length > 0;
        table.hidden = jobs.length === 0;
        applyFilter();
    }

    const jobs = keepFresh((signal) => get("/jobs?limit=10000", signal), show, tell);
    const controller = new AbortController();
    async function loadDetails() {
        const visible = [...rows.values()].filter((row) => row.isInSight && !row.row.hidden).slice(0, 40);
        await Promise.all(visible.map(async (row) => {
            const path = jobPath(row.job.job_id);
            const [full, frontier] = await Promise.all([
                get(path, controller.signal).catch(() => null),
                row.job.round < 0 || row.hasNoFrontier ? null : get(`${path}/frontier`, controller.signal).catch((error) => {
                    row.hasNoFrontier = error.status === 409;
                    return null;
                })]);
            row.setDetails(full, frontier);
        }));
    }
    const details = keepFresh(loadDetails, () => {}, () => {}, DETAILS_EVERY_MS);

    return () => {
        jobs.stop();
        details.stop();
        controller.abort();
        sight.disconnect();
    };
}
