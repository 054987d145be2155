# SPDX-License-Identifier: Apache-2.0
"""The optimizer in the library, compared with the oracle: every measured log, every selector, and
epochs that never end, end once or twice at any step, or end at every step. Calls the public
functions as a framework would; the device is in Python."""
import ctypes
import itertools
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import oracle

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
SOURCE = pathlib.Path(os.environ.get("HARPE_SOURCE_DIR", HERE.parent.parent))
DATA = pathlib.Path(os.environ.get("HARPE_DATA", SOURCE.parent / "shared" / "data")) / "power_limit"
LOGS = sorted(DATA.glob("*gpu*.csv"))
PREFIX = b"__GlobalPowerLimitOptimizer_"
# Usually each step is tried with some logs and selectors, and with all trials with all of them.
STRIDE = 1 if os.environ.get("HARPE_TEST_SCALE") else 8

pointer, c_int, c_double = ctypes.c_void_p, ctypes.c_int, ctypes.c_double
SetLimit = ctypes.CFUNCTYPE(c_int, pointer, c_int, pointer)
BeginWindow = ctypes.CFUNCTYPE(c_int, pointer, ctypes.c_char_p, pointer)
EndWindow = ctypes.CFUNCTYPE(c_int, pointer, ctypes.c_char_p, ctypes.c_bool, ctypes.POINTER(c_double),
                             ctypes.POINTER(c_double), pointer)


class Functions(ctypes.Structure):
    _fields_ = [("user", pointer), ("gpu_count", c_int), ("minimum_w", c_int), ("maximum_w", c_int),
                ("set_limit", SetLimit), ("begin_window", BeginWindow), ("end_window", EndWindow),
                ("restore", pointer), ("check_window", pointer), ("mean_power", pointer),
                ("limit_in_force", pointer)]


class Selector(ctypes.Structure):
    _fields_ = [("select", pointer), ("user", pointer)]


class Parameters(ctypes.Structure):
    _fields_ = [("eta", c_double), ("world_size", c_int), ("maximum_slowdown", c_double)]


class Options(ctypes.Structure):
    _fields_ = [("wait_steps", c_int), ("warmup_steps", c_int), ("profile_steps", c_int), ("step_w", c_int),
                ("selector", Selector), ("profile_path", ctypes.c_char_p), ("device_model", ctypes.c_char_p),
                ("all_reduce", pointer), ("all_reduce_user", pointer), ("world_size", c_int),
                ("log_write", pointer), ("log_user", pointer), ("fleet", pointer)]


def load():
    harpe = ctypes.CDLL(str(BUILD / "libharpe.so"))
    harpe.harpe_selector_energy.restype = harpe.harpe_selector_time.restype = Selector
    for name in ("on_step_begin", "on_epoch_end", "is_done", "optimum_w"):
        getattr(harpe, f"harpe_power_limit_{name}").argtypes = [pointer]
    harpe.harpe_power_limit_is_done.restype = ctypes.c_bool
    harpe.harpe_power_limit_optimizer_free.argtypes = [pointer]
    return harpe


HARPE = load()


class Device:
    """Answers with `measure(limit)` and records all calls."""

    def __init__(self, minimum_w, maximum_w, gpu_count, measure, name="made up"):
        self.measure = measure
        self.name = name
        self.events = []
        self.functions = Functions(None, gpu_count, minimum_w, maximum_w, SetLimit(self.set_limit),
                                   BeginWindow(self.begin_window), EndWindow(self.end_window), None, None)

    def set_limit(self, _, limit_w, error):
        self.events.append(("set", limit_w))
        return 0

    def begin_window(self, _, name, error):
        self.events.append(("begin", int(name.removeprefix(PREFIX))))
        return 0

    def end_window(self, _, name, cancel, energy_j, time_s, error):
        limit_w = int(name.removeprefix(PREFIX))
        self.events.append(("cancel" if cancel else "end", limit_w))
        if not cancel:
            energy_j[0], time_s[0] = self.measure(limit_w)
        return 0


def library_selector(selector, gpu_count):
    """The selector, and the objects that must be kept alive with it."""
    kind, value = (*selector, 0)[:2]
    if kind in ("energy", "time"):
        return getattr(HARPE, f"harpe_selector_{kind}")(), None
    chosen, parameters = Selector(), Parameters(value, gpu_count, value)
    make = HARPE.harpe_selector_zeus_cost if kind == "zeus-cost" else HARPE.harpe_selector_max_slowdown
    if make(ctypes.byref(parameters), ctypes.byref(chosen), None) != 0:
        raise AssertionError(selector)
    return chosen, parameters


