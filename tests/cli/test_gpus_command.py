# SPDX-License-Identifier: Apache-2.0
"""`harpe gpus` end to end: on healthy and faulty emulated GPUs, on machines without a driver, and
the promise that it never writes to a GPU. HARPE_EMULATOR names the emulated driver library."""
import ctypes.util
import pathlib
import shutil
import socket
import subprocess
import sys
import uuid

from program import HARPE, SOURCE, ProgramTest, environment, json, os, unittest
from attempts import attempt

sys.path.insert(0, str(SOURCE / "tests" / "agent"))
import agents

EMULATOR = os.environ.get("HARPE_EMULATOR", "")
MINIMAL = os.environ.get("HARPE_MINIMAL_NVML", "")
AMDSMI = os.environ.get("HARPE_SCRIPTED_AMDSMI", "")
HAS_DRIVER = ctypes.util.find_library("nvidia-ml")


class GpusTest(ProgramTest):
    def setUp(self):
        super().setUp()
        cluster = f"gpus-{uuid.uuid4().hex}"
        self.variables = environment(HARPE_NVML_LIBRARY=EMULATOR, HARPE_EMULATOR_GPUS="2xA100",
                                     HARPE_EMULATOR_CLUSTER=cluster)
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HARPE_EMULATOR_FAULTS",
                     "HARPE_EMULATOR_FAULTS_FILE", "HARPE_EMULATOR_TIME_SCALE",
                     "HARPE_AMDSMI_LIBRARY", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                     "HARPE_AGENT_SOCKET", "ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT"):
            self.variables.pop(name, None)
        self.addCleanup(self.remove, f"/dev/shm/harpe-emulator-{os.getuid()}-{cluster}")

    @staticmethod
    def remove(path):
        if os.path.exists(path):
            os.remove(path)

    def gpus(self, *arguments, **changes):
        return self.succeed("gpus", *arguments, env=dict(self.variables, **changes))

    def facts(self, *arguments, **changes):
        return self.gpus("--json", *arguments, **changes).json()

    def refused(self, message, **changes):
        return self.refuse(1, message, "gpus", env=dict(self.variables, **changes))


