// SPDX-License-Identifier: Apache-2.0
// A plan's pipeline in time, on a canvas: one lane per pipeline rank, one box per instruction. Both
// the colour and the height of a box show its power, so that either is enough. Only visible boxes
// are drawn, at most once per frame; dragging stays smooth with 128 microbatches and 16 stages.
import { h, setText } from "./dom.js";
import { seconds, tickLabel, ticks, watts } from "./format.js";
import { HEAT, heatStep, ink, onThemeChange } from "./palette.js";

const AXIS = 24;
const LEFT = 44;
const MIN_SPAN = 1e-4; // of the iteration
const LABEL_WIDTH = 30;
const LONG_LABEL_WIDTH = 96;

/** Abbreviates "forward" to F and "backward_input" to BI. */
function lettersOf(name) {
    return name.split(/[_\s-]+/).map((word) => word[0]?.toUpperCase() ?? "").join("");
}

/** Describes a clock. A report may contain instructions whose clock no plan sets. */
const clockOf = (mhz) => mhz > 0 ? `${mhz} MHz` : "clock left alone";

/** Puts the boxes into arrays, which the drawing loop reads. */
function prepare(pipeline) {
    const powers = pipeline.power_range ?? pipeline.ranks.flatMap((rank) => rank.power);
    const low = powers.reduce((a, b) => Math.min(a, b), Infinity);
    const high = powers.reduce((a, b) => Math.max(a, b), 0);
    let offset = 0;
    const lanes = pipeline.ranks.map((rank) => {
        const lane = {
            offset, rank,
            start: Float64Array.from(rank.start),
            end: Float64Array.from(rank.start, (start, i) => start + rank.duration[i]),
            step: Uint8Array.from(rank.power, (power) => heatStep(power, low, high)),
            letters: rank.entry.map((entry, i) => lettersOf(pipeline.entries[entry].instruction) +
                (rank.microbatch[i] < 0 ? "" : rank.microbatch[i])),
        };
        offset += rank.start.length;
        return lane;
    });
    const critical = pipeline.critical.map((node) => {
        const lane = lanes.findLastIndex((one) => one.offset <= node);
        return { lane, index: node - lanes[lane].offset };
    });
    return { lanes, critical, low, high, time: pipeline.time, entries: pipeline.entries };
}

/** Returns the first box of a lane that ends after `time`. */
function firstAfter(lane, time) {
    let low = 0;
    let high = lane.end.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (lane.end[middle] <= time) low = middle + 1;
        else high = middle;
    }
    return low;
}

function drawLane(context, lane, view, y, height, colours) {
    const scale = (view.width - LEFT) / (view.to - view.from);
    const x = (time) => LEFT + (time - view.from) * scale;
    context.fillStyle = colours.idle;
    context.fillRect(Math.max(LEFT, x(0)), y, Math.min(view.width, x(view.time)) - Math.max(LEFT, x(0)), height);
    let drawnTo = -1;
    for (let i = firstAfter(lane, view.from); i < lane.start.length && lane.start[i] < view.to; i++) {
        const left = Math.max(x(lane.start[i]), LEFT);
        const right = x(lane.end[i]);
        if (right < drawnTo) continue; // narrower than half a pixel: hidden by the next box
        const { fill, text } = HEAT[lane.step[i]];
        const tall = height * (0.5 + 0.5 * lane.step[i] / (HEAT.length - 1));
        const gap = right - left > 3 ? 1 : 0;
        context.fillStyle = fill;
        context.fillRect(left, y + height - tall, Math.max(right - left - gap, 0.5), tall);
        drawnTo = left + 0.5;
        if (right - left < LABEL_WIDTH || height < 12) continue;
        context.fillStyle = text;
        context.fillText(right - left < LONG_LABEL_WIDTH ? lane.letters[i]
            : `${lane.letters[i]} · ${clockOf(lane.rank.frequency[i])}`, left + 4, y + height - 5);
    }
}

