#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The profile that an online scheduler has measured is a file for people, like dumps. No schedule
waits for it, and a failed write is repeated later, if necessary by the next server."""
import csv
import pathlib

from online_job import *
from online_job import Online

FREQUENCIES = [1410, 1365, 1320]


class ProfileTest(Online):
    def start_online(self, scheduler="InstructionProfiler", hung=None, **args):
        return super().start_online(scheduler, environment=hung and hanging_files(hung),
                                    num_microbatches=2, **args)

    def pipeline(self, server):
        return super().pipeline(server, 2, 2, FREQUENCIES)

    def sweep(self, job):
        """Runs until everything is measured, and some rounds more."""
        for _ in range(8):
            job.run_round()

    def place(self, job):
        return self.path / "dump" / job.id / "profile.csv"

    def check_profile(self, path):
        """Checks that the profile is complete: each stage and instruction at each frequency.
        Returns its text."""
        self.wait_until(path.exists, f"{path} is written")
        text = path.read_text()
        rows = [(row["stage"], row["instruction"], row["frequency"])
                for row in csv.DictReader(text.splitlines())]
        self.assertEqual(set(rows), {(str(stage), name, str(mhz)) for stage in range(2)
                                     for name in ("forward", "backward") for mhz in FREQUENCIES})
        return text

    def restart(self, server, **options):
        self.assertEqual(server.stop(), 0, server.log())
        return self.start_online(**options)

    def wait_until_back(self, server, job):
        """Its scheduler is created again."""
        self.expect(server.get(f"/jobs/{job.id}/frontier"), 200)


class HungTest(ProfileTest):
    def test_no_schedule_waits_for_a_dump_directory_that_hangs(self):
        for scheduler in ("InstructionProfiler", "Perseus"):
            for number, hung in enumerate((self.path / "dump", self.path / f"away-{scheduler}")):
                with self.subTest(scheduler, hung=hung.name):
                    args = {"profile_path": str(hung / "p.csv")} if number else {}
                    server = self.start_online(scheduler, hung, **args)
                    job = self.pipeline(server)
                    self.sweep(job)
                    self.wait_until(pathlib.Path(f"{hung}.hangs").exists, "it hangs")
                    self.sweep(job)
                    other = self.pipeline(server)
                    self.sweep(other)
                    self.assertEqual(server.stop(), 0, server.log())
                    hung.mkdir(exist_ok=True)
                    server = self.start_online(scheduler, **args)
                    for path in [hung / "p.csv"] if args else map(self.place, (job, other)):
                        self.check_profile(path)
                    server.kill()
                    for path in self.path.glob("harpe.db*"):
                        path.unlink()

    def test_a_pipe_that_nobody_reads_delays_nobody(self):
        path = self.path / "pipe.csv"
        os.mkfifo(path)
        server = self.start_online(profile_path=str(path))
        job = self.pipeline(server)
        self.sweep(job)
        self.sweep(job)
        with open(path, encoding="utf-8") as file:
            self.assertIn("backward", file.read())


class FailedTest(ProfileTest):
    def test_a_directory_that_is_missing_costs_only_the_profile_until_it_is_made(self):
        path = self.path / "later" / "profile.csv"
        server = self.start_online(profile_path=str(path))
        job = self.pipeline(server)
        self.sweep(job)
        self.wait_for_log(server, "the profile is not written")
        self.assertIn(str(path), server.log())
        self.sweep(job)
        self.wait_until((self.path / "dump" / job.id / "15.sched.json").exists, "other dumps")
        path.parent.mkdir()
        self.check_profile(path)
        self.wait_for_log(server, "the profile is written")
        self.assertEqual(server.log().count("the profile is not written"), 1)

    def test_what_stands_in_the_way_goes(self):
        server = self.start_online("Perseus")
        job = self.pipeline(server)
        self.place(job).mkdir(parents=True)
        self.sweep(job)
        self.wait_for_log(server, "the profile is not written")
        self.place(job).rmdir()
        self.wait_until(self.place(job).is_file, "it is written")
        self.check_profile(self.place(job))

    def test_an_evicted_job_and_a_stop_wait_for_no_profile(self):
        server = self.start_online(profile_path=str(self.path / "never" / "profile.csv"))
        jobs = [self.pipeline(server) for _ in range(3)]
        for job in jobs:
            self.sweep(job)
        self.wait_until(lambda: server.log().count("the profile is not written") == 3, "told")
        self.expect(server.call("DELETE", f"/jobs/{jobs[0].id}"), 200)
        self.assertEqual(server.stop(), 0, server.log())


class RestartTest(ProfileTest):
    def test_what_was_removed_comes_back_and_a_file_of_ones_own_stays(self):
        server = self.start_online()
        job = self.pipeline(server)
        self.sweep(job)
        text = self.check_profile(self.place(job))
        self.place(job).unlink()
        server = self.restart(server)
        self.assertEqual(self.check_profile(self.place(job)), text)
        shared = self.path / "shared.csv"
        shared.write_text("mine\n")
        server = self.restart(server, profile_path=str(shared))
        self.wait_until_back(server, job)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(shared.read_text(), "mine\n")

    def test_a_pipe_in_its_place_is_not_read(self):
        server = self.start_online()
        job = self.pipeline(server)
        self.sweep(job)
        text = self.check_profile(self.place(job))
        self.assertEqual(server.stop(), 0, server.log())
        self.place(job).unlink()
        os.mkfifo(self.place(job))
        server = self.start_online()
        with open(self.place(job), encoding="utf-8") as file:
            self.assertEqual(file.read(), text)

    def test_killed_servers_leave_a_whole_profile_or_none(self):
        server = self.start_online("Perseus")
        job = self.pipeline(server)
        for _ in range(12):
            job.run_round()
            server.kill()
            if self.place(job).exists():
                self.check_profile(self.place(job))
            server = self.start_online("Perseus")
            job.connect(server)
        self.check_profile(self.place(job))


if __name__ == "__main__":
    unittest.main(verbosity=2)
