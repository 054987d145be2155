# SPDX-License-Identifier: Apache-2.0
"""Programs of other projects that show or measure GPUs, unchanged, on emulated GPUs: what they show
is what the emulator's nvidia-smi shows. Each needs its own package; a missing one is skipped.
`make check` does not run these tests."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import world  # noqa: E402
from fixtures import needs  # noqa: E402

HOST = pathlib.Path(__file__).resolve().with_name("peer_host.py")
HARPE = os.environ.get("HARPE", str(world.BUILD / "harpe"))
LIMIT_S = 600
MIB = 1 << 20


def environment():
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("HARPE_", "CUDA_", "PYTHON"))}
    return dict(kept, COLUMNS="160", LINES="50", LANG="C.UTF-8")


class Shown(unittest.TestCase):
    """GPU 0 is an idle A100. GPU 1 is an H100 that works at 1200 MHz with a limit of 500 W. The
    power sensors have no noise."""

    def run_beside(self, *command):
        """Returns what peer_host.py prints. The program must succeed."""
        done = subprocess.run([HARPE, "emulate", "--noise", "0", "-g", "A100,H100", "--",
                               sys.executable, str(HOST), *command], text=True, check=False,
                              timeout=LIMIT_S, env=environment(), capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.found = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(self.found["status"], 0, self.found["output"])
        self.assertEqual(self.gpu(1)["clocks.sm"], "1200")
        self.assertEqual(float(self.gpu(1)["power.limit"]), 500)
        return self.found["output"]

    def gpu(self, index):
        return self.found["before"][index]

    def assert_within(self, index, field, value, slack=0.0):
        """The value lies between those before and after; temperatures and power rise or fall
        slowly."""
        ends = [float(when[index][field]) for when in (self.found["before"], self.found["after"])]
        self.assertGreaterEqual(value, min(ends) - slack, (index, field))
        self.assertLessEqual(value, max(ends) + slack, (index, field))

    def assert_process(self, index, pid, used_bytes):
        app = self.found["apps"][0]
        self.assertEqual(len(self.found["apps"]), 1)
        self.assertEqual((app["gpu_uuid"], int(app["pid"])), (self.gpu(index)["uuid"], pid))
        self.assertEqual(int(app["used_memory"]), used_bytes / MIB)

    def used_mib(self):
        """Returns the memory of the process on GPU 1."""
        app, = self.found["apps"]
        return int(app["used_memory"])

    # ---- nvidia-ml-py

    @needs("pynvml")
    def test_nvidia_ml_py(self):
        out = self.run_beside(sys.executable, "-c", """
import json, time
from pynvml import *
nvmlInit()
gpus = []
for index in range(nvmlDeviceGetCount()):
    one = nvmlDeviceGetHandleByIndex(index)
    began_mj, began_s = nvmlDeviceGetTotalEnergyConsumption(one), time.monotonic()
    time.sleep(1)
    energy_j = (nvmlDeviceGetTotalEnergyConsumption(one) - began_mj) / 1e3
    gpus.append(dict(
        name=nvmlDeviceGetName(one), uuid=nvmlDeviceGetUUID(one),
        bus=nvmlDeviceGetPciInfo(one).busId,
        sm=nvmlDeviceGetClockInfo(one, NVML_CLOCK_SM),
        mem=nvmlDeviceGetClockInfo(one, NVML_CLOCK_MEM),
        top=nvmlDeviceGetMaxClockInfo(one, NVML_CLOCK_SM), power=nvmlDeviceGetPowerUsage(one) / 1e3,
        limit=nvmlDeviceGetPowerManagementLimit(one) / 1e3,
        limits=nvmlDeviceGetPowerManagementLimitConstraints(one),
        memory=nvmlDeviceGetMemoryInfo(one, nvmlMemory_v2).used,
        total=nvmlDeviceGetMemoryInfo(one).total,
        busy=nvmlDeviceGetUtilizationRates(one).gpu, pstate=nvmlDeviceGetPerformanceState(one),
        heat=nvmlDeviceGetTemperatureV(one, NVML_TEMPERATURE_GPU),
        energy_j=energy_j, s=time.monotonic() - began_s,
        processes=[(p.pid, p.usedGpuMemory) for p in nvmlDeviceGetComputeRunningProcesses(one)]))