function drawCritical(context, model, view, colours) {
    const scale = (view.width - LEFT) / (view.to - view.from);
    const at = (time) => LEFT + (time - view.from) * scale;
    context.beginPath();
    let isOpen = false;
    for (const { lane, index } of model.critical) {
        const { start, end } = model.lanes[lane];
        if (end[index] < view.from || start[index] > view.to) {
            isOpen = false;
            continue;
        }
        const y = AXIS + (lane + 0.42) * view.lane;
        if (isOpen) context.lineTo(at(start[index]), y);
        else context.moveTo(at(start[index]), y);
        context.lineTo(at(end[index]), y);
        isOpen = true;
    }
    context.lineJoin = "round";
    context.strokeStyle = colours.paper;
    context.lineWidth = 4;
    context.stroke();
    context.strokeStyle = colours.critical;
    context.lineWidth = 2;
    context.stroke();
}

function drawAxis(context, view, colours) {
    const list = ticks(view.from, view.to, view.width / 110);
    context.fillStyle = colours.muted;
    for (const time of list) {
        const x = LEFT + (time - view.from) / (view.to - view.from) * (view.width - LEFT);
        const label = `${tickLabel(time, list)} s`;
        context.fillRect(Math.round(x), AXIS - 5, 1, 5);
        if (x + 50 < view.width) context.fillText(label, x + 3, AXIS - 8);
    }
}

