# SPDX-License-Identifier: Apache-2.0
"""The adapters for pipeline-parallel frameworks: their marks, the removal of their marks, and
that a step of each framework fits the plan of a real server. They run on stand-ins; see
frameworks.py."""
import copy
import ctypes as C
import os
import pickle
import sys
import threading
import types
import unittest
from unittest import mock

import frameworks
import training
import world
from fixtures import folder

from harpe import InvalidArgumentError
from harpe import _bindings as b
from harpe._library import call, lib
from harpe.callback import Callback
from harpe.integrations import deepspeed, megatron, torch_pipelining
from harpe.optimizer import pipeline_frequency

INSTRUCTIONS = ["+forward", "-forward", "+backward", "-backward"]
TRAINED = ["+step"] + INSTRUCTIONS * 2 + ["-step"]  # 2 microbatches, one stage
SPLIT = [[(0, "F", 0), (0, "I", 0), (0, "W", 0)]]


class Recorder(Callback):
    def __init__(self):
        self.seen = []

    def on_step_begin(self):
        self.seen.append("+step")

    def on_step_end(self):
        self.seen.append("-step")

    def on_instruction_begin(self, name):
        self.seen.append("+" + name)

    def on_instruction_end(self, name):
        self.seen.append("-" + name)

    def take(self):
        seen, self.seen = self.seen, []
        return seen


class Made:
    """Replaces PipelineFrequencyOptimizer. Records its arguments, and whether it has ended."""

    def __init__(self, **arguments):
        self.arguments, self.has_ended = arguments, False

    def on_train_end(self):
        self.has_ended = True


def made_instead():
    return mock.patch.object(pipeline_frequency, "PipelineFrequencyOptimizer", Made, create=True)


def order_1f1b(ranks, microbatches):
    return [[(rank, kind, microbatch)
             for kind, microbatch in frameworks.order_1f1b(rank, ranks, microbatches)]
            for rank in range(ranks)]


