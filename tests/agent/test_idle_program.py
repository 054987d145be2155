# SPDX-License-Identifier: Apache-2.0
"""The rule "idle" with real processes: an agent holds the clock of an emulated GPU on which a process
has a context and no work, and the GPU is put back whatever ends the agent."""
import json
import re
import subprocess
import sys
import urllib.request

import agents
from agents import HIGHEST_MHZ, IDLE_MHZ, LIMIT_S
from process_groups import end_group

LOW_MHZ = 345
# Opens a context on GPU 0, and works on it for as many seconds as each line says.
JOB = """
import ctypes, sys
emulator = ctypes.CDLL(sys.argv[1])
emulator.harpe_emulator_work.argtypes = [ctypes.c_uint, ctypes.c_double, ctypes.c_double, ctypes.c_void_p]
emulator.harpe_emulator_open_context(0, ctypes.c_uint64(0))
print("open", flush=True)
for line in sys.stdin:
    emulator.harpe_emulator_work(0, float(line), 0.5, None)
    print("done", flush=True)
"""


class Idle(agents.AgentTest):
    def setUp(self):
        super().setUp()
        self.job = subprocess.Popen([sys.executable, "-c", JOB, self.machine.environment["HARPE_NVML_LIBRARY"]],
                                    env=self.machine.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    text=True, start_new_session=True)
        self.addCleanup(end_group, self.job)
        self.assertEqual(self.job.stdout.readline(), "open\n")

    def agent(self, *arguments):
        return super().agent(*arguments, rules="idle = clock 350 after 0.5\nallow_users = *\n")

    def test_the_clock_is_low_until_there_is_work(self):
        agent = self.agent("--metrics-listen", "127.0.0.1:0")
        self.wait_for_clock(LOW_MHZ)
        self.assertEqual(self.machine.clocks()[1], IDLE_MHZ)
        gpus = agent.status()["gpus"]
        self.assertEqual([(gpu["idle"], gpu["idle_clock_mhz"]) for gpu in gpus], [(True, LOW_MHZ), (False, LOW_MHZ)])
        self.assertIn(f"has no work: the rule idle holds it at {LOW_MHZ} MHz",
                      self.machine.run("agent", "status").stdout)
        self.assertIn(f"GPU 0: has no work, so the node agent holds its clock at {LOW_MHZ} MHz",
                      self.machine.run("gpus").stdout)
        shown = json.loads(self.machine.run("gpus", "--json").stdout)["gpus"]
        self.assertEqual([gpu["idle_clock_mhz"] for gpu in shown], [LOW_MHZ, None])
        # The work lasts until the clock is seen, on however busy a machine.
        self.job.stdin.write("1\n" * 50)
        self.job.stdin.flush()
        self.wait_for_clock(HIGHEST_MHZ)
        for _ in range(50):
            self.assertEqual(self.job.stdout.readline(), "done\n")
            if self.machine.clocks()[0] == HIGHEST_MHZ:
                break
        self.assertEqual(self.machine.clocks()[0], HIGHEST_MHZ)
        address = re.search(r"metrics on (http://\S+)", agent.log())[1]
        with urllib.request.urlopen(address, timeout=LIMIT_S) as page:
            values = dict(re.findall(r'^(harpe_agent_idle_\w+){gpu="0".*} (\S+)$', page.read().decode(), re.MULTILINE))
        self.assertGreaterEqual(float(values["harpe_agent_idle_entries_total"]), 1)
        self.assertGreater(float(values["harpe_agent_idle_seconds_total"]), 0)
        self.assertEqual(agent.stop(), 0)
        self.assertEqual(self.machine.clocks()[0], HIGHEST_MHZ)

    def test_a_killed_agents_hold_is_put_back(self):
        agent = self.agent()
        self.wait_for_clock(LOW_MHZ)
        self.assertIn(f"left alone: process {agent.process.pid} uses it", self.machine.run("gpus", "--restore").stdout)
        agent.kill()
        self.assertEqual(self.machine.clocks()[0], LOW_MHZ)
        self.assertIn("put back: clocks reset", self.machine.run("gpus", "--restore").stdout)
        self.assertEqual(self.machine.clocks()[0], HIGHEST_MHZ)
        agent = self.agent()
        self.wait_for_clock(LOW_MHZ)
        agent.kill()
        agent = self.agent()
        self.assertIn("restored what process", agent.log())
        self.wait_for_clock(LOW_MHZ)
        self.assertEqual(agent.stop(), 0)
        self.assertEqual(self.machine.clocks()[0], HIGHEST_MHZ)
        self.assertNotIn("GPU 0", self.machine.run("gpus", "--restore").stdout)
