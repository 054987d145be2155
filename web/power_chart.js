// SPDX-License-Identifier: Apache-2.0
// The power of the fleet over time: measured, counted, and the limit. The arrow keys or the mouse
// move a cursor that tells the values at a time; a table has them too.
import { h, svg } from "./dom.js";
import { tableHead } from "./figures.js";
import { tickLabel, ticks, watts, when } from "./format.js";

const HEIGHT = 260;
const MARGIN = { left: 58, right: 14, top: 22, bottom: 26 };
const TABLE_ROWS = 48;
const STEPS_S = [60, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600];
/** A longer time without points is drawn as a gap. */
const GAP_S = 300;

const LINES = [["limit_w", "limit", "limit"], ["counted_w", "counted", "counted"], ["measured_w", "history", "measured"]];

function scalesOf(history, from, to, width) {
    const values = LINES.flatMap(([name]) => history[name].filter(Number.isFinite));
    const high = Math.max(1, ...values) * 1.08;
    const right = width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom;
    return { from, to, high, right, bottom,
             x: (at) => MARGIN.left + (at - from) / (to - from) * (right - MARGIN.left),
             y: (power) => bottom - power / high * (bottom - MARGIN.top) };
}

/** Returns round times of day, in the local time of the browser. */
function timeTicks(from, to, count) {
    const step = STEPS_S.find((one) => (to - from) / one <= count) ?? STEPS_S.at(-1);
    const shift = new Date(1000 * to).getTimezoneOffset() * 60;
    const list = [];
    for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) list.push(at);
    return list;
}

function axes(scales, width) {
    const unit = scales.high >= 2e6 ? [1e6, "MW"] : scales.high >= 2000 ? [1000, "kW"] : [1, "W"];
    const ys = ticks(0, scales.high / unit[0], 5);
    const parts = [svg("text", { class: "title", x: MARGIN.left, y: 13 }, `Power, ${unit[1]}`)];
    for (const value of ys) {
        const y = scales.y(value * unit[0]);
        parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: scales.right, y1: y, y2: y }),
            svg("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, tickLabel(value, ys)));
    }
    for (const at of timeTicks(scales.from, scales.to, width / 80)) {
        const x = scales.x(at);
        parts.push(svg("line", { class: "grid", x1: x, x2: x, y1: MARGIN.top, y2: scales.bottom }),
            svg("text", { x, y: HEIGHT - 8, "text-anchor": "middle" }, when(at, at)));
    }
    return parts;
}

/** Returns the path of one line. The limit changes in steps. */
function pathOf(history, name, scales) {
    const parts = [];
    let last = null;
    history.at.forEach((at, i) => {
        const value = history[name][i];
        if (!Number.isFinite(value)) {
            last = null;
            return;
        }
        const [x, y] = [scales.x(at).toFixed(1), scales.y(value).toFixed(1)];
        const isNew = last === null || at - last > GAP_S;
        if (isNew) parts.push(`M${x} ${y}`);
        else parts.push(name === "limit_w" ? `H${x}V${y}` : `L${x} ${y}`);
        last = at;
    });
    return parts.join("");
}

const legendEntry = (kind, text) => h("span", null,
    svg("svg", { width: 26, height: 14, "aria-hidden": "true" }, svg("path", { class: kind, d: "M1 7H25" })), text);

function valuesAt(history, index) {
    const told = [["measured", history.measured_w], ["counted", history.counted_w], ["limit", history.limit_w]];
    return told.map(([name, list]) => `${name} ${Number.isFinite(list[index]) ? watts(list[index]) : "–"}`);
}

