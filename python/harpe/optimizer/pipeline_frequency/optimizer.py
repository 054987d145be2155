# SPDX-License-Identifier: Apache-2.0
"""PipelineFrequencyOptimizer, the callback of a training process. libharpe follows the schedule,
measures, and communicates with the server. This module brings the ranks together and passes
Python's events to libharpe at the least cost."""
from __future__ import annotations

import ctypes as C
import functools
import logging
import operator
import os
import time
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple, cast

from harpe import _bindings as b
from harpe import distributed
from harpe._cuda import Synchronizer, stream_address, synchronizer
from harpe._library import (InvalidArgumentError, UnavailableError, abandon_in_children, call,
                            call_at_end_of_worker, encoded, lib, log_to, member, report, utf8)
from harpe.callback import Callback

__all__ = ["PipelineFrequencyOptimizer", "PipelineFrequencyStatus"]

_LOGGER = "harpe.pipeline_frequency"
_MARKS = {"host": b.HARPE_MARK_HOST, "stream": b.HARPE_MARK_STREAM,
          "synchronized": b.HARPE_MARK_HOST}  # Python waits, so that errors reach the user
_STATES = {b.HARPE_PFO_REGISTERING: "registering", b.HARPE_PFO_WAITING: "waiting",
           b.HARPE_PFO_MEASURING: "measuring", b.HARPE_PFO_REPORTING: "reporting",
           b.HARPE_PFO_OFF: "off"}
_LOOK_FOR_SIGNALS_EVERY_S = 0.2


@dataclass(frozen=True)
class PipelineFrequencyStatus:
    """The current state of an optimizer.

    state: "registering" (the server is not reached yet), "waiting" (for a schedule), "measuring",
        "reporting", or "off" (given up or closed).
    job_id: Chosen by the server; "" until registered.
    round: Round of the schedule that the next step runs; -1 if there is no schedule yet.
    steps: Number of steps begun.
    misfits: Number of steps that did not fit their schedule.
    reconnects: Number of times that the connection to the server was lost and restored.
    clock_writes: Number of changes of the GPU's clock.
    clock_failures: Number of changes that the driver refused.
    """

    state: str
    job_id: str
    round: int
    steps: int
    misfits: int
    reconnects: int
    clock_writes: int
    clock_failures: int


class _Names(Dict[str, bytes]):
    """Converts instruction names to C strings and keeps them, so that each is encoded once."""

    def __missing__(self, name: str) -> bytes:
        return self.setdefault(name, utf8(name))


class _Handle:
    """Holds the C optimizer while it exists. It has no reference to its owner, so that the C
    optimizer can be freed after the owner has gone."""

    __slots__ = ("address", "take_schedule", "is_in_use", "must_close", "__weakref__")

    def __init__(self) -> None:
        self.address: Optional[int] = None
        self.is_in_use = self.must_close = False  # C calls Python; it is closed after that

    def open(self, options: b.harpe_pipeline_frequency_options) -> None:
        abandon_in_children(self)
        address = C.c_void_p()
        call(lib.harpe_pipeline_frequency_new, C.byref(options), C.byref(address))
        self.address = address.value

    def close(self) -> None:
        if self.is_in_use:
            self.must_close = True
            return
        address, self.address = self.address, None
        if address:
            lib.harpe_pipeline_frequency_free(address)

    def abandon(self) -> None:
        """Forgets the C optimizer in a forked child: threads, controller and GPU belong to the
        parent."""
        self.address = None


def _quick(function: Any) -> Callable[..., None]:
    """Declares a function that never blocks and that is called without releasing Python's lock. If
    the lock were released, another thread that takes it could delay the training thread by 5 ms."""
    address = C.cast(function, C.c_void_p).value or 0
    return C.PYFUNCTYPE(function.restype, *function.argtypes)(address)


