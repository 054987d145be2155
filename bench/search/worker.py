# SPDX-License-Identifier: Apache-2.0
"""Makes plans with the libharpe that HARPE_LIBRARY names, which may be older than this file. Reads
one JSON object per line, and answers each with one line; see library.py. Uses only functions and
members of structs that older libraries have too."""
import ctypes as C
import json
import os
import pathlib
import resource
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from harpe import _bindings as b  # noqa: E402
from harpe._library import HarpeError, call, lib, member  # noqa: E402


def schedule_names():
    names = []
    while lib.harpe_schedule_name_at(len(names)):
        names.append(lib.harpe_schedule_name_at(len(names)).decode())
    return names


def make_problem(job):
    profile, schedule, problem = C.c_void_p(), C.c_void_p(), C.c_void_p()
    call(lib.harpe_profile_read_csv, job["profile"].encode(), C.byref(profile))
    try:
        options = b.harpe_schedule_options(name=job["schedule"].encode(), ranks=job["ranks"],
                                           microbatches=job["microbatches"],
                                           chunks=job.get("chunks", 0))
        call(lib.harpe_schedule_new, C.byref(options), C.byref(schedule))
        power = (C.c_double * 1)(job["blocking_w"])
        settings = b.harpe_problem_options(blocking_power_w=power, blocking_power_count=1)
        call(lib.harpe_problem_new, profile, schedule, C.byref(settings), C.byref(problem))
    finally:
        lib.harpe_profile_free(profile)
        if schedule:
            lib.harpe_schedule_free(schedule)
    return problem


def make_request(job):
    times = job.get("times")
    # Older libraries read more members, which are 0.
    room = C.create_string_buffer(C.sizeof(b.harpe_plan_request) + 64)
    request = b.harpe_plan_request.from_buffer(room)
    request.threads = job.get("threads", 0)
    request.clock_switch.minimum_dwell_s = job.get("min_dwell_s", 0)
    request.clock_switch.latency_s = job.get("latency_s", 0)
    request.clock_switch.energy_j = job.get("switch_j", 0)
    if times is None:
        request.choice, request.count = b.HARPE_PLANS_SPREAD, job.get("plans", 100)
        return request
    request.choice, request.time_count = b.HARPE_PLANS_AT, len(times)
    request.times_s = (C.c_double * len(times))(*times)
    return request


def describe(plan, bound_j, instructions, with_clocks):
    found = {"time_s": plan.time_s, "energy_j": plan.energy_j, "bound_j": bound_j}
    if with_clocks:
        found["mhz"] = plan.frequency_mhz[:instructions]
    return found


def one_clock(problem):
    """Returns time and energy of each plan with one clock for all GPUs."""
    plans = C.c_void_p()
    call(lib.harpe_plan_set_one_clock, problem, C.byref(plans))
    made = [lib.harpe_plan_set_at(plans, index)[0]
            for index in range(lib.harpe_plan_set_count(plans))]
    found = [(plan.time_s, plan.energy_j) for plan in made]
    lib.harpe_plan_set_free(plans)
    return found


def results(job, problem, frontier, plans):
    vertex_count = C.c_size_t()
    vertices = lib.harpe_frontier_vertices(frontier, C.byref(vertex_count))
    count = lib.harpe_problem_instruction_count(problem)
    maximum = b.harpe_plan()
    call(lib.harpe_plan_all_maximum, problem, C.byref(maximum))
    made = [lib.harpe_plan_set_at(plans, index)[0]
            for index in range(lib.harpe_plan_set_count(plans))] if plans else []
    return {
        "instructions": count,
        "fastest_s": vertices[0].time_s,
        "minimum_energy_s": vertices[vertex_count.value - 1].time_s,
        "vertices": vertex_count.value,
        "maximum": describe(maximum, lib.harpe_frontier_bound_at(frontier, maximum.time_s), count,
                            False),
        "one_clock": one_clock(problem) if job.get("with_one_clock") else [],
        "bounds_j": [lib.harpe_frontier_bound_at(frontier, t) for t in job.get("times") or ()],
        "plans": [describe(plan, lib.harpe_frontier_bound_at(frontier, plan.time_s), count,
                           job.get("with_clocks")) for plan in made]}


def plan(job):
    """Makes the frontier, and also the plans unless the job says `bound_only`. The times are those
    of the library's function alone."""
    problem, frontier, plans = make_problem(job), C.c_void_p(), C.c_void_p()
    reports = []
    began_s, began_cpu_s = time.monotonic(), time.process_time()

    def on_report(_user, phase, fraction):
        reports.append((time.monotonic() - began_s, phase.decode(), fraction))
        return True

    progress = b.harpe_progress(report=member(b.harpe_progress, "report", on_report))
    try:
        if job.get("bound_only"):
            call(lib.harpe_frontier_new, problem, C.byref(progress), C.byref(frontier))
        else:
            call(lib.harpe_plan_set_new, problem, C.byref(make_request(job)), C.byref(progress),
                 C.byref(frontier), C.byref(plans))
        wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {**results(job, problem, frontier, plans), "wall_s": wall_s, "cpu_s": cpu_s,
                "peak_bytes": peak, "reports": reports if job.get("with_reports") else len(reports)}
    finally:
        if plans:
            lib.harpe_plan_set_free(plans)
        if frontier:
            lib.harpe_frontier_free(frontier)
        lib.harpe_problem_free(problem)


def main():
    wanted = os.environ["HARPE_LIBRARY"]
    names = schedule_names()
    if not os.path.samefile(lib.path, wanted):
        sys.exit(f"worker: {lib.path} was loaded in place of {wanted}")
    print(json.dumps({"schedules": names}), flush=True)
    for line in sys.stdin:
        try:
            answer = plan(json.loads(line))
        except HarpeError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


main()
