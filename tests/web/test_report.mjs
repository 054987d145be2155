// SPDX-License-Identifier: Apache-2.0
// Opens a report.html of `harpe plan` from the disk: with a script, without a script, and on paper.
// There must be no console error and no request at all. With HARPE_PICTURES=folder the test also
// creates the pictures of the documents. run.sh runs it.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { accessibilityProblems, assertFigure, openPage, sleep, startTests, until } from "./harness.mjs";

/* Loads the file as a module, whatever type node assumes for a .js file. */
const layoutSource = readFileSync(new URL("../../web/report/layout.js", import.meta.url), "utf8");
const { planLayouts } = await import(`data:text/javascript,${encodeURIComponent(layoutSource)}`);
const { world, browser, test, picture, end } = await startTests();

function harpe(...words) {
    const { status, stderr } = spawnSync(process.env.HARPE, words, { cwd: world.directory, encoding: "utf8", timeout: 600000 });
    assert.equal(status, 0, `harpe ${words.join(" ")}: ${stderr}`);
}

/** Creates a plan directory. Returns the address of its report. */
function plan(directory, profile, ...words) {
    harpe("plan", "--quiet", "--inst-profile", profile, "--p2p-power", "84", "--output-dir", directory, ...words);
    return pathToFileURL(join(world.directory, directory, "report.html")).href;
}

function dataOf(directory) {
    const page = readFileSync(join(world.directory, directory, "report.html"), "utf8");
    return JSON.parse(/id="data">(.*?)<\/script>/s.exec(page)[1]);
}

harpe("synth", "--gpu", "A100", "--stages", "8", "--output", "profile.csv");
const url = plan("plans", "profile.csv", "--num-mbs", "24");
const { plans } = dataOf("plans");
const { page, complaints } = await openPage(browser, url);
const chart = page.getByRole("slider");
const stage = page.getByRole("application");
const facts = page.locator(".side");

await test("replaces_the_pictures_by_what_the_dashboard_shows", async () => {
    await chart.waitFor();
    await stage.waitFor();
    assert.equal(await page.locator("figure.frontier:visible, #pipeline figure:visible").count(), 0);
    for (const word of ["running", "measured round"]) assert.equal(await page.locator(".legend").getByText(word).count(), 0);
    await page.locator(".legend").getByText("no plan can be below").waitFor();
});

await test("begins_with_the_plan_that_loses_at_most_5_percent", async () => {
    const headline = await page.locator(".headline", { hasText: "At most 5 %" }).locator(".detail").textContent();
    const number = /plan (\d+)/.exec(headline)[1];
    await facts.getByText(`plans/freqs_pipeline_${number.padStart(5, "0")}.py`).waitFor();
    await page.locator("#pipeline").getByText(`Plan ${number}:`).waitFor();
});

await test("selects_plans_by_keyboard", async () => {
    await chart.focus();
    await page.keyboard.press("Home");
    const fastest = plans[0][0];
    assert.match(await chart.getAttribute("aria-valuetext"),
        new RegExp(`^Plan ${fastest} of 0 to ${fastest}: .* 0.0 % slower than the fastest, .* less energy than the highest clocks$`));
    for (let i = 0; i < 10; i++) await page.keyboard.press("ArrowRight");
    await page.locator(".plot .tip").getByText(`Plan ${fastest - 10}`).waitFor();
    await page.locator("#pipeline").getByText(`Plan ${fastest - 10}:`).waitFor();
    await page.keyboard.press("Enter"); // there is nothing to run here
    await page.keyboard.press("End");
    await facts.getByText("plans/freqs_pipeline_00000.py").waitFor();
    await facts.getByText("Average power, all GPUs").waitFor();
    await facts.getByText(/^\d+ MHz, saves [\d.]+ % at \+[\d.]+ % time; this plan: [\d.]+ % less$/).waitFor();
    await facts.getByText(/^[0-9.]+ k?W; [0-9.]+ k?W$/).waitFor(); // peak and swing
});

