# SPDX-License-Identifier: Apache-2.0
"""The node agent's metrics: compares the values of emulated GPUs in /metrics with the values that
an independent client reads through NVML, and checks the metrics of leases. GPUs are slow, hang, are
lost or lack values."""
import concurrent.futures
import ctypes as C
import fcntl
import os
import pathlib
import pwd
import re
import signal
import socket
import struct
import time

from agents import open_files
from metrics_agent import Agent, AgentTest, parse, promtool
from nvml_client import LIMIT_S, PciInfo

SOURCE = pathlib.Path(os.environ["HARPE_SOURCE_DIR"])
REASONS = {"gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4,
           "hw_slowdown": 0x8, "sync_boost": 0x10, "sw_thermal_slowdown": 0x20,
           "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80,
           "display_clock_setting": 0x100}
POWER_INSTANT, OF_GPU, OF_MODULE = 186, 0, 1
MODELS_WITH_MIG = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB")
MODEL_OF_MODULE = "NVIDIA GH200 480GB"
VALUES = {"graphics_clock_hertz", "memory_clock_hertz", "power_watts gpu", "energy_joules_total gpu",
          "power_limit_watts", "default_power_limit_watts", "enforced_power_limit_watts",
          "temperature_celsius", "mig_enabled", "persistence_enabled"}


def as_nvml_says(nvml, index):
    """Returns the values of a GPU that /metrics must show, from NVML's documented calls."""
    gpu, model = nvml.gpu(index), nvml.text("nvmlDeviceGetName", nvml.gpu(index))
    is_module = model == MODEL_OF_MODULE
    (_, power_mw), (code, module_mw) = nvml.fields(gpu, (POWER_INSTANT, OF_GPU),
                                                   (POWER_INSTANT, OF_MODULE))
    limit = "nvmlDeviceGetPowerManagement{}Limit".format
    values = {
        "graphics_clock_hertz": nvml.number("nvmlDeviceGetClockInfo", gpu, 0) * 1e6,
        "memory_clock_hertz": nvml.number("nvmlDeviceGetClockInfo", gpu, 2) * 1e6,
        "power_watts gpu": power_mw / 1e3,
        f"energy_joules_total {'module' if is_module else 'gpu'}": nvml.energy_j(gpu),
        "power_limit_watts": nvml.number(limit(""), gpu) / 1e3,
        "default_power_limit_watts": nvml.number(limit("Default"), gpu) / 1e3,
        "enforced_power_limit_watts": nvml.number("nvmlDeviceGetEnforcedPowerLimit", gpu) / 1e3,
        "temperature_celsius": nvml.number("nvmlDeviceGetTemperature", gpu, 0),
        "persistence_enabled": nvml.number("nvmlDeviceGetPersistenceMode", gpu),
    }
    assert (code == 0) == is_module
    if is_module:
        values["power_watts module"] = module_mw / 1e3
    if model in MODELS_WITH_MIG:
        mode, pending = C.c_uint(), C.c_uint()
        nvml.nvmlDeviceGetMigMode(gpu, C.byref(mode), C.byref(pending))
        values["mig_enabled"] = mode.value
    bits = nvml.number("nvmlDeviceGetCurrentClocksEventReasons", gpu, kind=C.c_ulonglong)
    for name, bit in REASONS.items():
        values[f"clock_event_active {name}"] = float(bits & bit != 0)
    return values


