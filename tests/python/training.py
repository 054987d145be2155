# SPDX-License-Identifier: Apache-2.0
"""The common part of the tests of pipeline-parallel training: a real `harpe serve` with a plan,
emulated GPUs, training loops, and the log of the optimizer."""
import ctypes
import logging
import sys
import time

import world

sys.path.append(str(world.SOURCE / "tests" / "server"))
import server  # noqa: E402

LIMIT_S = 300
LOGGER = "harpe.pipeline_frequency"
STEP = ["forward", "forward", "backward", "backward"]


def plan(ranks, names=None):
    """Returns the instructions of each rank. None has the highest clock."""
    return [[(name, 1200 - 15 * rank) for name in (names or STEP)] for rank in range(ranks)]


def run_step(callback, names=None):
    callback.on_step_begin()
    for name in names or STEP:
        callback.on_instruction_begin(name)
        time.sleep(0.001)
        callback.on_instruction_end(name)
    callback.on_step_end()


class Lines(logging.Handler):
    """Collects the lines of the optimizers' log while it is open."""

    def __init__(self):
        super().__init__()
        self.lines = []
        logger = logging.getLogger(LOGGER)
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def emit(self, record):
        if record.levelno >= logging.INFO:
            self.lines.append(record.getMessage())

    def close(self):
        logging.getLogger(LOGGER).removeHandler(self)
        super().close()

    def having(self, text):
        return [line for line in self.lines if text in line]


class TrainingTest(server.ServerTest, world.MachineTest):
    """One emulated machine for all tests of a class, and a server if a test starts one."""

    gpus, time_scale = "2xA100", 20

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lowest_mhz = cls.clock(0)

    def setUp(self):
        super().setUp()
        self.log = Lines()
        self.addCleanup(self.log.close)

    @classmethod
    def clock(cls, gpu):
        """Returns the clock in MHz. An idle GPU is at its lowest clock, unless a clock is
        locked."""
        mhz = ctypes.c_uint()
        cls.machine._must(cls.machine.nvml.nvmlDeviceGetClockInfo(
            cls.machine.handles[gpu], 0, ctypes.byref(mhz)))
        return mhz.value

    def serve(self, ranks=1, names=None, scheduler="PointSolution"):
        """Starts a server with a plan for this number of ranks. Returns its URL."""
        started = self.start(plan=plan(ranks, names), scheduler=scheduler)
        return f"http://127.0.0.1:{started.port}"

    def optimizer(self, url, rank=0, ranks=1, **options):
        from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer
        more = dict({"iterations": 2, "warmup_iterations": 0}, **options)
        made = PipelineFrequencyOptimizer(rank, 0, rank, 0, rank, 1, ranks, 1, ranks, url, **more)
        self.addCleanup(made.close)
        return made

    def wait_until(self, condition, what, meanwhile=lambda: time.sleep(0.01)):
        end = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"{what}; the log: {self.log.lines}")
            meanwhile()

    def assert_clocks_are_back(self, gpu=0):
        self.wait_until(lambda: self.clock(gpu) == self.lowest_mhz, f"GPU {gpu} is still locked")
