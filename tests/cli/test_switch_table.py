#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""--switch-latency FILE.csv: a table of latencies by new clock gives the same plans and times as a
profile whose column switch_latency has them."""
import json

from program import ProgramTest

CLOCKS = (1410, 1320, 1230, 1140, 1050)
TABLE = {1410: 0.12, 1230: 0.21, 1140: 0.48}
HEADER = "gpu,frequency,latency_s,latency_p95_s,call_s,samples"
# 1320 MHz is in the middle between two rows, and 1050 MHz below all of them.
LATENCIES = {**TABLE, 1320: 0.165, 1050: 0.48}


def profile(latency_of=None):
    lines = ["stage,instruction,frequency,time,energy" + (",switch_latency" if latency_of else "")]
    for stage in range(3):
        for name, full_s in (("forward", 0.05 + 0.01 * stage), ("backward", 0.1 + 0.03 * stage)):
            for mhz in CLOCKS:
                time = full_s * (0.2 + 0.8 * 1410 / mhz)
                line = f"{stage},{name},{mhz},{time:.6f},{time * (90 + 250 * (mhz / 1410) ** 3):.6f}"
                lines.append(line + (f",{latency_of[mhz]}" if latency_of else ""))
    return "\n".join(lines) + "\n"


class SwitchTable(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("plain.csv", profile())
        self.write("joined.csv", profile(LATENCIES))
        self.write("switch.csv", "\n".join([HEADER] + [f"A100,{mhz},{s},{2 * s},0.002,7"
                                                       for mhz, s in TABLE.items()]) + "\n")

    def plan(self, name, profile_name, *flags):
        self.succeed("plan", "-i", profile_name, "-m", 6, "-p", 60, "--plans", 20, "--no-pictures", "-o",
                     name, *flags)
        files = sorted(path for path in (self.path / name).iterdir() if path.name != "plan.json")
        return ({path.name: path.read_bytes() for path in files},
                json.loads((self.path / name / "plan.json").read_text())["arguments"])

    def late(self, profile_name, latency, plan):
        result = self.succeed("evaluate", "-i", profile_name, "-m", 6, "-p", 60, "--switch-latency",
                              latency, "--json", plan).json()
        result.pop("arguments", None)
        result.pop("profile", None)
        return result

    def test_plans_are_those_of_a_profile_with_the_latencies(self):
        table, arguments = self.plan("a", "plain.csv", "--switch-latency", "switch.csv")
        joined, _ = self.plan("b", "joined.csv", "--switch-latency", "profile")
        free, _ = self.plan("c", "plain.csv")
        self.assertTrue(table == joined)
        self.assertTrue(table != free)
        self.assertEqual(arguments["switch_latency_s"], "switch.csv")
        plan = [str(self.path / "c" / name) for name in sorted(free) if name.endswith(".py")][-1]
        late = self.late("plain.csv", "./switch.csv", plan)
        self.assertEqual(late, self.late("joined.csv", "profile", plan))
        self.assertNotEqual(late, self.late("plain.csv", 0.5, plan))

    def test_the_table_is_used_instead_of_the_column(self):
        self.write("other.csv", profile({mhz: 0.3 for mhz in CLOCKS}))
        table, _ = self.plan("a", "plain.csv", "--switch-latency", "switch.csv")
        over, _ = self.plan("b", "other.csv", "--switch-latency", "switch.csv")
        self.assertTrue(table == over)

    def test_the_last_value_counts(self):
        _, arguments = self.plan("a", "plain.csv", "--switch-latency", "switch.csv", "--switch-latency", 0.01)
        self.assertEqual(arguments["switch_latency_s"], 0.01)

    def test_bad_input_is_named_in_one_line(self):
        plan = ["plan", "-i", "plain.csv", "-m", 6, "-p", 60, "-o", "plans", "--switch-latency"]
        self.write("bad.csv", f"{HEADER}\nA100,1410,fast,1,1,1\n")
        self.refuse(1, "bad.csv:2:11: latency_s must be a number of seconds", *plan, "bad.csv")
        self.refuse(1, "none.csv", *plan, "none.csv")
        self.refuse(1, "plain.csv:1:1: missing column 'latency_s'", *plan, "plain.csv")
        self.refuse(2, "expected a number of seconds, 'profile' or a file *.csv, found 'switch'",
                    *plan, "switch")
        self.refuse(2, "--switch-latency", *plan, "3601")
        self.refuse(2, "are for pipelines only", "plan", "--graph", "g.json", "-o", "plans",
                    "--switch-latency", "switch.csv")
        self.assertFalse((self.path / "plans").exists())
