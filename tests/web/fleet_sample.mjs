// SPDX-License-Identifier: Apache-2.0
// A fleet with every state that the page can show, also rare ones: a budget that cannot be met, a
// silent job, an event with breaches, null values, long names. The data has the form of GET /fleet
// and GET /fleet/history.

const NOW = Math.floor(Date.now() / 1000);

function job(name, state, more = {}) {
    return { job_id: `2026-11-25-${name}`, name, group: "row1", kind: "pipeline", weight: 1, max_slowdown: 1.3, priority: 0, plan: 3, plans: 40,
             time_s: 2.1, fastest_time_s: 2, slowdown: 1.05, planned_w: 8000, measured_w: 7900.5, counted_w: 8000, gain_per_kw: 0.0123,
             state, reason: null, answered_at: NOW - 3, ...more };
}

export const fleet = {
    at: NOW, revision: 17, state: "lowering",
    power: { measured_w: 41000, unmeasured: 1, planned_w: 40500, counted_w: 43000, limit_w: 45000 },
    weighted_slowdown: 2.31, lower_bound: 0.00421, objective: 0.00462,
    groups: [{ name: "room", parent: null }, { name: "row1", parent: "room" }, { name: "row2", parent: "room" }],
    budgets: [
        { group: null, watts: 60000, margin: 0.02, overhead: 1.25, now_watts: 45000, limit_w: 45000, power_w: 40500, measured_w: 41000, counted_w: 43000, least_w: 30000, missing_w: 0, price_per_kw: 0.0123 },
        { group: "row2", watts: 9000, margin: 0, overhead: 1, now_watts: 9000, limit_w: 9000, power_w: 9500, measured_w: 9700, unmeasured: 1, counted_w: 9700, least_w: 9400, missing_w: 400, price_per_kw: 0.31 },
        { group: "row1", watts: null, margin: 0.02, overhead: 1, now_watts: 20000, limit_w: 19600, power_w: 18000, measured_w: 18100, counted_w: 18200, least_w: 9000, missing_w: 0, price_per_kw: 0.2 },
        { group: "room", watts: 90000, margin: 0, overhead: 1, now_watts: 90000, limit_w: 90000, power_w: 40500, measured_w: 41000, counted_w: 43000, least_w: 30000, missing_w: 0, price_per_kw: 0 },
    ],
    jobs: [
        job("llama 70B pretraining", "follows", { measured_w: 16000, weight: 2, priority: 5 }),
        job("vision-transformer", "lowering", { group: "row2", reason: "the new plan begins with the next iteration" }),
        job("a-job-with-a-very-long-name-that-somebody-made-up-from-all-of-its-parameters-lr-0.0003-bs-4096-run-17", "learning",
            { plan: null, plans: 0, slowdown: null, gain_per_kw: null, max_slowdown: null, group: null }),
        job("speech", "silent", { measured_w: null, counted_w: 12000, slowdown: 1, reason: "no answer for 95 s; counted with 12 kW" }),
        job("<b>bold</b>", "raising", { kind: "power limit", slowdown: 1.294, plan: 39 }),
        job("rl", "not steered", { group: null, weight: 0, gain_per_kw: 0 }),
        job("storage", "not steered", { kind: "load", job_id: "", group: "room", plan: null, plans: 0, slowdown: null, planned_w: 1500, measured_w: null, weight: null, gain_per_kw: null }),
    ],
    events: [
        { id: 1, group: null, from: NOW - 50000, duration_s: 3600, watts: null, share: 0.25, notice_s: 600, ramp_s: 300, note: "grid operator", state: "over", promised_w: 45000, missing_w: 0, reached_at: NOW - 50000.5, highest_w: 44800, breaches: 0 },
        { id: 2, group: "row2", from: NOW - 20000, duration_s: 1800, watts: 4000, share: null, notice_s: 0, ramp_s: 0, note: "", state: "over", promised_w: 9400, missing_w: 400, reached_at: NOW - 19970, highest_w: 9900, breaches: 2 },
        { id: 6, group: null, from: NOW - 15000, duration_s: 20, watts: 1000, share: null, notice_s: 0, ramp_s: 0, note: "", state: "over", promised_w: 45000, missing_w: 0, reached_at: NOW - 14990, highest_w: null, breaches: 0 },
        { id: 7, group: null, from: NOW - 12000, duration_s: 600, watts: 1000, share: null, notice_s: 0, ramp_s: 0, note: "", state: "over", promised_w: 45000, missing_w: 0, reached_at: NOW - 11990, highest_w: 45000.9, breaches: 1 },
        { id: 3, group: null, from: NOW - 60, duration_s: 3600, watts: 15000, share: null, notice_s: 0, ramp_s: 600, note: "heat wave", state: "active", promised_w: 45000, missing_w: 0, reached_at: null, highest_w: null, breaches: 0 },
        { id: 4, group: null, from: NOW + 7200, duration_s: 600, watts: null, share: 0.1, notice_s: 7200, ramp_s: 60, note: "test", state: "announced", promised_w: 54000, missing_w: 0, reached_at: null, highest_w: null, breaches: 0 },
        { id: 5, group: null, from: NOW + 90000, duration_s: 600, watts: null, share: 0.1, notice_s: 0, ramp_s: 0, note: "", state: "cancelled", promised_w: null, missing_w: 0, reached_at: null, highest_w: null, breaches: 0 },
    ],
    price: { energy_per_kwh: 0.21, carbon_g_per_kwh: 310, carbon_per_kg: 0.08, value_per_s: 0.002, cost_per_h: 12.03, currency: "EUR", series: 96, set_at: NOW - 120 },
    energy: { since: NOW - 86000, used_kwh: 981.2, saved_kwh: 112.4, saved_kwh_uncertainty: 3.1, currency: "CHF", cost: 206.1, cost_saved: 23.6, cost_saved_uncertainty: 0.65, carbon_kg: 304.2, carbon_kg_saved: 34.8, carbon_kg_saved_uncertainty: 0.96 },
};

/** Nothing steers the fleet. */
export const idleFleet = { ...fleet, state: "none", power: { measured_w: 0, planned_w: 0, counted_w: 0, limit_w: null }, weighted_slowdown: 0, lower_bound: 0,
                           groups: [], budgets: [], jobs: [], events: [], price: null,
                           energy: { since: NOW - 100, used_kwh: 0, saved_kwh: null, saved_kwh_uncertainty: null, cost: null, cost_saved: null, carbon_kg: null, carbon_kg_saved: null } };

/** A day with an event of an hour, and a time in which the server did not run. */
export function historyOf(from, to, points) {
    const step = Math.max(10, (to - from) / points);
    const answer = { at: [], measured_w: [], counted_w: [], limit_w: [] };
    for (let at = from; at <= to; at += step) {
        const age = NOW - at;
        if (age > 30000 && age < 36000) continue;
        const isEvent = age > 46400 && age < 50000;
        answer.at.push(at);
        answer.limit_w.push(age > 70000 ? null : isEvent ? 45000 : 60000);
        answer.measured_w.push((isEvent ? 43500 : 55000) + 1500 * Math.sin(at / 900));
        answer.counted_w.push((isEvent ? 44500 : 58000) + 1000 * Math.sin(at / 900));
    }
    return answer;
}
