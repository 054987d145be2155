// SPDX-License-Identifier: Apache-2.0
// Makes the pictures of report.html interactive: shows the dashboard's frontier and timeline with
// the data in the page. The page is complete without this script, and a printed page shows its own
// pictures. The build joins this file with all its imports (cmake/embed_report.cmake).
import { h, setText } from "../dom.js";
import { change, joules, seconds, watts } from "../format.js";
import { describePlan, frontierChart, planNumber } from "../frontier_chart.js";
import { oneClockWords } from "../savings.js";
import { timeline } from "../timeline.js";
import { planLayouts } from "./layout.js";

/** Returns the reference in the form that the chart takes, or undefined if the report has no
 * reference. */
function readFrontier({ plans, bound, reference, one_clock }) {
    return reference && {
        plans: plans.map(([number, time, energy, lower_bound, peak, swing]) =>
            ({ number, time, energy, lower_bound, peak, swing })),
        vertices: bound,
        all_maximum: { time: reference[0], energy: reference[1] },
        one_clock: one_clock.map(([frequency, time, energy]) => ({ frequency, time, energy })),
    };
}

/** Returns the plan that is selected first: the slowest plan that is at most 5 % slower. */
function firstChoice(frontier) {
    return Math.max(0, frontier.plans.findLastIndex((plan) => plan.time <= frontier.all_maximum.time * 1.05));
}

/** Replaces the pictures of a section by an interactive element. */
function replacePictures(id, ...children) {
    const section = document.getElementById(id);
    section.querySelector(".interactive").append(...children);
    section.classList.add("live");
}

/** Returns the path of a plan's file. */
function planFile({ directory, graph }, number) {
    const digits = String(number).padStart(5, "0");
    return `${directory}/${graph ? `plan_${digits}.json` : `freqs_pipeline_${digits}.py`}`;
}

function selectionFacts(frontier, index, data) {
    const plan = describePlan(frontier, index);
    const number = planNumber(frontier, index);
    const { peak, swing } = frontier.plans[index];
    const oneClock = oneClockWords(frontier, frontier.plans[index]);
    const fact = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));
    return [
        fact("Plan", `${number}`),
        fact("Iteration", `${seconds(plan.time)}, ${change(plan.slowdown - 1, "slower than the fastest", "faster", "as fast as possible")}`),
        fact("Energy", `${joules(plan.energy)}, ${change(-plan.saved, "more", "less")} than at the highest clocks`),
        ...(oneClock ? [fact("One clock for all GPUs", oneClock)] : []),
        fact(`Average power, ${data.has_overhead ? "whole machines" : "all GPUs"}`, watts(plan.power)),
        fact("Peak power; swing", `${watts(peak)}; ${watts(swing)}`),
        fact("Above the lower bound", `${(100 * plan.gap).toFixed(2)} %`),
        fact("File", h("code", null, planFile(data, number))),
    ];
}

/** Creates the pipeline of the selected plan. `set(index)` selects another plan. */
function pipelineView(data, frontier) {
    const layouts = planLayouts(data);
    const picture = timeline();
    const note = h("p", { class: "note" });
    const atHighest = h("input", { type: "checkbox", onchange: () => draw() });
    let selected = 0;

    function draw() {
        const shown = layouts.nearest(selected);
        const plan = frontier.plans[shown];
        setText(note, atHighest.checked
            ? `Every instruction at its highest clock: ${seconds(frontier.all_maximum.time)}, ${joules(frontier.all_maximum.energy)}.`
            : `${shown === selected ? "" : `Plan ${planNumber(frontier, selected)} is not laid out here, to keep the page small. This is the nearest plan that is laid out. `}` +
              `Plan ${plan.number}: ${seconds(plan.time)}, ${joules(plan.energy)}.`);
        picture.set(layouts.layout(atHighest.checked ? -1 : shown));
    }

    return {
        elements: [
            h("div", { class: "toolbar" }, note, h("label", { class: "inline" }, atHighest, " every instruction at its highest clock instead")),
            picture.element,
            h("p", { class: "note" }, "The colour and the height of a box show its power. The line is a critical path. Drag to move. Use Ctrl and the wheel, or " +
                "two fingers, to zoom. On the keyboard, the arrow keys select an instruction, + − 0 zoom, and Shift with the arrow keys moves."),
        ],
        set(index) {
            selected = index;
            draw();
        },
    };
}

function start() {
    const data = JSON.parse(document.getElementById("data").textContent);
    const frontier = readFrontier(data);
    if (!frontier || !CSS.supports("selector(&)")) return;
    const facts = h("dl", { class: "facts" });
    const pipeline = data.timeline ? pipelineView(data.timeline, frontier) : null;
    const select = (index) => {
        facts.replaceChildren(...selectionFacts(frontier, index, data));
        pipeline?.set(index);
    };
    const chart = frontierChart(select);
    replacePictures("frontier", h("div", { class: "split" }, chart.element, h("div", { class: "side" }, h("h3", null, "Selected plan"), facts,
        h("p", { class: "note" }, "Point at a plan for its numbers; click, or focus the chart and use the arrow keys, to select it."))));
    if (pipeline) replacePictures("pipeline", ...pipeline.elements);
    const first = firstChoice(frontier);
    chart.set(frontier, first);
    select(first);
}

start();
