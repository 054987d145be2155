// SPDX-License-Identifier: Apache-2.0
// Requests to the server that this page came from, and to no other. Where it wants a token, the
// person is asked once; it is kept until the tab is closed.
import { h } from "./dom.js";

const TOKEN = "harpe-token";
let asking = null;

function askForToken() {
    asking ??= new Promise((resolve) => {
        const input = h("input", { type: "password", id: "token", autocomplete: "off", required: true });
        const form = h("form", { method: "dialog" },
            h("h2", { id: "token-title" }, "This server wants a token"),
            h("p", null, "The text of the file that harpe serve was started with (--token-file). ",
                "It is kept in this tab only."),
            h("label", { for: "token" }, "Token"), input,
            h("div", { class: "buttons" }, h("button", { class: "primary" }, "Go on")));
        const dialog = h("dialog", { "aria-labelledby": "token-title" }, form);
        dialog.addEventListener("close", () => {
            sessionStorage.setItem(TOKEN, input.value.trim());
            dialog.remove();
            asking = null;
            resolve();
        });
        document.body.append(dialog);
        dialog.showModal();
    });
    return asking;
}

async function detailOf(response) {
    const text = await response.text();
    try {
        const { detail } = JSON.parse(text);
        return typeof detail === "string" ? detail : detail.map((one) => `${one.loc.join(".")}: ${one.msg}`).join("; ");
    } catch {
        return text || `the server answered ${response.status}`;
    }
}

async function request(method, path, body, signal) {
    for (;;) {
        const token = sessionStorage.getItem(TOKEN);
        const headers = {};
        if (token) headers.authorization = `Bearer ${token}`;
        if (body !== undefined) headers["content-type"] = "application/json";
        const response = await fetch(path, {
            method, headers, signal, cache: "no-store",
            body: body === undefined ? undefined : JSON.stringify(body),
        });
        if (response.status === 401) {
            await askForToken();
            continue;
        }
        if (response.ok) return response.json();
        const error = new Error(await detailOf(response));
        error.status = response.status;
        throw error;
    }
}

export const get = (path, signal) => request("GET", path, undefined, signal);
export const post = (path, body) => request("POST", path, body);
export const jobPath = (id) => `/jobs/${encodeURIComponent(id)}`;
