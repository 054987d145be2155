# SPDX-License-Identifier: Apache-2.0
"""Plans for all pipeline replicas of a data parallel job together: each GPU has a profile of its
own, and gets a plan of its own.

    import harpe.replicas
    profiles = harpe.replicas.Profiles("profiles.csv")
    plans = harpe.replicas.solve(profiles, num_microbatches=32, blocking_power=84)
    plans.save("plan.py")

An iteration of the job ends when its slowest replica is ready, so the plans of faster replicas use
the time until then. Each stage of a replica has one GPU or several that work in step (tensor
parallel peers). Times are in s, energies in J, powers in W, frequencies in MHz. Objects do not
change after they are made, and any thread may use them."""
from __future__ import annotations

import ctypes as C
import os
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from harpe import _bindings as b
from harpe import plan as _plan
from harpe._library import InvalidArgumentError, call, encoded, lib

__all__ = ["JobTotals", "Plans", "Profiles", "ReplicaPlan", "Total", "Variability", "solve"]

Path = Union[str, "os.PathLike[str]"]


class Total(NamedTuple):
    """Time and energy of an iteration of the job: the time of the slowest replica, and the energy
    of all GPUs until then."""
    time: float
    energy: float


class JobTotals(NamedTuple):
    """The result for the whole job."""
    own: Total  #: each GPU follows its own plan
    lower_bound: float  #: no plans with the time of `own` need less energy
    fastest: float  #: the shortest time of the slowest replica
    minimum_energy_time: float  #: the time at which the bound is lowest
    slowest_replica: int
    num_replicas: int
    num_peers: int  #: GPUs of a stage of one replica
    num_ranks: int  #: pipeline ranks of one replica
    num_distinct: int  #: replicas whose profiles differ; the others share a plan
    all_maximum: Total  #: every instruction at its highest clock
    one_plan: Optional[Total]  #: one plan for all; None if the GPUs have no clocks in common


class ReplicaPlan(NamedTuple):
    """The plan of one replica."""
    time: float  #: when the replica is ready
    energy: float  #: until the iteration of the job ends
    lower_bound: float  #: no plan of this replica needs less energy until then
    fastest: float  #: its shortest time
    same_as: int  #: the first replica with the same profiles; they share the plan
    start: float  #: it begins so much after the iteration; above 0 only with limits on power


class Variability(NamedTuple):
    """How the GPUs of a job differ. Every number is an assumption of the caller."""
    num_replicas: int = 1
    num_peers: int = 1
    speed_deviation: float = 0.0  #: relative standard deviation of a GPU's times, 0 to 0.3
    power_deviation: float = 0.0  #: the same of its power, also while it waits, 0 to 0.3
    outlier_share: float = 0.0  #: this share of the GPUs is slower by another factor,
    outlier_factor: float = 1.5  #: which is between 1 and this number, 1 to 10
    noise: float = 0.0  #: relative standard deviation of each measured number, 0 to 0.2
    seed: int = 0  #: the same seed makes the same GPUs
    noise_seed: int = 0  #: the same for the noise