class Forms(GpusTest):
    def test_json_has_the_models_public_figures(self):
        got = self.facts()
        self.assertEqual((got["backend"], got["emulated"], got["driver_gpu_count"]),
                         ("nvml", True, 2))
        for index, gpu in enumerate(got["gpus"]):
            self.assertEqual((gpu["index"], gpu["driver_index"]), (index, index))
            self.assertEqual(gpu["name"], "NVIDIA A100-SXM4-80GB")
            self.assertEqual([gpu[f"power_limit_{what}_w"] for what in
                              ("minimum", "default", "maximum")], [100, 400, 400])
            self.assertEqual([gpu[f"graphics_clock_{what}"] for what in
                              ("minimum_mhz", "maximum_mhz", "count")], [210, 1410, 81])
            self.assertTrue(gpu["energy_counter"])
            self.assertGreater(gpu["energy_counter_read_us"], 0)
            self.assertTrue(20 < gpu["power_w"] < 450, gpu)
        self.assertEqual(len({gpu["uuid"] for gpu in got["gpus"]}), 2)

    def test_a_superchips_energy_is_labelled_as_the_modules(self):
        def run(_):
            got = self.facts(HARPE_EMULATOR_GPUS="GH200,H100", HARPE_EMULATOR_NOISE="0")["gpus"]
            return {gpu["name"]: gpu for gpu in got}

        def moved_w(names):
            superchip = names["NVIDIA GH200 480GB"]
            return (superchip["energy_counter_step_mj"] or 0) / (superchip["energy_counter_step_ms"] or 1)

        # The command watches the counters only for 0.4 s.
        names = attempt(run, lambda names: 100 < moved_w(names) < 220)
        superchip, other = names["NVIDIA GH200 480GB"], names["NVIDIA H100 80GB HBM3"]
        self.assertEqual((superchip["energy_scope"], other["energy_scope"]), ("module", "gpu"))
        self.assertEqual((superchip["power_w"], superchip["module_power_w"]), (78, 162))
        self.assertIsNone(other["module_power_w"])
        # The counter moves by 162 W, not by 78 W.
        self.assertTrue(100 < moved_w(names) < 220, superchip)
        out = self.gpus(HARPE_EMULATOR_GPUS="GH200,H100").out
        self.assertEqual(out.count("whole module, CPU included"), 1)

    def test_a_limit_from_elsewhere_is_a_problem(self):
        for gpus, limit, problems in (("2xA100", 300, 2), ("A100,V100", 350, 1), ("2xA100", 400, 0),
                                      ("2xA100", 0, 0), ("A40", 500, 0)):
            got = self.facts(HARPE_EMULATOR_GPUS=gpus,
                             HARPE_EMULATOR_FAULTS=f"enforced_limit={limit}")
            for gpu in got["gpus"]:
                enforced = min(gpu["power_limit_w"], limit or 1000)
                self.assertEqual(gpu["enforced_power_limit_w"], enforced)
            lines = [line for line in got["problems"] if "enforced" in line]
            self.assertEqual(len(lines), problems, got["problems"])
            for line in lines:
                self.assertIn(f"{limit} W", line)
                self.assertIn("400 W", line)

    def test_text_has_a_row_per_gpu_in_both_tables_and_no_escapes(self):
        out = self.gpus().out
        self.assertIn("2 of 2 GPUs visible", out.splitlines()[0])
        self.assertIn("emulated by Harpe", out.splitlines()[0])
        self.assertEqual(out.count("NVIDIA A100-SXM4-80GB"), 2)
        self.assertEqual(out.count("GPU-"), 2)
        self.assertIn("100/400/400/400", out)
        self.assertNotIn("\x1b", out)

    def test_mixed_models_are_a_problem_that_names_them(self):
        result = self.gpus("--json", HARPE_EMULATOR_GPUS="1xA100,1xV100")
        self.assertIn("warning", result.err)  # CUDA decides which GPU has index 0
        mixed = [line for line in result.json()["problems"] if line.startswith("Mixed models")]
        self.assertEqual(len(mixed), 1)
        for name in ("A100", "V100", "CUDA_VISIBLE_DEVICES"):
            self.assertIn(name, mixed[0])
        self.assertIn(mixed[0], self.gpus(HARPE_EMULATOR_GPUS="1xA100,1xV100").out)

    def test_visible_devices_choose_and_all_overrides_them(self):
        got = self.facts(CUDA_VISIBLE_DEVICES="1")
        self.assertEqual([(gpu["index"], gpu["driver_index"]) for gpu in got["gpus"]], [(0, 1)])
        self.assertEqual(got["driver_gpu_count"], 2)
        self.assertEqual(len(self.facts("--all", CUDA_VISIBLE_DEVICES="1")["gpus"]), 2)
        self.assertEqual(len(self.facts("--all", CUDA_VISIBLE_DEVICES="")["gpus"]), 2)

    def test_unexpected_argument_is_wrong_usage(self):
        self.refuse(2, "unexpected argument 'now'", "gpus", "now", env=self.variables)


