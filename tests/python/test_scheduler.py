# SPDX-License-Identifier: Apache-2.0
"""Schedulers in Python: the interface alone, and `harpe serve --scheduler python:...` with real
ranks' requests over real sockets, restarts and mistakes. HARPE names the program. Needs only
Python's standard library."""
import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import world

sys.path.insert(0, str(world.SOURCE / "tests" / "server"))

import server as serving  # noqa: E402 (tests/server/server.py)
from attempts import ATTEMPTS, attempt  # noqa: E402
from harpe.optimizer.pipeline_frequency import common  # noqa: E402
from harpe.optimizer.pipeline_frequency.common import (  # noqa: E402
    FrequencySchedule, JobInfo, PFOServerSettings, ProfilingResult, RankInfo)
from harpe.optimizer.pipeline_frequency.server.scheduler import (  # noqa: E402
    AllMaxFrequency, FrequencyScheduler, PointSolution, PointSolution3D, make_3d_parallel)
from harpe.optimizer.perseus.server import scheduler as perseus  # noqa: E402

LIMIT_S = serving.LIMIT_S
HOST = "harpe.optimizer.pipeline_frequency.server.host"

# A scheduler in the form in which its author wrote it for the published server.
WRITTEN_FOR_ZEUS = '''
import os

from zeus.optimizer.pipeline_frequency.common import (
    FrequencySchedule, JobInfo, PFOServerSettings, ProfilingResult, RankInfo)
from zeus.optimizer.pipeline_frequency.server.scheduler import FrequencyScheduler, make_3d_parallel


class Halving(FrequencyScheduler):
    """Tries the highest clock, then that in the middle, and keeps what needs less energy."""

    def __init__(self, job_info: JobInfo, rank_infos: list[RankInfo],
                 pfo_settings: PFOServerSettings, instruction: str, repeats: int = 1) -> None:
        super().__init__(job_info, rank_infos, pfo_settings)
        self.instruction, self.repeats = instruction, repeats
        with open("pid", "w") as file:
            file.write(str(os.getpid()))

    def _schedules(self, index: int) -> list[FrequencySchedule]:
        return [FrequencySchedule(
                    rank=info.rank,
                    frequencies=[(self.instruction, info.available_frequencies[index])]
                                * self.repeats)
                for info in self.rank_infos]

    def _run(self):
        assert self.pfo_settings.scheduler_args["instruction"] == self.instruction
        energies = []
        for index in (0, 1, 2):
            results: list[ProfilingResult] = yield self._schedules(index)
            assert [result.rank for result in results] == list(range(self.world_size))
            energies.append(sum(sum(result.iter_energy) for result in results))
            print("observed", energies, flush=True)
            os.system("echo a child speaks too")
        yield self._schedules(energies.index(min(energies)))


Halving3D = make_3d_parallel(Halving)
'''

OLD = """
from harpe.optimizer.perseus.common import FrequencySchedule
from harpe.optimizer.perseus.server.scheduler import FrequencyScheduler


class Old(FrequencyScheduler):
    def __init__(self, job_info, rank_infos, perseus_settings, clock):
        super().__init__(job_info, rank_infos, perseus_settings)
        self.clock = clock

    def _run(self):
        assert self.perseus_settings.scheduler_args == {"clock": self.clock}
        yield [FrequencySchedule(rank=info.rank, frequencies=[("forward", self.clock)])
               for info in self.rank_infos]
"""

FAULTY = '''
from harpe.optimizer.pipeline_frequency.common import FrequencySchedule
from harpe.optimizer.pipeline_frequency.server.scheduler import FrequencyScheduler

number = 7


class NoRun(FrequencyScheduler):
    pass


class Raises(FrequencyScheduler):
    def _run(self):
        yield [FrequencySchedule(rank=info.rank, frequencies=[("forward", 1410)])
               for info in self.rank_infos]
        {}["nothing\\nhere"]


class Counts(FrequencyScheduler):
    """Without a generator."""

    rounds = 0

    def observe(self, profiling_results):
        self.rounds += 1

    def next_schedule(self):
        return [{"rank": info.rank, "frequencies": [["forward", 1000 + self.rounds]]}
                for info in reversed(self.rank_infos)]

'''


