#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens with roles and groups, and the audit log: each role at each kind of route, what a token of
a group sees, tokens that are added and removed while the server runs, and records that survive
kill -9. The servers are real, and so is the program that makes the tokens."""
import fcntl
import json
import os
import re
import resource
import time
import unittest

import server
from event_stream import Stream
from server import ServerTest, job_info, run_harpe

ROLES = ("viewer", "job", "operator")
# Each kind of request, with the roles that may make it. {id} is a job.
REQUESTS = (
    ("GET", "/jobs", None, ("viewer", "operator")),
    ("GET", "/jobs/{id}", None, ("viewer", "operator")),
    ("GET", "/jobs/{id}/frontier", None, ("viewer", "operator")),
    ("GET", "/metrics", None, ("viewer", "operator")),
    ("GET", "/info", None, ROLES),
    ("GET", "/openapi.json", None, ROLES),
    ("GET", "/fleet/audit", None, ("operator",)),
    ("POST", "/register_job", job_info(1, 1, 1), ("job", "operator")),
    ("POST", "/register_rank/{id}", {}, ("job", "operator")),
    ("POST", "/result/{id}", {}, ("job", "operator")),
    ("POST", "/end/{id}", {"rank": 0}, ("job", "operator")),
    ("POST", "/straggler/{id}", {"slowdown": 1.1}, ("operator",)),
    ("POST", "/power_cap/{id}", {"watts": 900}, ("operator",)),
    ("POST", "/plan/{id}", {"time": 1}, ("operator",)),
    ("DELETE", "/jobs/{id}", None, ("operator",)),
    ("GET", "/fleet", None, ("viewer", "operator")),
    ("GET", "/fleet/history", None, ("viewer", "operator")),
    ("PUT", "/fleet/budget", {"watts": 1e9}, ("operator",)),
    ("PUT", "/fleet/jobs/{id}", {"weight": 2}, ("operator",)),
    ("POST", "/fleet/events", {"duration_s": 5, "watts": 1}, ("operator",)),
    ("PUT", "/fleet/members/x", {"plans": [{"time": 1, "power": 500}]}, ("job", "operator")),
    ("POST", "/fleet/members/x", {"plan": 0}, ("job", "operator")),
    ("DELETE", "/fleet/members/x", None, ("job", "operator")),
)


class Rights(ServerTest):
    def setUp(self):
        super().setUp()
        self.file = self.path / "tokens"
        self.tokens = {}

    def harpe(self, *words, code=0):
        done = run_harpe("fleet", "token", *words, "--tokens", self.file)
        self.assertEqual(done.returncode, code, done)
        return done

    def add(self, name, role, *groups):
        words = [word for group in groups for word in ("--group", group)]
        token = self.harpe("add", name, "--role", role, *words).stdout.strip()
        self.tokens[name] = token
        return token

    def add_roles(self):
        for role in ROLES:
            self.add(role, role)

    def as_(self, name):
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    def call(self, running, name, method, target, body=None):
        return running.call(method, target, body, self.as_(name))

    def follow(self, running, name, target):
        connection = self.connect(running).send("GET", target, headers=self.as_(name))
        return Stream(connection, target=None)

    def start_with_tokens(self, *arguments, **options):
        return self.start("--tokens", self.file, *arguments, **options)

    def register(self, running, name, group=None, status=200, key=None):
        info = job_info(1, 1, 1)
        info["job_metadata"] = f"model=x fleet_group={group}" if group else None
        if key:
            info["job_key"] = key
        answer = self.call(running, name, "POST", "/register_job", info)
        self.expect(answer, status)
        return answer.json

    def register_rank(self, running, name, job):
        rank = server.Job(job, 1, 1, 1).rank(0)
        self.expect(self.call(running, name, "POST", f"/register_rank/{job}", rank), 200)

    def finish(self, running, group, filler=""):
        """Runs a round of a job and evicts it, so that a final report remains."""
        info = job_info(1, 1, 1, job_metadata=filler + (f"fleet_group={group}" if group else "x"))
        job = self.expect(self.call(running, "all", "POST", "/register_job", info), 200).json
        self.register_rank(running, "all", job)
        self.expect(self.call(running, "all", "GET", f"/schedule/{job}?rank=0"), 200)
        self.expect(self.call(running, "all", "DELETE", f"/jobs/{job}"), 200)
        return job

    def ids(self, running, name, target="/jobs"):
        answer = self.expect(self.call(running, name, "GET", target), 200).json
        self.assertEqual(answer["count"], len(answer["jobs"]))
        return {job["job_id"] for job in answer["jobs"]}

    def wait_for_status(self, running, name, target, status):
        self.wait_until(lambda: self.call(running, name, "GET", target).status == status,
                        f"{name} gets {status} for {target}: {running.log()}")


class Roles(Rights):
    def test_each_role_at_each_kind_of_route(self):
        self.add_roles()
        running = self.start_with_tokens()
        for method, target, body, allowed in REQUESTS:
            for role in ROLES:
                with self.subTest(method=method, target=target, role=role):
                    target_id = self.register(running, "operator")
                    answer = self.call(running, role, method, target.replace("{id}", target_id),
                                       body)
                    if role in allowed:
                        self.assertNotIn(answer.status, (401, 403), answer)
                    else:
                        self.expect_detail(answer, 403, "role", f"'{role}'")
                        rows = self.call(running, "viewer", "GET", f"/jobs/{target_id}")
                        self.expect(rows, 200)  # a refused request changes nothing

    def test_who_has_no_token_gets_401(self):
        self.add_roles()
        running = self.start_with_tokens()
        token = self.tokens["operator"]
        for wrong in (None, "", "x", token[:-1], token + "x", token.split(".")[0],
                      "viewer." + token.split(".")[1], "." + token.split(".")[1], "nobody.x"):
            headers = {} if wrong is None else {"Authorization": f"Bearer {wrong}"}
            for method, target in (("GET", "/jobs"), ("DELETE", "/jobs/x"), ("GET", "/nowhere"),
                                   ("GET", "/events"), ("GET", "/fleet/audit")):
                with self.subTest(wrong=wrong, target=target):
                    answer = running.call(method, target, None, headers)
                    self.expect_detail(answer, 401, "token")
                    self.assertEqual(answer.headers["www-authenticate"], "Bearer")
        for open_to_all in ("/healthz", "/"):
            self.expect(running.get(open_to_all), 200)

    def test_the_token_of_a_token_file_is_an_operator_too(self):
        self.add("viewer", "viewer")
        (self.path / "one").write_text("plain-token\n")
        running = self.start_with_tokens("--token-file", self.path / "one")
        plain = {"Authorization": "Bearer plain-token"}
        job = self.expect(running.call("POST", "/register_job", job_info(1, 1, 1), plain), 200).json
        self.expect(self.call(running, "viewer", "GET", f"/jobs/{job}"), 200)
        self.expect(running.call("DELETE", f"/jobs/{job}", None, plain), 200)
        record = running.call("GET", "/fleet/audit?limit=1", None, plain).json[0]
        self.assertEqual((record["who"], record["role"]), ("token file", "operator"))
        self.assertIn("or the token in", running.log())

    def test_without_tokens_nothing_changes(self):
        running = self.start()
        job = self.expect(running.post("/register_job", job_info(1, 1, 1)), 200).json
        self.expect(running.get("/jobs"), 200)
        self.expect(running.call("DELETE", f"/jobs/{job}"), 200)
        self.expect_detail(running.get("/fleet/audit"), 404, "--audit-log")
        self.assertEqual([p.name for p in self.path.iterdir() if "audit" in p.name], [])

    def test_an_audit_log_needs_no_tokens(self):
        running = self.start("--audit-log", self.path / "steps.log")
        job = self.expect(running.post("/register_job", job_info(1, 1, 1)), 200).json
        self.expect(running.call("DELETE", f"/jobs/{job}"), 200)
        record, = self.expect(running.get("/fleet/audit"), 200).json
        self.assertEqual((record["who"], record["what"]), (None, f"DELETE /jobs/{job}"))
        self.assertEqual((self.path / "steps.log").stat().st_mode & 0o777, 0o600)


class Groups(Rights):
    def setUp(self):
        super().setUp()
        self.add("all", "operator")
        self.add("row1", "viewer", "row1")
        self.add("both", "viewer", "row1", "row2")
        self.add("train1", "job", "row1")
        self.add("steer1", "operator", "row1")

    def start_with_jobs(self):
        running = self.start_with_tokens()
        return running, {group: self.register(running, "all", group)
                         for group in ("row1", "row2", None)}

    def check_what_is_seen(self, running, jobs):
        self.assertEqual(self.ids(running, "all"), set(jobs.values()))
        self.assertEqual(self.ids(running, "row1"), {jobs["row1"]})
        self.assertEqual(self.ids(running, "both"), {jobs["row1"], jobs["row2"]})
        self.assertEqual(self.ids(running, "steer1"), {jobs["row1"]})
        self.expect(self.call(running, "row1", "GET", f"/jobs/{jobs['row1']}"), 200)
        for group in ("row2", None):
            for end in ("", "/frontier", "/pipeline", "/events"):
                answer = self.call(running, "row1", "GET", f"/jobs/{jobs[group]}{end}")
                self.expect_detail(answer, 403, jobs[group], "row1", group or "no group")

    def test_pages_of_a_list(self):
        running = self.start_with_tokens()
        mine = [self.register(running, "all", "row1" if i % 3 == 0 else "row2")
                for i in range(9)][::3]
        seen, target = [], "/jobs?limit=1"
        while target:
            page = self.expect(self.call(running, "row1", "GET", target), 200).json
            seen += [job["job_id"] for job in page["jobs"]]
            target = page["next"] and f"/jobs?limit=1&after={page['next']}"
        self.assertEqual(seen, mine[::-1])
        page = self.expect(self.call(running, "row1", "GET", "/jobs?offset=2"), 200).json
        self.assertEqual([job["job_id"] for job in page["jobs"]], mine[:1])

    def test_lists_and_jobs_also_after_a_restart(self):
        running, jobs = self.start_with_jobs()
        self.check_what_is_seen(running, jobs)
        running.kill()
        self.check_what_is_seen(self.start_with_tokens(), jobs)

    def test_the_client_of_an_evicted_job_hears_of_it_after_a_restart(self):
        running, jobs = self.start_with_jobs()
        self.expect(self.call(running, "all", "DELETE", f"/jobs/{jobs['row1']}"), 200)
        running.kill()
        running = self.start_with_tokens()
        answer = self.call(running, "train1", "GET", f"/schedule/{jobs['row1']}?rank=0")
        self.expect(answer, 410)  # the client registers again

    def test_a_job_is_in_one_group_for_tokens_and_for_the_fleet(self):
        """A token of row1 registers jobs whose metadata could be read in two ways."""
        running, _ = self.start_with_jobs()
        for words in ("fleet_group=row1 fleet_group=row2", "fleet_group=row1\nx",
                      "fleet_group=" + 200 * "y" + " fleet_group=row1"):
            with self.subTest(words=words[-40:]):
                info = job_info(1, 1, 1, job_metadata=words)
                job = self.expect(self.call(running, "train1", "POST", "/register_job", info),
                                  200).json
                self.register_rank(running, "train1", job)
                fleet = self.expect(self.call(running, "all", "GET", "/fleet"), 200).json
                groups = {row["job_id"]: row["group"] for row in fleet["jobs"]}
                self.assertEqual(groups[job], "row1")

    def check_finished(self, running, jobs):
        mine, other, none, long = jobs
        self.assertEqual(self.ids(running, "all", "/finished"), set(jobs))
        self.assertEqual(self.ids(running, "both", "/finished"), {mine, other, long})
        for name in ("row1", "steer1"):
            self.assertEqual(self.ids(running, name, "/finished"), {mine, long})
        for offset, rows in ((0, [long]), (1, [mine]), (2, [])):
            page = self.expect(self.call(running, "row1", "GET",
                                         f"/finished?limit=1&offset={offset}"), 200).json
            self.assertEqual(([job["job_id"] for job in page["jobs"]], page["count"]), (rows, 2))
        for job, group in ((mine, "row1"), (long, "row1"), (other, "row2"), (none, None)):
            report = self.expect(self.call(running, "all", "GET", f"/finished/{job}"), 200).json
            self.assertEqual(report["group"], group)
            answer = self.call(running, "row1", "GET", f"/finished/{job}")
            if group == "row1":
                self.assertEqual(self.expect(answer, 200).json, report)
            else:
                unknown = self.call(running, "row1", "GET", "/finished/nobody")
                self.assertEqual(self.expect_detail(answer, 404, job).replace(job, "nobody"),
                                 self.expect_detail(unknown, 404, "nobody"))

    def test_final_reports(self):
        running = self.start_with_tokens()
        # The report contains only the beginning of the last one's metadata.
        jobs = [self.finish(running, "row1"), self.finish(running, "row2"),
                self.finish(running, None), self.finish(running, "row1", "model=y " * 40)]
        self.check_finished(running, jobs)
        running.kill()
        self.check_finished(self.start_with_tokens(), jobs)

    def test_a_job_token_registers_only_jobs_of_its_groups(self):
        running, jobs = self.start_with_jobs()
        mine = self.register(running, "train1", "row1")
        for group in ("row2", None, "row1x"):
            with self.subTest(group=group):
                info = job_info(1, 1, 1)
                info["job_metadata"] = f"fleet_group={group}" if group else "a b"
                answer = self.call(running, "train1", "POST", "/register_job", info)
                self.expect_detail(answer, 403, "row1", "fleet_group", group or "no group")
        before = self.ids(running, "all")
        self.assertEqual(before, set(jobs.values()) | {mine})
        for name in ("register_rank", "result", "end"):
            answer = self.call(running, "train1", "POST", f"/{name}/{jobs['row2']}", {"rank": 0})
            self.expect_detail(answer, 403, "row2", "row1")
        answer = self.call(running, "train1", "GET", f"/schedule/{jobs['row2']}?rank=0")
        self.expect_detail(answer, 403, "row2")

    def test_a_key_belongs_to_a_group(self):
        """A job of another group with the same key is not opened, not named, and not in the way."""
        running = self.start_with_tokens()
        theirs = self.register(running, "all", "row2", key="same")
        nobodys = self.register(running, "all", key="same")
        mine = self.register(running, "train1", "row1", key="same")
        jobs = {theirs, nobodys, mine}
        self.assertEqual(len(jobs), 3)
        for _ in range(2):
            self.assertEqual(self.register(running, "train1", "row1", key="same"), mine)
            self.assertEqual(self.register(running, "all", "row2", key="same"), theirs)
            self.assertEqual(self.register(running, "all", key="same"), nobodys)
            self.assertEqual(self.ids(running, "all"), jobs)
            running.kill()
            running = self.start_with_tokens()

    def test_an_operator_of_a_group(self):
        running, jobs = self.start_with_jobs()
        for method, target, body in (("POST", "/straggler/", {"slowdown": 1.1}),
                                     ("POST", "/power_cap/", {"watts": 1}),
                                     ("POST", "/plan/", {"time": 1}), ("DELETE", "/jobs/", None)):
            answer = self.call(running, "steer1", method, target + jobs["row2"], body)
            self.expect_detail(answer, 403, "row2", "row1")
        self.expect(self.call(running, "steer1", "DELETE", f"/jobs/{jobs['row1']}"), 200)
        self.expect_detail(self.call(running, "steer1", "GET", "/fleet/audit"), 403,
                           "whole fleet", "steer1")


class Nested(Rights):
    """Groups inside of groups. A token reaches its groups and all groups inside of them."""

    def start_with_tree(self):
        """The groups room > row1 > rack, and the groups other and late beside room."""
        self.add("all", "operator")
        self.add("view", "viewer", "room")
        self.add("row1", "viewer", "row1")
        self.add("train", "job", "room")
        self.add("steer", "operator", "room")
        running = self.start_with_tokens()
        jobs = {group: self.register(running, "all", group)
                for group in ("room", "row1", "rack", "other", "late", None)}
        for name, parent in (("room", None), ("row1", "room"), ("rack", "row1")):
            self.put(running, name, parent)
        return running, jobs

    def put(self, running, name, parent):
        self.expect(self.call(running, "all", "PUT", f"/fleet/groups/{name}", {"parent": parent}),
                    200)

    def check_what_is_seen(self, running, jobs, *more):
        room = {jobs[group] for group in ("room", "row1", "rack", *more)}
        row1 = {jobs[group] for group in ("row1", "rack", *more)}
        self.assertEqual(self.ids(running, "all"), set(jobs.values()))
        self.assertEqual(self.ids(running, "view"), room)
        self.assertEqual(self.ids(running, "row1"), row1)
        text = self.expect(self.call(running, "view", "GET", "/metrics"), 200).body.decode()
        self.assertEqual(set(re.findall(r'job_id="([^"]+)"', text)), room)
        for job in jobs.values():
            for end in "", "/frontier", "/pipeline":
                status = self.call(running, "row1", "GET", f"/jobs/{job}{end}").status
                self.assertEqual(status == 403, job not in row1, job)

    def test_groups_inside_are_included_also_after_a_restart(self):
        running, jobs = self.start_with_tree()
        self.check_what_is_seen(running, jobs)
        self.put(running, "late", "rack")
        self.check_what_is_seen(running, jobs, "late")
        running.kill()
        running = self.start_with_tokens()
        self.check_what_is_seen(running, jobs, "late")
        self.put(running, "late", None)
        self.check_what_is_seen(running, jobs)

    def test_a_job_token_registers_in_groups_inside(self):
        running, _ = self.start_with_tree()
        mine = self.register(running, "train", "rack")
        self.assertIn(mine, self.ids(running, "view"))
        self.register_rank(running, "train", mine)
        for group in "other", "late", "rackx", None:
            answer = self.register(running, "train", group, 403)
            self.assertIn("room", answer["detail"])
        self.put(running, "row1", None)  # and rack with it
        self.assertIn("room", self.register(running, "train", "rack", 403)["detail"])
        answer = self.call(running, "train", "POST", f"/end/{mine}", {"rank": 0})
        self.expect_detail(answer, 403, "rack", "room")

    def test_an_operator_steers_groups_inside_and_final_reports_follow(self):
        running, jobs = self.start_with_tree()
        answer = self.call(running, "steer", "DELETE", f"/jobs/{jobs['other']}")
        self.expect_detail(answer, 403, "other", "room")
        self.expect(self.call(running, "steer", "DELETE", f"/jobs/{jobs['rack']}"), 200)
        rack, late = self.finish(running, "rack"), self.finish(running, "late")
        self.assertEqual(self.ids(running, "all", "/finished"), {rack, late})
        self.assertEqual(self.ids(running, "view", "/finished"), {rack})
        self.put(running, "late", "row1")
        self.assertEqual(self.ids(running, "row1", "/finished"), {rack, late})
        self.put(running, "row1", None)
        self.assertEqual(self.ids(running, "view", "/finished"), set())

    def next_list(self, stream):
        """Returns the ids of the next event with the whole list."""
        while not (event := stream.next()[1])["whole"]:
            pass
        return {job["job_id"] for job in event["jobs"]}

    def test_streams_follow_the_tree(self):
        running, jobs = self.start_with_tree()
        room = {jobs[group] for group in ("room", "row1", "rack")}
        stream = self.follow(running, "view", "/events")
        self.assertEqual(self.next_list(stream), room)
        self.put(running, "late", "rack")
        self.assertEqual(self.next_list(stream), room | {jobs["late"]})
        of_late = self.follow(running, "view", f"/jobs/{jobs['late']}/events")
        self.assertEqual(of_late.next()[1]["job_id"], jobs["late"])
        self.put(running, "late", None)
        self.assertEqual(self.next_list(stream), room)
        hidden = self.register(running, "all", "late")
        shown = self.register(running, "all", "rack")
        known = set()
        while shown not in known:
            known |= {job["job_id"] for job in stream.next()[1]["jobs"]}
        self.assertNotIn(hidden, known)
        # A change of the job does not reach the stream that began while it was in the tree.
        self.register_rank(running, "all", jobs["late"])
        event = of_late.next()[1]
        self.assertIn("only for the group room", event.get("detail", ""), event)


class Changes(Rights):
    def test_tokens_are_added_and_removed_while_the_server_runs(self):
        self.add("first", "operator")
        running = self.start_with_tokens()
        self.add("second", "viewer")
        self.wait_for_status(running, "second", "/jobs", 200)
        stream = self.follow(running, "second", "/events")
        self.assertIsNotNone(stream.next())
        self.harpe("remove", "second")
        self.wait_for_status(running, "second", "/jobs", 401)
        self.assertTrue(stream.is_closed(), "the stream of a removed token goes on")
        self.expect(self.call(running, "first", "GET", "/jobs"), 200)

    def test_a_token_of_the_same_name_is_another_token(self):
        self.add("first", "operator")
        running = self.start_with_tokens()
        old = self.tokens["first"]
        self.harpe("remove", "first")
        self.add("first", "viewer")
        self.wait_for_status(running, "first", "/jobs", 200)
        answer = running.get("/jobs", Authorization=f"Bearer {old}")
        self.expect_detail(answer, 401, "token")
        self.expect_detail(self.call(running, "first", "DELETE", "/jobs/x"), 403, "viewer")

    def test_a_damaged_file_changes_nothing(self):
        self.add("first", "operator")
        running = self.start_with_tokens()
        def write_damaged():
            # Writing the file itself would first empty it, and an empty file is correct.
            beside = self.path / "beside"
            beside.write_text("first viewer\n")
            beside.chmod(0o600)
            beside.rename(self.file)
        for damage, words in ((write_damaged, "line 1"),
                              (lambda: self.file.chmod(0o644), "chmod 600"),
                              (self.file.unlink, "No such file")):
            damage()
            self.wait_until(lambda: words in running.log(), running.log())
            self.expect(self.call(running, "first", "GET", "/jobs"), 200)
        self.add("second", "viewer")
        self.wait_for_status(running, "second", "/jobs", 200)
        self.expect(self.call(running, "first", "GET", "/jobs"), 401)

    def test_a_read_that_fails_once_keeps_no_token_valid(self):
        self.add("first", "operator")
        self.add("second", "operator")
        running = self.start_with_tokens()
        pid = running.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        self.harpe("remove", "second")
        self.wait_until(lambda: "Too many open files" in running.log(), running.log())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        self.wait_for_status(running, "second", "/jobs", 401)
        self.expect(self.call(running, "first", "GET", "/jobs"), 200)
        told = [line for line in running.log().splitlines() if "stay valid" in line]
        self.assertEqual(len(told), 1, running.log())

    def test_a_server_does_not_start_with_a_bad_file(self):
        self.add("first", "operator")
        for damage, words in ((lambda: self.file.chmod(0o640), "chmod 600"),
                              (lambda: (self.file.chmod(0o600), self.file.write_text("x\n")),
                               "line 1"),
                              (self.file.unlink, "No such file")):
            damage()
            self.assertIn(words, self.refuse_to_start("--tokens", self.file))

    def test_the_program(self):
        self.add("a-viewer", "viewer", "row1", "row2")
        self.add("boss", "operator")
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        listed = self.harpe("list").stdout
        for words in ("a-viewer", "viewer", "row1,row2", "boss", "operator", "all"):
            self.assertIn(words, listed)
        rows = json.loads(self.harpe("list", "--json").stdout)["tokens"]
        self.assertEqual([(row["name"], row["role"], row["groups"]) for row in rows],
                         [("a-viewer", "viewer", ["row1", "row2"]), ("boss", "operator", [])])
        for token in self.tokens.values():
            self.assertNotIn(token.split(".")[1], self.file.read_text() + listed)
        self.assertIn("already", self.harpe("add", "boss", "--role", "job", code=1).stderr)
        self.assertIn("no token", self.harpe("remove", "nobody", code=1).stderr)
        self.assertIn("name", self.harpe("add", "a b", "--role", "job", code=2).stderr)
        self.assertIn("--role", self.harpe("add", "x", code=2).stderr)
        self.assertIn("group", self.harpe("add", "x", "--role", "job", "--group", "a,b",
                                          code=2).stderr)


    def test_a_lock_on_the_directory_keeps_no_token_valid(self):
        self.add("thief", "operator")
        folder = os.open(self.file.parent, os.O_RDONLY)  # any user can open and lock it
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        self.harpe("remove", "thief")
        self.assertNotIn("thief", self.file.read_text())
        lock = os.open(f"{self.file}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)  # a program of this user that hangs
        self.assertIn("another program", self.harpe("remove", "thief", code=1).stderr)


class Audit(Rights):
    def records(self, running, name="operator", limit=100):
        return self.expect(self.call(running, name, "GET", f"/fleet/audit?limit={limit}"), 200).json

    def test_what_a_record_has(self):
        self.add_roles()
        running = self.start_with_tokens()
        job = self.register(running, "job")
        before = time.time()
        self.expect(self.call(running, "viewer", "POST", f"/power_cap/{job}", {"watts": 5}), 403)
        self.expect(self.call(running, "operator", "POST", f"/power_cap/{job}", {"watts": 5}), 409)
        self.expect(self.call(running, "operator", "DELETE", f"/jobs/{job}"), 200)
        self.expect(self.call(running, "operator", "GET", "/jobs"), 200)
        evicted, conflict, refused = self.records(running)
        self.assertEqual(
            [{name: row[name] for name in ("who", "role", "address", "what", "request", "status")}
             for row in (evicted, conflict, refused)],
            [{"who": "operator", "role": "operator", "address": "127.0.0.1",
              "what": f"DELETE /jobs/{job}", "request": None, "status": 200},
             {"who": "operator", "role": "operator", "address": "127.0.0.1",
              "what": f"POST /power_cap/{job}", "request": '{"watts": 5}', "status": 409},
             {"who": "viewer", "role": "viewer", "address": "127.0.0.1",
              "what": f"POST /power_cap/{job}", "request": '{"watts": 5}', "status": 403}])
        self.assertIsNone(evicted["detail"])
        self.assertIn("ranks are registered", conflict["detail"])
        self.assertIn("role operator", refused["detail"])
        for row in (evicted, conflict, refused):
            self.assertGreater(row["at"], before - 1)
            self.assertLess(row["at"], time.time() + 1)
        self.assertEqual(self.records(running, limit=1), [evicted])
        self.assertEqual(self.records(running, limit=0), [])
        self.expect(self.call(running, "operator", "GET", "/fleet/audit?limit=x"), 422)

    def test_a_body_that_is_no_json_is_recorded_too(self):
        self.add_roles()
        running = self.start_with_tokens()
        headers = self.as_("operator") | {"Content-Type": "text/plain"}
        self.expect(running.call("PUT", "/fleet/budget", b"watts=5", headers), 422)
        # A refusal changes nothing, so its record may be written after the answer.
        self.wait_until(lambda: self.records(running), "it is recorded")
        record, = self.records(running)
        self.assertEqual((record["what"], record["status"]), ("PUT /fleet/budget", 422))

    def test_a_record_has_what_the_server_understood(self):
        """What comes before the member that matters, or around it, hides nothing."""
        self.add_roles()
        running = self.start_with_tokens()
        job = self.register(running, "job")
        path = "/power_cap/" + "".join(f"%{byte:02x}" for byte in job.encode())
        hidden = '{"watts": 5}'
        for body in (2000 * " " + '{"watts": 5}', json.dumps({"x": 2000 * "y", "watts": 5}),
                     '{"watts": 9, "x": NaN, "watts"' + 2000 * " " + ": 5.000}",
                     json.dumps({f"x{i}": i for i in range(200)} | {"watts": 5})):
            self.expect(self.call(running, "operator", "POST", path, body), 409)
            record = self.records(running, limit=1)[0]
            self.assertEqual((record["what"], record["request"]), (f"POST /power_cap/{job}", hidden))
        plans = [{"time": 1 + i, "power": 500 - i} for i in range(200)]
        self.expect(self.call(running, "operator", "PUT", "/fleet/members/x",
                              {"plans": plans, "group": "row1", "weight": 3}), 200)
        text = self.records(running, limit=1)[0]["request"]
        for words in ('"plans": [{"time": 1, "power": 500}, ', "...", '"group": "row1"', '"weight": 3'):
            self.assertIn(words, text)
        self.assertLess(len(text), 1000)
        self.expect(self.call(running, "operator", "PUT", "/fleet/budget",
                              {"group": "row1", "watts": 9}), 200)
        self.expect(self.call(running, "operator", "DELETE",
                              f"/fleet/budget?x={3000 * 'y'}&group=row%31"), 200)
        self.assertEqual(self.records(running, limit=1)[0]["what"],
                         "DELETE /fleet/budget?group=row1")

    def test_records_survive_kill_9(self):
        self.add_roles()
        running = self.start_with_tokens()
        jobs = server.register_many(running, 20, headers=self.as_("job"))
        for job in jobs:
            self.expect(self.call(running, "operator", "DELETE", f"/jobs/{job}"), 200)
        running.kill()
        again = self.start_with_tokens()
        self.assertEqual([row["what"] for row in self.records(again)],
                         [f"DELETE /jobs/{job}" for job in reversed(jobs)])

    def test_a_record_that_was_cut_off_damages_no_other(self):
        self.add_roles()
        log = self.path / "audit.log"
        log.write_text('{"what":"one"}\n{"what":"tw')
        running = self.start_with_tokens()
        self.expect(self.call(running, "operator", "DELETE", "/jobs/x"), 404)
        self.assertEqual([row["what"] for row in self.records(running)], ["DELETE /jobs/x", "one"])

    def test_a_renamed_log_begins_again(self):
        self.add_roles()
        running = self.start_with_tokens()
        log = self.path / "audit.log"
        self.expect(self.call(running, "operator", "DELETE", "/jobs/x"), 404)
        log.rename(self.path / "audit.log.1")
        self.assertEqual(self.records(running), [])
        self.expect(self.call(running, "operator", "DELETE", "/jobs/y"), 404)
        self.assertEqual([row["what"] for row in self.records(running)], ["DELETE /jobs/y"])

    def lines(self):
        return [json.loads(line) for line in (self.path / "audit.log").read_text().splitlines()]

    def test_refused_requests_do_not_fill_the_log(self):
        self.add_roles()
        running = self.start_with_tokens()
        connection = self.connect(running)
        self.expect(self.call(running, "operator", "DELETE", "/jobs/first"), 404)

        def is_refused():
            connection.send("DELETE", "/jobs/x", headers=self.as_("viewer"))
            self.expect(connection.receive(), 403)

        for _ in range(2000):
            is_refused()
        for name in ("second", "third"):  # others have a share of their own
            self.expect(self.call(running, "operator", "DELETE", f"/jobs/{name}"), 404)
        self.assertLess(len(self.lines()), 60)
        self.assertEqual([row["what"] for row in self.records(running, limit=2)],
                         ["DELETE /jobs/third", "DELETE /jobs/second"])
        self.assertIn("DELETE /jobs/first", [row["what"] for row in self.records(running)])

        def left_out():
            is_refused()
            return sum(row.get("left_out", 0) for row in self.lines() if row["who"] == "viewer")

        self.wait_until(lambda: left_out() > 1900, "a later record tells how many are missing")

    def test_what_a_job_token_repeats_does_not_fill_the_log(self):
        self.add_roles()
        running = self.start_with_tokens()
        connection = self.connect(running)
        for _ in range(1200):
            connection.send("PUT", "/fleet/members/x", {"plans": [{"time": 1, "power": 500}]},
                            self.as_("job"))
            self.expect(connection.receive(), 200)
        self.assertLess(len(self.lines()), 1190)
        self.assertGreaterEqual(len(self.lines()), 1000)

    def test_a_long_log_is_renamed_and_read_on(self):
        self.add_roles()
        log, old = self.path / "audit.log", self.path / "audit.log.old"
        old.write_text("older\n")
        with open(log, "w") as file:
            file.truncate(64 << 20)
            file.seek(0, os.SEEK_END)
            file.write('\n{"what":"one"}\n')
        running = self.start_with_tokens()
        for number in (2, 3):
            self.expect(self.call(running, "operator", "DELETE", f"/jobs/{number}"), 404)
        self.assertEqual([row["what"] for row in self.records(running)],
                         ["DELETE /jobs/3", "DELETE /jobs/2", "one"])
        self.assertEqual([row["what"] for row in self.records(running, limit=2)],
                         ["DELETE /jobs/3", "DELETE /jobs/2"])
        self.assertEqual([row["what"] for row in self.lines()], ["DELETE /jobs/2", "DELETE /jobs/3"])
        self.assertGreater(old.stat().st_size, 64 << 20)
        self.assertEqual(log.stat().st_mode & 0o777, 0o600)

    def test_nothing_is_changed_without_a_record(self):
        self.add_roles()
        log = self.path / "place" / "audit.log"
        log.parent.mkdir()
        running = self.start_with_tokens("--audit-log", log)
        job, other = server.register_many(running, 2, headers=self.as_("job"))
        log.parent.rename(self.path / "gone")
        self.expect(self.call(running, "operator", "DELETE", f"/jobs/{other}"), 200)
        self.expect_detail(self.call(running, "operator", "DELETE", f"/jobs/{job}"), 503,
                           "nothing was changed", str(log))
        self.expect(self.call(running, "operator", "GET", f"/jobs/{job}"), 200)
        (self.path / "gone").rename(log.parent)
        self.wait_until(lambda: self.call(running, "operator", "DELETE", f"/jobs/{job}").status
                        == 200, running.log())

    def test_dumps_that_hang_delay_no_token_and_no_record(self):
        """A dump whose file is a FIFO without a reader never opens. There are more than dump threads."""
        self.add_roles()
        self.add("gone", "operator")
        running = self.start_with_tokens()
        jobs = server.register_many(running, 20, headers=self.as_("job"))
        for job in jobs:
            (self.path / "dump" / job).mkdir(parents=True)
            os.mkfifo(self.path / "dump" / job / "ranks.json")
            self.register_rank(running, "job", job)
        self.harpe("remove", "gone")
        self.wait_for_status(running, "gone", "/jobs", 401)
        self.expect(self.call(running, "operator", "PUT", "/fleet/budget", {"watts": 9}), 200)
        self.expect(self.call(running, "operator", "DELETE", f"/jobs/{jobs[0]}"), 200)
        self.assertEqual([row["what"] for row in self.records(running)],
                         [f"DELETE /jobs/{jobs[0]}", "PUT /fleet/budget"])

    def test_nothing_is_changed_while_the_log_hangs(self):
        self.add_roles()
        log = self.path / "hung.log"
        running = self.start_with_tokens("--audit-log", log, environment=server.hanging_files(log))
        job = self.register(running, "job")

        def is_refused():
            connection = self.connect(running)
            connection.send("DELETE", "/jobs/nobody", headers=self.as_("operator"))
            if connection.is_held():
                return False
            self.expect_detail(connection.receive(), 503, "nothing was changed", str(log))
            return True

        self.wait_until(is_refused, running.log())
        self.expect(self.call(running, "operator", "DELETE", f"/jobs/{job}"), 503)
        self.expect(self.call(running, "operator", "GET", f"/jobs/{job}"), 200)
        self.expect(self.call(running, "viewer", "DELETE", f"/jobs/{job}"), 403)

    def test_many_ends_at_once(self):
        self.add_roles()
        running = self.start_with_tokens()
        job = self.register(running, "job")
        connections = [self.connect(running) for _ in range(40)]
        for connection in connections:
            connection.send("POST", f"/end/{job}", {"rank": 0}, self.as_("job"))
        for connection in connections[20:]:
            connection.reset()
        for connection in connections[:20]:
            self.assertNotIn(connection.receive().status, (401, 403, 503))
        self.assertEqual(running.stop(), 0)
        lines = (self.path / "audit.log").read_text().splitlines()
        self.assertGreaterEqual(len(lines), 20)  # each answer waits for its record
        for line in lines:
            self.assertEqual(json.loads(line)["what"], f"POST /end/{job}")


if __name__ == "__main__":
    unittest.main()
