# SPDX-License-Identifier: Apache-2.0
"""PipelineFrequencyOptimizer in Python: against a real server, on emulated GPUs."""
import contextlib
import ctypes
import importlib.util
import inspect
import json
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
import unittest
import urllib.request
from unittest import mock

import training
import world

from attempts import attempt
from fixtures import FakeServer, folder
from harpe import HarpeError, InvalidArgumentError, UnavailableError
from harpe.callback import Callback, CallbackSet
from harpe.optimizer.perseus.frequency_controller import FrequencyController
from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer

NOWHERE = "http://127.0.0.1:9"
CUDA = world.BUILD / "tests" / "standin" / "libcuda.so.1"


@contextlib.contextmanager
def environment(**values):
    with mock.patch.dict(os.environ, values):
        for name in {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"} - set(values):
            os.environ.pop(name, None)
        yield


class Rounds(training.TrainingTest):
    def test_ranks_go_through_rounds_at_the_plans_clocks(self):
        url = self.serve(2)
        ranks = [self.optimizer(url, rank, 2, job_key="rounds", job_metadata="a b")
                 for rank in range(2)]
        self.wait_until(lambda: all(one.status().round >= 2 for one in ranks), "no rounds",
                        lambda: [training.run_step(one) for one in ranks])
        seen = [one.status() for one in ranks]
        self.assertEqual(len({one.job_id for one in ranks}), 1)
        self.assertRegex(ranks[0].job_id, r"\+dp1\+pp2\+tp1\+PointSolution\+a_b$")
        for rank, status in enumerate(seen):
            self.assertEqual((status.misfits, status.reconnects, status.clock_failures), (0, 0, 0))
            self.wait_until(lambda rank=rank: self.clock(rank) == 1200 - 15 * rank, "no clock")
            self.assertGreater(ranks[rank].status().clock_writes, 0)
        for one in ranks:
            one.close()
            self.assertEqual(one.status().state, "off")
            self.assertIsNone(one.job_id)
        for rank in range(2):
            self.assert_clocks_are_back(rank)
        self.assertEqual(self.log.having("pipeline frequency optimizer, rank 0: no"), [])

    def test_a_subclass_changes_the_clocks_of_a_schedule(self):
        seen = []

        class Own(PipelineFrequencyOptimizer):
            mistake = None

            def _get_frequency_schedule(self):
                schedule = super()._get_frequency_schedule()
                seen.append(schedule)
                if self.mistake is not None:
                    return self.mistake(schedule)
                return [(name, 1005) for name, _ in schedule]

        def first(_):
            raise KeyError("mine")

        url = self.serve()
        for mistake, clock in ((None, 1005), (first, 1200), (lambda schedule: schedule[1:], 1200),
                               (lambda schedule: [(name, -1) for name, _ in schedule], 1200)):
            seen.clear()
            Own.mistake = staticmethod(mistake) if mistake else None
            with self.assertLogs("harpe.pipeline_frequency") if mistake else \
                    contextlib.nullcontext(), \
                    Own(0, 0, 0, 0, 0, 1, 1, 1, 1, url) as one:
                one.wait_for_round(0, training.LIMIT_S)
                self.wait_until(lambda clock=clock: self.clock(0) == clock, f"not {clock} MHz",
                                lambda one=one: training.run_step(one))
            self.assertEqual(seen[0][0], ("forward", 1200))
            self.assert_clocks_are_back()

    def test_a_subclass_may_close_or_interrupt_in_its_step(self):
        class Own(PipelineFrequencyOptimizer):
            def _get_frequency_schedule(self):
                self.end()
                return super()._get_frequency_schedule()

        def interrupt():
            raise KeyboardInterrupt("mine")

        url = self.serve()
        for ends in (True, False):
            one = Own(0, 0, 0, 0, 0, 1, 1, 1, 1, url)
            self.addCleanup(one.close)
            one.end = one.close if ends else interrupt
            one.wait_for_round(0, training.LIMIT_S)
            if ends:
                training.run_step(one)
                self.assertEqual(one.status().state, "off")
            else:
                with self.assertRaisesRegex(KeyboardInterrupt, "mine"):
                    training.run_step(one)
                one.close()
            self.assert_clocks_are_back()

    def test_a_controller_alone_sets_clocks_and_puts_them_back(self):
        controller = FrequencyController(device_id=1)
        for clock in (1200, 1005, 0):
            controller.set_frequency(clock)
            self.wait_until(lambda clock=clock: self.clock(1) == (clock or 1005), "no clock")
        controller.end()
        controller.end()
        controller.set_frequency(1200)
        self.assert_clocks_are_back(1)
        for wrong in (lambda: FrequencyController(99), lambda: controller.set_frequency(-5)):
            with self.assertRaises(ValueError):
                wrong()

    def test_wait_for_round_ends_with_the_schedule_or_its_time(self):
        one = self.optimizer(self.serve())
        one.wait_for_round(0, training.LIMIT_S)
        self.assertEqual(one.status().round, 0)
        before = time.monotonic()
        with self.assertRaisesRegex(UnavailableError, "no schedule of round 7"):
            one.wait_for_round(7, 0.5)
        self.assertGreaterEqual(time.monotonic() - before, 0.4)

    def test_ended_and_unpickled_ones_do_nothing(self):
        one = self.optimizer(self.serve())
        copy = pickle.loads(pickle.dumps(one))
        self.assertEqual(copy.rank, 0)
        one.on_train_end()
        one.close()
        for ended in (one, copy):
            training.run_step(ended)
            self.assertEqual(ended.status().state, "off")
            ended.close()
        self.assert_clocks_are_back()

    def test_an_exception_in_the_loop_puts_clocks_back(self):
        with self.assertRaisesRegex(RuntimeError, "loss is NaN"), self.optimizer(NOWHERE) as one:
            self.wait_until(lambda: self.clock(0) > self.lowest_mhz, "the clock is not locked")
            training.run_step(one)
            raise RuntimeError("loss is NaN")
        self.assert_clocks_are_back()

    def test_a_collected_one_puts_clocks_back(self):
        one = PipelineFrequencyOptimizer(0, 0, 0, 0, 0, 1, 1, 1, 1, NOWHERE)
        self.wait_until(lambda: self.clock(0) > self.lowest_mhz, "the clock is not locked")
        del one
        self.assert_clocks_are_back()

    def test_it_rides_in_a_callback_set(self):
        one = self.optimizer(self.serve())
        one.wait_for_round(0, training.LIMIT_S)
        callbacks = CallbackSet([Callback(), one])
        training.run_step(callbacks)
        self.assertEqual(one.status().steps, 1)
        callbacks.on_train_end()
        self.assertEqual(one.status().state, "off")

    def test_the_server_hears_how_many_tokens_a_step_has(self):
        url = self.serve()
        one = self.optimizer(url, tokens_per_step=4096)

        def tokens():
            if not one.job_id:
                return None
            with urllib.request.urlopen(f"{url}/jobs/{one.job_id}", timeout=60) as answer:
                found = json.load(answer)["report"]["per_token"]
            return found and found["tokens_per_step"]

        self.wait_until(lambda: tokens() == 4096, "no tokens", lambda: training.run_step(one))
        one.set_tokens_per_step(100)
        self.wait_until(lambda: tokens() == 100, "no other tokens", lambda: training.run_step(one))
        for wrong in (-1, 1000000001):
            with self.assertRaisesRegex(InvalidArgumentError, "tokens_per_step"):
                one.set_tokens_per_step(wrong)
        one.close()
        one.set_tokens_per_step(7)  # does nothing

    def test_measure_only_leaves_clocks_alone(self):
        one = self.optimizer(self.serve(), leave_clocks_alone=True)
        self.wait_until(lambda: one.status().round >= 1, "no rounds",
                        lambda: training.run_step(one))
        self.assertEqual(one.status().clock_writes, 0)
        self.assertEqual(self.clock(0), self.lowest_mhz)


class Misfits(training.TrainingTest):
    def test_by_default_a_misfit_is_logged_once_and_training_goes_on(self):
        one = self.optimizer(self.serve())
        one.wait_for_round(0, training.LIMIT_S)
        for _ in range(3):
            training.run_step(one, ["forward", "backward"])
        self.wait_until(lambda: self.log.having("instruction 1"), "nothing logged")
        self.assertEqual(one.status().misfits, 3)
        training.run_step(one)
        self.assertEqual(one.status().misfits, 3)
        self.assertEqual(len(self.log.having("instruction 1")), 1)

    def test_strict_raises_what_does_not_fit_and_goes_on(self):
        one = self.optimizer(self.serve(), strict=True)
        one.wait_for_round(0, training.LIMIT_S)
        with self.assertRaisesRegex(InvalidArgumentError, "backward"):
            training.run_step(one, ["forward", "backward"])
        with self.assertRaises(InvalidArgumentError):
            training.run_step(one, training.STEP[:3])
        with self.assertRaises(InvalidArgumentError):
            training.run_step(one, training.STEP + ["forward"])
        training.run_step(one)

    def test_without_the_gpu_only_strict_raises(self):
        arguments = (0, 0, 0, 0, 99, 1, 1, 1, 1, NOWHERE)
        with self.assertRaisesRegex(HarpeError, "99"):
            PipelineFrequencyOptimizer(*arguments, strict=True)
        with PipelineFrequencyOptimizer(*arguments) as one:
            training.run_step(one)
            self.assertTrue(self.log.having("clocks are not controlled"))

    def test_a_schedule_below_the_lowest_clock_is_refused(self):
        one = self.optimizer(self.serve(), lowest_clock_mhz=1300)
        self.wait_until(lambda: self.log.having("is refused"), "not refused",
                        lambda: training.run_step(one))
        self.assertIn("the lowest clock of this job is 1300 MHz", self.log.having("is refused")[0])


class Arguments(training.TrainingTest):
    def test_the_first_ones_are_those_of_zeus(self):
        parameters = list(inspect.signature(PipelineFrequencyOptimizer).parameters.values())
        self.assertEqual([one.name for one in parameters[:11]], [
            "rank", "dp_rank", "pp_rank", "tp_rank", "device_id", "dp_degree", "pp_degree",
            "tp_degree", "world_size", "server_url", "job_metadata"])
        self.assertIsNone(parameters[10].default)
        self.assertTrue(all(one.kind == one.KEYWORD_ONLY for one in parameters[11:]))

    def test_wrong_ones_are_named(self):
        good = dict(rank=0, dp_rank=0, pp_rank=0, tp_rank=0, device_id=0, dp_degree=1, pp_degree=1,
                    tp_degree=1, world_size=1, server_url=NOWHERE)
        for wrong, said in ((dict(rank=1), "rank"), (dict(dp_degree=2), "dp_degree"),
                            (dict(server_url="ftp://x"), "ftp"), (dict(mark="now"), "mark"),
                            (dict(iterations=0), "iterations"), (dict(device_id=-1), "device_id"),
                            (dict(warmup_iterations=-1), "warmup_iterations"),
                            (dict(job_key=""), "job_key"), (dict(tokens_per_step=-1), "tokens_per_step"), (dict(world_size=0), "world_size"),
                            (dict(lowest_clock_mhz=0), "lowest_clock_mhz"),
                            (dict(lowest_clock_mhz=10001), "lowest_clock_mhz")):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, said):
                PipelineFrequencyOptimizer(**dict(good, **wrong))
        with self.assertRaises(TypeError):
            PipelineFrequencyOptimizer(**good, mark="stream", stream="default")

    def job_of(self, url, rank=0, ranks=2, **options):
        """Ends the optimizer again, because no thread may read the environment while a test changes
        it."""
        with self.optimizer(url, rank, ranks, **options) as one:
            self.wait_until(lambda: one.job_id, "not registered")
            return one.job_id

    def test_ranks_without_collectives_meet_by_the_launchers_run(self):
        url = self.serve(2)
        with environment(SLURM_JOB_ID="77", TORCHELASTIC_RUN_ID="run"):
            by_run = [self.job_of(url, rank) for rank in range(2)]
            explicit = self.job_of(url, job_key="explicit")
        with environment(SLURM_JOB_ID="77", TORCHELASTIC_RUN_ID="none"):
            by_slurm = [self.job_of(url, rank) for rank in range(2)]
        self.assertEqual([len(set(by_run)), len(set(by_slurm))], [1, 1])
        self.assertEqual(len({by_run[0], by_slurm[0], explicit}), 3)
        with environment(), self.assertRaisesRegex(ValueError, "2 ranks must find each other"):
            self.job_of(url)

    @unittest.skipUnless(importlib.util.find_spec("mpi4py") and shutil.which("mpirun"),
                         "mpi4py or mpirun is not installed")
    def test_ranks_of_mpi_meet_by_broadcast(self):
        script = ("import sys\n"
                  "from mpi4py import MPI\n"
                  "from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer\n"
                  "rank = MPI.COMM_WORLD.Get_rank()\n"
                  "with PipelineFrequencyOptimizer(rank, 0, rank, 0, rank, 1, 2, 1, 2,\n"
                  "                                sys.argv[1]) as one:\n"
                  "    one.wait_for_round(0, 300)\n"
                  "    print(f'<{one.job_id}>', flush=True)\n"
                  "    MPI.COMM_WORLD.Barrier()\n")
        own = {name: value for name, value in os.environ.items()
               if not name.startswith(("OMPI_", "PMIX_", "SLURM_"))}
        result = subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, "-c",
             script, self.serve(2)], env=own, text=True, timeout=600, capture_output=True,
            check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        jobs = re.findall("<(.+?)>", result.stdout)
        self.assertEqual((len(jobs), len(set(jobs))), (2, 1), result.stdout)

    def test_a_job_of_one_rank_needs_no_key_and_takes_no_launchers(self):
        url = self.serve()
        with environment(SLURM_JOB_ID="77"):
            self.assertNotEqual(self.job_of(url, ranks=1), self.job_of(url, ranks=1))


