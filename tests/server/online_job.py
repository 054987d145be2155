# SPDX-License-Identifier: Apache-2.0
"""Simulated jobs over real sockets: the ranks answer each schedule with what a pipeline would measure.
Needs only Python's standard library."""
import random

from server import *

BLOCKING_W = 70.0
FREQUENCIES = list(range(1410, 1410 - 12 * 45, -45))


class Job:
    """A job whose ranks have their own clocks, blocking powers and instructions.

    `costs` has for each stage {name: (s, share that follows the clock, static W, dynamic W)}, at
    the highest clock. `default` has the names that a stage runs without a schedule."""

    def __init__(self, server, clocks, costs, default, blocking_w, replicas=1, noise=0.0, seed=1, metadata=None):
        self.clocks, self.costs, self.default, self.blocking_w = clocks, costs, default, blocking_w
        self.replicas, self.stages = replicas, len(clocks)
        self.pp = self.size = len(clocks) * replicas
        self.noise, self.random = noise, random.Random(seed)
        self.round, self.schedules, self.connections = 0, [], []
        answer = server.post("/register_job", job_info(self.stages, replicas, job_metadata=metadata))
        assert answer.status == 200, answer
        self.id = answer.json
        for rank in range(self.pp):
            answer = server.post(f"/register_rank/{self.id}",
                                 {"rank": rank, "dp_rank": rank % replicas,
                                  "pp_rank": rank // replicas, "tp_rank": 0,
                                  "available_frequencies": clocks[rank // replicas]})
            assert answer.status == 200, answer
        self.connect(server)

    def connect(self, server):
        self.close()
        self.server = server
        self.connections = [server.connect() for _ in range(self.pp)]

    def close(self):
        for connection in self.connections:
            connection.close()
        self.connections = []

    # ---- Physics ----

    def cost(self, stage, name, mhz):
        """Returns (s, J) of one GPU."""
        highest = self.clocks[stage][0]
        x = (mhz or highest) / highest
        assert not mhz or mhz in self.clocks[stage], (stage, mhz)
        time_s, share, static_w, dynamic_w = self.costs[stage][name]
        time_s *= share / x + 1 - share
        return time_s, time_s * (static_w + dynamic_w * x ** 3)

    def iteration_time(self, costs):
        """Returns the length of an iteration. `costs` has a list of (name, s) for each stage."""
        ends, free, at = {}, [0.0] * self.stages, [0] * self.stages
        seen = [{} for _ in range(self.stages)]
        while any(at[stage] < len(costs[stage]) for stage in range(self.stages)):
            before = list(at)
            for stage in range(self.stages):
                while at[stage] < len(costs[stage]):
                    name, time_s = costs[stage][at[stage]]
                    kind = name.split("_")[0]
                    number = seen[stage].get(kind, 0)
                    other = {"forward": stage - 1, "backward": stage + 1}.get(kind, -1)
                    if 0 <= other < self.stages and (kind, other, number) not in ends:
                        break
                    start = max(free[stage], ends.get((kind, other, number), 0.0))
                    free[stage] = ends[kind, stage, number] = start + time_s
                    seen[stage][kind] = number + 1
                    at[stage] += 1
            assert at != before, "the schedule is stuck"
        return max(free)

    def results(self, schedules):
        lists = [schedules[stage * self.replicas]["frequencies"] or
                 [(name, 0) for name in self.default[stage]] for stage in range(self.stages)]
        costs = [[(name, *self.cost(stage, name, mhz)) for name, mhz in entries]
                 for stage, entries in enumerate(lists)]
        self.time_s = self.iteration_time([[one[:2] for one in entries] for entries in costs])
        noisy = lambda value: value * self.random.gauss(1, self.noise) if self.noise else value
        results = []
        for rank in range(self.pp):
            stage = rank // self.replicas
            assert schedules[rank]["frequencies"] in ([], lists[stage])
            entries = costs[stage]
            energy_j = (sum(one[2] for one in entries) + self.blocking_w[stage] *
                        (self.time_s - sum(one[1] for one in entries)))
            names = list(dict.fromkeys(one[0] for one in entries))
            breakdown = lambda which: {name: [[noisy(one[which]) for one in entries if one[0] == name]]
                                       for name in names}
            results.append({"rank": rank, "iter_time": [noisy(self.time_s)], "iter_energy": [noisy(energy_j)],
                            "time_breakdown": breakdown(1), "energy_breakdown": breakdown(2)})
        self.energy_j = sum(result["iter_energy"][0] for result in results)
        return results

    def clocks_of(self, rank, name=None):
        """Returns the clocks of a rank's instructions in the last round."""
        return [mhz for one, mhz in self.schedules[-1][rank]["frequencies"] if name in (None, one)]

    def profile(self):
        rows = ["stage,instruction,frequency,time,energy,gpus,blocking_power"]
        for stage, clocks in enumerate(self.clocks):
            for name in self.costs[stage]:
                for mhz in clocks:
                    time_s, energy_j = self.cost(stage, name, mhz)
                    rows.append(f"{stage},{name},{mhz},{time_s!r},{energy_j * self.replicas!r},"
                                f"{self.replicas},{self.blocking_w[stage]}")
        return "\n".join(rows) + "\n"

    # ---- Rounds ----

    def ask(self):
        for rank, connection in enumerate(self.connections):
            connection.send("GET", f"/schedule/{self.id}?rank={rank}&round={self.round}")

    def receive(self):
        answers = [connection.receive() for connection in self.connections]
        assert all(answer.status == 200 for answer in answers), answers
        self.schedules.append([answer.json for answer in answers])

    def send_reports(self):
        for connection, result in zip(self.connections, self.results(self.schedules[-1])):
            connection.send("POST", f"/result/{self.id}?round={self.round}", result)
        self.round += 1

    def receive_reports(self):
        for connection in self.connections:
            answer = connection.receive()
            assert answer.status == 200, answer

    def report(self):
        self.send_reports()
        self.receive_reports()

    def run_round(self):
        self.ask()
        self.receive()
        self.report()

    def frontier(self):
        answer = self.server.get(f"/jobs/{self.id}/frontier")
        assert answer.status == 200, answer
        return answer.json

    def run_until_planned(self):
        while self.frontier()["phase"] != "plan":
            assert self.round < 60
            self.run_round()


class Pipeline(Job):
    """A job of `pp` stages with 1F1B. Without a schedule a rank runs all forwards first."""

    def __init__(self, server, pp, microbatches, frequencies=FREQUENCIES, **more):
        costs = [{name: (time_s * (0.1 + 0.01 * (stage % 3)), 0.8, 90, 250)
                  for name, time_s in (("forward", 1), ("backward", 2))} for stage in range(pp)]
        super().__init__(server, [frequencies] * pp, costs,
                         [["forward"] * microbatches + ["backward"] * microbatches] * pp, [BLOCKING_W] * pp, **more)


class Online(ServerTest):
    def start_online(self, scheduler="Perseus", port=0, environment=None, before=(), **args):
        """These jobs learn with a sweep, unless the arguments say how."""
        if scheduler == "Perseus":
            args.setdefault("learning", "sweep")
        return self.start("--log-level", "info", scheduler=scheduler, args=args, port=port,
                          environment=environment, before=before)

    def pipeline(self, *args, kind=Pipeline, **more):
        job = kind(*args, **more)
        self.addCleanup(job.close)
        return job
