// SPDX-License-Identifier: Apache-2.0
// What makes report.html's pictures ones to work with: the dashboard's frontier and timeline, on the
// data that the page holds. The page is complete without it; printed, it shows its own pictures. The
// build joins this with all that it imports (cmake/embed_report.cmake).
import { h, setText } from "../dom.js";
import { change, joules, seconds, watts } from "../format.js";
import { describePlan, frontierChart, planNumber } from "../frontier_chart.js";
import { timeline } from "../timeline.js";
import { planLayouts } from "./layout.js";

/** As the chart wants it; undefined where there is nothing to compare plans with. */
function readFrontier({ plans, bound, reference }) {
    return reference && {
        plans: plans.map(([number, time, energy, lower_bound]) => ({ number, time, energy, lower_bound })),
        vertices: bound,
        all_maximum: { time: reference[0], energy: reference[1] },
    };
}

/** The plan to begin with: the slowest that loses at most 5 %. */
function firstChoice(frontier) {
    return Math.max(0, frontier.plans.findLastIndex((plan) => plan.time <= frontier.all_maximum.time * 1.05));
}

/** A section's pictures make room for something to work with. */
function replacePictures(id, ...children) {
    const section = document.getElementById(id);
    section.querySelector(".interactive").append(...children);
    section.classList.add("live");
}

function selectionFacts(frontier, index, directory) {
    const plan = describePlan(frontier, index);
    const number = planNumber(frontier, index);
    const fact = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));
    return [
        fact("Plan", `${number}`),
        fact("Iteration", `${seconds(plan.time)}, ${change(plan.slowdown - 1, "slower than the fastest", "faster", "as fast as can be")}`),
        fact("Energy", `${joules(plan.energy)}, ${change(-plan.saved, "more", "less")} than at the highest clocks`),
        fact("Average power, all GPUs", watts(plan.power)),
        fact("Above the lower bound", `${(100 * plan.gap).toFixed(2)} %`),
        fact("File", h("code", null, `${directory}/freqs_pipeline_${String(number).padStart(5, "0")}.py`)),
    ];
}

/** The pipeline of the selected plan; `set(index)`. */
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
            : `${shown === selected ? "" : `Plan ${planNumber(frontier, selected)} is not laid out here, to keep the page small; this is the nearest that is. `}` +
              `Plan ${plan.number}: ${seconds(plan.time)}, ${joules(plan.energy)}.`);
        picture.set(layouts.layout(atHighest.checked ? -1 : shown));
    }

    return {
        elements: [
            h("div", { class: "toolbar" }, note, h("label", { class: "inline" }, atHighest, " every instruction at its highest clock instead")),
            picture.element,
            h("p", { class: "note" }, "Colour and height of a box tell its power; the line is a critical path. Drag to move, Ctrl and wheel or " +
                "two fingers to zoom; by keyboard: arrow keys from instruction to instruction, + − 0 to zoom, Shift and arrows to move."),
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
        facts.replaceChildren(...selectionFacts(frontier, index, data.directory));
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
