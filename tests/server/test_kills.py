# SPDX-License-Identifier: Apache-2.0
"""A killed server continues where it was, with real processes: one kill of bench/kill_server. The
world (tests/world/job.c) kills servers, ranks and controllers at any step."""
import unittest

import kill_trial


class OneKill(unittest.TestCase):
    def test_nothing_is_lost_or_doubled_when_the_server_is_killed_once(self):
        outcome = kill_trial.kill_many(1, jobs=2, ranks=2, per_trial=1, longest_s=0.8)
        self.assertEqual((outcome.problems, outcome.kills), ([], 1), outcome)