class Values(AgentTest):
    def check_values(self, nvml, agent, gpus):
        """Compares /metrics with NVML. A value that changes must lie between a reading of NVML
        before the request and a reading after it, also if the value falls, as a temperature can."""
        before = [as_nvml_says(nvml, gpu) for gpu in range(gpus)]
        metrics = agent.metrics()
        after = [as_nvml_says(nvml, gpu) for gpu in range(gpus)]
        own = {"gpu_up", "sample_age_seconds", "gpu_not_restored clocks", "gpu_not_restored power"}
        for gpu in range(gpus):
            found = agent.of_gpu(gpu, metrics)
            self.assertEqual(set(found) - own, set(before[gpu]))
            for name, first in before[gpu].items():
                last = after[gpu][name]
                with self.subTest(gpu=gpu, metric=name):
                    self.assertLessEqual(min(first, last), found[name])
                    self.assertLessEqual(found[name], max(first, last))
            self.assertEqual(found["gpu_up"], 1)
            self.assertGreaterEqual(found["sample_age_seconds"], 0)
        return metrics

    def test_every_value_is_what_nvml_says(self):
        models = ("A100", "GH200", "V100", "A40", "H100")
        nvml, agent = self.start_agent(",".join(models))
        metrics = self.check_values(nvml, agent, len(models))
        for gpu in range(len(models)):
            handle, pci = nvml.gpu(gpu), PciInfo()
            nvml.nvmlDeviceGetPciInfo_v3(handle, C.byref(pci))
            names = {"gpu": str(gpu), "uuid": nvml.text("nvmlDeviceGetUUID", handle),
                     "model": nvml.text("nvmlDeviceGetName", handle), "pci": pci.busId.decode()}
            self.assertEqual(metrics["gpu_up"][tuple(sorted(names.items()))], 1)
        # Sets everything that can be set, with different values for each GPU.
        for gpu, (clock, memory, limit) in enumerate(((1200, 1593, 250), (990, 2619, 500),
                                                      (1200, None, 200), (1305, 5001, 150),
                                                      (1500, 1593, 333))):
            handle = nvml.gpu(gpu)
            nvml.nvmlDeviceSetGpuLockedClocks(handle, clock, clock)
            if memory:
                nvml.nvmlDeviceSetMemoryLockedClocks(handle, memory, memory)
            nvml.nvmlDeviceSetPowerManagementLimit(handle, limit * 1000)
            nvml.nvmlDeviceSetPersistenceMode(handle, gpu % 2)
        metrics = self.check_values(nvml, agent, len(models))
        found = agent.of_gpu(3, metrics)
        self.assertEqual([found[name] for name in ("graphics_clock_hertz", "memory_clock_hertz",
                                                   "power_limit_watts", "persistence_enabled")],
                         [1305e6, 5001e6, 150, 1])

    def test_the_energy_of_a_module_is_not_that_of_its_gpu(self):
        _, agent = self.start_agent("GH200,A100")
        superchip, other = agent.of_gpu(0), agent.of_gpu(1)
        self.assertIn("energy_joules_total module", superchip)
        self.assertNotIn("energy_joules_total gpu", superchip)
        # 84 W is the power of the module's CPU and memory (docs/emulator.md).
        self.assertEqual(superchip["power_watts module"] - superchip["power_watts gpu"], 84)
        self.assertEqual({name for name in other if name.endswith("module")}, set())

    def test_a_gpu_under_a_power_cap_says_so(self):
        nvml, agent = self.start_agent("2xA100", faults="enforced_limit=200")
        nvml.nvmlDeviceSetPowerManagementLimit(nvml.gpu(0), 250000)
        child = self.spawn("nvml.work(0, 1e5)")
        self.addCleanup(self.end, child)
        self.wait_until(lambda: nvml.number("nvmlDeviceGetPowerUsage", nvml.gpu(0)) > 100000)
        found = agent.of_gpu(0)
        self.assertEqual([found[f"{kind}power_limit_watts"] for kind in ("", "default_", "enforced_")],
                         [250, 400, 200])
        self.assertLess(found["power_watts gpu"], 201)
        self.assertLess(found["graphics_clock_hertz"], 1410e6)
        self.assertEqual((found["clock_event_active sw_power_cap"],
                          found["clock_event_active gpu_idle"]), (1, 0))
        idle = agent.of_gpu(1)
        self.assertEqual((idle["clock_event_active sw_power_cap"],
                          idle["clock_event_active gpu_idle"]), (0, 1))

    def test_mig_is_told_where_the_model_has_it(self):
        nvml, agent = self.start_agent("A100,V100,H100", faults="mig")
        self.assertEqual([agent.of_gpu(gpu).get("mig_enabled") for gpu in range(3)], [1, None, 1])
        os.environ["HARPE_EMULATOR_FAULTS"] = "mig"  # this process sees MIG, too
        nvml.nvmlShutdown()
        nvml.nvmlInit_v2()
        for gpu, count in enumerate((2, 0, 2)):
            expected = set()
            for device in range(count):
                found = C.c_void_p()
                nvml.nvmlDeviceGetMigDeviceHandleByIndex(nvml.gpu(gpu), device, C.byref(found))
                expected.add("mig_device " + nvml.text("nvmlDeviceGetUUID", found))
            values = agent.of_gpu(gpu)
            self.assertEqual({name for name in values if name.startswith("mig_device")}, expected)
            self.assertLessEqual(VALUES - {"mig_enabled"}, set(values))
        agent.faults.write_text("")
        self.wait_until(lambda: agent.of_gpu(0)["mig_enabled"] == 0)
        self.assertEqual([name for name in agent.of_gpu(0) if name.startswith("mig_device")], [])


