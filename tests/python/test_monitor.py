# SPDX-License-Identifier: Apache-2.0
"""harpe.monitor on emulated GPUs: windows, their errors, the log file, and other processes."""
import csv
import multiprocessing
import os
import pickle
import sys
import time
import types
from unittest import mock

import world
from fixtures import folder
from harpe import HarpeError, InvalidArgumentError, UnavailableError
from harpe.monitor import energy as monitor_module
from harpe.monitor import EnergyMonitor, Measurement, ZeusMonitor


def measure_in_child(monitor, answers):
    try:
        monitor.begin_window("child")
        answers.put("began")
    except UnavailableError as error:
        answers.put(str(error))


def fake_rapl(folder, *packages):
    """A powercap tree: (energy in uJ, DRAM energy in uJ or None) for each package."""
    for number, (energy_uj, dram_uj) in enumerate(packages):
        zone = folder / f"intel-rapl:{number}"
        zones = [(zone, f"package-{number}", energy_uj)]
        if dram_uj is not None:
            zones.append((zone / f"intel-rapl:{number}:0", "dram", dram_uj))
        for path, name, value in zones:
            path.mkdir(parents=True, exist_ok=True)
            (path / "name").write_text(name + "\n")
            (path / "max_energy_range_uj").write_text("262143328850\n")
            (path / "energy_uj").write_text(f"{value}\n")