# One class for each mistake. `at` is its place: the constructor, or the first or the second round.
MISBEHAVING = '''
import os, signal, sys, threading, time
from harpe.optimizer.pipeline_frequency.common import FrequencySchedule
from harpe.optimizer.pipeline_frequency.server.scheduler import FrequencyScheduler


class Mood(Exception):
    def __str__(self):
        raise ValueError("no words")


class Misbehaves(FrequencyScheduler):
    def __init__(self, job_info, rank_infos, pfo_settings):
        super().__init__(job_info, rank_infos, pfo_settings)
        self.fault, _, self.at = (job_info.job_metadata or "none at never").partition(" at ")
        self.do("create")

    def _run(self):
        for step in range(1000):
            given = self.do(f"round {step}")
            yield given if given is not None else self.good(1000 + step)

    def good(self, clock):
        return [FrequencySchedule(rank=info.rank, frequencies=[("forward", clock)])
                for info in self.rank_infos]

    def do(self, where):
        if where == self.at:
            return getattr(self, self.fault)()

    def raises(self): raise RuntimeError("first line\\nlast \u00e9 line")
    def chained(self):
        try:
            {}["cause"]
        except KeyError as error:
            raise RuntimeError("effect") from error
    def moody(self): raise Mood()
    def interrupts(self): raise KeyboardInterrupt("stop it")
    def leaves(self): sys.exit(3)
    def stops(self): raise StopIteration(4)
    def vanishes(self): os._exit(9)
    def dies(self): os.kill(os.getpid(), signal.SIGSEGV)
    def hangs(self): time.sleep(3600)
    def recurses(self): return self.recurses()
    def exhausts(self):
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        return bytearray(1 << 40)
    def nan(self): return self.good(float("nan"))
    def negative(self): return self.good(-7)
    def infinite(self): return self.good(float("inf"))
    def nothing(self): return [None]
    def number(self): return 7
    def text(self): return "schedules"
    def few(self): return self.good(1200)[:-1]
    def many(self): return self.good(1200) * 2
    def strange(self): return [{"rank": 0, "frequencies": [["forward", object()]]}]
    def prints(self):
        print("garbage " * 100000)
        os.write(1, b"\\xff\\xfe{}\\n" * 1000)
        sys.stderr.write("noise\\n" * 100000)
    def closes(self):
        sys.stdout.close()
        sys.stdin.close()
    def threads(self): threading.Thread(target=lambda: 1 / 0).start()
'''

# The message of the job's failure; None: the job goes on.
OF_FAULTS = {
    "raises": "RuntimeError: first line last \u00e9 line", "chained": "RuntimeError: effect",
    "moody": "Mood", "interrupts": "KeyboardInterrupt: stop it", "leaves": "SystemExit: 3",
    "stops": "StopIteration", "vanishes": "the Python scheduler 'misbehaving.Misbehaves' ended without an answer (exit status 9", "dies": "signal 11",
    "recurses": "RecursionError", "exhausts": "MemoryError",
    "nan": "frequencies", "negative": "-7 MHz", "infinite": "frequencies",
    "nothing": "Misbehaves", "number": "not a list", "text": "not a list",
    "few": "not one for each", "many": "not one for each", "strange": "frequencies",
    "prints": None, "closes": None, "threads": None,
}


# ---- The interface ----

def ranks_of(pp, dp=1, tp=1):
    place = serving.Job("", pp, dp, tp)
    return [RankInfo.parse_obj(place.rank(rank)) for rank in range(place.size)]


def job_of(pp, dp=1, tp=1):
    return JobInfo.parse_obj(serving.job_info(pp, dp, tp))


def result(rank, time_s=1.0, energy_j=10.0, **more):
    return ProfilingResult(rank=rank, iter_time=[time_s], iter_energy=[energy_j], **more)


class Steps(FrequencyScheduler):
    """Runs `count` rounds, whose schedules contain their number and the results observed before."""

    def __init__(self, job_info, rank_infos, pfo_settings, count):
        super().__init__(job_info, rank_infos, pfo_settings)
        self.count, self.seen = count, []

    def _run(self):
        for step in range(self.count):
            self.seen.append((yield [FrequencySchedule(rank=info.rank, frequencies=[("f", step)])
                                     for info in self.rank_infos]))


def clocks(schedules):
    return {schedule.rank: schedule.frequencies[0][1] for schedule in schedules}


