# SPDX-License-Identifier: Apache-2.0
"""Runs the client and the example rules of docs/agent.md against a real agent on emulated GPUs."""
import os
import pathlib
import re
import subprocess
import sys

from agents import DEFAULT_W, IDLE_MHZ, LIMIT_S, AgentTest, unexpected, wait_until

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("HARPE_SOURCE_DIR", HERE.parent.parent))


def guide():
    return (SOURCE / "docs" / "agent.md").read_text(encoding="utf-8")


class GuideTest(AgentTest):
    def test_the_client_in_python_sets_a_power_limit(self):
        self.agent()
        text = re.search(r"^```python\n(.*?)^```$", guide(), re.MULTILINE | re.DOTALL).group(1)
        text = text.replace("lease.close()", "input()\nlease.close()")
        with subprocess.Popen([sys.executable, "-c", text], env=self.machine.environment, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            changed = wait_until(lambda: self.machine.limits()[0] == 250 or client.poll() is not None)
            self.assertEqual(self.machine.limits(), [250, DEFAULT_W], changed)
            out, _ = client.communicate("\n", LIMIT_S)
        self.assertEqual((client.returncode, out.strip()), (0, "0"))
        self.assertIsNotNone(wait_until(lambda: self.machine.limits()[0] == DEFAULT_W))

    def test_the_locks_of_the_example_are_set_at_the_end_of_a_lease(self):
        lines = re.findall(r"^    (default_locked_clocks = .*)$", guide(), re.MULTILINE)
        locks = {line.split()[2]: int(line.split()[4]) for line in lines}
        self.assertEqual(len(locks), 2)
        self.agent(rules="\n".join(lines).replace(" 210 ", " 600 "))
        addresses = [row[0] for row in self.machine.query("pci.bus_id")]
        self.assertTrue([name for name in locks if name != "all" and addresses[0].endswith(name)])
        done = self.machine.run("agent", "hold", "--gpu", "all", "--clock", 1200, "--", "true")
        self.assertEqual((done.returncode, unexpected(done.stderr)), (0, []))
        # An idle GPU has the lowest clock of its lock.
        self.assertIsNotNone(wait_until(lambda: self.machine.clocks() == [600, 600]))

    def test_the_example_rules_are_accepted(self):
        text = re.sub(r"^```.*?^```$", "", guide(), flags=re.MULTILINE | re.DOTALL)
        rules = re.findall(r"^    ([a-z_]+ = .*)$", text, re.MULTILINE)
        self.assertGreater(len(rules), 4)
        agent = self.agent(rules="\n".join(rules).replace("training", str(os.getgid())))
        self.assertEqual(agent.leases(), [])
        done = self.machine.run("agent", "hold", "--clock", IDLE_MHZ, "--", "true")
        self.assertIn("lowest_clock_mhz", done.stderr)
