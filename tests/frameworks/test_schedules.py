# SPDX-License-Identifier: Apache-2.0
"""Harpe's built-in schedules against the lists that the frameworks themselves make: those of
torch.distributed.pipelining's classes, and the order in which Megatron-Core's own schedule calls
the forwards and backwards of a rank. No process group and no GPU is needed: torch's classes get
stages without a model, and Megatron's schedule gets a communicator that sends nothing. A framework
that is not installed is skipped. `make check` does not run these tests."""
import contextlib
import ctypes as C
import inspect
import itertools
import logging
import re
import types
import unittest
import warnings
from unittest import mock

import jobs  # noqa: F401  appends the directory of the package to the path

from harpe import InvalidArgumentError
from harpe import _bindings as b
from harpe._library import call, lib

LETTERS = "FBIWRXS"
COMPUTATION = re.compile(r"\d+[FBIW]\d+|\(.*\)OVERLAP_F_B")

try:
    import torch
    from torch.distributed.pipelining import schedules as torch_schedules
    logging.getLogger("torch.distributed.pipelining").setLevel(logging.ERROR)
    WHY_NO_TORCH = None
except ImportError as error:
    WHY_NO_TORCH = f"torch.distributed.pipelining cannot be imported: {error}"

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from megatron.core import ModelParallelConfig
        from megatron.core.pipeline_parallel import schedules as megatron_schedules
    INTERLEAVING = megatron_schedules.forward_backward_pipelining_with_interleaving
    WHY_NO_MEGATRON = WHY_NO_TORCH
    if "p2p_communicator" not in inspect.signature(INTERLEAVING).parameters:
        WHY_NO_MEGATRON = "this megatron-core has no communicator that could be replaced"
except ImportError as error:
    WHY_NO_MEGATRON = f"megatron-core cannot be imported: {error}"
try:
    from megatron.core.pipeline_parallel import combined_1f1b
except ImportError:
    combined_1f1b = None  # before 0.14


def harpe_lists(name, ranks, microbatches, **options):
    """Returns the list of each rank in the notation of torch, or None if Harpe refuses."""
    made, count = C.c_void_p(), C.c_size_t()
    options = b.harpe_schedule_options(name=name.encode(), ranks=ranks, microbatches=microbatches,
                                       **options)
    try:
        call(lib.harpe_schedule_new, C.byref(options), C.byref(made))
    except InvalidArgumentError:
        return None
    lists = []
    for rank in range(ranks):
        instructions = lib.harpe_schedule_rank(made, rank, C.byref(count))
        lists.append([])
        for i in range(count.value):
            parts = [f"{one.stage}{LETTERS[one.operation]}{one.microbatch}"
                     for one in instructions[i].actions[:instructions[i].action_count]]
            lists[-1].append(parts[0] if len(parts) == 1 else f"({';'.join(parts)})OVERLAP_F_B")
    lib.harpe_schedule_free(made)
    return lists


class OneForAll(unittest.TestCase):
    def assert_same(self, harpes, frameworks, shape):
        if harpes != frameworks:  # assertEqual would compare the lists a second time, slowly
            self.assertIsNotNone(harpes, f"{shape}: Harpe refuses it")
            self.assertIsNotNone(frameworks, f"{shape}: the framework refuses it")
            rank = [one == other for one, other in zip(harpes, frameworks)].index(False)
            self.fail(f"{shape}, rank {rank}: {harpes[rank]} is not {frameworks[rank]}")


# ---- torch ----

def torch_lists(kind, ranks, microbatches, stages_of_rank):
    """Returns the lists of one of torch's schedule classes, or None if the class refuses."""
    count = ranks * stages_of_rank
    stages = [types.SimpleNamespace(stage_index=index, num_stages=count, group_size=ranks,
                                    group_rank=0, group=None, submod=None, has_backward=True,
                                    _prepare_forward_infra=lambda *_: None,
                                    stage_index_to_group_rank={i: i % ranks for i in range(count)})
              for index in range(stages_of_rank)]
    try:
        if issubclass(kind, torch_schedules.PipelineScheduleSingle):
            order = kind(stages[0], microbatches)._get_pipeline_order()
        else:
            order = kind(stages, microbatches).pipeline_order
    except ValueError:
        return None
    return [[cell for cell in map(str, order[rank]) if COMPUTATION.fullmatch(cell)]
            for rank in range(ranks)]


