// SPDX-License-Identifier: Apache-2.0
// Selects the time that charts show. The choice stays while the page is open, also in other views.
import { h } from "./dom.js";

const RANGES = [["hour", "Last hour", 3600], ["day", "Last day", 86400], ["all", "All kept", Infinity]];
let chosen = "all";
let count = 0;

/** Calls `onChange()` after another choice. `names` are the ranges that can be chosen. */
export function timeRange(onChange, names = RANGES.map(([name]) => name)) {
    const group = `range-${++count}`;
    const offered = RANGES.filter(([name]) => names.includes(name));
    const current = () => offered.find(([name]) => name === chosen) ?? offered[offered.length - 1];
    const element = h("fieldset", { class: "range" }, h("legend", null, "Time shown"), offered.map(([name, label]) => {
        const input = h("input", { type: "radio", name: group, value: name, id: `${group}-${name}`, checked: current()[0] === name,
                                   onchange: () => { chosen = name; onChange(); } });
        return h("label", { for: `${group}-${name}` }, input, label);
    }));
    return { element, name: () => current()[1].toLowerCase(),
             /** Returns the length of the time in s. */
             length: () => current()[2] };
}
