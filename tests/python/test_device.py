# SPDX-License-Identifier: Apache-2.0
"""What Zeus's names for devices give on emulated GPUs: values, settings, and samples over time."""
import gc
import multiprocessing
import os
import time
import unittest
from unittest import mock

import world

from harpe import InvalidArgumentError, PermissionDeniedError, UnavailableError
from harpe._library import call_at_end_of_worker
from harpe.device import GPUs, CpuDramMeasurement, get_cpus, get_gpus
from harpe.monitor import PowerMonitor, TemperatureMonitor, ZeusMonitor
from harpe.monitor._sampling import Sampler
from harpe.monitor.power import PowerDomain
from harpe.utils.env import get_env

LIMIT_S = 300


def change_limit():
    GPUs().set_power_management_limit(0, 200000)


def sample_to_the_end():
    global sampling  # it lives until the process ends
    call_at_end_of_worker(lambda: sampling._sampler._is_ended.is_set() or os._exit(3))  # runs last
    sampling = PowerMonitor(update_period=1e-6)


class Devices(world.MachineTest):
    gpus = "2xA100"

    def test_values_are_those_of_the_driver(self):
        gpus = get_gpus(ensure_homogeneous=True)
        self.assertIs(get_gpus(), gpus)
        self.assertEqual(len(gpus), 2)
        self.assertIn("A100", gpus.get_name(1))
        self.assertEqual(gpus.get_power_management_limit_constraints(1), (100000, 400000))
        self.assertEqual(gpus.get_power_management_limit(1), self.machine.state()[1][0])
        clocks = gpus.get_supported_graphics_clocks(0)
        self.assertEqual(clocks, gpus.get_supported_graphics_clocks(
            0, max(gpus.get_supported_memory_clocks(0))))
        self.assertEqual((clocks[0], clocks), (1410, sorted(clocks, reverse=True)))
        before = gpus.get_total_energy_consumption(0)
        self.assertTrue(gpus.supports_get_total_energy_consumption(0))
        self.assertGreaterEqual(gpus.get_total_energy_consumption(0), before)
        self.assertGreater(gpus.get_instant_power_usage(0), 10000)
        self.assertGreater(gpus.get_gpu_temperature(0), 10)
        for call in (gpus.get_name, gpus.get_power_management_limit, gpus.get_gpu_temperature):
            with self.assertRaises(InvalidArgumentError):
                call(2)

    def test_settings_are_put_back(self):
        found = self.machine.state()
        gpus = GPUs()
        gpus.set_power_management_limit(0, 150000, block=False)
        gpus.set_persistence_mode(0, True)
        gpus.set_gpu_locked_clocks(1, 1005, 1005)
        gpus.set_memory_locked_clocks(1, 1593, 1593)
        self.assertEqual(gpus.get_power_management_limit(0), 150000)
        gpus.reset_power_management_limit(0)
        self.assertEqual(gpus.get_power_management_limit(0), 400000)
        gpus.reset_gpu_locked_clocks(1)
        gpus.reset_memory_locked_clocks(1)
        gpus.set_power_management_limit(0, 120000)
        with self.assertRaises(InvalidArgumentError):
            gpus.set_power_management_limit(0, 1)
        del gpus
        gc.collect()
        self.assertEqual(self.machine.state(), found)

    def test_a_forked_child_does_not_use_them(self):
        gpus = GPUs()
        child = os.fork()
        if child == 0:
            try:
                gpus.get_power_management_limit(0)
            except UnavailableError:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(gpus.get_power_management_limit(0), self.machine.state()[0][0])

    def test_a_worker_puts_back_what_it_has_changed(self):
        found = self.machine.state()
        worker = multiprocessing.get_context("fork").Process(target=change_limit)
        worker.start()
        worker.join()
        self.assertEqual((worker.exitcode, self.machine.state()), (0, found))

    def test_a_worker_that_samples_ends(self):
        worker = multiprocessing.get_context("fork").Process(target=sample_to_the_end)
        worker.start()
        worker.join()
        self.assertEqual(worker.exitcode, 0)

    def test_cpus(self):
        cpus = get_cpus()
        self.assertIs(get_cpus(), cpus)
        with self.assertRaises(InvalidArgumentError):
            cpus.get_total_energy_consumption(len(cpus))
        one, two = CpuDramMeasurement(5.0, 2.0), CpuDramMeasurement(2.0)
        self.assertEqual(one - two, CpuDramMeasurement(3.0))
        self.assertEqual(one / 2, CpuDramMeasurement(2.5, 1.0))

    def test_energy_of_samples_is_near_that_of_the_counter(self):
        power, monitor = PowerMonitor(update_period=0.02), ZeusMonitor(cpu_indices=[])
        self.addCleanup(power.stop)
        monitor.begin_window("a")
        start = time.time()
        time.sleep(1)
        end = time.time()
        measured = monitor.end_window("a")
        timelines = power.get_all_power_timelines(gpu_index=1, start_time=start, end_time=end)
        samples = len(timelines["device_instant"][1])  # about 50; fewer on a busy machine
        for gpu, energy_j in power.get_energy(start, end).items():
            self.assertAlmostEqual(energy_j / (end - start), measured.gpu_energy[gpu] / measured.time,
                                   delta=21 / samples ** 0.5)
        self.assertEqual(list(timelines), ["device_instant"])
        self.assertEqual(list(timelines["device_instant"]), [1])
        for moment, power_w in timelines["device_instant"][1]:
            self.assertTrue(start <= moment <= end and 40 < power_w < 90, (moment, power_w))
        self.assertEqual(set(power.get_power()), {0, 1})
        power.stop()
        late = time.time() + 1
        self.assertEqual(power.get_energy(late, late + 1), {0: 0, 1: 0})
        before = power.get_power_timeline("device_instant")
        time.sleep(0.1)
        self.assertEqual(power.get_power_timeline(PowerDomain.DEVICE_INSTANT), before)

    def test_temperatures(self):
        monitor = TemperatureMonitor(gpu_indices=[1], update_period=0.02)
        self.addCleanup(monitor.stop)
        self.assertEqual(monitor.get_temperature(), {1: GPUs().get_gpu_temperature(1)})
        self.assertEqual(list(monitor.get_temperature_timeline()), [1])

    def test_what_cannot_be_sampled_is_refused(self):
        for make in (lambda: PowerMonitor([2]), lambda: PowerMonitor([]),
                     lambda: PowerMonitor(power_domains=[]),
                     lambda: PowerMonitor(power_domains=["memory_average"]),
                     lambda: PowerMonitor(power_domains=["weight"]),
                     lambda: PowerMonitor(update_period=0), lambda: TemperatureMonitor([-1])):
            with self.assertRaises(ValueError):
                make()