class Profiles:
    """The profile of each GPU of a job."""

    def __init__(self, path: Path) -> None:
        """Reads a CSV file: the columns of a profile, and the columns `replica` and `gpu` (or
        dp_rank and tp_rank), from 0.

        Raises:
            InvalidArgumentError: The file is not a profile of GPUs. The message names the place.
            NotFoundError: The file does not exist.
        """
        made = C.c_void_p()
        call(lib.harpe_replica_profiles_read_csv, encoded(path), C.byref(made))
        self._take(made)

    def _take(self, made: C.c_void_p) -> None:
        self._handle = _plan._Handle(made, lib.harpe_replica_profiles_free)

    @classmethod
    def _owning(cls, made: C.c_void_p) -> Profiles:
        profiles = cls.__new__(cls)
        profiles._take(made)
        return profiles

    @classmethod
    def of_gpus(cls, profiles: Sequence[Sequence[Any]]) -> Profiles:
        """Makes profiles from one profile for each GPU.

        Args:
            profiles: One list for each replica, with a profile for each of its peers. A profile is
                a path, columns or rows, as for harpe.plan.solve.

        Raises:
            InvalidArgumentError: Replicas have different numbers of peers, or a profile is wrong.
        """
        counts = {len(peers) for peers in profiles}
        if len(counts) != 1 or 0 in counts:
            raise InvalidArgumentError("profiles: every replica needs the same number of peers, "
                                       "and at least one")
        handles = [_plan._profile(one)[0] for peers in profiles for one in peers]
        addresses = (C.c_void_p * len(handles))(*(handle.address for handle in handles))
        made = C.c_void_p()
        call(lib.harpe_replica_profiles_new, addresses, len(profiles), counts.pop(),
             C.byref(made))
        for handle in handles:
            handle.close()
        return cls._owning(made)

    @classmethod
    def vary(cls, profile: Any, variability: Variability, *,
             blocking_power: float = 0.0) -> Profiles:
        """Makes the profiles of invented GPUs that differ by factors from the GPU of `profile`.

        Args:
            profile: A path, columns or rows, as for harpe.plan.solve.
            variability: How the GPUs differ.
            blocking_power: Power of a waiting GPU before variation; 0: the powers of the profile.
        """
        base, _ = _plan._profile(profile)
        how = b.harpe_variability(variability.num_replicas, variability.num_peers,
                                  variability.speed_deviation, variability.power_deviation,
                                  variability.outlier_share, variability.outlier_factor,
                                  variability.noise, variability.seed, variability.noise_seed)
        made = C.c_void_p()
        call(lib.harpe_replica_profiles_vary, base.address, blocking_power, C.byref(how),
             C.byref(made))
        base.close()
        return cls._owning(made)

    def smooth(self, most_deviation: float = 0.03) -> Profiles:
        """Returns profiles without noise: factors of the GPUs times numbers of the clocks, fitted to
        all measurements. Numbers that deviate more than `most_deviation` from them stay as they are.
        """
        made = C.c_void_p()
        call(lib.harpe_replica_profiles_smooth, self._handle.address, most_deviation,
             C.byref(made))
        return self._owning(made)

    def save(self, path: Path) -> None:
        """Writes one CSV file with the columns replica and gpu, completely or not at all."""
        call(lib.harpe_replica_profiles_write_csv, self._handle.address, encoded(path))

    @property
    def num_replicas(self) -> int:
        """Returns the number of pipeline replicas."""
        return lib.harpe_replica_profiles_replica_count(self._handle.address)

    @property
    def num_peers(self) -> int:
        """Returns the number of GPUs of each stage of a replica."""
        return lib.harpe_replica_profiles_peer_count(self._handle.address)

    def __repr__(self) -> str:
        return f"<Profiles of {self.num_replicas} replicas, {self.num_peers} GPUs a stage>"


def _total(of: b.harpe_replica_total) -> Total:
    return Total(of.time_s, of.energy_j)


_CLOCKS = {"own": b.HARPE_REPLICA_OWN_PLANS, "one_plan": b.HARPE_REPLICA_ONE_PLAN,
           "all_maximum": b.HARPE_REPLICA_ALL_MAXIMUM}