await test("tells_slowdown_and_savings_on_hover_and_selects_on_click", async () => {
    const box = await chart.boundingBox();
    const [x, y] = [box.x + box.width / 2, box.y + box.height * 0.8];
    await page.mouse.move(x, y);
    await page.locator(".plot .tip").getByText(/% slower, [\d.]+ % less energy/).waitFor();
    const name = await page.locator(".plot .tip strong").textContent();
    await page.mouse.click(x, y);
    await page.locator("#pipeline").getByText(`${name}:`).waitFor();
});

await test("shows_instructions_and_zooms_by_mouse_and_keyboard", async () => {
    await stage.scrollIntoViewIfNeeded();
    const pixels = () => stage.locator("canvas").evaluate((canvas) => canvas.toDataURL());
    const whole = await pixels();
    const box = await stage.boundingBox();
    await page.mouse.move(box.x + 46, box.y + 40);
    await stage.locator(".tip").getByText("forward of microbatch 0").waitFor();
    assert.match(await stage.locator(".tip").textContent(), /MHz · [\d.]+ W/);
    await page.getByRole("button", { name: "Zoom in" }).click({ clickCount: 3 });
    await until(async () => await pixels() !== whole, "it is zoomed");
    await page.mouse.move(box.x + 600, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + 300, box.y + 60, { steps: 5 });
    await page.mouse.up();
    await page.getByRole("button", { name: "Show all" }).click();
    await until(async () => await pixels() === whole, "all is seen again");
    await stage.focus();
    await page.keyboard.press("ArrowRight");
    await page.getByRole("status").getByText(/^forward of microbatch 0, F0 · rank 0, stage 0/).waitFor();
    for (const key of ["ArrowDown", "+", "Shift+ArrowRight", "-", "0"]) await page.keyboard.press(key);
    await page.getByRole("status").getByText(/rank 1, stage 1/).waitFor();
});

await test("compares_with_the_highest_clocks", async () => {
    const pixels = () => stage.locator("canvas").evaluate((canvas) => canvas.toDataURL());
    const before = await pixels();
    const choice = page.getByLabel("every instruction at its highest clock instead");
    await choice.check();
    await page.locator("#pipeline").getByText("Every instruction at its highest clock:").waitFor();
    assert.notEqual(await pixels(), before);
    await choice.uncheck();
});

await test("lays_out_every_plan_as_long_as_its_file_takes", () => {
    const seen = [];
    const check = (directory) => {
        const data = dataOf(directory);
        const { layout } = planLayouts(data.timeline);
        const agree = (time, index) => assert.ok(Math.abs(layout(index).time / time - 1) < 1e-12, `${directory}: ${index}`);
        assert.equal(data.timeline.plans.length, data.plans.length);
        agree(data.reference[0], -1);
        data.plans.forEach(([, time], index) => data.timeline.plans[index] && agree(time, index));
        seen.push(`${directory} ${data.timeline.plans.filter(Boolean).length} of ${data.plans.length}`);
    };
    check("plans");
    harpe("synth", "--gpu", "H100", "--stages", "8", "--split-backward", "--output", "split.csv");
    for (const schedule of ["interleaved-1f1b", "zb-v", "dualpipe-v"]) {
        plan(schedule, "split.csv", "--num-mbs", "16", "--schedule", schedule, "--plans", "12");
        check(schedule);
    }
    plan("all", "split.csv", "--num-mbs", "8", "--plans", "all");
    check("all");
    plan("late", "split.csv", "--num-mbs", "8", "--plans", "6", "--transfer-time", "0.004");
    check("late");
    return seen.join(", ");
});

for (const colorScheme of ["light", "dark"]) {
    await test(`is_accessible_in_the_${colorScheme}`, async () => {
        await page.emulateMedia({ colorScheme });
        await sleep(300);
        assert.deepEqual(await accessibilityProblems(page), []);
        await page.evaluate(() => scrollTo(0, 0));
        await picture(page, `report-${colorScheme}`, { fullPage: true, clip: { x: 0, y: 0, width: 1280, height: 1710 } });
    });
}

await test("prints_its_pictures", async () => {
    await page.emulateMedia({ media: "print", colorScheme: "light" });
    assert.equal(await page.locator("figure.frontier:visible").count(), 1);
    assert.ok(await page.locator("#pipeline figure:visible").count() > 0);
    assert.equal(await page.locator(".interactive:visible").count(), 0);
    await page.emulateMedia({ media: "screen" });
});

