// SPDX-License-Identifier: Apache-2.0
// The frontier as an interactive chart: the time of an iteration against its energy. The lower
// bound is a line, plans are points on or above it, and measured rounds are crosses. One plan is
// selected, by mouse, touch or arrow keys. For assistive technology the chart is a slider over the
// plans.
import { h, svg } from "./dom.js";
import { change, joules, percent, seconds, tickLabel, ticks, watts } from "./format.js";
import { baselineOf, outsideOf, plannedRounds, requestOutsideOf } from "./savings.js";

const MARGIN = { left: 58, right: 16, top: 14, bottom: 42 };
const HEIGHT = 420;
const CLOUD_ROUNDS = 60;
const RUNNING_PX = 55; // room for the label "running"
const NEAR_PX = 110; // a label that ends so far from the running plan, or further, does not cover its label

/** Returns a plan with the time and energy that an iteration needs in addition to it, and compares
 * it with the fastest plan. */
export function describePlan(frontier, index) {
    const outside = outsideOf(frontier);
    const baseline = baselineOf(frontier);
    const plan = frontier.plans[index];
    const time = plan.time + outside.time;
    const energy = plan.energy + outside.energy;
    const fastest = frontier.plans[0].time + outside.time;
    return { index, time, energy, slowdown: time / fastest, power: energy / time,
             saved: 1 - energy / baseline.energy, gap: plan.energy / plan.lower_bound - 1 };
}

/** Returns a plan's number: that of its file if it comes from a plan directory (0 is the slowest), and else its place in the
 * server's list (0 is the fastest), as everywhere on a server. */
export const planNumber = (frontier, index) => frontier.plans[index].number ?? index;

function planInWords(frontier, index) {
    const plan = describePlan(frontier, index);
    const highest = Math.max(planNumber(frontier, 0), planNumber(frontier, frontier.plans.length - 1));
    return `Plan ${planNumber(frontier, index)} of 0 to ${highest}: ${seconds(plan.time)}, ${joules(plan.energy)}, ` +
        `${percent(plan.slowdown - 1)} slower than the fastest, ` +
        `${change(-plan.saved, "more", "less")} energy than the highest clocks` +
        (index === frontier.current ? ", running" : "");
}

function extent(values, room) {
    const low = Math.min(...values);
    const high = Math.max(...values);
    const pad = (high - low || Math.abs(high) || 1) * room;
    return [low - pad, high + pad];
}

/** Computes the positions of numbers in the picture. */
function makeScales(frontier, width) {
    const outside = outsideOf(frontier);
    const recent = plannedRounds(frontier).slice(-10);
    const times = [...frontier.plans.map((plan) => plan.time + outside.time), ...recent.map((one) => one.time)];
    const energies = [...frontier.plans.flatMap((plan) => [plan.energy, plan.lower_bound]).map((e) => e + outside.energy),
                      baselineOf(frontier).energy, ...recent.map((one) => one.energy)];
    const [x0, x1] = extent(times, 0.04);
    const [y0, y1] = extent(energies, 0.06);
    const right = width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom;
    return {
        x0, x1, y0, y1, right, bottom,
        x: (time) => MARGIN.left + (time - x0) / (x1 - x0) * (right - MARGIN.left),
        y: (energy) => bottom - (energy - y0) / (y1 - y0) * (bottom - MARGIN.top),
    };
}