class Faults(AgentTest):
    def test_what_a_gpu_lacks_is_left_out_and_not_asked_for_again(self):
        _, agent = self.start_agent("A100", faults="no_energy_counter,not_supported=power_limit,"
                                                   "not_supported=temperature,not_supported=reasons")
        lacking = {"energy_joules_total gpu", "power_limit_watts", "default_power_limit_watts",
                   "enforced_power_limit_watts", "temperature_celsius"}
        found = agent.of_gpu(0)
        self.assertEqual(VALUES - set(found), lacking)
        self.assertEqual([name for name in found if name.startswith("clock_event")], [])
        agent.faults.write_text("")
        for _ in range(3):
            self.assertEqual(VALUES - set(agent.of_gpu(0)), lacking)
        # MIG can change what a GPU has.
        agent.faults.write_text("mig")
        self.wait_until(lambda: VALUES <= set(agent.of_gpu(0)))

    def test_what_a_gpu_had_is_asked_for_again(self):
        _, agent = self.start_agent("A100")
        self.assertLessEqual(VALUES, set(agent.of_gpu(0)))
        for _ in range(2):
            agent.faults.write_text("not_supported=energy,not_supported=power,"
                                    "not_supported=field_values")
            self.wait_until(lambda: "power_watts" not in agent.of_gpu(0))
            self.assertNotIn("energy_joules_total gpu", agent.of_gpu(0))
            agent.faults.write_text("")
            self.wait_until(lambda: VALUES <= set(agent.of_gpu(0)))
        self.assertEqual(agent.end(), 0)
        log = "".join(agent.lines)
        for line in ("GPU 0: its power is missing in the metrics for now: ",
                     "GPU 0: its energy is known again"):
            self.assertEqual(log.count(line), 2, log)

    def test_energy_that_cannot_be_is_not_exported(self):
        _, agent = self.start_agent("A100")
        before = agent.of_gpu(0)["energy_joules_total gpu"]
        agent.faults.write_text("counter_factor=1e6")
        for _ in range(5):
            time.sleep(0.1)
            self.assertLess(agent.of_gpu(0)["energy_joules_total gpu"] - before, 1e4)
        agent.faults.write_text("")
        self.assertGreaterEqual(agent.of_gpu(0)["energy_joules_total gpu"], before)

    def test_a_gpu_that_hangs_delays_no_other(self):
        nvml, agent = self.start_agent("3xA100")
        first = agent.of_gpu(1)
        self.assertLessEqual(VALUES, set(first))
        agent.faults.write_text("slow_get=1e7@1")  # hours
        agent.hanging = {1}
        agent.metrics()
        for clock in (1200, 990, 705):
            for gpu in (0, 2):
                nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(gpu), clock, clock)
            metrics = agent.metrics()
            for gpu in (0, 2):
                self.assertEqual(agent.of_gpu(gpu, metrics)["graphics_clock_hertz"], clock * 1e6)
        hung, again = agent.of_gpu(1), agent.of_gpu(1)
        self.assertEqual(hung["energy_joules_total gpu"], again["energy_joules_total gpu"])
        self.assertGreaterEqual(hung["energy_joules_total gpu"], first["energy_joules_total gpu"])
        self.assertLess(hung["sample_age_seconds"], again["sample_age_seconds"])
        self.assertLessEqual(VALUES, set(again))
        held = [gpu["held_mhz"] for gpu in agent.status()["gpus"]]
        self.assertEqual((held[0], held[2]), (705, 705))
        self.assertEqual(agent.ask("GET", "/healthz")[0], 200)
        self.assertEqual(agent.end(), 0)  # the hung call does not keep it

    def test_a_slow_gpu_is_seen_later(self):
        _, agent = self.start_agent("2xA100")
        agent.faults.write_text("slow_get=40@1")  # a sample takes longer than a scrape waits
        agent.hanging = {1}
        self.wait_until(lambda: agent.of_gpu(0)["gpu_up"] == 1)
        self.wait_until(lambda: agent.of_gpu(1)["gpu_up"] == 1)
        self.assertLessEqual(VALUES, set(agent.of_gpu(1)))

    def test_a_lost_gpu_has_no_values(self):
        _, agent = self.start_agent("2xA100")
        self.assertEqual([agent.of_gpu(gpu)["gpu_up"] for gpu in (0, 1)], [1, 1])
        agent.faults.write_text("lost_after=0@1")
        self.wait_until(lambda: agent.of_gpu(1)["gpu_up"] == 0)
        metrics = agent.metrics()
        lost, other = agent.of_gpu(1, metrics), agent.of_gpu(0, metrics)
        self.assertEqual(set(lost), {"gpu_up", "sample_age_seconds", "gpu_not_restored clocks",
                                     "gpu_not_restored power"})
        self.assertEqual(other["gpu_up"], 1)
        self.assertLessEqual(VALUES, set(other))
        self.assertIsNone(agent.status()["gpus"][1]["held_mhz"])


