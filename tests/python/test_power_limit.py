# SPDX-License-Identifier: Apache-2.0
"""The power limit optimizer through its Python classes: replayed measured logs, a user's selectors
and their exceptions, what is restored and when, other processes, the Trainer's callback."""
import gc
import importlib.util
import inspect
import json
import logging
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import world
import kills
from frameworks import Trainer
import oracle
from fixtures import folder
from harpe import _bindings as b
from harpe.callback import CallbackSet
from harpe.monitor import Measurement, ZeusMonitor
from harpe.optimizer.power_limit import (Done, Energy, GlobalPowerLimitOptimizer,
                                         HFGlobalPowerLimitOptimizer, MaxSlowdownConstraint,
                                         OptimumSelector, PowerLimitMeasurement,
                                         PowerLimitMeasurementList, Profiling, Ready, Time, Warmup,
                                         ZeusCost, session)

LOGS = world.DATA / "power_limit"
LOGGER = logging.getLogger("harpe.power_limit")
SHORT = {"wait_steps": 0, "warmup_steps": 1, "profile_steps": 2, "pl_step": 100}

TRAINER = """
import os, sys, time
from harpe.monitor import ZeusMonitor
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer
optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(gpu_indices=[0], cpu_indices=[]), wait_steps=0,
                                      warmup_steps=0, profile_steps=1, pl_step=100)
for step in range(3):
    optimizer.on_step_begin()
    time.sleep(0.001)
print("optimizing", flush=True)
"""

RANK = """
import sys
from torch import distributed
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer
rank = int(sys.argv[2])
distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
class Monitor:
    gpu_indices = [9 * rank]
GlobalPowerLimitOptimizer(Monitor())
"""


# The data set contains the optimizer and its monitor, and uses both in its workers.
LOADER = """
import os, sys
import torch
from harpe import UnavailableError
from harpe.monitor import ZeusMonitor
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer

class Data(torch.utils.data.Dataset):
    def __init__(self, optimizer):
        self.optimizer = optimizer
    def __len__(self):
        return 40
    def __getitem__(self, index):
        self.optimizer.on_step_begin()
        self.optimizer.on_epoch_end()
        try:
            self.optimizer.monitor.begin_window(str(index))
        except UnavailableError:
            return os.getpid()

if __name__ == "__main__":
    monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[], approx_instant_energy=True)
    optimizer = GlobalPowerLimitOptimizer(monitor, wait_steps=0, warmup_steps=1, profile_steps=2, pl_step=100)
    for method in ("fork", "spawn"):
        workers = set()
        loader = torch.utils.data.DataLoader(Data(optimizer), batch_size=4, num_workers=2,
                                             multiprocessing_context=method)
        for batch in loader:
            optimizer.on_step_begin()
            workers |= set(batch.tolist())
        assert len(workers) == 2 and os.getpid() not in workers, workers
        print(optimizer.is_done, optimizer.current_power_limit, len(optimizer.measurements), flush=True)
"""


class FakeGpus:
    """GPUs with the limits of a measured log, in place of session.Gpus. Records the limits that are
    set."""

    def __init__(self, minimum_w, maximum_w, count=1):
        self.sets, self.restored, self.model, self.uuids = [], 0, b"Fake", []
        self.device = b.harpe_power_limit_device(gpu_count=count, minimum_w=minimum_w, maximum_w=maximum_w)
        kinds = dict(b.harpe_power_limit_device._fields_)
        self.device.set_limit = kinds["set_limit"](self._set)
        self.device.restore = kinds["restore"](self._restore)

    def _set(self, _user, limit_w, _error):
        self.sets.append(limit_w)
        return b.HARPE_OK

    def _restore(self, _user, _error):
        self.restored += 1
        return b.HARPE_OK

    def close(self):
        pass


def run(optimizer, steps, epoch_steps=0):
    """A training loop that ends after `steps` steps."""
    loop = CallbackSet([optimizer])
    loop.on_train_begin()
    for step in range(1, steps + 1):
        loop.on_step_begin()
        loop.on_step_end()
        if epoch_steps and step % epoch_steps == 0:
            loop.on_epoch_end()
            loop.on_epoch_begin()


class Lowest(OptimumSelector):
    """A user's own selector."""

    def select(self, measurements):
        self.seen = measurements
        return min(one.power_limit for one in measurements)


