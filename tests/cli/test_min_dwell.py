# SPDX-License-Identifier: Apache-2.0
"""`harpe plan --min-dwell` from the outside: a note names the rank whose clocks cannot hold, and
no other."""
import json

from program import ProgramTest

# Backwards of stage 1 were measured at other clocks than its forwards.
CLOCKS = {(0, "forward"): (1410, 1290), (0, "backward"): (1380, 1290),
          (1, "forward"): (1410, 1290), (1, "backward"): (1380, 1260)}


def profile(clocks):
    lines = ["stage,instruction,frequency,time,energy"]
    for (stage, name), all_mhz in clocks.items():
        for mhz in all_mhz:
            time = (0.1 if name == "backward" else 0.05) * 1410 / mhz
            lines.append(f"{stage},{name},{mhz},{time:.6f},{time * 300 * (mhz / 1410) ** 3:.6f}")
    return "\n".join(lines) + "\n"


class MinDwell(ProgramTest):
    def plan(self, clocks, dwell, *more):
        self.write("profile.csv", profile(clocks))
        return self.succeed("plan", "-i", "profile.csv", "-m", 4, "-p", 60, "--min-dwell", dwell,
                           "--no-pictures", "--force", "-o", "plans", *more)

    def test_a_note_names_the_rank_that_cannot_hold_its_clocks(self):
        found = self.plan(CLOCKS, 0.5)
        self.assertRegex(found.err, r"^harpe plan: in \d+ of \d+ plans a clock holds for less than "
                                    r"0\.5 s \(the shortest: 0\.0\d+ s\): the instructions of rank "
                                    r"1 have no clock in common; measure them at the same clocks$")
        notes = json.loads((self.path / "plans" / "plan.json").read_text())["notes"]
        self.assertEqual([f"harpe plan: {note}" for note in notes], found.err.splitlines())
        self.assertEqual(self.plan(CLOCKS, 0.5, "--json").json()["notes"], notes)

    def test_no_note_is_printed_if_all_clocks_hold(self):
        common = dict(CLOCKS)
        common[1, "backward"] = (1380, 1290)
        self.assertEqual(self.plan(common, 0.5).err, "")
        self.assertEqual(self.plan(CLOCKS, 0.01).err, "")  # each instruction takes longer
        self.assertEqual(self.plan(CLOCKS, 0).err, "")