class Leases(AgentTest):
    def leases(self, agent, name="lease"):
        """Returns {(GPU, control): (user, uid, job)}."""
        found = {}
        for labels, value in agent.metrics().get(name, {}).items():
            labels = dict(labels)
            found[int(labels["gpu"]), labels["control"]] = (labels["user"], labels["uid"],
                                                            labels["job"], value)
        return found

    def test_leases_and_wanted_clocks(self):
        _, agent = self.start_agent("2xA100")
        start_s = time.time()
        self.assertEqual(self.leases(agent), {})
        self.assertNotIn("wanted_graphics_clock_hertz", agent.metrics())
        holder = self.hold(agent, "--gpu", "1", "--clock", "1200", "--power-limit", "300")
        self.wait_until(lambda: agent.of_gpu(1)["graphics_clock_hertz"] == 1200e6)
        found = agent.of_gpu(1)
        self.assertEqual(found["wanted_graphics_clock_hertz"], 1200e6)
        self.assertEqual(found["power_limit_watts"], 300)
        self.assertNotIn("wanted_graphics_clock_hertz", agent.of_gpu(0))
        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = ""
        self.wait_until(lambda: all(user == name for user, *_ in self.leases(agent).values()))
        leases = self.leases(agent)
        self.assertEqual(set(leases), {(1, "clocks"), (1, "power")})
        job = agent.status()["leases"][0]["job"]
        for lease in leases.values():
            self.assertEqual(lease, (name, str(os.getuid()), job, 1))
        for *_, since_s in self.leases(agent, "lease_start_time_seconds").values():
            self.assertTrue(start_s - 1 <= since_s <= time.time(), since_s)
        self.assertTrue(start_s - LIMIT_S <= agent.count("start_time_seconds") <= start_s + 1)
        self.assertEqual((agent.count("leases_granted_total"), agent.count("leases_ended_total")),
                         (2, 0))
        # Another process asks for the same clock.
        refused = agent.run("hold", "--gpu", "1", "--clock", "900", "--", "true")
        self.assertNotEqual(refused.returncode, 0)
        self.assertEqual(agent.count("leases_refused_total"), 1)
        self.end_holder(holder)
        self.wait_until(lambda: agent.count("leases_ended_total") == 2)
        self.assertEqual(self.leases(agent), {})
        self.assertNotIn("wanted_graphics_clock_hertz", agent.of_gpu(1))

    def test_status_has_wanted_and_held_clocks(self):
        nvml, agent = self.start_agent("2xA100")
        self.hold(agent, "--gpu", "0", "--clock", "1200")
        self.hold(agent, "--gpu", "1", "--power-limit", "250")
        self.wait_until(lambda: agent.of_gpu(0)["graphics_clock_hertz"] == 1200e6)
        clocks, power = agent.status()["leases"]
        self.assertEqual((clocks["control"], clocks["wanted_mhz"], clocks["held_mhz"]),
                         ("clocks", 1200, 1200))
        self.assertEqual(power["control"], "power")
        self.assertNotIn("wanted_mhz", power)
        # Another tool locks another clock.
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(0), 795, 795)
        self.wait_until(lambda: agent.status()["leases"][0]["held_mhz"] == 795)
        self.assertEqual(agent.status()["leases"][0]["wanted_mhz"], 1200)
        self.assertEqual([gpu["held_mhz"] for gpu in agent.status()["gpus"]], [795, 210])
        text = agent.run("status").stdout
        self.assertRegex(text, r"CONTROL +STATE +WANTED +HELD")
        self.assertRegex(text, r"\n0 +clocks +lent +1200 +795 ")
        self.assertRegex(text, r"\n1 +power +lent +- +- ")

    def test_a_new_agent_knows_the_wanted_clock(self):
        if os.getuid() != 0:
            self.skipTest("only root may look into the controllers of an earlier agent")
        _, agent = self.start_agent("A100")
        self.hold(agent, "--gpu", "0", "--clock", "1200")
        self.wait_until(lambda: agent.of_gpu(0)["graphics_clock_hertz"] == 1200e6)
        agent.end(signal.SIGKILL)
        agent = Agent(agent.directory)
        self.addCleanup(self.end_agent, agent)
        self.assertEqual(agent.of_gpu(0)["wanted_graphics_clock_hertz"], 1200e6)
        self.assertEqual(set(self.leases(agent)), {(0, "clocks")})

    def test_a_holder_can_write_anything_into_its_slot(self):
        nvml, agent = self.start_agent("A100")
        uuid = nvml.text("nvmlDeviceGetUUID", nvml.gpu())
        ask = {"request": "lease", "gpu": uuid, "control": "clocks", "memory": True,
               "dwell_ns": 0, "poll_ns": 1000000}
        empty = os.memfd_create("slot", os.MFD_ALLOW_SEALING)
        refusal, connection, _ = agent.request([empty], **ask)
        connection.close()
        size = int(re.search(r"sealed memory of (\d+) bytes", refusal["message"])[1])
        memory = os.memfd_create("slot", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, size)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        answer, connection, files = agent.request([memory], **ask)
        self.assertEqual((answer["status"], len(files)), (0, 1), answer)
        self.assertNotIn("wanted_graphics_clock_hertz", agent.metrics())
        for word, wanted in ((0xABCDEF << 16 | 1234, 1234e6), ((1 << 64) - 1, 65535e6),
                             (1, 1e6), (0xFFFF0000, None)):
            os.pwrite(memory, struct.pack("<Q", word), 0)
            self.assertEqual(agent.of_gpu(0).get("wanted_graphics_clock_hertz"), wanted, hex(word))
        os.pwrite(memory, os.urandom(size), 0)
        agent.metrics()
        with self.assertRaises(OSError):
            os.ftruncate(memory, 0)
        punched = C.CDLL(None).fallocate(memory, 3, C.c_long(0), C.c_long(size))
        self.assertEqual(punched, 0)
        self.assertNotIn("wanted_graphics_clock_hertz", agent.of_gpu(0))
        os.ftruncate(memory, 1 << 20)  # larger is allowed
        self.assertEqual(agent.of_gpu(0)["gpu_up"], 1)
        for file in (memory, empty, *files):
            os.close(file)
        connection.close()
        self.wait_until(lambda: agent.count("leases_ended_total") == 1)

    def test_requests_that_a_rule_refuses_are_counted(self):
        _, agent = self.start_agent("A100")
        self.assertEqual(agent.count("requests_refused_total"), 0)
        for _ in range(3):
            answer, connection, _ = agent.request(request="lease", gpu="GPU-no", control="power")
            connection.close()
            self.assertNotEqual(answer["status"], 0)
        self.assertEqual(agent.count("requests_refused_total"), 3)

    def kill_helper(self, agent):
        os.kill(agent.status()["leases"][0]["helper"], signal.SIGKILL)

    def test_what_the_agent_restores_itself_is_counted(self):
        nvml, agent = self.start_agent("A100")
        self.hold(agent, "--gpu", "0", "--clock", "1200")
        self.wait_until(lambda: nvml.number("nvmlDeviceGetClockInfo", nvml.gpu(), 0) == 1200)
        self.kill_helper(agent)
        self.wait_until(lambda: agent.count("restored_by_agent_total") == 1)
        self.assertEqual((agent.count("restore_failures_total"), agent.count("gpus_not_restored")),
                         (0, 0))

    def test_a_gpu_that_cannot_be_restored_is_told(self):
        nvml, agent = self.start_agent("2xA100")
        holder = self.hold(agent, "--gpu", "1", "--clock", "1200")
        self.wait_until(lambda: nvml.number("nvmlDeviceGetClockInfo", nvml.gpu(1), 0) == 1200)
        agent.faults.write_text("no_permission")
        self.kill_helper(agent)
        self.wait_until(lambda: agent.count("gpus_not_restored") == 1)
        metrics = agent.metrics()
        self.assertGreaterEqual(metrics["restore_failures_total"][()], 1)
        names = [(gpu, control) for gpu in (0, 1) for control in ("clocks", "power")]
        self.assertEqual([agent.of_gpu(gpu, metrics)[f"gpu_not_restored {control}"]
                          for gpu, control in names], [0, 0, 1, 0])
        self.end_holder(holder)  # it would set its clock again
        agent.faults.write_text("")
        self.wait_until(lambda: agent.count("gpus_not_restored") == 0)
        self.assertEqual(agent.of_gpu(1)["gpu_not_restored clocks"], 0)
        self.assertEqual(nvml.number("nvmlDeviceGetClockInfo", nvml.gpu(1), 0), 210)