class Monitor(world.MachineTest):
    def setUp(self):
        self.folder = folder(self.addCleanup)

    def test_a_window_has_time_and_energy_of_each_gpu(self):
        monitor = ZeusMonitor(gpu_indices=[2, 0], cpu_indices=[])
        monitor.begin_window("outer")
        monitor.begin_window("inner")
        time.sleep(0.02)
        inner = monitor.end_window("inner")
        outer = monitor.end_window("outer")
        self.assertEqual(list(inner.gpu_energy), [2, 0])
        self.assertGreater(min(inner.gpu_energy.values()), 0)
        self.assertGreaterEqual(outer.time, inner.time)
        self.assertGreaterEqual(outer.gpu_energy[0], inner.gpu_energy[0])
        self.assertEqual(outer.total_energy, sum(outer.gpu_energy.values()))
        self.assertIsNone(outer.cpu_energy)
        self.assertIsNone(outer.dram_energy)
        self.assertIsInstance(outer, Measurement)
        self.assertIs(EnergyMonitor, ZeusMonitor)

    def test_all_gpus_are_the_default(self):
        self.assertEqual(ZeusMonitor(cpu_indices=[]).gpu_indices, [0, 1, 2, 3])

    def test_names_are_open_once(self):
        monitor = ZeusMonitor(cpu_indices=[])
        with self.assertRaisesRegex(ValueError, "'a'"):
            monitor.end_window("a")
        monitor.begin_window("a")
        with self.assertRaisesRegex(ValueError, "'a'"):
            monitor.begin_window("a")
        time.sleep(0.05)
        restarted = time.monotonic()
        monitor.begin_window("a", restart=True)
        measured_s = monitor.end_window("a").time
        self.assertLess(measured_s, (time.monotonic() - restarted) * 1000)  # the time scale
        monitor.begin_window("ä, b")
        self.assertGreater(monitor.end_window("ä, b").time, 0)

    def test_indices_that_do_not_exist_are_refused(self):
        for arguments in ({"gpu_indices": [4]}, {"gpu_indices": [-1]}, {"gpu_indices": [0, 0]},
                          {"cpu_indices": [99]}, {"sync_execution_with": "numpy"},
                          {"sync_execution_with": 3}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                ZeusMonitor(**{"cpu_indices": [], **arguments})

    def test_the_log_has_a_line_per_ended_window(self):
        path = self.folder / "new" / "log.csv"
        monitor = ZeusMonitor(gpu_indices=[1, 3], cpu_indices=[], log_file=path)
        monitor.begin_window("epoch 1")
        monitor.begin_window("cancelled")
        cancelled = monitor.end_window("cancelled", cancel=True)
        self.assertEqual(cancelled, Measurement(0.0, {1: 0.0, 3: 0.0}))
        time.sleep(0.01)
        measured = monitor.end_window("epoch 1")
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        self.assertEqual(rows[0], ["start_time", "window_name", "elapsed_time", "gpu1_energy", "gpu3_energy"])
        self.assertEqual(len(rows), 2)
        self.assertEqual(rows[1][1], "epoch 1")
        self.assertAlmostEqual(float(rows[1][2]), measured.time)
        self.assertAlmostEqual(float(rows[1][4]), measured.gpu_energy[3])

    def test_a_callable_waits_for_the_gpus_unless_told_not_to(self):
        waited = []
        monitor = ZeusMonitor(gpu_indices=[1, 2], cpu_indices=[], sync_execution_with=waited.append)
        monitor.begin_window("a")
        monitor.end_window("a")
        self.assertEqual(waited, [[1, 2], [1, 2]])
        monitor.begin_window("a", sync_execution=False)
        monitor.end_window("a", sync_execution=False, cancel=True)
        self.assertEqual(len(waited), 2)

    def test_torch_is_waited_for_only_once_it_uses_a_gpu(self):
        monitor = ZeusMonitor(gpu_indices=[1, 2], cpu_indices=[])
        cuda = mock.Mock()
        with mock.patch.dict(sys.modules, torch=types.SimpleNamespace(cuda=cuda)):
            cuda.is_initialized.return_value = False
            monitor.begin_window("a")
            cuda.synchronize.assert_not_called()
            cuda.is_initialized.return_value = True
            monitor.end_window("a")
        self.assertEqual(cuda.synchronize.call_args_list, [mock.call(1), mock.call(2)])

    def test_jax_is_waited_for_through_a_value_per_device(self):
        monitor = ZeusMonitor(gpu_indices=[1], cpu_indices=[], sync_execution_with="jax")
        jax = mock.Mock()
        jax.local_devices.side_effect = lambda backend: [backend + "0", backend + "1"]
        jax.device_put.side_effect = lambda value, device: value
        with mock.patch.dict(sys.modules, jax=jax):
            monitor.begin_window("a")
        monitor.end_window("a")
        self.assertEqual([call.args[1] for call in jax.device_put.call_args_list], ["gpu1", "cpu0"])
        jax.block_until_ready.assert_called_once()

    def test_cpu_packages_and_their_dram(self):
        fake_rapl(self.folder, (1_000_000, 500_000), (2_000_000, None))
        with mock.patch.object(monitor_module, "_RAPL_PATH", os.fsencode(self.folder)):
            both, second = ZeusMonitor(gpu_indices=[]), ZeusMonitor(gpu_indices=[], cpu_indices=[1])
            self.assertEqual((both.gpu_indices, both.cpu_indices), ([], [0, 1]))
            for monitor in (both, second):
                monitor.begin_window("a")
            fake_rapl(self.folder, (4_000_000, 700_000), (7_000_000, None))
            measured = both.end_window("a")
            self.assertEqual(measured.cpu_energy, {0: 3.0, 1: 5.0})
            self.assertEqual({cpu: round(e, 9) for cpu, e in measured.dram_energy.items()}, {0: 0.2})
            measured = second.end_window("a")
            self.assertEqual((measured.cpu_energy, measured.dram_energy), ({1: 5.0}, None))
            with self.assertRaisesRegex(ValueError, "2 found"):
                ZeusMonitor(gpu_indices=[], cpu_indices=[2])

    def test_a_machine_without_gpus_has_no_gpu_energy(self):
        script = ("from harpe.monitor import ZeusMonitor\n"
                  "m = ZeusMonitor(cpu_indices=[]); m.begin_window('a'); print(m.end_window('a').gpu_energy)\n"
                  "ZeusMonitor(gpu_indices=[0])")
        for why in ({"HARPE_NVML_LIBRARY": "/nowhere/libnvidia-ml.so.1"},
                    {"CUDA_VISIBLE_DEVICES": "MIG-1"}, {"CUDA_VISIBLE_DEVICES": "0,MIG-1"}):
            result = world.python(script, **why)
            self.assertEqual(result.stdout, "{}\n", result.stderr)
            self.assertIn("UnavailableError", result.stderr)
            self.assertIn("no GPU can be measured, and results have no GPU energy", result.stderr)

    def test_no_gpu_is_told_unless_none_was_asked_for(self):
        script = ("from harpe.monitor import ZeusMonitor\n"
                  "m = ZeusMonitor({})\n"
                  "m.begin_window('a'); print(m.end_window('a').total_energy)")
        for arguments, lines in (("cpu_indices=[]", 1), ("", 1), ("gpu_indices=[]", 0)):
            result = world.python(script.format(arguments),
                                  HARPE_NVML_LIBRARY="/nowhere/libnvidia-ml.so.1")
            self.assertEqual((result.returncode, result.stdout), (0, "0\n"), result.stderr)
            told = [line for line in result.stderr.splitlines() if "no GPU can be measured" in line]
            self.assertEqual(len(told), lines, result.stderr)
            for line in told:
                self.assertIn("/nowhere/libnvidia-ml.so.1", line)
                self.assertIn("gpu_indices=[]", line)

    def test_a_reset_discards_what_is_open(self):
        path = self.folder / "log.csv"
        monitor = ZeusMonitor(cpu_indices=[], log_file=path)
        for name in ("a", "b"):
            monitor.begin_window(name)
        monitor.reset_windows()
        for name in ("a", "b"):
            with self.assertRaises(ValueError):
                monitor.end_window(name)
        monitor.begin_window("a")
        time.sleep(0.02)
        measured = monitor.end_window("a")
        self.assertGreater(measured.total_energy, 0)
        self.assertIsNone(measured.soc_energy)
        self.assertEqual(len(path.read_text().splitlines()), 2)

    def test_the_second_argument_of_begin_is_whether_to_wait(self):
        waited = []
        monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[], sync_execution_with=waited.append)
        monitor.begin_window("a", False)
        with self.assertRaises(ValueError):
            monitor.begin_window("a", True)
        self.assertEqual(waited, [])
        monitor.begin_window("a", True, True)
        self.assertEqual(waited, [[0]])

    def test_a_closed_monitor_says_so(self):
        monitor = ZeusMonitor(cpu_indices=[])
        monitor.close()
        monitor.close()
        with self.assertRaises(HarpeError):
            monitor.begin_window("a")

    def test_children_neither_measure_nor_disturb(self):
        path = self.folder / "log.csv"
        monitor = ZeusMonitor(cpu_indices=[], log_file=path)
        monitor.begin_window("parent")
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            answers = context.Queue()
            process = context.Process(target=measure_in_child, args=(monitor, answers))
            process.start()
            self.assertIn("another process", answers.get(timeout=300))
            process.join(300)
            self.assertEqual(process.exitcode, 0)
        self.assertGreater(monitor.end_window("parent").total_energy, 0)
        self.assertEqual(len(path.read_text().splitlines()), 2)

    def test_a_child_that_ends_like_any_script_disturbs_nothing(self):
        result = world.python(
            "import os, sys, time\n"
            "from harpe.monitor import ZeusMonitor\n"
            "monitor = ZeusMonitor(cpu_indices=[])\n"
            "monitor.begin_window('parent')\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    sys.exit(0)  # collects what it has, and runs what is registered for the exit\n"
            "assert os.waitpid(child, 0)[1] == 0\n"
            "time.sleep(0.01)\n"
            "assert monitor.end_window('parent').total_energy > 0")
        # On a busy machine, reading the counters can take long enough for a warning.
        lines = [line for line in result.stderr.splitlines() if "reading the counters took" not in line]
        self.assertEqual((result.returncode, lines), (0, []))

    def test_a_copy_is_inert(self):
        copy = pickle.loads(pickle.dumps(ZeusMonitor(gpu_indices=[1], cpu_indices=[])))
        self.assertEqual(copy.gpu_indices, [1])
        with self.assertRaises(UnavailableError):
            copy.begin_window("a")

    def test_errors_are_both_harpes_and_the_languages(self):
        with self.assertRaises(InvalidArgumentError) as caught:
            ZeusMonitor(cpu_indices=[]).end_window("never begun")
        self.assertIsInstance(caught.exception, ValueError)
        self.assertIsInstance(caught.exception, HarpeError)
