# SPDX-License-Identifier: Apache-2.0
"""The adapter for Megatron against the real Megatron-Core, on CPUs and emulated GPUs: the timers in
saved configurations, the tutorial's place for its lines, and jobs of several processes that train
with Megatron's own schedules (megatron_job.py). Needs a Python with megatron-core and PyTorch;
without them the tests are skipped. `make check` does not run them."""
import importlib.util
import inspect
import json
import pathlib
import pickle
import re
import sys
import types
import unittest
import warnings
from unittest import mock

import jobs  # appends the directory of the next import to the path
import world

from harpe import InvalidArgumentError  # noqa: E402
from harpe.callback import Callback  # noqa: E402
from harpe.integrations import megatron as harpe_megatron  # noqa: E402
from harpe.integrations import torch_pipelining  # noqa: E402

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from megatron.core import ModelParallelConfig, timers as megatron_timers
        from megatron.core.pipeline_parallel import schedules
        from megatron.core.transformer import TransformerConfig
    WHY_NOT = None
except ImportError as error:
    WHY_NOT = f"megatron-core cannot be imported: {error}"

try:
    from megatron.core.pipeline_parallel import combined_1f1b
except ImportError:
    combined_1f1b = None  # before 0.14

try:
    import yaml
    from megatron.training import global_vars, training as megatron_training
    from megatron.training.config import yaml_utils
    WHY_NO_TRAINING = WHY_NOT
except ImportError as error:
    WHY_NO_TRAINING = WHY_NOT or f"megatron.training cannot be imported: {error}"

MULTIMODULE = None if WHY_NOT else getattr(schedules, "backward_step_multimodule", None)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Timers(unittest.TestCase):
    def setUp(self):
        self.timers = megatron_timers.Timers(0, "minmax")
        self.config = ModelParallelConfig()
        self.config.timers = self.timers

    def test_they_pickle_as_megatrons_own(self):
        with harpe_megatron.install(self.config, Callback()):
            saved = pickle.dumps(self.config)
            self.assertNotIn(b"harpe", saved)
            self.assertIs(type(pickle.loads(saved).timers), megatron_timers.Timers)
        self.assertIs(type(self.timers), megatron_timers.Timers)

    @unittest.skipIf(WHY_NO_TRAINING, WHY_NO_TRAINING)
    def test_a_saved_configuration_is_the_same_with_and_without_harpe(self):
        def saved():
            with yaml_utils.safe_yaml_representers():
                return yaml.safe_dump({"timers": self.timers})

        without = saved()
        self.assertIn("megatron.core.timers.Timers", without)
        with harpe_megatron.install(self.config, Callback()):
            self.assertEqual(saved(), without)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Settings(unittest.TestCase):
    def setUp(self):
        self.config = TransformerConfig(num_layers=2, hidden_size=8, num_attention_heads=1)
        self.config.timers = megatron_timers.Timers(0, "minmax")

    def test_defaults_are_not_refused(self):
        harpe_megatron.install(self.config, Callback()).uninstall()

    def test_the_settings_have_the_names_that_are_refused(self):
        for name, value in (("overlap_moe_expert_parallel_comm", True),
                            ("cuda_graph_impl", "full_iteration")):
            if not hasattr(self.config, name):
                continue  # an older version
            with mock.patch.object(self.config, name, value), \
                    self.assertRaisesRegex(InvalidArgumentError, name):
                harpe_megatron.install(self.config, Callback())

    @unittest.skipIf(WHY_NO_TRAINING, WHY_NO_TRAINING)
    def test_a_scripts_arguments_are_read(self):
        arguments = types.SimpleNamespace(cuda_graph_impl="full_iteration")
        with mock.patch.object(global_vars, "_GLOBAL_ARGS", arguments), \
                self.assertRaisesRegex(InvalidArgumentError, "without Python"):
            harpe_megatron.install(self.config.timers, Callback())
        harpe_megatron.install(self.config.timers, Callback()).uninstall()

    def test_what_megatron_times_is_known(self):
        """If this fails, Megatron times these backwards now, and Harpe can mark them by timers."""
        for part, is_timed in ((combined_1f1b, ["forward"]), (MULTIMODULE, []),
                               (schedules.backward_step, ["backward"])):
            if part is not None:
                names = re.findall(r"timers\(.(forward|backward)-compute", inspect.getsource(part))
                self.assertEqual(sorted(set(names)), is_timed, part.__name__)

    @unittest.skipUnless(MULTIMODULE, "this version of megatron-core has no pipelines of modules")
    def test_the_backward_of_several_modules_is_marked(self):
        self.config.deallocate_pipeline_outputs = False
        recorder = mock.Mock(spec=Callback)

        def gradient():
            data = torch.ones(2, requires_grad=True)
            return schedules.backward_step_multimodule(
                {"encoder": data}, (3 * data).sum(), None, self.config, "encoder")["encoder"]

        with harpe_megatron.install(self.config, recorder):
            self.assertEqual(gradient().tolist(), [3, 3])
            self.assertEqual(recorder.mock_calls, [mock.call.on_instruction_begin("backward"),
                                                   mock.call.on_instruction_end("backward")])
            self.config.timers = None
            gradient()
        gradient()
        self.assertEqual(len(recorder.mock_calls), 2)
        self.assertIs(schedules.backward_step_multimodule, MULTIMODULE)

    def test_without_groups_it_says_what_to_give(self):
        with self.assertRaisesRegex(InvalidArgumentError,
                                    "pp_rank.*not initialized.*pg_collection"):
            harpe_megatron.install(self.config, server_url="http://localhost:1", device_id=0)


