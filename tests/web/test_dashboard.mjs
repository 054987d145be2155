// SPDX-License-Identifier: Apache-2.0
// Opens the dashboard in Chromium, with a real server and a job that learns (learning_job.py).
// Checks clicks, displayed texts and sent requests. There must be no console error and no request to
// another server. With HARPE_PICTURES=folder the test also creates the pictures of
// docs/dashboard.md. run.sh runs it.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { accessibilityProblems, assertFigure, call, followLink, openPage, sleep, startTests, until } from "./harness.mjs";

/* Loads the file as a module, whatever type node assumes for a .js file. */
const formatSource = readFileSync(new URL("../../web/format.js", import.meta.url), "utf8");
const { energyUnit, inUnit, percent, percentWithin, within } = await import(`data:text/javascript,${encodeURIComponent(formatSource)}`);
const { world, browser, test, picture, end } = await startTests();

/* A job of 4 ranks, of which 2 are registered, and a job that trains. */
const online = await world.serve("online", "--scheduler", "Perseus", "--scheduler-args",
    JSON.stringify({ num_microbatches: 8, learning: "sweep", frequency_stride: 3,
        drift_tolerance: 0.2 }));
const { url } = online;
const half = await call(url, "/register_job", { pp_degree: 4, dp_degree: 1, tp_degree: 1, world_size: 4,
    job_metadata: "language model" });
for (const rank of [0, 2])
    await call(url, `/register_rank/${encodeURIComponent(half)}`, { rank, dp_rank: 0, pp_rank: rank, tp_rank: 0,
        available_frequencies: [1410, 1200] });
const sim = world.run("train-sim", "python3", fileURLToPath(new URL("learning_job.py", import.meta.url)), url, "4", "8",
    "train-sim", "0.2");
const job = await until(async () => (await call(url, "/jobs")).jobs.find((one) => one.job_id !== half)?.job_id,
    "train-sim registers").catch((error) => { throw new Error(`${error.message}: ${sim.log()}`); });
const jobPath = `/jobs/${encodeURIComponent(job)}`;
const frontierOf = () => call(url, `${jobPath}/frontier`);

const { page, complaints } = await openPage(browser, url);

await test("zero_has_no_sign", () => {
    assert.equal(percent(-0.0004), "0.0 %");
    assert.equal(percentWithin(-0.00004, 0.008), "0.00 % ± 0.80 %");
    assert.equal(percentWithin(-0.012, 0.008), "-1.20 % ± 0.80 %");
});

await test("uncertainties_have_two_digits_and_a_page_has_one_unit", () => {
    for (const [value, uncertainty, text] of [[0.15432, 0.00618, "15.43 % ± 0.62 %"], [0.15432, 0.0996, "15 % ± 10 %"], [0.5, 1.234, "50 % ± 120 %"],
        [0.15432, 1e-12, "15.4320 % ± 0.0001 %"], [0.1, 0, "10.0 % ± 0 %"]])
        assert.equal(percentWithin(value, uncertainty), text);
    const unit = energyUnit([7.2e6, undefined, 5.1e9, null]);
    assert.deepEqual([inUnit(7.2e6, unit), inUnit(5.1e9, unit), within(-3.6e8, 4.4e7, unit)], ["0.00200 MWh", "1.42 MWh", "-0.100 ± 0.012 MWh"]);
    assert.equal(inUnit(0, energyUnit([])), "0 Wh");
});

await test("lists_jobs_with_the_ranks_that_are_missing", async () => {
    await page.getByRole("row", { name: "registering" }).getByText("2 of 4").waitFor();
    await page.getByText("not registered: 1, 3").waitFor();
    await page.getByText("language model").waitFor();
    assert.equal(await page.locator("tbody tr").count(), 2);
});

await test("shows_jobs_that_come_and_go_with_few_requests", async () => {
    const asked = [];
    const note = (request) => asked.push(new URL(request.url()).pathname);
    page.on("request", note);
    const name = "<b>passing</b> by & on"; // shown as text
    const other = await call(url, "/register_job", { pp_degree: 2, dp_degree: 1, tp_degree: 1, world_size: 2, job_metadata: name });
    await page.getByText(name).waitFor();
    const path = `/jobs/${encodeURIComponent(other)}`;
    assert.equal((await fetch(url + path, { method: "DELETE" })).status, 200);
    await page.getByText(name).waitFor({ state: "detached" });
    page.off("request", note);
    // When a job is gone, the page asks for the sums of the final reports and the price again.
    assert.deepEqual(asked.filter((one) => !/^\/jobs$|^\/finished$|^\/fleet$/.test(one)), []);
});