SETTINGS = PFOServerSettings(scheduler="AllMaxFrequency")


class Interface(unittest.TestCase):
    def make(self, kind, pp=2, dp=1, tp=1, **args):
        return kind(job_of(pp, dp, tp), ranks_of(pp, dp, tp)[::-1], SETTINGS, **args)

    def test_rounds_alternate_and_the_last_schedule_stays(self):
        scheduler = self.make(Steps, count=2)
        self.assertEqual([info.rank for info in scheduler.rank_infos], [0, 1])
        self.assertEqual(scheduler.world_size, 2)
        self.assertEqual(clocks(scheduler.next_schedule()), {0: 0, 1: 0})
        self.assertEqual(clocks(scheduler.next_schedule()), {0: 0, 1: 0})
        for expected in (1, 1, 1):
            scheduler.observe([result(0), result(1)])
            self.assertEqual(clocks(scheduler.next_schedule()), {0: expected, 1: expected})
        self.assertEqual(scheduler.seen, [[result(0), result(1)]] * 2)

    def test_generator_that_yields_nothing_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "Steps._run ended before"):
            self.make(Steps, count=0).next_schedule()

    def test_failed_generator_does_not_pass_for_one_that_ended(self):
        class Fails(FrequencyScheduler):
            def _run(self):
                yield []
                raise ValueError("too hot")

        scheduler = self.make(Fails)
        scheduler.next_schedule()
        with self.assertRaisesRegex(ValueError, "too hot"):
            scheduler.observe([])
        with self.assertRaisesRegex(RuntimeError, "earlier round.*too hot"):
            scheduler.observe([])

    def test_the_settings_have_two_names(self):
        class Old(FrequencyScheduler):
            def __init__(self, job_info, rank_infos, perseus_settings):
                super().__init__(job_info=job_info, rank_infos=rank_infos,
                                 perseus_settings=perseus_settings)

            def _run(self):
                yield []

        self.assertIs(perseus.FrequencyScheduler, FrequencyScheduler)
        for scheduler in (Old(job_of(1), ranks_of(1), SETTINGS), self.make(Steps, count=1)):
            self.assertIs(scheduler.pfo_settings, SETTINGS)
            self.assertIs(scheduler.perseus_settings, SETTINGS)
        with self.assertRaises(TypeError):
            FrequencyScheduler(job_of(1), ranks_of(1), SETTINGS, perseus_settings=SETTINGS)

    def test_all_max_frequency_runs_every_instruction_at_the_highest_clock(self):
        class Wrapped(AllMaxFrequency):
            def _run(self):
                for schedules in super()._run():
                    self.given = schedules
                    yield schedules

        for kind in (AllMaxFrequency, Wrapped, make_3d_parallel(AllMaxFrequency)):
            found = self.make(kind, dp=2).next_schedule()
            self.assertEqual([one.frequencies for one in found], [[]] * 4)
            found = self.make(kind, dp=2, num_microbatches=2).next_schedule()
            forward, backward = ("forward", 1740), ("backward", 1740)
            orders = [[forward, forward, backward, backward], [forward, backward] * 2]
            self.assertEqual({one.rank: one.frequencies for one in found},
                             {info.rank: orders[info.pp_rank] for info in ranks_of(2, 2)})
        with self.assertRaises(ValueError):
            self.make(AllMaxFrequency, num_microbatches=2, schedule="2f2b").next_schedule()

    def test_point_solution_serves_its_plan_and_executes_nothing(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "plan.py")
            pathlib.Path(path).write_text("[[('forward', 1410)],\n[('forward', 990)]]\n")
            scheduler = self.make(PointSolution, solution_path=path)
            self.assertEqual(clocks(scheduler.next_schedule()), {0: 1410, 1: 990})
            scheduler = self.make(PointSolution3D, dp=2, solution_path=path)
            self.assertEqual(PointSolution3D.__name__, "PointSolution3D")
            self.assertEqual(clocks(scheduler.next_schedule()), {0: 1410, 1: 990, 2: 1410, 3: 990})
            with self.assertRaisesRegex(RuntimeError, "has 2 lists, but the job has 3 ranks"):
                self.make(PointSolution, pp=3, solution_path=path)
            pathlib.Path(path).write_text("__import__('os').mkdir('executed')")
            with self.assertRaises(RuntimeError):
                self.make(PointSolution, solution_path=path)
        for wrong in ("/nowhere/plan.py", __file__ + "c"):
            with self.assertRaisesRegex(RuntimeError, "no such plan file"):
                self.make(PointSolution, solution_path=wrong)

    def test_3d_wrapper_shows_one_rank_per_stage_and_combines_what_they_measured(self):
        kind = make_3d_parallel(Steps, name="StepsFor3D")
        self.assertEqual((kind.__name__, make_3d_parallel(Steps).__name__),
                         ("StepsFor3D", "Steps3D"))
        ranks = ranks_of(pp=2, dp=2, tp=2)
        ranks[0].available_frequencies = [1740, 810]
        scheduler = kind(job_of(2, 2, 2), ranks, SETTINGS, count=2)
        self.assertEqual((scheduler.world_size, scheduler.job_info.dp_degree), (2, 1))
        self.assertEqual([(info.rank, info.pp_rank, info.dp_rank, info.available_frequencies)
                          for info in scheduler.rank_infos],
                         [(0, 0, 0, [1740, 810]), (1, 1, 0, [1740, 1200, 810])])
        schedules = scheduler.next_schedule()
        self.assertEqual([schedule.rank for schedule in schedules], list(range(8)))
        scheduler.observe([result(rank, time_s=1.0 + rank, energy_j=10.0 * rank,
                                  time_breakdown={"f": [[0.5, rank]]},
                                  energy_breakdown={"f": [[1, rank]]}) for rank in range(8)][::-1])
        self.assertEqual(clocks(scheduler.next_schedule()), dict.fromkeys(range(8), 1))
        self.assertEqual(scheduler.seen[0], [
            result(0, 6.0, 100.0, time_breakdown={"f": [[0.5, 5]]},
                   energy_breakdown={"f": [[4, 10]]}),
            result(1, 8.0, 180.0, time_breakdown={"f": [[0.5, 7]]},
                   energy_breakdown={"f": [[4, 18]]})])

    def test_uneven_results_of_a_stage_are_an_error_that_names_the_ranks(self):
        scheduler = self.make(make_3d_parallel(Steps), pp=1, dp=2, count=2)
        scheduler.next_schedule()
        two = ProfilingResult(rank=1, iter_time=[1, 2], iter_energy=[1])
        with self.assertRaisesRegex(ValueError, "stage 0: ranks 0, 1 .*1, 2 values of iter_time"):
            scheduler.observe([result(0), two])
        with self.assertRaisesRegex(ValueError, "ranks 0, 1 reported different instructions"):
            scheduler.observe([result(0, time_breakdown={"f": [[1]]}), result(1)])
        with self.assertRaisesRegex(ValueError, "ranks 0, 1 .*time_breakdown of f in one iter"):
            scheduler.observe([result(0, time_breakdown={"f": [[1]]}),
                               result(1, time_breakdown={"f": [[1, 2]]})])