class Plans:
    """The plans of all replicas, made by solve()."""

    def __init__(self, profiles: Profiles, schedule: _plan._Handle,
                 options: b.harpe_problem_options, plans: _plan._Handle) -> None:
        self.profiles = profiles
        self._schedule, self._options, self._handle = schedule, options, plans
        job = lib.harpe_replica_plans_job(plans.address)
        self.job = JobTotals(
            _total(job.own), job.lower_bound_j, job.fastest_s, job.minimum_energy_s,
            job.slowest_replica, job.replica_count, job.peer_count, job.rank_count,
            job.distinct_count, _total(job.all_maximum),
            _total(job.one_plan) if job.one_plan.time_s > 0 else None)
        at = [lib.harpe_replica_plans_at(plans.address, r).contents
              for r in range(job.replica_count)]
        self.replicas: List[ReplicaPlan] = [
            ReplicaPlan(one.time_s, one.energy_j, one.lower_bound_j, one.fastest_s, one.same_as,
                        one.start_s)
            for one in at]

    def frequencies(self, replica: int, rank: int, peer: int = 0) -> List[Tuple[str, int]]:
        """Returns the instructions of one GPU in order, each with its clock.

        Raises:
            InvalidArgumentError: The job has no such GPU.
        """
        count = C.c_size_t()
        handle = self._handle.address
        mhz = lib.harpe_replica_plans_frequencies(handle, replica, rank, peer, C.byref(count))
        if not mhz:
            raise InvalidArgumentError(f"there is no GPU with replica {replica}, rank {rank} and "
                                       f"peer {peer}")
        return [(lib.harpe_replica_plans_instruction_name(handle, rank, i).decode(), mhz[i])
                for i in range(count.value)]

    def one_clock(self, max_time: float = 0.0) -> Tuple[Optional[int], Total]:
        """Returns the one clock for all GPUs, in MHz, that needs the least energy within `max_time` s,
        or within the time of the highest clocks if that is longer, and the job with it. This needs
        no planner. The clock is None, and the job that of the highest clocks, if none needs less."""
        mhz = C.c_int()
        total = lib.harpe_replica_plans_one_clock(self._handle.address, max_time, C.byref(mhz))
        return mhz.value or None, _total(total)

    def bound_at(self, time: float) -> float:
        """Returns the lower bound of the job's energy for an iteration of this time; infinity below
        the shortest time."""
        return lib.harpe_replica_plans_bound_at(self._handle.address, time)

    def frontier(self, points: int = 100) -> List[_plan.Vertex]:
        """Returns `points` (2 or more) points of the job's frontier, evenly spread in time."""
        vertices = (b.harpe_frontier_vertex * _plan._count("points", points))()
        call(lib.harpe_replica_plans_frontier, self._handle.address, len(vertices), vertices)
        return [_plan.Vertex(v.time_s, v.lower_bound_j) for v in vertices]

    def evaluate(self, profiles: Profiles, clocks: str = "own") -> Total:
        """Computes the iteration with other profiles, such as later measurements.

        Args:
            profiles: Profiles with the same numbers of replicas and peers.
            clocks: "own" (each GPU's plan), "one_plan" or "all_maximum".

        Raises:
            InvalidArgumentError: The profiles have other numbers, or lack a clock of the plans.
        """
        if clocks not in _CLOCKS:
            raise InvalidArgumentError(f"clocks: {clocks!r} is none of {', '.join(_CLOCKS)}")
        total = b.harpe_replica_total()
        call(lib.harpe_replica_plans_evaluate, self._handle.address, _CLOCKS[clocks],
             profiles._handle.address, self._schedule.address, C.byref(self._options),
             C.byref(total))
        return _total(total)

    def verify(self) -> None:
        """Checks the plans with code that shares nothing with the search.

        Raises:
            HarpeError: A check fails. The message names it.
        """
        call(lib.harpe_replica_plans_verify, self._handle.address, self.profiles._handle.address,
             self._schedule.address, C.byref(self._options))

    def save(self, path: Path, replica: Optional[int] = None) -> None:
        """Writes a plan file (harpe-plan(5)), completely or not at all: the lists of all replicas,
        as PointSolution3D expects them, or those of one replica."""
        if replica is None:
            call(lib.harpe_replica_plans_write, self._handle.address, encoded(path))
        else:
            call(lib.harpe_replica_plans_write_one, self._handle.address, replica, encoded(path))

    def __repr__(self) -> str:
        return (f"<Plans of {self.job.num_replicas} replicas: {self.job.own.time:.6g} s, "
                f"{self.job.own.energy:.6g} J>")