class Faults(GpusTest):
    def test_permission_of_emulated_gpus_is_not_claimed(self):
        for faults in ("", "no_permission"):
            got = self.facts(HARPE_EMULATOR_FAULTS=faults)
            self.assertIsNone(got["may_set"], got)
            self.assertFalse([line for line in got["problems"] if "cannot be set" in line])
        out = self.gpus(HARPE_EMULATOR_FAULTS="no_permission").out
        self.assertIn("May set power limits and clocks: not checked", out)

    @unittest.skipUnless(MINIMAL, "needs the minimal driver library")
    def test_permission_of_other_gpus_is_the_capability(self):
        with open("/proc/self/status", encoding="ascii") as status:
            rights = [int(line.split()[1], 16) for line in status if line.startswith("CapEff:")]
        result = self.gpus("--json", HARPE_NVML_LIBRARY=MINIMAL, HARPE_AGENT_SOCKET="")
        got = result.json()
        self.assertFalse(got["emulated"])
        self.assertEqual(got["may_set"], bool(rights[0] >> 21 & 1), got)
        refusals = [line for line in got["problems"] if "cannot be set" in line]
        self.assertEqual(bool(refusals), not got["may_set"])
        for line in refusals:
            self.assertIn("node agent", line)
        self.assertIsNone(got["gpus"][0]["energy_counter_read_us"])
        self.assertIsNone(got["gpus"][0]["average_power_w"])
        self.assertIsNone(got["gpus"][0]["module_power_w"])

    def test_gpu_without_an_energy_counter_is_told(self):
        got = self.facts(HARPE_EMULATOR_FAULTS="no_energy_counter")
        for index, gpu in enumerate(got["gpus"]):
            self.assertFalse(gpu["energy_counter"])
            self.assertIsNone(gpu["energy_counter_step_ms"])
            self.assertIsNone(gpu["energy_counter_read_us"])
            line = [text for text in got["problems"] if text.startswith(f"GPU {index}: no usable")]
            self.assertEqual(len(line), 1, got["problems"])
            self.assertIn("NVML_ERROR_NOT_SUPPORTED", line[0])
        self.assertIn("sampled", self.gpus(HARPE_EMULATOR_FAULTS="no_energy_counter").out)

    def test_what_the_driver_does_not_tell_is_null_and_a_dash(self):
        faults = "not_supported=power_limit,not_supported=supported_clocks,not_supported=temperature"
        got = self.facts(HARPE_EMULATOR_FAULTS=faults)
        gpu = got["gpus"][0]
        self.assertEqual([gpu["power_limit_w"], gpu["graphics_clock_maximum_mhz"],
                          gpu["graphics_clock_count"], gpu["temperature_c"]], [None, None, 0, None])
        text = " ".join(got["problems"])
        self.assertIn("no power limit that can be read", text)
        self.assertIn("does not list its clocks", text)
        self.assertIn("-/-/-/-", self.gpus(HARPE_EMULATOR_FAULTS=faults).out)

    def test_gpu_lost_in_the_middle_is_told_with_its_index(self):
        got = self.facts(HARPE_EMULATOR_FAULTS="lost_after=20@1")
        self.assertEqual(len(got["gpus"]), 2)
        self.assertEqual([line for line in got["problems"] if "lost. " in line],
                         [line for line in got["problems"] if line.startswith("GPU 1: lost.")])
        self.assertEqual(len([line for line in got["problems"] if "GPU 1: lost." in line]), 1)

    def test_gpu_lost_from_the_start_is_left_out_with_a_warning(self):
        result = self.gpus("--json", HARPE_EMULATOR_FAULTS="lost_after=0@1")
        self.assertIn("GPU 1 cannot be used", result.err)
        self.assertIn("NVML_ERROR_GPU_IS_LOST", result.err)
        got = result.json()
        self.assertEqual((len(got["gpus"]), got["driver_gpu_count"]), (1, 2))

    def test_slow_driver_is_waited_for(self):
        got = self.facts(HARPE_EMULATOR_GPUS="1xA100", HARPE_EMULATOR_FAULTS="slow_get=200")
        self.assertGreater(got["gpus"][0]["energy_counter_read_us"], 190e3)
        self.assertEqual(got["gpus"][0]["power_limit_w"], 400)