class Broken(OptimumSelector):
    def select(self, measurements):
        raise KeyError("a mistake of the user's")


@unittest.skipUnless(LOGS.is_dir(), f"no measured logs: HARPE_DATA names the folder (not {world.DATA})")
class Replay(unittest.TestCase):
    def setUp(self):
        self.profile = folder(self.addCleanup) / "profile.json"

    def optimizer(self, log, selector=None, **arguments):
        measured, count = oracle.read_log(log)
        gpus = FakeGpus(min(measured), max(measured), count)
        with mock.patch.object(session, "Gpus", lambda indices: gpus):
            return GlobalPowerLimitOptimizer(world.ReplayMonitor(log), selector, **arguments), gpus

    def test_a_profile_is_written_and_read(self):
        log = LOGS / "V100+resnet18+gpu0.csv"
        optimizer, _ = self.optimizer(log, profile_path=self.profile)
        run(optimizer, 500)
        profile = json.loads(self.profile.read_text(encoding="utf-8"))
        self.assertEqual([one["power_limit"] for one in profile["measurements"]],
                         [250, 225, 200, 175, 150, 125, 100])
        optimizer, gpus = self.optimizer(log, Energy(), profile_path=str(self.profile))
        self.assertTrue(optimizer.is_done)
        run(optimizer, 100, 10)
        self.assertEqual(gpus.sets, [125])
        with self.assertRaisesRegex(KeyError, "mistake"):
            self.optimizer(log, Broken(), profile_path=self.profile)

    def test_selectors_can_be_asked_directly(self):
        measurements = [PowerLimitMeasurement(200, 100.0, 1.0), PowerLimitMeasurement(100, 60.0, 1.5)]
        self.assertEqual([selector.select(measurements) for selector in
                          (Energy(), Time(), ZeusCost(0.5), MaxSlowdownConstraint(1.5))], [100, 200, 200, 100])
        for wrong in (lambda: ZeusCost(1.1), lambda: ZeusCost(-0.1), lambda: ZeusCost(0.5, 0),
                      lambda: MaxSlowdownConstraint(0.9), lambda: Energy().select([])):
            with self.assertRaises(ValueError):
                wrong()


def train_in_child(optimizer, answers):
    run(optimizer, 100, 10)
    answers.put((optimizer.is_done, optimizer.current_power_limit))
    optimizer.close()


