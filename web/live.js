// SPDX-License-Identifier: Apache-2.0
// Keeps the page up to date: follows streams of events while the page is visible, and repeats
// requests when an event makes this necessary.
import { events } from "./api.js";

const AGAIN_AFTER_MS = 1000;
const FOR_GOOD = [401, 404, 410]; // another attempt would not help

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** Reports an error in `show`. A view that cannot show one event goes on with the next event. */
function attempt(show, value, fail) {
    try {
        show(value);
    } catch (error) {
        console.error(error);
        fail(new Error(`this page cannot show the server's data: ${error.message}`));
    }
}

/** Follows the events of `path`. Calls `show(data)` for each event, and `fail(error)` if the stream
 * fails. Then tries again, unless the object of the events is gone for good. Returns a function
 * that stops it. */
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

/** Calls `load(signal)` every `interval` ms while the page is visible, and `show` with each result.
 * Returns a function that stops it, and that has a method `now`. */
export function poll(load, show, fail, interval) {
    const again = onDemand(load, show, fail);
    const look = () => document.hidden || again();
    const clock = setInterval(look, interval);
    document.addEventListener("visibilitychange", look);
    again();
    const stop = () => {
        clearInterval(clock);
        document.removeEventListener("visibilitychange", look);
        again.stop();
    };
    stop.now = again;
    return stop;
}

/** Returns a function that requests a call of `load(signal)`, and that has a method `stop`. Calls of
 * `load` run one at a time, at least `interval` ms apart, and `show` receives each result. After a
 * failure the call is repeated automatically. */
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
