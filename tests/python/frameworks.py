# SPDX-License-Identifier: Apache-2.0
"""Small stand-ins for the frameworks that the adapters support, for machines without the real ones.
Each has the parts of its framework that an adapter uses, under the same names, and a loop that
calls them in the framework's order. They compute nothing."""
import types
from unittest import mock


def order_1f1b(rank, ranks, microbatches):
    """Yields one rank's "F" and "B" with their microbatches."""
    forwards = backwards = 0
    while backwards < microbatches:
        if forwards < microbatches and forwards - backwards < ranks - rank:
            yield "F", forwards
            forwards += 1
        else:
            yield "B", backwards
            backwards += 1


# ---- Megatron ----

def megatron_modules(rank=0, world_size=1, pipeline=(0, 1), data=(0, 1)):
    """Returns the modules of a Megatron and a PyTorch with these ranks and sizes, by name."""
    state, torch = mock.MagicMock(), mock.MagicMock()
    for name, place in (("pipeline_model", pipeline), ("data", data), ("tensor_model", (0, 1))):
        for what, value in zip(("rank", "world_size"), place):
            getattr(state, f"get_{name}_parallel_{what}").return_value = value
    torch.distributed.get_rank.return_value = rank
    torch.distributed.get_world_size.return_value = world_size
    torch.cuda.current_device.return_value = 0
    core = types.SimpleNamespace(parallel_state=state)
    return {"torch": torch, "megatron": types.SimpleNamespace(core=core),
            "megatron.core": core, "megatron.core.parallel_state": state}


class MegatronTimer:
    def __init__(self, calls, name):
        self.calls, self.name, self.started = calls, name, False

    def start(self, barrier=False):
        assert not self.started
        self.started = True
        self.calls.append(f"start {self.name}")

    def stop(self, barrier=False):
        assert self.started
        self.started = False
        self.calls.append(f"stop {self.name}")

    def elapsed(self, reset=True, barrier=False):
        return 1.5


class MegatronDummyTimer:
    def start(self, barrier=False):
        pass

    def stop(self, barrier=False):
        pass


class MegatronTimers:
    """Stands in for megatron.core.timers.Timers: all timers above its log level are one timer that
    does nothing."""

    def __init__(self, log_level, log_option="minmax"):
        self._log_level, self._timers, self.calls = log_level, {}, []
        self._dummy_timer = MegatronDummyTimer()

    def __call__(self, name, log_level=None):
        if name in self._timers:
            return self._timers[name]
        if (2 if log_level is None else log_level) > self._log_level:
            return self._dummy_timer
        return self._timers.setdefault(name, MegatronTimer(self.calls, name))

    def log(self, names):
        return {name: self._timers[name].elapsed() for name in names}


def megatron_step(config, rank, ranks, microbatches, forward_only=False):
    """Stands in for forward_backward_pipelining_without_interleaving. Evaluation removes the
    timers."""
    if config.timers is not None:
        config.timers("forward-backward", log_level=1).start(barrier=True)
    for kind, _ in order_1f1b(rank, ranks, microbatches):
        if forward_only and kind == "B":
            continue
        name = {"F": "forward-compute", "B": "backward-compute"}[kind]
        if config.timers is not None:
            config.timers(name, log_level=2).start()
        if config.timers is not None:
            config.timers(name, log_level=2).stop()
    if config.timers is not None:
        config.timers("forward-backward").stop()


def megatron_evaluate(config, timers, rank, ranks, microbatches):
    config.timers = None
    megatron_step(config, rank, ranks, microbatches, forward_only=True)
    config.timers = timers


# ---- DeepSpeed ----

class PipeInstruction:
    def __init__(self, **kwargs):
        self.kwargs = kwargs
        vars(self).update(kwargs)


class LoadMicroBatch(PipeInstruction):
    pass


class ForwardPass(PipeInstruction):
    pass


class BackwardPass(PipeInstruction):
    pass


class ReduceTiedGrads(PipeInstruction):
    pass


class ReduceGrads(PipeInstruction):
    pass


