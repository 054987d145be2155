// SPDX-License-Identifier: Apache-2.0
// Asks the user before the page changes anything on the server.
import { h } from "./dom.js";

/** Shows a question. Returns true if the user confirms. */
export function confirmed(title, text) {
    return new Promise((resolve) => {
        const dialog = h("dialog", { class: "confirm", "aria-labelledby": "confirm-title",
            /* A key that was already held down when the dialog opened does not answer it. */
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
