# SPDX-License-Identifier: Apache-2.0
"""`harpe jobs` with a running `harpe serve`: its output, how it finds a job, and its messages
without a server, a token or such a job."""
import fcntl
import re
import struct
import sys
import termios
from urllib.parse import parse_qs, urlsplit

from program import HARPE, ProgramTest, SOURCE, environment, json, os, signal, subprocess, unittest
from fixtures import FakeServer

sys.path.insert(0, str(SOURCE / "tests" / "server"))
from server import LIMIT_S, Server, plan_for, register, register_many, result_of  # noqa: E402
from online_job import Pipeline  # noqa: E402


class JobsTest(ProgramTest):
    def start(self, *arguments):
        (self.path / "plan.py").write_text(
            repr([[tuple(entry) for entry in rank] for rank in plan_for(4)]) + "\n")
        server = Server(self.path, "--store", "memory", "--no-dump", "--scheduler",
                        "PointSolution", "--scheduler-args",
                        json.dumps({"solution_path": str(self.path / "plan.py")}), *arguments)
        self.addCleanup(server.kill)
        self.variables = environment(HARPE_SERVER=f"http://127.0.0.1:{server.port}")
        return server

    def jobs(self, *arguments):
        return self.succeed("jobs", *arguments, env=self.variables)

    def refused(self, code, message, *arguments):
        return self.refuse(code, message, "jobs", *arguments, env=self.variables)

    def on_terminal(self, columns, *arguments):
        """Returns the lines that are written to a terminal of this width."""
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([HARPE, "jobs", *arguments], stdout=theirs,
                                   env=dict(self.variables, NO_COLOR="1"), stdin=subprocess.DEVNULL)
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 4096):
                text += chunk
        except OSError:
            pass  # the usual end of a terminal
        self.assertEqual(process.wait(LIMIT_S), 0)
        return re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).splitlines()

    def watch(self, *arguments):
        process = subprocess.Popen([HARPE, "jobs", "watch", *arguments], env=self.variables,
                                   text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def answer_as(self, answer):
        """Stands in for a server of an older version. `answer(path)` returns the JSON of each answer."""
        old = FakeServer(lambda path: (200, answer(path)))
        self.addCleanup(old.close)
        self.variables = environment(HARPE_SERVER=old.url)


class Looking(JobsTest):
    def test_list_has_a_row_per_job_and_quiet_only_ids(self):
        server = self.start()
        self.assertEqual(self.jobs().out, "No jobs.\n")
        first = register(server, pp=4)
        second = register(server, pp=4, ranks=False, job_metadata="other")
        lines = self.jobs("list").out.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertTrue(lines[1].startswith(second.id), lines)
        self.assertIn("0/4", lines[1])
        self.assertIn("4/4", lines[2])
        self.assertEqual(self.jobs("--quiet").out.split(), [second.id, first.id])
        self.assertEqual(len(self.jobs("--json").json()["jobs"]), 2)

    def test_texts_of_clients_do_not_reach_the_terminal(self):
        server = self.start()
        job = register(server, pp=4, ranks=False, job_metadata="a\x1b[2J\x9b2J\x9d0;t\x07\x7f"
                       "\u202e\u2066\u2028\u200f\ufeff\U000e0041 caf\u00e9 \u65e5b")
        process = self.watch(job.id, "--json")
        watched = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        texts = {arguments: self.jobs(*arguments).out for arguments in (
            ("show", job.id), ("list",), ("--json",), ("show", job.id, "--json"))}
        for arguments, out in (texts | {"watch --json": watched}).items():
            bad = [hex(ord(c)) for c in out if c != "\n" and (
                ord(c) < 32 or 0x7f <= ord(c) < 0xa0 or c in "\u202e\u2066\u2028\u200f\ufeff\U000e0041")]
            self.assertEqual(bad, [], arguments)
        self.assertEqual(json.loads(watched)["job_metadata"],
                         server.get(f"/jobs/{job.id}").json["job_metadata"])
        self.assertIn("a?[2J?2J?0;t" + "?" * 8 + " caf\u00e9 \u65e5b",
                      self.jobs("show", job.id).out)
        self.assertEqual(self.jobs("show", job.id, "--json").json()["job_metadata"],
                         server.get(f"/jobs/{job.id}").json["job_metadata"])

    def test_missing_ranks_are_named_as_ranges(self):
        server = self.start()
        job = register(server, pp=4, dp=2, ranks=False)
        for rank in (0, 2):
            server.post(f"/register_rank/{job.id}", job.rank(rank))
        out = self.jobs("show", job.id).out
        self.assertIn("missing:    1, 3-7\n", out)
        self.assertIn("2 registered", out)
        self.assertEqual(self.jobs("show", job.id, "--json").json()["job_id"], job.id)
        self.assertEqual(self.jobs("show", job.id, "--quiet").out, "registering\n")

    def test_beginning_of_an_id_is_enough_unless_others_begin_so(self):
        server = self.start()
        job = register(server, pp=4)
        self.assertIn(job.id, self.jobs("show", job.id[:5]).out)
        register(server, pp=4)
        self.refused(2, "2 jobs begin with", "show", job.id[:5])

    def test_watch_tells_each_change_and_ends_with_the_job(self):
        server = self.start()
        job = register(server, pp=4, ranks=False)
        process = self.watch(job.id)
        self.assertIn("0 registered", process.stdout.readline())
        server.post(f"/register_rank/{job.id}", job.rank(0))
        self.assertIn("1 registered", process.stdout.readline())
        self.assertEqual(server.call("DELETE", f"/jobs/{job.id}").status, 200)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, err), (0, ""))
        self.assertIn("the job is gone", out)

    def test_watch_ends_when_its_job_has_ended(self):
        for arguments, last in (((), "the job has ended"), (("--quiet",), "ended"),
                                (("--json",), '"state":"ended"')):
            with self.subTest(arguments):
                server = self.start()
                job = register(server, pp=4)
                process = self.watch(job.id, *arguments)
                self.assertTrue(process.stdout.readline())
                for rank in range(4):
                    self.assertEqual(server.post(f"/end/{job.id}", {"rank": rank}).status, 200)
                out, err = process.communicate(timeout=LIMIT_S)
                self.assertEqual((process.returncode, err), (0, ""))
                self.assertIn(last, out.splitlines()[-1])
                again = self.watch(job.id, *arguments)  # a job that has ended before
                self.assertIn(last, again.communicate(timeout=LIMIT_S)[0].splitlines()[-1])
                self.assertEqual(again.returncode, 0)

    def test_watch_fails_with_its_job(self):
        for arguments in ((), ("--quiet",), ("--json",)):
            with self.subTest(arguments):
                server = self.start()
                job = register(server, pp=2, ranks=False)
                process = self.watch(job.id, *arguments)
                self.assertTrue(process.stdout.readline())
                for rank in range(2):  # the plan has four lists
                    server.post(f"/register_rank/{job.id}", job.rank(rank))
                out, err = process.communicate(timeout=LIMIT_S)
                self.assertEqual(process.returncode, 1)
                self.assertIn("failed", out.splitlines()[-1])
                self.assertRegex(err, rf"\Aharpe jobs: {re.escape(job.id)} has failed: .* 4 lists .*\n\Z")

    def test_interrupted_watch_ends_well(self):
        job = register(self.start(), pp=4)
        process = self.watch(job.id, "--json")
        self.assertEqual(json.loads(process.stdout.readline())["job_id"], job.id)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(LIMIT_S), 0)