class Megatron(unittest.TestCase):
    def setUp(self):
        self.timers = frameworks.MegatronTimers(log_level=0)
        self.config = types.SimpleNamespace(timers=self.timers)

    def step(self):
        frameworks.megatron_step(self.config, 0, 1, 2)

    def test_timers_mark_steps_and_instructions_at_any_log_level(self):
        for level in range(3):
            self.timers = self.config.timers = frameworks.MegatronTimers(level)
            recorder = Recorder()
            with megatron.install(self.timers, recorder) as one:
                self.assertIs(one.optimizer, recorder)
                self.step()
                self.assertEqual(recorder.take(), TRAINED)
            self.step()
            self.assertEqual(recorder.take(), [])

    def test_evaluation_is_not_marked_and_marks_outlive_it(self):
        recorder = Recorder()
        with megatron.install(self.config, recorder):
            frameworks.megatron_evaluate(self.config, self.timers, 0, 1, 2)
            self.assertEqual(recorder.take(), [])
            self.step()
            self.assertEqual(recorder.take(), TRAINED)

    def test_what_timers_measure_is_the_same(self):
        self.timers = self.config.timers = frameworks.MegatronTimers(2)
        self.step()
        without, self.timers.calls = list(self.timers.calls), []
        for timer in self.timers._timers.values():
            timer.calls = self.timers.calls
        with megatron.install(self.timers, Recorder()):
            self.step()
            self.timers("optimizer").start()
            self.timers("optimizer").stop()
            self.assertEqual(self.timers("forward-compute").elapsed(), 1.5)
            self.assertEqual(self.timers.log(["forward-compute"]), {"forward-compute": 1.5})
            self.assertIsInstance(self.timers, frameworks.MegatronTimers)
        self.assertEqual(self.timers.calls, without + ["start optimizer", "stop optimizer"])
        self.assertIs(type(self.timers), frameworks.MegatronTimers)

    def megatron_without_groups(self):
        """A Megatron whose parallel_state knows no process groups, and a PyTorch without CUDA."""
        modules = frameworks.megatron_modules(rank=7, world_size=8)
        for name in ("pipeline_model_parallel", "data_parallel", "tensor_model_parallel"):
            for what in ("rank", "world_size"):
                getattr(modules["megatron.core.parallel_state"], f"get_{name}_{what}").side_effect = \
                    AssertionError("pipeline_model parallel group is not initialized")
        modules["torch"].cuda.current_device.side_effect = RuntimeError("No CUDA GPUs are available")
        return modules

    def test_without_megatrons_groups_it_says_which_arguments_it_needs(self):
        with mock.patch.dict(sys.modules, self.megatron_without_groups()), made_instead():
            with self.assertRaisesRegex(
                    InvalidArgumentError, r"cannot tell pp_rank, pp_degree, dp_rank, dp_degree, "
                    r"tp_rank, tp_degree, device_id \(.*not initialized.*\).*pg_collection"):
                megatron.install(self.timers, server_url="http://head")
            self.assertIs(type(self.timers), frameworks.MegatronTimers)

    def test_ranks_come_from_arguments_or_from_a_collection_of_groups(self):
        given = dict(device_id=3, pp_rank=1, pp_degree=2, dp_rank=3, dp_degree=4, tp_rank=0,
                     tp_degree=1)
        expected = dict(given, server_url="http://head", rank=7, world_size=8)

        def group(rank, size):
            return types.SimpleNamespace(rank=lambda: rank, size=lambda: size)

        groups = types.SimpleNamespace(pp=group(1, 2), tp=group(0, 1), dp=group(1, 2))
        both = types.SimpleNamespace(**vars(groups), dp_cp=group(3, 4))
        with mock.patch.dict(sys.modules, self.megatron_without_groups()), made_instead():
            one = megatron.install(self.timers, server_url="http://head", **given)
            self.assertEqual(one.optimizer.arguments, expected)
            one.uninstall()
            one = megatron.install(self.timers, server_url="http://head", pg_collection=both,
                                   device_id=3)
            self.assertEqual(one.optimizer.arguments, expected)
            one.uninstall()
            one = megatron.install(self.timers, server_url="http://head", pg_collection=groups,
                                   device_id=3)
            self.assertEqual(one.optimizer.arguments, dict(expected, dp_rank=1, dp_degree=2))
            one.uninstall()
            with self.assertRaisesRegex(InvalidArgumentError, "cannot tell tp_rank, tp_degree "):
                megatron.install(self.timers, server_url="http://head", device_id=3,
                                 pg_collection=types.SimpleNamespace(pp=groups.pp, dp=groups.dp))

    def test_its_optimizer_has_megatrons_ranks(self):
        modules = frameworks.megatron_modules(rank=7, world_size=8, pipeline=(1, 2), data=(3, 4))
        state = modules["megatron.core.parallel_state"]
        with mock.patch.dict(sys.modules, modules), made_instead():
            one = megatron.install(self.timers, server_url="http://head", mark="stream",
                                   device_id=6)
        self.assertEqual(one.optimizer.arguments, dict(
            server_url="http://head", rank=7, world_size=8, device_id=6, pp_rank=1, pp_degree=2,
            dp_rank=3, dp_degree=4, tp_rank=0, tp_degree=1, mark="stream"))
        state.get_data_parallel_rank.assert_called_once_with(with_context_parallel=True)
        one.uninstall()
        self.assertTrue(one.optimizer.has_ended)

    def test_a_second_call_changes_nothing(self):
        recorder = Recorder()
        with megatron.install(self.timers, recorder) as one:
            self.assertIs(megatron.install(self.config, recorder), one)
            self.assertIs(megatron.install(self.config, server_url="http://head"), one)
            with self.assertRaisesRegex(InvalidArgumentError, "uninstall that optimizer first"):
                megatron.install(self.timers, Recorder())
            self.step()
            self.assertEqual(recorder.take(), TRAINED)
        again = Recorder()
        with megatron.install(self.timers, again):
            self.step()
        self.assertEqual((recorder.take(), again.take()), ([], TRAINED))

    def test_a_saved_configuration_names_the_frameworks_own_class(self):
        with megatron.install(self.timers, Recorder()):
            kind = type(self.timers)
            self.assertEqual((kind.__module__, kind.__name__, kind.__qualname__, kind.__doc__),
                             ("frameworks", "MegatronTimers", "MegatronTimers",
                              frameworks.MegatronTimers.__doc__))
            self.assertNotIn("__qualname__", dir(self.timers))

    def test_pickled_timers_contain_nothing_of_harpe(self):
        self.timers = frameworks.MegatronTimers(2)
        with megatron.install(self.timers, Recorder()):
            self.timers("optimizer").start()
            self.timers("optimizer").stop()
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                for what in (self.timers, types.SimpleNamespace(timers=self.timers),
                             self.timers("forward-compute", log_level=2)):
                    saved = pickle.dumps(what, protocol)
                    self.assertNotIn(b"harpe", saved)
                timers = pickle.loads(pickle.dumps(self.timers, protocol))
                self.assertIs(type(timers), frameworks.MegatronTimers)
                self.assertEqual(timers.calls, ["start optimizer", "stop optimizer"])
            saved = pickle.dumps(self.timers)
        result = world.python(
            "import pickle, sys\n"
            f"timers = pickle.loads({saved!r})\n"
            "timers('optimizer').start()\n"
            "assert not any(name.startswith('harpe') for name in sys.modules)\n",
            PYTHONPATH=str(world.SOURCE / "tests" / "python"))
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_settings_that_cannot_be_marked_are_refused(self):
        scope = types.SimpleNamespace(name="full_iteration")
        for setting, value, text in (
                ("overlap_moe_expert_parallel_comm", True, "combined 1F1B"),
                ("cuda_graph_impl", "full_iteration", "without Python"),
                ("cuda_graph_scope", "full_iteration", "without Python"),
                ("cuda_graph_scope", [scope], "without Python")):
            settings = types.SimpleNamespace(**{setting: value})
            of_script = types.ModuleType("megatron.training.global_vars")
            of_script.get_args = lambda settings=settings: settings
            with self.assertRaisesRegex(InvalidArgumentError, f"{setting}.*{text}"):
                megatron.install(types.SimpleNamespace(timers=self.timers, **vars(settings)),
                                 Recorder())
            with mock.patch.dict(sys.modules, {of_script.__name__: of_script}), \
                    self.assertRaisesRegex(InvalidArgumentError, f"{setting}.*{text}"):
                megatron.install(self.timers, Recorder())
            self.assertIs(type(self.timers), frameworks.MegatronTimers)

    def test_other_settings_are_not_refused(self):
        def fail():
            raise AssertionError("args is not initialized.")

        of_script = types.ModuleType("megatron.training.global_vars")
        of_script.get_args = fail
        other = types.SimpleNamespace(name="full_iteration_inference")
        for settings in ({}, {"cuda_graph_impl": "none", "cuda_graph_scope": None},
                         {"cuda_graph_impl": "local", "cuda_graph_scope": [other]},
                         {"overlap_moe_expert_parallel_comm": False, "cuda_graph_scope": "full"}):
            config = types.SimpleNamespace(timers=self.timers, **settings)
            with mock.patch.dict(sys.modules, {of_script.__name__: of_script}):
                megatron.install(config, Recorder()).uninstall()

    def test_tokens_per_step_come_from_the_settings(self):
        for settings, tokens in (({}, {}), ({"global_batch_size": 64}, {}),
                                 ({"global_batch_size": 64, "seq_length": 2048}, {"tokens_per_step": 131072}),
                                 ({"global_batch_size": 64, "seq_length": None}, {}),
                                 ({"global_batch_size": 64, "seq_length": 2048, "rampup_batch_size": [8, 8, 100]}, {}),
                                 ({"global_batch_size": 10**6, "seq_length": 2048}, {})):
            places = [types.SimpleNamespace(), types.SimpleNamespace(**settings)]
            self.assertEqual(megatron._tokens_per_step(places), tokens)

    def test_steps_without_a_backward_are_told_once(self):
        recorder, log = Recorder(), training.Lines()
        self.addCleanup(log.close)
        with megatron.install(self.timers, recorder):
            self.step()
            self.assertEqual(log.lines, [])
            for _ in range(2):
                frameworks.megatron_step(self.config, 0, 1, 2, forward_only=True)
        line, = log.lines
        self.assertRegex(line, "2 forwards and no backward.*overlap_moe_expert_parallel_comm")

    def test_a_copy_of_the_configuration_marks_too(self):
        recorder = Recorder()
        original = self.config
        with megatron.install(self.timers, recorder):
            for copied in (copy.copy(self.timers), copy.deepcopy(original).timers):
                self.config = types.SimpleNamespace(timers=copied)
                self.step()
                self.assertEqual(recorder.take(), TRAINED)
        self.step()
        self.assertEqual(recorder.take(), [])

    def test_without_timers_it_says_what_it_wants(self):
        for wrong in (None, types.SimpleNamespace(timers=None), len):
            with self.assertRaisesRegex(InvalidArgumentError, "get_timers"):
                megatron.install(wrong, Recorder())
        for wrong in ({}, {"optimizer": Recorder(), "server_url": "http://head"},
                      {"optimizer": Recorder(), "mark": "host"}):
            with self.assertRaisesRegex(InvalidArgumentError, "either an optimizer, or server_url"):
                megatron.install(self.timers, **wrong)
        self.assertIs(type(self.timers), frameworks.MegatronTimers)