export function timeline() {
    const canvas = h("canvas");
    const tip = h("div", { class: "tip", hidden: true });
    const spoken = h("p", { class: "note", role: "status" });
    const stage = h("div", { class: "timeline", tabindex: "0", role: "application", "aria-roledescription": "timeline",
        "aria-label": "The pipeline of the plan. The arrow keys select an instruction, plus and minus zoom, 0 shows everything, and shift with the arrow keys moves." },
        canvas, tip);
    const showsCritical = h("input", { type: "checkbox", id: "critical", checked: true, onchange: () => schedule() });
    const scaleLow = h("span");
    const scaleHigh = h("span");
    const ramp = h("canvas", { width: HEAT.length, height: 1, class: "ramp", "aria-hidden": "true" });
    const button = (label, name, action) => h("button", { type: "button", "aria-label": name, title: name, onclick: action }, label);
    const element = h("div", null,
        h("div", { class: "toolbar" }, button("+", "Zoom in", () => zoom(0.6)), button("−", "Zoom out", () => zoom(1 / 0.6)),
            button("All", "Show all", fit), h("label", { class: "inline" }, showsCritical, " critical path"),
            h("span", { class: "scale" }, scaleLow, ramp, scaleHigh)),
        stage, spoken);
    const context = canvas.getContext("2d", { alpha: false });
    const view = { from: 0, to: 1, time: 1, width: 0, height: 0, lane: 20 };
    let model = null;
    let chosen = null; // {lane, index}
    let frame = 0;
    const pointers = new Map();

    HEAT.forEach(({ fill }, i) => {
        const pen = ramp.getContext("2d");
        pen.fillStyle = fill;
        pen.fillRect(i, 0, 1, 1);
    });

    function schedule() {
        frame ||= requestAnimationFrame(draw);
    }

    function draw() {
        frame = 0;
        if (!model || !view.width) return;
        const colours = { paper: ink("paper"), idle: ink("idle"), muted: ink("muted"), critical: ink("critical"), text: ink("text") };
        context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
        context.font = "11px system-ui, sans-serif";
        context.fillStyle = colours.paper;
        context.fillRect(0, 0, view.width, view.height);
        drawAxis(context, view, colours);
        context.save();
        context.beginPath();
        context.rect(LEFT, AXIS, view.width - LEFT, view.height - AXIS);
        context.clip();
        model.lanes.forEach((lane, i) => drawLane(context, lane, view, AXIS + i * view.lane + 1, view.lane - 3, colours));
        if (showsCritical.checked) drawCritical(context, model, view, colours);
        if (chosen) drawChosen(colours);
        context.restore();
        context.fillStyle = colours.text;
        if (view.lane >= 10)
            model.lanes.forEach((_, i) => context.fillText(`rank ${i}`, 2, AXIS + (i + 0.5) * view.lane + 4, LEFT - 6));
    }

    function drawChosen(colours) {
        const lane = model.lanes[chosen.lane];
        const scale = (view.width - LEFT) / (view.to - view.from);
        const x = LEFT + (lane.start[chosen.index] - view.from) * scale;
        context.strokeStyle = colours.text;
        context.lineWidth = 2;
        context.strokeRect(x, AXIS + chosen.lane * view.lane + 1,
            (lane.end[chosen.index] - lane.start[chosen.index]) * scale, view.lane - 3);
    }

    function measure() {
        if (!model || !stage.clientWidth) return;
        view.width = stage.clientWidth;
        view.lane = Math.max(14, Math.min(34, Math.floor(480 / model.lanes.length)));
        view.height = AXIS + view.lane * model.lanes.length + 2;
        canvas.width = Math.round(view.width * devicePixelRatio);
        canvas.height = Math.round(view.height * devicePixelRatio);
        canvas.style.width = `${view.width}px`;
        canvas.style.height = `${view.height}px`;
        draw();
    }

    function look(from, span) {
        const limited = Math.min(Math.max(span, view.time * MIN_SPAN), view.time);
        view.from = Math.min(Math.max(from, 0), view.time - limited);
        view.to = view.from + limited;
        schedule();
    }
    function zoom(factor, at = (view.from + view.to) / 2) {
        look(at - (at - view.from) * factor, (view.to - view.from) * factor);
    }
    function fit() { look(0, view.time); }
    const timeAt = (x) => view.from + (x - LEFT) / (view.width - LEFT) * (view.to - view.from);

    function boxAt(event) {
        const box = stage.getBoundingClientRect();
        const lane = Math.floor((event.clientY - box.top - AXIS) / view.lane);
        const time = timeAt(event.clientX - box.left);
        if (!model?.lanes[lane] || event.clientX - box.left < LEFT) return null;
        const index = firstAfter(model.lanes[lane], time);
        return model.lanes[lane].start[index] <= time ? { lane, index } : null;
    }

    function words({ lane, index }) {
        const { rank, start, letters } = model.lanes[lane];
        const entry = model.entries[rank.entry[index]];
        return [`${entry.instruction}${rank.microbatch[index] < 0 ? "" : ` of microbatch ${rank.microbatch[index]}`}`,
            `${letters[index]} · rank ${lane}, stage ${entry.stage}`,
            `${clockOf(rank.frequency[index])} · ${watts(rank.power[index])}`,
            `${seconds(rank.duration[index])} from ${seconds(start[index])} on`];
    }

    function showTip(box, x, y) {
        tip.hidden = !box;
        if (!box) return;
        const [title, ...lines] = words(box);
        tip.replaceChildren(h("strong", null, title), ...lines.map((line) => h("div", null, line)));
        tip.style.left = `${Math.max(4, Math.min(x + 12, view.width - tip.offsetWidth - 4))}px`;
        tip.style.top = `${Math.min(y + 14, view.height - 20)}px`;
    }

    function choose(box) {
        chosen = box;
        const { start, end } = model.lanes[box.lane];
        const span = view.to - view.from;
        if (start[box.index] < view.from || end[box.index] > view.to)
            look((start[box.index] + end[box.index] - span) / 2, span);
        setText(spoken, words(box).join(", "));
        schedule();
    }

    function goTo(key) {
        if (!chosen) {
            const first = model.lanes[0];
            return choose({ lane: 0, index: Math.min(firstAfter(first, view.from), first.start.length - 1) });
        }
        const { lane, index } = chosen;
        if (key === "ArrowLeft" || key === "ArrowRight") {
            const next = index + (key === "ArrowLeft" ? -1 : 1);
            if (next >= 0 && next < model.lanes[lane].start.length) choose({ lane, index: next });
            return undefined;
        }
        const other = model.lanes[lane + (key === "ArrowUp" ? -1 : 1)];
        if (!other) return undefined;
        const at = Math.min(firstAfter(other, model.lanes[lane].start[index]), other.start.length - 1);
        return choose({ lane: model.lanes.indexOf(other), index: at });
    }

    stage.addEventListener("keydown", (event) => {
        if (!model || event.ctrlKey || event.metaKey || event.altKey) return;
        const span = view.to - view.from;
        if (event.key === "+" || event.key === "=") zoom(0.6);
        else if (event.key === "-") zoom(1 / 0.6);
        else if (event.key === "0") fit();
        else if (!event.key.startsWith("Arrow")) return;
        else if (event.shiftKey && !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
        else if (event.shiftKey) look(view.from + (event.key === "ArrowLeft" ? -0.2 : 0.2) * span, span);
        else goTo(event.key);
        event.preventDefault();
    });
    stage.addEventListener("wheel", (event) => {
        const isZoom = event.ctrlKey || event.metaKey;
        // A vertical movement of the wheel scrolls the page.
        if (!isZoom && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
        event.preventDefault();
        const span = view.to - view.from;
        if (isZoom) zoom(1.0015 ** event.deltaY, timeAt(event.offsetX));
        else look(view.from + event.deltaX / view.width * span, span);
    }, { passive: false });
    stage.addEventListener("pointerdown", (event) => {
        stage.setPointerCapture(event.pointerId);
        pointers.set(event.pointerId, { x: event.clientX, moved: 0 });
    });
    function drag(event, pointer) {
        const span = view.to - view.from;
        const others = [...pointers.values()].filter((one) => one !== pointer);
        if (others.length === 1) {
            const before = Math.abs(pointer.x - others[0].x);
            const after = Math.abs(event.clientX - others[0].x);
            if (before > 10 && after > 10)
                zoom(before / after, timeAt((event.clientX + others[0].x) / 2 - stage.getBoundingClientRect().left));
        } else {
            look(view.from - (event.clientX - pointer.x) / (view.width - LEFT) * span, span);
        }
        pointer.moved += Math.abs(event.clientX - pointer.x);
        pointer.x = event.clientX;
        tip.hidden = true;
    }
    stage.addEventListener("pointermove", (event) => {
        if (!model) return;
        const pointer = pointers.get(event.pointerId);
        if (pointer) drag(event, pointer);
        else showTip(boxAt(event), event.offsetX, event.offsetY);
    });
    function release(event) {
        const pointer = pointers.get(event.pointerId);
        pointers.delete(event.pointerId);
        const box = pointer && pointer.moved < 4 && boxAt(event);
        if (box) {
            choose(box);
            showTip(box, event.offsetX, event.offsetY);
        }
    }
    stage.addEventListener("pointerup", release);
    stage.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    stage.addEventListener("pointerleave", () => { tip.hidden = true; });
    stage.addEventListener("blur", () => { tip.hidden = true; });

    const resize = new ResizeObserver(measure);
    resize.observe(stage);
    const endTheme = onThemeChange(schedule);

    return {
        element,
        /** Replaces the pipeline. The visible section stays if the new pipeline is as long as the
         * old one. */
        set(pipeline) {
            const wasAll = !model || view.to - view.from >= view.time * 0.999;
            model = prepare(pipeline);
            chosen = null;
            view.time = model.time;
            setText(scaleLow, watts(model.low));
            setText(scaleHigh, watts(model.high));
            if (wasAll) fit();
            else look(view.from, view.to - view.from);
            measure();
        },
        end() {
            resize.disconnect();
            endTheme();
            cancelAnimationFrame(frame);
        },
    };
}
