// SPDX-License-Identifier: Apache-2.0
// Parts of every view: a sign that opens a help text, lists of figures with help, sections, and
// explanations of a table's columns.
import { h, setText } from "./dom.js";

/** Creates a sign that opens a help text. Returns null if there is no text. */
export function helpOn(name, text) {
    return text ? h("details", { class: "help" }, h("summary", { "aria-label": `About ${name}` }, "?"), h("p", null, text)) : null;
}

/** Creates a list of names and values. `help` has the help texts of the names. `set(name, value,
 * text)` adds or changes a value. `remove(name)` removes it. */
export function facts(help, kind = "facts") {
    const element = h("dl", { class: kind });
    const known = new Map();
    return { element, set(name, value, text = help[name]) {
        let row = known.get(name);
        if (!row) {
            row = h("div", null, h("dt", null, name, helpOn(name, text)), h("dd"));
            known.set(name, row);
            element.append(row);
        }
        const cell = row.lastChild;
        if (value instanceof Node) {
            if (cell.firstChild !== value) cell.replaceChildren(value);
        } else {
            setText(cell, value);
        }
    }, remove(name) {
        known.get(name)?.remove();
        known.delete(name);
    } };
}

/** Creates a section. Its heading has a help text if `help` is not empty. */
export function section(title, help, ...children) {
    const id = title.toLowerCase().replaceAll(" ", "-");
    return h("section", { "aria-labelledby": id }, h("div", { class: "section-head" }, h("h2", { id }, title), helpOn(`this part: ${title}`, help)), ...children);
}

/** Creates a closed list that explains the columns of a table. `columns` is a list of [name, text]. */
export function columnHelp(columns) {
    return h("details", { class: "columns" }, h("summary", null, "What the columns mean"),
        h("dl", null, columns.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text)))));
}

/** Creates the head of a table. Columns from `firstNumber` on are numbers. A column of buttons has the
 * name "". */
export function tableHead(names, firstNumber = Infinity) {
    return h("thead", null, h("tr", null, names.map((name, i) => name === "" ? h("td")
        : h("th", { scope: "col", class: i >= firstNumber ? "number" : null }, name))));
}

/** Creates a cell that shows its column's name where a narrow page has no head. */
export function cell(name, kind, ...children) {
    const element = h("td", { class: kind }, ...children);
    element.dataset.label = name;
    return element;
}