class Marks(training.TrainingTest):
    def test_synchronized_waits_at_every_event_and_its_errors_reach_the_loop(self):
        waits = []
        one = self.optimizer(NOWHERE, mark="synchronized", synchronize=lambda: waits.append(1))
        training.run_step(one)
        self.assertEqual(len(waits), 2 + 2 * len(training.STEP))

        def fail():
            raise RuntimeError("CUDA error")

        one = self.optimizer(NOWHERE, mark="synchronized", synchronize=fail)
        with self.assertRaisesRegex(RuntimeError, "CUDA error"):
            one.on_step_begin()

    def test_others_never_wait(self):
        torch = mock.MagicMock()
        torch.cuda.is_available.return_value = True
        torch.cuda.current_stream.return_value.cuda_stream = 4711
        torch.distributed.is_initialized.return_value = False
        with mock.patch.dict("sys.modules", torch=torch):
            for mark in ("host", "stream"):
                with self.optimizer(NOWHERE, mark=mark) as one:
                    training.run_step(one)
            torch.cuda.current_stream.assert_called_once_with(0)
            torch.cuda.synchronize.assert_not_called()
            with self.optimizer(NOWHERE, mark="synchronized") as one:
                one.on_step_begin()
            torch.cuda.synchronize.assert_called_once_with(0)

    def test_a_stream_without_cuda_is_marked_by_the_host(self):
        result = world.python(  # a process that has not loaded the stand-in
            "import logging, sys\n"
            "from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer\n"
            "logging.basicConfig()\n"
            "one = PipelineFrequencyOptimizer(0, 0, 0, 0, 0, 1, 1, 1, 1, sys.argv[1],\n"
            "                                 mark='stream', iterations=1, warmup_iterations=0)\n"
            "one.wait_for_round(0, 300)\n"
            "one.on_step_begin()\n"
            "for name in sys.argv[2:]:\n"
            "    one.on_instruction_begin(name); one.on_instruction_end(name)\n"
            "one.on_step_end()\n"
            "one.wait_for_round(1, 300)\n", self.serve(), *training.STEP)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("not loaded CUDA", result.stderr)

    @unittest.skipUnless(CUDA.exists(), "built without the stand-in for CUDA")
    def test_a_stream_marks_when_it_comes_there(self):
        url = self.serve()
        cuda = ctypes.CDLL(str(CUDA))
        one = self.optimizer(url, mark="stream", stream=mock.Mock(spec=["ptr"], ptr=0))
        one.wait_for_round(0, training.LIMIT_S)
        self.wait_until(lambda: self.clock(0) == 1410, "not at the highest clock")
        cuda.standin_cuda_hold(True)
        try:
            training.run_step(one)
            time.sleep(0.2)
            self.assertEqual(self.clock(0), 1410)
        finally:
            cuda.standin_cuda_hold(False)
        self.wait_until(lambda: self.clock(0) == 1200, "the stream's marks do nothing")
        self.wait_until(lambda: one.status().round >= 1, "no rounds",
                        lambda: training.run_step(one))


