# SPDX-License-Identifier: Apache-2.0
"""Disks that are really full: small file systems in memory, mounted in a mount namespace of this
test. No answered data is lost, and missing files are written when there is room again. Skipped if
such a namespace cannot be created."""
import sys
import unittest

from server import *

INSIDE = "HARPE_TEST_OWN_MOUNTS"
SKIPPED = 77
MIB = 1 << 20


def enter_own_mounts():
    """Runs this program again in a mount namespace of its own."""
    if os.environ.get(INSIDE):
        return
    for flags in ("-m", "-rm"):  # as root, or as root of a user namespace
        mount = ["unshare", flags, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        try:
            done = subprocess.run(mount, capture_output=True, timeout=LIMIT_S)
        except FileNotFoundError:
            break
        if done.returncode == 0:
            os.environ[INSIDE] = "1"
            os.execvp("unshare", ["unshare", flags, sys.executable, *sys.argv])
    print("skipped: no file system can be mounted here")
    sys.exit(SKIPPED)


class FullDiskTest(ServerTest):
    def disk(self, name, size):
        """Mounts a file system of this many bytes."""
        directory = self.path / name
        directory.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", directory],
                       check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", directory], check=True)
        return directory

    def fill(self, directory):
        """Writes until no further byte can be written."""
        with open(directory / "filler", "wb", buffering=0) as filler:
            for size in (MIB, 4096, 1):
                try:
                    while filler.write(b"x" * size) == size:
                        pass
                except OSError:
                    pass
        return directory / "filler"

    def ids(self, server):
        return {job["job_id"] for job in server.get("/jobs").json["jobs"]}


class FullStoreTest(FullDiskTest):
    def check(self, end):
        """Fills the disk, calls end(server), and makes room."""
        disk = self.disk(f"store-{time.monotonic_ns()}", 24 * MIB)
        server = self.start("--store", disk / "harpe.db", "--no-dump")
        job = register(server)
        self.train(server, job, 3)
        filler = self.fill(disk)
        stored, refused = self.ids(server), 0
        for _ in range(40):
            answer = server.post("/register_job", job_info(job_metadata="x" * 60000))
            if answer.status == 200:
                stored.add(answer.json)
            else:
                self.expect_detail(answer, 503)
                refused += 1
        self.assertGreater(refused, 0)
        detail = self.expect_detail(server.get("/healthz"), 503, "store")
        self.assertIn("disk is full", detail)
        self.assertEqual(self.ids(server), stored)
        end(server)
        filler.unlink()
        if server.process.poll() is not None:
            server = self.start("--store", disk / "harpe.db", "--no-dump")
        self.wait_for_health(server, 200)
        self.assertEqual(self.ids(server), stored)
        self.train(server, job, 2, 3)
        stored.add(register(server, job_metadata="y" * 60000).id)
        server.kill()
        server = self.start("--store", disk / "harpe.db", "--no-dump")
        self.assertEqual(self.ids(server), stored)
        self.assertEqual(server.get(f"/jobs/{job.id}").json["round"], 4)

    def test_writes_are_refused_until_there_is_room(self):
        self.check(lambda server: None)

    def test_a_server_killed_on_a_full_disk_has_lost_nothing(self):
        self.check(lambda server: server.kill())

    def test_a_server_stopped_on_a_full_disk_has_lost_nothing(self):
        self.check(lambda server: self.assertEqual(server.stop(), 0))

    def test_backups_fill_no_disk(self):
        disk = self.disk("small", 24 * MIB)
        server = self.start("--store", disk / "harpe.db", "--no-dump")
        register(server, job_metadata="x" * 60000)
        done = run_harpe("store", "backup", self.path / "b.db", "--store", disk / "harpe.db")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("room", done.stderr)
        self.assertEqual(len(self.ids(server)), 1)
        server.stop()
        full = self.disk("full", 4 * MIB)
        self.fill(full)
        done = run_harpe("store", "backup", full / "b.db", "--store", disk / "harpe.db")
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual([path.name for path in full.iterdir()], ["filler"])
        done = run_harpe("store", "backup", self.path / "b.db", "--store", disk / "harpe.db")
        self.assertEqual(done.returncode, 0, done)
        self.fill(disk)
        done = run_harpe("store", "restore", self.path / "b.db", "--store", disk / "harpe.db")
        self.assertEqual(done.returncode, 1, done)
        (disk / "filler").unlink()
        self.assertEqual(len(self.ids(self.start("--store", disk / "harpe.db", "--no-dump"))), 1)


class FullDumpsTest(FullDiskTest):
    ROUNDS = 12

    def complete(self, directory):
        names = {"ranks.json"} | {f"{number}.{kind}.json" for number in range(self.ROUNDS)
                                  for kind in ("sched", "prof")}
        if not directory.is_dir() or {path.name for path in directory.iterdir()} != names:
            return False
        for path in directory.iterdir():
            json.loads(path.read_text())
        return True

    def run_on_a_full_disk(self, name):
        disk = self.disk(name, MIB)
        server = self.start("--dump-dir", disk)
        filler = self.fill(disk)
        job = register(server)
        self.train(server, job, self.ROUNDS)
        self.wait_for_log(server, "is tried again")
        self.expect(server.get("/healthz"), 200)
        self.assertFalse(self.complete(disk / job.id))
        return disk, server, filler, job

    def test_dumps_are_made_up_for_when_there_is_room(self):
        disk, server, filler, job = self.run_on_a_full_disk("dump")
        filler.unlink()
        self.wait_until(lambda: self.complete(disk / job.id), "all dumps")
        self.assertEqual(server.log().count("is tried again"), 1)
        self.wait_for_log(server, "can be written again")

    def test_dumps_are_made_up_for_by_the_next_server(self):
        for end in (lambda server: server.kill(), lambda server: server.stop()):
            disk, server, filler, job = self.run_on_a_full_disk(f"dump-{time.monotonic_ns()}")
            end(server)
            filler.unlink()
            server = self.start("--dump-dir", disk)
            self.wait_until(lambda: self.complete(disk / job.id), "all dumps")
            server.kill()


if __name__ == "__main__":
    enter_own_mounts()
    unittest.main(verbosity=2)
