// SPDX-License-Identifier: Apache-2.0
// The final reports of evicted jobs: a list, and one report. A report does not change any more.
import { finishedJobs, finishedPath, get } from "./api.js";
import { h, setText } from "./dom.js";
import { cell, columnHelp, facts, section, tableHead } from "./figures.js";
import { ago, energyUnit, inUnit, joules, plural, timeUnit, wattHours, when } from "./format.js";
import { poll } from "./live.js";
import { jobName, nameAndId } from "./names.js";
import { HELP, reportFacts, SECTION_HELP } from "./report_words.js";
import { lostInList, savedInList, savedWords } from "./savings_words.js";
import { isOver, stateBadge } from "./state.js";

const EVERY_MS = 60000;
const SHOWN = 200;

const COLUMNS = [
    ["State", "Ended: all ranks of the job reported their end. Failed: the job could not continue. Evicted: the server removed the job while it was in another state."],
    ["Ranks", "The number of processes of the job."],
    ["Rounds", "The number of schedules that the job ran."],
    ["Energy used", "Sum over all reported iterations and all ranks, from the energy counters of the GPUs."],
    ["Saved", "All reported iterations against the job's own baseline, which it measured at the highest clocks; measuring included, with the 95 % confidence interval. " +
        "A figure whose interval contains 0 is within noise."],
    ["Time lost", "Time of the same iterations against the same baseline."],
    ["Evicted", "The time at which the server removed the job."],
];

/** Shows how the job ended. A job that has not reported its end was evicted in another state. */
function endOf(job, state) {
    state.set(isOver(job) ? job.state : "evicted");
    return isOver(job) ? null : h("span", { class: "note" }, `while ${job.state}`);
}

function row(job, units) {
    const state = stateBadge();
    const note = endOf(job, state);
    const pair = (name, [text, below]) => cell(name, "number", text, below ? h("span", { class: "note" }, below) : null);
    return h("tr", null, h("th", { scope: "row" }, h("a", { href: `#${finishedPath(job.job_id)}` }, nameAndId(job))),
        cell("State", null, state.badge, note), cell("Ranks", "number", `${job.world_size}`),
        cell("Rounds", "number", `${job.round + 1}`), cell("Energy used", "number", inUnit(job.figures.energy, units.energy)),
        pair("Saved", savedInList(job.figures, units.energy)), pair("Time lost", lostInList(job.figures, units.time)), cell("Evicted", "number", ago(job.evicted_at)));
}

export function showFinished(content, tell) {
    const filter = h("input", { type: "search", id: "filter", placeholder: "name, state …" });
    const count = h("p", { class: "note", role: "status" });
    const body = h("tbody");
    const table = h("table", { class: "jobs" }, tableHead(["Job", "State", "Ranks", "Rounds", "Energy used", "Saved", "Time lost", "Evicted"], 2), body);
    const columns = columnHelp(COLUMNS);
    const more = h("button", { type: "button", hidden: true, onclick: () => { limit = Infinity; show(jobs); } });
    const empty = h("p", { class: "empty", hidden: true }, "No job has been evicted yet. The server evicts a job on request (",
        h("code", null, "harpe jobs evict ID"), "), or when the job has sent no request for the time max_job_idle_time (by default a week). The server keeps the job's final report.");
    content.append(h("h1", null, "Finished jobs"),
        h("p", { class: "note" }, "Final reports of jobs that the server has evicted. Jobs that have ended are in the list of jobs until then."),
        h("div", { class: "toolbar" }, h("label", { for: "filter" }, "Show"), filter, count), table, more, columns, empty);
    document.title = "Harpe: finished jobs";
    let jobs = [];
    let limit = SHOWN;

    function show(next) {
        tell(null);
        jobs = next;
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        const fitting = jobs.filter((job) => {
            const text = `${job.job_id} ${job.job_metadata ?? ""} ${job.state}`.toLowerCase();
            return words.every((word) => text.includes(word));
        });
        const shown = fitting.slice(0, limit);
        const units = { energy: energyUnit(shown.map((job) => job.figures.energy)),
                        time: timeUnit(shown.flatMap(({ figures: { saved } }) => saved?.time_uncertainty ? [saved.time, saved.time_uncertainty] : [])) };
        body.replaceChildren(...shown.map((job) => row(job, units)));
        more.hidden = fitting.length <= limit;
        setText(more, `Show all ${fitting.length} jobs`);
        setText(count, fitting.length === jobs.length ? plural(jobs.length, "job") : `${fitting.length} of ${jobs.length} jobs`);
        empty.hidden = jobs.length > 0;
        table.hidden = columns.hidden = jobs.length === 0;
    }
    filter.addEventListener("input", () => show(jobs));
    return poll(finishedJobs, show, tell, EVERY_MS);
}

export function showFinishedJob(content, id, tell) {
    const heading = h("h1", null, id);
    const failure = h("p", { class: "problem", hidden: true });
    const state = stateBadge();
    const now = facts(HELP);
    const report = facts(HELP);
    const reportSection = section("Report", SECTION_HELP.Report, report.element);
    reportSection.hidden = true;
    content.append(h("p", null, h("a", { href: "#/finished" }, "← Finished jobs")), heading, now.element, failure, reportSection);
    document.title = `Harpe: ${id}`;

    function show(job) {
        tell(null);
        heading.replaceChildren(...nameAndId(job).filter(Boolean));
        document.title = `Harpe: ${jobName(job)}`;
        now.set("State", h("span", null, state.badge, " ", endOf(job, state)));
        now.set("Evicted", `${when(job.evicted_at)}, ${ago(job.evicted_at)}`);
        now.set("Registered", `${when(job.registered_at)}, ${ago(job.registered_at)}`);
        now.set("Last seen", `${when(job.last_seen)}, ${ago(job.last_seen)}`);
        now.set("Round", `${job.round}`);
        now.set("Ranks", `${job.world_size} (PP ${job.pp_degree}, DP ${job.dp_degree}, TP ${job.tp_degree})`);
        now.set("Scheduler", job.scheduler);
        const { figures } = job;
        if (figures.energy > 0) {
            now.set("Energy used", `${wattHours(figures.energy)} (${joules(figures.energy)}) in ${figures.iterations} iterations`);
            now.set("Saved so far", savedWords(figures.saved) ?? "no baseline measured");
        }
        failure.hidden = !job.failure;
        setText(failure, job.failure ? `✖ ${job.failure}` : "");
        reportSection.hidden = !job.report;
        for (const [name, text, help] of job.report ? reportFacts(job.report) : []) report.set(name, text, help);
    }
    const controller = new AbortController();
    get(finishedPath(id), controller.signal).then(show, (error) => {
        if (controller.signal.aborted) return;
        failure.hidden = false;
        setText(failure, `✖ ${error.message}`);
    });
    return () => controller.abort();
}