class OnGpus(world.MachineTest):
    """On emulated GPUs, whose limits are read back from the driver."""

    def setUp(self):
        self.machine.set_limit(0, 231000)  # the original limit need not be the default
        self.found = self.machine.state()
        self.addCleanup(lambda: self.assertEqual(self.machine.state(), self.found))

    def limits(self):
        return [limit // 1000 for limit, _ in self.machine.state()]

    def optimizer(self, selector=None, gpus=(0,), **arguments):
        optimizer = GlobalPowerLimitOptimizer(Steady(gpus), selector, **{**SHORT, **arguments})
        self.addCleanup(optimizer.close)
        return optimizer

    @unittest.skipUnless(LOGS.is_dir(), "no measured logs")
    def test_a_measured_log_replayed_on_four_gpus(self):
        log = LOGS / "A40+resnet18+gpu0,1,2,3.csv"
        measured, count = oracle.read_log(log)
        optimizer = GlobalPowerLimitOptimizer(world.ReplayMonitor(log), MaxSlowdownConstraint(1.0))
        seen = [self.limits()]
        for step in range(1, 501):
            optimizer.on_step_begin()
            if step % 190 == 0:
                optimizer.on_epoch_end()
            if self.limits() != seen[-1]:
                seen.append(self.limits())
        events, _ = oracle.course(oracle.limits_to_try(100, 300), 275, lambda step: step % 190 == 0, 500)
        self.assertEqual(seen, [[w] * count for what, w in events if what == "set"])
        optimizer.close()
        self.assertEqual(self.machine.state(), self.found)

    def test_a_monitors_windows_are_in_its_log(self):
        log = folder(self.addCleanup) / "log.csv"
        monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[], log_file=log, approx_instant_energy=True)
        optimizer = GlobalPowerLimitOptimizer(monitor, Energy(), **SHORT)
        for _ in range(20):
            optimizer.on_step_begin()
            signal.sigtimedwait([], 0.001)
        self.assertTrue(optimizer.is_done)
        optimizer.close()
        self.assertEqual(optimizer.power_limits, [300000, 200000, 100000])
        names = [line.split(",")[1] for line in log.read_text().splitlines()[1:]]
        self.assertEqual(names, [f"__GlobalPowerLimitOptimizer_{w}" for w in (300, 200, 100)])

    def test_only_the_monitors_gpus_are_set(self):
        optimizer = self.optimizer(Lowest(), gpus=(3, 1))
        run(optimizer, 20)
        self.assertEqual(self.limits(), [231, 100, 300, 100])

    def test_a_selector_of_ones_own(self):
        selector = Lowest()
        optimizer = self.optimizer(selector)
        run(optimizer, 20)
        self.assertEqual(optimizer.optimal_power_limit, 100)
        self.assertEqual([one.power_limit for one in selector.seen], [300, 200, 100])
        self.assertEqual(optimizer.measurements, selector.seen)

    def test_the_states_are_the_published_ones(self):
        optimizer = self.optimizer(Lowest())
        seen = []
        for step in range(12):
            state = optimizer.state
            if step in (0, 1, 3, 4):
                seen.append(state)
            optimizer.on_step_begin()
        self.assertEqual(SHORT, dict(wait_steps=0, warmup_steps=1, profile_steps=2, pl_step=100))
        self.assertEqual([type(one) for one in seen], [Ready, Warmup, Profiling, Warmup])
        self.assertEqual(seen, [
            {"next_power_limit": 300000, "steps": 1},
            {"current_power_limit": 300000, "steps": 1},
            {"current_power_limit": 300000, "steps": 1},
            {"current_power_limit": 200000, "steps": 1}])
        self.assertEqual(optimizer.state, Done(optimal_power_limit=100000))
        optimizer.on_epoch_end()
        self.assertIsInstance(optimizer.state, Done)
        optimizer.close()
        self.assertEqual(optimizer.state, Done(optimal_power_limit=100000))
        interrupted = self.optimizer(Lowest())
        run(interrupted, 5)
        interrupted.on_epoch_end()
        self.assertEqual(interrupted.state, Ready(next_power_limit=200000, steps=1))
        for kind, wrong in ((Ready, {"next_power_limit": 0, "steps": 1}), (Done, {}),
                            (Warmup, {"current_power_limit": 1000, "steps": 0}),
                            (PowerLimitMeasurement, {"power_limit": 100, "energy": 0, "time": 1})):
            with self.assertRaises(ValueError):
                kind(**wrong)

    def test_a_subclass_takes_part_in_each_step(self):
        calls = []

        class Own(GlobalPowerLimitOptimizer):
            def _set_power_limit(self, power_limit):
                calls.append(power_limit)
                super()._set_power_limit(power_limit)

            def _compute_optimal_power_limit(self):
                calls.append([one.power_limit for one in self.measurements])
                self.usual = super()._compute_optimal_power_limit()
                return 200000

            def _save_profile(self):
                calls.append(self.state)
                super()._save_profile()

        path = folder(self.addCleanup) / "profile.json"
        optimizer = Own(Steady((0,)), Lowest(), **SHORT, profile_path=path)
        self.addCleanup(optimizer.close)
        run(optimizer, 20)
        self.assertEqual(calls, [300000, 200000, 100000, [300, 200, 100], 200000,
                                 Done(optimal_power_limit=200000)])
        self.assertEqual((optimizer.usual, optimizer.optimal_power_limit), (100000, 200))
        self.assertEqual(self.limits()[0], 200)
        self.assertEqual(PowerLimitMeasurementList.parse_file(path).measurements,
                         optimizer.measurements)
        optimizer.close()
        calls.clear()
        loaded = Own(Steady((0,)), Lowest(), **SHORT, profile_path=path)
        self.addCleanup(loaded.close)
        self.assertEqual(calls, [[300, 200, 100], 200000])
        loaded.close()
        usual = self.optimizer(Lowest(), profile_path=path)
        self.assertEqual(usual.optimal_power_limit, 100)

    def test_a_step_of_a_subclass_sees_the_state_and_may_close(self):
        seen = []

        class Own(GlobalPowerLimitOptimizer):
            closes = False

            def _set_power_limit(self, power_limit):
                super()._set_power_limit(power_limit)
                seen.append((self.is_done, type(self.state).__name__))
                if self.closes:
                    self.close()

            def _compute_optimal_power_limit(self):
                seen.append((self.is_done, type(self.state).__name__))
                return super()._compute_optimal_power_limit()

        for warmup_steps in (0, 1):
            seen.clear()
            optimizer = Own(Steady((0,)), Lowest(), **{**SHORT, "warmup_steps": warmup_steps})
            self.addCleanup(optimizer.close)
            self.assertEqual(optimizer.power_limits, [300000, 200000, 100000])
            run(optimizer, 20)
            self.assertEqual(seen[1:], [(False, "Warmup")] * 2 + [(False, "Profiling")])
            self.assertTrue(optimizer.is_done)
            optimizer.close()
        closing = Own(Steady((0,)), Lowest(), **SHORT)
        Own.closes = True
        run(closing, 20)
        Own.closes = False
        self.assertIsNone(closing.current_power_limit)
        self.assertEqual(self.machine.state(), self.found)

    def test_a_profile_that_cannot_be_saved_stops_nothing(self):
        class Own(GlobalPowerLimitOptimizer):
            def _save_profile(self):
                super()._save_profile()

        optimizer = Own(Steady((0,)), Lowest(), **SHORT, profile_path="/nowhere/profile.json")
        self.addCleanup(optimizer.close)
        with self.assertLogs(LOGGER, logging.WARNING) as logs:
            run(optimizer, 20)
        self.assertIn("/nowhere", logs.output[0])
        self.assertTrue(optimizer.is_done)

    def test_what_a_step_of_a_subclass_raises_reaches_the_loop(self):
        for name in ("_set_power_limit", "_compute_optimal_power_limit"):
            optimizer = self.optimizer(Lowest())
            with mock.patch.object(GlobalPowerLimitOptimizer, name, side_effect=KeyError("mine")):
                with self.assertRaisesRegex(KeyError, "mine"):
                    run(optimizer, 20)
            self.assertEqual(self.machine.state(), self.found)

    def test_what_a_selector_raises_reaches_the_loop_with_the_limits_put_back(self):
        for selector, exception in ((Broken(), KeyError), (Answer(150), ValueError), (Answer(None), ValueError)):
            optimizer = self.optimizer(selector)
            steps = 0
            with self.assertRaises(exception), mock.patch.object(LOGGER, "log") as log:
                for steps in range(1, 30):
                    optimizer.on_step_begin()
            log.assert_not_called()
            # 3 limits with 3 steps each, and the step that ends the last
            self.assertEqual(steps, 10)
            self.assertEqual(self.machine.state(), self.found)
            self.assertIsNone(optimizer.current_power_limit)
            run(optimizer, 20, 5)
            self.assertEqual(self.machine.state(), self.found)

    def test_what_a_monitor_raises_reaches_the_loop_too(self):
        optimizer = self.optimizer()
        with mock.patch.object(Steady, "begin_window", side_effect=AssertionError("mine")):
            with self.assertRaisesRegex(AssertionError, "mine"):
                run(optimizer, 20)
        self.assertEqual(self.machine.state(), self.found)

    def test_a_measurement_that_cannot_be_true_stops_the_optimizer_not_training(self):
        optimizer = self.optimizer(gpus=(0, 1))
        with mock.patch.object(Steady, "end_window", return_value=Measurement(1.0, {0: 10.0, 1: 0.0})):
            with self.assertLogs(LOGGER, logging.ERROR) as logs:
                run(optimizer, 20)
        self.assertEqual(len(logs.output), 1)
        self.assertIn("GPU 1", logs.output[0])
        self.assertFalse(optimizer.is_done)
        self.assertEqual(self.machine.state(), self.found)

    def test_another_program_raises_the_limit(self):
        for steps in (7, 30):  # while 200 W are measured, and after the optimum is set
            optimizer = self.optimizer(Lowest())
            run(optimizer, steps)
            self.machine.set_limit(0, 300000)
            with self.assertLogs(LOGGER, logging.ERROR) as logs:
                end_s = time.monotonic() + 600
                while optimizer.state is not None and time.monotonic() < end_s:
                    optimizer.on_step_begin()
            self.assertEqual(len(logs.output), 1)
            self.assertRegex(logs.output[0], r"GPU 0 .* was set to [12]00 W, and is now 300 W")
            self.assertIsNone(optimizer.optimal_power_limit)
            self.assertEqual(self.machine.state(), self.found)
            optimizer.close()

    def test_bad_values_are_refused_and_nothing_is_set(self):
        for wrong in ({"wait_steps": -1}, {"warmup_steps": -1}, {"profile_steps": 0}, {"pl_step": 0},
                      {"gpus": (7,)}, {"gpus": ()}, {"profile_path": __file__}):
            with self.subTest(wrong), self.assertRaises(ValueError):
                self.optimizer(**wrong)
            self.assertEqual(self.machine.state(), self.found)

    def test_without_permission_construction_says_so(self):
        result = world.python(TRAINER, HARPE_EMULATOR_FAULTS="no_permission")
        self.assertIn("PermissionDeniedError", result.stderr)
        self.assertEqual(result.returncode, 1)

    def test_a_second_optimizer_ends_the_first(self):
        first = self.optimizer()
        with self.assertLogs(LOGGER, logging.WARNING):
            second = self.optimizer(gpus=(0, 1))
        self.assertIsNone(first.current_power_limit)
        first.close()
        self.assertEqual(self.limits()[:2], [300, 300])
        second.close()
        self.assertEqual(self.machine.state(), self.found)

    def test_limits_come_back_however_it_ends(self):
        for ending in ("", "optimizer.on_train_end(); os._exit(0)", "raise RuntimeError('training')",
                       "del optimizer; import gc; gc.collect(); os._exit(0)"):
            with self.subTest(ending):
                result = world.python(TRAINER + ending)
                self.assertEqual(result.stdout, "optimizing\n", result.stderr)
                self.assertEqual(self.machine.state(), self.found)
        with subprocess.Popen([sys.executable, "-c", TRAINER + "time.sleep(600)"],
                              stdout=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), b"optimizing\n")
            self.assertNotEqual(self.machine.state(), self.found)
            process.kill()
        self.assertIsNotNone(self.machine.wait_until(self.found, 300))

    def test_the_guard_of_a_second_optimizer_knows_what_the_first_found(self):
        script = TRAINER.replace('print("optimizing"', 'first = optimizer\noptimizer = GlobalPowerLimitOptimizer('
                                 'ZeusMonitor(cpu_indices=[]), wait_steps=0)\nprint("optimizing"')
        with subprocess.Popen([sys.executable, "-c", script + "time.sleep(600)"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as process:
            self.assertEqual(process.stdout.readline(), b"optimizing\n")
            self.assertEqual(self.limits(), [300] * 4)
            process.kill()
        self.assertIsNotNone(self.machine.wait_until(self.found, 300))

    # ---- Other processes ----

    def test_workers_neither_inherit_nor_disturb(self):
        optimizer = self.optimizer()
        optimizer.on_step_begin()
        optimizer.on_step_begin()
        held = self.machine.state()
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            answers = context.Queue()
            process = context.Process(target=train_in_child, args=(optimizer, answers))
            process.start()
            self.assertEqual(answers.get(timeout=300), (False, None))
            process.join(300)
            self.assertEqual(process.exitcode, 0)
            self.assertEqual(self.machine.state(), held)
        run(optimizer, 20)
        self.assertTrue(optimizer.is_done)

    def test_a_child_that_ends_like_any_script_disturbs_nothing(self):
        # Python 3.12 and newer warn of every fork beside a thread.
        result = world.python("import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n" +
                              TRAINER + "from harpe import lib\n"
                              "held = optimizer.current_power_limit\n"
                              "child = os.fork()\n"
                              "if child == 0:\n"
                              "    optimizer.on_step_begin(); optimizer.close(); sys.exit(0)\n"
                              "assert os.waitpid(child, 0)[1] == 0\n"
                              "import ctypes as C\n"
                              "gpus, limit = C.c_void_p(), C.c_uint32()\n"
                              "assert lib.harpe_gpus_open(None, C.byref(gpus), None) == 0\n"
                              "assert lib.harpe_gpu_power_limit(gpus, 0, C.byref(limit), None) == 0\n"
                              "assert limit.value == 1000 * held, (limit, held)")
        # On a busy machine, reading the counters can take long enough for a warning.
        lines = [line for line in result.stderr.splitlines() if "reading the counters took" not in line]
        self.assertEqual((result.returncode, lines), (0, []))

    def test_a_copy_is_inert(self):
        optimizer = self.optimizer()
        copy = pickle.loads(pickle.dumps(optimizer))
        run(copy, 10, 5)
        self.assertFalse(copy.is_done)
        self.assertEqual(copy.measurements, [])
        del copy
        self.assertEqual(self.limits()[0], 300)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_a_data_loaders_workers_neither_inherit_nor_disturb(self):
        script = folder(self.addCleanup) / "script.py"
        script.write_text(LOADER, encoding="utf-8")
        result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600,
                                check=False)
        # The two loaders have 20 batches, of which the optimum needs 10.
        first, second = result.stdout.splitlines()
        self.assertRegex(first, "True [123]00 3", result.stderr)
        self.assertEqual(second, first)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_a_rank_that_cannot_start_does_not_hold_the_others(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            processes = [subprocess.Popen([sys.executable, "-c", RANK, f"{folder}/meet", str(rank)],
                                          stderr=subprocess.PIPE, text=True) for rank in range(2)]
            said = []
            for process in processes:
                try:
                    said.append(process.communicate(timeout=600)[1])
                finally:
                    process.kill()
        self.assertIn("another rank could not start", said[0])
        self.assertIn("GPUs [9], but 4 are visible", said[1])

    # ---- Hugging Face ----

    def test_the_trainers_callback_has_the_same_constructor(self):
        self.assertEqual(inspect.signature(HFGlobalPowerLimitOptimizer.__init__),
                         inspect.signature(GlobalPowerLimitOptimizer.__init__))

    def test_a_trainer_finds_the_optimum_and_puts_limits_back(self):
        callback = HFGlobalPowerLimitOptimizer(Steady([0]), Lowest(), **SHORT)
        seen = []
        Trainer([callback], lambda: seen.append(self.limits()[0])).train(epochs=2, steps=8)
        # The first epoch ends during the measurement of the third limit.
        self.assertEqual(seen, [300, 300, 300, 200, 200, 200, 100, 100] + [100] * 8)
        self.assertEqual(callback.optimizer.optimal_power_limit, 100)
        self.assertEqual(self.machine.state(), self.found)
        with self.assertLogs(LOGGER, logging.WARNING):
            Trainer([callback], lambda: None).train(epochs=1, steps=2)

    def standin_trainer(self):
        """Puts a module in the place of transformers whose Trainer knows no exception. Returns
        harpe.integrations.transformers, and a function that makes a Trainer."""
        class WithArguments(Trainer):
            args = types.SimpleNamespace(device=None, local_process_index=0, world_size=1, n_gpu=0)

            @property
            def callback_handler(self):
                return self

            def event(self, name, **keywords):
                for callback in self.callbacks:
                    if hasattr(callback, name):
                        getattr(callback, name)(self.args, types.SimpleNamespace(global_step=0),
                                                None, **keywords)

        package, module = types.ModuleType("transformers"), types.ModuleType("transformers.trainer")
        package.TrainerCallback = type("TrainerCallback", (), {})
        package.trainer, module.Trainer = module, WithArguments
        patch = mock.patch.dict(sys.modules, {"transformers": package,
                                              "transformers.trainer": module})
        patch.start()
        self.addCleanup(patch.stop)
        from harpe.integrations import _power_limit, transformers
        patch = mock.patch.object(_power_limit, "ZeusMonitor",
                                  lambda gpu_indices, cpu_indices: Steady(gpu_indices))
        patch.start()
        self.addCleanup(patch.stop)
        return transformers, WithArguments

    def trainers_with_a_callback(self):
        """Yields Trainers with each kind of callback. Their steps call `at_step`."""
        ours, kind = self.standin_trainer()
        for make in (lambda: HFGlobalPowerLimitOptimizer(Steady([0]), Lowest(), **SHORT),
                     lambda: ours.PowerLimitCallback([0], optimum_selector=Lowest(), **SHORT)):
            self.at_step = lambda: None
            yield kind([make()], lambda: self.at_step())

    def test_an_exception_puts_limits_back(self):
        for error in (KeyboardInterrupt, RuntimeError("out of memory")):
            for trainer in self.trainers_with_a_callback():
                def at_step():
                    if self.limits()[0] < 300:
                        raise error
                self.at_step = at_step
                with self.subTest(type(trainer.callbacks[0]).__name__), \
                        self.assertLogs(LOGGER, logging.WARNING) as log, \
                        self.assertRaises((KeyboardInterrupt, RuntimeError)):
                    trainer.train(epochs=1, steps=100)
                self.assertEqual(self.machine.state(), self.found)
                self.assertRegex(log.output[-1], "the training has ended with (KeyboardInterrupt|"
                                 "RuntimeError): the original power limits are restored$")

    def test_the_next_training_begins_anew_after_an_exception(self):
        ours, kind = self.standin_trainer()
        seen = []

        def step():
            seen.append(self.limits()[0])
            if len(seen) == 5:
                raise RuntimeError("a broken sentence")
        callback = ours.PowerLimitCallback([0], optimum_selector=Lowest(), **SHORT)
        trainer = kind([callback], step)
        with self.assertLogs(LOGGER, logging.WARNING), self.assertRaises(RuntimeError):
            trainer.train(epochs=1, steps=100)
        seen.extend([None] * 5)
        trainer.train(epochs=2, steps=8)
        self.assertEqual((seen[10], seen[-1]), (300, 100))
        self.assertEqual(self.machine.state(), self.found)

    def test_close_and_with_put_limits_back(self):
        for leave in (lambda callback: callback.close(),
                      lambda callback: callback.__exit__(None, None, None)):
            for trainer in self.trainers_with_a_callback():
                seen, callback = [], trainer.callbacks[0]

                def at_step():
                    seen.append(self.limits()[0])
                    if seen[-1] < 300:
                        leave(callback)
                self.at_step = at_step
                with callback as entered:
                    self.assertIs(entered, callback)
                    trainer.train(epochs=1, steps=12)
                low = next(place for place, limit in enumerate(seen) if limit < 300)
                self.assertEqual(set(seen[low + 1:]), {self.found[0][0] // 1000})
                self.assertEqual(self.machine.state(), self.found)

    def test_a_loop_that_stands_still_puts_limits_back(self):
        ours, kind = self.standin_trainer()

        def step():
            if self.limits()[0] < 300:
                self.assertTrue(self.machine.wait_for(
                    lambda: self.machine.state() == self.found, kills.LIMIT_S) is not None)
        trainer = kind([ours.PowerLimitCallback([0], optimum_selector=Lowest(), idle_s=0.05,
                                                **SHORT)], step)
        with self.assertLogs(LOGGER, logging.WARNING) as log:
            trainer.train(epochs=1, steps=20)
        self.assertEqual(self.machine.state(), self.found)
        self.assertRegex(log.output[-1], "no step has begun for 0.05 s: the original power limits")

    def test_a_callback_that_is_deleted_puts_limits_back_while_it_is_watched(self):
        for trainer in self.trainers_with_a_callback():
            trainer.event("on_train_begin")
            for _ in range(5):
                trainer.event("on_step_begin")
            self.assertLess(self.limits()[0], 300)
            trainer.callbacks.clear()
            gc.collect()
            self.assertEqual(self.machine.state(), self.found)

    def test_transformers_is_used_where_it_is(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            pathlib.Path(folder, "transformers.py").write_text("class TrainerCallback:\n    pass\n")
            path = f"{folder}{os.pathsep}{os.environ['PYTHONPATH']}"
            result = world.python(
                "import sys, harpe.optimizer.power_limit as p\n"
                "assert 'transformers' not in sys.modules\n"
                "from harpe.integrations.transformers import HFGlobalPowerLimitOptimizer\n"
                "import transformers\n"
                "assert issubclass(p.HFGlobalPowerLimitOptimizer, transformers.TrainerCallback)\n"
                "assert p.HFGlobalPowerLimitOptimizer is HFGlobalPowerLimitOptimizer", PYTHONPATH=path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))


class Answer(OptimumSelector):
    def __init__(self, answer):
        self.answer = answer

    def select(self, measurements):
        return self.answer


class Steady:
    """A monitor in whose windows every GPU uses 100 J in 1 s."""

    def __init__(self, gpu_indices):
        self.gpu_indices = list(gpu_indices)

    def begin_window(self, key, sync_execution=True):
        pass

    def end_window(self, key, sync_execution=True, cancel=False):
        return Measurement(1.0, dict.fromkeys(self.gpu_indices, 100.0))
