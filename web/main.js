// SPDX-License-Identifier: Apache-2.0
// Which view is shown, by the address: #/ all jobs, #/jobs/ID one. A view is a function that fills
// an element and answers how to end it.
import { get } from "./api.js";
import { setText } from "./dom.js";
import { showJob } from "./job_view.js";
import { showJobs } from "./jobs_view.js";

const content = document.getElementById("content");
const connection = document.getElementById("connection");
let end = () => {};

/** A view says how its last request went: null or what went wrong. */
function report(problem) {
    setText(connection, problem ? `⚠ ${problem}` : "");
}

function problemOf(error) {
    return error instanceof TypeError ? "the server does not answer; trying again" : error.message;
}

function route(event) {
    const [, name, id] = location.hash.split("/");
    if (location.hash === "#content") return;
    end();
    report(null);
    content.replaceChildren();
    const tell = (error) => report(error ? problemOf(error) : null);
    end = name === "jobs" && id ? showJob(content, decodeURIComponent(id), tell)
        : showJobs(content, tell);
    if (event) {
        scrollTo(0, 0);
        content.focus({ preventScroll: true });
    }
}

addEventListener("hashchange", route);
route();
get("/info").then(
    (info) => setText(document.getElementById("server"), `${info.version} · ${location.host} · ${info.settings?.scheduler ?? ""}`),
    () => {});
