// SPDX-License-Identifier: Apache-2.0
// What a job calls itself. The id of a job is a time with numbers; people know jobs by names. A
// name comes from the job's metadata, which is any text.
import { h } from "./dom.js";

const LONGEST = 80;
const KEYS = ["fleet_name", "name", "job_name", "run_name"];

function fromObject(text) {
    try {
        const value = JSON.parse(text);
        const key = KEYS.find((one) => typeof value?.[one] === "string" && value[one].trim());
        return key ? value[key].trim() : "";
    } catch {
        return "";
    }
}

/** Returns the name in a text: that of a pair "name=...", or else the words that are no pairs. */
function fromWords(text) {
    const words = text.split(/\s+/).filter(Boolean);
    const pairs = new Map(words.map((word) => word.split(/=(.*)/s, 2)).filter(([, value]) => value));
    const key = KEYS.find((one) => pairs.has(one));
    return key ? pairs.get(key) : words.filter((word) => !/^[\w.-]+=/.test(word)).join(" ");
}

/** Returns the metadata in an id, which ends in it; other signs than letters are replaced there. */
const metadataOf = (id) => /^[\d-]+(?:\.\d+)?\+dp\d+\+pp\d+\+tp\d+\+[^+]*\+(.+)$/.exec(id)?.[1].replaceAll("_", " ") ?? "";

/** Returns the name of a job, or its id if it has no name. A job of the fleet comes without its
 * metadata. */
export function jobName({ job_id: id, job_metadata: metadata, name }) {
    const text = (name && name !== id ? name : metadata === undefined ? metadataOf(id) : metadata ?? "").trim();
    const found = text.startsWith("{") ? fromObject(text) : fromWords(text);
    if (!found) return id;
    const letters = [...found];
    return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : found;
}

/** Returns the texts that show a job: its name and, if that differs, its id in small letters. */
export function nameAndId(job) {
    const name = jobName(job);
    return [h("span", { class: "name" }, name), name === job.job_id ? null : " ",
            name === job.job_id ? null : h("span", { class: "id" }, job.job_id)];
}