class MegatronOrder(unittest.TestCase):
    """The order of a pipeline with virtual stages and groups of microbatches of any size."""

    @staticmethod
    def config(ranks, chunks=None, group=None, **more):
        return types.SimpleNamespace(
            pipeline_model_parallel_size=ranks, virtual_pipeline_model_parallel_size=chunks,
            microbatch_group_size_per_vp_stage=group, **more)

    @staticmethod
    def built_in(name, ranks, microbatches, chunks):
        handle = C.c_void_p()
        options = b.harpe_schedule_options(name=name, ranks=ranks, microbatches=microbatches,
                                           chunks=chunks)
        call(lib.harpe_schedule_new, C.byref(options), C.byref(handle))
        try:
            return [torch_pipelining._names_of_rank(handle, rank) for rank in range(ranks)]
        finally:
            lib.harpe_schedule_free(handle)

    def test_groups_as_large_as_the_pipeline_are_the_built_in_schedules(self):
        for ranks, chunks, microbatches in ((2, 2, 4), (2, 3, 2), (4, 2, 8), (3, 4, 9), (1, 1, 3)):
            for group in (None, ranks):
                csv = megatron.csv_of(self.config(ranks, chunks, group), microbatches)
                name = b"interleaved-1f1b" if chunks > 1 else b"1f1b"
                self.assertEqual(torch_pipelining.order_of(csv),
                                 self.built_in(name, ranks, microbatches, chunks))
        self.assertEqual(torch_pipelining.order_of(megatron.csv_of(self.config(3), 5)),
                         self.built_in(b"1f1b", 3, 5, 1))

    def test_larger_groups_run_more_forwards_first(self):
        csv = megatron.csv_of(self.config(2, 2, 3), 5).split()
        self.assertEqual([row.replace(",", " ") for row in csv], [
            "0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 2B3 2B4 0B3 0B4",
            "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4"])
        for ranks, chunks, group, microbatches in ((2, 2, 4, 4), (2, 2, 3, 8), (4, 3, 6, 10)):
            csv = megatron.csv_of(self.config(ranks, chunks, group), microbatches)
            for names in torch_pipelining.order_of(csv):  # this checks that the order can be run
                self.assertEqual(names.count("forward"), microbatches * chunks)

    def test_what_megatron_does_not_run_is_refused(self):
        for group, microbatches in ((3, 2), (1, 4), (3, 4)):
            with self.assertRaisesRegex(InvalidArgumentError, "microbatch_group_size_per_vp_stage"):
                megatron.csv_of(self.config(2, 2, group), microbatches)
        with self.assertRaisesRegex(InvalidArgumentError, "overlap_moe_expert_parallel_comm"):
            megatron.csv_of(self.config(2, 2, 2, overlap_moe_expert_parallel_comm=True), 4)

    def test_the_file_has_the_same_text(self):
        engine = frameworks.PipelineEngine(2, 1, 3)
        for adapter, arguments in ((megatron, (self.config(2, 2, 3), 6)), (deepspeed, (engine,))):
            path = folder(self.addCleanup) / "order.csv"
            adapter.write_csv(*arguments, path)
            self.assertEqual(path.read_bytes().decode(), adapter.csv_of(*arguments))
            self.assertEqual(os.listdir(path.parent), ["order.csv"])