class Machines(GpusTest):
    def test_library_that_is_not_there_is_named(self):
        self.refused("HARPE_NVML_LIBRARY", HARPE_NVML_LIBRARY="/nonexistent/libnvidia-ml.so.1")

    def test_library_that_is_no_driver_is_told(self):
        self.refused("nvmlInit_v2", HARPE_NVML_LIBRARY="libm.so.6")

    @unittest.skipIf(HAS_DRIVER, "this machine has a driver")
    def test_machine_without_a_driver_gets_one_line_that_says_what_to_do(self):
        del self.variables["HARPE_NVML_LIBRARY"]
        result = self.refused("libnvidia-ml.so")
        for advice in ("install", "--gpus all", "harpe emulate", "libamd_smi.so"):
            self.assertIn(advice, result.err)

    def test_mig_instance_is_refused_with_the_reason(self):
        result = self.refused("MIG-", CUDA_VISIBLE_DEVICES="MIG-3b1e2f6c-0000-0000-0000-000000000000")
        self.assertIn("no power", result.err)

    def test_hidden_gpus_are_told_from_absent_ones(self):
        for visible in ("", "-1", "0,0", "7"):
            self.refused("hides all of the machine's 2 GPUs", CUDA_VISIBLE_DEVICES=visible)


@unittest.skipIf(HAS_DRIVER or not AMDSMI, "needs the scripted AMD SMI and no NVIDIA driver")
class Amd(GpusTest):
    def setUp(self):
        super().setUp()
        del self.variables["HARPE_NVML_LIBRARY"]
        self.variables.update(HARPE_AMDSMI_LIBRARY=AMDSMI, SCRIPTED_AMDSMI_LOG="sets.log",
                              HARPE_AGENT_SOCKET="")

    def test_gpus_are_shown_and_nothing_is_set(self):
        got = self.facts()
        self.assertEqual((got["backend"], got["driver_version"], len(got["gpus"])),
                         ("amdsmi", "", 3))
        self.assertEqual(got["may_set"], os.geteuid() == 0)
        gpu = got["gpus"][0]
        self.assertEqual((gpu["name"], gpu["power_limit_maximum_w"], gpu["power_w"],
                          gpu["persistence_mode"]), ("AMD Instinct MI300X", 750, 433, None))
        self.assertIn("no power limit", " ".join(got["problems"]))  # the two-die GPU's half
        out = self.gpus(ROCR_VISIBLE_DEVICES="0,1").out
        self.assertIn("2 of 3 GPUs visible", out)
        self.assertEqual(self.files(), [])  # the log would contain a set call


