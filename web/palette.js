// SPDX-License-Identifier: Apache-2.0
// Maps power to a colour, on the same scale as the pictures of `harpe plan`. Lightness falls in
// equal steps, so that the scale is readable without colour vision. A canvas cannot use the colours
// of the style sheet directly; ink() looks them up.

const ANCHORS = [
    [0.945, 0.085, 100], [0.840, 0.135, 82], [0.735, 0.165, 60],
    [0.630, 0.185, 38], [0.525, 0.190, 20], [0.420, 0.165, 4],
];
const STEPS = 64;

function heat(fraction) {
    const place = Math.min(Math.max(fraction, 0), 1) * (ANCHORS.length - 1);
    const index = Math.min(Math.floor(place), ANCHORS.length - 2);
    const t = place - index;
    const [l, c, hue] = ANCHORS[index].map((from, i) => from * (1 - t) + ANCHORS[index + 1][i] * t);
    return { fill: `oklch(${l} ${c} ${hue})`, text: l > 0.6 ? "#000" : "#fff" };
}

export const HEAT = Array.from({ length: STEPS }, (_, i) => heat(i / (STEPS - 1)));

export function heatStep(value, low, high) {
    const fraction = high > low ? (value - low) / (high - low) : 0.5;
    return Math.round(Math.min(Math.max(fraction, 0), 1) * (STEPS - 1));
}

export function ink(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Calls `redraw` when the page changes between the light and the dark colours. */
export function onThemeChange(redraw) {
    const query = matchMedia("(prefers-color-scheme: dark)");
    query.addEventListener("change", redraw);
    return () => query.removeEventListener("change", redraw);
}