class StateMachine(unittest.TestCase):
    def check(self, device, selector, epoch_ends_after, steps, step_w=25, wait=1, warmup=10, profile=40):
        """Runs the library and the oracle. Returns whether the optimum is set."""
        functions = device.functions
        device.events.clear()
        limits = oracle.limits_to_try(functions.minimum_w, functions.maximum_w, step_w)
        measured = {w: device.measure(w) for w in limits}
        expected_w = oracle.optimum(measured, functions.gpu_count, selector)
        expected, is_done = oracle.course(limits, expected_w, epoch_ends_after, steps, wait, warmup, profile)

        chosen, kept = library_selector(selector, functions.gpu_count)
        options = Options(wait, warmup, profile, step_w, chosen)
        optimizer = pointer()
        status = HARPE.harpe_power_limit_optimizer_new(ctypes.byref(functions), ctypes.byref(options),
                                                       ctypes.byref(optimizer), None)
        self.assertEqual(status, 0)
        begin, end = HARPE.harpe_power_limit_on_step_begin, HARPE.harpe_power_limit_on_epoch_end
        for step in range(1, steps + 1):
            begin(optimizer)
            if epoch_ends_after(step):
                end(optimizer)
        events = list(device.events)  # before the end closes open windows
        done, optimum_w = HARPE.harpe_power_limit_is_done(optimizer), HARPE.harpe_power_limit_optimum_w(optimizer)
        HARPE.harpe_power_limit_optimizer_free(optimizer)
        del kept
        if events != expected or done != is_done or optimum_w != (expected_w if is_done else 0):
            self.fail(f"{device.name}, {selector}: {events} is not {expected}; optimum {optimum_w}, not {expected_w}")
        return is_done

    def each_log(self):
        if not LOGS:
            self.skipTest(f"no measured logs in {DATA}")
        for path in LOGS:
            measured, gpu_count = oracle.read_log(path)
            yield Device(min(measured), max(measured), gpu_count, measured.__getitem__, path.name), len(measured)

    def test_epochs_that_never_end(self):
        for device, count in self.each_log():
            for selector in oracle.SELECTORS:
                steps = 2 + 50 * count
                self.assertFalse(self.check(device, selector, lambda step: False, steps - 1))
                self.assertTrue(self.check(device, selector, lambda step: False, steps + 20))

    def test_an_epoch_that_ends_once_at_any_step(self):
        offsets = itertools.cycle(range(STRIDE))
        for device, count in self.each_log():
            steps = 2 + 50 * count + 60
            for selector in oracle.SELECTORS:
                for once in range(1 + next(offsets), steps, STRIDE):
                    self.check(device, selector, once.__eq__, steps)

    def test_epochs_that_end_twice_at_any_steps(self):
        selectors = itertools.cycle(oracle.SELECTORS)
        for device, count in self.each_log():
            steps = 2 + 50 * count + 110
            # Also twice within one warm-up and one window, and at neighbouring steps.
            for first in range(1, steps, 7):
                for second in (*range(first + 1, first + 4), *range(first + 4, steps, 31)):
                    self.check(device, next(selectors), {first, second}.__contains__, steps)

    def test_epochs_of_any_length_and_an_end_at_every_step(self):
        selectors = itertools.cycle(oracle.SELECTORS)
        for device, count in self.each_log():
            for length in range(1, 130):
                is_done = self.check(device, next(selectors), lambda step: step % length == 0, 2 * 50 * count * 2)
                self.assertEqual(is_done, length > 50)  # 1 to set, 50 to settle and measure

    def test_the_lowest_limit_is_tried_whatever_the_step(self):
        for minimum_w, maximum_w in ((100, 250), (101, 250), (110, 251), (249, 250), (250, 250), (150, 300)):
            device = Device(minimum_w, maximum_w, 1, lambda w: (1000.0 + w, 10 + 1000 / w))
            for step_w in (*range(1, 60, 4), 25, 50, 75, 100, 149, 150, 151, 1000):
                steps = 2 + 3 * (maximum_w - minimum_w + 2)
                self.assertTrue(self.check(device, ("energy",), lambda step: False, steps, step_w, 1, 1, 2))
                tried = [w for what, w in device.events if what == "end"]
                self.assertEqual((tried[0], tried[-1]), (maximum_w, minimum_w))

    def test_other_step_counts(self):
        device = Device(100, 200, 2, lambda w: (1000.0 + w, 10 + 1000 / w))
        for wait, warmup, profile in itertools.product((0, 1, 5), (0, 1, 3), (1, 2, 7)):
            for length in range(1, 40):
                self.check(device, ("time",), lambda step: step % length == 0, 120, 25, wait, warmup, profile)
