// SPDX-License-Identifier: Apache-2.0
// Selects the view by the address: #/ shows all jobs, #/jobs/ID one job. A view is a function that
// fills an element and returns a function that ends the view.
import { get, takeToken } from "./api.js";
import { setText } from "./dom.js";
import { showJob } from "./job_view.js";
import { showJobs } from "./jobs_view.js";

const content = document.getElementById("content");
const connection = document.getElementById("connection");
let end = () => {};

/** Receives the result of a view's last request: null or an error. */
function report(problem) {
    setText(connection, problem ? `⚠ ${problem}` : "");
    content.classList.toggle("stale", Boolean(problem));
}

function problemOf(error) {
    return error instanceof TypeError ? "the server does not answer; trying again" : error.message;
}

/** Returns the job that the address names, or null. */
function namedJob() {
    const [, name, id] = location.hash.split("/");
    try {
        return name === "jobs" && id ? decodeURIComponent(id) : null;
    } catch {
        return null; // the address is not valid text
    }
}

function route(event) {
    end();
    takeToken();
    for (const dialog of document.querySelectorAll("dialog.confirm")) dialog.close();
    report(null);
    content.replaceChildren();
    const tell = (error) => report(error ? problemOf(error) : null);
    const id = namedJob();
    end = id === null ? showJobs(content, tell) : showJob(content, id, tell);
    if (event) {
        scrollTo(0, 0);
        content.focus({ preventScroll: true });
    }
}

/* The address names the view, so it does not change. */
document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    content.focus();
});
addEventListener("hashchange", route);
route();
get("/info").then(
    (info) => setText(document.getElementById("server"), `${info.version} · ${location.host} · ${info.settings?.scheduler ?? ""}`),
    () => {});