@unittest.skipIf(WHY_NO_TORCH, WHY_NO_TORCH)
class Torch(OneForAll):
    def compare(self, name, kind_name, shapes, **options):
        """Compares all shapes (ranks, microbatches, stages per rank). Returns how many both
        accept."""
        kind = getattr(torch_schedules, kind_name, None)
        if kind is None or (issubclass(kind, torch_schedules.PipelineScheduleSingle)
                            and not hasattr(kind, "_get_pipeline_order")):
            self.skipTest(f"this torch cannot list {kind_name}")
        accepted = 0
        for ranks, microbatches, stages in shapes:
            lists = torch_lists(kind, ranks, microbatches, stages)
            if name == "1f1b":
                # torch's list numbers the last rank's forwards 1 to M. Its backwards, and what
                # torch runs, are numbered 0 to M - 1.
                lists[-1] = [re.sub(r"F(\d+)", lambda found: f"F{int(found[1]) - 1}", cell)
                             for cell in lists[-1]]
            self.assert_same(harpe_lists(name, ranks, microbatches, chunks=stages, **options),
                             lists, (kind_name, ranks, microbatches, stages))
            accepted += lists is not None
        return accepted

    def test_1f1b(self):
        # With fewer microbatches, torch's own list has more forwards than microbatches.
        shapes = [(ranks, microbatches, 1) for ranks in range(1, 9)
                  for microbatches in range(ranks, 25)]
        self.assertEqual(self.compare("1f1b", "Schedule1F1B", shapes), len(shapes))

    def test_gpipe(self):
        shapes = list(itertools.product(range(1, 9), range(1, 25), [1]))
        self.assertEqual(self.compare("gpipe", "ScheduleGPipe", shapes), len(shapes))

    def test_interleaved_with_any_number_of_microbatches(self):
        shapes = list(itertools.product(range(1, 9), range(1, 33), [2, 3, 4]))
        multiples = [shape for shape in shapes if shape[1] % shape[0] == 0]
        if hasattr(torch_schedules, "ScheduleFlexibleInterleaved1F1B"):  # before 2.6
            self.compare("interleaved-1f1b", "ScheduleInterleaved1F1B", multiples)
            return
        accepted = self.compare("interleaved-1f1b", "ScheduleInterleaved1F1B", shapes)
        self.assertGreater(accepted, len(multiples))
        self.assertLess(accepted, len(shapes))
        print(f"\n{accepted} shapes, {accepted - len(multiples)} not multiples", end=" ")

    def test_zero_bubble_v(self):
        shapes = list(itertools.product(range(1, 9), range(1, 33), [2]))
        self.compare("zb-v", "ScheduleZBVZeroBubble", shapes)

    def test_dualpipe_v(self):
        shapes = list(itertools.product(range(1, 9), range(1, 33), [2]))
        self.compare("dualpipe-v", "ScheduleDualPipeV", shapes)


# ---- Megatron ----

class Communicator:
    """Stands for Megatron's P2PCommunicator on one rank. Receives what nobody has sent."""

    def __init__(self, ranks, rank, chunks, config):
        self.config = config
        self.pp_group = types.SimpleNamespace(size=lambda: ranks, rank=lambda: rank)
        self.virtual_pipeline_model_parallel_size = chunks
        self.is_pp_first_stage, self.is_pp_last_stage = rank == 0, rank == ranks - 1

    def recv_forward(self, *_, **__):
        return torch.zeros(1)

    def send_forward_recv_forward(self, *_, **__):
        return torch.zeros(1)

    recv_backward = send_backward_recv_backward = send_forward_recv_forward

    def send_forward_backward_recv_forward_backward(self, *_, **__):
        return torch.zeros(1), torch.zeros(1)


class Chunk(torch.nn.Module if not WHY_NO_TORCH else object):
    """A model chunk that computes nothing. Its output tells chunk and microbatch."""

    def __init__(self, config, index):
        super().__init__()
        self.config, self.index, self.vp_stage = config, index, index
        self.model_type = None


