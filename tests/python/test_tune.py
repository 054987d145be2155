# SPDX-License-Identifier: Apache-2.0
"""harpe.tune() and harpe.step(), and the callbacks with knob="clock", on emulated GPUs. The choice itself is
tested in tests/tune."""
import ctypes
import gc
import logging
import math
import os
import pickle
import time
import types
import unittest
from unittest import mock

import world
from fixtures import folder
from step_memory import StepMemory

import harpe
from harpe.integrations import _power_limit
from harpe.tuning import Tuning, TuningReport

LOGGER = "harpe.tune"
LIMIT_S = 300


class TuneTest(world.MachineTest):
    gpus, time_scale = "2xA100", 200

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.machine.nvml.harpe_emulator_work.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.c_double,
                                                         ctypes.c_void_p]

    def setUp(self):
        ranks = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "RANK", "HARPE_STEP_MEMORY")
        patch = mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        [os.environ.pop(name, None) for name in ranks]
        self.found = self.locked()

    def locked(self):
        """Returns the clocks of the idle GPUs. Without a context they are at their lowest unless a clock is locked."""
        clocks = []
        for gpu, handle in enumerate(self.machine.handles):
            mhz = ctypes.c_uint()
            self.machine._must(self.machine.nvml.harpe_emulator_close_context(gpu))
            self.machine._must(self.machine.nvml.nvmlDeviceGetClockInfo(handle, 0, ctypes.byref(mhz)))
            clocks.append(mhz.value)
        return clocks

    def assert_restored(self):
        self.assertIsNotNone(self.machine.wait_for(lambda: self.locked() == self.found, LIMIT_S))

    def work(self):
        """Half an emulated second of work on both GPUs, and its mark."""
        for gpu in range(2):
            self.machine._must(self.machine.nvml.harpe_emulator_work(gpu, 0.5, 1.0, None))
        harpe.step()

    def work_until_set(self, tuning):
        """Works until the tuning has set the GPUs and measured. A busy machine may make work too uneven later."""
        end = time.monotonic() + LIMIT_S
        while tuning.report().phase == "waiting":
            self.assertLess(time.monotonic(), end)
            self.work()


