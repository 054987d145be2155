# SPDX-License-Identifier: Apache-2.0
"""The published Zeus, unchanged: its client in a real job against `harpe serve`, and its monitor,
its power limit optimizer and its devices on emulated GPUs, beside Harpe's. Needs a Python with zeus
and PyTorch; without them the tests are skipped. `make check` does not run them."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import jobs  # appends the directory of the next import to the path
import world
from fixtures import needs

HARPE = os.environ.get("HARPE", str(world.BUILD / "harpe"))
LIMIT_S = 600
A100_STEP_S = 0.05  # of the energy counter


@needs("zeus", "torch")
class Job(jobs.JobTest):
    gpus = "4xA100"

    def test_the_client_follows_a_plan_in_a_job_that_trains(self):
        order = [["forward", "forward", "backward", "forward", "backward", "backward"],
                 ["forward", "backward"] * 3]
        plan = [[(name, 1200 - 30 * stage - 15 * (number % 3)) for number, name in enumerate(names)]
                for stage, names in enumerate(order)]
        started = self.start(plan=plan, scheduler="PointSolution3D")
        with mock.patch.dict(os.environ, LD_LIBRARY_PATH=str(world.BUILD / "emulator")):
            results = self.run_ranks("zeus_job.py", 4, url=f"http://127.0.0.1:{started.port}",
                                     microbatches=3, steps=8)
        self.assertEqual(len({one["job"] for one in results}), 1)
        for one in results:
            stage = one["rank"] // 2
            for ran in one["ran"]:
                self.assertEqual([tuple(entry) for entry in ran], plan[stage])
            if stage == 1:
                self.assertLess(one["losses"][-1], one["losses"][0])
        for gpu in range(4):
            self.assert_clocks_are_back(gpu)


# Both monitors measure the same work: Zeus's window is around Harpe's. Prints for each GPU the
# energies and times, and the power that it draws.
MONITORS = r"""
import ctypes, json, os, threading, time
import harpe.monitor, zeus.monitor
nvml = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"])
gpus = json.loads(os.environ["GPUS"])
zeus_one = zeus.monitor.ZeusMonitor(gpu_indices=gpus, cpu_indices=[])
ours = harpe.monitor.ZeusMonitor(gpu_indices=gpus, cpu_indices=[])
out = []
for _ in range(3):
    busy = [threading.Thread(target=nvml.harpe_emulator_work,
                             args=(gpu, ctypes.c_double(0.5), ctypes.c_double(0.8), None))
            for gpu in gpus]
    zeus_one.begin_window("w", sync_execution=False)
    ours.begin_window("w", sync_execution=False)
    for one in busy: one.start()
    for one in busy: one.join()
    inner = ours.end_window("w", sync_execution=False)
    outer = zeus_one.end_window("w", sync_execution=False)
    out.append([[outer.time, outer.gpu_energy], [inner.time, inner.gpu_energy]])
print(json.dumps(out))
"""

# Profiles power limits with the named package while an emulated GPU works, and then chooses a limit
# with each selector, from its own measurements and from those of the other package.
LIMITS = r"""
import ctypes, importlib, json, logging, os, sys, types, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
package, own, other = sys.argv[1:]
part = importlib.import_module(f"{package}.optimizer.power_limit")
monitor = importlib.import_module(f"{package}.monitor").ZeusMonitor(gpu_indices=[0], cpu_indices=[])
# In the place of PyTorch with CUDA, which both packages import later, to wait for the GPU.
torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True,
                                   synchronize=lambda device=None: None)
torch.distributed = types.SimpleNamespace(is_available=lambda: False, is_initialized=lambda: False)
torch.__version__ = "2.0"
sys.modules["torch"] = torch
nvml = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"])
nvml.nvmlInit_v2()
handle = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))

def limit_w():
    value = ctypes.c_uint()
    assert nvml.nvmlDeviceGetPowerManagementLimit(handle, ctypes.byref(value)) == 0
    return value.value / 1000

selectors = [part.Energy(), part.Time()]
selectors += [part.ZeusCost(eta_knob=knob, world_size=1) for knob in (0.0, 0.25, 0.5, 0.75, 1.0)]
selectors += [part.MaxSlowdownConstraint(factor=factor) for factor in (1.0, 1.1, 1.3, 2.0, 9.0)]

def train(path, selector, steps):
    optimizer = part.GlobalPowerLimitOptimizer(monitor, selector, wait_steps=1, warmup_steps=1,
                                               profile_steps=2, pl_step=75, profile_path=path)
    optimizer.on_epoch_begin()
    for _ in range(steps):
        optimizer.on_step_begin()
        if steps > 1:
            seconds, share = ctypes.c_double(0.25), ctypes.c_double(0.8)
            assert nvml.harpe_emulator_work(0, seconds, share, None) == 0
        optimizer.on_step_end()
    chosen = limit_w()
    optimizer.on_epoch_end()
    return chosen

steps = 1 + 3 * 5 + 2  # A100: 400, 325, 250, 175, 100 W
result = {"own": [train(own, selectors[0], steps)]}
result["own"] += [train(own, one, 1) for one in selectors[1:]]
with open(own) as file:
    result["profile"] = json.load(file)
if os.path.exists(other):
    result["other"] = [train(other, one, 1) for one in selectors]
print(json.dumps(result))
"""

# What Zeus's device layer reads and sets, on each GPU.
DEVICES = r"""
import json, time
from zeus.device import get_gpus
from zeus.device.gpu import ZeusGPUNotSupportedError
gpus, out = get_gpus(), []