await test("keeps_the_view_when_its_links_are_skipped", async () => {
    await page.goto(`${url}/#/jobs/%E0%A4%A`); // not valid text: shows all jobs
    await page.getByText("not registered: 1, 3").waitFor();
    await page.keyboard.press("Tab");
    await page.getByRole("link", { name: "Skip to the content" }).press("Enter");
    assert.match(page.url(), /A4%A$/);
    assert.equal(await page.evaluate(() => document.activeElement.id), "content");
    await page.goto(`${url}/#/`);
    await page.getByText("not registered: 1, 3").waitFor();
});

await test("filters_jobs", async () => {
    await page.getByLabel("Show").fill("registering");
    await page.getByText("1 of 2 jobs").waitFor();
    assert.equal(await page.locator("tbody tr:visible").count(), 1);
    await page.getByLabel("Show").fill("");
});

await test("opens_a_job_and_follows_it_to_its_plan", async () => {
    await followLink(page, page.getByRole("link", { name: job }));
    await page.getByRole("heading", { name: job }).waitFor();
    await until(async () => (await frontierOf()).plans?.length > 20, "the job has plans", 900000);
    await page.getByRole("slider").waitFor();
    await page.getByText("running a plan").waitFor();
    await page.getByText(/% of the energy/).waitFor();
});

await test("says_how_far_the_figures_can_be_trusted", async () => {
    const report = page.getByRole("region", { name: "Report" });
    await report.getByText(/^1 of \d+ spoiled: a GPU did not obey its clock in 1 round; the last was round 2, by rank 1$/).waitFor();
    await report.getByText(/^99\.\d % as planned \(\d+ of \d+, summed over the ranks\), 2 left out of the measurements; 2 at a wrong clock, the last on rank 1: 600 MHz instead of 1200 MHz$/).waitFor();
    await report.getByText(/^1\.0250 ± 0\.0040 times the integrated power: they differ by more than the uncertainty \(4 ranks\); rank 1 differs: 1\.1000 ± 0\.0080$/).waitFor();
    await report.getByText(/J less than .* at the highest clocks; 2048 tokens in a step$/).waitFor();
    await page.getByText(/an iteration, measured \d+ times in \d+ rounds \(\d+–\d+\)/).waitFor();
    // Each figure has a help text, which opens with the keyboard.
    for (const name of ["Saved so far", "Saves", "Baseline", "Energy used", "Power", "Rounds", "Steps", "Energy counter", "Energy per token"]) {
        const help = page.locator("details.help", { has: page.getByLabel(`About ${name}`, { exact: true }) });
        const text = help.locator("p");
        assert.equal(await text.isVisible(), false, name);
        await help.locator("summary").focus();
        await page.keyboard.press("Enter");
        await text.waitFor();
        assert.ok((await text.textContent()).length > 40, name);
        await page.keyboard.press("Enter");
        await text.waitFor({ state: "hidden" });
    }
});

const slider = page.getByRole("slider");

await test("chooses_a_plan_with_the_keyboard_alone", async () => {
    await slider.focus();
    await page.keyboard.press("Home");
    for (let i = 0; i < 10; i++) await page.keyboard.press("ArrowRight");
    assert.equal(await slider.getAttribute("aria-valuenow"), "10");
    assert.match(await slider.getAttribute("aria-valuetext"), /^Plan 10 of 0 to \d+: .* slower .* less energy/);
    await page.locator(".plot .tip").getByText("Plan 10", { exact: true }).waitFor();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").getByText("Run plan 10?").waitFor();
    await page.keyboard.press("Enter");
    await page.getByText(/Plan 10 was requested/).waitFor();
    await until(async () => {
        const { plans, current, job_requests: requests, job_request_outside: [outside] } = await frontierOf();
        const within = plans.filter((plan) => plan.time + outside <= requests.plan_time * (1 + 1e-6));
        return requests.plan_time > 0 && current > 0 && current === within.length - 1;
    }, "the plan that was requested runs");
    await page.getByText(/^\d+ of 0–\d+, running$/).waitFor();
});