def solve(profiles: Profiles, *, num_microbatches: Optional[int] = None,
          blocking_power: Union[float, Sequence[float], None] = None, time: Optional[float] = None,
          slowdown: Optional[float] = None, schedule: Path = "1f1b",
          progress: Optional[_plan.Progress] = None, threads: int = 0,
          num_ranks: Optional[int] = None, num_chunks: Optional[int] = None,
          prologue: Sequence[str] = (), epilogue: Sequence[str] = (),
          microbatch_group_size: Optional[int] = None,
          overlap_moe_expert_parallel_comm: bool = False, overhead_power: float = 0.0,
          transfer_time: float = 0.0, memory_limit: int = 4 << 30,
          max_peak_power: Optional[float] = None,
          max_swing: Union[float, str, None] = None) -> Plans:
    """Plans all replicas for one time. Ctrl-C stops it.

    Args:
        profiles: The profile of each GPU.
        num_microbatches: Microbatches of one iteration. Not needed if the schedule is a file.
        blocking_power: Power in W of one GPU while it waits: one number, or one for each pipeline
            rank. It replaces the powers of the profiles, which may differ between GPUs.
        time: The iteration takes at most this time.
        slowdown: The same as a multiple of the shortest time of the slowest replica, 1 or more.
            Without `time` and `slowdown`, the iteration takes the shortest time.
        overhead_power: Power in W of the machines of one replica outside of their GPUs.
        max_peak_power, max_swing: Limits on the power of all replicas together, as for
            harpe.plan.solve. A replica may then begin later than the iteration; see ReplicaPlan.
        schedule, progress, threads, num_ranks, num_chunks, prologue, epilogue,
        microbatch_group_size, overlap_moe_expert_parallel_comm, transfer_time, memory_limit:
            As for harpe.plan.solve.

    Raises:
        InvalidArgumentError: A value is invalid, or both `time` and `slowdown` are given.
        NotFoundError: A profile lacks an instruction of the schedule.
        HarpeError: The time is too short, the schedule has a stage on several ranks, or `progress`
            has stopped the work.
    """
    if time is not None and slowdown is not None:
        raise InvalidArgumentError("time, slowdown: give at most one of the two")
    if time is not None and not time > 0:
        raise InvalidArgumentError(f"time: {time!r} is not a time above 0")
    if slowdown is not None and not slowdown >= 1:
        raise InvalidArgumentError(f"slowdown: {slowdown!r} is below 1")
    first = _plan._Handle(
        C.c_void_p(lib.harpe_replica_profiles_at(profiles._handle.address, 0, 0)),
        lambda _address: None, profiles._handle)
    schedule_handle = _plan._schedule(schedule, first, num_microbatches, num_ranks, num_chunks,
                                      prologue, epilogue, microbatch_group_size,
                                      overlap_moe_expert_parallel_comm, memory_limit)
    powers = _plan._blocking_powers(blocking_power, first)
    options = b.harpe_problem_options(
        blocking_power_w=(C.c_double * len(powers))(*powers), blocking_power_count=len(powers),
        memory_limit_bytes=memory_limit, overhead_power_w=overhead_power,
        transfer_time_s=transfer_time)
    request = b.harpe_replica_request(time_s=time or 0.0, slowdown=slowdown or 0.0,
                                      threads=_plan._threads(threads))
    _plan._limit_power(request, max_peak_power, max_swing)
    made = C.c_void_p()
    with _plan._Watch(progress) as watch:
        call(lib.harpe_replica_plans_new, profiles._handle.address, schedule_handle.address,
             C.byref(options), C.byref(request), C.byref(watch.struct), C.byref(made))
        handle = _plan._Handle(made, lib.harpe_replica_plans_free)
    return Plans(profiles, schedule_handle, options, handle)