class DeepSpeed(unittest.TestCase):
    def setUp(self):
        self.engine, self.recorder = frameworks.PipelineEngine(), Recorder()

    def test_training_is_steps_and_evaluation_is_none(self):
        with deepspeed.install(self.engine, self.recorder):
            self.assertEqual(self.engine.train_batch(), 0.5)
            self.assertEqual(self.recorder.take(), TRAINED)
            self.engine.eval_batch()
            self.assertEqual(self.recorder.take(), INSTRUCTIONS[:2] * 2)

    def test_the_end_of_a_step_may_be_an_instruction(self):
        self.engine.calls = self.recorder.seen
        with deepspeed.install(self.engine, self.recorder, epilogue="optimizer"):
            self.engine.train_batch()
            self.assertEqual(self.recorder.take()[-6:],
                             ["+optimizer", "reduce tied", "reduce", "step", "-optimizer", "-step"])
            self.engine.eval_batch()
            self.assertEqual(self.recorder.take(), INSTRUCTIONS[:2] * 2)
        self.engine._INSTRUCTION_MAP = dict(self.engine._INSTRUCTION_MAP)
        del self.engine._INSTRUCTION_MAP[frameworks.ReduceGrads]
        with self.assertRaisesRegex(InvalidArgumentError, "has no ReduceGrads"):
            deepspeed.install(self.engine, self.recorder, epilogue="optimizer")

    def test_the_engine_does_what_it_did_and_is_left_as_it_was(self):
        self.engine.train_batch()
        without, self.engine.calls = self.engine.calls, []
        before, of_class = dict(vars(self.engine)), dict(frameworks.PipelineEngine._INSTRUCTION_MAP)
        with deepspeed.install(self.engine, self.recorder):
            self.engine.train_batch()
            other = frameworks.PipelineEngine()
            self.recorder.take()
            other.train_batch()
            self.assertEqual(self.recorder.take(), [])
        self.assertEqual(self.engine.calls, without)
        self.assertEqual(vars(self.engine).keys(), before.keys())
        self.assertEqual(frameworks.PipelineEngine._INSTRUCTION_MAP, of_class)

    def test_a_failed_instruction_is_not_ended(self):
        def fail(*_, **__):
            raise RuntimeError("out of memory")

        self.engine._INSTRUCTION_MAP = {**self.engine._INSTRUCTION_MAP,
                                        frameworks.BackwardPass: fail}
        with deepspeed.install(self.engine, self.recorder), self.assertRaises(RuntimeError):
            self.engine.train_batch()
        self.assertEqual(self.recorder.take(), ["+step", "+forward", "-forward", "+backward"])
        self.assertIs(self.engine._INSTRUCTION_MAP[frameworks.BackwardPass], fail)

    def test_two_adapters_go_in_any_order(self):
        second = Recorder()
        one = deepspeed.install(self.engine, self.recorder)
        two = deepspeed.install(self.engine, second)
        one.uninstall()
        self.engine.train_batch()
        self.assertEqual((self.recorder.take(), second.take()), ([], TRAINED))
        two.uninstall()
        self.engine.train_batch()
        self.assertEqual((self.recorder.take(), second.take()), ([], []))

    def test_its_optimizer_has_the_grids_ranks(self):
        with made_instead():
            one = deepspeed.install(self.engine, server_url="http://head")
        self.assertEqual(one.optimizer.arguments, dict(
            server_url="http://head", rank=6, world_size=8, device_id=1, pp_rank=1, pp_degree=2,
            dp_rank=1, dp_degree=2, tp_rank=0, tp_degree=2))

    def test_a_device_without_a_number_is_the_local_rank(self):
        self.engine.device.index, self.engine.local_rank = None, 2
        with made_instead():
            one = deepspeed.install(self.engine, server_url="http://head")
        self.assertEqual(one.optimizer.arguments["device_id"], 2)

    def test_a_schedule_of_both_kinds_tells_which_it_is(self):
        schedule = frameworks.DualPipeVSchedule(2, 1, 0)
        with deepspeed.install(self.engine, self.recorder):
            self.engine._exec_schedule(schedule)
            trained = self.recorder.take()
            self.assertEqual((trained[0], trained[-1]), ("+step", "-step"))
            self.engine._exec_schedule(frameworks.DualPipeVSchedule(2, 1, 0, forward_only=True))
            self.assertEqual(self.recorder.take(), INSTRUCTIONS[:2] * 4)

    def test_the_order_has_all_ranks(self):
        self.engine = frameworks.PipelineEngine(2, 1, 3)
        order = "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"
        self.assertEqual(deepspeed.csv_of(self.engine), order)
        older = types.SimpleNamespace(
            _INSTRUCTION_MAP=self.engine._INSTRUCTION_MAP, micro_batches=3, num_stages=2)
        self.assertEqual(deepspeed.csv_of(older), order)

    def test_the_second_stage_of_a_rank_is_on_the_way_back(self):
        self.engine._train_schedule = lambda: frameworks.DualPipeVSchedule(2, 1, 0)
        self.assertEqual(deepspeed.csv_of(self.engine), "0F0,0F1,1F0,1F1,1B0,1B1,0B0,0B1\n")

    def test_another_engine_is_refused(self):
        with self.assertRaisesRegex(InvalidArgumentError, "PipelineEngine"):
            deepspeed.install(object(), self.recorder)