await test("leaves_a_request_that_was_not_confirmed", async () => {
    const before = (await frontierOf()).job_requests;
    await page.getByLabel("Power cap").fill("500");
    await page.getByRole("button", { name: "Cap the power" }).click();
    await page.getByRole("button", { name: "Leave it" }).click();
    assert.deepEqual((await frontierOf()).job_requests, before);
});

await test("asks_for_a_power_cap_and_a_straggler", async () => {
    await page.getByRole("heading", { name: "Job requests", exact: true }).waitFor();
    await page.getByRole("button", { name: "Cap the power" }).click();
    await page.getByRole("button", { name: "Do it" }).click();
    await until(async () => (await frontierOf()).job_requests.power_cap === 500, "the cap arrives");
    await page.locator(".plot").getByText(/^cap/).waitFor({ state: "attached" });
    await page.getByRole("button", { name: "Remove the cap" }).click();
    await page.getByRole("button", { name: "Do it" }).click();
    await page.getByLabel("Straggler").fill("1.1");
    await page.getByRole("button", { name: "Report a straggler" }).click();
    await page.getByRole("button", { name: "Do it" }).click();
    await until(async () => {
        const { job_requests: requests } = await frontierOf();
        return requests.power_cap === 0 && requests.slowdown === 1.1;
    }, "the straggler arrives");
    await page.locator(".plot").getByText("straggler").waitFor({ state: "attached" });
    await page.getByRole("button", { name: "Remove the straggler" }).click();
    await page.getByRole("button", { name: "Do it" }).click();
    await until(async () => (await frontierOf()).job_requests.slowdown === 0, "the straggler is gone");
});

await test("shows_a_plan_on_hover_and_selects_it_on_click", async () => {
    await slider.scrollIntoViewIfNeeded();
    const box = await slider.boundingBox();
    await page.mouse.move(box.x + box.width * 0.7, box.y + box.height * 0.7);
    await page.locator(".plot .tip").getByText(/Plan \d+/).waitFor();
    await page.mouse.click(box.x + box.width * 0.7, box.y + box.height * 0.7);
    await page.getByRole("button", { name: "Back to the running plan" }).click();
    await until(async () => Number(await slider.getAttribute("aria-valuenow")) === (await frontierOf()).current,
        "the running plan is the selected one");
});

const stage = page.getByRole("application");

await test("shows_instructions_by_mouse_and_by_keyboard", async () => {
    await stage.scrollIntoViewIfNeeded();
    const box = await stage.boundingBox();
    await page.mouse.move(box.x + 52, box.y + 30);
    await stage.locator(".tip").getByText("forward of microbatch 0").waitFor();
    assert.match(await stage.locator(".tip").textContent(), /MHz/);
    await stage.focus();
    await page.keyboard.press("ArrowRight");
    await page.getByText(/forward of microbatch 0, F0 · rank 0/).waitFor();
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowDown");
    await page.getByText(/rank 1, stage 1/).waitFor();
    for (const key of ["+", "+", "Shift+ArrowRight", "-", "0"]) await page.keyboard.press(key);
});

await test("compares_measured_with_predicted_and_tells_of_rounds", async () => {
    assert.equal(await page.locator(".stages tbody tr").count(), 8);
    await page.locator(".stages").getByText(/% (more|less)|the same/).first().waitFor();
    await page.getByText("rounds as numbers").click();
    await page.getByRole("region", { name: "Rounds as numbers" }).getByText(/less energy/).first().waitFor();
});

for (const colorScheme of ["light", "dark"]) {
    await test(`is_accessible_in_the_${colorScheme}`, async () => {
        await page.emulateMedia({ colorScheme });
        await sleep(400); // colours change gradually
        assert.deepEqual(await accessibilityProblems(page), []);
        await picture(page, `dashboard-job-${colorScheme}`, { fullPage: true, clip: { x: 0, y: 0, width: 1280, height: 1650 } });
        await followLink(page, page.getByRole("link", { name: "All jobs" }));
        await page.getByRole("heading", { name: "Jobs" }).waitFor();
        await page.getByText("not registered: 1, 3").waitFor();
        await page.getByRole("row", { name: "train-sim" }).getByText(/^-?[\d.]+ ± [\d.]+ k?Wh$/).waitFor();
        assert.deepEqual(await accessibilityProblems(page), []);
        await picture(page, `dashboard-jobs-${colorScheme}`, { clip: { x: 0, y: 0, width: 1280, height: 480 } });
        await page.goBack();
        await slider.waitFor();
        await page.getByText(/% of the energy/).waitFor();
        await page.locator(".stages tbody tr").first().waitFor();
    });
}

