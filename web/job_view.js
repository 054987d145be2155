// SPDX-License-Identifier: Apache-2.0
// One job: its current state, its frontier with the forms for job requests, the pipeline of the
// selected plan, measurements compared with predictions, and its rounds and ranks.
import { finishedPath, get, jobPath } from "./api.js";
import { h, setText } from "./dom.js";
import { facts, section } from "./figures.js";
import { ago, change, joules, percent, ranges, seconds, watts } from "./format.js";
import { describePlan, frontierChart, planNumber } from "./frontier_chart.js";
import { missingRanks } from "./jobs_view.js";
import { follow, onDemand } from "./live.js";
import { jobName, nameAndId } from "./names.js";
import { HELP, reportFacts, SECTION_HELP } from "./report_words.js";
import { roundChart } from "./round_chart.js";
import { oneClockWords } from "./savings.js";
import { baselineWords, recentWords, savedWords } from "./savings_words.js";
import { isOver, stateBadge } from "./state.js";
import { timeline } from "./timeline.js";
import { requestForms } from "./job_requests.js";

const PHASES = {
    count: "counting microbatches", sweep: "trying frequencies", explore: "exploring frequencies", plan: "running a plan", hold: "holding the highest clocks",
};

/* ---- Measured against predicted ---- */

/** Draws a difference as a bar that starts in the middle. */
function deviation(predicted, measured) {
    const off = measured / predicted - 1;
    const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
    bar.firstChild.style.width = `${Math.min(Math.abs(off) * 500, 50)}%`;
    bar.firstChild.style[off < 0 ? "right" : "left"] = "50%";
    return [change(off, "more", "less"), bar];
}

function stageTable() {
    const body = h("tbody");
    const note = h("p", { class: "note" });
    const element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Stages" }, h("table", { class: "stages" },
        h("thead", null, h("tr", null, ["Stage", "Instruction", "Runs", "Time predicted", "measured", "", "Energy predicted", "measured", ""].map(
            (name) => name ? h("th", { scope: "col" }, name) : h("td")))), body));
    return { element: h("div", null, note, element), set(pipeline) {
        setText(note, pipeline.measured_round === null
            ? "These are predictions only. Measurements are shown for the plan that ran last, if it has run since the plans were made. Times and energies are those of one iteration, of all GPUs of a stage together."
            : `Round ${pipeline.measured_round} ran this plan. Times and energies are those of one iteration, of all GPUs of a stage together.`);
        body.replaceChildren(...pipeline.entries.map(({ stage, instruction, runs, predicted, measured }) => h("tr", null,
            h("th", { scope: "row" }, `${stage}`), h("td", null, instruction), h("td", null, `${runs}`),
            ...[[0, seconds], [1, joules]].flatMap(([i, format]) => [h("td", null, format(predicted[i])),
                h("td", null, measured ? format(measured[i]) : "–"),
                h("td", null, measured ? deviation(predicted[i], measured[i]) : "–")]))));
    } };
}

/* ---- Ranks ---- */

function rankList() {
    const element = h("p");
    return { element, set(job) {
        const words = { unknown: "not registered", asking: "waiting for a schedule", served: "running" };
        setText(element, Object.entries(job.rank_states).filter(([, ranks]) => ranks).map(
            ([state, ranks]) => `${words[state] ?? state}: ${ranges(ranks, 12)}`).join(" · "));
    } };
}

/* ---- The pipeline ---- */

/** Describes the part of a predicted iteration that the picture of its pipeline lacks. */
function outsideWords(time, energy) {
    return Math.abs(time) < 1e-6 && Math.abs(energy) < 1e-3 ? ""
        : ` Of these, ${seconds(time)} and ${joules(energy)} are outside of the pipeline and are not drawn.`;
}

/* ---- The view ---- */

function selectionFacts(list, frontier, index) {
    const plan = describePlan(frontier, index);
    list.set("Plan", `${planNumber(frontier, index)} of 0–${frontier.plans.length - 1}${index === frontier.current ? ", running" : ""}`);
    list.set("Iteration", `${seconds(plan.time)}, ${percent(plan.slowdown - 1)} slower than the fastest`);
    list.set("Energy", `${joules(plan.energy)}, ${change(-plan.saved, "more", "less")} than at the highest clocks`);
    const oneClock = oneClockWords(frontier, frontier.plans[index]);
    if (oneClock) list.set("One clock for all GPUs", oneClock);
    list.set("Average power", watts(plan.power));
    list.set("Above the lower bound", `${(100 * plan.gap).toFixed(2)} %`);
}

