# SPDX-License-Identifier: Apache-2.0
"""The common part of the adapters for pipeline-parallel frameworks: puts marks around calls of a
framework and removes them again. Knows no particular framework."""
from __future__ import annotations

import functools
import os
from typing import Any, Callable, Dict, List, Optional, Union

from harpe import _bindings as b
from harpe._library import InvalidArgumentError
from harpe.callback import Callback

_NOTHING = Callback()
_MISSING = object()


def always(name: str) -> Callable[..., str]:
    """For Installed.around: always returns this name, whatever the arguments are."""
    return lambda *_, **__: name


class Installed:
    """The changes that an adapter has made to a framework. Leaving the `with` block, or
    uninstall(), undoes them.

    optimizer: The callback that receives steps and instructions.
    """

    def __init__(self, optimizer: Callback, is_own: bool) -> None:
        """is_own: the adapter has created the optimizer and closes it."""
        self.optimizer = optimizer
        self._is_own = is_own
        self._listener = optimizer  # used by marks that are still in place after uninstall()
        self._undo: List[Callable[[], None]] = []

    # ---- Marks ----

    def begin(self, instruction: str) -> None:
        """Marks the beginning of an instruction."""
        self._listener.on_instruction_begin(instruction)

    def end(self, instruction: str) -> None:
        """Marks the end of an instruction."""
        self._listener.on_instruction_end(instruction)

    def begin_step(self) -> None:
        """Marks the beginning of a step."""
        self._listener.on_step_begin()

    def end_step(self) -> None:
        """Marks the end of a step."""
        self._listener.on_step_end()

    def around(self, function: Callable[..., Any],
               name_of: Callable[..., str]) -> Callable[..., Any]:
        """Wraps `function` as an instruction. name_of computes the instruction's name from the
        arguments. If the function raises, the instruction has not run, and its end is not
        marked."""
        @functools.wraps(function)
        def marked(*arguments: Any, **named: Any) -> Any:
            name = name_of(*arguments, **named)
            self.begin(name)
            result = function(*arguments, **named)
            self.end(name)
            return result
        return marked

    def around_step(self, function: Callable[..., Any],
                    is_step: Callable[..., bool]) -> Callable[..., Any]:
        """Wraps `function` as a step, for the arguments for which is_step returns true."""
        @functools.wraps(function)
        def marked(*arguments: Any, **named: Any) -> Any:
            if not is_step(*arguments, **named):
                return function(*arguments, **named)
            self.begin_step()
            result = function(*arguments, **named)
            self.end_step()
            return result
        return marked

    @staticmethod
    def after(action: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `function` so that it runs after `action`."""
        @functools.wraps(function)
        def marked(*arguments: Any, **named: Any) -> Any:
            action()
            return function(*arguments, **named)
        return marked

    @staticmethod
    def before(function: Callable[..., Any], action: Callable[[], None]) -> Callable[..., Any]:
        """Wraps `function` so that it runs before `action`. If it raises, `action` does not run."""
        @functools.wraps(function)
        def marked(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            action()
            return result
        return marked

    # ---- In and out ----

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute on this one object only. Its class does not change."""
        before = vars(owner).get(name, _MISSING)

        def undo() -> None:
            if vars(owner).get(name) is not value:
                return  # another adapter has wrapped this attribute later
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        setattr(owner, name, value)
        self._undo.append(undo)

    def when_uninstalled(self, action: Callable[[], None]) -> None:
        """Makes uninstall() call `action`."""
        self._undo.append(action)

    def uninstall(self) -> None:
        """Restores the framework, and closes the optimizer if install() has created it. A second
        call does nothing."""
        self._listener = _NOTHING
        while self._undo:
            self._undo.pop()()
        if self._is_own:
            self.optimizer.on_train_end()

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *_: object) -> None:
        self.uninstall()


def installed(optimizer: Optional[Callback], server_url: Optional[str],
              ranks: Callable[[], Dict[str, int]], options: Dict[str, Any]) -> Installed:
    """Returns an Installed for the given optimizer, or for a new one that uses this server. For a
    new optimizer, `ranks` asks the framework for the rank and the degrees. `options` are further
    arguments of the optimizer and take precedence."""
    if optimizer is not None and server_url is None and not options:
        return Installed(optimizer, is_own=False)
    if optimizer is not None or server_url is None:
        raise InvalidArgumentError(
            "install: expected either an optimizer, or server_url and options for a new one",
            b.HARPE_INVALID_ARGUMENT)
    from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer
    arguments: Dict[str, Any] = {**ranks(), **options}
    return Installed(PipelineFrequencyOptimizer(server_url=server_url, **arguments), is_own=True)


def write_order(text: str, path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes a file with an order of instructions. A reader sees the whole file or none."""
    temporary = f"{os.fspath(path)}.{os.getpid()}"
    with open(temporary, "w", newline="", encoding="ascii") as file:
        file.write(text)
    os.replace(temporary, path)
