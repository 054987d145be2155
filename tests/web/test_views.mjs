// SPDX-License-Identifier: Apache-2.0
// Opens the views of all jobs, of finished jobs, of one job and of the fleet in a browser, with a
// real server and jobs that learn. Sets a budget and begins an event in the page, and waits until the
// jobs follow. Looks at each view in light and dark colours and on a phone; axe-core must find
// nothing. The rare states of a fleet come from fleet_sample.mjs. run.sh runs it with Chromium and
// with Firefox.
import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { fleet, historyOf, idleFleet } from "./fleet_sample.mjs";
import { accessibilityProblems, BROWSER, call, followLink, launch, openPage, sleep, startTests, until } from "./harness.mjs";

const { world, browser, test, end } = await startTests();
const { url } = await world.serve("views", "--scheduler", "Perseus", "--scheduler-args",
    JSON.stringify({ num_microbatches: 8, learning: "sweep", frequency_stride: 3, drift_tolerance: 0.2 }));
const learner = (name, metadata, pause) => world.run(name, "python3", fileURLToPath(new URL("learning_job.py", import.meta.url)),
    url, "4", "8", metadata, pause);
const jobs = async () => (await call(url, "/jobs")).jobs;
const idOf = async (word) => (await jobs()).find((one) => one.job_metadata.includes(word))?.job_id;
const send = async (method, path, body) => {
    const response = await fetch(url + path, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    assert.equal(response.status, 200, `${path}: ${await response.text()}`);
};

/* A job that is evicted after some rounds of its plan, and two that train. */
const past = learner("past", "name=old-run tokens_per_step=2048", "0.01");
const pastId = await until(() => idOf("old-run"), "the first job registers").catch((error) => { throw new Error(`${error.message}: ${past.log()}`); });
await until(async () => {
    const { phase, saved } = (await jobs()).find((one) => one.job_id === pastId).figures;
    return phase === "plan" && saved?.energy > 0;
}, "the first job runs its plan", 900000);
process.kill(-past.child.pid, "SIGTERM");
await send("DELETE", `/jobs/${encodeURIComponent(pastId)}`);
learner("first", "train-sim", "0.2");
learner("second", "fleet_name=second fleet_group=row1", "0.2");
const firstId = await until(() => idOf("train-sim"), "a job registers");

const { page, complaints } = await openPage(browser, url);

/** Opens every help text in the page, and checks that every figure has one. */
async function checkHelp() {
    const missing = await page.evaluate(() => [...document.querySelectorAll("dl.facts dt, dl.big dt, .section-head")]
        .filter((one) => one.offsetParent && !(one.querySelector(".help p")?.textContent.length > 30)).map((one) => one.textContent));
    assert.deepEqual(missing, []);
}

/** Goes to another view of an open page. Only the part of the address after # changes, so the browser
 * does not load the page again. */
const go = (shown, hash) => shown.evaluate((next) => { location.hash = next; }, hash);

async function open(hash, ready) {
    await go(page, hash);
    await ready().first().waitFor();
}

await test("titles_are_names_and_ids_stand_beside_them", async () => {
    await page.getByRole("link", { name: /^train-sim 2/ }).waitFor();
    await page.getByRole("link", { name: /^second 2/ }).waitFor();
    assert.equal(await page.locator("tbody .name", { hasText: "second" }).textContent(), "second");
    await followLink(page, page.getByRole("link", { name: /^train-sim 2/ }));
    await page.getByRole("heading", { level: 1, name: `train-sim ${firstId}` }).waitFor();
    assert.equal(await page.title(), "Harpe: train-sim");
});

await test("names_come_from_any_metadata", async () => {
    const names = await page.evaluate(async () => {
        const { jobName } = await import("/dashboard/names.js");
        return ["", null, "num_microbatches=24 tokens_per_step=4", "GPT-3 num_microbatches=24", "x name=gpt-xl y", "{\"name\": \"from json\"}", "{broken",
                "a=b=c d", "x".repeat(200)].map((job_metadata) => jobName({ job_id: "ID", job_metadata }))
            .concat(jobName({ job_id: "2026-11-25-22-07-02+dp1+pp4+tp1+Perseus+language_model", name: null }), jobName({ job_id: "ID", name: "given" }),
                    jobName({ job_id: "2026-11-25-22-07-02.3+dp1+pp4+tp1+Perseus+gpt" })); // the fourth job of a second
    });
    assert.deepEqual(names, ["ID", "ID", "ID", "GPT-3", "gpt-xl", "from json", "ID", "d", `${"x".repeat(79)}…`, "language model", "given", "gpt"]);
});

await test("sums_up_energy_of_all_jobs", async () => {
    await open("#/", () => page.locator(".headline"));
    await page.locator(".headline").getByText(/^2 jobs and 1 finished job used \S+ k?Wh and saved \S+ ± \S+ k?Wh\.$/).waitFor();
    await page.getByText(/^\S+ ± \S+ k?Wh \(\d+\.\d+ % ± \d\.\d+ %\)$/).waitFor();
    assert.equal(await page.locator("dt", { hasText: "Cost" }).count(), 0); // no price is known
    await checkHelp();
    await page.getByText("What the columns mean").click();
    await page.getByText("The number of the job's ranks").waitFor();
});

await test("sums_of_jobs_and_of_final_reports_are_added", async () => {
    const sums = await page.evaluate(async () => {
        const { addSums, savedText } = await import("/dashboard/totals.js");
        const one = { jobs: 2, compared: 1, energy: 9e6, power: 10, saved: 1e6, saved_uncertainty: 3e5, energy_baseline: 1e7 };
        const sum = addSums(one, { ...one, power: 0, saved: 2e6, saved_uncertainty: 4e5 });
        const text = (saved, uncertainty, baseline) => savedText({ saved, uncertainty, baseline });
        return [sum, text(sum.saved, sum.saved_uncertainty, sum.energy_baseline), text(-100, 200, 1e5)];
    });
    assert.deepEqual(sums[0], { jobs: 4, compared: 2, energy: 1.8e7, power: 10, saved: 3e6, saved_uncertainty: 5e5, energy_baseline: 2e7 });
    assert.equal(sums[1], "830 ± 140 Wh (15.0 % ± 2.5 %)");
    assert.equal(sums[2], "28 ± 56 mWh more used (-0.10 % ± 0.20 %), within noise");
});

await test("keeps_finished_jobs_with_their_report", async () => {
    await followLink(page, page.getByRole("link", { name: "Finished" }));
    await followLink(page, page.getByRole("link", { name: /^old-run 2/ }));
    await page.getByRole("heading", { level: 1, name: "old-run" }).waitFor();
    await page.getByText(/% as planned/).waitFor();
    await page.getByText(/an? iteration|Wh .* in \d+ iterations/).first().waitFor();
    await checkHelp();
    // The page of the job itself names the report.
    await go(page, `#/jobs/${encodeURIComponent(pastId)}`);
    await followLink(page, page.getByRole("link", { name: "Its final report" }));
    await page.getByRole("heading", { level: 1, name: "old-run" }).waitFor();
    complaints.length = 0; // the browser logs the answer 410
});

await test("shows_the_rounds_of_a_time_with_the_keyboard", async () => {
    await open(`#/jobs/${encodeURIComponent(firstId)}`, () => page.getByRole("slider"));
    await page.getByText(/^\d+ rounds, \d+ to \d+$/).waitFor();
    await checkHelp();
    await page.getByRole("radio", { name: "All kept" }).focus();
    await page.keyboard.press("ArrowLeft");
    assert.equal(await page.getByRole("radio", { name: "Last day" }).isChecked(), true);
    await page.keyboard.press("ArrowLeft");
    assert.equal(await page.getByRole("radio", { name: "Last hour" }).isChecked(), true);
    await page.getByText(/^\d+ rounds, \d+ to \d+$/).waitFor();
    // Rounds of two hours ago are not of the last hour. The answer is the server's but for the times.
    const answer = await call(url, `/jobs/${encodeURIComponent(firstId)}/frontier`);
    answer.measured.forEach((one, i) => { one.ended_at -= i < 5 ? 7200 : 0; });
    answer.round += 1000; // the page takes it for a change
    const [first, sixth, last] = [answer.measured[0], answer.measured[5], answer.measured.at(-1)].map((one) => one.round);
    await page.route(/\/frontier$/, (route) => route.fulfill({ json: answer }));
    await page.getByText(`${last - sixth + 1} rounds, ${sixth} to ${last}`, { exact: true }).waitFor();
    await page.getByRole("radio", { name: "Last day" }).check();
    await page.getByText(`${last - first + 1} rounds, ${first} to ${last}`, { exact: true }).waitFor();
    await page.unrouteAll({ behavior: "ignoreErrors" });
});

await test("says_how_to_set_a_budget", async () => {
    await followLink(page, page.getByRole("link", { name: "Fleet" }));
    await page.getByText(/^harpe fleet budget set 60000 --server http/).waitFor();
    await page.getByText("No budget is set.").waitFor();
    await page.getByText("There has been no event.").waitFor();
    await checkHelp();
});

await test("a_budget_of_the_form_is_followed_by_the_jobs", async () => {
    const before = (await until(async () => {
        const now = await call(url, "/fleet");
        return now.power.measured_w > 1500 && now.jobs.length === 2 && now;
    }, "both jobs run", 900000)).power.measured_w;
    await until(async () => (await jobs()).every((one) => one.figures.phase === "plan"), "both jobs run plans", 900000);
    const budget = Math.round(before * 0.93);
    await page.getByLabel("Budget (kW)").fill(`${budget / 1000}`);
    await page.getByRole("button", { name: "Set the budget …" }).click();
    await page.getByRole("dialog").getByText(/The whole fleet draws at most/).waitFor();
    await page.getByRole("button", { name: "Do it" }).click();
    await page.getByText("✔ The server has accepted the change.").waitFor();
    await until(async () => {
        const { power, state } = await call(url, "/fleet");
        return state === "within" && power.measured_w <= budget && power.limit_w === budget;
    }, "the jobs draw less");
    await page.locator("dd").getByText("within the budget").waitFor();
    await page.getByRole("row", { name: /^train-sim .* follows .* % .* of 0–\d+/ }).waitFor();
    await page.getByRole("row", { name: /^second .*row1 .* follows/ }).waitFor();
});

await test("a_budget_of_the_form_keeps_margin_and_overhead", async () => {
    const [{ watts }] = (await call(url, "/fleet")).budgets;
    await send("PUT", "/fleet/budget", { group: "row1", watts: 1e5, margin: 0.07, overhead: 1.05 });
    await page.getByLabel("For", { exact: true }).first().selectOption("row1");
    const [margin, overhead] = [page.getByLabel("Margin (%)"), page.getByLabel("Counted ×")];
    await until(async () => await margin.inputValue() === "7" && await overhead.inputValue() === "1.05", "the form shows what is set");
    await overhead.fill("1.1");
    await page.getByLabel("Budget (kW)").fill("90");
    await page.getByRole("button", { name: "Set the budget …" }).click();
    await page.getByRole("dialog").getByText(/at most 90\.00 kW \(counted × 1\.1 for machines and cooling, 7\.0 % margin\)/).waitFor();
    await page.getByRole("button", { name: "Do it" }).click();
    const set = await until(async () => (await call(url, "/fleet")).budgets.find((one) => one.watts === 90000), "the budget is set");
    assert.deepEqual([set.group, set.margin, set.overhead], ["row1", 0.07, 1.1]);
    await send("DELETE", "/fleet/budget?group=row1");
    await page.getByLabel("For", { exact: true }).first().selectOption("");
    await until(async () => await margin.inputValue() === "0", "the form shows the whole fleet");
    assert.equal((await call(url, "/fleet")).budgets[0].watts, watts);
});

await test("an_event_shows_what_was_promised_and_what_came", async () => {
    await page.getByLabel("Less power (%)").fill("5");
    await page.getByLabel("Back within (min)").fill("2");
    await page.getByLabel("jobs may get slower than they accept").check();
    await page.getByRole("button", { name: "Begin the event …" }).click();
    await page.getByRole("dialog").getByText(/5\.0 % less for 60 min, beginning now\. Then the power comes back within 2 min\. Jobs may get slower than they accept\./).waitFor();
    await page.evaluate(() => { // not every browser tells the body of a request
        const { fetch } = window;
        window.fetch = (path, options) => {
            if (options.method === "POST") window.harpeSent = options.body;
            return fetch(path, options);
        };
    });
    await page.getByRole("button", { name: "Do it" }).click();
    const row = page.getByRole("row", { name: /from the dashboard/ });
    await row.getByText("active").waitFor();
    const sent = JSON.parse(await page.evaluate(() => window.harpeSent));
    assert.deepEqual(Object.keys(sent).sort(), ["duration_s", "group", "may_exceed_slowdown", "note", "notice_s", "ramp_s", "share"]); // now is the server's
    const { promised_w: promised } = (await call(url, "/fleet")).events[0];
    await row.getByText(/^at most 1\.\d+ kW$/).waitFor();
    await row.getByText(/^reached .*; no breach$/).waitFor();
    const { power } = await call(url, "/fleet");
    assert.ok(power.measured_w <= promised, `${power.measured_w} of ${promised} W`);
    await row.getByRole("button", { name: "Cancel event 1" }).click();
    await page.getByRole("button", { name: "Do it" }).click();
    await row.locator(".state").getByText(/coming back|cancelled/).waitFor();
});

await test("power_over_time_is_told_in_words", async () => {
    const plot = page.getByRole("slider", { name: "Power over time" });
    await until(async () => Number(await plot.getAttribute("aria-valuemax")) >= 1, "the history has two points");
    await plot.focus();
    await page.keyboard.press("End");
    assert.match(await plot.getAttribute("aria-valuetext"), /^\d\d:\d\d: measured 1\.\d+ kW, counted 1\.\d+ kW, limit 1\.\d+ kW$/);
    /* What the cursor shows stays, and is of the new data, when the chart is drawn again. */
    const paper = page.locator(".plot.power > svg");
    const before = await paper.getAttribute("width");
    const size = page.viewportSize();
    await page.setViewportSize({ ...size, width: size.width - 40 });
    await until(async () => await paper.getAttribute("width") !== before, "the chart is drawn again");
    assert.equal(await paper.locator(".cursor").count(), 1);
    assert.equal(await page.locator(".plot.power .tip").isVisible(), true);
    assert.ok(Number(await paper.locator(".cursor").getAttribute("x1")) < Number(await paper.getAttribute("width")));
    await page.setViewportSize(size);
    await page.keyboard.press("Tab");
    await until(async () => await paper.locator(".cursor").count() === 0, "the cursor goes with the focus");
    await page.getByText("Power as numbers").click();
    await page.getByRole("region", { name: "Power as numbers" }).getByText(/^1\.\d+ kW$/).first().waitFor();
});

await test("the_list_tells_what_the_energy_has_cost_as_the_fleet_does", async () => {
    await send("PUT", "/fleet/prices", { currency: "EUR", value_per_s: 0.001, carbon_per_kg: 0,
        series: [{ at: Math.floor(Date.now() / 1000) - 60, energy_per_kwh: 0.25, carbon_g_per_kwh: 300 }] });
    await page.reload();
    await page.getByText(/per kWh, 300 g CO₂ per kWh/).waitFor();
    await followLink(page, page.getByRole("link", { name: "Jobs", exact: true }));
    await page.getByText(/^0\.\d+ ± .* EUR$/).waitFor();
    await page.getByText(/^\S+ k?g CO₂$/).waitFor();
    await checkHelp();
    // A higher price does not change what was used before.
    const { page: both, complaints: heard } = await openPage(browser, url);
    const costs = { ...fleet.energy, cost: 0.28, currency: "EUR" };
    for (const energy_per_kwh of [0.2, 0.9]) {
        await answerWith(both, { ...fleet, price: { ...fleet.price, energy_per_kwh }, energy: costs });
        for (const view of ["#/", "#/fleet"]) {
            await go(both, view);
            await both.reload();
            await both.getByText("0.2800 EUR", { exact: true }).waitFor();
        }
        await both.unrouteAll({ behavior: "ignoreErrors" });
    }
    assert.deepEqual(heard, []);
    await both.close();
});

await test("one_plan_has_one_predicted_time", async () => {
    const words = await page.evaluate(async () => {
        const { requestForms } = await import("/dashboard/job_requests.js");
        const { describePlan } = await import("/dashboard/frontier_chart.js");
        const frontier = { outside: [0.046, 10], job_request_outside: [0.009, 5], undisturbed_time: 1.8, plans: [{ time: 1.821, energy: 100, lower_bound: 99 }],
                           all_maximum: { time: 1.8, energy: 120 }, current: 0 };
        const forms = requestForms("job", () => {});
        forms.suggest(frontier, 0);
        return [describePlan(frontier, 0).time.toFixed(3), Number(forms.element.querySelector("#request-plan").value).toFixed(3)];
    });
    assert.deepEqual(words, ["1.867", "1.867"]);
});

await test("a_plan_is_compared_with_the_best_single_clock", async () => {
    const words = await page.evaluate(async () => {
        const { oneClockWords } = await import("/dashboard/savings.js");
        const frontier = { outside: [0.2, 20], all_maximum: { time: 1.8, energy: 180 },
                           one_clock: [[1410, 1.8, 180], [1395, 1.8, 170], [1200, 2.0, 140], [900, 2.6, 100]].map(([frequency, time, energy]) => ({ frequency, time, energy })) };
        return [[1.7, 132], [2.1, 120]].map(([time, energy]) => oneClockWords(frontier, { time, energy })).concat(oneClockWords({ ...frontier, one_clock: undefined }, { time: 1.8 }));
    });
    assert.deepEqual(words, ["1395 MHz, saves 5.0 % at +0.0 % time; this plan: 20.0 % less",
                             "1200 MHz, saves 20.0 % at +10.0 % time; this plan: 12.5 % less", null]);
});

await test("a_budget_is_removed_after_a_question", async () => {
    await open("#/fleet", () => page.getByRole("button", { name: "Remove the budget of the whole fleet" }));
    await page.getByRole("button", { name: "Remove the budget of the whole fleet" }).click();
    await page.getByRole("button", { name: "Leave it" }).click();
    assert.equal((await call(url, "/fleet")).budgets.length, 1);
    await page.getByRole("button", { name: "Remove the budget of the whole fleet" }).click();
    await page.getByRole("button", { name: "Do it" }).click();
    await until(async () => (await call(url, "/fleet")).budgets.length === 0, "the budget is gone");
    await page.getByText("No budget is set.").waitFor();
});

/** Answers the fleet's requests of a page with a sample. */
async function answerWith(shown, sample) {
    await shown.route(/\/fleet$/, (route) => route.fulfill({ json: sample }));
    await shown.route(/\/fleet\/history\?/, (route) => {
        const query = new URL(route.request().url()).searchParams;
        return route.fulfill({ json: historyOf(...["from", "to", "points"].map((name) => Number(query.get(name)))) });
    });
}

await test("tells_the_rare_states_of_a_fleet", async () => {
    const { page: odd, complaints: heard } = await openPage(browser, url);
    await answerWith(odd, fleet);
    await go(odd, "#/fleet");
    await odd.getByText("41.00 kW of 45.00 kW: lowering the power. The fleet has saved 112.4 ± 3.1 kWh.").waitFor();
    await odd.getByText("400.0 W are missing").waitFor();
    await odd.getByText("41.00 kW, 91.1 % of the limit, 1 job not measured yet").waitFor();
    await odd.getByText("1 job not measured yet", { exact: true }).waitFor();
    await odd.getByText("of an event, 2.0 % margin", { exact: true }).waitFor();
    await odd.getByRole("button", { name: "Remove the budget of group row2" }).click();
    await odd.getByRole("dialog").getByText("The power of group row2 is not limited by this budget any more.").waitFor();
    await odd.getByRole("button", { name: "Leave it" }).click();
    await odd.getByText("at most 9.400 kW; 400.0 W were missing when it was posted").waitFor();
    await odd.getByText("reached after 30 s; then 9.900 kW at most, 500.0 W above; 2 breaches").waitFor();
    await odd.getByText("reached in time; then 44.80 kW at most; no breach").waitFor();
    await odd.getByText("reached after 10 s; not judged: shorter than the time that the jobs have to follow").waitFor();
    await odd.getByText("reached after 10 s; then 45.00 kW at most, less than 1 W above; 1 breach").waitFor();
    await odd.getByText("cancelled before it held").waitFor();
    await odd.getByText("<b>bold</b>").first().waitFor(); // shown as text
    await odd.getByText("206.10 CHF").waitFor(); // the currency of the sums, also with other prices
    await odd.getByText("112.4 ± 3.1 kWh (10.28 % ± 0.28 %)").waitFor();
    await odd.getByText("23.60 ± 0.65 CHF").waitFor();
    await odd.getByText("34.80 ± 0.96 kg CO₂").waitFor();
    await odd.getByText("2.31", { exact: true }).waitFor();
    await odd.getByText("0.00462 EUR per s, lower bound 0.00421").waitFor();
    await odd.getByText("12.03 EUR per h").waitFor();
    await odd.unrouteAll({ behavior: "ignoreErrors" });
    await answerWith(odd, { ...fleet, price: { ...fleet.price, value_per_s: null }, lower_bound: 2.1, objective: 2.31 });
    await odd.getByText("2.31, lower bound 2.10").waitFor();
    assert.equal(await odd.locator("dt", { hasText: "Cost rate" }).count(), 0);
    await odd.unrouteAll({ behavior: "ignoreErrors" });
    await answerWith(odd, { ...fleet, price: null, lower_bound: 2.1, objective: 2.31 });
    await odd.getByText("2.31, lower bound 2.10").waitFor();
    await odd.unrouteAll({ behavior: "ignoreErrors" });
    await answerWith(odd, idleFleet);
    await odd.getByText("The fleet is not steered").waitFor();
    const many = { ...fleet, jobs_total: 3000, jobs: Array.from({ length: 2000 }, (_, i) => ({ ...fleet.jobs[0], job_id: `job${i}`, name: `job ${i}`, measured_w: i })) };
    await odd.unrouteAll({ behavior: "ignoreErrors" });
    await answerWith(odd, many);
    await odd.getByText("The server shows 2000 of 3000 jobs.").waitFor();
    assert.equal(await odd.locator(".share").count(), 200);
    await odd.getByRole("button", { name: "Show all 2000 jobs" }).click();
    await until(async () => await odd.locator(".share").count() === 2000, "all jobs are listed");
    assert.deepEqual(heard, []);
    await odd.context().close();
});

await test("has_nothing_to_complain_about", async () => assert.deepEqual(complaints, []));

const VIEWS = [
    ["jobs", "#/", (shown) => shown.getByRole("link", { name: /^train-sim 2/ })],
    ["fleet", "#/fleet", (shown) => shown.getByText("grid operator")],
    ["finished", "#/finished", (shown) => shown.getByRole("link", { name: /^old-run 2/ })],
    ["finished-job", `#/finished/${encodeURIComponent(pastId)}`, (shown) => shown.getByText(/% as planned/)],
    ["job", `#/jobs/${encodeURIComponent(firstId)}`, (shown) => shown.getByText(/^\d+ rounds, /)],
];

for (const colorScheme of ["light", "dark"]) {
    const own = colorScheme === "light" ? browser : await launch("dark");
    for (const width of [1280, 360]) {
        const { page: shown, complaints: heard } = await openPage(own, url, { viewport: { width, height: 900 }, colorScheme });
        await answerWith(shown, fleet);
        for (const [name, hash, ready] of VIEWS) {
            await test(`${name}_is_accessible_in_${colorScheme}_at_${width}_px`, async () => {
                await go(shown, hash);
                await ready(shown).first().waitFor();
                assert.equal(await shown.evaluate(() => matchMedia("(prefers-color-scheme: dark)").matches), colorScheme === "dark");
                await sleep(400); // colours change gradually
                const wide = await shown.evaluate(() => document.documentElement.scrollWidth - innerWidth);
                assert.ok(wide <= 0, `the page is ${wide} px too wide`);
                for (const help of await shown.locator(".help summary, .columns summary").all().then((all) => all.slice(0, 4))) await help.click();
                assert.deepEqual(heard, []);
                assert.deepEqual(await accessibilityProblems(shown), []);
                if (process.env.HARPE_VIEW_PICTURES)
                    await shown.screenshot({ path: join(process.env.HARPE_VIEW_PICTURES, `${BROWSER}-${name}-${colorScheme}-${width}.png`), fullPage: true });
                heard.length = 0; // the tools add a style, which the page's policy forbids
            });
        }
        await shown.context().close();
    }
    if (own !== browser) await own.close();
}

await end();