class OptimizerStep(PipeInstruction):
    pass


class TrainSchedule:
    def __init__(self, micro_batches, stages, stage_id):
        self.stages, self.stage_id = stages, stage_id
        self.order = list(order_1f1b(stage_id, stages, micro_batches))

    def __iter__(self):
        for kind, microbatch in self.order:
            if kind == "F":
                yield [LoadMicroBatch(buffer_id=microbatch), ForwardPass(buffer_id=microbatch)]
            else:
                yield [BackwardPass(buffer_id=microbatch)]
        yield [ReduceTiedGrads(), ReduceGrads(), OptimizerStep()]


class InferenceSchedule:
    def __init__(self, micro_batches, stages, stage_id):
        self.micro_batches = micro_batches

    def __iter__(self):
        for microbatch in range(self.micro_batches):
            yield [ForwardPass(buffer_id=microbatch)]


class DualPipeVSchedule:
    """Stands in for the schedule of two stages on each rank. It also evaluates."""

    def __init__(self, micro_batches, stages, stage_id, forward_only=False):
        self.micro_batches, self.forward_only = micro_batches, forward_only
        self.stages, self.stage_id = stages, stage_id

    def __iter__(self):
        for kind, phase in ((ForwardPass, 0), (ForwardPass, 1), (BackwardPass, 1),
                            (BackwardPass, 0))[:2 if self.forward_only else 4]:
            for microbatch in range(self.micro_batches):
                yield [kind(buffer_id=microbatch, phase=phase)]


class PipelineGrid:
    """Two stages of two tensor slices and two replicas; this is rank 6 of 8."""
    get_global_rank = staticmethod(lambda: 6)
    get_pipe_parallel_rank = staticmethod(lambda: 1)
    get_pipe_parallel_world_size = staticmethod(lambda: 2)
    get_data_parallel_rank = staticmethod(lambda: 1)
    get_data_parallel_world_size = staticmethod(lambda: 2)
    get_slice_parallel_rank = staticmethod(lambda: 0)
    get_slice_parallel_world_size = staticmethod(lambda: 2)


class PipelineEngine:
    """Stands in for deepspeed.runtime.pipe.engine.PipelineEngine, which finds its functions in a
    map of its class."""

    def __init__(self, stages=1, stage_id=0, micro_batches=2):
        self.shape = (micro_batches, stages, stage_id)
        self.micro_batches, self.num_stages = micro_batches, stages
        self.calls = []
        self.grid = PipelineGrid()
        self.device = types.SimpleNamespace(index=1)

    def _exec_load_micro_batch(self, buffer_id):
        self.calls.append(f"load {buffer_id}")

    def _exec_forward_pass(self, buffer_id, phase=0):
        self.calls.append(f"forward {buffer_id}")

    def _exec_backward_pass(self, buffer_id, phase=0):
        self.calls.append(f"backward {buffer_id}")

    def _exec_reduce_tied_grads(self):
        self.calls.append("reduce tied")

    def _exec_reduce_grads(self):
        self.calls.append("reduce")

    def _exec_optimizer_step(self, lr_kwargs=None):
        self.calls.append("step")

    _INSTRUCTION_MAP = {
        ReduceTiedGrads: _exec_reduce_tied_grads,
        ReduceGrads: _exec_reduce_grads,
        OptimizerStep: _exec_optimizer_step,
        LoadMicroBatch: _exec_load_micro_batch,
        ForwardPass: _exec_forward_pass,
        BackwardPass: _exec_backward_pass,
    }

    def _exec_schedule(self, pipe_schedule):
        for commands in pipe_schedule:
            for command in commands:
                method = types.MethodType(self._INSTRUCTION_MAP[type(command)], self)
                method(**command.kwargs)

    def _train_schedule(self):
        return TrainSchedule(*self.shape)

    def train_batch(self):
        self._exec_schedule(self._train_schedule())
        return 0.5

    def eval_batch(self):
        self._exec_schedule(InferenceSchedule(*self.shape))


# ---- torch.distributed.pipelining ----

