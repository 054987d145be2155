// SPDX-License-Identifier: Apache-2.0
// What keeps the page fresh: asks again a while after each answer, not while nobody looks. The one
// place that would change if the server pushed.

/** Calls `load(signal)` now and again every `interval` ms, `show` with what it gave, `fail` with the
 * error. Answers a function that asks at once, with `stop`. */
export function keepFresh(load, show, fail, interval = 1000) {
    const controller = new AbortController();
    let timer = 0;
    let isLoading = false;
    let isWanted = false;

    async function ask() {
        clearTimeout(timer);
        if (isLoading) {
            isWanted = true;
            return;
        }
        if (document.hidden) return;
        isLoading = true;
        try {
            const value = await load(controller.signal);
            if (!controller.signal.aborted) show(value);
        } catch (error) {
            if (!controller.signal.aborted) fail(error);
        }
        isLoading = false;
        if (controller.signal.aborted) return;
        timer = setTimeout(ask, isWanted ? 0 : interval);
        isWanted = false;
    }

    document.addEventListener("visibilitychange", ask, { signal: controller.signal });
    ask();
    ask.stop = () => {
        controller.abort();
        clearTimeout(timer);
    };
    return ask;
}
