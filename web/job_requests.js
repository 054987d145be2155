// SPDX-License-Identifier: Apache-2.0
// Job requests: another plan, a straggler, a power cap. The user confirms a text that describes the
// change before the page sends a request.
import { jobPath, post } from "./api.js";
import { confirmed } from "./confirm.js";
import { h, setText } from "./dom.js";
import { joules, seconds, watts } from "./format.js";
import { describePlan, planNumber } from "./frontier_chart.js";
import { outsideOf, requestOutsideOf } from "./savings.js";

const KINDS = {
    plan: {
        label: "Iteration time", unit: "s", button: "Run the slowest plan within", path: "/plan", field: "time", min: 0,
        say: (value) => value > 0 ? `From the next round on, the job runs the slowest plan that takes at most ${seconds(value)} per iteration.`
            : "The request for a plan ends: the job runs the plan of the server's settings again.",
    },
    straggler: {
        label: "Straggler", unit: "× the fastest iteration", button: "Report a straggler", path: "/straggler", field: "slowdown", min: 1,
        say: (value) => value > 1
            ? `A straggler makes each iteration take ${value} times the shortest time: the job slows down to save energy.`
            : "There is no straggler any more.",
    },
    cap: {
        label: "Power cap, whole job", unit: "W", button: "Cap the power", path: "/power_cap", field: "watts", min: 0,
        say: (value) => value > 0 ? `The job's average power stays within ${watts(value)}, if there is such a plan.`
            : "The power is not capped any more.",
    },
};

/** Returns the part of an iteration's time that neither a plan nor a job request explains. The page shows predicted times with it,
 * and the server expects times without it. */
const unexplainedTime = (frontier) => outsideOf(frontier).time - requestOutsideOf(frontier).time;

/** Returns the value of each job request that would select a plan, computed as the server does, but with a predicted time. */
function valuesFor(frontier, index) {
    const outside = requestOutsideOf(frontier);
    const plan = frontier.plans[index];
    const time = plan.time + outside.time;
    const undisturbed = frontier.undisturbed_time + outside.time;
    return { plan: describePlan(frontier, index).time, straggler: Math.max(1, time / undisturbed), cap: (plan.energy + outside.energy) / time };
}

/** Returns the value that the server expects. 0 ends a request. */
function requested(frontier, kind, value) {
    const unexplained = kind === "plan" && value > 0 && frontier ? unexplainedTime(frontier) : 0;
    return unexplained ? Math.max(value - unexplained, 1e-9) : value;
}

function unexplained(frontier) {
    const extra = unexplainedTime(frontier);
    return extra > 0.005 * frontier.plans[0].time ? ` At present, iterations take ${seconds(extra)} more, which no plan explains.` : "";
}

/** Rounds up to six digits. A value that is rounded down would select the plan before. */
function roundUp(value) {
    const scale = 10 ** (5 - Math.floor(Math.log10(value)));
    return Number((Math.ceil(value * scale) / scale).toPrecision(6));
}

/** Calls `afterwards()` after the server has accepted a request. */
export function requestForms(jobId, afterwards) {
    const status = h("p", { class: "note", role: "status" });
    const inputs = {};
    const touched = new Set();
    let shown = null; // the frontier
    async function send(kind, value) {
        const { button, path, field, say } = KINDS[kind];
        const onTop = kind === "straggler" && value > 1 && shown ? unexplained(shown) : "";
        if (!await confirmed(`${button}?`, `Job ${jobId}. ${say(value)}${onTop}`)) return;
        try {
            await post(path + jobPath(jobId).slice("/jobs".length), { [field]: requested(shown, kind, value) });
            setText(status, "✔ The server has accepted the request. It takes effect with the next schedule.");
            touched.delete(kind);
            afterwards();
        } catch (error) {
            setText(status, `✖ ${error.message}`);
        }
    }
    const element = h("div", { class: "requests" }, Object.entries(KINDS).map(([kind, { label, unit, button, min }]) => {
        const id = `request-${kind}`;
        inputs[kind] = h("input", { id, type: "number", min, step: "any", required: true,
                                    oninput: () => touched.add(kind) });
        return h("form", { onsubmit: (event) => {
            event.preventDefault();
            send(kind, Number(inputs[kind].value));
        } }, h("label", { for: id }, `${label} (${unit})`), inputs[kind], h("button", null, button));
    }), h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => send("plan", 0) }, "Cancel the plan request"),
        h("button", { type: "button", onclick: () => send("straggler", 1) }, "Remove the straggler"),
        h("button", { type: "button", onclick: () => send("cap", 0) }, "Remove the cap")), status);

    return {
        element,
        /** Fills in the values that would select this plan. Does not change a value that the user
         * has typed. */
        suggest(frontier, index) {
            shown = frontier;
            const values = valuesFor(frontier, index);
            for (const [kind, input] of Object.entries(inputs))
                if (!touched.has(kind)) input.value = roundUp(values[kind]);
        },
        async runPlan(frontier, index) {
            const plan = describePlan(frontier, index);
            const number = planNumber(frontier, index);
            if (!await confirmed(`Run plan ${number}?`, `Job ${jobId}. From the next round on, an iteration takes ${seconds(plan.time)} and ` +
                `${joules(plan.energy)}, by prediction.`)) return;
            try {
                await post(`/plan${jobPath(jobId).slice("/jobs".length)}`, { time: requested(frontier, "plan", plan.time) * (1 + 1e-9) });
                setText(status, `✔ Plan ${number} was requested. A straggler or a power cap may still select another plan.`);
                touched.delete("plan");
                afterwards();
            } catch (error) {
                setText(status, `✖ ${error.message}`);
            }
        },
    };
}
