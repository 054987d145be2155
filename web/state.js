// SPDX-License-Identifier: Apache-2.0
// Shows the state of a job as a sign and a word.
import { h, setText } from "./dom.js";

/** These signs differ in shape, and every common font (WGL4) has them. The word is shown beside the
 * sign. */
export const SIGNS = { registering: "○", preparing: "◊", gathering: "≡", running: "►", observing: "●",
                       ended: "■", failed: "×", evicted: "–", quiet: "…" };
/** A published client does not report its end. After this time without requests, its job has ended
 * or waits. */
const QUIET_AFTER_S = 300;

/** Returns whether the job has reported its end or has failed, so that it runs no plan any more. */
export const isOver = ({ state }) => state === "ended" || state === "failed";

/** `set(state, lastSeen)` shows a state. `lastSeen` is the time of the last request; without it, the
 * job is never called quiet. */
export function stateBadge() {
    const sign = h("span", { "aria-hidden": "true" });
    const word = h("span");
    const badge = h("span", { class: "state" }, sign, " ", word);
    return { badge, set(told, lastSeen = Infinity) {
        const isSilent = Date.now() / 1000 - lastSeen > QUIET_AFTER_S;
        const state = isSilent && ["running", "gathering", "registering"].includes(told) ? "quiet" : told;
        setText(sign, SIGNS[state] ?? "?");
        setText(word, state);
        badge.dataset.state = state;
    } };
}
