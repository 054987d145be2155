#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The memory of the server for a job grows with the registered ranks, not with the world_size that
a client announces. It is compared with that of the same number of small jobs, while the server
runs, after it has ended, and after it was killed."""
import re
import resource

from server import *

JOBS = 200
HUGE = 65536  # the most ranks of a job by default
PER_JOB_KIB = 16  # more than a small job; the arrays of a huge one would be 4 MiB


class RanksTest(ServerTest):
    def register_all(self, server, size, ranks):
        """Many requests at once on one connection."""
        connection = self.connect(server)
        for _ in range(JOBS):
            connection.send("POST", "/register_job", job_info(size))
        ids = [self.expect(connection.receive(), 200).json for _ in range(JOBS)]
        for rank in ranks:
            for job_id in ids:
                connection.send("POST", f"/register_rank/{job_id}",
                                Job(job_id, size, 1, 1).rank(rank))
            for _ in ids:
                self.expect(connection.receive(), 200)
        return ids

    def memory(self, server):
        """Returns the pages that were written, the addresses that were reserved (KiB), and the
        mappings, of which Linux allows a process 65,530."""
        with open(f"/proc/{server.process.pid}/status") as file:
            status = file.read()
        with open(f"/proc/{server.process.pid}/maps") as maps:
            count = sum(1 for _ in maps)
        return [int(re.search(name + r":\s+(\d+)", status).group(1))
                for name in ("RssAnon", "VmData")] + [count]

    def memories(self, size, ranks):
        """Checks after registering, after an orderly end, and after a kill."""
        for file in self.path.glob("harpe.db*"):
            file.unlink()
        found = []
        server = self.start("--no-dump")
        ids = self.register_all(server, size, ranks)
        found.append(self.memory(server))
        for number in (signal.SIGTERM, signal.SIGKILL):
            server.stop(number)
            server = self.start("--no-dump")
            shown = server.get(f"/jobs/{ids[-1]}").json
            self.assertEqual(shown["ranks_registered"], len(ranks))
            self.assertEqual([r["rank"] for r in shown["ranks"] if r["state"] != "unknown"],
                             sorted(ranks))
            self.assertEqual(len(shown["ranks"]), size)
            found.append(self.memory(server))
        self.assertEqual(server.stop(), 0)
        return found

    def compare(self, ranks):
        small = self.memories(max(len(ranks), 1), list(range(len(ranks))))
        huge = self.memories(HUGE, ranks)
        for before, after in zip(small, huge):
            with self.subTest(small=before, huge=after):
                self.assertLess(after[0] - before[0], JOBS * PER_JOB_KIB + 8192)
                self.assertLess(after[1] - before[1], JOBS * PER_JOB_KIB + 16384)
                self.assertLess(after[2] - before[2], JOBS // 2)

    def test_ranks_that_are_only_announced_cost_nothing(self):
        self.compare([])

    def test_a_rank_costs_the_same_wherever_it_is(self):
        self.compare([HUGE - 1])
        self.compare([0, 4097, 30000])


class ConnectionsTest(ServerTest):
    def warnings(self, server):
        return [line for line in server.log().splitlines() if "connections at once" in line]

    def test_a_job_with_more_ranks_than_connections_is_told(self):
        server = self.start("--set", "max_connections=40")
        self.assertEqual(server.metric("harpe_http_connections_max"), 40)
        register(server, 40, ranks=False)
        self.assertEqual(self.warnings(server), [])
        job = register(server, 41, ranks=False)
        line, = self.warnings(server)
        for word in (job.id, "41 ranks", "40 connections", "ulimit -Hn", "max_connections"):
            self.assertIn(word, line)

    def test_the_limit_of_files_is_raised_and_what_it_allows_is_told(self):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # 256 files are for other purposes, and 64 connections are reserved.
        for soft, limit, expected in ((300, 1000, 680), (64, 5000, 4680), (100, 100, 50)):
            with self.subTest(soft=soft, hard=limit):
                self.assertLessEqual(limit, hard)
                server = self.start("--store", "memory", "--no-dump", limits=(soft, limit))
                with open(f"/proc/{server.process.pid}/limits") as limits:
                    found = re.search(r"Max open files +(\d+) +(\d+)", limits.read())
                self.assertEqual(found.groups(), (str(limit), str(limit)))
                self.assertEqual(server.metric("harpe_http_connections_max"), expected)
                self.assertEqual(len(self.warnings(server)), expected < 4096, server.log())
                if expected < 4096:
                    self.assertIn(f"only {expected} connections at once", server.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
