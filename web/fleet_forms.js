// SPDX-License-Identifier: Apache-2.0
// Forms of the fleet's page: set or remove a budget, begin or cancel an event. The user confirms a
// text that describes the change before the page sends a request. The server checks the rights.
import { post, put, remove } from "./api.js";
import { confirmed } from "./confirm.js";
import { h, setText } from "./dom.js";
import { duration, percent, watts } from "./format.js";
import { factorWords, groupName, groupWords } from "./fleet_words.js";

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function field(id, label, attributes) {
    const input = h("input", { id, type: "number", step: "any", required: true, ...attributes });
    return { input, element: h("div", null, h("label", { for: id }, label), input) };
}

function groupField(id) {
    const select = h("select", { id });
    let known = "";
    return { select, element: h("div", null, h("label", { for: id }, "For"), select), set(groups) {
        const names = ["", ...groups.map((group) => group.name)];
        if (known === names.join("\n")) return;
        known = names.join("\n");
        const before = select.value;
        select.replaceChildren(...names.map((name) => h("option", { value: name }, groupName(name))));
        if (names.includes(before)) select.value = before;
    } };
}

/** Calls `afterwards()` after the server has accepted a request. */
export function fleetForms(afterwards) {
    const status = h("p", { class: "note", role: "status" });

    async function change(title, text, send) {
        if (!await confirmed(title, text)) return;
        try {
            const answer = await send();
            setText(status, `✔ The server has accepted the change.${answer?.missing_w > 0
                ? ` ${watts(answer.missing_w)} are missing: the jobs cannot draw so little.` : ""}`);
            afterwards();
        } catch (error) {
            setText(status, `✖ ${error.message}`);
        }
    }

    const budgetGroup = groupField("budget-group");
    const budget = field("budget-watts", "Budget (kW)", { min: 0 });
    const margin = field("budget-margin", "Margin (%)", { min: 0, max: 99 });
    const overhead = field("budget-overhead", "Counted ×", { min: 1, max: 10 });
    let budgets = [];
    let shown = null;
    /** Fills in the margin and the overhead of the chosen group's budget. Keeps what the user has typed. */
    const showFactors = () => {
        const group = budgetGroup.select.value;
        const set = budgets.find((one) => (one.group ?? "") === group);
        const values = [Number((100 * (set?.margin ?? 0)).toFixed(6)), set?.overhead ?? 1];
        [margin, overhead].forEach(({ input }, i) => {
            if (shown?.group !== group || Number(input.value) === shown.values[i]) input.value = values[i];
        });
        shown = { group, values };
    };
    budgetGroup.select.addEventListener("change", showFactors);
    const budgetForm = h("form", { onsubmit: (event) => {
        event.preventDefault();
        const group = budgetGroup.select.value || null;
        const limit = 1000 * Number(budget.input.value);
        const factors = { margin: Number(margin.input.value) / 100, overhead: Number(overhead.input.value) };
        const words = factorWords(factors);
        change("Set the budget?", `${capital(groupWords(group))} draws at most ${watts(limit)}${words ? ` (${words})` : ""} from now on. ` +
            "Jobs slow down if that is necessary.", () => put("/fleet/budget", { group, watts: limit, ...factors }));
    } }, h("h3", null, "Set a budget"), budgetGroup.element, budget.element, margin.element, overhead.element, h("button", null, "Set the budget …"));

    const eventGroup = groupField("event-group");
    const share = field("event-share", "Less power (%)", { min: 0.1, max: 100, value: 25 });
    const minutes = field("event-minutes", "For (min)", { min: 1, value: 60 });
    const notice = field("event-notice", "Begins in (min)", { min: 0, value: 0 });
    const ramp = field("event-ramp", "Back within (min)", { min: 0, value: 5 });
    const exceeds = h("input", { id: "event-exceed", type: "checkbox" });
    const eventForm = h("form", { onsubmit: (event) => {
        event.preventDefault();
        const group = eventGroup.select.value || null;
        const [less, length, wait, back] = [share, minutes, notice, ramp].map(({ input }) => Number(input.value));
        change("Begin the event?", `${capital(groupWords(group))} draws ${percent(less / 100)} less for ${duration(60 * length)}, ` +
            `${wait > 0 ? `beginning in ${duration(60 * wait)}` : "beginning now"}. Then the power comes back ${back > 0 ? `within ${duration(60 * back)}` : "at once"}.` +
            (exceeds.checked ? " Jobs may get slower than they accept." : ""),
            () => post("/fleet/events", { group, from: wait > 0 ? Date.now() / 1000 + 60 * wait : undefined, // without `from`, the event begins now by the server's clock
                                          duration_s: 60 * length, share: less / 100, notice_s: 60 * wait, ramp_s: 60 * back,
                                          may_exceed_slowdown: exceeds.checked, note: "from the dashboard" }));
    } }, h("h3", null, "Ask for less power"), eventGroup.element, share.element, minutes.element, notice.element, ramp.element,
        h("label", { class: "inline", for: "event-exceed" }, exceeds, " jobs may get slower than they accept"), h("button", null, "Begin the event …"));

    return {
        element: h("div", { class: "forms" }, budgetForm, eventForm, status),
        set(fleet) {
            for (const group of [budgetGroup, eventGroup]) group.set(fleet.groups ?? []);
            budgets = fleet.budgets ?? [];
            showFactors();
        },
        removeBudget: (one) => change("Remove the budget?", `The power of ${groupWords(one.group)} is not limited by this budget any more.`,
            () => remove(`/fleet/budget${one.group ? `?group=${encodeURIComponent(one.group)}` : ""}`)),
        cancelEvent: (event) => change("Cancel the event?", event.state === "active" ? "The event ends now, and the power comes back in its ramp." : "The event does not take place.",
            () => remove(`/fleet/events/${event.id}`)),
    };
}