class NodeAgent(GpusTest):
    """The line about the node agent, with real agents on emulated GPUs."""

    def setUp(self):
        super().setUp()
        self.machine = agents.Machine(build=pathlib.Path(HARPE).parent)
        self.addCleanup(self.machine.close)
        self.variables = self.machine.environment

    def agent(self, **options):
        agent = agents.Agent(self.machine, **options)
        self.addCleanup(agent.close)
        return agent

    def state_once(self, **changes):
        got = self.facts(**changes)
        return got["agent"], "\n".join(got["problems"]), self.gpus(**changes).out

    def state(self, **changes):
        """Asks again while the agent, which a busy machine may delay, has not answered within 2 s."""
        return attempt(lambda _: self.state_once(**changes),
                       lambda state: "has not answered for" not in state[1] + state[2])

    def test_an_agent_that_lends_is_shown_with_its_limits(self):
        for rules, limits, words in (
                ("", (None, None, None, None), "clocks: no limit; power limits: no limit"),
                ("highest_clock_mhz = 1200", (None, 1200, None, None), "clocks: up to 1200 MHz;"),
                ("lowest_clock_mhz=600\nlowest_power_limit_w=150\nhighest_power_limit_w=300",
                 (600, None, 150, 300), "clocks: from 600 MHz; power limits: 150 to 300 W")):
            with self.subTest(rules=rules):
                agent = self.agent(rules=rules)
                got, problems, out = self.state()
                self.assertEqual((got["state"], got["reason"], got["socket"], got["used_for_clocks"]),
                                 ("lends", None, str(self.machine.socket), True))
                self.assertEqual(limits, (got["lowest_clock_mhz"], got["highest_clock_mhz"],
                                          got["lowest_power_limit_w"], got["highest_power_limit_w"]))
                self.assertNotIn("agent", problems)
                self.assertIn("Node agent: sets them for jobs of this user", out)
                self.assertIn(words, out)
                got, _, out = self.state(ZEUSD_SOCK_PATH="/run/zeusd.sock")
                self.assertFalse(got["used_for_clocks"])
                self.assertIn("clocks: through zeusd", out)
                self.assertEqual(agent.stop(), 0)

    def test_an_agent_that_is_absent_or_not_wanted(self):
        for value, state, words in ((str(self.machine.path / "no"), "absent", "there is no socket '"),
                                    ("", "off", "HARPE_AGENT_SOCKET is empty"),
                                    (str(self.machine.path), "absent", "there is no socket '")):
            got, problems, out = self.state(HARPE_AGENT_SOCKET=value)
            self.assertEqual((got["state"], got["socket"]), (state, None))
            self.assertIn(words, got["reason"])
            self.assertNotIn("agent", problems)
            self.assertIn("Node agent: not used: " + got["reason"], out)
        del self.variables["HARPE_AGENT_SOCKET"]  # emulated GPUs then have no agent
        got, _, out = self.state()
        self.assertIsNone(got)
        self.assertNotIn("agent", out)

    def check_silent(self, reason):
        got, problems, out = self.state_once()
        self.assertEqual((got["state"], got["socket"]), ("silent", str(self.machine.socket)))
        self.assertIn(reason, got["reason"])
        self.assertIn(f"No node agent answers at '{self.machine.socket}'", problems)
        self.assertIn("systemctl restart harpe-agent", problems)
        self.assertIn("Node agent: not used: " + got["reason"], out)

    def test_a_socket_without_an_agent(self):
        self.agent().kill()  # leaves its socket
        self.check_silent("does not answer (Connection refused)")

    def test_an_agent_that_hangs(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mute:
            mute.bind(str(self.machine.socket))
            mute.listen()
            self.check_silent("has not answered for 2 s")

    def test_a_gpu_that_the_agent_does_not_have(self):
        self.agent(HARPE_EMULATOR_CLUSTER=self.machine.cluster + "-other", HARPE_EMULATOR_GPUS="V100")
        self.assertIn("GPU 0: the node agent at", self.state()[1])

    @unittest.skipUnless(os.getuid() == 0 and shutil.which("setpriv"), "only root can become another user")
    def test_an_agent_that_does_not_lend_to_this_user(self):
        user = agents.NOT_EXIST_UID
        self.addCleanup(self.remove, f"/dev/shm/harpe-emulator-{user}-{self.machine.cluster}")
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", HARPE, "gpus", "--json"]

        def ask_once(_):
            done = subprocess.run(command, env=self.variables, text=True, capture_output=True, cwd="/",
                                  timeout=agents.LIMIT_S, check=True)
            return json.loads(done.stdout)

        def ask():
            return attempt(ask_once, lambda got: "has not answered for" not in "\n".join(got["problems"]))
        agent = self.agent(rules=f"allow_users = {user + 1}")
        got = ask()
        self.assertEqual(got["agent"]["state"], "refuses")
        self.assertIn(f"lends no GPU to the user with uid {user}", got["agent"]["reason"])
        self.assertIn("/etc/harpe/agent.conf", "\n".join(got["problems"]))
        self.assertEqual(agent.stop(), 0)
        self.agent(rules=f"allow_users = {user}")
        self.assertEqual(ask()["agent"]["state"], "lends")


class Writes(GpusTest):
    def test_no_call_sets_anything(self):
        # A set call would take hours and then fail.
        for arguments in ([], ["--json"], ["--all"]):
            self.gpus(*arguments, HARPE_EMULATOR_FAULTS="slow_set=1e8,no_permission")
