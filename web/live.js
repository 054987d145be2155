// SPDX-License-Identifier: Apache-2.0
// What keeps the page fresh: streams of events, followed while somebody looks, and what is asked
// for again because of them.
import { events } from "./api.js";

const AGAIN_AFTER_MS = 1000;
const FOR_GOOD = [401, 404, 410]; // trying again would not help

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** A view that cannot show something goes on with what comes next. */
function attempt(show, value, fail) {
    try {
        show(value);
    } catch (error) {
        console.error(error);
        fail(new Error(`this page cannot show what the server says: ${error.message}`));
    }
}

/** Follows the events of `path`: `show(data)` with each, `fail(error)` when they cannot be had; then
 * tries again, unless what they tell of is gone for good. Answers a function that ends it. */
export function follow(path, show, fail) {
    const whole = new AbortController();
    let stream = null;

    async function listen() {
        const mine = new AbortController();
        stream = mine;
        while (!mine.signal.aborted) {
            const source = events(path, mine.signal);
            for (;;) {
                const next = await source.next().catch((error) => ({ error }));
                if (mine.signal.aborted) return;
                if (next.error) fail(next.error);
                if (FOR_GOOD.includes(next.error?.status)) return;
                if (next.error || next.done) break;
                if (next.value.name === "end") fail(new Error(next.value.data.detail));
                else attempt(show, next.value.data, fail);
            }
            await pause(AGAIN_AFTER_MS);
        }
    }

    function look() {
        if (document.hidden) {
            stream?.abort();
            stream = null;
        } else if (!stream) {
            listen();
        }
    }

    document.addEventListener("visibilitychange", look, { signal: whole.signal });
    look();
    return () => {
        whole.abort();
        stream?.abort();
    };
}

/** Calls `load(signal)` when asked to, one at a time and not more often than every `interval` ms, and
 * `show` with what it gave. After a failure it tries again by itself. Answers the function that asks,
 * with `stop`. */
export function onDemand(load, show, fail, interval = 0) {
    const controller = new AbortController();
    const { signal } = controller;
    let isWanted = false;
    let isBusy = false;

    async function serve() {
        isBusy = true;
        while (isWanted && !signal.aborted) {
            isWanted = false;
            const { value, error } = await load(signal).then((loaded) => ({ value: loaded }), (reason) => ({ error: reason }));
            if (signal.aborted) return;
            if (error) {
                fail(error);
                isWanted ||= !(error.status >= 400 && error.status < 500);
                await pause(AGAIN_AFTER_MS);
            } else {
                attempt(show, value, fail);
            }
            await pause(interval);
        }
        isBusy = false;
    }

    function ask() {
        isWanted = true;
        if (!isBusy) serve();
    }
    ask.stop = () => controller.abort();
    return ask;
}
