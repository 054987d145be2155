# SPDX-License-Identifier: Apache-2.0
"""The C side of one power limit optimizer: the GPUs and their guard, the state machine, and the
functions that these call in Python: a monitor, a selector, the other ranks. It makes no decisions.
It has no reference to its owner, so that it can restore limits after the owner has gone."""
from __future__ import annotations

import ctypes as C
import logging
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from harpe import _bindings as b
from harpe import distributed
from harpe._library import (HarpeError, InvalidArgumentError, UnavailableError,
                            abandon_in_children, call, lib, log_to, member, outside_forks, report,
                            writer_to)
from harpe.optimizer.power_limit.selectors import index_of
from harpe.optimizer.power_limit.states import PowerLimitMeasurement

__all__: List[str] = []  # a part of GlobalPowerLimitOptimizer

_LOGGER = "harpe.power_limit"

_live: "weakref.WeakSet[Session]" = weakref.WeakSet()


def open_gpus(choose: Callable[[int], Sequence[int]],
              logger: str) -> Tuple[C.c_void_p, List[b.harpe_gpu_info]]:
    """Opens GPUs, and returns them with what is known of each. choose: gets the number of visible
    GPUs, and returns the indices of those that are opened."""
    options = b.harpe_gpus_options(log=log_to(logger))
    gpus = C.c_void_p()
    call(lib.harpe_gpus_open, C.byref(options), C.byref(gpus))
    try:
        count = lib.harpe_gpus_count(gpus)
        infos = [b.harpe_gpu_info.from_buffer_copy(lib.harpe_gpu_info_at(gpus, index).contents)
                 for index in sorted(choose(count))]
    except BaseException:
        lib.harpe_gpus_close(gpus)
        raise
    if len(infos) < count:
        lib.harpe_gpus_close(gpus)
        gpus = C.c_void_p()
        options.visible_devices = b",".join(info.uuid for info in infos)
        call(lib.harpe_gpus_open, C.byref(options), C.byref(gpus))
    return gpus, infos


class Gpus:
    """Holds the GPUs whose limits are set, and the guard that restores the limits if the process
    dies."""

    def __init__(self, indices: Sequence[int]) -> None:
        self._gpus = C.c_void_p()
        self._limits = C.c_void_p()
        try:
            self._open(indices)
            _end_others(self.uuids)
            call(lib.harpe_power_limit_gpus_new, self._gpus, True, C.byref(self._limits))
        except BaseException:
            self.close()
            raise
        self.device: b.harpe_power_limit_device = \
            lib.harpe_power_limit_gpus_device(self._limits).contents

    def _open(self, indices: Sequence[int]) -> None:
        def check(count: int) -> Sequence[int]:
            if not indices:
                raise InvalidArgumentError("power limit: the monitor has no GPU",
                                           b.HARPE_INVALID_ARGUMENT)
            if not all(0 <= index < count for index in indices):
                raise InvalidArgumentError(
                    f"power limit: the monitor names the GPUs {list(indices)}, but {count} are "
                    "visible", b.HARPE_INVALID_ARGUMENT)
            return indices

        self._gpus, infos = open_gpus(check, _LOGGER)
        self.model: bytes = infos[0].name
        self.uuids: List[bytes] = [info.uuid for info in infos]

    def close(self) -> None:
        """Restores the original limits and ends the guard."""
        if self._limits:
            lib.harpe_power_limit_gpus_free(self._limits)
        if self._gpus:
            lib.harpe_gpus_close(self._gpus)
        self._limits = self._gpus = C.c_void_p()


