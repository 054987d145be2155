# SPDX-License-Identifier: Apache-2.0
"""`harpe jobs` against a running `harpe serve`: what it shows, how it finds a job, and what it says
when there is no server, no token or no such job."""
import fcntl
import re
import struct
import sys
import termios

from program import HARPE, ProgramTest, SOURCE, environment, json, os, signal, subprocess, unittest

sys.path.insert(0, str(SOURCE / "tests" / "server"))
from server import LIMIT_S, Server, plan_for, register, result_of  # noqa: E402
from test_online import Pipeline  # noqa: E402


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

    def watch(self, *arguments):
        process = subprocess.Popen([HARPE, "jobs", "watch", *arguments], env=self.variables,
                                   text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process


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
        for arguments in (("show", job.id), ("list",), ("--json",), ("show", job.id, "--json")):
            out = self.jobs(*arguments).out
            bad = [hex(ord(c)) for c in out if c != "\n" and (
                ord(c) < 32 or 0x7f <= ord(c) < 0xa0 or c in "\u202e\u2066\u2028\u200f\ufeff\U000e0041")]
            self.assertEqual(bad, [], arguments)
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

    def test_interrupted_watch_ends_well(self):
        job = register(self.start(), pp=4)
        process = self.watch(job.id, "--json")
        self.assertEqual(json.loads(process.stdout.readline())["job_id"], job.id)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(LIMIT_S), 0)


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

    def test_what_is_noise_is_called_so(self):
        job = self.start_online()
        self.assertNotIn("saved", self.shown(job))
        job.noise = 0.01
        job.cost = lambda stage, name, mhz: (0.1, 20.0)  # whatever the clock
        job.run_round()
        job.frontier()  # after the results were observed
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
        for rank in range(4):
            connection = server.connect()
            self.addCleanup(connection.close)
            connection.send("GET", f"/schedule/{job.id}?rank={rank}&round=0")
        deadline = 200
        while server.get(f"/jobs/{job.id}").json["round"] < 0 and deadline:
            deadline -= 1
        for rank in range(4):
            result = dict(result_of(rank), iter_time=[1.0], iter_energy=[12345678.9])
            self.assertEqual(server.post(f"/result/{job.id}?round=0", result).status, 200)
        lines = self.shown(job)
        self.assertEqual(lines["saved"].strip(), "no baseline measured")
        self.assertIn("49.38 MJ", lines["energy"])

    def test_rows_fit_a_terminal_of_80_columns(self):
        job = self.start_online()
        job.run_until_planned()
        job.run_round()
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        subprocess.run([HARPE, "jobs"], env=dict(self.variables, NO_COLOR="1"), stdout=theirs,
                       stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=True)
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 4096):
                text += chunk
        except OSError:
            pass  # that is how a terminal ends
        lines = re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).splitlines()
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
        refused = self.refused(1, f"nobody answers at http://127.0.0.1:{server.port}; "
                                  "is harpe serve running there?")
        self.assertNotIn(" ms", refused.err)

    def test_missing_and_wrong_tokens_point_to_the_flag(self):
        self.write("token", "secret\n")
        self.write("wrong", "guess\n")
        self.start("--token-file", "token")
        self.refused(1, "--token-file")
        self.refused(1, "does not know the token", "--token-file", "wrong")
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
        self.refused(2, "expected list, link, show, watch or evict", "shwo")
        self.refused(2, "show needs a job's id", "show")
        self.refused(2, "link takes no job", "link", "some")
        self.refused(2, "--yes is for evict", "link", "--yes")
        self.refused(2, "http://HOST:PORT", "--server", "ftp://somewhere")


if __name__ == "__main__":
    unittest.main()