await test("fits_a_phone", async () => {
    await page.setViewportSize({ width: 360, height: 740 });
    await sleep(300);
    const wide = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(await wide() <= 0, `the page is ${await wide()} px wider than the phone`);
    assert.deepEqual(await accessibilityProblems(page), []);
    await picture(page, "dashboard-phone");
    await page.goto(`${url}/#/`);
    await page.getByText("not registered: 1, 3").waitFor();
    assert.ok(await wide() <= 0, `the list is ${await wide()} px wider than the phone`);
});

await test("pans_128_microbatches_by_16_stages_smoothly", async () => {
    /* A 1F1B of 4096 instructions replaces the job's own. All other data comes from the server. */
    await page.setViewportSize({ width: 1280, height: 900 });
    const big = makePipeline(16, 128);
    await page.route("**/pipeline?*", (route) => route.fulfill({ json: big }));
    await page.goto(`${url}/#${jobPath}`);
    await page.getByText("rank 15").or(stage).first().waitFor();
    await until(async () => (await stage.boundingBox())?.height > 400, "16 lanes are drawn");
    await stage.scrollIntoViewIfNeeded();
    await page.getByRole("button", { name: "Zoom in" }).click({ clickCount: 3 });
    const box = await stage.boundingBox();
    await page.evaluate(() => {
        window.frames_ = [];
        const tick = (now) => { window.frames_.push(now); window.ticking = requestAnimationFrame(tick); };
        window.ticking = requestAnimationFrame(tick);
    });
    await page.mouse.move(box.x + box.width - 50, box.y + 200);
    await page.mouse.down();
    for (let i = 0; i < 160; i++) {
        await page.mouse.move(box.x + box.width - 50 - (i < 80 ? i : 160 - i) * 10, box.y + 200);
        await sleep(4);
    }
    await page.mouse.up();
    const frames = await page.evaluate(() => { cancelAnimationFrame(window.ticking); return window.frames_; });
    const gaps = frames.slice(1).map((now, i) => now - frames[i]).sort((a, b) => a - b);
    const rate = 1000 * gaps.length / gaps.reduce((sum, gap) => sum + gap, 0);
    const late = gaps[Math.floor(gaps.length * 0.95)];
    await page.unroute("**/pipeline?*");
    assert.ok(gaps.length > 1, "frames are drawn while it pans");
    assertFigure(rate > 20, `${rate.toFixed(1)} frames a second`); // of a machine without a GPU
    return `${rate.toFixed(1)} frames a second, 95 % of them within ${late.toFixed(1)} ms`;
});

await test("a_label_in_the_chart_of_rounds_covers_no_curve", async () => {
    await page.goto(`${url}/#${jobPath}`);
    await page.locator(".strips svg").nth(1).waitFor();
    for (const strip of await page.locator(".strips svg").all()) {
        const [label, curve] = await strip.evaluate((one) => [
            [...one.querySelectorAll("text")].find((text) => text.textContent === "highest clocks"), one.querySelector(".history"),
        ].map((part) => part.getBoundingClientRect()).map(({ top, bottom }) => ({ top, bottom })));
        assert.ok(label.bottom <= curve.top, JSON.stringify([label, curve]));
    }
});

await test("a_job_that_has_ended_takes_no_requests", async () => {
    const requests = page.getByRole("button", { name: /Run|Report|Cap|Cancel|Remove/ });
    assert.equal(await requests.count(), 7);
    process.kill(-sim.child.pid, "SIGTERM");
    for (let rank = 0; rank < 4; rank++) await call(url, `/end/${encodeURIComponent(job)}`, { rank });
    await page.getByText("ended", { exact: true }).waitFor();
    assert.equal(await requests.count(), 0);
    await slider.focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("Enter");
    assert.equal(await page.getByRole("dialog").count(), 0);
    await page.getByRole("button", { name: "Back to the running plan" }).click();
});

await test("has_nothing_to_complain_about", async () => assert.deepEqual(complaints, []));