export function showJob(content, id, tell) {
    const path = jobPath(id);
    const state = stateBadge();
    const heading = h("h1", null, id);
    const now = facts(HELP);
    const failure = h("p", { class: "problem", role: "alert", hidden: true });
    const ranks = rankList();
    const report = facts(HELP);
    const selection = facts(HELP);
    const stages = stageTable();
    const rounds = roundChart((shown) => {
        frontier.shown = shown;
        if (frontier.plans) chart.set(frontier, shownPlan());
    });
    const picture = timeline();
    const pipelineNote = h("p", { class: "note", role: "status" });
    let known = null; // the job
    let refusedIn = null; // the round in which the server had no frontier
    let frontier = null;
    let frontierKey = "";
    let selected = null; // null: the running plan
    let pipelineKey = "";
    let isPipelineShown = false;
    let takesRequests = true;

    const forms = requestForms(id, () => frontierFresh());
    const shownPlan = () => selected === null ? frontier.current : Math.min(selected, frontier.plans.length - 1);
    const requests = h("div", null, h("h3", null, "Job requests"), forms.element);
    const run = (index) => takesRequests && forms.runPlan(frontier, index);
    const chart = frontierChart((index) => {
        selected = index;
        update();
    }, run);
    const runButton = h("button", { type: "button", class: "primary", onclick: () => run(shownPlan()) }, "Run this plan …");
    const followButton = h("button", { type: "button", onclick: () => { selected = null; update(); } }, "Back to the running plan");
    const waiting = h("p", { class: "empty" }, "Loading …");
    const frontierBody = h("div", { class: "split", hidden: true }, chart.element,
        h("div", { class: "side" }, h("h3", null, "Selected plan"), selection.element,
            h("div", { class: "buttons" }, runButton, followButton), requests));
    const pipelineSection = section("Pipeline", SECTION_HELP.Pipeline, pipelineNote, picture.element);
    const stageSection = section("Measured and predicted", SECTION_HELP["Measured and predicted"], stages.element);
    const roundSection = section("Rounds", SECTION_HELP.Rounds, rounds.element);
    const reportSection = section("Report", SECTION_HELP.Report, report.element);
    for (const one of [reportSection, pipelineSection, stageSection, roundSection]) one.hidden = true;

    content.append(h("p", null, h("a", { href: "#/" }, "← All jobs")), heading, now.element, failure,
        section("Ranks", SECTION_HELP.Ranks, ranks.element), reportSection, section("Frontier", SECTION_HELP.Frontier, waiting, frontierBody), pipelineSection, stageSection, roundSection);
    document.title = `Harpe: ${id}`;
    now.set("State", state.badge);

    /* A job that is over runs no other plan. */
    function setTakesRequests(takes) {
        takesRequests = takes;
        requests.hidden = runButton.hidden = !takes;
    }

    function showFacts(job) {
        tell(null);
        known = job;
        if (document.title !== `Harpe: ${jobName(job)}`) heading.replaceChildren(...nameAndId(job).filter(Boolean));
        document.title = `Harpe: ${jobName(job)}`;
        state.set(job.state, job.last_seen, job.no_contact_since);
        setTakesRequests(!isOver(job));
        now.set("Round", job.round < 0 ? "none yet" : `${job.round}`);
        now.set("Ranks", `${job.ranks_registered} of ${job.world_size} (PP ${job.pp_degree}, DP ${job.dp_degree}, TP ${job.tp_degree})`);
        const missing = missingRanks(job);
        now.set("Waiting", missing ? `${job.ranks_waiting} ranks; ${missing}` : `${job.ranks_waiting} ranks`);
        now.set("Scheduler", job.scheduler);
        now.set("Last seen", ago(job.last_seen));
        const { figures } = job;
        if (figures?.energy > 0) {
            now.set("Energy used", `${joules(figures.energy)} in ${figures.iterations} iterations`);
            now.set("Power", figures.power > 0 ? `${watts(figures.power)} in the last round` : "not known since the server was restarted");
            now.set("Saved so far", savedWords(figures.saved) ?? "no baseline measured");
        }
        reportSection.hidden = !job.report;
        for (const [name, text, help] of job.report ? reportFacts(job.report) : []) report.set(name, text, help);
        failure.hidden = !job.failure;
        setText(failure, job.failure ? `✖ ${job.failure}` : "");
        ranks.set(job);
    }

    /* The pipeline of a plan changes only when the plans change. The measurements in it change with
     * each round. */
    const pipelineFresh = onDemand(async (signal) => {
        if (!frontier?.plans) return null;
        const index = shownPlan();
        const key = `${index} ${frontier.round} ${frontier.plans[index].time} ${frontier.plans[index].energy}`;
        if (key === pipelineKey) return null;
        const pipeline = await get(`${path}/pipeline?plan=${index}`, signal);
        pipelineKey = key;
        return { pipeline, index };
    }, (answer) => {
        if (!answer) return;
        const { pipeline, index } = answer;
        const { time, energy } = describePlan(frontier, index);
        setText(pipelineNote, `Plan ${planNumber(frontier, index)}: ${seconds(time)}, ${joules(energy)}.${outsideWords(time - pipeline.time, energy - pipeline.energy)} ` +
            "The colour and the height of a box show its power. The line through the boxes is a critical path.");
        const drawn = `${index} ${pipeline.time} ${pipeline.energy}`;
        if (isPipelineShown !== drawn) picture.set(pipeline);
        isPipelineShown = drawn;
        stages.set(pipeline);
        stageSection.hidden = false;
    }, (error) => setText(pipelineNote, `✖ ${error.message}`));

    /* Explains why there is no plan. */
    function planlessness() {
        const { phase, reason, sweep, exploration } = frontier;
        if (phase === "hold") return `No plan: the job runs at its highest clocks${reason ? `: ${reason}` : "."}`;
        if (!sweep) return `No plan yet: ${PHASES[phase] ?? phase}.`;
        if (exploration && phase === "explore")
            return `No plan yet: ${exploration.measured} frequencies of instructions measured in ${sweep.rounds} rounds.`;
        return `No plan yet: ${sweep.done} of at most ${sweep.frequencies} frequencies tried` +
            (sweep.frequency ? `, now ${sweep.frequency} MHz.` :
                sweep.done < sweep.frequencies ? "." : "; planning.");
    }

    function update() {
        const hasPlans = Boolean(frontier.plans);
        now.set("Phase", frontier.reason ? `${PHASES[frontier.phase]}: ${frontier.reason}` : PHASES[frontier.phase] ?? frontier.phase);
        now.set("Saves", recentWords(frontier) ?? "nothing measured yet");
        now.set("Baseline", baselineWords(frontier));
        waiting.hidden = hasPlans;
        frontierBody.hidden = pipelineSection.hidden = !hasPlans;
        stageSection.hidden = !hasPlans || !isPipelineShown;
        roundSection.hidden = frontier.measured.length === 0;
        rounds.set(frontier);
        frontier.shown = rounds.rounds();
        if (!hasPlans) {
            setText(waiting, planlessness());
            return;
        }
        const index = shownPlan();
        chart.set(frontier, index);
        selectionFacts(selection, frontier, index);
        runButton.disabled = index === frontier.current;
        followButton.hidden = selected === null;
        forms.suggest(frontier, index);
        pipelineFresh();
    }

    /* Does not ask before all ranks are registered, or twice in the same round. */
    const frontierFresh = onDemand(async (signal) => {
        if (!known || known.failure || known.ranks_registered < known.world_size || known.round === refusedIn) return null;
        return get(`${path}/frontier`, signal);
    }, (next) => {
        if (!next) {
            if (known && known.ranks_registered < known.world_size) setText(waiting, "There is no plan until all ranks are registered.");
            return;
        }
        const key = JSON.stringify([next.phase, next.round, next.job_requests, next.current, next.sweep, next.exploration, next.outside, next.baseline,
            next.plans?.length, next.plans?.[0], next.plans?.at(-1)]);
        if (key === frontierKey) return;
        frontierKey = key;
        frontier = next;
        update();
    }, (error) => {
        if (error.status === 409) refusedIn = known.round;
        if (!frontier) setText(waiting, error.message);
    }, 500);

    /* The page still shows old data. */
    function isGone(error) {
        state.set(error.status === 404 ? "unknown" : "evicted");
        failure.hidden = false;
        failure.replaceChildren(`✖ ${error.message}`, ...error.status === 410 ? [" ", h("a", { href: `#${finishedPath(id)}` }, "Its final report")] : []);
        setText(waiting, "");
        setTakesRequests(false);
        frontierFresh.stop();
    }

    const endEvents = follow(`${path}/events`, (job) => {
        showFacts(job);
        frontierFresh();
    }, (error) => {
        tell(error);
        if (error.status === 404 || error.status === 410) isGone(error);
    });
    const clock = setInterval(() => {
        if (!known || failure.textContent) return;
        now.set("Last seen", ago(known.last_seen));
        state.set(known.state, known.last_seen, known.no_contact_since);
    }, 1000);

    return () => {
        endEvents();
        clearInterval(clock);
        for (const one of [frontierFresh, pipelineFresh]) one.stop();
        for (const one of [chart, rounds, picture]) one.end();
    };
}
