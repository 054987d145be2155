// SPDX-License-Identifier: Apache-2.0
// Lays out the pipeline of any plan of a report in time, in the form that timeline() takes. The
// page contains the parts of an iteration (instructions, their dependencies, their time and power
// at each clock). For each plan it contains only the changes against the plan before it. Each
// instruction starts as early as possible.

/** Converts [gap, value, gap, value ...] to [position, value] pairs. */
function* places(list) {
    let position = 0;
    for (let i = 0; i < list.length; i += 2) {
        position += list[i];
        yield [position, list[i + 1]];
    }
}

/** Returns the instructions. Each lists the instructions that it waits for, except the one before it
 * on its own rank. */
function unpack(data) {
    const ranks = [];
    let count = 0;
    for (const { entry, microbatch } of data.ranks) {
        ranks.push({ offset: count, count: entry.length, entry, microbatch });
        count += entry.length;
    }
    const waits = Array.from({ length: count }, () => []);
    const rank_of = ranks.flatMap((rank, r) => rank.entry.map(() => r));
    for (const { offset, count: length } of ranks)
        for (let i = 1; i < length; i++) waits[offset + i].push(offset + i - 1);
    for (const [node, from] of places(data.waits)) waits[node].push(from);
    const lag = new Float64Array(count);
    for (const [node, seconds] of places(data.lags ?? [])) lag[node] = seconds;
    return { ranks, count, waits, lag, rank_of, entry: ranks.flatMap((rank) => rank.entry) };
}

/** Returns the instructions in an order in which each comes after the instructions that it waits
 * for. */
function orderOf({ ranks, count, waits }) {
    const order = [];
    const isDone = new Uint8Array(count);
    const next = ranks.map((rank) => rank.offset);
    for (let before = -1; before < order.length;) {
        before = order.length;
        ranks.forEach(({ offset, count: length }, r) => {
            while (next[r] < offset + length && waits[next[r]].every((node) => isDone[node])) {
                isDone[next[r]] = 1;
                order.push(next[r]++);
            }
        });
    }
    return order;
}

/** Returns when `node` may start after `from`. */
function ready({ lag, rank_of }, end, node, from) {
    return end[from] + (rank_of[node] === rank_of[from] ? 0 : lag[node]);
}

function criticalPath(model, end) {
    const latest = (nodes, time) => nodes.reduce((best, node) => best < 0 || time(node) > time(best) ? node : best, -1);
    const path = [];
    let node = latest([...end.keys()], (one) => end[one]);
    while (node >= 0) {
        path.push(node);
        const after = node;
        node = latest(model.waits[after], (from) => ready(model, end, after, from));
    }
    return path.reverse();
}

/** Returns the lowest and the highest power of all plans and of the highest clocks, so that one
 * colour means one power everywhere. */
function powersUsed(data, { entry }, points) {
    const used = new Set(points.map((list) => list[0].power));
    for (const changes of data.plans)
        for (const [node, point] of places(changes ?? [])) used.add(points[entry[node]][point].power);
    return [...used].reduce(([low, high], power) => [Math.min(low, power), Math.max(high, power)], [Infinity, 0]);
}

/** `data` is the report's "timeline". */
export function planLayouts(data) {
    const model = unpack(data);
    const order = orderOf(model);
    const points = data.entries.map((entry) => entry.points.map(
        ([frequency, duration, energy]) => ({ frequency, duration, power: energy / duration / (entry.gpus ?? 1) })));
    const power_range = powersUsed(data, model, points);

    /** Returns the time and power of each instruction. -1 stands for all instructions at their
     * highest clocks. */
    function pointsOf(index) {
        const chosen = new Uint16Array(model.count);
        for (const changes of data.plans.slice(0, index + 1))
            for (const [node, point] of places(changes ?? [])) chosen[node] = point;
        return model.entry.map((entry, node) => points[entry][chosen[node]]);
    }

    return {
        /** Returns the plan nearest to `index` that the page contains. */
        nearest(index) {
            for (let away = 0; ; away++)
                for (const at of [index - away, index + away]) if (data.plans[at]) return at;
        },
        /** Index -1 stands for every instruction at its highest clock. */
        layout(index) {
            const runs = pointsOf(index);
            const start = new Float64Array(model.count);
            const end = new Float64Array(model.count);
            for (const node of order) {
                for (const from of model.waits[node])
                    start[node] = Math.max(start[node], ready(model, end, node, from));
                end[node] = start[node] + runs[node].duration;
            }
            return {
                time: end.reduce((a, b) => Math.max(a, b), 0), power_range, entries: data.entries,
                critical: criticalPath(model, end),
                ranks: model.ranks.map(({ offset, count, entry, microbatch }) => {
                    const mine = runs.slice(offset, offset + count);
                    return { entry, microbatch, start: [...start.subarray(offset, offset + count)],
                             frequency: mine.map((run) => run.frequency), duration: mine.map((run) => run.duration),
                             power: mine.map((run) => run.power) };
                }),
            };
        },
    };
}