class Session:
    """`optimizer` is the C optimizer while it exists. `raised` is an exception of the user's code
    that cannot pass through C and that is raised after the C call."""

    def __init__(self, monitor: Any, set_limit: Callable[[int], Any],
                 choose: Callable[[], int]) -> None:
        """`set_limit` sets a limit in W, and `choose` returns the best of the measured limits in W.
        Neither may refer to the owner strongly."""
        self.optimizer: Optional[int] = None
        self.must_close = False  # close() was called while C calls Python
        self._depth = 0          # of calls from C into Python
        self.raised: Optional[BaseException] = None
        self.last: Dict[str, Any] = {}  # answers for an optimizer that no longer exists
        self._monitor = monitor
        self._set_limit = set_limit
        self._choose = choose
        self._gpus: Optional[Gpus] = None
        self.limits_w: List[int] = []  # the limits that are tried, highest first

    def start(self, options: Dict[str, Any]) -> None:
        """Creates the optimizer, which sets the first limit. Raises the error if this fails."""
        abandon_in_children(self)
        _live.add(self)
        try:
            gpus = self._gpus = self._meet(lambda: Gpus(list(self._monitor.gpu_indices)))
            least_w = gpus.device.minimum_w
            self.limits_w = [*range(gpus.device.maximum_w, least_w, -options["step_w"]), least_w]
            self._device = self._measured_by_monitor(gpus.device)
            self._log = _log_of(self)
            self._options = b.harpe_power_limit_options(
                device_model=gpus.model, log=self._log, **options)
            self._options.selector.select = member(
                b.harpe_power_limit_selector, "select", self._select)
            if distributed.world_size() > 1:
                self._options.all_reduce = member(
                    b.harpe_power_limit_options, "all_reduce", self._all_reduce)
            optimizer = C.c_void_p()
            call(lib.harpe_power_limit_optimizer_new, C.byref(self._device),
                 C.byref(self._options), C.byref(optimizer))
            self.optimizer = optimizer.value
            if not self.is_done():  # something else may limit the GPUs to less
                first_w = self.current_w()
                self.limits_w = [first_w, *(one for one in self.limits_w if one < first_w)]
        except BaseException as error:
            self.close()
            raised, self.raised = self.raised, None
            if raised is not None and raised is not error:
                raise raised from None
            raise
        self.reraise()

    @staticmethod
    def _meet(open_gpus: Callable[[], Gpus]) -> Gpus:
        """Opens the GPUs on all ranks or on none: if a single rank failed, the others would wait
        for it."""
        try:
            gpus = open_gpus()
        except Exception:
            distributed.all_reduce([1.0], "sum")
            raise
        if distributed.all_reduce([0.0], "sum")[0] > 0:
            gpus.close()
            raise UnavailableError("power limit: another rank could not start; its message gives "
                                   "the reason", b.HARPE_UNAVAILABLE)
        return gpus

    def shares(self, uuids: Sequence[bytes]) -> bool:
        """Returns true if this session sets the limit of one of these GPUs."""
        return self._gpus is not None and not set(uuids).isdisjoint(self._gpus.uuids)

    def reraise(self) -> None:
        """Does what had to wait for the end of a call of C: closes the session, and raises the
        exception of the user's code after the limits are restored."""
        if self.raised is None and not self.must_close:
            return
        self.close()
        raised, self.raised = self.raised, None
        if raised is not None:
            raise raised

    def close(self) -> None:
        """Restores the original limits. A second call does nothing. In a function that C calls, the
        session is closed after the call of C."""
        if self._depth > 0:
            self.must_close = True
            return
        self.must_close = False
        _live.discard(self)
        if self.optimizer:
            self.last = {"state": self.state(), "is_done": self.is_done(),
                         "optimum": self.optimum_w(),
                         "measurements": self.measurements()}
            optimizer, self.optimizer = self.optimizer, None
            lib.harpe_power_limit_optimizer_free(optimizer)
        gpus, self._gpus = self._gpus, None
        if gpus is not None:
            gpus.close()

    def abandon(self) -> None:
        """Forgets the GPUs in a forked child: they belong to the parent."""
        self.optimizer = self._gpus = None

    # ---- Calls of the owner ----

    def is_done(self) -> bool:
        return bool(lib.harpe_power_limit_is_done(self.optimizer)) if self.optimizer else \
            bool(self.last.get("is_done", False))

    def set_limit(self, limit_w: int) -> None:
        """Sets the limit of all GPUs."""
        if self._gpus is not None:
            call(self._gpus.device.set_limit, self._gpus.device.user, limit_w)

    def state(self) -> Optional[b.harpe_power_limit_state]:
        if not self.optimizer:
            return self.last.get("state")
        return lib.harpe_power_limit_get_state(self.optimizer)

    def current_w(self) -> int:
        return int(lib.harpe_power_limit_current_w(self.optimizer)) if self.optimizer else 0

    def optimum_w(self) -> int:
        return int(lib.harpe_power_limit_optimum_w(self.optimizer)) if self.optimizer else \
            int(self.last.get("optimum", 0))

    def measurements(self) -> List[PowerLimitMeasurement]:
        if not self.optimizer:
            return list(self.last.get("measurements", []))
        count = C.c_size_t()
        array = lib.harpe_power_limit_measurements(self.optimizer, C.byref(count))
        return _measurements(array, count.value)

    # ---- Functions that C calls ----

    def _guarded(self, error: Any, work: Callable[[], Any]) -> int:
        """Runs `work` for C. C logs the errors of Harpe itself, and training goes on. Any other
        exception is passed on to the user."""
        self._depth += 1
        try:
            work()
            return b.HARPE_OK
        except HarpeError as exception:
            return report(exception, error)
        except BaseException as exception:
            self.raised = self.raised or exception
            return report(exception, error)
        finally:
            self._depth -= 1

    def _measured_by_monitor(self, gpus: b.harpe_power_limit_device) -> b.harpe_power_limit_device:
        """The device of the GPUs, except that windows are those of the user's monitor, because that
        monitor waits for the framework and writes its log. A window of the GPUs is opened beside
        it, because the check of the counters at each step belongs to that window."""
        device = b.harpe_power_limit_device.from_buffer_copy(gpus)

        def begin(_user: int, name: bytes, error: Any) -> int:
            status = self._guarded(error, lambda: self._monitor.begin_window(name.decode()))
            if status != b.HARPE_OK or not gpus.begin_window:
                return status
            status = int(gpus.begin_window(gpus.user, name, error))
            if status != b.HARPE_OK:
                self._guarded(None, lambda: self._monitor.end_window(name.decode(), cancel=True))
            return status

        def end(_user: int, name: bytes, cancel: bool, energy_j: Any, time_s: Any,
                error: Any) -> int:
            status = self._guarded(error,
                                   lambda: self._end(name.decode(), cancel, energy_j, time_s))
            if status == b.HARPE_OK and not cancel and gpus.check_window:
                status = int(gpus.check_window(gpus.user, error))
            if gpus.end_window:
                gpus.end_window(gpus.user, name, True, None, None, None)
            return status

        def set_limit(_user: int, limit_w: int, error: Any) -> int:
            return self._guarded(error, lambda: self._set_limit(limit_w))

        device.set_limit = member(b.harpe_power_limit_device, "set_limit", set_limit)
        device.begin_window = member(b.harpe_power_limit_device, "begin_window", begin)
        device.end_window = member(b.harpe_power_limit_device, "end_window", end)
        return device

    def _end(self, name: str, cancel: bool, energy_j: Any, time_s: Any) -> None:
        if cancel:
            self._monitor.end_window(name, cancel=True)
            return
        measured = self._monitor.end_window(name)
        for gpu, energy in measured.gpu_energy.items():
            if not energy > 0:  # the sum of all GPUs would hide the wrong value of one GPU
                raise HarpeError(
                    f"GPU {gpu}: a measurement of {measured.time:.3g} s took {energy:g} J, which "
                    "is impossible; energy counters move every 10 to 100 ms: raise profile_steps",
                    b.HARPE_DRIVER_ERROR)
        energy_j[0] = measured.total_energy
        time_s[0] = measured.time

    def _select(self, _user: int, array: Any, count: int) -> int:
        choice = -1

        def select() -> None:
            nonlocal choice
            measurements = self.last["measurements"] = _measurements(array, count)
            choice = index_of(self._choose(), measurements)

        self._depth += 1
        try:
            select()
        except BaseException as exception:
            self.raised = self.raised or exception
        finally:
            self._depth -= 1
        return choice

    def _all_reduce(self, _user: int, values: Any, count: int, maximum: bool, error: Any) -> int:
        def reduce() -> None:
            try:
                reduced = distributed.all_reduce(values[:count], "max" if maximum else "sum")
            except Exception as exception:  # a peer is gone, which is not a mistake of the user
                raise HarpeError(f"all-reduce: {exception}", b.HARPE_UNAVAILABLE) from exception
            for i, value in enumerate(reduced):
                values[i] = value

        return self._guarded(error, reduce)


def _end_others(uuids: Sequence[bytes]) -> None:
    """Ends an earlier optimizer of the same GPUs. Two optimizers would each restore the limit that
    the other has set."""
    for other in [session for session in _live if session.shares(uuids)]:
        logging.getLogger(_LOGGER).warning(
            "an earlier power limit optimizer of the same GPUs ends here")
        other.close()


def _measurements(array: Any, count: int) -> List[PowerLimitMeasurement]:
    return [PowerLimitMeasurement(one.power_limit_w, one.energy_j, one.time_s)
            for one in array[:count]]


def _log_of(session: Session) -> b.harpe_log:
    """Returns a log that writes no line about an exception that is about to reach the user."""
    write = writer_to(_LOGGER)

    def write_unless_raised(user: Optional[int], level: int, line: bytes) -> None:
        if session.raised is None:
            write(user, level, line)

    return outside_forks(write_unless_raised)