class TorchPipelining(unittest.TestCase):
    def test_each_method_is_an_instruction_and_eval_is_no_step(self):
        recorder = Recorder()
        for several in (False, True):
            schedule = frameworks.PipelineSchedule(SPLIT, several=several)
            with torch_pipelining.install(schedule, recorder):
                self.assertEqual(schedule.step(1, target=2), "output")
                self.assertEqual(recorder.take(), [
                    "+step", "+forward", "-forward", "+backward_input", "-backward_input",
                    "+backward_weight", "-backward_weight", "-step"])
                self.assertEqual(schedule.eval(), "output")
                self.assertEqual(recorder.take(), ["+forward", "-forward"])
            schedule.step()
            self.assertEqual(recorder.take(), [])
            stage = schedule.by_index[0]
            self.assertEqual(stage.calls, ["F0", "I0", "W0", "F0", "F0", "I0", "W0"])
            self.assertNotIn("forward_one_chunk", vars(stage))
            self.assertNotIn("step", vars(schedule))

    def test_marks_come_in_the_order_of_the_schedule_object(self):
        order = order_1f1b(3, 4)
        for rank in range(3):
            schedule = frameworks.PipelineSchedule(order, rank)
            recorder = Recorder()
            with torch_pipelining.install(schedule, recorder):
                schedule.step()
            begun = [one[1:] for one in recorder.take() if one[0] == "+" and one != "+step"]
            self.assertEqual(begun, torch_pipelining.order_of(schedule)[rank])

    def test_the_order_goes_to_a_csv_and_comes_from_one(self):
        order = [[(0, "F", 0), None, (0, "I", 0), (0, "W", 0)],
                 [None, (1, "F", 0), (1, "B", 0), (1, "SEND_B", 0)]]
        schedule = frameworks.PipelineSchedule(order)
        text = torch_pipelining.csv_of(schedule)
        self.assertEqual(text.split(), ["0F0,0I0,0W0", "1F0,1B0"])
        names = [["forward", "backward_input", "backward_weight"], ["forward", "backward"]]
        self.assertEqual(torch_pipelining.order_of(schedule), names)
        self.assertEqual(torch_pipelining.order_of(text), names)

    def test_overlapped_pairs_are_one_instruction_only_for_a_registered_function(self):
        schedule = frameworks.PipelineSchedule([[(0, "F", 0), (0, "B", 0)]])
        schedule.pipeline_order = {
            0: ["0F0", "1F0", "(0F1;1B0)OVERLAP_F_B", "1F1", "(0F2;1I1)OVERLAP_F_B", "1W1", "0B0",
                "0B1", "1F2", "1B2", "0B2"]}
        text = torch_pipelining.csv_of(schedule)
        self.assertEqual(text.split(), ["0F0,1F0,0F1,1B0,1F1,0F2,1I1,1W1,0B0,0B1,1F2,1B2,0B2"])
        schedule._comp_type_to_function_map["OVERLAP_F_B"] = print
        text = torch_pipelining.csv_of(schedule)
        self.assertEqual(text.split(), [",".join(schedule.pipeline_order[0])])
        self.assertEqual(torch_pipelining.order_of(text)[0], [
            "forward", "forward", "overlap_f_b", "forward", "overlap_f_b", "backward_weight",
            "backward", "backward", "forward", "backward", "backward"])

    def test_the_order_with_communication_is_the_one_that_runs(self):
        schedule = frameworks.PipelineSchedule([[(0, "F", 0), (0, "B", 0)]])
        schedule.pipeline_order = {}
        schedule.pipeline_order_with_comms = {
            0: ["0UNSHARD", "0F0", "0SEND_F0", "0RECV_B0", "0B0", "0WAIT_SEND_F0", "0REDUCE_GRAD",
                "0WAIT_REDUCE_GRAD", "0RESHARD"], 1: ["1RECV_F0", "1F0", "1B0", "1SEND_B0"]}
        self.assertEqual(torch_pipelining.csv_of(schedule).split(), ["0F0,0B0", "1F0,1B0"])

    def test_schedules_with_one_stage_need_no_description_of_pytorch(self):
        for name, orders in (
                ("Schedule1F1B", ["0F0,0F1,0B0,0F2,0B1,0B2", "1F0,1B0,1F1,1B1,1F2,1B2"]),
                ("ScheduleGPipe", ["0F0,0F1,0F2,0B0,0B1,0B2", "1F0,1F1,1F2,1B0,1B1,1B2"])):
            # This is how PyTorch 2.15 describes the last stage of 1F1B; 2.5 has nothing.
            for order in (None, {0: ["0F0", "0F1"], 1: ["1F1", "1B0", "1F2", "1B1", "1F3", "1B2"]}):
                schedule = type(name, (), {"pipeline_order": order})()
                schedule._num_stages, schedule._n_microbatches = 2, 3
                self.assertEqual(torch_pipelining.csv_of(schedule).split(), orders)

    def test_b_with_w_is_the_input_half(self):
        """PyTorch 2.5 writes so."""
        schedule = types.SimpleNamespace(pipeline_order={
            0: ["0F0", "0F1", "0B0", "0W0", "0B1"], 1: ["1F0", "1B0", "1F1", "1B1", "1W1", "1W0"]})
        self.assertEqual(torch_pipelining.csv_of(schedule).split(),
                         ["0F0,0F1,0I0,0W0,0B1", "1F0,1I0,1F1,1I1,1W1,1W0"])

    def test_the_loss_belongs_to_the_last_stages_forward(self):
        recorder = Recorder()
        order = [[(0, "F", 0), (0, "B", 0)], [(1, "F", 0), (1, "B", 0)]]
        for rank, loss in ((0, []), (1, ["+loss"])):
            schedule = frameworks.PipelineSchedule(
                order, rank, loss=lambda: recorder.on_instruction_begin("loss"))
            with torch_pipelining.install(schedule, recorder):
                for _ in range(2):
                    schedule.step()
                    self.assertEqual(recorder.take(), ["+step", "+forward", *loss, "-forward",
                                                       "+backward", "-backward", "-step"])
            self.assertNotIn("_maybe_compute_loss", vars(schedule))

    def test_registered_functions_are_instructions(self):
        """A registered function may call stages, also from another thread, or not at all."""
        recorder = Recorder()
        schedule = frameworks.PipelineSchedule(SPLIT, several=True)
        functions = schedule._comp_type_to_function_map

        def in_a_thread(action, of):
            thread = threading.Thread(target=of.by_index[0].backward_one_chunk,
                                      args=(action.microbatch,))
            thread.start()
            thread.join()

        functions["F"] = lambda action, of: None
        with torch_pipelining.install(schedule, recorder):
            schedule._comp_type_to_function_map["I"] = in_a_thread  # registered later
            schedule.step()
            self.assertEqual(recorder.take(), [
                "+step", "+forward", "-forward", "+backward_input", "-backward_input",
                "+backward_weight", "-backward_weight", "-step"])
        self.assertIs(schedule._comp_type_to_function_map, functions)
        self.assertEqual(set(functions), {"F", "I"})
        schedule.step()
        self.assertEqual(recorder.take(), [])

    def test_after_an_error_the_next_step_is_marked(self):
        recorder = Recorder()
        schedule = frameworks.PipelineSchedule(SPLIT)
        with torch_pipelining.install(schedule, recorder):
            schedule._comp_type_to_function_map["I"] = mock.Mock(side_effect=OSError)
            with self.assertRaises(OSError):
                schedule.step()
            recorder.take()
            del schedule._comp_type_to_function_map["I"]
            schedule.step()
            self.assertEqual(recorder.take()[:3], ["+step", "+forward", "-forward"])

    def test_an_order_that_cannot_be_is_refused(self):
        with self.assertRaises(InvalidArgumentError):
            torch_pipelining.order_of("0B0,0F0\n")
        with self.assertRaisesRegex(InvalidArgumentError, "newer PyTorch"):
            torch_pipelining.csv_of(types.SimpleNamespace(pipeline_order=None))
        with self.assertRaisesRegex(InvalidArgumentError, "torch.distributed.pipelining"):
            torch_pipelining.install(object(), Recorder())

    def arguments(self, world_size, rank, **given):
        """Returns the arguments of the optimizer that install makes for the second of two
        stages."""
        schedule = frameworks.PipelineSchedule(order_1f1b(2, 2), 1)
        schedule._stage.device = "cuda"
        parameters = given.pop("parameters", ())
        schedule._stage.submod = types.SimpleNamespace(parameters=lambda: parameters)
        torch = mock.MagicMock()
        torch.distributed.get_world_size.return_value = world_size
        torch.distributed.get_rank.return_value = rank
        torch.device.return_value.index = None
        torch.device.return_value.type = "cuda"
        torch.cuda.current_device.return_value = 3
        with mock.patch.dict(sys.modules, torch=torch), made_instead():
            one = torch_pipelining.install(schedule, server_url="http://head", **given)
            one.uninstall()
        self.assertEqual((one.optimizer.arguments["device_id"], one.optimizer.arguments["rank"],
                          one.optimizer.arguments["world_size"]), (3, rank, world_size))
        return {name: one.optimizer.arguments[name]
                for name in ("pp_rank", "pp_degree", "dp_rank", "dp_degree", "tp_rank",
                             "tp_degree")}

    @staticmethod
    def mesh(place, **dimensions):
        return types.SimpleNamespace(
            mesh_dim_names=tuple(dimensions), shape=tuple(dimensions.values()),
            get_coordinate=lambda: place)

    def test_its_optimizer_has_the_pipelines_ranks(self):
        expected = dict(pp_rank=1, pp_degree=2, dp_rank=0, dp_degree=1, tp_rank=0, tp_degree=1)
        self.assertEqual(self.arguments(2, 1), expected)
        with self.assertRaisesRegex(InvalidArgumentError, "4 ranks, but 2 are known.*device_mesh="):
            self.arguments(4, 2)

    def test_its_optimizer_has_the_ranks_of_the_mesh(self):
        mesh = self.mesh([1, 1, 0, 2, 1], pp=2, dp_replicate=2, dp_shard=2, cp=3, tp=2)
        self.assertEqual(self.arguments(48, 41, device_mesh=mesh), dict(
            pp_rank=1, pp_degree=2, dp_rank=8, dp_degree=12, tp_rank=1, tp_degree=2))
        with self.assertRaisesRegex(InvalidArgumentError, "96 ranks, but 48 are known"):
            self.arguments(96, 41, device_mesh=mesh)

    def test_the_mesh_of_distributed_parameters_is_found(self):
        parameter = types.SimpleNamespace(device_mesh=self.mesh([1, 0], dp_shard_cp=2, tp=2))
        self.assertEqual(self.arguments(8, 6, parameters=[object(), parameter]), dict(
            pp_rank=1, pp_degree=2, dp_rank=1, dp_degree=2, tp_rank=0, tp_degree=2))

    def test_a_mesh_that_says_nothing_is_refused(self):
        for mesh, message in ((self.mesh([0, 1], pp=2, x=2), "a dimension x"),
                              (self.mesh(None, pp=2, dp=2), "does not contain this rank"),
                              (self.mesh([0]), "no named dimensions")):
            with self.assertRaisesRegex(InvalidArgumentError, message):
                self.arguments(4, 2, device_mesh=mesh)

    def test_given_ranks_need_no_mesh(self):
        given = dict(dp_rank=1, dp_degree=2, tp_rank=0, tp_degree=1)
        self.assertEqual(self.arguments(4, 3, **given), dict(given, pp_rank=1, pp_degree=2))


