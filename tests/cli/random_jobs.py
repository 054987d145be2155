# SPDX-License-Identifier: Apache-2.0
"""Random jobs for tests of whole plans, and a simulation of them that is written from the manual pages
alone: what an instruction waits for, when clocks change, how long they hold, and what that costs."""
import itertools
import math
import re

CLOCKS = (1410, 1290, 1170, 1050)
COMMON = CLOCKS[1]  # most instructions were measured at it


class Job:
    """A pipeline with phases, barriers, lags, a prologue and an epilogue. `lists` has for each rank its
    (name, [what it waits for on other ranks: (rank, place, lag)]), and `rows` the measured
    {(rank, name): {MHz: (s, J)}}, with 0 MHz for what a clock does not change."""

    def __init__(self, random, most_choices=None):
        self.random = random
        self.ranks = random.choice((1, 1, 2, 2, 3))
        self.microbatches = random.randint(1, 2 if most_choices else 4)
        self.power = [random.choice((0, 60, 84)) for _ in range(self.ranks)]
        self.overhead = random.choice((0, 0, 300))
        self.transfer = random.choice((0, 0, 0.004))
        self.latency = {mhz: random.choice((0.002, 0.02, 0.06, 0.2)) for mhz in CLOCKS}
        self.draw_cells()
        self.draw_rows()
        while most_choices and self.choices() > most_choices:
            self.forget_a_clock()
        if self.microbatches % 2 == 0:
            self.use_another_model()

    # ---- The schedule

    def order(self, rank):
        """The work of a rank: 1F1B, or all forwards first."""
        warm = min(self.microbatches, self.ranks - rank if self.is_1f1b else self.microbatches)
        work = [("F", m) for m in range(warm)]
        for m in range(self.microbatches):
            work.append(("B", m))
            if m + warm < self.microbatches:
                work.append(("F", m + warm))
        return work

    def in_order(self, work):
        """All (rank, place) so that nothing comes before what it waits for."""
        done, places, all_work = set(), [0] * self.ranks, []
        while len(all_work) < sum(map(len, work)):
            for rank in self.random.sample(range(self.ranks), self.ranks):
                if places[rank] == len(work[rank]):
                    continue
                kind, m = work[rank][places[rank]]
                if all(need in done for need in self.needs(rank, kind, m)):
                    all_work.append((rank, places[rank]))
                    done.add((rank, kind, m))
                    places[rank] += 1
        return all_work

    def needs(self, rank, kind, m):
        """What an instruction waits for on other ranks."""
        if kind == "F" and rank > 0:
            return [(rank - 1, "F", m)]
        return [(rank + 1, "B", m)] if kind == "B" and rank + 1 < self.ranks else []

    def draw_cells(self):
        random = self.random
        self.is_1f1b = random.random() < 0.7
        self.prologue = random.choice(([], [], ["load"], ["load", "gather"]))
        self.epilogue = random.choice(([], [], ["reduce"], ["reduce", "optimizer"]))
        work = [self.order(rank) for rank in range(self.ranks)]
        all_work = self.in_order(work)
        cuts = sorted(random.randint(0, len(all_work)) for _ in range(random.choice((0, 0, 1, 2))))
        self.text, self.lists, where = "", [], {}
        before = [[sum(1 for r, _ in all_work[:cut] if r == rank) for cut in cuts]
                  for rank in range(self.ranks)]
        barriers = []  # of each rank: number of instructions before each
        lags = {}
        for rank in range(self.ranks):
            cells, names, own = [], list(self.prologue), []
            for place in range(len(work[rank]) + 1):
                for _ in range(before[rank].count(place)):
                    own.append(len(names))
                    cells.append("BARRIER")
                if random.random() < 0.15:
                    name = random.choice(("gather", "router"))
                    cells.append(":" + name)
                    names.append(name)
                if place == len(work[rank]):
                    break
                kind, m = work[rank][place]
                cell = f"{rank}{kind}{m}"
                if self.needs(rank, kind, m) and random.random() < 0.2:
                    lags[rank, len(names)] = random.choice((0.001, 0.003, 0.01))
                    cell += f"+{lags[rank, len(names)]}"
                where[rank, kind, m] = len(names)
                cells.append(cell)
                names.append({"F": "forward", "B": "backward"}[kind])
            self.text += ",".join(cells) + "\n"
            self.lists.append([(name, []) for name in names + self.epilogue])
            barriers.append(own)
        for (rank, kind, m), place in where.items():
            lag = lags.get((rank, place), self.transfer)
            for other, its_kind, its_m in self.needs(rank, kind, m):
                self.lists[rank][place][1].append((other, where[other, its_kind, its_m], lag))
        for rank, other in itertools.permutations(range(self.ranks), 2):
            for own, others in zip(barriers[rank], barriers[other]):
                if own < len(self.lists[rank]) and others > 0:
                    lag = lags.get((rank, own), self.transfer)
                    self.lists[rank][own][1].append((other, others - 1, lag))

    # ---- The profile

    def draw_rows(self):
        random, self.rows = self.random, {}
        rough = random.choice((0, 0, 0.3))
        for rank, work in enumerate(self.lists):
            for name in sorted({name for name, _ in work}):
                base = {"forward": 0.05, "backward": 0.1}.get(name, 0.04) * random.uniform(0.7, 1.3)
                watts = random.uniform(180, 320)
                is_phase = name not in ("forward", "backward")
                if is_phase and random.random() < 0.6:
                    self.rows[rank, name] = {0: (base, watts * base)}
                    continue
                clocks = CLOCKS
                if random.random() < 0.3:
                    clocks = {COMMON, *random.sample(CLOCKS, random.randint(1, 3))}
                elif random.random() < 0.03:
                    clocks = random.sample(CLOCKS, 1)
                points = self.rows[rank, name] = {}
                for mhz in sorted(clocks, reverse=True):
                    slower = 1 + 0.9 * (CLOCKS[0] / mhz - 1) * random.uniform(1 - rough, 1 + rough)
                    time = base * slower
                    points[mhz] = round(time, 9), round(watts * base * (0.55 + 0.45 / slower ** 3), 9)

    def use_another_model(self):
        """The GPUs of rank 1 have other clocks, and the forwards of rank 0 have a name of their own."""
        self.latency.update({mhz + 30: latency for mhz, latency in self.latency.items()})
        self.rows = {(rank, "own" if (rank, name) == (0, "forward") else name):
                     {mhz + 30 * (rank == 1 and mhz > 0): point for mhz, point in points.items()}
                     for (rank, name), points in self.rows.items()}
        self.lists[0] = [("own" if name == "forward" else name, waits) for name, waits in self.lists[0]]
        self.text = re.sub(r"\b(0F\d+)", r"\1:own", self.text)

    def choices(self):
        return math.prod(len(self.rows[rank, name])
                         for rank, work in enumerate(self.lists) for name, _ in work)

    def forget_a_clock(self):
        points = max(self.rows.values(), key=len)
        del points[self.random.choice([mhz for mhz in points if mhz != COMMON] or list(points)[1:])]

    def profile(self):
        lines = ["stage,instruction,frequency,time,energy,switch_latency"]
        lines += [f"{rank},{name},{mhz},{time!r},{energy!r},{self.latency.get(mhz, 0)}"
                  for (rank, name), points in self.rows.items()
                  for mhz, (time, energy) in points.items()]
        return "\n".join(lines) + "\n"

    def options(self):
        options = ["-p", ",".join(map(str, self.power)), "--overhead-power", self.overhead,
                   "--transfer-time", self.transfer]
        for option, names in (("--prologue", self.prologue), ("--epilogue", self.epilogue)):
            options += [option, ",".join(names)] if names else []
        return options

    def shares_a_clock(self, rank):
        """Whether all instructions of the rank that have clocks have one in common."""
        measured = [set(self.rows[rank, name]) for name, _ in self.lists[rank]]
        with_clocks = [clocks for clocks in measured if clocks != {0}]
        return not with_clocks or bool(set.intersection(*with_clocks))

    # ---- The simulation

    def run(self, work_of):
        """Starts all instructions as early as possible, in an order in which nothing comes before what
        it waits for. `work_of(rank, place, start)` gives (s, J). Returns the length and energy of the
        iteration and the starts."""
        ends, starts, energy = {}, {}, 0.0
        left = {(rank, place) for rank, work in enumerate(self.lists) for place in range(len(work))}
        busy = [0.0] * self.ranks
        while left:
            for rank, place in sorted(left):
                waits = [(rank, place - 1, 0.0)] * (place > 0) + self.lists[rank][place][1]
                if any(other[:2] not in ends for other in waits):
                    continue
                start = max((ends[other[:2]] + other[2] for other in waits), default=0.0)
                time, joules = work_of(rank, place, start)
                starts[rank, place], ends[rank, place] = start, start + time
                busy[rank] += time
                energy += joules
                left.remove((rank, place))
        length = max(ends.values())
        energy += sum(power * (length - own) for power, own in zip(self.power, busy))
        return length, energy + self.overhead * length, starts

    def point(self, rank, place, mhz):
        return self.rows[rank, self.lists[rank][place][0]][mhz]

    def run_plan(self, plan):
        return self.run(lambda rank, place, start: self.point(rank, place, plan[rank][place]))

    def holds(self, plan, length, starts):
        """The times for which clocks hold: for each rank a list of (s, next clock)."""
        all_held = []
        for rank, clocks in enumerate(plan):
            asked = [(starts[rank, place], mhz) for place, mhz in enumerate(clocks) if mhz != 0]
            changes = [(start, mhz) for (_, before), (start, mhz) in
                       zip(asked[-1:] + asked[:-1], asked) if mhz != before]
            previous = [start for start, _ in changes]
            previous = [start - length for start in previous[-1:]] + previous[:-1]
            all_held.append([(start - since, mhz)
                             for since, (start, mhz) in zip(previous, changes)])
        return all_held

    def run_late(self, plan, latency, change_energy):
        """The steady state if each clock is asked for when its instruction begins. `latency(mhz)`: from
        then until the GPU has it. Returns length and energy, None if it does not become steady."""
        clocks = [next((mhz for mhz in reversed(row) if mhz), 0) for row in plan]
        state = [(mhz, mhz, -math.inf) for mhz in clocks]  # has, asked for, when that comes
        for _ in range(60):
            begun, asked = list(state), 0

            def work_of(rank, place, start):
                nonlocal asked
                has, wants, at = state[rank]
                has = wants if at <= start + 1e-12 else has
                mhz = plan[rank][place]
                if mhz not in (0, wants):
                    asked += 1
                    wants, at = mhz, start + latency(mhz)
                    has = wants if at <= start else has
                points = self.rows[rank, self.lists[rank][place][0]]
                near = lambda clock: points[min(points, key=lambda one: (abs(one - clock), -one))]
                time, energy = near(has)
                if has != wants and at < start + time * (1 - 1e-12):
                    share = (at - start) / time
                    time = share * time + (1 - share) * near(wants)[0]
                    energy = share * energy + (1 - share) * near(wants)[1]
                    has = wants
                state[rank] = has, wants, at
                return time, energy

            length, energy, _ = self.run(work_of)
            state = [(wants, wants, -math.inf) if at <= length + 1e-12 else (has, wants, at - length)
                     for has, wants, at in state]
            if all(one[:2] == other[:2] and (one[2] == other[2] or abs(one[2] - other[2]) < 1e-9)
                   for one, other in zip(begun, state)):
                return length, energy + change_energy * asked
        return None

    def all_plans(self):
        """Every plan of a small job."""
        places = [(rank, place) for rank, work in enumerate(self.lists) for place in range(len(work))]
        measured = [self.rows[rank, self.lists[rank][place][0]] for rank, place in places]
        for chosen in itertools.product(*measured):
            plan = [[0] * len(work) for work in self.lists]
            for (rank, place), mhz in zip(places, chosen):
                plan[rank][place] = mhz
            yield plan