class Action:
    """Stands in for torch.distributed.pipelining.schedules._Action: 0F3."""

    def __init__(self, stage, kind, microbatch):
        self.stage, self.kind, self.microbatch = stage, kind, microbatch

    def __str__(self):
        return f"{self.stage}{self.kind}{self.microbatch}"


class PipelineStage:
    def __init__(self, index, group_rank=0, group_size=1, is_last=False):
        self.stage_index, self.group_rank, self.group_size = index, group_rank, group_size
        self.is_last, self.calls = is_last, []

    def forward_one_chunk(self, fwd_chunk_id, args=(), kwargs=None, save_forward_output=True):
        self.calls.append(f"F{fwd_chunk_id}")
        return fwd_chunk_id

    def backward_one_chunk(self, bwd_chunk_id, loss=None, full_backward=True, last_backward=False):
        self.calls.append(f"{'B' if full_backward else 'I'}{bwd_chunk_id}")

    def backward_weight_one_chunk(self, bwd_chunk_id, last_backward=False):
        self.calls.append(f"W{bwd_chunk_id}")


class PipelineSchedule:
    """A schedule with one stage (`_stage`) or several stages (`_stages`) per rank, which runs in
    its order. `order`: for each rank a list of (stage, kind, microbatch) and None. The functions in
    _comp_type_to_function_map run instead of the stages' methods."""

    def __init__(self, order, rank=0, several=False, loss=None):
        self.pipeline_order = {rank: [one and Action(*one) for one in actions]
                               for rank, actions in enumerate(order)}
        self.actions = self.pipeline_order[rank]
        indices = sorted({one.stage for one in self.actions if one})
        last = max(one[0] for actions in order for one in actions if one)
        stages = [PipelineStage(index, rank, len(order), index == last) for index in indices]
        self._loss_fn, self._comp_type_to_function_map = loss, {}
        self.by_index = dict(zip(indices, stages))
        if several:
            self._stages = stages
        else:
            self._stage, = stages
        self._has_backward = True

    def _maybe_compute_loss(self, stage, output, target_mbs, mb_index):
        if stage.is_last and self._loss_fn is not None:
            self._loss_fn()

    def step(self, *args, target=None, losses=None, **kwargs):
        for action in filter(None, self.actions):
            stage = self.by_index[action.stage]
            if action.kind in self._comp_type_to_function_map:
                self._comp_type_to_function_map[action.kind](action, self)
            elif action.kind == "F":
                output = stage.forward_one_chunk(action.microbatch, args, kwargs)
                self._maybe_compute_loss(stage, output, target, action.microbatch)
            elif self._has_backward and action.kind == "W":
                stage.backward_weight_one_chunk(action.microbatch)
            elif self._has_backward:
                stage.backward_one_chunk(action.microbatch, loss=None,
                                         full_backward=action.kind == "B")
        return "output"

    def eval(self, *args, **kwargs):
        self._has_backward = False
        try:
            return self.step(*args, **kwargs)
        finally:
            self._has_backward = True


# ---- Transformers ----

class Trainer:
    """Calls callbacks as transformers.Trainer does (trainer.py, CallbackHandler.call_event): for
    every event, with args, state and control by position and the other arguments by name."""

    def __init__(self, callbacks, step):
        self.callbacks, self.step = callbacks, step

    def event(self, name, **keywords):
        for callback in self.callbacks:
            getattr(callback, name)("args", "state", "control", model=None, processing_class=None,
                                    optimizer=None, lr_scheduler=None, train_dataloader=None,
                                    eval_dataloader=None, **keywords)

    def train(self, epochs, steps):
        self.event("on_init_end")
        self.event("on_train_begin")
        for _ in range(epochs):
            self.event("on_epoch_begin")
            for _ in range(steps):
                self.event("on_step_begin")
                self.step()
                self.event("on_pre_optimizer_step")
                self.event("on_optimizer_step")
                self.event("on_step_end")
                self.event("on_log", logs={})
            self.event("on_epoch_end")
            self.event("on_evaluate", metrics={})
            self.event("on_save")
        self.event("on_train_end")