class LongIds(JobsTest):
    """Ids of up to 174 characters, on terminals and in other output."""

    METADATA = ["m" * 128, "run...7" + "x" * 119 + "...", "left" * 30 + "-end", "a" * 90, "b" * 13, ""]

    def start_many(self):
        server = self.start()
        return [register(server, pp=4, ranks=False, job_metadata=metadata).id
                for metadata in self.METADATA][::-1]

    def shown_ids(self, lines):
        """Returns the texts that represent the ids, on lines of their own or not."""
        return [line.split()[0] for line in lines[1:] if line.startswith("20")]

    def assert_stands_for(self, shown, job_id):
        if shown == job_id:
            return
        self.assertTrue(any(job_id.startswith(shown[:i]) and job_id.endswith(shown[i + 3:])
                            for i in range(len(shown)) if shown.startswith("...", i)),
                        (shown, job_id))

    def test_ids_fit_the_terminal_and_are_accepted_as_they_are_shown(self):
        ids = self.start_many()
        for columns in (40, 60, 79, 80, 81, 120, 149, 150, 151, 200, 275, 276, 277, 400):
            lines = self.on_terminal(columns)
            shown = self.shown_ids(lines)
            with self.subTest(columns=columns):
                self.assertEqual(len(set(shown)), len(ids), shown)
                for text, job_id in zip(shown, ids):
                    self.assert_stands_for(text, job_id)
                    self.assertLessEqual(len(text), columns)
                    if columns >= 80:  # with fewer columns, the figures of a row do not fit either
                        self.assertLessEqual(max(map(len, lines)), columns, lines)
                    if columns >= 276:
                        self.assertEqual(text, job_id)
                if columns in (80, 150):
                    for text, job_id in zip(shown, ids):
                        out = self.jobs("show", text).out
                        self.assertEqual(out.splitlines()[0], job_id)

    def test_elsewhere_ids_are_whole(self):
        ids = self.start_many()
        self.assertEqual(self.shown_ids(self.jobs("list").out.splitlines()), ids)
        self.assertEqual(self.jobs("--quiet").out.split(), ids)
        self.assertEqual([job["job_id"] for job in self.jobs("--json").json()["jobs"]], ids)
        self.assertEqual(self.on_terminal(80, "--quiet"), ids)
        answer = json.loads("\n".join(self.on_terminal(80, "--json")))
        self.assertEqual([job["job_id"] for job in answer["jobs"]], ids)

    def test_a_shortened_id_that_fits_several_jobs_or_none_is_refused(self):
        server = self.start()
        metadata = "z" * 100
        first, second = (register(server, pp=4, ranks=False, job_metadata=metadata).id
                         for _ in range(2))
        self.refused(2, "2 jobs fit", "show", first[:12] + "..." + first[-8:])
        self.refused(1, "there is no job", "show", first[:30] + "..." + "y")
        self.refused(1, "there is no job", "show", "x..." + first[-8:])
        # The parts may not overlap.
        self.refused(1, "there is no job", "show", first[:-1] + "..." + first[-2:])
        self.assertIn(second, self.jobs("show", second[:-5] + "..." + second[-4:]).out)
        self.assertIn(f"evicted {first}", self.jobs("evict", "--yes", first[:60] + "...zz").out)

    def test_later_pages_keep_the_width(self):
        server = self.start()
        oldest = register_many(server, 1, pp=4, job_metadata="n" * 128)[0]
        register_many(server, 1000, pp=4)
        for columns in (80, 150, 200):
            lines = self.on_terminal(columns)
            self.assertLessEqual(max(map(len, lines)), columns)
            self.assert_stands_for(self.shown_ids(lines)[-1], oldest)