class Server(AgentTest):
    def test_it_answers_only_metrics_and_health(self):
        _, agent = self.start_agent("A100")
        self.assertEqual(agent.ask("GET", "/healthz")[::2], (200, "ok\n"))
        for method, path in (("GET", "/"), ("GET", "/metrics/"), ("GET", "/metric"),
                             ("POST", "/metrics"), ("PUT", "/healthz"), ("DELETE", "/metrics"),
                             ("GET", "/gpu/get_power")):
            self.assertEqual(agent.ask(method, path)[0], 404, (method, path))
        self.assertEqual(agent.ask("HEAD", "/metrics")[::2], (200, ""))
        self.assertEqual(agent.ask("GET", "/metrics?x=1")[0], 200)

    def test_it_is_off_by_default(self):
        _, agent = self.start_agent("A100", listen=None)
        self.assertIsNone(agent.address)
        listening = pathlib.Path(f"/proc/{agent.process.pid}/net/tcp").read_text()
        sockets = set(re.findall(r"socket:\[(\d+)\]", " ".join(open_files(agent.process.pid))))
        self.assertEqual({line.split()[9] for line in listening.splitlines()[1:]} & sockets, set())

    def test_addresses(self):
        if pathlib.Path("/proc/net/if_inet6").exists():
            _, agent = self.start_agent("A100", listen="[::1]:0")
            self.assertEqual(agent.address[0], "::1")
            self.assertEqual(agent.of_gpu(0)["gpu_up"], 1)
            agent.end()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for wrong, message in (("", "is not ADDR:PORT"), ("127.0.0.1", "is not ADDR:PORT"),
                                   (":9787", "is not ADDR:PORT"), ("127.0.0.1:", "is not ADDR:PORT"),
                                   ("127.0.0.1:65536", "is not ADDR:PORT"),
                                   ("127.0.0.1:-1", "is not ADDR:PORT"),
                                   ("127.0.0.1:http", "is not ADDR:PORT"),
                                   ("::1:80", "needs brackets"), ("no.such.host:80", "no.such.host"),
                                   (f"127.0.0.1:{port}", str(port))):
                with self.subTest(wrong), self.assertRaises(AssertionError) as failed:
                    self.start_agent("A100", listen=None if wrong is None else wrong or " ")
                self.assertIn(message, str(failed.exception))

    def test_many_scrapes_at_once(self):
        nvml, agent = self.start_agent("8xA100")
        nvml.nvmlDeviceSetGpuLockedClocks(nvml.gpu(7), 1200, 1200)
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            pages = list(pool.map(lambda _: agent.ask("GET", "/metrics"), range(256)))
        for status, _, text in pages:
            self.assertEqual(status, 200)
            self.assertEqual(len(parse(text)["harpe_agent_gpu_up"]), 8)
        self.assertEqual(agent.of_gpu(7)["graphics_clock_hertz"], 1200e6)

    def test_an_agent_that_nobody_asks_sleeps(self):
        _, agent = self.start_agent("8xA100")
        agent.metrics()
        agent.status()

        def wakes():
            tasks = pathlib.Path(f"/proc/{agent.process.pid}/task").glob("*/status")
            return sum(int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", task.read_text())[1])
                       for task in tasks)

        def is_asleep():
            before = wakes()
            time.sleep(1)
            return wakes() == before
        self.wait_until(is_asleep)
        self.assertTrue(is_asleep() or is_asleep())
        before = wakes()
        agent.metrics()
        self.assertGreater(wakes(), before)

    def test_clients_that_leave_are_forgotten(self):
        _, agent = self.start_agent("2xA100")
        agent.metrics()
        agent.faults.write_text("slow_get=1e7@1")
        agent.hanging = {1}
        for _ in range(20):
            with socket.create_connection(agent.address) as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(20):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            client.connect(agent.socket)
            client.send(b'{"version":1,"request":"status"}')
            client.close()
        self.assertEqual(agent.of_gpu(0)["gpu_up"], 1)


