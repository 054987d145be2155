# SPDX-License-Identifier: Apache-2.0
"""Changes a framework's module, right after its import, so that Harpe's adapter installs itself
when the training begins. An adapter that cannot be installed is one line on standard error, and the
framework works as without it. What an adapter does is in harpe.integrations."""
from __future__ import annotations

import functools
import os
from typing import Any, Callable, Dict, List, Optional

from harpe import _bindings as b
from harpe._library import InvalidArgumentError

__all__ = ["adapt"]


def adapt(name: str, module: Any, process: Any) -> None:
    """Changes the module `name`. `process` is told what was recognised, and what failed."""
    _CHANGES[name](module, _Adapter(process))


class _Adapter:
    """Installs adapters as the options of `harpe run` ask for, and reports that."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.server_url = os.environ.get("HARPE_SERVER") or None
        self.only_measures = "HARPE_RUN_MEASURE_ONLY" in os.environ
        self.sets_power_limit = "HARPE_RUN_POWER_LIMIT" in os.environ

    def options(self) -> Dict[str, Any]:
        """Returns the arguments of a pipeline frequency optimizer."""
        if self.server_url is None:
            raise InvalidArgumentError(
                "there is no server that plans for it: give --server URL or set HARPE_SERVER",
                b.HARPE_INVALID_ARGUMENT)
        found: Dict[str, Any] = {"server_url": self.server_url}
        if os.environ.get("HARPE_RUN_JOB"):
            found["job_key"] = os.environ["HARPE_RUN_JOB"]
        if self.only_measures:
            found["leave_clocks_alone"] = True
        return found

    def attempt(self, what: str, install: Callable[[], Optional[str]]) -> None:
        """Calls install(), which returns what it has done, and says so."""
        try:
            done = install()
        except Exception as error:
            self.process.failed(f"{what}: {error}; the training goes on without Harpe")
            return
        if done:
            self.process.recognised(f"{what}: {done}")

    def pipeline(self, what: str, install: Callable[[Dict[str, Any]], Any]) -> None:
        """Installs the adapter of a pipeline-parallel framework. install() gets the arguments of
        the optimizer."""
        def do() -> str:
            install(self.options())
            doing = "instructions are measured" if self.only_measures else "clocks follow the plans"
            return f"{doing}; server {self.server_url}"
        self.attempt(what, do)


def _before_first(owner: Any, name: str, mark: str, action: Callable[[Any], None]) -> None:
    """Replaces the method `name` of a class by one that calls action(object) before the first call
    for each object. An object that has an attribute `mark` of its own is left out: the adapters set
    it, so the script itself has installed one."""
    method = vars(owner)[name]

    @functools.wraps(method)
    def with_action(self: Any, *arguments: Any, **named: Any) -> Any:
        if not getattr(self, "_harpe_run_has_seen", False):
            try:
                self._harpe_run_has_seen = True
                is_new = mark not in vars(self)
            except Exception:  # an object that takes no attributes
                return method(self, *arguments, **named)
            if is_new:
                action(self)
        return method(self, *arguments, **named)

    setattr(owner, name, with_action)


# ---- Pipeline-parallel frameworks ----------------------------------------------------------------


_meshes: List[Any] = []  # the device meshes that the script has made


def _device_mesh(module: Any, _adapter: _Adapter) -> None:
    """Keeps the script's device meshes. They tell the dimensions of a job that has more than its
    pipeline."""
    make = module.init_device_mesh

    @functools.wraps(make)
    def and_keep(*arguments: Any, **named: Any) -> Any:
        mesh = make(*arguments, **named)
        _meshes.append(mesh)
        return mesh

    module.init_device_mesh = and_keep


def _mesh_of(schedule: Any) -> Dict[str, Any]:
    """Returns the mesh of all ranks as an argument of install(), if the job has more ranks than its
    pipeline."""
    import torch
    world_size = torch.distributed.get_world_size()
    stage = (getattr(schedule, "_stages", None) or [schedule._stage])[0]
    if stage.group_size == world_size:
        return {}
    return next(({"device_mesh": mesh} for mesh in reversed(_meshes)
                 if mesh.size() == world_size and mesh.mesh_dim_names), {})


def _pipelining(module: Any, adapter: _Adapter) -> None:
    """The first step of each schedule object runs without marks."""
    def add(schedule: Any) -> None:
        def install(options: Dict[str, Any]) -> None:
            from harpe.integrations import torch_pipelining
            torch_pipelining.install(schedule, **options, **_mesh_of(schedule))
        adapter.pipeline(f"torch.distributed.pipelining ({type(schedule).__name__})", install)

    for kind in list(vars(module).values()):
        if isinstance(kind, type) and kind.__module__ == module.__name__ and "step" in vars(kind) \
                and not getattr(vars(kind)["step"], "__isabstractmethod__", False):
            _before_first(kind, "step", "step", add)


def _megatron(module: Any, adapter: _Adapter) -> None:
    """pretrain() calls train() when model parallelism is set up and the timers exist."""
    train = module.train

    def install(options: Dict[str, Any]) -> None:
        from harpe.integrations import megatron
        megatron.install(module.get_timers(), **options)

    @functools.wraps(train)
    def with_adapter(*arguments: Any, **named: Any) -> Any:
        adapter.pipeline("Megatron", install)
        return train(*arguments, **named)

    module.train = with_adapter


def _deepspeed(module: Any, adapter: _Adapter) -> None:
    def add(engine: Any) -> None:
        def install(options: Dict[str, Any]) -> None:
            from harpe.integrations import deepspeed
            deepspeed.install(engine, **options)
        adapter.pipeline(f"DeepSpeed ({type(engine).__name__})", install)

    _before_first(module.PipelineEngine, "train_batch", "_exec_schedule", add)


# ---- Trainers ------------------------------------------------------------------------------------


def _before_each(owner: Any, name: str, action: Callable[[Any], None]) -> None:
    """Replaces the method `name` of a class by one that calls action(object) before each call. The
    action may replace the method once more, which then holds for this call too."""
    method = vars(owner)[name]

    @functools.wraps(method)
    def with_action(self: Any, *arguments: Any, **named: Any) -> Any:
        before = vars(owner)[name]
        action(self)
        now = vars(owner)[name]
        return (method if now is before else now)(self, *arguments, **named)

    setattr(owner, name, with_action)


class _Callbacks:
    """Sees to it that a Trainer has each of Harpe's callbacks once: that of the script if there is
    one, at the moment when the training begins."""

    def __init__(self, adapter: _Adapter, ours: Any, callbacks: List[Any], own: List[Any],
                 add: Callable[[Any], None]) -> None:
        """callbacks: those of the Trainer. own: those that an earlier call has added."""
        self.adapter, self.ours, self.callbacks = adapter, ours, callbacks
        self.own, self.add = own, add

    def update(self) -> Optional[str]:
        """Returns what has been added."""
        wanted = [("EnergyCallback", ("EnergyCallback",), "its log gets the energy")]
        if self.adapter.sets_power_limit:
            wanted.append(("PowerLimitCallback",
                           ("PowerLimitCallback", "HFGlobalPowerLimitOptimizer"),
                           "the best power limit is looked for"))
        is_first = not self.own
        done = [text for name, others, text in wanted
                if self.has_added(getattr(self.ours, name), tuple(
                    getattr(self.ours, other) for other in others if hasattr(self.ours, other)))]
        return ", ".join(done) or (
            "the script itself has added Harpe's callbacks" if is_first else None)

    def has_added(self, kind: type, others: tuple) -> bool:
        present = [one for one in self.callbacks if isinstance(one, others)]
        if not present and any(isinstance(one, kind) for one in self.own):
            return False  # the script has taken it out
        if not present:
            self.own.append(kind())
            self.add(self.own[-1])
            return True
        for one in present:
            if one in self.own and len(present) > 1:
                self.callbacks.remove(one)
        return False


def _own_callbacks(trainer: Any) -> List[Any]:
    """Returns the list of the callbacks that `harpe run` has added to a Trainer."""
    own: List[Any] = vars(trainer).setdefault("_harpe_run_callbacks", [])
    return own


def _transformers(module: Any, adapter: _Adapter) -> None:
    def see_to(trainer: Any) -> None:
        def install() -> Optional[str]:
            from harpe.integrations import transformers as ours
            return _Callbacks(adapter, ours, trainer.callback_handler.callbacks,
                              _own_callbacks(trainer), trainer.add_callback).update()
        adapter.attempt("the Trainer of Transformers", install)

    _before_each(module.Trainer, "train", see_to)
    if "evaluate" in vars(module.Trainer):
        _before_each(module.Trainer, "evaluate", see_to)


def _lightning(module: Any, adapter: _Adapter) -> None:
    def see_to(trainer: Any) -> None:
        def install() -> Optional[str]:
            from harpe.integrations import lightning as ours
            return _Callbacks(adapter, ours, trainer.callbacks, _own_callbacks(trainer),
                              lambda one: trainer.callbacks.insert(0, one)).update()
        adapter.attempt("the Trainer of Lightning", install)

    _before_each(module.Trainer, "fit", see_to)


# ---- Work that `harpe tune` counts ---------------------------------------------------------------


def _torch(module: Any, adapter: _Adapter) -> None:
    from harpe._run import counter
    counter.count_work(module)
    adapter.process.has_recognised = True


def _compiled(module: Any, _adapter: _Adapter) -> None:
    """What torch.compile makes of a module is a module of this class."""
    import torch
    from harpe._run import counter
    counter.count_calls(module.OptimizedModule, torch.compiler.is_compiling)


_CHANGES: Dict[str, Callable[[Any, _Adapter], None]] = {
    "torch": _torch,
    "torch._dynamo.eval_frame": _compiled,
    "torch.distributed.device_mesh": _device_mesh,
    "torch.distributed.pipelining.schedules": _pipelining,
    "megatron.training.training": _megatron,
    "deepspeed.runtime.pipe.engine": _deepspeed,
    "transformers.trainer": _transformers,
    "lightning.pytorch.trainer.trainer": _lightning,
    "pytorch_lightning.trainer.trainer": _lightning,
}