class WithServer(training.TrainingTest):
    """Every step of a real job fits the plan, and rounds go on."""

    def go_through_rounds(self, install, step, names):
        url = self.serve(names=names)
        optimizer = self.optimizer(url, job_key=self.id())
        optimizer.wait_for_round(0, training.LIMIT_S)
        with install(optimizer):
            self.wait_until(lambda: optimizer.status().round >= 2, "no rounds", step)
        self.assertEqual(optimizer.status().misfits, 0)

    def test_megatron(self):
        config = types.SimpleNamespace(timers=frameworks.MegatronTimers(0))

        def step():
            frameworks.megatron_step(config, 0, 1, 2)
            frameworks.megatron_evaluate(config, config.timers, 0, 1, 2)
        self.go_through_rounds(lambda optimizer: megatron.install(config, optimizer), step,
                               ["forward", "backward"] * 2)

    def test_deepspeed(self):
        engine = frameworks.PipelineEngine()
        self.go_through_rounds(lambda optimizer: deepspeed.install(engine, optimizer),
                               lambda: [engine.train_batch(), engine.eval_batch()],
                               ["forward", "backward"] * 2)

    def test_deepspeed_with_the_end_of_a_step(self):
        engine = frameworks.PipelineEngine()
        self.go_through_rounds(
            lambda optimizer: deepspeed.install(engine, optimizer, epilogue="optimizer"),
            lambda: [engine.train_batch(), engine.eval_batch()],
            ["forward", "backward"] * 2 + ["optimizer"])

    def test_torch_pipelining_with_a_plan_of_its_own_order(self):
        schedule = frameworks.PipelineSchedule(SPLIT)
        self.go_through_rounds(lambda optimizer: torch_pipelining.install(schedule, optimizer),
                               lambda: [schedule.step(), schedule.eval()],
                               torch_pipelining.order_of(schedule)[0])

    def test_the_csv_is_what_the_server_takes(self):
        schedule = frameworks.PipelineSchedule(SPLIT)
        path = self.path / "order.csv"
        torch_pipelining.write_csv(schedule, path)
        started = self.start("--scheduler-args",
                             '{"num_microbatches": 1, "schedule": {"csv": "%s"}}' % path,
                             scheduler="InstructionProfiler")
        optimizer = self.optimizer(f"http://127.0.0.1:{started.port}")
        optimizer.wait_for_round(0, training.LIMIT_S)
        with torch_pipelining.install(schedule, optimizer):
            self.wait_until(lambda: optimizer.status().round >= 2, "no rounds", schedule.step)
        self.assertEqual(optimizer.status().misfits, 0)