class Files(AgentTest):
    def test_the_documents_table_is_the_agents(self):
        _, agent = self.start_agent("A100")
        text = agent.page()
        exported = dict(re.findall(r"^# TYPE (harpe_agent_\w+) (\w+)$", text, re.MULTILINE))
        table = (SOURCE / "docs" / "agent-metrics.md").read_text(encoding="utf-8")
        documented = dict(re.findall(r"^\| `(harpe_agent_\w+)` \| (\w+) \|", table, re.MULTILINE))
        self.assertEqual(documented, exported)
        self.assertEqual(set(re.findall(r"`reason=\"(\w+)\"`", table)), set(REASONS))

    def test_rules_and_scrapes_are_prometheus_own(self):
        folder = SOURCE / "packaging" / "prometheus"
        rules = folder / "harpe-agent.rules.yml"
        self.assertEqual(promtool("check", "rules", str(rules)), "")
        self.assertEqual(promtool("check", "config", str(folder / "harpe-agent.scrape.yml")), "")
        tests = pathlib.Path(__file__).resolve().parent / "rules_test.yml"
        self.assertEqual(promtool("test", "rules", str(tests)), "")
        _, agent = self.start_agent("A100")
        exported = set(re.findall(r"^# TYPE (harpe_agent_\w+)", agent.page(), re.MULTILINE))
        self.assertLessEqual(set(re.findall(r"\bharpe_agent_[a-z_]+", rules.read_text())), exported)