class Samples(unittest.TestCase):
    """The sampler, with values and times of the test."""

    def sampler(self, values, maximum=None):
        """Samples the values at 0 s, 1 s, ...; an exception is a failed read."""
        moments = iter(range(len(values)))
        values = iter(values)

        def read(_index):
            value = next(values)
            if isinstance(value, Exception):
                raise value
            return value

        with mock.patch("threading.Thread.start"), \
                mock.patch("harpe.monitor._sampling.time.time", side_effect=lambda: next(moments)):
            sampler = Sampler(None, [0], {"power": read}, 1.0, maximum)
            try:
                while True:
                    sampler._look()
            except StopIteration:
                pass
        return sampler

    def integral(self, sampler, start, end, now=100):
        with mock.patch("harpe.monitor._sampling.time.time", return_value=now):
            return sampler.integral("power", 0, start, end)

    def test_a_value_holds_until_the_next_one(self):
        sampler = self.sampler([10, 20, 5])
        self.assertEqual(sampler.timeline("power", 0), [(0, 10), (1, 20), (2, 5)])
        self.assertEqual(self.integral(sampler, 0, 3), 35)
        self.assertEqual(self.integral(sampler, 0.5, 1.5), 15)
        self.assertEqual(self.integral(sampler, 2, 9), 5)  # read last at 2 s, for a period of 1 s
        self.assertEqual(self.integral(sampler, 2, 9, now=2.5), 2.5)
        self.assertEqual(self.integral(sampler, 10, 12), 0)
        self.assertEqual([sampler.value_at("power", 0, at) for at in (-1, 0, 0.9, 1, 7, None)],
                         [10, 10, 10, 20, 5, 5])

    def test_repeated_values_are_one_sample(self):
        sampler = self.sampler([7, 7, 7])
        self.assertEqual(len(sampler.timeline("power", 0)), 1)
        self.assertEqual(self.integral(sampler, 0, 10), 21)  # the last read was at 2 s

    def test_old_samples_are_dropped(self):
        self.assertEqual([value for _, value in self.sampler([1, 2, 3], 2).timeline("power", 0)],
                         [2, 3])

    def test_a_failed_read_is_told_once(self):
        gone = UnavailableError("lost")
        with self.assertLogs("harpe.monitor") as logs:
            sampler = self.sampler([1, gone, gone, 3, PermissionDeniedError("no")])
        self.assertEqual([value for _, value in sampler.timeline("power", 0)], [1, 3])
        self.assertEqual(len(logs.output), 2)


class Environment(unittest.TestCase):
    def test_get_env(self):
        with mock.patch.dict(os.environ, {"A": "1.5", "B": "True", "C": "maybe"}):
            self.assertEqual(get_env("A", float), 1.5)
            self.assertIs(get_env("B", bool), True)
            self.assertEqual(get_env("D", int, 7), 7)
            for name, kind in (("C", bool), ("A", int), ("D", int)):
                with self.assertRaises(ValueError):
                    get_env(name, kind)
