// SPDX-License-Identifier: Apache-2.0
// Wishes to a job: another plan, a straggler, a power cap. Nothing is sent before it was confirmed in
// words that say what will change.
import { jobPath, post } from "./api.js";
import { h, setText } from "./dom.js";
import { joules, seconds, watts } from "./format.js";
import { describePlan, planNumber } from "./frontier_chart.js";
import { outsideOf, wishOutsideOf } from "./savings.js";

/** Asks; answers whether to do it. */
function confirmed(title, text) {
    return new Promise((resolve) => {
        const dialog = h("dialog", { class: "confirm", "aria-labelledby": "confirm-title",
            /* A key that is still held down has answered nothing. */
            onkeydown: (event) => event.repeat && event.preventDefault() }, h("form", { method: "dialog" },
            h("h2", { id: "confirm-title" }, title), h("p", null, text),
            h("div", { class: "buttons" },
                h("button", { value: "no" }, "Leave it"),
                h("button", { value: "yes", class: "primary", autofocus: true }, "Do it"))));
        dialog.addEventListener("close", () => {
            dialog.remove();
            resolve(dialog.returnValue === "yes");
        });
        document.body.append(dialog);
        dialog.showModal();
    });
}

const KINDS = {
    plan: {
        label: "Iteration time", unit: "s", button: "Run the slowest plan within", path: "/plan", field: "time", min: 0,
        say: (value) => value > 0 ? `From the next round on the job runs the slowest plan within ${seconds(value)} an iteration.`
            : "No plan is wished for any more: the one that the server was set up for runs again.",
    },
    straggler: {
        label: "Straggler", unit: "× the fastest iteration", button: "Tell of a straggler", path: "/straggler", field: "slowdown", min: 1,
        say: (value) => value > 1
            ? `Iterations are said to take ${value} times the shortest time anyway: the job slows down to save energy.`
            : "There is no straggler any more.",
    },
    cap: {
        label: "Power cap, whole job", unit: "W", button: "Cap the power", path: "/power_cap", field: "watts", min: 0,
        say: (value) => value > 0 ? `The job's average power stays within ${watts(value)}, if a plan can.`
            : "The power is not capped any more.",
    },
};

/** What each wish would have to say to choose a plan, counted as the server counts. */
function valuesFor(frontier, index) {
    const outside = wishOutsideOf(frontier);
    const plan = frontier.plans[index];
    const time = plan.time + outside.time;
    const undisturbed = frontier.undisturbed_time + outside.time;
    return { plan: time, straggler: Math.max(1, time / undisturbed), cap: (plan.energy + outside.energy) / time };
}

/** Time that iterations take and that no plan and no wish accounts for. */
function unexplained(frontier) {
    const extra = outsideOf(frontier).time - wishOutsideOf(frontier).time;
    return extra > 0.005 * frontier.plans[0].time ? ` At present ${seconds(extra)} that no plan explains come on top.` : "";
}

/** Six digits, never below: rounded down, a wish would choose the plan before. */
function roundUp(value) {
    const scale = 10 ** (5 - Math.floor(Math.log10(value)));
    return Number((Math.ceil(value * scale) / scale).toPrecision(6));
}

/** `afterwards()` when a wish was taken. */
export function wishForms(jobId, afterwards) {
    const status = h("p", { class: "note", role: "status" });
    const inputs = {};
    const touched = new Set();
    let shown = null; // the frontier
    async function send(kind, value) {
        const { button, path, field, say } = KINDS[kind];
        const onTop = kind !== "cap" && value > 1 && shown ? unexplained(shown) : "";
        if (!await confirmed(`${button}?`, `Job ${jobId}. ${say(value)}${onTop}`)) return;
        try {
            await post(path + jobPath(jobId).slice("/jobs".length), { [field]: value });
            setText(status, "✔ Taken; it counts from the next schedule on.");
            touched.delete(kind);
            afterwards();
        } catch (error) {
            setText(status, `✖ ${error.message}`);
        }
    }
    const element = h("div", { class: "wishes" }, Object.entries(KINDS).map(([kind, { label, unit, button, min }]) => {
        const id = `wish-${kind}`;
        inputs[kind] = h("input", { id, type: "number", min, step: "any", required: true,
                                    oninput: () => touched.add(kind) });
        return h("form", { onsubmit: (event) => {
            event.preventDefault();
            send(kind, Number(inputs[kind].value));
        } }, h("label", { for: id }, `${label} (${unit})`), inputs[kind], h("button", null, button));
    }), h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => send("plan", 0) }, "Drop the plan wish"),
        h("button", { type: "button", onclick: () => send("straggler", 1) }, "Drop the straggler"),
        h("button", { type: "button", onclick: () => send("cap", 0) }, "Lift the cap")), status);

    return {
        element,
        /** Fills in what would choose the selected plan, but nothing that somebody typed. */
        suggest(frontier, index) {
            shown = frontier;
            const values = valuesFor(frontier, index);
            for (const [kind, input] of Object.entries(inputs))
                if (!touched.has(kind)) input.value = roundUp(values[kind]);
        },
        async runPlan(frontier, index) {
            const plan = describePlan(frontier, index);
            const number = planNumber(frontier, index);
            if (!await confirmed(`Run plan ${number}?`, `Job ${jobId}. From the next round on: ${seconds(plan.time)} and ` +
                `${joules(plan.energy)} an iteration, by prediction.`)) return;
            try {
                await post(`/plan${jobPath(jobId).slice("/jobs".length)}`, { time: valuesFor(frontier, index).plan * (1 + 1e-9) });
                setText(status, `✔ Plan ${number} was asked for; a straggler or a cap may still choose another.`);
                touched.delete("plan");
                afterwards();
            } catch (error) {
                setText(status, `✖ ${error.message}`);
            }
        },
    };
}
