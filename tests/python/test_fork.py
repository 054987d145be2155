# SPDX-License-Identifier: Apache-2.0
"""Children of a training process (workers that load data, by fork and by spawn): they neither
inherit nor disturb the optimizer, the controller and the GPU's clocks, and log nothing."""
import importlib.util
import multiprocessing
import os
import signal
import time
import unittest

import training
import world

from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer

CHILD = """
import logging, os, sys, time
from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer
logging.basicConfig(level=logging.DEBUG, format="%(process)d %(name)s %(message)s")
one = PipelineFrequencyOptimizer(0, 0, 0, 0, 0, 1, 1, 1, 1, sys.argv[1])
print(os.getpid(), flush=True)
child = os.fork()
if child == 0:
    one.on_step_begin()
    one.on_instruction_begin("forward")
    one.close()
    del one  # and then to the end of the script, as any process
else:
    os.waitpid(child, 0)
    print(one.status().state, flush=True)
"""


STORM = world.BUILD / "tests" / "log_storm.so"

# Log lines of a C thread: the parent forks while one is being written.
FORK_DURING_LINE = """
import ctypes, os, sys, threading, time
from harpe._library import log_to
import logging  # later: the order of the hooks at forks does not depend on it

entered, forking = threading.Event(), threading.Event()
lines_under_way = 0

class Slow(logging.Handler):
    def emit(self, record):
        global lines_under_way
        lines_under_way += 1
        entered.set()
        forking.wait()  # longer than a fork takes that does not wait
        time.sleep(0.2)
        logging.getLogger("another")  # needs a lock that logging holds during a fork
        lines_under_way -= 1

logging.getLogger("test").addHandler(Slow())
logging.getLogger("test").setLevel(logging.DEBUG)
log = log_to("test")
storm = ctypes.CDLL(sys.argv[1])
os.register_at_fork(before=forking.set)  # runs first
storm.log_storm_begin(ctypes.byref(log))
entered.wait()
child = os.fork()
if child == 0:
    os._exit(lines_under_way)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
storm.log_storm_end()
"""

# At scale 5, there are 500 forks.
FORK_DURING_MANY_LINES = """
import ctypes, logging, os, signal, sys, time
from harpe._library import log_to

logging.basicConfig(level=logging.DEBUG)
log = log_to("test")
storm = ctypes.CDLL(sys.argv[1])
storm.log_storm_begin(ctypes.byref(log))
for _ in range(400 if os.environ.get("HARPE_TEST_SCALE") else 100):
    child = os.fork()
    if child == 0:
        logging.error("the child says a line and ends as any process")
        sys.exit(0)
    give_up_at = time.monotonic() + 200
    ended = 0
    while not ended:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended and time.monotonic() > give_up_at:
            os.kill(child, signal.SIGKILL)
            print("a child hangs", file=sys.stderr, flush=True)
            os._exit(1)
        time.sleep(0.001)
    if status:
        sys.exit(f"a child ends with {status}")
storm.log_storm_end()
"""


class Loader:
    """A data set that holds the optimizer, in a worker: calls all its functions."""

    def __init__(self, callback):
        self.callback = callback

    def __len__(self):
        return 8

    def __getitem__(self, index):
        training.run_step(self.callback)
        state = self.callback.status().state
        self.callback.on_train_end()
        return index if state == "off" else -1


def load(loader):
    return [loader[index] for index in range(2)]


class Children(training.TrainingTest):
    """The clock is locked before, during and after the work of the children, and rounds go on."""

    def setUp(self):
        super().setUp()
        self.one = self.optimizer(self.serve(), job_key=self.id())
        self.one.wait_for_round(0, training.LIMIT_S)
        training.run_step(self.one)
        self.wait_until(lambda: self.clock(0) == 1200, "the plan's clock is not set")

    def assert_undisturbed(self):
        before = self.one.status()
        for _ in range(20):
            self.assertEqual(self.clock(0), 1200)
            time.sleep(0.01)
        self.wait_until(lambda: self.one.status().round > before.round, "rounds do not go on",
                        lambda: training.run_step(self.one))
        self.assertEqual(self.one.status().reconnects, 0)
        self.assertEqual(self.log.having("controlled"), [])

    def in_child(self, work):
        """Forks. The child runs the function and exits with the code that it returns."""
        child = os.fork()
        if child == 0:
            os._exit(work() or 0)
        end = time.monotonic() + training.LIMIT_S
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)

    def test_a_forked_child_has_an_optimizer_that_is_off(self):
        def work():
            training.run_step(self.one)
            state = self.one.status().state
            self.one.close()
            return 0 if state == "off" else 1
        self.assertEqual(self.in_child(work), 0)
        self.assert_undisturbed()

    def test_a_killed_child_disturbs_nothing(self):
        self.assertEqual(self.in_child(lambda: os.kill(os.getpid(), signal.SIGKILL)),
                         -signal.SIGKILL)
        self.assert_undisturbed()

    def test_a_forked_child_can_have_an_optimizer_of_its_own(self):
        url = self.one.server_url

        def work():
            own = PipelineFrequencyOptimizer(0, 0, 0, 0, 1, 1, 1, 1, 1, url, job_key="own")
            own.wait_for_round(0, training.LIMIT_S)
            training.run_step(own)
            state = own.status().state
            own.close()
            return 0 if state != "off" else 1
        self.assertEqual(self.in_child(work), 0)
        self.assert_undisturbed()

    def test_workers_of_multiprocessing_disturb_nothing(self):
        for method in ("fork", "spawn"):
            with self.subTest(method):
                context = multiprocessing.get_context(method)
                with context.Pool(2) as pool:
                    self.assertEqual(pool.map_async(load, [Loader(self.one)] * 2)
                                     .get(training.LIMIT_S), [[0, 1]] * 2)
                self.assert_undisturbed()

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_workers_of_a_data_loader_disturb_nothing(self):
        from torch.utils.data import DataLoader
        for method in ("fork", "spawn"):
            with self.subTest(method):
                loader = DataLoader(Loader(self.one), batch_size=2, num_workers=2,
                                    multiprocessing_context=method, timeout=training.LIMIT_S)
                seen = []
                for batch in loader:
                    training.run_step(self.one)
                    seen += batch.tolist()
                self.assertEqual(seen, list(range(8)))
                self.assert_undisturbed()


class Log(training.TrainingTest):
    def test_a_child_says_nothing_and_its_end_is_clean(self):
        for url in (self.serve(), "http://127.0.0.1:9"):
            result = world.python(CHILD, url)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = result.stdout.splitlines()
            self.assertEqual(len(lines), 2, result.stdout)
            self.assertNotIn("off", lines[1])
            for line in result.stderr.splitlines():
                self.assertTrue(line.startswith(lines[0] + " "), result.stderr)
            self.assert_clocks_are_back()

    def test_a_fork_waits_for_a_line_that_a_thread_of_the_library_writes(self):
        result = world.python(FORK_DURING_LINE, STORM)
        self.assertEqual((result.stdout, result.returncode), ("0\n", 0), result.stderr)

    def test_children_do_not_hang_when_threads_of_the_library_log(self):
        result = world.python(FORK_DURING_MANY_LINES, STORM)
        self.assertEqual(result.returncode, 0, result.stderr[-2000:])