# ---- In the server ----

class InTheServer(serving.ServerTest):
    def write(self, name, text):
        (self.path / name).write_text(text)

    def serve(self, name, args=None, *more, port=0, **environment):
        server = serving.Server(
            self.path, "--store", self.path / "harpe.db", "--dump-dir", self.path / "dump",
            "--scheduler", name, "--scheduler-args", json.dumps(args or {}), *more, port=port,
            environment={"HARPE_PYTHON": sys.executable, **environment})
        self.addCleanup(server.kill)
        return server

    def program_at(self, name):
        """Makes servers run a copy of the program in another directory."""
        copy = self.path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(serving.HARPE, copy)
        return unittest.mock.patch.object(serving, "HARPE", str(copy))

    def schedules(self, server, job):
        """All ranks ask. Returns [schedule of rank 0, ...]."""
        return [self.expect(answer, 200).json for answer in self.answers(server, job)]

    def clocks(self, server, job):
        return [schedule["frequencies"][0][1] for schedule in self.schedules(server, job)]

    def report(self, server, job, energy_j=1.0, time_s=1.0):
        for rank in range(job.size):
            self.expect(server.post(f"/result/{job.id}", {
                "rank": rank, "iter_time": [time_s], "iter_energy": [energy_j]}), 200, None)

    def test_scheduler_written_for_zeus_runs_with_its_import_changed(self):
        self.write("halving.py", WRITTEN_FOR_ZEUS.replace("from zeus.", "from harpe."))
        server = self.serve("python:halving.Halving", {"instruction": "forward", "repeats": 2})
        job = serving.register(server, pp=2)
        self.assertRegex(job.id, r"\+Halving$")
        self.assertEqual(self.schedules(server, job),
                         [{"rank": rank, "frequencies": [["forward", 1740]] * 2}
                          for rank in (0, 1)])
        self.report(server, job, energy_j=3)
        self.assertEqual(self.clocks(server, job), [1200, 1200])
        self.report(server, job, energy_j=1)
        self.assertEqual(self.clocks(server, job), [810, 810])
        self.report(server, job, energy_j=2)
        for _ in range(3):  # the generator has ended, so the best schedule stays
            self.assertEqual(self.clocks(server, job), [1200, 1200])
            self.report(server, job, energy_j=9)
        self.wait_for_log(server, "observed [6.0, 2.0]")
        self.wait_for_log(server, "a child speaks too")
        dumped = self.path / "dump" / job.id / "1.sched.json"
        self.wait_until(dumped.exists, "the schedule is dumped")
        loaded = asyncio.run(self.loaded(job))
        self.assertEqual(loaded, [FrequencySchedule(rank=rank, frequencies=[("forward", 1200)] * 2)
                                  for rank in (0, 1)])
        process = int((self.path / "pid").read_text())
        self.assertEqual(server.stop(), 0)
        self.wait_until(lambda: not pathlib.Path(f"/proc/{process}").exists(),
                        "the scheduler's process ends")

    async def loaded(self, job):
        """Schedule 1 as the server dumped it, written and read again."""
        dumped = common.load_sched(str(self.path / "dump" / job.id), 1)
        await common.save_sched(dumped, str(self.path / "again"), 1)
        return common.load_sched(str(self.path / "again"), 1)

    def test_killed_server_goes_on_where_the_scheduler_was(self):
        self.write("halving.py", WRITTEN_FOR_ZEUS.replace("from zeus.", "from harpe."))
        args = {"instruction": "forward"}
        server = self.serve("python:halving.Halving", args)
        job = serving.register(server, pp=2)
        self.assertEqual(self.clocks(server, job), [1740, 1740])
        self.report(server, job, energy_j=1)
        self.assertEqual(self.clocks(server, job), [1200, 1200])
        first = int((self.path / "pid").read_text())
        server.kill()
        self.wait_until(lambda: not pathlib.Path(f"/proc/{first}").exists(), "it ends, too")
        server = self.serve("python:halving.Halving", args, port=server.port)
        self.report(server, job, energy_j=3)
        self.assertEqual(self.clocks(server, job), [810, 810])
        self.assertNotEqual(int((self.path / "pid").read_text()), first)
        self.report(server, job, energy_j=2)
        server.kill()
        server = self.serve("python:halving.Halving", args, port=server.port)
        for _ in range(2):
            self.assertEqual(self.clocks(server, job), [1740, 1740])  # 1 J, from before the kills
            self.report(server, job, energy_j=0.5)

    def test_killed_scheduler_is_started_again_and_told_what_it_missed(self):
        self.write("halving.py", WRITTEN_FOR_ZEUS.replace("from zeus.", "from harpe."))
        server = self.serve("python:halving.Halving", {"instruction": "forward"})
        job = serving.register(server)
        self.assertEqual(self.clocks(server, job), [1740])
        os.kill(int((self.path / "pid").read_text()), 9)
        self.report(server, job)
        self.assertEqual(self.clocks(server, job), [1200])

    def test_data_and_tensor_parallel_job(self):
        self.write("halving.py", WRITTEN_FOR_ZEUS.replace("from zeus.", "from harpe."))
        for name in ("python:halving.Halving3D", "3D:python:halving.Halving"):
            with self.subTest(name):
                server = self.serve(name, {"instruction": "forward"})
                job = serving.register(server, pp=2, dp=2, tp=2)
                self.assertIn("+Halving3D", job.id)
                self.assertEqual(self.clocks(server, job), [1740] * 8)
                self.report(server, job)
                self.assertEqual(self.clocks(server, job), [1200] * 8)
                self.assertEqual(server.stop(), 0)

    def test_observe_and_next_schedule_may_be_overridden_instead(self):
        self.write("faulty.py", FAULTY)
        server = self.serve("python:faulty.Counts")
        job = serving.register(server, pp=2)
        for round_ in range(3):
            self.assertEqual(self.clocks(server, job), [1000 + round_] * 2)
            self.report(server, job)

    def test_exception_reaches_the_ranks_in_one_line_and_the_log_in_full(self):
        self.write("faulty.py", FAULTY)
        server = self.serve("python:faulty.Raises")
        job = serving.register(server, pp=2)
        self.assertEqual(self.clocks(server, job), [1410, 1410])
        self.report(server, job)
        asked = [self.ask(server, job, rank) for rank in range(2)]
        for connection in asked:
            self.expect_detail(connection.receive(LIMIT_S), 500, "faulty.Raises", "KeyError",
                               "nothing")
        self.wait_for_log(server, "Traceback")
        self.wait_for_log(server, 'File "' + str(self.path / "faulty.py"))

    def test_every_fault_costs_only_its_job_and_is_told_in_one_line(self):
        self.write("misbehaving.py", MISBEHAVING)
        server = self.serve("python:misbehaving.Misbehaves")
        healthy = serving.register(server, pp=2)
        self.assertEqual(self.clocks(server, healthy), [1000, 1000])
        for fault, said in OF_FAULTS.items():
            for at in ("create", "round 0", "round 1"):
                with self.subTest(fault=fault, at=at):
                    self.check_fault(server, fault, at, said)
        self.report(server, healthy)
        self.assertEqual(self.clocks(server, healthy), [1001, 1001])
        self.assertEqual(server.stop(), 0)

    def test_a_scheduler_that_hangs_costs_only_its_job(self):
        self.write("misbehaving.py", MISBEHAVING)
        server = self.serve_with_short_limit("python:misbehaving.Misbehaves")
        for at in ("create", "round 0", "round 1"):
            with self.subTest(at=at):
                self.check_hang(server, at)
        self.assertEqual(server.stop(), 0)

    # On a busy machine, a scheduler that does not hang may also need longer than a short limit.

    def test_a_scheduler_for_perseus_settings(self):
        self.write("old.py", OLD)
        server = self.serve("python:old.Old", {"clock": 1200})
        self.assertEqual(self.clocks(server, serving.register(server, pp=2)), [1200, 1200])

    def test_the_published_example_of_all_max_frequency(self):
        """`PERSEUS_SCHEDULER=AllMaxFrequency` alone is enough."""
        server = serving.Server(self.path, "--store", "memory", "--dump-dir", self.path / "dump",
                                environment={"PERSEUS_SCHEDULER": "AllMaxFrequency"})
        self.addCleanup(server.kill)
        self.assertEqual([schedule["frequencies"] for schedule in
                          self.schedules(server, serving.register(server, pp=2))], [[], []])
        job = serving.register(server, pp=2, job_metadata="num_microbatches=3")
        self.assertEqual([schedule["frequencies"][0] for schedule in self.schedules(server, job)],
                         [["forward", 1740]] * 2)

    def serve_with_short_limit(self, name):
        for number in range(ATTEMPTS):
            try:
                return self.serve(name, None, "--set", "scheduler_timeout=10")
            except AssertionError as failure:
                if number + 1 == ATTEMPTS or "Python did not finish the check" not in str(failure):
                    raise

    @staticmethod
    def in_time(answers):
        return all(b"did not answer within" not in answer.body for answer in answers)

    def check_hang(self, server, at):
        def run(_):
            healthy = self.first_round(server)
            self.check_fault(server, "hangs", at, "did not answer within")
            self.report(server, healthy)
            return self.answers(server, healthy)
        for answer in attempt(run, self.in_time):
            self.assertEqual(self.expect(answer, 200).json["frequencies"][0][1], 1001)

    def first_round(self, server, **more):
        """Returns a job that has the schedules of its first round."""
        def run(_):
            job = serving.register(server, pp=2, **more)
            return job, self.answers(server, job)
        job, answers = attempt(run, lambda result: self.in_time(result[1]))
        for answer in answers:
            self.assertEqual(self.expect(answer, 200).json["frequencies"][0][1], 1000)
        return job

    def answers(self, server, job):
        asked = [self.ask(server, job, rank) for rank in range(job.size)]
        return [connection.receive(LIMIT_S) for connection in asked]

    def check_fault(self, server, fault, at, said):
        returns = said in ("frequencies", "-7 MHz", "not a list", "not one for each", "Misbehaves")
        if at == "create" and returns:
            return  # a constructor returns nothing
        metadata = f"{fault} at {at}"
        if at == "round 1":
            job = self.first_round(server, job_metadata=metadata)
            self.report(server, job)
        else:
            job = serving.register(server, pp=2, job_metadata=metadata)
        answer = self.ask(server, job, 0)
        if said is None:
            self.ask(server, job, 1)
            clock = self.expect(answer.receive(), 200).json["frequencies"][0][1]
            self.assertEqual(clock, 1001 if at == "round 1" else 1000)
            return
        detail = self.expect_detail(answer.receive(LIMIT_S), 500, said)
        self.assertEqual(server.get(f"/jobs/{job.id}").json["failure"], detail)

    def test_server_refuses_to_start_with_what_cannot_run(self):
        self.write("faulty.py", FAULTY)
        self.write("halving.py", WRITTEN_FOR_ZEUS.replace("from zeus.", "from harpe."))
        self.write("broken.py", "import nonexistent_dependency\n")
        cases = [
            ("python:", {}, "module.Class"), ("python:Alone", {}, "module.Class"),
            ("python:a.B; rm", {}, "module.Class"),
            ("python:nowhere.Mine", {}, "no module nowhere"),
            ("python:faulty.Mine", {}, "faulty has no Mine"),
            ("python:faulty.number", {}, "is a int, not a class"),
            ("python:faulty.NoRun", {}, "neither a _run"),
            ("python:broken.Mine", {}, "nonexistent_dependency"),
            ("python:pathlib.Path", {}, "no observe()"),
            ("python:halving.Halving", {}, "instruction"),
            ("python:halving.Halving3D", {}, "instruction"),
            ("python:halving.Halving", {"instruction": "f", "colour": "it's"}, "colour"),
            ("python:halving.Halving", {"instruction": "f", "job_info": 1}, "job_info"),
        ]
        for name, args, word in cases:
            with self.subTest(name=name, args=args):
                with self.assertRaises(AssertionError) as refused:
                    self.serve(name, args)
                self.assertIn(word, str(refused.exception))
                self.assertIn("scheduler: ", str(refused.exception))

    def test_scheduler_that_imports_zeus_is_told_to_import_harpe(self):
        self.write("halving.py", WRITTEN_FOR_ZEUS)
        with self.assertRaises(AssertionError) as refused:  # Zeus is not installed
            self.serve("python:halving.Halving", {"instruction": "forward"})
        self.assertIn("import harpe", str(refused.exception))
        self.assertIn("zeus", str(refused.exception))
        folder = self.path / "zeus" / "optimizer" / "pipeline_frequency" / "server"
        folder.mkdir(parents=True)
        ours = "harpe.optimizer.pipeline_frequency"
        (folder.parent / "common.py").write_text(
            f"from {ours}.common import JobInfo, PFOServerSettings, ProfilingResult, RankInfo\n"
            "class FrequencySchedule:\n"
            "    def __init__(self, rank, frequencies):\n"
            "        self.rank, self.frequencies = rank, frequencies\n")
        (folder / "scheduler.py").write_text(
            f"from {ours}.server.scheduler import FrequencyScheduler, make_3d_parallel\n")
        server = self.serve("python:halving.Halving", {"instruction": "forward"})
        job = serving.register(server, pp=1)
        self.expect_detail(self.ask(server, job, 0).receive(LIMIT_S), 500, "import harpe",
                           "zeus.optimizer.pipeline_frequency.common.FrequencySchedule",
                           "harpe.optimizer.pipeline_frequency.common")
        self.assertNotIn("Traceback", server.log())

    def test_python_that_cannot_check_is_told_what_to_do_about_it(self):
        self.write("faulty.py", FAULTY)
        self.write("endless.py", "import time\ntime.sleep(1000)\n")
        for name, more, environment in (
                ("faulty.Counts", (), {"HARPE_PYTHON": "/nowhere/python"}),
                ("faulty.Counts", (), {"PYTHONPATH": "/nowhere"}),
                ("endless.Mine", ("--set", "scheduler_timeout=1"), {})):
            with self.subTest(name=name, environment=environment), self.program_at("harpe"):
                with self.assertRaisesRegex(AssertionError, "scheduler: Python did not finish "
                                                            "the check.*HARPE_PYTHON names"):
                    self.serve(f"python:{name}", {}, *more, **environment)

    def test_package_is_found_beside_the_program(self):
        self.write("faulty.py", FAULTY)
        for program, package in (("build/debug/harpe", "python"),
                                 ("it's/bin/harpe", "it's/lib/python3/dist-packages")):
            with self.subTest(program):
                link = self.path / package
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(world.SOURCE / "python")
                with self.program_at(program):
                    server = self.serve("python:faulty.Counts", PYTHONPATH="/of/the/user")
                self.assertEqual(self.clocks(server, serving.register(server)), [1000])
                self.assertEqual(server.stop(), 0)

    def test_example_finds_the_lowest_clock_within_its_limit(self):
        self.write("my_scheduler.py",
                   (world.SOURCE / "examples" / "python" / "my_scheduler.py").read_text())
        server = self.serve("python:my_scheduler.LowestClock",
                            {"num_microbatches": 3, "max_slowdown": 1.5})
        job = serving.register(server, pp=2)
        first = self.schedules(server, job)
        self.assertEqual([[name[0] for name, _ in schedule["frequencies"]] for schedule in first],
                         [list("ffbfbb"), list("fbfbfb")])
        for clock in (1740, 1200, 810, 1200, 1200):
            self.assertEqual([entry[1] for entry in first[0]["frequencies"]], [clock] * 6)
            self.report(server, job, time_s=1740 / clock)
            first = self.schedules(server, job)