/** `set(history, from, to)` shows what GET /fleet/history has answered for this time. */
export function powerChart() {
    const paper = svg("svg", { height: HEIGHT, "aria-hidden": "true" });
    const tip = h("div", { class: "tip", hidden: true });
    const plot = h("div", { class: "plot power", tabindex: "0", role: "slider", "aria-label": "Power over time",
                            "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0" }, paper, tip);
    const legend = h("div", { class: "legend" }, legendEntry("history", "measured"), legendEntry("counted", "counted"), legendEntry("limit", "limit"));
    const body = h("tbody");
    const numbers = h("details", null, h("summary", null, "Power as numbers"),
        h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Power as numbers" },
            h("table", null, tableHead(["Time", "Measured", "Counted", "Limit"], 1), body)));
    const none = h("p", { class: "note", hidden: true }, "The server has no power of this time.");
    const element = h("div", null, none, plot, legend, numbers);
    let history = null;
    let scales = null;
    let span = [0, 1];
    let cursor = 0;

    function draw() {
        const width = plot.clientWidth;
        if (!history || !width) return;
        scales = scalesOf(history, ...span, width);
        paper.setAttribute("width", width);
        paper.replaceChildren(...axes(scales, width),
            ...LINES.map(([name, kind]) => svg("path", { class: kind, d: pathOf(history, name, scales) })));
        const last = history.at.length - 1;
        plot.setAttribute("aria-valuemax", Math.max(last, 0));
        tell(Math.min(cursor, last));
        if (tip.hidden) return;
        if (last < 0) hideTip();
        else showTip(cursor); // the cursor and the tip of the data before are gone
    }

    function tell(index) {
        cursor = Math.max(index, 0);
        plot.setAttribute("aria-valuenow", cursor);
        if (history.at.length > 0)
            plot.setAttribute("aria-valuetext", `${when(history.at[cursor])}: ${valuesAt(history, cursor).join(", ")}`);
    }

    function showTip(index) {
        if (history.at.length === 0) return;
        tell(index);
        tip.replaceChildren(h("strong", null, when(history.at[cursor])), ...valuesAt(history, cursor).map((line) => h("div", null, line)));
        tip.hidden = false;
        const x = scales.x(history.at[cursor]);
        tip.style.left = `${Math.min(Math.max(x + 10, 4), plot.clientWidth - tip.offsetWidth - 4)}px`;
        tip.style.top = `${MARGIN.top + 4}px`;
        paper.querySelector(".cursor")?.remove();
        paper.append(svg("line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: scales.bottom }));
    }

    function hideTip() {
        tip.hidden = true;
        paper.querySelector(".cursor")?.remove();
    }

    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 30, PageDown: -30, Home: -Infinity, End: Infinity };
    plot.addEventListener("keydown", (event) => {
        if (!scales || !(event.key in steps)) return;
        event.preventDefault();
        showTip(Math.min(Math.max(cursor + steps[event.key], 0), history.at.length - 1));
    });
    plot.addEventListener("pointermove", (event) => {
        if (!scales || history.at.length === 0) return;
        const px = event.clientX - plot.getBoundingClientRect().left;
        let best = 0;
        history.at.forEach((at, i) => {
            if (Math.abs(scales.x(at) - px) < Math.abs(scales.x(history.at[best]) - px)) best = i;
        });
        showTip(best);
    });
    for (const event of ["pointerleave", "blur"]) plot.addEventListener(event, hideTip);
    const resize = new ResizeObserver(draw);
    resize.observe(plot);

    function fillTable() {
        const count = history.at.length;
        const step = Math.max(1, Math.ceil(count / TABLE_ROWS));
        const rows = [];
        for (let i = count - 1; i >= 0; i -= step)
            rows.push(h("tr", null, h("th", { scope: "row" }, when(history.at[i])),
                ...["measured_w", "counted_w", "limit_w"].map((name) => h("td", { class: "number" },
                    Number.isFinite(history[name][i]) ? watts(history[name][i]) : "–"))));
        body.replaceChildren(...rows);
    }

    return {
        element,
        set(next, from, to) {
            const isFirst = !history;
            history = next;
            span = [from, to];
            if (isFirst) cursor = next.at.length - 1;
            none.hidden = next.at.length > 0;
            fillTable();
            draw();
        },
        end: () => resize.disconnect(),
    };
}