class Process(training.TrainingTest):
    SCRIPT = ("import logging, sys, time\n"
              "from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer\n"
              "logging.basicConfig(level=logging.DEBUG)\n"
              "kept = PipelineFrequencyOptimizer(0, 0, 0, 0, 0, 1, 1, 1, 1, sys.argv[1])\n"
              "logging.getLogger('kept').optimizer = kept\n"
              "for _ in range(30):\n"
              "    kept.on_step_begin(); kept.on_instruction_begin('forward')\n"
              "    kept.on_instruction_end('forward'); kept.on_step_end()\n"
              "    time.sleep(0.001)\n")

    def test_its_end_is_clean_though_nothing_is_closed(self):
        url = self.serve()
        for ending, code in (("", 0), ("sys.exit(3)", 3), ("raise RuntimeError('oh')", 1)):
            for server in (url, NOWHERE):
                with self.subTest(ending=ending, server=server):
                    result = world.python(self.SCRIPT + ending, server)
                    self.assertEqual(result.returncode, code, result.stderr)
                    self.assertNotRegex(result.stderr, "Fatal|Exception ignored|core dumped")
                    self.assert_clocks_are_back()

    END = ("import multiprocessing, os, signal, sys, threading, time\n"
           "from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer\n"
           "url, key, rank, world = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])\n"
           "def make():\n"
           "    global kept\n"
           "    kept = PipelineFrequencyOptimizer(rank, 0, rank, 0, 0, 1, world, 1, world, url,\n"
           "                                      job_key=key, leave_clocks_alone=True)\n"
           "    while kept.status().state == 'registering': time.sleep(0.01)\n"
           "def fail():\n"
           "    make()\n"
           "    raise RuntimeError('loss is NaN')\n"
           "def work(method):\n"
           "    worker = multiprocessing.get_context(method).Process(target=fail)\n"
           "    worker.start(); worker.join(); sys.exit(worker.exitcode)\n")
    ENDS = {  # the last statements of the script: (exit code, last line of output)
        "make()": (0, None),
        "fail()": (1, "RuntimeError: loss is NaN"),
        "make(); sys.exit(7)": (7, None),
        "make(); sys.exit('enough')": (1, "enough"),
        "make(); raise KeyboardInterrupt": (-2, "KeyboardInterrupt"),
        "make(); os.kill(os.getpid(), signal.SIGINT); time.sleep(1000)": (-2, "KeyboardInterrupt"),
        "t = threading.Thread(target=fail); t.start(); t.join(); 1 / 0":
            (1, "ZeroDivisionError: division by zero"),
        "work('fork')": (1, "RuntimeError: loss is NaN"),
    }

    TRIES = range(5)  # a try that fails waits for 5 s

    def test_the_server_hears_of_every_end_that_python_controls(self):
        started = self.start(plan=training.plan(1))
        for ending, (code, last) in self.ENDS.items():
            with self.subTest(ending=ending):
                self.assertTrue(attempt(lambda _: self.end_comes(started, ending, code, last), bool, self.TRIES),
                                "the server has not heard of the end")

    def end_comes(self, started, ending, code, last):
        """Runs a process of a job of its own. Returns whether the server hears of its end."""
        count = len(started.get("/jobs").json["jobs"])
        url, key = f"http://127.0.0.1:{started.port}", f"job {count}"
        result = world.python(self.END + ending, url, key, 0, 1)
        self.assertEqual(result.returncode, code, result.stderr)
        if last is not None:
            self.assertEqual(result.stderr.splitlines()[-1], last)
        self.assertNotRegex(result.stderr, "Exception ignored|Fatal")
        jobs = started.get("/jobs").json["jobs"]
        self.assertEqual(len(jobs), count + 1)
        path = f"/jobs/{jobs[0]['job_id']}"
        return self.comes(lambda: started.get(path).json["state"] == "ended")

    def comes(self, condition):
        """Returns whether it comes soon. A process tries to tell the server of its end for a second,
        which is too short on a busy machine, so the tests of this message try again."""
        return self.machine.wait_for(condition, 5) is not None

    def test_a_rank_that_raises_has_ended_and_the_other_goes_on(self):
        started = self.start(plan=training.plan(2))
        self.assertTrue(attempt(lambda number: self.both_ends_come(started, f"attempt {number}"), bool,
                                self.TRIES),
                        "the server has not heard of the ends")

    def both_ends_come(self, started, key):
        url = f"http://127.0.0.1:{started.port}"
        other = subprocess.Popen(
            [sys.executable, "-c", self.END + "make(); sys.stdin.read()", url, key, "1", "2"],
            stdin=subprocess.PIPE)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        result = world.python(self.END + "fail()", url, key, 0, 2)
        self.assertEqual(result.returncode, 1, result.stderr)
        job = started.get("/jobs").json["jobs"][0]["job_id"]
        states = lambda: [rank.get("state") for rank in started.get(f"/jobs/{job}").json["ranks"]]
        if not self.comes(lambda: states()[0] == "ended"):
            return False
        self.wait_until(lambda: started.get(f"/jobs/{job}").json["ranks_registered"] == 2,
                        "the other rank has not registered")
        self.assertEqual(states()[0], "ended")
        self.assertNotEqual(states()[1], "ended")
        other.communicate(timeout=training.LIMIT_S)
        if not self.comes(lambda: states()[1] == "ended"):
            return False
        self.assertEqual(states(), ["ended", "ended"])
        self.assertEqual(started.get(f"/jobs/{job}").json["state"], "ended")
        return True

    def test_a_server_that_does_not_answer_neither_holds_nor_hides_the_exception(self):
        for ending in ("fail()", "work('fork')"):
            with self.subTest(ending=ending):
                asked, written = attempt(lambda _: self.fail_without_answers(ending),
                                         lambda told: told[1], self.TRIES)
                self.assertEqual([one for one in asked if one.startswith("/end")], ["/end/job"])
                self.assertIn("RuntimeError: loss is NaN", written[0])  # before it asked

    def fail_without_answers(self, ending):
        """Returns the requests, and what the process had written at those of its end."""
        url, path, asked, written = self.serve_without_answers()
        with open(path, "w", encoding="utf-8") as errors:
            result = subprocess.run([sys.executable, "-c", self.END + ending, url, "stuck", "0", "1"],
                                    stderr=errors, timeout=training.LIMIT_S, check=False)
        self.assertEqual(result.returncode, 1)
        self.comes(lambda: written)
        return asked, written

    def serve_without_answers(self):
        """Starts a server that does not answer the requests for schedules and of the end. Returns its
        URL, a path, the requests, and what the file at the path contained at requests of the end."""
        asked, written, over = [], [], threading.Event()
        path = folder(self.addCleanup) / "stderr"

        def answer(target):
            asked.append(target)
            if target.startswith("/end"):
                written.append(path.read_text(encoding="utf-8"))
            if target.startswith(("/end", "/schedule")):
                over.wait()
            return 200, "job" if target.startswith("/register_job") else None

        stuck = FakeServer(answer)
        self.addCleanup(stuck.close)
        self.addCleanup(over.set)
        return stuck.url, path, asked, written

    def test_callbacks_wait_for_nothing(self):
        """bench/python_overhead.py measures the time of these calls."""
        one = self.optimizer(self.serve(names=["forward"] * 2000), iterations=1000)
        one.wait_for_round(0, training.LIMIT_S)
        waits = lambda: resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        waited = 0
        one.on_step_begin()
        for _ in range(2000):
            before = waits()
            one.on_instruction_begin("forward")
            one.on_instruction_end("forward")
            waited += waits() > before
        one.on_step_end()
        self.assertLess(waited, 20)  # the interpreter may wait for its own lock
        self.assertEqual(one.status().misfits, 0)