@unittest.skipIf(WHY_NO_TRAINING, WHY_NO_TRAINING)
class Tutorial(unittest.TestCase):
    """The tutorial's lines stand in a function that this version of Megatron calls."""

    def test_pretrain_calls_the_function(self):
        text = (world.SOURCE / "docs" / "tutorial-megatron.md").read_text(encoding="utf-8")
        code, = re.findall(r"<!-- megatron -->\n```python\n(.*?)```", text, re.S)
        timers = megatron_timers.Timers(0, "minmax")
        installed, script = [], {"get_timers": lambda: timers}
        exec(code, script)  # pylint: disable=exec-used
        provider = script["train_valid_test_datasets_provider"]
        with mock.patch.object(harpe_megatron, "install",
                               lambda *one, **named: installed.append((one, named))):
            megatron_training.build_train_valid_test_datasets(
                lambda samples: provider(samples, vp_stage=0), (1, 1, 1))
        self.assertEqual(installed, [((timers,), {"server_url": "http://head-node:7787"})])
        source = inspect.getsource(megatron_training.pretrain)
        body = source[source.index("initialize_megatron("):]
        self.assertRegex(body, r"build_train_valid_test_data_iterators\(\s*\w*"
                               r"train_valid_test_dataset_provider")
        self.assertIn("vp_stage", inspect.signature(provider).parameters)


def bridge():
    """Returns the directory of Megatron-Bridge, or None. Importing the package needs Transformer
    Engine, which is compiled against CUDA."""
    try:
        found = importlib.util.find_spec("megatron.bridge")
    except ImportError:
        found = None
    return pathlib.Path(found.submodule_search_locations[0]) if found else None