await test("weighs_little_and_paints_soon", async () => {
    const { page: fresh, complaints: heard } = await openPage(browser, url);
    await fresh.getByRole("heading", { name: "Jobs" }).waitFor();
    const { bytes, paint } = await fresh.evaluate(() => ({
        bytes: [...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")]
            .filter((one) => one.name.includes("/dashboard/") || one.entryType === "navigation")
            .reduce((sum, one) => sum + one.transferSize, 0),
        paint: performance.getEntriesByName("first-contentful-paint")[0].startTime }));
    assert.ok(bytes > 5000 && bytes < 300 * 1024, `${bytes} bytes`);
    assertFigure(paint < 3000, `${paint} ms`);
    assert.deepEqual(heard, []);
    await fresh.context().close();
    return `${(bytes / 1024).toFixed(1)} KiB, first paint after ${paint.toFixed(0)} ms`;
});

await test("lists_a_thousand_jobs_without_lag", async () => {
    for (let i = 0; i < 1000; i += 20)
        await Promise.all(Array.from({ length: 20 }, (_, k) => call(url, "/register_job", { pp_degree: 8, dp_degree: 4,
            tp_degree: 1, world_size: 32, job_metadata: `load${i + k}` })));
    const { page: many } = await openPage(browser, url);
    await many.getByText(/^100\d jobs$/).waitFor();
    await many.evaluate(() => {
        window.long = [];
        new PerformanceObserver((list) => window.long.push(...list.getEntries().map((one) => one.duration))).observe({ entryTypes: ["longtask"] });
    });
    for (let i = 0; i < 20; i++) {
        await many.mouse.wheel(0, 1500);
        await sleep(150);
    }
    const started = Date.now();
    await many.getByLabel("Show").fill("load99");
    await many.getByText(/11 of 100\d jobs/).waitFor();
    const took = Date.now() - started;
    await many.getByLabel("Show").fill("");
    await many.getByText(/^1–50 of 100\d$/).waitFor();
    assert.equal(await many.locator("tbody tr").count(), 50);
    const next = many.getByRole("button", { name: "Next" });
    await next.focus();
    await many.keyboard.press("Enter");
    await many.getByText(/^51–100 of 100\d$/).waitFor();
    assert.equal(await next.evaluate((one) => one === document.activeElement), true);
    await many.getByRole("button", { name: "GPUs" }).click();
    await many.getByRole("columnheader", { name: "GPUs", exact: false }).and(many.locator("[aria-sort=descending]")).waitFor();
    await many.getByText(/^1–50 of 100\d$/).waitFor();
    await many.getByLabel("Sort by").selectOption("name");
    await many.getByRole("button", { name: "Ascending" }).waitFor();
    await until(async () => /^language model/.test(await many.locator("tbody th").first().textContent()), "the first name comes first");
    const longest = Math.max(0, ...await many.evaluate(() => window.long));
    await many.context().close();
    assertFigure(took < 2000 && longest < 1000, `filtering took ${took} ms, the longest task ${longest} ms`);
    return `the longest task took ${longest.toFixed(0)} ms, filtering ${took} ms`;
});

// A port outside the range that the system gives to clients.
async function freePort() {
    for (;;) {
        const port = 20000 + Math.floor(Math.random() * 12000);
        const probe = createServer();
        const isFree = await new Promise(done => probe.once("error", () => done(false)).listen(port, "127.0.0.1", () => done(true)));
        if (isFree) {
            await new Promise(done => probe.close(done));
            return port;
        }
    }
}

await test("comes_back_with_the_server", async () => {
    const port = await freePort();
    const first = await world.serve("mortal", "--scheduler", "Perseus", "--set", `port=${port}`);
    const { page: door } = await openPage(browser, first.url);
    await door.getByText("No job is registered").waitFor();
    process.kill(first.child.pid, "SIGKILL");
    await door.getByText("the server does not answer").waitFor();
    const second = await world.serve("mortal", "--scheduler", "Perseus", "--set", `port=${port}`);
    const mortal = await call(second.url, "/register_job", { pp_degree: 1, dp_degree: 1, tp_degree: 1, world_size: 1 });
    await followLink(door, door.getByRole("link", { name: mortal }));
    await door.getByRole("heading", { name: mortal }).waitFor();
    assert.equal(await door.locator("#connection").textContent(), "");
    await fetch(`${second.url}/jobs/${encodeURIComponent(mortal)}`, { method: "DELETE" });
    await door.getByText(/✖ .* was evicted/).waitFor();
    await door.getByText("evicted", { exact: true }).waitFor();
    await door.context().close();
});

await test("asks_for_the_token_if_the_server_requires_one", async () => {
    writeFileSync(join(world.directory, "token"), "open-sesame\n", { mode: 0o600 });
    const guarded = await world.serve("guarded", "--scheduler", "Perseus", "--token-file", "token");
    const { page: door } = await openPage(browser, guarded.url);
    const token = door.getByRole("textbox", { name: "Token" });
    await token.fill("\u201cwrong\u201d"); // no header can contain it
    await door.keyboard.press("Enter");
    assert.equal(await token.inputValue(), "\u201cwrong\u201d");
    await token.fill("wrong");
    await door.keyboard.press("Enter");
    await door.getByText("That token was not accepted").waitFor();
    await token.fill("open-sesame");
    await door.keyboard.press("Enter");
    await door.getByText("No job is registered").waitFor();
    await door.evaluate(() => sessionStorage.clear());
    await door.reload();
    await door.getByRole("dialog").waitFor();
    await door.keyboard.press("Escape");
    await door.getByText("load the page again").waitFor();
    assert.equal(await door.getByRole("dialog").count(), 0);
    await door.context().close();
});

await test("takes_the_token_from_a_link_and_out_of_the_address", async () => {
    writeFileSync(join(world.directory, "token"), "tok+/=%1\n", { mode: 0o600 });
    const guarded = await world.serve("linked", "--scheduler", "Perseus", "--token-file", "token");
    const door = await (await browser.newContext()).newPage();
    await door.goto(`${guarded.url}/#token=tok%2B%2F%3D%251`);
    await door.getByText("No job is registered").waitFor();
    assert.equal(await door.getByRole("dialog").count(), 0);
    assert.equal(new URL(door.url()).hash, "#/");
    await door.evaluate(() => { location.hash = "#token=%"; });
    await door.waitForFunction(() => location.hash === "#/");
    await door.getByText("No job is registered").waitFor();
    await door.context().close();
});

/** A 1F1B with slightly different times, and powers from the whole scale. */
function makePipeline(stages, microbatches) {
    const order = Array.from({ length: stages }, (_, s) => {
        const warm = Math.min(stages - s, microbatches);
        const list = Array.from({ length: warm }, (_, m) => [0, m]);
        for (let m = warm; m < microbatches; m++) list.push([1, m - warm], [0, m]);
        for (let m = microbatches - warm; m < microbatches; m++) list.push([1, m]);
        return list;
    });
    const end = Array.from({ length: stages }, () => [[], []]);
    const free = new Array(stages).fill(0);
    const at = new Array(stages).fill(0);
    const columns = () => ({ entry: [], microbatch: [], frequency: [], start: [], duration: [], power: [] });
    const ranks = Array.from({ length: stages }, columns);
    for (let moved = true; moved;) {
        moved = false;
        for (let s = 0; s < stages; s++) {
            while (at[s] < order[s].length) {
                const [kind, m] = order[s][at[s]];
                const neighbour = kind ? s + 1 : s - 1;
                const ready = end[neighbour] ? end[neighbour][kind][m] : 0;
                if (ready === undefined) break;
                const start = Math.max(free[s], ready);
                const duration = (kind ? 0.1 : 0.05) * (1 + 0.1 * Math.sin(s * 7 + m));
                free[s] = end[s][kind][m] = start + duration;
                const values = { entry: 2 * s + kind, microbatch: m, frequency: 210 + 15 * ((m + s) % 80), start, duration,
                                 power: 100 + 300 * Math.abs(Math.sin(m * 3 + s)) };
                for (const [name, value] of Object.entries(values)) ranks[s][name].push(value);
                at[s]++;
                moved = true;
            }
        }
    }
    return { time: Math.max(...free), energy: 1e5, blocking_power: 80, measured_round: null, ranks,
        critical: Array.from({ length: 2 * microbatches }, (_, i) => (stages - 1) * 2 * microbatches + i),
        entries: Array.from({ length: 2 * stages }, (_, e) => ({ stage: e >> 1, rank: e >> 1,
            instruction: e & 1 ? "backward" : "forward", runs: microbatches, predicted: [1, 100], measured: null })) };
}

await end();