print(json.dumps([nvmlSystemGetDriverVersion(), gpus]))
nvmlShutdown()
""")
        driver, gpus = json.loads(out)
        self.assertEqual(driver, self.gpu(0)["driver_version"])
        for index, one in enumerate(gpus):
            gpu = self.gpu(index)
            self.assertEqual((one["name"], one["uuid"], one["bus"], one["sm"], one["mem"],
                              one["top"], one["busy"], f"P{one['pstate']}"),
                             (gpu["name"], gpu["uuid"], gpu["pci.bus_id"], int(gpu["clocks.sm"]),
                              int(gpu["clocks.mem"]), int(gpu["clocks.max.sm"]),
                              int(gpu["utilization.gpu"]), gpu["pstate"]))
            self.assertEqual(one["limit"], float(gpu["power.limit"]))
            self.assertEqual(one["limits"], [1e3 * float(gpu["power.min_limit"]),
                                             1e3 * float(gpu["power.max_limit"])])
            self.assertEqual((one["memory"] / MIB, one["total"] / MIB),
                             (int(gpu["memory.used"]), int(gpu["memory.total"])))
            self.assert_within(index, "power.draw", one["power"], 0.01)
            self.assert_within(index, "temperature.gpu", one["heat"])
            # The counter moves every 100 ms or less; the program may pause between its two calls.
            step_j = 0.1 * one["power"]
            self.assertGreaterEqual(one["energy_j"], one["power"] - 2 * step_j)
            self.assertLessEqual(one["energy_j"], one["power"] * one["s"] + 2 * step_j)
        self.assertEqual(gpus[0]["processes"], [])
        (pid, used), = gpus[1]["processes"]
        self.assert_process(1, pid, used)

    # ---- Monitors

    @needs("gpustat")
    def test_gpustat(self):
        out = self.run_beside(sys.executable, "-m", "gpustat", "--json")
        for index, one in enumerate(json.loads(out)["gpus"]):
            gpu = self.gpu(index)
            self.assertEqual((one["index"], one["name"], one["uuid"], one["utilization.gpu"]),
                             (index, gpu["name"], gpu["uuid"], int(gpu["utilization.gpu"])))
            self.assertEqual(one["enforced.power.limit"], float(gpu["power.limit"]))
            self.assertEqual((one["memory.used"], one["memory.total"]),
                             (int(gpu["memory.used"]), int(gpu["memory.total"])))
            self.assert_within(index, "power.draw", one["power.draw"], 1)
            self.assert_within(index, "temperature.gpu", one["temperature.gpu"])
            for process in one["processes"]:
                self.assert_process(index, process["pid"], process["gpu_memory_usage"] * MIB)
            self.assertEqual(len(one["processes"]), index)

    @needs("nvitop")
    def test_nvitop(self):
        out = self.run_beside(sys.executable, "-m", "nvitop", "--once", "--ascii")
        self.assertIn(self.gpu(0)["driver_version"], out)
        rows = re.findall(r"(\d+)W / (\d+)W .*? \S+B / (\S+)B .*?(\d+)%", out)
        self.assertEqual(len(rows), 2, out)
        for index, (power, limit, total, busy) in enumerate(rows):
            gpu = self.gpu(index)
            self.assert_within(index, "power.draw", int(power), 1)
            self.assertEqual((float(limit), int(busy)),
                             (float(gpu["power.limit"]), int(gpu["utilization.gpu"])))
            self.assertEqual(total, "80.00Gi")
        self.assertRegex(out, rf"1 +{self.found['pid']} C .* {self.used_mib()}MiB")

    @needs("nvitop_exporter")
    def test_prometheus_exporter(self):
        out = self.run_beside(sys.executable, "-c", """
import socket, subprocess, sys, time, urllib.error, urllib.request
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
exporter = subprocess.Popen([sys.executable, "-m", "nvitop_exporter", "--bind-address", "127.0.0.1",
                             "--port", str(port), "--interval", "0.5"], stdout=subprocess.DEVNULL)
try:
    text = ""
    while text.count("\\ngpu_power_usage_W{") < 2 or "\\nprocess_gpu_memory_MiB{" not in text:
        assert exporter.poll() is None, exporter.returncode
        try:
            answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)
            text = answer.read().decode()
        except urllib.error.URLError:  # it does not listen yet
            pass
        time.sleep(0.1)
    print(text)
finally:
    exporter.kill()
    exporter.wait()