await test("fits_a_phone", async () => {
    await page.setViewportSize({ width: 360, height: 740 });
    await sleep(300);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth) <= 0);
    assert.equal(await page.locator("figure.frontier:visible").count(), 0);
    assert.deepEqual(await accessibilityProblems(page), []);
});

await test("has_nothing_to_complain_about", () => assert.deepEqual(complaints, []));

await test("is_complete_without_scripts", async () => {
    const { page: plain, complaints: heard } = await openPage(browser, url, { javaScriptEnabled: false });
    await plain.getByRole("img", { name: "Energy over iteration time" }).first().waitFor();
    assert.equal(await plain.locator("figure.frontier:visible").count(), 1);
    assert.ok(await plain.locator("#pipeline figure svg:visible").count() > 0);
    assert.equal(await plain.getByRole("slider").count(), 0);
    await plain.getByRole("row", { name: /least energy/ }).waitFor();
    await plain.getByText("All ", { exact: false }).getByText(/plans$/).click();
    assert.deepEqual(heard, []);
    await plain.context().close();
});

await test("shows_any_names_as_text", async () => {
    const rows = readFileSync(join(world.directory, "profile.csv"), "utf8");
    const loads = Array.from({ length: 8 }, (_, s) => `${s},load,0,0.05,6\n`).join("");
    writeFileSync(join(world.directory, "<!--&.csv"), rows + loads);
    const { page: odd, complaints: heard } = await openPage(browser,
        plan("<!--<script>\"&'", "<!--&.csv", "--num-mbs", "8", "--prologue", "load"));
    await odd.getByRole("heading", { name: "<!--&.csv" }).waitFor();
    await odd.locator(".side").getByText("<!--<script>\"&'/freqs_pipeline_").waitFor();
    await odd.getByRole("application").focus();
    await odd.keyboard.press("ArrowRight");
    await odd.getByRole("status").getByText(/^load, L · rank 0, stage 0, clock left alone/).waitFor();
    assert.deepEqual(heard, []);
    await odd.context().close();
});

await test("shows_the_nearest_pipeline_where_a_plan_has_none", async () => {
    const data = dataOf("plans");
    // like a report that leaves out pipelines because it would be too large with all of them
    data.timeline.plans.splice(-2, 2, null, null);
    const file = join(world.directory, "plans", "less.html");
    const whole = readFileSync(join(world.directory, "plans", "report.html"), "utf8");
    writeFileSync(file, whole.replace(/(id="data">).*?(<\/script>)/s, (_, head, tail) => head + JSON.stringify(data) + tail));
    const { page: less, complaints: heard } = await openPage(browser, pathToFileURL(file).href);
    await less.getByRole("slider").focus();
    await less.keyboard.press("End");
    await less.locator("#pipeline").getByText(/^Plan 0 is not laid out here, .* nearest plan that is laid out\. Plan 2: /).waitFor();
    await less.locator(".side").getByText("freqs_pipeline_00000.py").waitFor();
    assert.deepEqual(heard, []);
    await less.context().close();
});

await test("keeps_128_microbatches_by_16_stages_small_and_quick", async () => {
    harpe("synth", "--gpu", "A100", "--stages", "16", "--output", "deep.csv");
    const big = plan("deep", "deep.csv", "--num-mbs", "128");
    const size = statSync(join(world.directory, "deep/report.html")).size;
    assert.ok(size < 2e6, `${size} bytes`);
    assert.ok(dataOf("deep").timeline.plans.every(Boolean));
    const { page: deep, complaints: heard } = await openPage(browser, big);
    const slider = deep.getByRole("slider");
    await slider.focus();
    const started = Date.now();
    for (let i = 0; i < 20; i++) await deep.keyboard.press("ArrowLeft");
    await deep.evaluate(() => new Promise(requestAnimationFrame));
    const took = (Date.now() - started) / 20;
    assertFigure(took < 1000, `${took} ms a plan`);
    assert.deepEqual(heard, []);
    await deep.context().close();
    return `${(size / 1024).toFixed(0)} KiB, ${took.toFixed(0)} ms from plan to plan`;
});

await end();
