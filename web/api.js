// SPDX-License-Identifier: Apache-2.0
// Requests to the server that this page came from, and to no other. If it wants a token, the
// person is asked once, unless the link has it. It is kept until the tab is closed.
import { h } from "./dom.js";

const TOKEN = "harpe-token";
let asking = null;
let isRefused = false; // the person would not give one

function tokenDialog(wasWrong) {
    const input = h("input", { type: "password", id: "token", autocomplete: "off", required: true,
                               pattern: "[ -~]+", title: "letters, digits and signs of ASCII" });
    return { input, dialog: h("dialog", { "aria-labelledby": "token-title" }, h("form", { method: "dialog" },
        h("h2", { id: "token-title" }, "This server wants a token"),
        wasWrong ? h("p", { class: "problem", role: "alert" }, "That token was not accepted.") : null,
        h("p", null, "The text of the file that harpe serve was started with (--token-file). ",
            "It is kept in this tab only."),
        h("label", { for: "token" }, "Token"), input,
        h("div", { class: "buttons" }, h("button", { class: "primary", value: "given" }, "Go on")))) };
}

/** Whether there is another token now. */
function askForToken(wasWrong) {
    asking ??= new Promise((resolve) => {
        const { dialog, input } = tokenDialog(wasWrong);
        dialog.addEventListener("close", () => {
            const isGiven = dialog.returnValue === "given";
            if (isGiven) sessionStorage.setItem(TOKEN, input.value.trim());
            dialog.remove();
            asking = null;
            isRefused = !isGiven;
            resolve(isGiven);
        });
        document.body.append(dialog);
        dialog.showModal();
    });
    return asking;
}

/** Takes the token of a link (harpe jobs link) out of the address, so that the address does not
 * keep it. */
export function takeToken() {
    const [, token] = /^#token=(.+)$/.exec(location.hash) ?? [];
    if (!token) return;
    history.replaceState(null, "", "#/");
    try {
        sessionStorage.setItem(TOKEN, decodeURIComponent(token));
        isRefused = false;
    } catch {
        // the link is damaged: the person will be asked
    }
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

async function request(path, options) {
    for (;;) {
        const token = sessionStorage.getItem(TOKEN);
        const headers = token ? { ...options.headers, authorization: `Bearer ${token}` } : options.headers;
        const response = await fetch(path, { ...options, headers, cache: "no-store" });
        if (response.ok) return response;
        if (response.status === 401 && !isRefused &&
            (sessionStorage.getItem(TOKEN) !== token || await askForToken(Boolean(token)))) continue;
        const error = new Error(response.status === 401 ? "this server wants a token: load the page again to give it"
            : await detailOf(response));
        error.status = response.status;
        throw error;
    }
}

export const get = async (path, signal) => (await request(path, { signal })).json();
export const post = async (path, body) => (await request(path, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) })).json();

const SILENCE_MS = 40000; // the server shows every 15 s that it lives

/** Like the server's end: one that is gone without a word. */
async function readSoon(reader) {
    let timer = 0;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new TypeError("silence")), SILENCE_MS);
    });
    try {
        return await Promise.race([reader.read(), late]);
    } finally {
        clearTimeout(timer);
    }
}

/** Server-sent events of `path`, each as { name, data }, until the server ends them or `signal` does.
 * Not by EventSource, which cannot carry a token. */
export async function* events(path, signal) {
    const own = new AbortController();
    try {
        const response = await request(path, {
            signal: AbortSignal.any([signal, own.signal]), headers: { accept: "text/event-stream" } });
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (;;) {
            const { value, done } = await readSoon(reader);
            if (done) return;
            const parts = (text + value).split("\n\n");
            text = parts.pop();
            for (const part of parts) {
                const fields = Object.fromEntries(part.split("\n").map((line) => {
                    const colon = line.indexOf(":");
                    return [line.slice(0, colon), line.slice(colon + 1).trimStart()];
                }));
                if (fields.data) yield { name: fields.event, data: JSON.parse(fields.data) };
            }
        }
    } finally {
        own.abort();
    }
}

export const jobPath = (id) => `/jobs/${encodeURIComponent(id)}`;