def _broadcast(_user: Optional[int], data: Any, size: int, error: Any) -> int:
    """Sends the bytes at `data` of rank 0 to all ranks. C calls this function."""
    try:
        brought = distributed.broadcast(C.string_at(data, size))
        C.memmove(data, brought.ljust(size, b"\0"), size)
    except Exception as exception:
        return report(exception, error)
    return int(b.HARPE_OK)


class _Meeting:
    """Decides how the ranks find each other. If they use a broadcast, every rank must take part in
    it, even a rank that fails earlier, because the other ranks would wait for it."""

    def __init__(self, job_key: Optional[str], world_size: int) -> None:
        self.key = job_key
        self.broadcasts = job_key is None and world_size > 1 and distributed.world_size() > 1
        if job_key is not None or world_size <= 1 or self.broadcasts:
            return
        run = os.environ.get("TORCHELASTIC_RUN_ID", "")
        # torchrun without --rdzv-id and --standalone uses the run id "none" for every run.
        self.key = run if run not in ("", "none") else os.environ.get("SLURM_JOB_ID") or None
        if self.key is None:
            raise InvalidArgumentError(
                f"pipeline frequency: {world_size} ranks must find each other: initialise "
                "torch.distributed or MPI before, start them with torchrun --rdzv-id or Slurm, or "
                "give all of them the same job_key", b.HARPE_INVALID_ARGUMENT)

    def hand_over(self, options: b.harpe_pipeline_frequency_options) -> None:
        """Leaves the broadcast to the C library from here on."""
        options.job_key = encoded(self.key)
        if self.broadcasts:
            options.broadcast = member(b.harpe_pipeline_frequency_options, "broadcast", _broadcast)
        self.broadcasts = False

    def miss(self) -> None:
        """Takes part in the broadcast with an empty message."""
        if self.broadcasts:
            distributed.broadcast(b"")


def _or_none_at_all(value: Optional[float]) -> float:
    """Converts a value for C, where 0 means the default and a value below 0 means 0."""
    return 0 if value is None else -1 if value == 0 else value


