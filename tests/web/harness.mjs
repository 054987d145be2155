// SPDX-License-Identifier: Apache-2.0
// The common part of the browser tests: processes in a directory of their own, a browser that
// records forbidden events, tests that continue after a failure, and waits with a limit.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const packages = createRequire(join(process.env.HARPE_WEB_PACKAGES, "from-here.js"));
export const { chromium, firefox } = packages("playwright-core");
/** The browser of the test: chromium, or firefox (Debian's own, through WebDriver BiDi). */
export const BROWSER = process.env.HARPE_WEB_BROWSER ?? "chromium";
export const AXE = readFileSync(packages.resolve("axe-core/axe.min.js"), "utf8");
const HARPE = process.env.HARPE;
const LIMIT_MS = 300000; // of every wait: far more than a loaded machine needs

export const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

export async function until(condition, what, limit = LIMIT_MS) {
    const end = Date.now() + limit;
    for (;;) {
        const value = await condition();
        if (value) return value;
        if (Date.now() > end) throw new Error(`never: ${what}`);
        await sleep(50);
    }
}

/** Clicks a link of a live page until its view is shown. While the mouse button is down, a new text can
 * move the link away; the browser then drops the click, and a person clicks again. */
export async function followLink(page, link) {
    const before = page.url();
    await until(async () => {
        if (page.url() === before) await link.click({ timeout: 20000 }).catch(() => {});
        return page.url() !== before;
    }, `the address changes from ${before}`);
}

/** A measured speed: the tests report it, and only bench/browser demands a limit. */
export function assertFigure(isGood, figure) {
    if (process.env.HARPE_WEB_FIGURES) assert.ok(isGood, figure);
}

/** A directory and its processes. `end()` removes both. */
export class World {
    directory = mkdtempSync(join(tmpdir(), "harpe-web-"));
    children = [];

    start(name, ...words) { return this.run(name, HARPE, ...words); }

    run(name, program, ...words) {
        const log = join(this.directory, `${name}.log`);
        const file = openSync(log, "w");
        const child = spawn(program, words, { cwd: this.directory, stdio: ["ignore", file, file], detached: true });
        child.on("error", (error) => console.error(`${program}: ${error.message}`));
        this.children.push(child);
        return { child, log: () => readFileSync(log, "utf8") };
    }

    async serve(name, ...words) {
        const { child, log } = this.start(name, "serve", ...words.includes("--set") ? [] : ["--port", "0"], "--store", `${name}.db`,
            "--dump-dir", `${name}.dump`, ...words);
        const url = await until(() => {
            assert.equal(child.exitCode, null, log());
            return /listening on (http:\S+)/.exec(log())?.[1];
        }, "the server listens");
        return { url, log, child };
    }

    async end() {
        for (const { pid, exitCode, signalCode } of this.children)
            if (exitCode === null && signalCode === null) process.kill(-pid, "SIGTERM");
        await Promise.all(this.children.map((child) => Promise.race([
            child.exitCode !== null || child.signalCode ? null : new Promise((resolve) => { child.once("exit", resolve); }),
            sleep(10000).then(() => child.exitCode === null && process.kill(-child.pid, "SIGKILL"))])));
        rmSync(this.directory, { recursive: true, force: true });
    }
}

/** Starts a browser. Firefox gets its colour scheme at the start, because it cannot be told later. */
export function launch(colorScheme = "light") {
    if (BROWSER === "firefox")
        return firefox.launch({ channel: "moz-firefox", executablePath: process.env.FIREFOX, timeout: LIMIT_MS,
            firefoxUserPrefs: { "layout.css.prefers-color-scheme.content-override": colorScheme === "dark" ? 0 : 1 } });
    return chromium.launch({ executablePath: process.env.CHROMIUM, timeout: LIMIT_MS,
        args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
}

/** Runs a file of tests. Leaves nothing behind, whatever fails. */
export async function startTests() {
    const world = new World();
    for (const event of ["SIGTERM", "SIGINT", "uncaughtException"])
        process.once(event, async (reason) => {
            console.error(reason);
            await world.end();
            process.exit(1);
        });
    const browser = await launch();
    const pictures = process.env.HARPE_PICTURES;
    if (pictures) mkdirSync(pictures, { recursive: true });
    let failures = 0;

    return {
        world, browser,
        async test(name, body) {
            try {
                const note = await body();
                console.log(`ok      ${name}${note ? `: ${note}` : ""}`);
            } catch (error) {
                failures++;
                console.log(`FAILED  ${name}\n${error.stack}`);
            }
        },
        /** Saves pictures for the documents if HARPE_PICTURES names a folder. */
        async picture(page, name, options) {
            if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), ...options });
        },
        async end() {
            await browser.close();
            await world.end();
            process.exitCode = failures ? 1 : 0;
        },
    };
}

export async function call(url, path, body) {
    const response = await fetch(url + path, body === undefined ? {} : {
        method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    assert.equal(response.status, 200, `${path}: ${response.status} ${await response.clone().text()}`);
    return response.json();
}

/** Opens a page and records console errors and requests to other servers. `url` is that of a server
 * or of a file. */
export async function openPage(browser, url, options = {}) {
    const address = url.startsWith("file:") ? url : `${url}/`;
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    const page = await context.newPage();
    const complaints = [];
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(error.stack));
    page.on("request", (request) => request.url().startsWith(address) || complaints.push(`asks ${request.url()}`));
    page.setDefaultTimeout(LIMIT_MS);
    await page.goto(address);
    return { page, complaints };
}

/** Returns every violation that axe-core finds, as lines. */
export async function accessibilityProblems(page) {
    await page.evaluate(AXE);
    return page.evaluate(async () => {
        const { violations } = await window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"] });
        return violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => `${node.html} ${node.failureSummary}`).join(" | ")}`);
    });
}
