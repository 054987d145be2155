// SPDX-License-Identifier: Apache-2.0
// What keeps the page fresh: streams of events, followed while somebody looks, and what is asked
// for again because of them.
import { events } from "./api.js";

const AGAIN_AFTER_MS = 1000;

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** Follows the events of `path`: `show(data)` with each, `fail(error)` when they cannot be had; then
 * tries again, unless what they tell of is gone for good. Answers a function that ends it. */
export function follow(path, show, fail) {
    const whole = new AbortController();
    let stream = null;

    async function listen() {
        const mine = new AbortController();
        stream = mine;
        while (!mine.signal.aborted) {
            try {
                for await (const { name, data } of events(path, mine.signal)) {
                    if (mine.signal.aborted) return;
                    if (name === "end") fail(new Error(data.detail));
                    else show(data);
                }
            } catch (error) {
                if (mine.signal.aborted) return;
                fail(error);
                if (error.status === 404 || error.status === 410) return;
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
            try {
                const value = await load(signal);
                if (!signal.aborted) show(value);
            } catch (error) {
                if (signal.aborted) return;
                fail(error);
                isWanted = !(error.status >= 400 && error.status < 500);
                await pause(AGAIN_AFTER_MS);
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
