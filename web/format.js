// SPDX-License-Identifier: Apache-2.0
// Formats numbers for people: four digits, SI prefixes, a thin space before the unit.

const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"]];

function digits(value, count) {
    if (value === 0) return "0";
    const decimals = Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(value))));
    return value.toFixed(Math.min(decimals, 12));
}

function quantity(value, unit, count = 4) {
    if (!Number.isFinite(value)) return "–";
    const [scale, prefix] = PREFIXES.find(([size]) => Math.abs(value) >= size * 0.99995)
        ?? (value === 0 ? [1, ""] : PREFIXES[PREFIXES.length - 1]);
    return `${digits(value / scale, count)} ${prefix}${unit}`;
}

/** The joules of 1 kWh. */
export const JOULES_PER_KWH = 3.6e6;

export const joules = (value) => quantity(value, "J");
export const watts = (value) => quantity(value, "W");
/** Formats an energy in J in Wh, kWh or MWh, as bills do. */
export const wattHours = (value) => quantity(value / 3600, "Wh", 3);

/** Returns the texts of a value and of its uncertainty: the uncertainty has two significant digits,
 * and the value ends at the same place, but has at most six digits. */
function rounded(value, uncertainty) {
    if (!(uncertainty > 0)) return [fixed(value, 1), "0"];
    const place = (size, count) => count - 1 - Math.floor(Math.log10(size));
    const decimals = Math.min(12, place(Number(uncertainty.toPrecision(2)), 2), value ? place(Math.abs(value), 6) : 12);
    const step = 10 ** -decimals;
    const text = (number) => fixed(Math.round(number / step) * step, Math.max(0, decimals));
    return [text(value), text(Math.max(uncertainty, step))];
}

/** Formats "41.23 ± 0.81 kWh": a value and its uncertainty, in a unit that is given. */
export function within(value, uncertainty, [scale, unit]) {
    return `${rounded(value / scale, uncertainty / scale).join(" ± ")} ${unit}`;
}
/** Formats a value of three digits in a unit that is given. */
export const inUnit = (value, [scale, unit]) => Number.isFinite(value) ? `${digits(value / scale, 3)} ${unit}` : "–";

const largest = (units, size) => units.find(([scale]) => size >= scale * 0.9995) ?? units.at(-1);
const prefixed = (scale, unit) => PREFIXES.map(([size, prefix]) => [scale * size, prefix + unit]);
const WATT_HOURS = prefixed(3600, "Wh");
const JOULES = prefixed(1, "J");
const SECONDS = prefixed(1, "s").slice(3);
const HOURS = [[3600, "h"], [60, "min"], [1, "s"], [0.001, "ms"]];

/* Return the unit in which the largest of the sizes has few digits, for all values of a page. */
const unitFor = (units, usual) => (sizes) => {
    const size = Math.max(0, ...sizes.filter(Number.isFinite).map(Math.abs));
    return size > 0 ? largest(units, size) : units[usual];
};
export const energyUnit = unitFor(WATT_HOURS, 3);
export const powerUnit = unitFor(prefixed(1, "W"), 3);
export const timeUnit = unitFor(HOURS, 2);

const withinFor = (units) => (value, uncertainty) => within(value, uncertainty, largest(units, Math.max(Math.abs(value), uncertainty)));
/** Formats an energy in J: "41.23 ± 0.81 kWh". */
export const wattHoursWithin = withinFor(WATT_HOURS);
export const joulesWithin = withinFor(JOULES);
export const secondsWithin = withinFor(SECONDS);

const MASSES = [[1000, "t CO₂"], [1, "kg CO₂"], [0.001, "g CO₂"]];

/** Formats a mass of carbon dioxide in kg. */
export function carbon(kilograms) {
    const [scale, unit] = kilograms === 0 ? MASSES[1] : largest(MASSES, Math.abs(kilograms));
    return `${digits(kilograms / scale, 3)} ${unit}`;
}
export const carbonWithin = (value, uncertainty) => within(value, uncertainty, largest(MASSES, Math.max(Math.abs(value), uncertainty)));

const moneyDecimals = (size) => size >= 1000 ? 0 : size >= 1 || size === 0 ? 2 : 4;