""")
        def values(name):
            return {int(index): float(value) for index, value in
                    re.findall(rf'^{name}{{.*?index="(\d+)".*?}} (\S+)$', out, re.M)}

        for index in range(2):
            gpu = self.gpu(index)
            self.assertEqual(values("gpu_power_limit_W")[index], float(gpu["power.limit"]))
            self.assert_within(index, "power.draw", values("gpu_power_usage_W")[index], 1)
            self.assertEqual(values("gpu_memory_used_MiB")[index], int(gpu["memory.used"]))
            self.assertEqual(values("gpu_memory_total_MiB")[index], int(gpu["memory.total"]))
            self.assertEqual(values("gpu_utilization_Percentage")[index],
                             int(gpu["utilization.gpu"]))
            self.assertEqual(values("gpu_clock_sm_MHz")[index], int(gpu["clocks.sm"]))
            self.assert_within(index, "temperature.gpu", values("gpu_temperature_C")[index])
        self.assertRegex(out, rf'process_gpu_memory_MiB{{.*pid="{self.found["pid"]}".*}} '
                              rf'{self.used_mib()}\.0')

    @unittest.skipUnless(shutil.which(os.environ.get("HARPE_NVTOP", "nvtop")),
                         "nvtop is not installed (Debian's contrib), and HARPE_NVTOP names none")
    def test_nvtop(self):
        program = shutil.which(os.environ.get("HARPE_NVTOP", "nvtop"))
        out = self.run_beside("terminal", json.dumps(["A100", "H100", "peer_host"]), program, "-d",
                              "2", "-C")
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]|[\x0e\x0f]", " ", out)
        for index in range(2):
            gpu = self.gpu(index)
            self.assertIn(gpu["name"], text)
            self.assertRegex(text, rf"{gpu['clocks.sm']} *MHz")
            self.assertRegex(text, rf"{gpu['clocks.mem']} *MHz")
            self.assertRegex(text, rf"{int(float(gpu['power.draw']))} */ *"
                                   rf"{float(gpu['power.limit']):.0f} *W")
        self.assertIn(str(self.found["pid"]), text)

    # ---- Programs that measure energy

    def assert_energy(self, index, joules, least_s, most_s):
        """A GPU without noise draws constant power: its energy lies between those of the shortest
        and the longest time that the program may have measured, and a step of the counter."""
        power_w = float(self.gpu(index)["power.draw"])
        self.assertGreaterEqual(joules, power_w * (least_s - 0.2))
        self.assertLessEqual(joules, power_w * (most_s + 0.2))

    @needs("codecarbon")
    def test_codecarbon(self):
        out = self.run_beside(sys.executable, "-W", "ignore", "-c", """
import json, logging, os, tempfile, time
os.chdir(tempfile.mkdtemp())
from codecarbon import OfflineEmissionsTracker
tracker = OfflineEmissionsTracker(country_iso_code="SWE", save_to_file=False, measure_power_secs=1,
                                  log_level="critical", allow_multiple_runs=True)
outer_s = time.monotonic()
tracker.start()
inner_s = time.monotonic()
time.sleep(3)
least_s = time.monotonic() - inner_s
tracker.stop()
data = tracker.final_emissions_data
print(json.dumps([data.gpu_count, data.gpu_model, data.gpu_energy * 3.6e6, least_s,
                  time.monotonic() - outer_s]))
""")
        count, model, joules, least_s, most_s = json.loads(out.splitlines()[-1])
        self.assertEqual(count, 2)
        for index in range(2):
            self.assertIn(self.gpu(index)["name"], model)
        power_w = sum(float(gpu["power.draw"]) for gpu in self.found["before"])
        self.assertGreaterEqual(joules, power_w * (least_s - 0.2))
        self.assertLessEqual(joules, power_w * (most_s + 0.2))

    @needs("pyJoules")
    def test_pyjoules(self):
        out = self.run_beside(sys.executable, "-c", """
import json, time
from pyJoules.device.nvidia_device import NvidiaGPUDevice, NvidiaGPUDomain
from pyJoules.energy_meter import EnergyMeter
domains = NvidiaGPUDevice.available_domains()
device = NvidiaGPUDevice()
device.configure(domains)
meter = EnergyMeter([device])
outer_s = time.monotonic()
meter.start(tag="work")
inner_s = time.monotonic()
time.sleep(2)
least_s = time.monotonic() - inner_s
meter.stop()
most_s = time.monotonic() - outer_s
sample, = meter.get_trace()
print(json.dumps([[repr(one) for one in domains], sample.energy, least_s, most_s]))
""")
        domains, energies, least_s, most_s = json.loads(out.splitlines()[-1])
        self.assertEqual(domains, ["nvidia_gpu_0", "nvidia_gpu_1"])
        for index, domain in enumerate(domains):
            self.assert_energy(index, energies[domain] / 1e3, least_s, most_s)
