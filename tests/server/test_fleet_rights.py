#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`harpe fleet` against a real server with tokens: every action changes what `harpe fleet --json`
shows afterwards, and tokens of a group reach nothing else."""
import concurrent.futures
import json
import threading
import unittest

import server
import test_rights
from server import run_harpe


class Fleet(test_rights.Rights):
    def setUp(self):
        super().setUp()
        self.add("all", "operator")
        self.add("row1", "operator", "row1")
        self.add("look1", "viewer", "row1")
        self.running = self.start_with_tokens()

    def fleet(self, name, words, code=0):
        done = run_harpe("fleet", *words.split(), environment={
            "HARPE_SERVER": f"http://127.0.0.1:{self.running.port}", "HARPE_TOKEN": self.tokens[name]})
        self.assertEqual(done.returncode, code, done)
        return done

    def register_whole(self, group):
        """Registers a job with its rank, and waits until it is in the fleet."""
        job = self.register(self.running, "all", group)
        self.register_rank(self.running, "all", job)
        self.wait_until(lambda: any(row["job_id"] == job for row in self.shown()["jobs"]),
                        "the job is in the fleet")
        return job

    def shown(self, name="all"):
        return json.loads(self.fleet(name, "status --json").stdout)

    def declare(self, name, member, watts, status, group="row1"):
        body = {"plans": [{"time": 1, "power": watts}, {"time": 2, "power": watts / 2}],
                "group": group}
        return self.expect(self.call(self.running, name, "PUT", f"/fleet/members/{member}", body),
                           status)

    def test_what_a_job_token_declares_is_bounded(self):
        for words, name in (((), "train1"), (("--watts", "3000"), "small1"),
                            (("--watts", "5000"), "whole")):
            groups = () if name == "whole" else ("--group", "row1")
            self.tokens[name] = self.harpe("add", name, "--role", "job", *groups,
                                           *words).stdout.strip()
        rows = json.loads(self.harpe("list", "--json").stdout)["tokens"]
        self.assertEqual({row["name"]: row["watts"] for row in rows}, {
            "all": None, "row1": None, "look1": None, "train1": 1e6, "small1": 3000,
            "whole": 5000})
        self.wait_for_status(self.running, "whole", "/info", 200)
        for name, least_w, most_w in (("train1", 6e5, 9e7), ("small1", 2000, 3001),
                                      ("whole", 4000, 5001)):
            answer = self.declare(name, "big", most_w, 403)
            self.assertIn("--watts", answer.json["detail"])
            self.declare(name, "big", least_w, 200)
            self.declare(name, "big", least_w, 200)  # it replaces its own claim
            self.assertIn("together", self.declare(name, "more", least_w, 403).json["detail"])
            target = "/fleet/members/big"
            for report, status in (({"plan": 0, "power": most_w}, 403),
                                   ({"plan": 1, "power": 2 * least_w}, 403),
                                   ({"plan": 0, "power": least_w}, 200)):
                self.expect(self.call(self.running, name, "POST", target, report), status)
            self.expect(self.call(self.running, name, "DELETE", target), 200)
        self.declare("row1", "big", 9e7, 200)  # an operator may do everything
        self.declare("all", "others", 9e7, 200, "row2")

    def test_a_job_token_declares_a_bounded_number_of_members(self):
        self.add("train1", "job", "row1")
        self.wait_for_status(self.running, "train1", "/info", 200)
        connection = self.connect(self.running)
        statuses = []
        while not statuses or statuses[-1] == 200:
            connection.send("PUT", f"/fleet/members/{len(statuses)}", {
                "plans": [{"time": 1, "power": 0}], "group": "row1"}, self.as_("train1"))
            statuses.append(connection.receive().status)
        self.assertEqual((len(statuses), statuses[-1]), (1001, 403))
        self.declare("row1", "one-more", 1, 200)

    def test_what_a_job_says_of_itself_is_bounded_by_its_gpus(self):
        self.register_whole("row1 fleet_highest_w=9e7")
        self.assertEqual(self.shown()["power"]["counted_w"], 3000)

    def test_a_token_of_a_group_reaches_nothing_else(self):
        other = self.register_whole("row2")
        mine = self.register_whole("row1")
        early = self.register(self.running, "all", "row2")
        self.fleet("all", "budget set 60000")
        self.fleet("all", "budget set 50000 --group row2")
        self.fleet("all", "load set cooling 400 --group row2")
        self.fleet("all", "event add --share 0.1 --for 3600 --from +7200 --group row2")
        before = self.shown()
        for words in ("budget set 5", "budget set 5 --group row2", "budget remove",
                      "budget remove --group row2", "group set row3", "group remove row2",
                      "load set cooling 1 --group row1", "load set x 1", "load remove cooling",
                      "event add --share 0.1 --for 60", "event cancel 1",
                      f"job set {other} --weight 9", f"job set {other} --group row1",
                      f"job set {mine} --group row2", f"job set {early} --weight 9", "prices remove", "audit"):
            with self.subTest(words=words):
                if "cancel" in words:
                    words = f"event cancel {before['events'][0]['id']}"
                refused = self.fleet("row1", words, 1)
                self.assertIn("row1", refused.stderr)
                self.assertEqual(refused.stderr.count("\n"), 1)
        after = self.shown()
        for part in ("budgets", "groups", "events"):
            self.assertEqual([(row.get("group"), row.get("watts"), row.get("name"))
                              for row in after[part]],
                             [(row.get("group"), row.get("watts"), row.get("name"))
                              for row in before[part]])
        terms = ("job_id", "group", "weight", "max_slowdown", "priority", "planned_w")
        jobs = [[{row["job_id"]: [row[name] for name in terms]} for row in shown["jobs"]]
                for shown in (before, after)]
        self.assertEqual(*jobs)
        self.fleet("row1", "budget set 700 --group row1")
        self.fleet("row1", f"job set {mine} --weight 2")
        shown = self.shown("look1")
        self.assertEqual([b["group"] for b in shown["budgets"]], ["row1"])
        self.assertEqual([j["job_id"] for j in shown["jobs"]], [mine])
        self.assertEqual((shown["events"], [g["name"] for g in shown["groups"]]), ([], ["row1"]))
        self.assertIn("role", self.fleet("look1", "budget set 1 --group row1", 1).stderr)

    def test_no_change_undoes_a_move_that_takes_the_right_away(self):
        """The operator of row1 sends changes all the time while another one moves the member away."""
        job = self.register_whole("row1")
        plans = [{"time": 1, "power": 500}, {"time": 1.1, "power": 400}]
        is_over = threading.Event()

        def insist(target, body):
            while not is_over.is_set():
                self.call(self.running, "row1", "PUT", target, body)
        for target, terms in (("/fleet/members/m", {"plans": plans}), (f"/fleet/jobs/{job}", {})):
            is_over.clear()
            for _ in range(5):
                self.expect(self.call(self.running, "all", "PUT", target, {**terms, "group": "row1"}), 200)
                with concurrent.futures.ThreadPoolExecutor(6) as pool:
                    is_over.clear()
                    insisting = [pool.submit(insist, target, {**terms, "group": "row1"}) for _ in range(6)]
                    moved = self.call(self.running, "all", "PUT", target, {**terms, "group": "row2"})
                    is_over.set()
                    for one in insisting:
                        one.result()
                self.expect(moved, 200)
                row = next(row for row in self.shown()["jobs"] if row["job_id"] == target.rpartition("/")[2])
                self.assertEqual(row["group"], "row2")

    def test_an_operator_of_a_tree_steers_only_inside_of_it(self):
        for name, role, *groups in (("room", "operator", "room"), ("rooms", "viewer", "room"),
                                    ("both", "operator", "room", "other"),
                                    ("next", "operator", "other")):
            self.add(name, role, *groups)
        self.wait_for_status(self.running, "next", "/fleet", 200)
        for words in ("room", "row1 --parent room", "rack --parent row1", "hall --parent room",
                      "other", "theirs --parent other"):
            self.fleet("all", "group set " + words)
        mine, theirs = self.register_whole("rack"), self.register_whole("theirs")
        beside = self.register_whole("beside")  # its group is directly in the whole fleet
        self.register(self.running, "all", "early")  # its group is not in the fleet yet
        self.fleet("all", "budget set 60000")
        before = self.tree()
        for words in ("group set other --parent room", "group set theirs --parent room",
                      "group set beside --parent room", "group set early --parent room",
                      "group set fresh --parent room", "group set room --parent row1",
                      "group set room --parent other", "group set room",
                      "group set rack --parent other", "group set rack --parent theirs",
                      "group set rack --parent nowhere", "group set rack", "group remove hall",
                      "group set theirs --parent other", "group remove theirs",
                      "budget set 5 --group other", "budget set 5 --group fresh", "budget set 5",
                      f"job set {theirs} --weight 2", f"job set {theirs} --group rack",
                      f"job set {beside} --group rack", f"job set {mine} --group theirs",
                      "load set x 5 --group theirs", "load set x 5 --group fresh",
                      "event add --share 0.1 --for 60 --group other"):
            with self.subTest(words=words):
                refused = self.fleet("room", words, 1)
                self.assertIn("room", refused.stderr)
                self.assertEqual(self.tree(), before)
        for words in ("budget set 900 --group rack", f"job set {mine} --weight 3 --group hall",
                      f"job set {mine} --group rack", "load set pump 50 --group hall",
                      "event add --share 0.1 --for 3600 --from +7200 --group rack",
                      "group set rack --parent hall"):
            self.fleet("room", words)
        self.assertEqual(self.tree(), before | {"rack": "hall"})
        shown = self.shown("rooms")
        self.assertEqual({g["name"] for g in shown["groups"]}, {"room", "row1", "rack", "hall"})
        self.assertEqual([b["group"] for b in shown["budgets"]], ["rack"])
        self.assertEqual({j["group"] for j in shown["jobs"]}, {"rack", "hall"})
        self.assertEqual([e["group"] for e in shown["events"]], ["rack"])
        self.assertEqual({j["job_id"] for j in self.shown("next")["jobs"]}, {theirs})
        # Who steers both sides may move a group between them. Its jobs go with it.
        self.fleet("both", "group set rack --parent theirs")
        self.assertEqual({j["group"] for j in self.shown("rooms")["jobs"]}, {"hall"})
        self.assertIn(mine, {j["job_id"] for j in self.shown("next")["jobs"]})
        self.fleet("room", "group set rack --parent hall", 1)
        self.fleet("room", f"job set {mine} --weight 1", 1)
        self.fleet("both", "group set other --parent room", 1)  # other is in the whole fleet
        self.fleet("all", "group set other --parent hall")
        self.fleet("room", f"job set {mine} --weight 1")

    def tree(self):
        return {g["name"]: g["parent"] for g in self.shown()["groups"]}


del test_rights.Rights  # its own tests are in test_rights.py

if __name__ == "__main__":
    unittest.main()