/** Formats an amount of money. */
export function money(value, currency) {
    const decimals = moneyDecimals(Math.abs(value));
    const amount = value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    return currency ? `${amount} ${currency}` : amount;
}
export function moneyWithin(value, uncertainty, currency) {
    const decimals = moneyDecimals(Math.max(Math.abs(value), uncertainty));
    return `${fixed(value, decimals)} ± ${Math.max(uncertainty, 10 ** -decimals).toFixed(decimals)} ${currency ?? ""}`.trimEnd();
}

/** Formats a duration in s: "90 s", "12 min", "3 h 20 min". */
export function duration(value) {
    if (!Number.isFinite(value)) return "–";
    if (value < 120) return `${digits(value, 2)} s`;
    const minutes = Math.round(value / 60);
    if (minutes < 120) return `${minutes} min`;
    const hours = Math.floor(minutes / 60);
    return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** Formats a time of day; with the date if it is more than 20 h from now. */
export function when(atSeconds, nowSeconds = Date.now() / 1000) {
    return (Math.abs(nowSeconds - atSeconds) < 72000 ? CLOCK : DAY).format(new Date(1000 * atSeconds));
}

/** Uses seconds without a prefix in texts where people compare times. */
export function seconds(value) {
    return value >= 1 ? `${digits(value, 4)} s` : quantity(value, "s");
}

/** Works like toFixed, but a number that rounds to 0 has no sign. */
function fixed(value, decimals) {
    const text = value.toFixed(decimals);
    return Number(text) === 0 ? text.replace("-", "") : text;
}

export function percent(fraction) {
    return Number.isFinite(fraction) ? `${fixed(100 * fraction, 1)} %` : "–";
}

/** Formats a fraction with its uncertainty: "15.43 % ± 0.62 %". */
export function percentWithin(fraction, uncertainty) {
    if (uncertainty === null || !Number.isFinite(uncertainty)) return `${percent(fraction)}, uncertainty not known`;
    return rounded(100 * fraction, 100 * uncertainty).map((text) => `${text} %`).join(" ± ");
}

/** Describes a fraction against a baseline: "15.43 % ± 0.62 % less". A fraction not above its uncertainty
 * is within noise. */
export function changeWithin(fraction, uncertainty, more, less) {
    if (!(Math.abs(fraction) > (uncertainty ?? Infinity))) return `within noise (${percentWithin(fraction, uncertainty)})`;
    return `${percentWithin(Math.abs(fraction), uncertainty)} ${fraction > 0 ? more : less}`;
}

/** Describes a signed fraction in words: "4.2 % less". */
export function change(fraction, more, less, same = "the same") {
    if (!Number.isFinite(fraction)) return "–";
    if (Math.abs(fraction) < 0.0005) return same;
    return `${percent(Math.abs(fraction))} ${fraction > 0 ? more : less}`;
}

/** "1 job", "2 jobs" */
export const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

export function ago(whenSeconds, nowSeconds = Date.now() / 1000) {
    const age = Math.max(0, Math.floor(nowSeconds - whenSeconds));
    if (age < 2) return "now";
    if (age < 120) return `${age} s ago`;
    if (age < 7200) return `${Math.floor(age / 60)} min ago`;
    if (age < 2 * 86400) return `${Math.floor(age / 3600)} h ago`;
    return `${Math.floor(age / 86400)} d ago`;
}

/** Formats the server's lists of ranks, such as "0-2,5", for people: "0–2, 5". Shows at most `limit`
 * ranges. */
export function ranges(text, limit = 8) {
    const parts = text.split(",");
    const shown = parts.length > limit ? [...parts.slice(0, limit), "…"] : parts;
    return shown.join(", ").replaceAll("-", "–").replace("...", "…");
}

/** Returns round numbers that divide [low, high] into about `count` steps. */
export function ticks(low, high, count) {
    const rough = (high - low) / Math.max(1, count);
    if (!(rough > 0) || !Number.isFinite(rough)) return [low];
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
    const list = [];
    for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) list.push(i * step);
    return list;
}

/** Returns the labels of ticks, with as many decimals as the step between ticks needs. */
export function tickLabel(value, list) {
    const step = list.length > 1 ? list[1] - list[0] : Math.abs(value) || 1;
    return value.toFixed(Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9))));
}