class Program(TuneTest):
    def test_a_program_is_tuned_and_the_gpus_are_restored(self):
        before = self.machine.writes()
        with harpe.tune() as tuning:
            self.assertEqual(tuning.report().phase, "waiting")
            self.work_until_set(tuning)
            self.assertGreater(self.machine.writes(), before)
            self.assertIn("the program's marks", str(tuning.report()))
        report = tuning.report()
        self.assertNotEqual(report.phase, "waiting")
        self.assertTrue(report.is_restored)
        self.assertGreater(report.work, 1)
        self.assertGreater(report.energy_j, 0)
        self.assert_restored()
        tuning.close()
        self.assertEqual(tuning.report(), report)

    def test_units_are_counted(self):
        with harpe.tune(dry_run=True) as tuning:
            end = time.monotonic() + LIMIT_S
            while tuning.report().meter is None:
                harpe.step()
                time.sleep(0.01)
                self.assertLess(time.monotonic(), end)
            before = tuning.report().work
            harpe.step(1000)
        self.assertGreaterEqual(tuning.report().work, before + 1000)
        self.assertFalse(tuning.report().is_restored)

    def test_marks_without_a_tuning_do_nothing(self):
        harpe.step()
        harpe.step(units=3)

    def test_garbage_and_the_end_of_the_process_restore(self):
        tuning = harpe.tune()
        self.work_until_set(tuning)
        del tuning
        gc.collect()
        self.assert_restored()
        done = world.python("import harpe, time\ntuning = harpe.tune()\n"
                            "for _ in range(50):\n    harpe.step(); time.sleep(0.01)\n")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assert_restored()

    def test_a_forked_child_leaves_the_tuning_alone(self):
        with harpe.tune() as tuning:
            child = os.fork()
            if child == 0:
                harpe.step()
                tuning.close()
                os._exit(tuning.report().phase != "stopped")
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.work_until_set(tuning)
        self.assertTrue(tuning.report().is_restored)

    def test_a_second_tuning_ends_the_first(self):
        first = harpe.tune()
        with self.assertLogs(LOGGER, logging.WARNING) as log, harpe.tune() as second:
            self.assertEqual(second.report().phase, "waiting")
            self.assertIsNone(first._session.tuning)
        self.assertIn("an earlier tuning", log.output[0])

    def test_wrong_arguments(self):
        for arguments in ({"knob": "fan"}, {"knob": ""}, {"aim": "speed"}, {"max_slowdown": 0},
                          {"max_slowdown": math.nan}, {"eta": 2}, {"rate_url": "http://127.0.0.1:1/"},
                          {"rate": "tokens"}, {"latency": "x"}, {"gpu_indices": []}, {"gpu_indices": [2]},
                          {"save": "a\0b"}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                harpe.tune(**arguments)

    def test_a_result_is_saved_only_when_there_is_one(self):
        path = folder(self.addCleanup) / "choice.json"
        harpe.tune(save=path).close()
        self.assertFalse(path.exists())
        path.write_text("nonsense")
        with self.assertRaises(ValueError):
            harpe.tune(save=path)


class ElseWhere(TuneTest):
    """Processes that must not tune, and go on."""

    def stays_away(self, reason, **environment):
        os.environ.update(environment)
        with self.assertLogs(LOGGER, logging.INFO) as log, harpe.tune() as tuning:
            harpe.step()
            self.assertEqual(tuning.report().phase, "stopped")
        self.assertRegex(log.output[-1], reason)
        self.assertRegex(str(tuning.report()), f"^stopped: .*{reason}")

    def test_no_gpu(self):
        self.stays_away("NVML", HARPE_NVML_LIBRARY="/nowhere/libnvidia-ml.so.1")

    def test_the_second_rank(self):
        self.stays_away("the first rank", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2", WORLD_SIZE="2")

    def test_several_machines(self):
        self.stays_away("several machines", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2", WORLD_SIZE="4")

    def test_ranks_with_a_gpu_each(self):
        self.stays_away("use harpe tune", LOCAL_RANK="0", LOCAL_WORLD_SIZE="4", WORLD_SIZE="4")

    def test_the_first_rank_tunes_all(self):
        os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="2", WORLD_SIZE="2")
        with harpe.tune() as tuning:
            self.assertEqual(tuning.report().phase, "waiting")
            self.assertEqual(harpe.lib.harpe_gpus_count(tuning._session.gpus), 2)

    def test_a_command_that_tunes_itself(self):
        memory = StepMemory()
        self.addCleanup(memory.close)
        done = world.python("import harpe, logging\nlogging.basicConfig(level=logging.INFO)\n"
                            "with harpe.tune() as tuning:\n    harpe.step(); harpe.step(4)\n"
                            "print(tuning.report())\n", HARPE_STEP_MEMORY=memory.name())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the command that runs this program", done.stdout)
        self.assertEqual((memory.steps, memory.source), (5, "marks"))


class Report(unittest.TestCase):
    def test_a_line_for_people(self):
        report = TuningReport("settled", meter="marks", clock_mhz=1095, saved=0.241, saved_error=0.01,
                              slowdown=0.008, slowdown_error=0.003)
        self.assertEqual(str(report), "settled: 1095 MHz; 24.1 ± 1.0 % of the energy saved, 0.8 ± 0.3 % slower; "
                                      "work is measured by marks")
        self.assertEqual(str(TuningReport("waiting")), "waiting: no setting is chosen")
        self.assertEqual(str(TuningReport("settled", clock_mhz=1, power_limit_w=2)), "settled: 1 MHz, 2 W")


class Callbacks(TuneTest):
    """The loops of frameworks, on stand-ins; the frameworks themselves are in tests/frameworks."""

    def test_steps_of_a_trainer_are_counted(self):
        one = _power_limit.limiter_for(None, {"knob": "clock"})
        one.begin(None)
        self.assertIsNone(one.optimizer)
        self.assertEqual(one.tuning.report().phase, "waiting")
        with mock.patch.object(harpe, "step", one.step_begins):
            self.work_until_set(one.tuning)
        one.interrupted()
        one.is_active()
        self.assertIsNone(pickle.loads(pickle.dumps(one)).tuning)
        one.end()
        self.assert_restored()
        with self.assertLogs(LOGGER, logging.WARNING) as log:
            one.give_back("the training has ended with KeyboardInterrupt")
        self.assertIn("KeyboardInterrupt: the GPUs are restored", log.output[0])

    def test_a_wrong_option_is_a_line(self):
        one = _power_limit.limiter_for(None, {"knob": "fan"})
        with self.assertLogs(LOGGER, logging.WARNING) as log:
            one.begin(None)
        one.step_begins()
        one.end()
        self.assertIn("knob 'fan' must be", log.output[0])

    def test_accelerate(self):
        from harpe.integrations.accelerate import PowerLimit
        accelerator = types.SimpleNamespace(device=None, local_process_index=0, num_processes=1,
                                            sync_gradients=True)
        with PowerLimit(accelerator, knob="clock", max_slowdown=0.05) as limit:
            limit.step()
            limit.end_epoch()
            self.assertIsNone(limit.optimizer)
            self.assertIsInstance(limit.tuning, Tuning)
        self.assertIsNone(limit.tuning._session.tuning)
