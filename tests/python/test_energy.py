# SPDX-License-Identifier: Apache-2.0
"""The callbacks that measure a training loop, in a hostile environment: sensors with impossible
values, broken checkpoints, batches that cannot be counted, callbacks that are copied. A stand-in of
the monitor gives these values; real sensors are in tests/frameworks."""
import copy
import logging
import os
import pickle
import sys
import tempfile
import types
import unittest
from unittest import mock

import world  # noqa: F401  (finds the package)

from harpe import HarpeError
from harpe.integrations import _energy, _power_limit

NAN, INFINITE = float("nan"), float("inf")


class Monitor:
    """Stands in for ZeusMonitor. `windows` are the (time, energy of each GPU) of its windows; an
    exception is raised."""

    windows = []

    def __init__(self, gpu_indices=None, **_):
        self.gpu_indices = list(gpu_indices)

    def begin_window(self, key, restart=False):
        pass

    def end_window(self, key):
        found = self.windows.pop(0) if self.windows else (1.0, [100.0])
        if isinstance(found, BaseException):
            raise found
        time_s, energies = found
        return types.SimpleNamespace(time=time_s, total_energy=sum(energies),
                                     gpu_energy=dict(enumerate(energies)))

    def close(self):
        pass


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


class EnergyTest(unittest.TestCase):
    def setUp(self):
        for patch in (mock.patch.object(_energy, "ZeusMonitor", Monitor),
                      mock.patch.object(_energy, "visible_gpus", lambda: [0])):
            patch.start()
            self.addCleanup(patch.stop)
        Monitor.windows = []
        self.log = Lines()
        for name in ("harpe.monitor", "harpe.power_limit"):
            logger = logging.getLogger(name)
            before, logger.propagate = logger.propagate, False
            logger.addHandler(self.log)
            self.addCleanup(logger.removeHandler, self.log)
            self.addCleanup(setattr, logger, "propagate", before)

    def meter(self, *windows):
        Monitor.windows = list(windows)
        meter = _energy.Meter(None)
        meter.begin(None)
        return meter


class Sensors(EnergyTest):
    def test_windows_are_added(self):
        meter = self.meter((1.0, [100.0]), (3.0, [500.0, 100.0]))
        self.assertTrue(meter.sync())
        self.assertEqual(meter.metrics(), {"energy_j": 100.0, "power_w": 100.0})
        self.assertTrue(meter.sync())
        self.assertEqual(meter.metrics(), {"energy_j": 700.0, "power_w": 200.0})

    def test_an_impossible_value_ends_the_measurement(self):
        for bad in ([-5.0], [NAN], [INFINITE], [300.0, -5.0], [300.0, 0.0], [0.0]):
            meter = self.meter((1.0, [100.0]), (1.0, bad), (1.0, [100.0]))
            self.assertTrue(meter.sync())
            self.assertFalse(meter.sync(), bad)
            self.assertFalse(meter.is_running)
            self.assertEqual(meter.totals.energy_j, 100.0)
        self.assertEqual(len(self.log.lines), 6, self.log.lines)
        self.assertRegex(self.log.lines[0], "^energy is not measured from here on: GPU 0: .*-5 J.*"
                                            "; training goes on$")

    def test_0_j_is_never_shown(self):
        meter = self.meter((0.01, [0.0]), (0.01, [5.0]))
        self.assertFalse(meter.sync())  # the window is too short for the counter
        self.assertTrue(meter.is_running)
        self.assertTrue(meter.sync())
        self.assertEqual(meter.metrics()["energy_j"], 5.0)

    def test_many_short_windows_without_energy_end_the_measurement(self):
        meter = self.meter(*[(0.1, [0.0])] * 30)
        while meter.is_running:
            self.assertFalse(meter.sync())
        self.assertGreater(len(Monitor.windows), 10)
        self.assertEqual(len(self.log.lines), 1)

    def test_a_lost_gpu_ends_the_measurement_with_one_line(self):
        meter = self.meter((1.0, [100.0]), HarpeError("GPU 0 is lost"))
        self.assertTrue(meter.sync())
        meter.switch(_energy.EVALUATION)
        meter.switch(_energy.TRAINING)
        self.assertFalse(meter.sync())
        meter.end()
        self.assertEqual(self.log.lines, [
            "energy is not measured from here on: GPU 0 is lost; training goes on"])