class Recorder:
    """Replaces the functions with which Megatron's schedules run a forward and a backward."""

    def __init__(self, ranks, rank):
        self.ranks, self.rank, self.list = ranks, rank, []

    def _cell(self, letter, chunk, microbatch):
        return f"{chunk * self.ranks + self.rank}{letter}{microbatch}"

    def _forward(self, model, microbatch):
        return self._cell("F", model.index, microbatch), torch.tensor([model.index, microbatch])

    def _backward(self, output):
        return self._cell("B", *output.tolist())

    def forward_step(self, _function, _iterator, model, *_, current_microbatch, **__):
        cell, output = self._forward(model, current_microbatch)
        self.list.append(cell)
        return output, torch.zeros([], dtype=torch.int)

    def backward_step(self, _input, output, *_):
        self.list.append(self._backward(output))
        return torch.zeros(1)

    def combined_step(self, _function, _iterator, f_model, _count, _input, _store, b_model, _b_input,
                      b_output, *_, current_microbatch=None, **__):
        cells, output = [], None
        if f_model is not None:
            cell, output = self._forward(f_model, current_microbatch)
            cells.append(cell)
        if b_model is not None:
            cells.append(self._backward(b_output))
        self.list.append(cells[0] if len(cells) == 1 else f"({';'.join(cells)})OVERLAP_F_B")
        return output, torch.zeros([], dtype=torch.int), torch.zeros(1)


def megatron_list(ranks, rank, microbatches, chunks, group_size, overlaps):
    """Returns the list of a rank, or None if Megatron refuses the shape."""
    config = ModelParallelConfig(pipeline_model_parallel_size=ranks, pipeline_dtype=torch.float32,
                                 virtual_pipeline_model_parallel_size=chunks,
                                 microbatch_group_size_per_vp_stage=group_size)
    config.hidden_size, config.overlap_moe_expert_parallel_comm = 1, overlaps
    for name in ("calculate_per_token_loss", "high_priority_a2a_comm_stream",
                 "fine_grained_activation_offloading"):  # of a TransformerConfig
        setattr(config, name, False)
    recorder, zeros = Recorder(ranks, rank), torch.zeros
    one = types.SimpleNamespace(size=lambda: 1, rank=lambda: 0)
    groups = dict.fromkeys(["tp", "cp", "embd", "pos_embd", "pp", "dp_cp"], one)
    with contextlib.ExitStack() as patches:
        for module, name, replacement in (
                (megatron_schedules, "forward_step", recorder.forward_step),
                (megatron_schedules, "backward_step", recorder.backward_step),
                (combined_1f1b, "combined_forward_backward_step", recorder.combined_step),
                (combined_1f1b, "set_streams", lambda **_: None),
                (torch, "zeros", lambda *size, device=None, **named: zeros(*size, **named))):
            if module is not None:
                patches.enter_context(mock.patch.object(module, name, replacement))
        try:
            INTERLEAVING(
                forward_step_func=None, data_iterator=[None] * chunks,
                model=[Chunk(config, index) for index in range(chunks)],
                num_microbatches=microbatches, seq_length=1, micro_batch_size=1,
                p2p_communicator=Communicator(ranks, rank, chunks, config),
                pg_collection=types.SimpleNamespace(**groups))
        except (ValueError, RuntimeError):
            return None
    return recorder.list


@unittest.skipIf(WHY_NO_MEGATRON, WHY_NO_MEGATRON)
class Megatron(OneForAll):
    def compare(self, shapes, overlaps):
        accepted = 0
        for ranks, microbatches, chunks, group_size in shapes:
            lists = [megatron_list(ranks, rank, microbatches, chunks, group_size, overlaps)
                     for rank in range(ranks)]
            lists = None if None in lists else lists
            if lists is None and microbatches < ranks:
                continue  # torch accepts these
            self.assert_same(
                harpe_lists("interleaved-1f1b", ranks, microbatches, chunks=chunks,
                            microbatch_group_size=group_size,
                            overlaps_moe_expert_parallel_comm=overlaps), lists,
                (ranks, microbatches, chunks, group_size, overlaps))
            accepted += lists is not None
        self.assertGreater(accepted, len(shapes) // 20)

    def test_groups_of_any_size(self):
        self.compare([(ranks, microbatches, chunks, group_size) for ranks in (2, 3, 4, 6)
                      for microbatches in (1, 4, 7, 10, 12, 13) for chunks in (2, 3)
                      for group_size in range(1, microbatches + 2)], overlaps=False)

    @unittest.skipIf(combined_1f1b is None, "this Megatron overlaps no expert communication")
    def test_overlapped_expert_communication(self):
        self.compare([(ranks, microbatches, chunks, group_size) for ranks in (2, 4)
                      for microbatches in (4, 9, 10) for chunks in (2, 3)
                      for group_size in range(2, microbatches + 1)], overlaps=True)
