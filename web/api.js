// SPDX-License-Identifier: Apache-2.0
// Sends requests to the server that this page came from, and to no other. If the server requires a
// token, the page asks the user once, unless the link contains the token. The token is kept until
// the tab is closed.
import { h } from "./dom.js";

const TOKEN = "harpe-token";
let asking = null;
let isRefused = false; // the user has cancelled the dialog

function tokenDialog(wasWrong) {
    const input = h("input", { type: "password", id: "token", autocomplete: "off", required: true,
                               pattern: "[ -~]+", title: "letters, digits and signs of ASCII" });
    return { input, dialog: h("dialog", { "aria-labelledby": "token-title" }, h("form", { method: "dialog" },
        h("h2", { id: "token-title" }, "This server requires a token"),
        wasWrong ? h("p", { class: "problem", role: "alert" }, "That token was not accepted.") : null,
        h("p", null, "Enter the token that the administrator gave you, or the first line of the file of --token-file. ",
            "The token is kept in this tab only."),
        h("label", { for: "token" }, "Token"), input,
        h("div", { class: "buttons" }, h("button", { class: "primary", value: "given" }, "Go on")))) };
}

/** Returns true if there is a new token now. */
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

/** Removes the token of a link (harpe jobs link) from the address, so that the address does not keep
 * it. */
export function takeToken() {
    const [, token] = /^#token=(.+)$/.exec(location.hash) ?? [];
    if (!token) return;
    history.replaceState(null, "", "#/");
    try {
        sessionStorage.setItem(TOKEN, decodeURIComponent(token));
        isRefused = false;
    } catch {
        // the link is damaged: the page asks the user
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
        const error = new Error(response.status === 401 ? "this server requires a token: load the page again and enter the token"
            : await detailOf(response));
        error.status = response.status;
        throw error;
    }
}

export const get = async (path, signal) => (await request(path, { signal })).json();
const send = async (method, path, body) => (await request(path, {
    method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) })).json();
export const post = (path, body) => send("POST", path, body);
export const put = (path, body) => send("PUT", path, body);
export const remove = async (path) => (await request(path, { method: "DELETE" })).json();

const SILENCE_MS = 40000; // the server sends a sign of life every 15 s

/** Treats a server that has stopped sending like a server that has ended the stream. */
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

/** Yields the server-sent events of `path`, each as { name, data }, until the server ends the stream
 * or `signal` aborts it. Does not use EventSource, because EventSource cannot send a token. */
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
export const finishedPath = (id) => `/finished/${encodeURIComponent(id)}`;

/** Returns all final reports that the server keeps, newest first. A server of an earlier version has
 * none. */
export async function finishedJobs(signal) {
    const jobs = [];
    try {
        for (;;) {
            const page = await get(`/finished?limit=1000&offset=${jobs.length}`, signal);
            jobs.push(...page.jobs);
            if (page.jobs.length === 0 || jobs.length >= page.count) return jobs;
        }
    } catch (error) {
        if (error.status === 404) return [];
        throw error;
    }
}

/** Returns what the fleet's energy has cost, or null if the server does not count it. */
export async function fleetEnergy(signal) {
    try {
        return (await get("/fleet", signal)).energy ?? null;
    } catch (error) {
        if ([403, 404].includes(error.status)) return null;
        throw error;
    }
}