class States(EnergyTest):
    BROKEN = ([], None, "x", {"energy_j": "much"}, {"energy_j": None}, {"energy_j": NAN},
              {"energy_j": -1.0}, {"energy_j": INFINITE}, {"energy_j": 10 ** 400},
              {"energy_j": 5.0, "time_s": [1]}, {1: 2})

    def test_a_broken_checkpoint_begins_at_nothing(self):
        for saved in self.BROKEN:
            self.assertEqual(_energy.EnergyTotals.loaded(saved), _energy.EnergyTotals(), saved)
        self.assertEqual(len(self.log.lines), 7, self.log.lines)
        self.assertRegex(self.log.lines[0], "^the energies of the checkpoint .*energy_j.*much.*"
                                            "begin at 0.*goes on$")

    def test_a_whole_checkpoint_is_continued(self):
        totals = _energy.EnergyTotals(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
        self.assertEqual(_energy.EnergyTotals.loaded(dict(totals.saved(), more="x")), totals)

    def test_copies_measure_nothing(self):
        meter = self.meter()
        for copied in (copy.deepcopy(meter), pickle.loads(pickle.dumps(meter))):
            self.assertFalse(copied.is_running)
            self.assertFalse(copied.sync())
            copied.begin(None)
            self.assertTrue(copied.sync())
        self.assertTrue(meter.sync())


class Batch(dict):
    def __getitem__(self, name):
        raise RuntimeError("this batch was moved")


class Counting(EnergyTest):
    def test_what_cannot_be_counted_is_left_out(self):
        from harpe.integrations.accelerate import EnergyMeter
        accelerator = mock.Mock(device=None, local_process_index=0, num_processes=1)
        for batch, given in ((Batch(input_ids=1), {}), (None, {"tokens": "many"}),
                             (types.SimpleNamespace(shape=3), {})):
            self.log.lines.clear()
            with EnergyMeter(accelerator) as energy:
                energy.count(tokens=50, samples=2)
                self.assertEqual(energy.metrics()["energy_per_token_j"], 2.0)
                for _ in range(2):
                    energy.count(batch, **given)
                    energy.count(tokens=50, samples=2)
                    self.assertEqual(set(energy.metrics()), {"energy_j", "power_w"})
                self.assertEqual(energy.state_dict()["tokens"], 0.0)
            self.assertEqual(len(self.log.lines), 1, self.log.lines)
            self.assertRegex(self.log.lines[0], "^tokens and samples are not known .*goes on$")

    def test_states_of_accelerate(self):
        from harpe.integrations.accelerate import EnergyMeter
        accelerator = mock.Mock(device=None, local_process_index=0, num_processes=1)
        with tempfile.TemporaryDirectory() as folder, EnergyMeter(accelerator) as energy:
            (save,), _ = accelerator.register_save_state_pre_hook.call_args
            (load,), _ = accelerator.register_load_state_pre_hook.call_args
            save([], [], folder)
            energy.metrics()
            self.assertEqual(energy.totals.energy_j, 200.0)
            load([], folder)
            self.assertEqual(energy.totals.energy_j, 100.0)
            self.assertEqual(energy.metrics()["energy_j"], 200.0)
            path = os.path.join(folder, "harpe_energy.json")
            for text in ("", "[]", "3", '{"energy_j": ', '{"energy_j": "x"}', None):
                os.remove(path)
                if text is not None:
                    with open(path, "w", encoding="ascii") as file:
                        file.write(text)
                load([], folder)
                self.assertEqual(energy.totals, _energy.EnergyTotals(), text)
                self.assertEqual(energy.metrics()["energy_j"], 100.0)
            self.assertEqual(len(self.log.lines), 3, self.log.lines)
            save([], [], os.path.join(folder, "nosuch"))
            self.assertRegex(self.log.lines[3], "^the energies are not saved: .*nosuch.*goes on$")
            energy.close()
            load([], folder)
            self.assertEqual(energy.metrics(), {})

    def test_lightning_with_a_counter_that_fails(self):
        from harpe.integrations.lightning import EnergyCallback

        def tokens(batch):
            raise KeyError("words")

        one = EnergyCallback(tokens=tokens)
        trainer = types.SimpleNamespace(
            strategy=types.SimpleNamespace(root_device=None), local_rank=0, world_size=1,
            global_step=0, log_every_n_steps=1)
        logged = {}
        module = types.SimpleNamespace(log=lambda name, value, **_: logged.update({name: value}))
        one.on_train_start(trainer, module)
        trainer.global_step = 1
        one.on_train_batch_end(trainer, module, None, [], 0)
        self.assertEqual(logged, {"energy_j": 100.0, "power_w": 100.0})
        self.assertEqual(len(self.log.lines), 1, self.log.lines)


    def test_a_checkpoint_of_lightning_without_totals_begins_at_nothing(self):
        from harpe.integrations.lightning import EnergyCallback
        for path, steps, saved, expected in (
                ("old.ckpt", 7, None, 0.0), ("new.ckpt", 7, {"energy_j": 5.0}, 5.0),
                (None, 0, None, 0.0), (None, 7, None, 300.0)):
            one = EnergyCallback()
            one.load_state_dict({"energy_j": 300.0})
            trainer = types.SimpleNamespace(ckpt_path=path, global_step=steps)
            one.setup(trainer, None, stage="fit")
            if saved:
                one.load_state_dict(saved)
            self.assertEqual(one.totals.energy_j, expected, path)


class Transformers(EnergyTest):
    @classmethod
    def setUpClass(cls):
        fake = types.ModuleType("transformers")
        fake.TrainerCallback = type("TrainerCallback", (), {})
        sys.modules["transformers"] = fake
        from harpe.integrations import transformers
        cls.ours = transformers

    def begin(self, one, **state):
        args = types.SimpleNamespace(device=None, local_process_index=0, world_size=1, n_gpu=0)
        state = types.SimpleNamespace(**dict({"global_step": 5}, **state))
        one.on_train_begin(args, state, None)

    def test_a_broken_state_begins_at_nothing(self):
        name = "EnergyCallback"
        for saved in States.BROKEN:
            for state in (saved, {name: saved}, {name: [saved]}, {name: {"attributes": saved}},
                          {name: [{"attributes": {"saved_totals": saved}}]}):
                one = self.ours.EnergyCallback()
                self.begin(one, stateful_callbacks=state)
                self.assertEqual(one.totals, _energy.EnergyTotals(), state)
                self.assertTrue(one._meter.is_running)

    def test_a_checkpoint_made_without_it_can_be_saved_again(self):
        """The Trainer looks the callback up in the checkpoint's states when it saves."""
        others = {"TrainerControl": {"args": {}}}
        one = self.ours.EnergyCallback(gpu_indices=[0])
        state = types.SimpleNamespace(stateful_callbacks=dict(others))
        self.begin(one, stateful_callbacks=state.stateful_callbacks)
        self.assertEqual(state.stateful_callbacks, dict(others, EnergyCallback=one.state()))

    def test_a_dataset_whose_length_fails(self):
        class Dataset:
            def __len__(self):
                raise NotImplementedError
        one = self.ours.EnergyCallback()
        self.begin(one, global_step=0)
        args = types.SimpleNamespace(train_batch_size=2, gradient_accumulation_steps=2,
                                     world_size=1)
        control = types.SimpleNamespace(should_log=True, should_save=False, should_evaluate=False)
        state = types.SimpleNamespace(is_world_process_zero=True, num_input_tokens_seen=0)
        one.on_step_end(args, state, control,
                        train_dataloader=types.SimpleNamespace(dataset=Dataset()))
        self.assertEqual(one.totals.samples, 4)

    def standin_trainer(self, callbacks):
        """Returns a Trainer of a stand-in for transformers, which evaluates two batches."""
        class Trainer:
            args = types.SimpleNamespace(device=None, local_process_index=0, world_size=1)

            def __init__(self):
                self.callback_handler = types.SimpleNamespace(callbacks=callbacks)
                self.state = types.SimpleNamespace(log_history=[])

            def event(self, name, **more):
                for one in list(self.callback_handler.callbacks):
                    getattr(one, name)(self.args, self.state, None, **more)

            def evaluate(self, fails=False):
                self.event("on_prediction_step")
                if fails:
                    raise RuntimeError("a broken sentence")
                self.event("on_prediction_step")
                logs = {"eval_loss": 1.0, "eval_runtime": 2.0}
                self.event("on_log", logs=logs)
                self.event("on_evaluate", metrics=logs)
                return logs

        module = types.ModuleType("transformers.trainer")
        module.Trainer = Trainer
        patch = mock.patch.dict(sys.modules, {"transformers.trainer": module})
        patch.start()
        self.addCleanup(patch.stop)
        return Trainer()

    def test_an_evaluation_outside_of_a_training_is_measured(self):
        """From its first batch on. The totals stay those of the training."""
        callbacks = []
        trainer = self.standin_trainer(callbacks)
        one = self.ours.EnergyCallback()
        callbacks.append(one)
        one.saved_totals = saved = {"energy_j": 7.0, "evaluation_energy_j": 3.0}
        for energy_j in (50.0, 60.0):
            Monitor.windows = [(2.0, [energy_j])]
            self.assertEqual(trainer.evaluate()["eval_energy_j"], energy_j)
            self.assertFalse(one._meter.is_running)
            self.assertEqual({name: one.saved_totals[name] for name in saved}, saved)
        with self.assertRaises(RuntimeError):
            trainer.evaluate(fails=True)
        self.assertFalse(one._meter.is_running)

    def test_an_evaluation_within_a_training_is_measured_from_its_first_batch_on(self):
        callbacks = []
        trainer = self.standin_trainer(callbacks)
        one = self.ours.EnergyCallback()
        callbacks.append(one)
        Monitor.windows = [(1.0, [100.0]), (2.0, [50.0])]
        self.begin(one, global_step=0)
        self.assertEqual(trainer.evaluate()["eval_energy_j"], 50.0)
        self.assertTrue(one._meter.is_running)
        self.assertEqual((one.totals.energy_j, one.totals.evaluation_energy_j), (100.0, 50.0))

    def test_close_and_an_exception_end_the_measurement(self):
        for end in (lambda one: one.close(), lambda one: one.__exit__(None, None, None),
                    lambda one: one.on_train_exception("the training has ended")):
            one = self.ours.EnergyCallback()
            self.begin(one)
            self.assertTrue(one._meter.is_running)
            end(one)
            self.assertFalse(one._meter.is_running)

    def test_callbacks_can_be_copied(self):
        one = self.ours.EnergyCallback()
        self.begin(one)
        copy.deepcopy(one)
        pickle.loads(pickle.dumps(one))
        other = self.ours.PowerLimitCallback()
        other._limiter.optimizer = mock.Mock(side_effect=AssertionError)
        self.assertIsNone(copy.deepcopy(other).optimizer)


class Limits(EnergyTest):
    def setUp(self):
        super().setUp()
        self.optimizer = mock.Mock()
        for name, value in (("ZeusMonitor", Monitor), ("visible_gpus", lambda: [0]),
                            ("GlobalPowerLimitOptimizer", self.make)):
            patch = mock.patch.object(_power_limit, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.error = None

    def make(self, monitor, **options):
        if self.error is not None:
            raise self.error
        return self.optimizer

    def test_whatever_fails_at_the_beginning_the_training_goes_on(self):
        for self.error in (HarpeError("refused"), OSError("no such directory"), TypeError("option"),
                           RuntimeError("backend")):
            self.log.lines.clear()
            one = _power_limit.Limiter(None, {})
            one.begin(None)
            one.step_begins()
            one.interrupted()
            one.end()
            self.assertIsNone(one.optimizer)
            self.assertEqual(self.log.lines, [
                f"no power limit is changed: {self.error}; training goes on"])

    def test_what_fails_later_restores_the_limits(self):
        for name, call in (("on_step_begin", "step_begins"), ("on_epoch_end", "interrupted")):
            self.log.lines.clear()
            self.optimizer.reset_mock()
            getattr(self.optimizer, name).side_effect = ValueError("the selector")
            one = _power_limit.Limiter(None, {})
            one.begin(None)
            for _ in range(2):
                getattr(one, call)()
            self.assertEqual(getattr(self.optimizer, name).call_count, 1)
            self.optimizer.on_train_end.assert_called()
            self.assertEqual(self.log.lines, [
                "no power limit is changed from here on: the selector; training goes on"])
