// SPDX-License-Identifier: Apache-2.0
// Selects the view by the address: #/ shows all jobs, #/jobs/ID one job, #/fleet the power of all
// jobs, #/finished final reports, #/finished/ID one of them. A view is a function that fills an
// element and returns a function that ends the view.
import { get, takeToken } from "./api.js";
import { setText } from "./dom.js";
import { showFinished, showFinishedJob } from "./finished_view.js";
import { showFleet } from "./fleet_view.js";
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

/** Returns the view that the address names, and the job in it or null. */
function namedView() {
    const [, name, id] = location.hash.split("/");
    try {
        return [name, id ? decodeURIComponent(id) : null];
    } catch {
        return ["", null]; // the address is not valid text
    }
}

/** Shows the view. Returns a function that ends it. */
function open([name, id], tell) {
    if (name === "jobs" && id) return showJob(content, id, tell);
    if (name === "finished") return id ? showFinishedJob(content, id, tell) : showFinished(content, tell);
    return name === "fleet" ? showFleet(content, tell) : showJobs(content, tell);
}

/** Marks the link in the navigation that leads to the view on the screen. */
function mark([name]) {
    const shown = ["fleet", "finished"].includes(name) ? `#/${name}` : "#/";
    for (const link of document.querySelectorAll("nav a")) {
        if (link.getAttribute("href") === shown) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
}

function route(event) {
    end();
    takeToken();
    for (const dialog of document.querySelectorAll("dialog.confirm")) dialog.close();
    report(null);
    content.replaceChildren();
    const tell = (error) => report(error ? problemOf(error) : null);
    const view = namedView();
    mark(view);
    end = open(view, tell);
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