function drawAxes(scales, width) {
    const parts = [];
    const xs = ticks(scales.x0, scales.x1, width / 110);
    const big = scales.y1 >= 2000;
    const unit = big ? 1000 : 1;
    const ys = ticks(scales.y0 / unit, scales.y1 / unit, 6);
    for (const value of xs) {
        const x = scales.x(value);
        parts.push(svg("line", { class: "grid", x1: x, x2: x, y1: MARGIN.top, y2: scales.bottom }),
            svg("text", { x, y: scales.bottom + 16, "text-anchor": "middle" }, tickLabel(value, xs)));
    }
    for (const value of ys) {
        const y = scales.y(value * unit);
        parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: scales.right, y1: y, y2: y }),
            svg("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, tickLabel(value, ys)));
    }
    parts.push(
        svg("text", { class: "title", x: (MARGIN.left + scales.right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, "time of an iteration, s"),
        svg("text", { class: "title", transform: `translate(13 ${(MARGIN.top + scales.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" },
            `energy of an iteration, ${big ? "kJ" : "J"}`));
    return parts;
}

function drawVertical(scales, time, label) {
    if (!(time > scales.x0 && time < scales.x1)) return [];
    const x = scales.x(time);
    return [svg("line", { class: "request", x1: x, x2: x, y1: MARGIN.top, y2: scales.bottom }),
            svg("text", { x: x + 4, y: scales.bottom - 6 }, label)];
}

function placeOf(frontier, scales, plan) {
    const outside = outsideOf(frontier);
    return { x: scales.x(plan.time + outside.time), y: scales.y(plan.energy + outside.energy) };
}

/** Returns y, or another y if a label that ends at (x, y) would cover the label of the running plan. */
function freeY(frontier, scales, x, y) {
    const plan = frontier.plans[frontier.current];
    if (!plan) return y;
    const running = placeOf(frontier, scales, plan);
    if (Math.abs(running.x - x) > NEAR_PX || Math.abs(running.y - 4 - y) > 20) return y;
    return running.y + 26 < scales.bottom ? running.y + 26 : running.y - 26;
}

/** Draws job requests as lines: limits that the choice of the running plan had to respect. */
function drawRequests(frontier, scales) {
    const requests = frontier.job_requests ?? {};
    const [outside, counted] = [outsideOf(frontier), requestOutsideOf(frontier)];
    const moved = { time: outside.time - counted.time, energy: outside.energy - counted.energy };
    const straggler = requests.slowdown > 0 ? requests.slowdown * (frontier.undisturbed_time + counted.time) : requests.iteration_time;
    const parts = [
        ...(straggler > 0 ? drawVertical(scales, straggler + moved.time, "straggler") : []),
        ...(requests.plan_time > 0 ? drawVertical(scales, requests.plan_time + moved.time, "requested plan") : []),
    ];
    if (requests.power_cap > 0) {
        const capped = (time) => (time - moved.time) * requests.power_cap + moved.energy;
        const at = (time) => `${scales.x(time)} ${scales.y(capped(time))}`;
        parts.push(svg("path", { class: "request", d: `M${at(scales.x0)}L${at(scales.x1)}` }));
        const time = Math.min(scales.x1, (scales.y1 - moved.energy) / requests.power_cap + moved.time);
        const x = Math.min(scales.x(time), scales.right) - 4;
        const y = Math.max(scales.y(capped(time)), MARGIN.top) + 14;
        parts.push(svg("text", { x, y: freeY(frontier, scales, x, y), "text-anchor": "end" }, `cap ${watts(requests.power_cap)}`));
    }
    return parts;
}

const diamond = (x, y, r) => `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`;

function drawBound(frontier, scales) {
    const outside = outsideOf(frontier);
    const line = frontier.vertices.map(([time, bound], i) => `${i ? "L" : "M"}` +
        `${scales.x(time + outside.time).toFixed(1)} ${scales.y(bound + outside.energy).toFixed(1)}`);
    return svg("path", { class: "bound", d: line.join("") });
}

function drawData(frontier, scales, selected) {
    const baseline = baselineOf(frontier);
    const parts = [];
    frontier.plans.forEach((plan) => {
        const { x, y } = placeOf(frontier, scales, plan);
        parts.push(svg("circle", { class: "plan", cx: x, cy: y, r: 3.2 }));
    });
    const [mx, my] = [scales.x(baseline.time), scales.y(baseline.energy)];
    parts.push(svg("rect", { class: "maximum", x: mx - 5, y: my - 5, width: 10, height: 10 }),
        svg("text", { x: mx + 9, y: my + 4 }, "highest clocks"));
    const running = frontier.plans[frontier.current];
    if (running) {
        const { x, y } = placeOf(frontier, scales, running);
        const fits = x + 12 + RUNNING_PX < scales.right;
        parts.push(svg("circle", { class: "current", cx: x, cy: y, r: 9 }),
            svg("text", { class: "strong", x: fits ? x + 12 : x - 12, y: y - 8, "text-anchor": fits ? "start" : "end" }, "running"));
    }
    const cloud = plannedRounds({ measured: frontier.shown ?? frontier.measured });
    for (const one of cloud.slice(-CLOUD_ROUNDS)) {
        if (one.time > scales.x1 || one.energy > scales.y1 || one.time < scales.x0 || one.energy < scales.y0) continue;
        const [x, y] = [scales.x(one.time), scales.y(one.energy)];
        parts.push(svg("path", { class: "measured", d: `M${x - 3} ${y - 3}L${x + 3} ${y + 3}M${x - 3} ${y + 3}L${x + 3} ${y - 3}` }));
    }
    const { x, y } = placeOf(frontier, scales, frontier.plans[selected]);
    parts.push(svg("path", { class: "selected", d: diamond(x, y, 6.5) }));
    return parts;
}

/** Explains the signs that can occur in this chart. */
function legendEntries(frontier) {
    const entry = (shape, text) => h("span", null, svg("svg", { width: 22, height: 14, "aria-hidden": "true" }, shape), text);
    return [
        entry(svg("path", { class: "bound", d: "M1 7H21" }), "no plan can be below"),
        entry(svg("circle", { class: "plan", cx: 11, cy: 7, r: 3.2 }), "plan"),
        frontier.current === undefined ? null : entry(svg("circle", { class: "current", cx: 11, cy: 7, r: 5.5 }), "running"),
        entry(svg("path", { class: "selected", d: diamond(11, 7, 6) }), "selected"),
        frontier.measured ? entry(svg("path", { class: "measured", d: "M8 4L14 10M8 10L14 4" }), "measured round of a plan") : null,
        entry(svg("rect", { class: "maximum", x: 7, y: 3, width: 8, height: 8 }), "highest clocks"),
    ].filter(Boolean);
}

/** Calls `onSelect(index)` when another plan is selected, and `onRun(index)` on Enter if plans can
 * be run. */
export function frontierChart(onSelect, onRun) {
    const paper = svg("svg", { height: HEIGHT, "aria-hidden": "true" });
    const tip = h("div", { class: "tip", hidden: true });
    const plot = h("div", { class: "plot", tabindex: "0", role: "slider", "aria-label": "Plans along the frontier",
                            "aria-valuemin": "0" }, paper, tip);
    const legend = h("div", { class: "legend" });
    const element = h("div", { class: "chart" }, plot, legend);
    let frontier = null;
    let selected = 0;
    let scales = null;

    function draw() {
        const width = plot.clientWidth;
        if (!frontier || !width) return;
        scales = makeScales(frontier, width);
        paper.setAttribute("width", width);
        const clip = svg("clipPath", { id: "plot-area" }, svg("rect", {
            x: MARGIN.left, y: MARGIN.top, width: scales.right - MARGIN.left, height: scales.bottom - MARGIN.top }));
        paper.replaceChildren(clip, ...drawAxes(scales, width),
            svg("g", { "clip-path": "url(#plot-area)" }, drawRequests(frontier, scales), drawBound(frontier, scales)),
            ...drawData(frontier, scales, selected));
        plot.setAttribute("aria-valuemax", frontier.plans.length - 1);
        plot.setAttribute("aria-valuenow", selected);
        plot.setAttribute("aria-valuetext", planInWords(frontier, selected));
    }

    function nearest(event) {
        const box = plot.getBoundingClientRect();
        const [px, py] = [event.clientX - box.left, event.clientY - box.top];
        let best = 0;
        let bestDistance = Infinity;
        frontier.plans.forEach((_, i) => {
            const plan = describePlan(frontier, i);
            const distance = Math.hypot(scales.x(plan.time) - px, (scales.y(plan.energy) - py) / 3);
            if (distance < bestDistance) [best, bestDistance] = [i, distance];
        });
        return best;
    }

    function showTip(index) {
        const plan = describePlan(frontier, index);
        tip.replaceChildren(
            h("strong", null, `Plan ${planNumber(frontier, index)}${index === frontier.current ? " (running)" : ""}`),
            h("div", null, `${seconds(plan.time)} · ${joules(plan.energy)} · ${watts(plan.power)}`),
            h("div", null, `${percent(plan.slowdown - 1)} slower, ${change(-plan.saved, "more", "less")} energy`));
        tip.hidden = false;
        const x = scales.x(plan.time);
        tip.style.left = `${Math.min(Math.max(x - tip.offsetWidth / 2, 4), plot.clientWidth - tip.offsetWidth - 4)}px`;
        const above = scales.y(plan.energy) - tip.offsetHeight - 14;
        tip.style.top = `${above < 0 ? scales.y(plan.energy) + 16 : above}px`;
    }

    function choose(index) {
        const next = Math.min(Math.max(index, 0), frontier.plans.length - 1);
        if (next === selected) return;
        selected = next;
        draw();
        onSelect(selected);
    }

    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10,
                    Home: -Infinity, End: Infinity };
    plot.addEventListener("keydown", (event) => {
        if (!frontier) return;
        if (event.key === "Enter" && !event.repeat) onRun?.(selected);
        else if (event.key in steps) choose(selected + steps[event.key]);
        else return;
        event.preventDefault();
        showTip(selected);
    });
    plot.addEventListener("pointermove", (event) => frontier && scales && showTip(nearest(event)));
    plot.addEventListener("pointerleave", () => { tip.hidden = true; });
    plot.addEventListener("blur", () => { tip.hidden = true; });
    plot.addEventListener("click", (event) => frontier && scales && choose(nearest(event)));
    const resize = new ResizeObserver(draw);
    resize.observe(plot);

    return {
        element,
        set(next, index) {
            frontier = next;
            selected = Math.min(index, next.plans.length - 1);
            if (!legend.hasChildNodes()) legend.append(...legendEntries(frontier));
            draw();
        },
        end: () => resize.disconnect(),
    };
}