class PipelineFrequencyOptimizer(Callback):
    """Gets this rank's frequency schedule from the server, runs each instruction at its clock,
    measures the instructions and reports the measurements, as long as the server has new schedules.
    Call it for every step and every instruction of the training loop.

    It does not wait for the server and never stops training. A failure after construction (the
    server does not answer, the driver refuses a call, a step does not fit its schedule) is logged
    once per cause under "harpe.pipeline_frequency" by a separate thread. Training then goes on at
    the highest clocks or with the last schedule. With strict=True, a step that does not fit also
    raises an exception.

    A controller process sets the GPU's clocks. It restores the original clocks after close() or
    on_train_end(), when the object is garbage collected, at the end of the process, and when the
    process is killed. The server is informed that the training of this rank has ended, also when an
    exception or Ctrl-C ends the process, but not when a signal kills the process. At the end of the
    process, this takes at most a second and comes after the traceback.

    The object belongs to the process that created it: in a forked child, or unpickled in a spawned
    process, its events do nothing.
    """

    _handle = _Handle()  # for an unpickled copy
    _schedule: List[Tuple[str, int]] = []
    _raised: Optional[BaseException] = None

    def __init__(self, rank: int, dp_rank: int, pp_rank: int, tp_rank: int, device_id: int,
                 dp_degree: int, pp_degree: int, tp_degree: int, world_size: int, server_url: str,
                 job_metadata: Optional[str] = None, *, job_key: Optional[str] = None,
                 token: Optional[str] = None, ca_file: Optional[str] = None, strict: bool = False,
                 mark: str = "host", stream: Any = None,
                 synchronize: Optional[Callable[[], Any]] = None, iterations: int = 5,
                 warmup_iterations: int = 1, leave_clocks_alone: bool = False,
                 minimum_dwell_s: Optional[float] = None,
                 poll_interval_s: Optional[float] = None,
                 tokens_per_step: Optional[int] = None,
                 lowest_clock_mhz: Optional[int] = None) -> None:
        """rank, dp_rank, pp_rank, tp_rank: this process in the job and in each group, from 0.
        device_id: its GPU, an index among the visible ones.
        dp_degree, pp_degree, tp_degree, world_size: sizes; the first three multiply to the last.
        server_url: of `harpe serve`, such as "http://127.0.0.1:7787".
        job_metadata: text that becomes part of the job's id.
        job_key: ranks with the same key, 1 to 256 bytes, are in the same job; the published server
            does not know keys. None: if the job has initialised torch.distributed or mpi4py, rank
            0 registers the job, waits at most 3 s for the server, and broadcasts the job's id (or
            a key, if the server does not answer); otherwise the key is the run id of torchrun, or
            Slurm's job id.
        token: the server's token, if the server requires one; None: $HARPE_TOKEN.
        ca_file: certificates with which a server with TLS is checked; None: those in HARPE_CA_FILE
                or SSL_CERT_FILE, or the system's.
        strict: the constructor raises an error if the GPU is missing or cannot be controlled. A
            step that does not fit its schedule raises InvalidArgumentError in
            on_instruction_begin or on_step_end.
        mark: the moments at which an instruction begins and ends. "host": when it is enqueued.
            "stream": when the CUDA stream reaches it. "synchronized": after waiting for the GPU, at
            every event.
        stream: for "stream", a stream or its address; None: PyTorch's current stream.
        synchronize: for "synchronized", a function that waits for the GPU; None:
            torch.cuda.synchronize(device_id).
        iterations: steps that are measured for each report, at least 1.
        warmup_iterations: steps under a new schedule before the measured ones, at least 0.
        leave_clocks_alone: only measures, and changes no clock.
        minimum_dwell_s: least time in s between two changes of the clock; None: 0.01.
        poll_interval_s: time in s after which the controller checks again for changes; None: 20e-6;
            0: the controller sleeps until it is woken, which costs a system call per change.
        tokens_per_step: tokens that the whole job trains in a step; see set_tokens_per_step.
        lowest_clock_mhz: the lowest clock of this job, 1 to 10000 MHz. A schedule with a lower
            clock is refused, like one with a clock that the GPU does not offer: that is logged,
            and training runs at the highest clock until another schedule arrives. None:
            $HARPE_LOWEST_CLOCK_MHZ; without that, the GPU's lowest clock.

        Raises ValueError for values outside these ranges, and if several ranks have no way to find
        each other; HarpeError for other failures. If the constructor uses a broadcast, it is a
        collective call: all ranks must call it.
        """
        meeting = _Meeting(job_key, world_size)
        try:
            if mark not in _MARKS:
                raise InvalidArgumentError(
                    f"mark must be one of {', '.join(_MARKS)}, not {mark!r}",
                    b.HARPE_INVALID_ARGUMENT)
            if iterations < 1 or warmup_iterations < 0:
                raise InvalidArgumentError(
                    "iterations must be at least 1 and warmup_iterations at least 0, not "
                    f"{iterations} and {warmup_iterations}", b.HARPE_INVALID_ARGUMENT)
            if lowest_clock_mhz is not None and not 1 <= lowest_clock_mhz <= 10000:
                raise InvalidArgumentError(
                    f"lowest_clock_mhz must be from 1 to 10000, not {lowest_clock_mhz}",
                    b.HARPE_INVALID_ARGUMENT)
            self.rank, self.dp_rank = operator.index(rank), operator.index(dp_rank)
            self.pp_rank, self.tp_rank = operator.index(pp_rank), operator.index(tp_rank)
            self.device_id = operator.index(device_id)
            self.server_url = server_url
            self.strict = strict
            self._synchronize = self._waiting(synchronize) if mark == "synchronized" else None
            options = b.harpe_pipeline_frequency_options(
                rank=self.rank, dp_rank=self.dp_rank, pp_rank=self.pp_rank, tp_rank=self.tp_rank,
                dp_degree=operator.index(dp_degree), pp_degree=operator.index(pp_degree),
                tp_degree=operator.index(tp_degree), world_size=operator.index(world_size),
                device_id=self.device_id, server_url=encoded(server_url),
                job_metadata=encoded(job_metadata), token=encoded(token),
                ca_file=encoded(ca_file), leave_clocks_alone=leave_clocks_alone,
                iterations=iterations, warmup_iterations=int(_or_none_at_all(warmup_iterations)),
                mark=_MARKS[mark], is_strict=strict, log=log_to(_LOGGER),
                lowest_clock_mhz=operator.index(lowest_clock_mhz or 0))
            options.controller.minimum_dwell_s = _or_none_at_all(minimum_dwell_s)
            options.controller.poll_interval_s = _or_none_at_all(poll_interval_s)
            if mark == "stream":
                options.cuda_stream = stream_address(stream, self.device_id)
            self._names = _Names()
            self._step_begin = _quick(lib.harpe_pipeline_frequency_on_step_begin)
            self._step_end = _quick(lib.harpe_pipeline_frequency_on_step_end)
            self._begin = _quick(lib.harpe_pipeline_frequency_on_instruction_begin)
            self._end = _quick(lib.harpe_pipeline_frequency_on_instruction_end)
            handle = _Handle()
            if type(self)._get_frequency_schedule is not _LEAVES_CLOCKS:
                handle.take_schedule = options.take_schedule = member(
                    b.harpe_pipeline_frequency_options, "take_schedule", self._taker(handle))
            meeting.hand_over(options)
        except BaseException:
            meeting.miss()
            raise
        handle.open(options)
        self._finalizer = weakref.finalize(self, handle.close)
        call_at_end_of_worker(handle.close)
        self._handle = handle
        if tokens_per_step is not None:
            try:
                self.set_tokens_per_step(tokens_per_step)
            except BaseException:
                self.close()
                raise

    def _waiting(self, synchronize: Optional[Callable[[], Any]]) -> Callable[[], Any]:
        if synchronize is not None:
            return synchronize
        return functools.partial(cast(Synchronizer, synchronizer("torch")), [self.device_id])

    # ---- A step that a subclass may override ----

    def _get_frequency_schedule(self) -> List[Tuple[str, int]]:
        """Returns [(instruction, MHz), ...], the schedule that the server has sent. A subclass that
        overrides this method may return other clocks, but not other instructions. It is called in
        on_step_begin of the first step of each schedule. If it fails, that is logged, and the clocks
        of the server are used. Without an override, the list is empty."""
        return list(self._schedule)

    def _taker(self, handle: _Handle) -> Callable[..., None]:
        """Returns what C calls with a new schedule. It has no reference to this object."""
        owner = weakref.ref(self)

        def take(_user: Optional[int], instructions: Any, count: int) -> None:
            optimizer = owner()
            if optimizer is None:
                return
            given = [(instructions[i].instruction.decode(), instructions[i].frequency_mhz)
                     for i in range(count)]
            handle.is_in_use = True
            try:
                optimizer._schedule = given
                chosen = [(str(name), operator.index(mhz)) for name, mhz in
                          optimizer._get_frequency_schedule()]
                if [name for name, _ in chosen] != [name for name, _ in given] or any(
                        not 0 <= mhz < 2 ** 31 for _, mhz in chosen):
                    raise ValueError("it returned other instructions, or a clock below 0")
                for i, (_, mhz) in enumerate(chosen):
                    instructions[i].frequency_mhz = mhz
            except Exception as error:
                logging.getLogger(_LOGGER).warning(
                    "%s._get_frequency_schedule failed, and the clocks of the server are used: %r",
                    type(optimizer).__name__, error)
            except BaseException as error:  # such as Ctrl-C: for the loop
                optimizer._raised = error
            finally:
                handle.is_in_use = False

        return take

    # ---- Events ----

    def on_step_begin(self) -> None:
        """A step begins. It uses the newest schedule."""
        address = self._handle.address
        if address is None:
            return
        if self._synchronize is not None:
            self._synchronize()
        self._step_begin(address)
        if self._handle.must_close:
            self._handle.close()
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def on_step_end(self) -> None:
        """A step has ended. It must have run all instructions of its schedule."""
        address = self._handle.address
        if address is None:
            return
        if self._synchronize is not None:
            self._synchronize()
        self._step_end(address)
        if self.strict:
            call(lib.harpe_pipeline_frequency_check, address)

    def on_instruction_begin(self, name: str) -> None:
        """An instruction begins: sets its clock. `name` is the name of the instruction in plan and
        profile, such as "forward" or "backward"."""
        address = self._handle.address
        if address is None:
            return
        if self._synchronize is not None:
            self._synchronize()
        self._begin(address, self._names[name])
        if self.strict:
            call(lib.harpe_pipeline_frequency_check, address)

    def on_instruction_end(self, name: str) -> None:
        """The instruction has ended. Instructions of a rank do not overlap."""
        address = self._handle.address
        if address is None:
            return
        if self._synchronize is not None:
            self._synchronize()
        self._end(address, self._names[name])

    def on_train_end(self) -> None:
        """Training has ended: the same as close()."""
        self.close()

    # ---- Tokens ----

    def set_tokens_per_step(self, tokens: int) -> None:
        """Tells the server how many tokens one step of the whole job trains, over all ranks, so
        that its reports have the energy per token. The next results contain the number. One rank
        suffices. 0: not known. Raises ValueError for a number below 0 or above 1000000000."""
        tokens = operator.index(tokens)
        if not 0 <= tokens <= 1000000000:
            raise InvalidArgumentError(
                f"tokens_per_step: expected 1 to 1000000000, or 0 for not known, not {tokens}",
                b.HARPE_INVALID_ARGUMENT)
        if self._handle.address is not None:
            call(lib.harpe_pipeline_frequency_set_tokens_per_step, self._handle.address, tokens)

    # ---- State ----

    def status(self) -> PipelineFrequencyStatus:
        """Returns the current state. Any thread may call it."""
        if self._handle.address is None:
            return PipelineFrequencyStatus("off", "", -1, 0, 0, 0, 0, 0)
        seen = lib.harpe_pipeline_frequency_get_status(self._handle.address)
        return PipelineFrequencyStatus(
            _STATES[seen.state], seen.job_id.decode("utf-8", "replace"), seen.round, seen.steps,
            seen.misfits, seen.reconnects, seen.controller.written, seen.controller.failed)

    @property
    def job_id(self) -> Optional[str]:
        """Returns the job's id, or None until the server has assigned one."""
        return self.status().job_id or None

    def wait_for_round(self, number: int, at_most_s: float) -> None:
        """Waits for the schedule of this round (from 0) or of a later one. For tests and
        simulations: a training loop need not wait. Raises UnavailableError on a timeout, or if the
        optimizer has given up."""
        end = time.monotonic() + at_most_s
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                call(lib.harpe_pipeline_frequency_wait_for_round, self._handle.address, number,
                     min(left, _LOOK_FOR_SIGNALS_EVERY_S))
                return
            except UnavailableError:
                if left <= _LOOK_FOR_SIGNALS_EVERY_S or self.status().state == "off":
                    raise

    def close(self) -> None:
        """Ends the communication with the server and restores the GPU's clocks, which takes a few
        seconds at most. Later events do nothing. A second call does nothing."""
        self._handle.close()

    def __enter__(self) -> PipelineFrequencyOptimizer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


_LEAVES_CLOCKS = PipelineFrequencyOptimizer._get_frequency_schedule
