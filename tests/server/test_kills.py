# SPDX-License-Identifier: Apache-2.0
"""A killed server continues where it was, also with ranks that are killed: a small sample of
bench/kill_server and bench/kill_trainers."""
import unittest

import kill_trial
import trainer_trial


class OneKill(unittest.TestCase):
    def test_nothing_is_lost_or_doubled_when_the_server_is_killed_once(self):
        outcome = kill_trial.kill_many(1, jobs=2, ranks=2, per_trial=1, longest_s=0.8)
        self.assertEqual((outcome.problems, outcome.kills), ([], 1), outcome)


class Kills(unittest.TestCase):
    def test_nothing_is_lost_or_doubled_when_the_server_is_killed(self):
        outcome = kill_trial.kill_many(5, jobs=4, ranks=8, per_trial=5, longest_s=0.8)
        self.assertEqual(outcome.problems, [], outcome)
        self.assertEqual(outcome.kills, 5)
        self.assertGreaterEqual(outcome.rounds, 4 * 2)  # two rounds follow the last kill


class TrainerKills(unittest.TestCase):
    @unittest.skipUnless(trainer_trial.LOOP.exists(), "built without examples")
    def test_every_round_is_stored_once_when_server_and_ranks_are_killed(self):
        trial = trainer_trial.kill_many(6, longest_s=0.8)
        self.assertEqual(trial.problems, [], trial)
        self.assertEqual(sum(trial.kills.values()), 6)


if __name__ == "__main__":
    unittest.main()
