// SPDX-License-Identifier: Apache-2.0
// Creates elements in one line. Text is always inserted as text: data from a server is never parsed
// as HTML.

function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
}

export function h(tag, attributes, ...children) {
    return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** Sets a text only if it differs, so that screen readers and the layout see no needless change. */
export function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
}