class Host(unittest.TestCase):
    def converse(self, directory, name, rounds):
        """Creates a scheduler and reports the results of some rounds. Returns the answers and what the
        process has written to standard error."""
        lines = [{"init": {"job_info": serving.job_info(pp=1), "settings": {}, "args": {},
                           "rank_infos": [serving.Job("", 1, 1, 1).rank(0)]}}]
        lines += [{"observe": [serving.result_of(0)]}] * rounds
        done = subprocess.run([sys.executable, "-m", HOST, name], cwd=directory, timeout=LIMIT_S,
                              input="".join(json.dumps(line) + "\n" for line in lines),
                              capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def test_conversation_is_undisturbed_by_what_user_code_reads_and_prints(self):
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "loud.py").write_text(
                "import os, sys\n"
                "from harpe.optimizer.pipeline_frequency.server.scheduler import *\n"
                "print('imported'); os.write(1, b'raw\\n')\n"
                "class Loud(FrequencyScheduler):\n"
                "    def _run(self):\n"
                "        print('read', repr(sys.stdin.read()))\n"
                "        while True:\n"
                "            yield [dict(rank=0, frequencies=[('forward', 0)])]\n"
                "            sys.stdout.write('no newline')\n")
            answers, told = self.converse(directory, "loud.Loud", 2)
        answer = {"schedules": [{"rank": 0, "frequencies": [["forward", 0]]}], "finished": False}
        self.assertEqual(answers, [answer] * 3)
        for said in ("imported", "raw", "read ''", "no newline"):
            self.assertIn(said, told)

    def test_end_of_the_generator_is_told(self):
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "brief.py").write_text(
                "from harpe.optimizer.pipeline_frequency.common import FrequencySchedule\n"
                "from harpe.optimizer.pipeline_frequency.server.scheduler import *\n"
                "class Brief(FrequencyScheduler):\n"
                "    def _run(self):\n"
                "        yield [FrequencySchedule(rank=0, frequencies=[('forward', 990)])]\n"
                "class Own(Brief):\n"
                "    def observe(self, results):\n"
                "        super().observe(results)\n"
                "Brief3D = make_3d_parallel(Brief)\n")
            for name, expected in (("Brief", [False, True]), ("Brief3D", [False, True]),
                                   ("Own", [False, False])):
                answers, _ = self.converse(directory, f"brief.{name}", 1)
                self.assertEqual([answer["finished"] for answer in answers], expected)
                self.assertEqual(answers[0]["schedules"], answers[1]["schedules"])