class Choosing(JobsTest):
    """Sorted, searched and limited lists, and the columns that a terminal has room for."""

    def start_many(self):
        server = self.start()
        for name, ranks in (("one user=zoe node=n10 slurm_job=9 fleet_group=red", 2),
                            ("two user=adam node=n2 slurm_job=10", 4), ("three", 1)):
            register(server, pp=ranks, ranks=False, job_metadata=name)
        return server

    def names(self, *arguments):
        return [line.rsplit("+", 1)[1].split("_")[0] for line in self.jobs("--quiet", *arguments).out.split()]

    def test_lists_are_sorted_searched_and_limited(self):
        server = self.start_many()
        self.assertEqual(self.names("--sort", "-gpus"), ["two", "one", "three"])
        self.assertEqual(self.names("--sort", "user"), ["two", "one", "three"])
        self.assertEqual(self.names("--search", "NODE n1", "--sort=start"), ["one"])
        self.assertEqual(self.names("--sort", "start", "--limit", "2"), ["one", "two"])
        self.assertEqual(self.names("--limit", "1"), ["three"])
        answer = self.jobs("--json", "--search", "zoe").json()
        self.assertEqual((answer["count"], [job["user"] for job in answer["jobs"]]), (1, ["zoe"]))
        register_many(server, 300)
        self.assertEqual(len(self.names("--sort", "name")), 303)  # of two pages
        self.assertEqual(self.names("--sort", "name", "--limit", "250")[:3], ["one", "three", "two"])
        self.refused(1, "can be sorted by start, ", "--sort", "size")
        self.refused(2, "--sort and --search are for list", "show", "x", "--sort", "user")
        self.refused(2, "--limit is for a list", "show", "x", "--limit", "3")

    def test_columns_say_who_runs_a_job_and_where(self):
        self.start_many()
        lines = self.jobs("--sort", "user").out.splitlines()
        head = ["id", "state", "ranks", "waiting", "round", "phase", "energy", "saved", "time lost", "vs one clock", "power",
                "cap", "user", "group", "Slurm job", "node", "started", "last seen"]
        self.assertEqual(re.split(r"  +", lines[0]), head)
        row = dict(zip(head, re.split(r"  +", lines[2])))
        self.assertEqual([row[name] for name in ("state", "ranks", "user", "group", "Slurm job", "node")],
                         ["registering", "0/2", "zoe", "red", "9", "n10"])
        wide = self.on_terminal(200)
        self.assertIn("time lost", wide[0])
        self.assertIn("user", wide[0])
        self.assertLessEqual(max(map(len, wide)), 200)
        self.assertNotIn("user", self.on_terminal(80)[1])

    def test_a_job_without_connections_has_no_contact(self):
        server = self.start()
        job = register(server, pp=4)
        asking = [server.connect() for _ in range(4)]
        for rank, connection in enumerate(asking):
            connection.send("GET", f"/schedule/{job.id}?rank={rank}&round=0",
                            headers={"Harpe-Connection": "kept"})
        for connection in asking:
            self.assertEqual(connection.receive().status, 200)
        self.assertIn("  running  ", self.jobs().out)
        before = server.metric("harpe_http_connections")
        for connection in asking:
            connection.close()
        while server.metric("harpe_http_connections") > before - 4:
            pass
        self.assertIn("  no contact  ", self.jobs().out)
        self.assertIn("no contact: since ", self.jobs("show", job.id).out)

    def test_a_server_that_cannot_sort_is_named(self):
        self.answer_as(lambda path: {"jobs": [], "count": 0, "next": None})
        self.refused(1, "the server cannot sort and search", "--sort", "user")