def attempt(call, *arguments):
    try:
        return call(*arguments)
    except ZeusGPUNotSupportedError:
        return None

for index in range(len(gpus)):
    top = max(gpus.get_supported_memory_clocks(index))
    clocks = gpus.get_supported_graphics_clocks(index, top)
    low, high = gpus.get_power_management_limit_constraints(index)
    gpus.set_power_management_limit(index, (low + high) // 2)
    one = {"name": gpus.get_name(index), "clocks": [min(clocks), max(clocks)], "memory": top,
           "limits": [low, high], "limit": gpus.get_power_management_limit(index)}
    gpus.reset_power_management_limit(index)
    one["default"] = gpus.get_power_management_limit(index)
    gpus.set_persistence_mode(index, True)
    one["persistence"] = gpus.get_persistence_mode(index)
    gpus.set_gpu_locked_clocks(index, clocks[5], clocks[5])
    one["locked"] = clocks[5]
    one["memory_lock"] = attempt(lambda: gpus.set_memory_locked_clocks(index, top, top) or True)
    one["instant"], one["average"] = gpus.get_instant_power_usage(index), attempt(
        gpus.get_average_power_usage, index)
    one["heat"], one["counts"] = (gpus.get_gpu_temperature(index),
                                  gpus.supports_get_total_energy_consumption(index))
    out.append(one)
import subprocess
fields = ("name,clocks.sm,clocks.mem,power.min_limit,power.max_limit,power.limit,power.draw,"
          "temperature.gpu,persistence_mode,clocks.max.sm")
text = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
                      check=True, text=True, capture_output=True).stdout
print(json.dumps([out, [line.split(", ") for line in text.splitlines()]]))
"""


@needs("zeus")
class OnTheEmulator(unittest.TestCase):
    def emulate(self, gpus, script, *arguments, options=(), **variables):
        done = subprocess.run(
            [HARPE, "emulate", *options, "-g", gpus, "--", sys.executable, "-W", "ignore", "-c",
             script, *map(str, arguments)], text=True, check=False, timeout=LIMIT_S,
            env=dict(os.environ, **variables), capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_the_energies_of_both_monitors_differ_by_the_counters_step(self):
        for gpus, count, step_s, most_w in (("V100", 1, 0.02, 300), ("2xA100", 2, 0.05, 400),
                                            ("H100", 1, 0.1, 700)):
            with self.subTest(gpus):
                windows = self.emulate(gpus, MONITORS, GPUS=json.dumps(list(range(count))))
                for (outer_s, outer), (inner_s, inner) in windows:
                    self.assertGreaterEqual(outer_s, inner_s)
                    self.assertEqual(set(outer), set(inner))
                    for gpu, joules in outer.items():
                        self.assertGreater(inner[gpu], 0.5 * 50)
                        # The outer window contains the inner one. It can have more energy: one
                        # step of the counter at each end, and the energy that the GPU used
                        # between the calls of the two monitors.
                        self.assertGreaterEqual(joules, inner[gpu] - 1e-6)
                        self.assertLessEqual(joules - inner[gpu],
                                             most_w * (outer_s - inner_s + 2 * step_s))

    def test_both_optimizers_choose_the_same_limit(self):
        """With twelve selectors from the same measurements; and from its own measurements with the
        selectors whose choices are clear."""
        for _ in range(5):
            with tempfile.TemporaryDirectory(prefix="harpe-zeus-") as folder:
                paths = [os.path.join(folder, f"{name}.json") for name in ("zeus", "harpe")]
                zeus = self.emulate("A100", LIMITS, "zeus", *paths)
                ours = self.emulate("A100", LIMITS, "harpe", *reversed(paths))
            measured = [one["profile"]["measurements"] for one in (zeus, ours)]
            self.assertEqual(*([one["power_limit"] for one in lists] for lists in measured))
            self.assertEqual(len(measured[0]), 5)
            self.assertEqual(ours["other"], zeus["own"])
            self.assertGreaterEqual(len(set(zeus["own"])), 4)
            # A busy machine wakes a program late, and its window is longer then.
            if all(abs(their["time"] / our["time"] - 1) < 0.03 for their, our in zip(*measured)):
                break
        else:
            self.skipTest("the machine was too busy for measurements that agree")
        for their, our in zip(*measured):
            self.assertLessEqual(abs(their["energy"] - our["energy"]), 2 * A100_STEP_S * 400)
        clear = (0, 1, 9, 10, 11)  # Energy, Time, MaxSlowdownConstraint of 1.3 and more
        self.assertEqual([ours["own"][number] for number in clear],
                         [zeus["own"][number] for number in clear])

    def test_zeus_devices_read_and_set_what_nvidia_smi_shows(self):
        zeus, shown = self.emulate("V100,A40,A100,H100", DEVICES, options=("--noise", "0"))
        self.assertEqual(len(zeus), 4)
        for one, smi in zip(zeus, shown):
            with self.subTest(one["name"]):
                self.assertEqual([one["name"], str(one["locked"]), str(one["memory"])], smi[:3])
                self.assertEqual([limit / 1000 for limit in one["limits"]],
                                 [float(value) for value in smi[3:5]])
                self.assertEqual(one["limit"], sum(one["limits"]) // 2)
                self.assertEqual(one["default"] / 1000, float(smi[5]))
                self.assertEqual((one["persistence"], smi[8]), (True, "Enabled"))
                self.assertEqual(one["clocks"][1], int(smi[9]))
                self.assertTrue(one["counts"])
                self.assertAlmostEqual(one["heat"], float(smi[7]), delta=2)
                self.assertEqual(one["memory_lock"], None if "V100" in smi[0] else True)
