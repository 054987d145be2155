// SPDX-License-Identifier: Apache-2.0
// The history of rounds: energy and time of an iteration in each round, compared with the highest
// clocks. A table below the chart has the numbers.
import { h, setText, svg } from "./dom.js";
import { tableHead } from "./figures.js";
import { ago, joules, plural, seconds, tickLabel, ticks, when } from "./format.js";
import { savingsOfRound } from "./savings_words.js";
import { timeRange } from "./time_range.js";

const HEIGHT = 130;
const LEFT = 58;
const BOTTOM = 24;
const TABLE_ROUNDS = 50;

/** Returns the rounds that ended in the last `length` seconds. Rounds of an earlier server have no
 * time, and are shown only with the choice All kept. */
function roundsWithin(measured, length) {
    const first = Date.now() / 1000 - length;
    return length === Infinity ? measured : measured.filter((one) => one.ended_at > first);
}

/** Draws one strip: the value `name` of the measured rounds over the round numbers. */
function drawStrip(frontier, measured, name, label, unit, width) {
    const points = measured.filter((one) => one[name] > 0);
    const paper = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": `${label} of an iteration in each round; the table below has the numbers` });
    if (points.length === 0) return paper;
    const baseline = frontier.baseline?.[name];
    const values = points.map((one) => one[name]).concat(baseline ?? []);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const pad = (high - low || high) * 0.1;
    const [first, last] = [points[0].round, Math.max(points[points.length - 1].round, points[0].round + 1)];
    const x = (round) => LEFT + 8 + (round - first) / (last - first) * (width - LEFT - 24);
    const y = (value) => HEIGHT - BOTTOM - (value - low + pad) / (high - low + 2 * pad) * (HEIGHT - BOTTOM - 18);
    const list = ticks((low - pad) / unit, (high + pad) / unit, 3);
    for (const tick of list)
        paper.append(svg("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(tick * unit), y2: y(tick * unit) }),
            svg("text", { x: LEFT - 6, y: y(tick * unit) + 4, "text-anchor": "end" }, tickLabel(tick, list)));
    const rounds = ticks(first, last, width / 110).filter(Number.isInteger);
    for (const round of rounds)
        paper.append(svg("text", { x: x(round), y: HEIGHT - 8, "text-anchor": "middle" }, `${round}`));
    if (baseline) paper.append(svg("line", { class: "baseline", x1: LEFT, x2: width - 8, y1: y(baseline), y2: y(baseline) }),
        svg("line", { class: "baseline", x1: width - 30, x2: width - 8, y1: 8, y2: 8 }), // above the curve, which may be near the line
        svg("text", { x: width - 34, y: 12, "text-anchor": "end" }, "highest clocks"));
    paper.append(svg("path", { class: "history", d: points.map((one, i) => `${i ? "L" : "M"}${x(one.round).toFixed(1)} ${y(one[name]).toFixed(1)}`).join("") }),
        svg("text", { class: "title", x: LEFT, y: 12 }, label));
    return paper;
}

/** `onRange(rounds)` is called with the rounds that are shown, after each change of them. */
export function roundChart(onRange) {
    const strips = h("div", { class: "strips" });
    const note = h("p", { class: "note", role: "status" });
    const range = timeRange(() => { draw(); onRange(shown); });
    const body = h("tbody");
    const table = h("details", null, h("summary", null, `The last ${TABLE_ROUNDS} of these rounds as numbers`),
        h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rounds as numbers" }, h("table", null,
            tableHead(["Round", "Ended", "Time", "Energy", "Against the highest clocks"]), body)));
    const element = h("div", null, h("div", { class: "toolbar" }, range.element, note), strips, table);
    let frontier = null;
    let shown = [];

    function describe() {
        const last = frontier.measured.at(-1);
        if (shown.length > 0) return plural(shown.length, "round") + (shown.length > 1 ? `, ${shown[0].round} to ${shown.at(-1).round}` : "");
        return `No round has ended in the ${range.name()}${last?.ended_at ? `; the last one ended ${ago(last.ended_at)}` : ""}.`;
    }

    function draw() {
        const width = strips.clientWidth;
        if (!frontier) return;
        shown = roundsWithin(frontier.measured, range.length());
        setText(note, describe());
        strips.hidden = table.hidden = shown.length === 0;
        if (!width || shown.length === 0) return;
        const big = Math.max(...shown.map((one) => one.energy)) >= 2000;
        strips.replaceChildren(drawStrip(frontier, shown, "energy", `Energy, ${big ? "kJ" : "J"}`, big ? 1000 : 1, width),
            drawStrip(frontier, shown, "time", "Time, s", 1, width));
        body.replaceChildren(...shown.slice(-TABLE_ROUNDS).reverse().map((one) => h("tr", null,
            h("th", { scope: "row" }, `${one.round}`), h("td", null, one.ended_at ? when(one.ended_at) : "–"),
            h("td", null, one.time > 0 ? seconds(one.time) : "–"), h("td", null, one.energy > 0 ? joules(one.energy) : "–"),
            h("td", null, one.baseline && one.energy > 0 ? savingsOfRound(one) : "ran no plan"))));
    }
    const resize = new ResizeObserver(draw);
    resize.observe(element);
    return { element, set(next) { frontier = next; draw(); }, rounds: () => shown, end: () => resize.disconnect() };
}