class Many(JobsTest):
    """There are more jobs than a page has."""

    def test_every_job_is_listed_and_found(self):
        server = self.start()
        oldest = register_many(server, 1, pp=4, job_metadata="oldest")[0]
        ids = [oldest] + register_many(server, 2299, pp=4)
        self.assertEqual(self.jobs("--quiet").out.split(), ids[::-1])
        lines = self.jobs("list").out.splitlines()
        self.assertEqual(len(lines), 2301)
        self.assertEqual([line.split()[0] for line in lines[1:]], ids[::-1])
        answer = self.jobs("--json").json()
        self.assertEqual([job["job_id"] for job in answer["jobs"]], ids[::-1])
        self.assertEqual(answer["count"], 2300)
        self.assertEqual(answer["jobs"][0], server.get("/jobs?limit=1").json["jobs"][0])
        # The oldest job is on the last page.
        self.assertIn("registering", self.jobs("show", oldest).out)
        self.assertIn("registering", self.jobs("show", oldest[:-1]).out)
        self.refused(1, f"did you mean '{oldest}'?", "show", oldest[:-1] + "x")
        self.refused(2, "2300 jobs begin with", "show", oldest[:4])

    def peak_kib(self, *arguments):
        process = subprocess.Popen([HARPE, "jobs", *arguments], env=self.variables,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return used.ru_maxrss

    @unittest.skipIf("asan" in HARPE, "a sanitizer keeps what was freed")
    def test_memory_does_not_grow_with_the_list(self):
        server = self.start()
        actions = [("--json",), ("list",), ("--quiet",)]
        register_many(server, 1000, pp=4, job_metadata="m" * 300)
        before = [self.peak_kib(*arguments) for arguments in actions]
        register_many(server, 2000, pp=4, job_metadata="m" * 300)
        for arguments, kib in zip(actions, before):
            self.assertLess(self.peak_kib(*arguments), kib + 4096, arguments)

    def test_a_server_that_knows_no_places_is_asked_by_offset(self):
        asked = []

        def answer(path):
            query = parse_qs(urlsplit(path).query)
            asked.append(path)
            first = int(query.get("offset", ["0"])[0])
            return {"jobs": [{"job_id": f"job-{n}"} for n in range(2500)][first:][:int(query["limit"][0])],
                    "count": 2500}
        self.answer_as(answer)
        self.assertEqual(self.jobs("--quiet").out.split(), [f"job-{n}" for n in range(2500)])
        self.assertEqual(len(asked), 3)


class Figures(JobsTest):
    """Energy, savings, power, phase and plan, in words."""

    def start_online(self):
        server = Server(self.path, "--store", "memory", "--no-dump", "--scheduler", "Perseus",
                        "--scheduler-args", json.dumps({"num_microbatches": 4}))
        self.addCleanup(server.kill)
        self.variables = environment(HARPE_SERVER=f"http://127.0.0.1:{server.port}")
        job = Pipeline(server, 2, 4, noise=0.002)
        self.addCleanup(job.close)
        return job

    def shown(self, job):
        out = self.jobs("show", job.id).out
        self.assertNotRegex(out, r"\de[+-]\d")
        return dict(line.strip().split(":", 1) for line in out.splitlines() if ":" in line)

    def test_figures_are_those_of_the_frontier(self):
        job = self.start_online()
        job.run_until_planned()
        for _ in range(5):
            job.run_round()
        frontier = job.frontier()
        saved = frontier["saved"]
        lines = self.shown(job)
        share = 100 * saved["energy"] / saved["energy_baseline"]
        half = 100 * saved["energy_uncertainty"] / saved["energy_baseline"]
        self.assertGreater(share, half)
        found = re.search(r"\(([0-9.]+) % \+- ([0-9.]+) %\)", lines["saved"])
        self.assertAlmostEqual(float(found[1]), share, delta=0.06)
        self.assertAlmostEqual(float(found[2]), half, delta=0.06)
        self.assertIn("+-", lines["time lost"])
        self.assertEqual(lines["phase"].strip(), "plan")
        self.assertIn(f"{frontier['current']} of 0 to {len(frontier['plans']) - 1}: ", lines["plan"])
        one_clock = self.jobs("--json").json()["jobs"][0]["figures"]["plan"]["one_clock"]
        self.assertIn(one_clock["frequency"], [one["frequency"] for one in frontier["one_clock"]])
        self.assertRegex(lines["one clock"], rf"{one_clock['frequency']} MHz, saves [0-9.]+ % at "
                                             r"\+[0-9.]+ % time; the plan saves [0-9.]+ % against it")
        against = re.search(r"the plan saves ([0-9.]+ %) against it", lines["one clock"])[1]
        self.assertRegex(self.jobs("list").out, rf"  {against}  ")
        self.assertRegex(lines["energy"], rf"[0-9.]+ k?J and [0-9.]+ s in {job.round} iterations")
        self.assertRegex(lines["power"], r"[0-9.]+ W")
        row = self.jobs("list").out.splitlines()[1]
        self.assertIn(f" plan {frontier['current']} ", row)
        self.assertIn(f"{found[1]} % +- {found[2]} %", row)
        figures = self.jobs("--json").json()["jobs"][0]["figures"]
        self.assertAlmostEqual(figures["saved"]["energy"] / saved["energy"], 1, delta=1e-12)
        watched = self.watch(job.id)
        self.assertIn(f"plan {frontier['current']}, ", line := watched.stdout.readline())
        self.assertIn(f"saved: {found[1]} % +- {found[2]} %", line)

    def test_final_report_has_the_figures_of_the_evicted_job(self):
        job = self.start_online()
        job.run_until_planned()
        job.run_round()
        job.frontier()  # it comes after the scheduler has taken the round's results
        lines = self.shown(job)
        self.assertEqual(self.jobs("finished").out, "No final reports.\n")
        self.jobs("evict", job.id, "--yes")
        self.assertEqual(self.jobs("finished", "--quiet").out, f"{job.id}\n")
        listed = self.jobs("finished", "--json").json()
        self.assertEqual((listed["count"], listed["jobs"][0]["job_id"]), (1, job.id))
        out = self.jobs("finished", job.id[:5]).out
        final = dict(line.strip().split(":", 1) for line in out.splitlines() if ":" in line)
        for name in ("energy", "saved", "time lost", "rounds"):
            self.assertEqual(final[name], lines[name])
        self.assertIn("ago", final["evicted"])
        self.refused(1, "there is no job 'zzz'; harpe jobs finished lists them", "finished", "zzz")

    def test_what_is_noise_is_called_so(self):
        job = self.start_online()
        self.assertNotIn("saved", self.shown(job))
        job.noise = 0.01
        job.cost = lambda stage, name, mhz: (0.1, 20.0)  # at every clock
        job.run_round()
        job.frontier()  # after the scheduler has observed the results
        self.assertIn("nothing is compared yet", self.shown(job)["saved"])
        job.run_until_planned()
        for _ in range(10):
            job.run_round()
        job.frontier()
        lines = self.shown(job)
        self.assertIn("(within noise)", lines["saved"])
        self.assertIn("(within noise)", lines["time lost"])
        self.assertIn("within noise", self.jobs("list").out)

    def test_given_plans_have_no_baseline(self):
        server = self.start()
        job = register(server, pp=4)
        asking = [server.connect() for _ in range(4)]
        for rank, connection in enumerate(asking):
            self.addCleanup(connection.close)
            connection.send("GET", f"/schedule/{job.id}?rank={rank}&round=0")
        self.assertEqual([connection.receive().status for connection in asking], [200] * 4)
        for rank in range(4):
            result = dict(result_of(rank), iter_time=[10000.0], iter_energy=[12345678.9])
            self.assertEqual(server.post(f"/result/{job.id}?round=0", result).status, 200)
        lines = self.shown(job)
        self.assertEqual(lines["saved"].strip(), "no baseline measured")
        self.assertIn("49.38 MJ", lines["energy"])

    def test_rows_fit_a_terminal_of_80_columns(self):
        job = self.start_online()
        job.run_until_planned()
        job.run_round()
        lines = self.on_terminal(80)
        self.assertEqual(len(lines), 4, lines)
        self.assertEqual(lines[2], job.id)
        self.assertLessEqual(max(map(len, lines)), 80, lines)
        self.assertIn(" plan ", lines[3])


class Evicting(JobsTest):
    def test_evicted_job_is_off_the_list(self):
        server = self.start()
        job = register(server, pp=4)
        self.assertEqual(self.jobs("evict", job.id, "--yes").out, f"evicted {job.id}\n")
        self.assertNotIn(job.id, self.jobs().out)

    def test_terminal_is_asked_and_no_answer_keeps_the_job(self):
        job = register(self.start(), pp=4)
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        os.write(ours, b"n\n")
        result = subprocess.run([HARPE, "jobs", "evict", job.id], env=self.variables, stdin=theirs,
                                text=True, capture_output=True, timeout=LIMIT_S, check=False)
        os.close(theirs)
        self.assertEqual(result.returncode, 1)
        self.assertIn("Evict", result.stderr)
        self.assertIn(job.id, self.jobs().out)


class Failures(JobsTest):
    def test_no_server_says_what_to_run(self):
        server = self.start()
        server.stop()
        refused = self.refused(1, f"no server answers at http://127.0.0.1:{server.port}; "
                                  "is harpe serve running there?")
        self.assertNotIn(" ms", refused.err)

    def test_missing_and_wrong_tokens_point_to_the_flag(self):
        self.write("token", "secret\n")
        self.write("wrong", "guess\n")
        self.start("--token-file", "token")
        self.refused(1, "--token-file")
        self.refused(1, "does not accept the token", "--token-file", "wrong")
        self.assertEqual(self.jobs("--token-file", "token").out, "No jobs.\n")

    def test_unknown_id_names_the_closest(self):
        server = self.start()
        job = register(server, pp=4)
        self.refused(1, f"did you mean '{job.id}'?", "show", job.id.replace("+pp4", "+pp5"))

    def test_ids_too_long_to_compare_are_not_suggested(self):
        server = self.start()
        short = register(server, pp=4)
        long = register(server, pp=4, ranks=False, job_metadata="m" * 128)
        self.assertGreater(len(long.id), 128)
        self.refused(1, f"did you mean '{short.id}'?", "show", short.id.replace("+pp4", "+pp5"))
        self.refused(1, "harpe jobs lists them", "show", long.id[:-1] + "n")

    def test_link_has_the_token_in_the_part_that_is_not_sent(self):
        token = self.path / "token"
        token.write_text("a+b/c=#%\n")
        server = self.start("--token-file", token)
        url = f"http://127.0.0.1:{server.port}"
        self.assertEqual(self.jobs("link").out, f"{url}/\n")
        done = self.jobs("link", "--server", f"{url}//", "--token-file", str(token))
        self.assertEqual(done.out, f"{url}/#token=a%2Bb%2Fc%3D%23%25\n")
        self.variables["HARPE_TOKEN"] = " a+b/c=#% "
        self.assertEqual(self.jobs("link").out, done.out)
        self.assertEqual(self.jobs("--quiet").out, "")

    def test_wrong_usage_is_one_line(self):
        self.start()
        self.refused(2, "expected list, link, show, watch, evict or finished", "shwo")
        self.refused(2, "show needs a job's id", "show")
        self.refused(2, "link takes no job", "link", "some")
        self.refused(2, "--yes is for evict", "link", "--yes")
        self.refused(2, "http://HOST:PORT", "--server", "ftp://somewhere")
