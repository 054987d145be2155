// SPDX-License-Identifier: Apache-2.0
// Shows the state of a job as a sign and a word.
import { h, setText } from "./dom.js";

/** These signs differ in shape, and every common font (WGL4) has them. The word is shown beside the
 * sign. */
export const SIGNS = { registering: "○", preparing: "◊", gathering: "≡", running: "►", observing: "●",
                       ended: "■", failed: "×", evicted: "–", quiet: "…", "no contact": "!" };
/** A published client does not report its end. After this time without requests, its job has ended
 * or waits. */
const QUIET_AFTER_S = 300;

/** Returns true if the job has ended or failed. */
export const isOver = ({ state }) => ["ended", "failed"].includes(state);

/** `set(state, lastSeen, lostAt)` shows a state. `lastSeen` is the time of the last request; without
 * it, the job is never called quiet. `lostAt` is the time since which there is no contact, or null. */
export function stateBadge() {
    const sign = h("span", { "aria-hidden": "true" });
    const word = h("span");
    const badge = h("span", { class: "state" }, sign, " ", word);
    return { badge, set(told, lastSeen = Infinity, lostAt = null) {
        const isSilent = Date.now() / 1000 - lastSeen > QUIET_AFTER_S;
        const state = lostAt !== null ? "no contact" : isSilent && ["running", "gathering", "registering"].includes(told) ? "quiet" : told;
        setText(sign, SIGNS[state] ?? "?");
        setText(word, state);
        badge.dataset.state = state;
    } };
}
