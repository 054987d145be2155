# SPDX-License-Identifier: Apache-2.0
"""Counts the work of a PyTorch program that marks no steps: steps of optimizers, else batches of
DataLoaders, else calls of outermost modules. Each is counted where it happens, and the library
keeps the best source of all processes (harpe_step_source in harpe/power_limit.h).

The tuner compares rates, so a constant number of counts for each step of a training is right:
several processes (DDP, FSDP), several optimizers (a GAN), an optimizer for each parameter (updates
during the backward), an optimizer in an optimizer (ZeroRedundancyOptimizer). Accumulated gradients
are one count. An update that AMP's GradScaler skips is missing, and LBFGS has one count for all
its evaluations of the loss. A program with an optimizer has no counts while it evaluates.

torch.compile sees nothing of this, so nothing is counted inside a compiled function. No object of
the program gets a hook or an attribute, because the program may save it."""
from __future__ import annotations

import functools
import importlib
import threading
import time
import types
from typing import Any, Callable, Set, Tuple

from harpe import _bindings as b
from harpe._library import lib

__all__ = ["count_calls", "count_work"]

# A source has ended if it had no count for so long, and others had so many counts since: the
# program has trained, and now does something else.
ENDED_S, ENDED_COUNTS = 600, 100

# Methods that programs call for a whole model, and that do not call themselves for its parts.
_METHODS_OF_MODELS = ("eval", "to", "cuda", "load_state_dict")

Function = Callable[..., Any]


class _Counter:
    """The counts of this process."""

    def __init__(self) -> None:
        self.best = 0  # the best source that had a count
        self.counted_at_s = 0.0
        self.others = 0  # counts of less good sources since

    def count(self, source: int) -> None:
        """Counts a unit of work. Threads may lose a count of `others`, which only delays."""
        now_s = time.monotonic()
        if source < self.best:
            self.others += 1
            if self.others >= ENDED_COUNTS and now_s - self.counted_at_s > ENDED_S:
                lib.harpe_power_limit_end_source(self.best)
                self.best = source
        if source >= self.best:
            self.best, self.counted_at_s, self.others = source, now_s, 0
        lib.harpe_power_limit_count_step(source)


_counter = _Counter()
_lock = threading.Lock()
_changed: Set[Tuple[Any, str]] = set()


def _is_new(owner: Any, name: str) -> bool:
    """Returns true for the first call with these arguments."""
    with _lock:
        is_new = (owner, name) not in _changed
        _changed.add((owner, name))
        return is_new


def count_work(torch: Any) -> None:
    """Counts from now on. torch: the module, after its import. A second call does nothing."""
    lib.harpe_version()  # Without a library, this raises, and not the program's first step.
    # torch.compile takes this for a constant, and leaves out the branch that counts.
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
    _count_updates(importlib.import_module("torch.optim.optimizer"), is_compiling)
    _count_batches(importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter)
    _find_models(torch.nn.Module, is_compiling)


# ---- Sources -------------------------------------------------------------------------------------


def _count_updates(module: Any, is_compiling: Callable[[], bool]) -> None:
    if not _is_new(module, "step"):
        return

    def count(*_: Any) -> None:
        if not is_compiling():
            _counter.count(b.HARPE_STEP_UPDATES)

    if hasattr(module, "register_optimizer_step_post_hook"):
        module.register_optimizer_step_post_hook(count)
        return
    _count_in_pytorch_1(module.Optimizer, count)


def _count_in_pytorch_1(optimizer: Any, count: Callable[[], None]) -> None:
    """Changes the step of each class that has an object, now or later. PyTorch has marked the step
    of such a class as `hooked`."""
    prepare = optimizer._hook_for_profile  # Every new optimizer calls this.

    def change(kind: Any) -> None:
        step = vars(kind).get("step")
        if getattr(step, "hooked", False) and _is_new(kind, "step"):
            kind.step = _followed_by(step, count)

    @functools.wraps(prepare)
    def and_count(one: Any) -> None:
        prepare(one)
        for kind in type(one).__mro__:
            change(kind)

    optimizer._hook_for_profile = and_count
    kinds = [optimizer]
    for kind in kinds:
        change(kind)
        kinds.extend(kind.__subclasses__())


def _followed_by(function: Function, action: Callable[[], None]) -> Function:
    @functools.wraps(function)
    def with_action(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        action()
        return result

    return with_action


def _count_batches(iterator: Any) -> None:
    if _is_new(iterator, "__next__"):
        iterator.__next__ = _followed_by(iterator.__next__,
                                         lambda: _counter.count(b.HARPE_STEP_BATCHES))


def _find_models(kind: Any, is_compiling: Callable[[], bool]) -> None:
    """Counts the calls of modules that a program prepares as a whole. To find them when they are
    called would need global hooks, which slow down every module and change what torch.compile
    makes of them."""
    for name in _METHODS_OF_MODELS if _is_new(kind, "eval") else ():
        setattr(kind, name, _finding(getattr(kind, name), is_compiling))


def _finding(method: Function, is_compiling: Callable[[], bool]) -> Function:
    @functools.wraps(method)
    def and_find(module: Any, *arguments: Any, **named: Any) -> Any:
        if not is_compiling() and getattr(module, "_modules", None):  # it has parts
            count_calls(type(module), is_compiling)
        return method(module, *arguments, **named)

    return and_find


# cloudpickle (Ray) takes a script's classes along, with the function `call` below, to processes that
# may not have Harpe. There, what `call` uses is an object that counts nothing.


class _Inside(threading.local):
    module = False  # true in a call of an outermost module

    def __reduce__(self) -> Any:
        return types.SimpleNamespace, (), {"module": False}


class _CallCounter:
    def __call__(self) -> None:
        _counter.count(b.HARPE_STEP_FORWARDS)

    def __reduce__(self) -> Any:
        return type, (0,)  # int, whose call does nothing


_inside, _count_call = _Inside(), _CallCounter()


def count_calls(kind: Any, is_compiling: Callable[[], bool]) -> None:
    """Counts the calls of modules of this class that are not in a call of another such module."""
    if not _is_new(kind, "__call__"):
        return
    own = vars(kind).get("__call__")

    def call(module: Any, *arguments: Any, **named: Any) -> Any:
        # Looked up for each call, because torch.fx replaces it for a while.
        inner = own.__get__(module) if own is not None else super(kind, module).__call__
        if is_compiling() or _inside.module:
            return inner(*arguments, **named)
        _inside.module = True
        try:
            result = inner(*arguments, **named)
        finally:
            _inside.module = False
        _count_call()
        return result

    kind.__call__ = call