@unittest.skipIf(WHY_NOT or not bridge(), WHY_NOT or "megatron-bridge is not installed")
class Bridge(unittest.TestCase):
    """The tutorial's callback with the callbacks of Megatron-Bridge, and what its training does."""

    def callbacks(self):
        spec = importlib.util.spec_from_file_location("megatron.bridge.training.callbacks",
                                                      bridge() / "training" / "callbacks.py")
        module = importlib.util.module_from_spec(spec)
        self.enterContext(mock.patch.dict(sys.modules, {
            "megatron.bridge": types.ModuleType("megatron.bridge"),
            "megatron.bridge.training": types.ModuleType("megatron.bridge.training"),
            spec.name: module}))
        spec.loader.exec_module(module)
        return module

    def test_the_callback_installs_where_training_begins(self):
        module, script = self.callbacks(), {}
        text = (world.SOURCE / "docs" / "tutorial-megatron.md").read_text(encoding="utf-8")
        code, = re.findall(r"<!-- megatron-bridge -->\n```python\n(.*?)```", text, re.S)
        exec(code, script)  # pylint: disable=exec-used
        manager, recorder = module.CallbackManager(), mock.Mock(spec=Callback)
        manager.add(script["Harpe"]())
        model = TransformerConfig(num_layers=2, hidden_size=8, num_attention_heads=1)
        model.timers = megatron_timers.Timers(0, "minmax")
        state = types.SimpleNamespace(timers=model.timers, cfg=types.SimpleNamespace(model=model))
        context = module.CallbackContext(state=state, model=[])
        install, installed = harpe_megatron.install, []

        def install_for_test(config, server_url):
            installed.append(server_url)
            return install(config, recorder)

        with mock.patch.object(harpe_megatron, "install", install_for_test):
            manager.fire("on_train_start", context)
            manager.fire("on_train_start", context)  # training goes on after an evaluation
        self.assertEqual(installed, 2 * ["http://head-node:7787"])
        state.timers("forward-compute", log_level=2).start()
        state.timers("forward-compute").stop()
        self.assertEqual(recorder.mock_calls, [mock.call.on_instruction_begin("forward"),
                                               mock.call.on_instruction_end("forward")])
        install(model, recorder).uninstall()

    def test_training_has_the_timers_when_the_callback_is_called(self):
        training = (bridge() / "training" / "train.py").read_text(encoding="utf-8")
        setup = (bridge() / "training" / "setup.py").read_text(encoding="utf-8")
        self.assertIn("timers = state.timers", setup)
        self.assertIn("cfg.model.timers = timers", setup)
        fired = training.index('"on_train_start",\n            CallbackContext(\n'
                               '                state=global_state')
        self.assertLess(fired, training.index("while global_state.train_state.step <"))


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Job(jobs.JobTest):
    def run_job(self, while_it_runs, **settings):
        settings = dict({"chunks": 1, "group": None, "rounds": 1, "log_level": 0, "is_gpt": False},
                        **settings)
        world_size = settings.pop("world_size", settings["ranks"])
        return self.run_ranks("megatron_job.py", world_size, while_it_runs, **settings)

    def assert_order(self, results, order, ranks):
        """The optimizer was told of every step, and of the instructions in this order."""
        last = ranks - 1
        for result in results:
            stage = result["rank"] % ranks
            events = [one for one in result["first"] if one != "loss"]
            self.assertEqual((events[0], events[-1]), ("step_begin", "step_end"))
            self.assertEqual(events[1:-1], [f"instruction_{what} {name}" for name in order[stage]
                                            for what in ("begin", "end")])
            self.assertTrue(result["all_the_same"])
            self.assertEqual(result["misfits"], 0)
            self.assertEqual(set(result["evaluation"]) - {"loss"}, set())
            self.assertEqual(set(result["uninstalled"]) - {"loss"}, set())
            self.assertEqual(result["timers"], "megatron.core.timers.Timers")
            if stage == last:
                self.assertLess(result["losses"][1], result["losses"][0])

    def non_interleaved(self, ranks, **settings):
        config = types.SimpleNamespace(pipeline_model_parallel_size=ranks,
                                       virtual_pipeline_model_parallel_size=None)
        order = torch_pipelining.order_of(harpe_megatron.csv_of(config, 4))
        clocks = {rank: 1200 - 15 * rank for rank in range(ranks)}
        plan = [[(name, clocks[rank]) for name in order[rank]] for rank in range(ranks)]
        started = self.start(plan=plan, scheduler="PointSolution")
        results = self.run_job(
            lambda processes: self.wait_for_clocks(clocks, processes),
            url=f"http://127.0.0.1:{started.port}", ranks=ranks, microbatches=4, **settings)
        self.assert_order(results, order, ranks)

    def test_1f1b_of_a_gpt_runs_as_it_was_planned(self):
        self.non_interleaved(2, is_gpt=True)

    def test_1f1b_runs_as_it_was_planned_with_all_timers(self):
        self.non_interleaved(3, log_level=2)

    def test_the_last_stages_loss_belongs_to_its_forward(self):
        order = torch_pipelining.order_of("0F0,0B0\n")
        started = self.start(plan=[[(name, 1200) for name in order[0]]], scheduler="PointSolution")
        result, = self.run_job(lambda _: None, url=f"http://127.0.0.1:{started.port}", ranks=1,
                                 microbatches=1)
        self.assertEqual(result["first"], [
            "step_begin", "instruction_begin forward", "loss", "instruction_end forward",
            "instruction_begin backward", "instruction_end backward", "step_end"])

    def interleaved(self, ranks, chunks, group, microbatches, **settings):
        config = ModelParallelConfig(
            pipeline_model_parallel_size=ranks, virtual_pipeline_model_parallel_size=chunks,
            pipeline_dtype=torch.float32, microbatch_group_size_per_vp_stage=group)
        path = self.path / "order.csv"
        harpe_megatron.write_csv(config, microbatches, path)
        arguments = {"num_microbatches": microbatches, "schedule": {"csv": str(path)}}
        started = self.start("--scheduler-args", json.dumps(arguments),
                             scheduler="InstructionProfiler")
        results = self.run_job(lambda _: None, url=f"http://127.0.0.1:{started.port}",
                                 ranks=ranks, chunks=chunks, group=group, microbatches=microbatches,
                                 rounds=2, **settings)
        order = torch_pipelining.order_of(path.read_text(encoding="ascii"))
        self.assert_order(results, order, ranks)

    def test_interleaving_of_a_gpt_runs_in_the_written_order(self):
        self.interleaved(2, 2, 2, 4, is_gpt=True)

    def test_larger_groups_run_in_the_written_order(self):
        self.interleaved(2, 2, 3, 5)

    def test_larger_groups_of_three_ranks_run_in_the_written_order(self):
        self.interleaved(3, 2, 4, 7)

    def test_two_pipelines_are_one_job(self):
        order = torch_pipelining.order_of("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
        plan = [[(name, 1200 - 15 * stage) for name in order[stage]] for stage in range(2)]
        started = self.start(plan=plan, scheduler="PointSolution3D")
        # Megatron's ranks 0 and 1 are the replicas of the first stage.
        results = self.run_job(
            lambda processes: self.wait_for_clocks({0: 1200, 1: 1200, 2: 1185, 3: 1185}, processes),
            url=f"http://127.0.0.1:{started.port}", ranks=2, world_size=4, microbatches=2)
        for result in results:
            result["rank"] //= 2
        self.assert_order(results, order, 2)
