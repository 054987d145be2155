# SPDX-License-Identifier: Apache-2.0
"""Uses the unchanged published Python package Zeus with Harpe's daemon in place of zeusd: it sets
and reads GPUs, reads CPUs and streams, over the Unix socket and over TCP with a token. pip installs
the package as for the tests of Harpe's Python package. If pip cannot install it, the tests are
skipped."""
import json
import pathlib
import subprocess
import sys

from zeusd_world import GROUPS, LIMIT_S, DaemonTest, Rapl, kills, token

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import published_zeus
from process_groups import end_group

SETS = """
import sys
from zeus.device.gpu import get_gpus
gpus = get_gpus()
print(len(gpus), type(gpus.gpus[0]).__name__, flush=True)
gpus.set_persistence_mode(1, True)
gpus.set_power_management_limit(1, 150000)
gpus.set_gpu_locked_clocks(1, 1200, 1200)
gpus.set_memory_locked_clocks(1, 405, 405)
print(gpus.get_persistence_mode(1), gpus.get_power_management_limit(1), flush=True)
sys.stdin.readline()
gpus.set_gpu_locked_clocks(1, 900, 900, block=False)
gpus.reset_memory_locked_clocks(1)
gpus.set_power_management_limit(1, 140000)
try:
    gpus.set_power_management_limit(1, 1)
except Exception as error:
    print(type(error).__name__, flush=True)
sys.stdin.readline()
"""

READS = """
import itertools, json
from zeus.utils.zeusd import ZeusdClient
from zeus.monitor.power_streaming import PowerStreamingClient
from zeus.utils.zeusd import ZeusdConfig
client = ZeusdClient()
power = client.get_gpu_power()
cpu = client.get_cpu_energy(client.cpu_ids, cpu=True, dram=True)
print(json.dumps({
    "gpus": client.gpu_ids, "cpus": client.cpu_ids, "dram": client.dram_available, "auth": client.auth_required,
    "can": [client.can_read_gpu, client.can_control_gpu, client.can_read_cpu],
    "energy": sorted(client.get_gpu_energy([0, 2])), "limits": client.get_power_limit([0]),
    "range": client.get_power_limit_constraints([1]), "persistence": client.get_persistence_mode(),
    "power": sorted(power.power_mw), "cpu": [cpu[0].dram_energy_uj is None, cpu[1].dram_energy_uj is None],
    "cpu_power": sorted(client.get_cpu_power().power_mw), "time": client.get_time() > 1e9}), flush=True)
stream = PowerStreamingClient([ZeusdConfig.from_env()])
seen = 0
for readings in stream:
    one = next(iter(readings.values()))
    if len(one.gpu_power_w) == 3 and len(one.cpu_power_w) == 2:
        seen += 1
    if seen == 3:
        break
stream.stop()
print("streamed", flush=True)
"""


class RealClient(DaemonTest):
    def setUp(self):
        self.python = published_zeus.python()
        super().setUp()
        (self.folder / "libnvidia-ml.so.1").symlink_to(self.machine.nvml_path)
        self.daemon = self.start("--rapl", Rapl(self.folder).root, tcp=True)
        self.emulator = {name: value for name, value in self.machine.environment.items()
                         if name.startswith("HARPE_EMULATOR_")}

    def environment(self, **more):
        return published_zeus.environment(LD_LIBRARY_PATH=self.folder, **self.emulator, **more)

    def run_client(self, script, **more):
        process = subprocess.Popen([self.python, "-c", script], env=self.environment(**more), text=True, bufsize=1,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(end_group, process)
        return process

    def check_sets(self, process):
        self.assertEqual(process.stdout.readline(), "3 ZeusdNVIDIAGPU\n")
        self.assertEqual(process.stdout.readline(), "True 150000\n")
        self.assertEqual(self.machine.states()[1], (1200, 405, 150000, 1))
        process.stdin.write("\n")
        self.assertRegex(process.stdout.readline(), "Error")
        self.machine.until(lambda: self.machine.states()[1] == (900, 405, 140000, 1))

    def test_sets_through_the_socket_and_is_put_back(self):
        process = self.run_client(SETS, ZEUSD_SOCK_PATH=self.daemon.address)
        self.check_sets(process)
        process.kill()
        self.machine.until(lambda: self.machine.states() == self.machine.found_all)

    def test_sets_over_tcp(self):
        process = self.run_client(SETS, ZEUSD_HOST_PORT="%s:%d" % self.daemon.tcp, ZEUSD_TOKEN=token(scopes=GROUPS))
        self.check_sets(process)
        process.kill()
        process.wait()
        self.assertEqual(self.daemon.stop()[0], 0)
        self.assertEqual(self.machine.states()[1], (900, 405, 140000, 1))  # zeusd puts nothing back

    def check_reads(self, **where):
        done = subprocess.run([self.python, "-c", READS], env=self.environment(**where), text=True, timeout=LIMIT_S * 3,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        lines = done.stdout.splitlines()
        self.assertEqual(lines[1], "streamed")
        found = json.loads(lines[0])
        self.assertIs(found.pop("auth"), "ZEUSD_TOKEN" in where)
        self.assertEqual(found, {
            "gpus": [0, 1, 2], "cpus": [0, 1], "dram": [True, False], "can": [True, True, True], "energy": [0, 2],
            "limits": {"0": kills.FOUND_MW}, "range": {"1": [100000, 300000]},
            "persistence": {"0": False, "1": False, "2": False}, "power": [0, 1, 2], "cpu": [False, True],
            "cpu_power": [0, 1], "time": True})

    def test_reads_through_the_socket(self):
        self.check_reads(ZEUSD_SOCK_PATH=self.daemon.address)

    def test_reads_over_tcp(self):
        self.check_reads(ZEUSD_HOST_PORT="%s:%d" % self.daemon.tcp, ZEUSD_TOKEN=token())
