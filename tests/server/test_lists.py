#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Long answers: lists of jobs in pages and in pieces, jobs of many ranks, and clients that do not
read. Uses Python's own HTTP client, over real sockets, with a real `harpe serve`."""
import concurrent.futures
import http.client
import pathlib
import re
import resource

from event_stream import Stream
from server import *

METADATA_BYTES = 65536


class Lists(ServerTest):
    def read(self, server, target, version=11, method="GET"):
        """Returns status, headers and body from Python's client, which checks that chunks are
        complete."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
        connection._http_vsn, connection._http_vsn_str = version, f"HTTP/1.{version % 10}"
        connection.request(method, target)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, answer.headers, body

    def pages(self, server, limit, in_between=lambda page: None):
        """Returns the ids of every page, by following `next`."""
        after, pages = "", []
        while after is not None:
            _, _, body = self.read(server, f"/jobs?limit={limit}" + (after and f"&after={after}"))
            answer = json.loads(body)
            pages.append([job["job_id"] for job in answer["jobs"]])
            in_between(len(pages))
            after = answer["next"]
        return pages


class Pages(Lists):
    def test_a_list_without_parameters_has_the_shape_that_it_always_had(self):
        server = self.start()
        self.assertEqual(server.get("/jobs").json, {"jobs": [], "count": 0, "next": None})
        ids = register_many(server, 3)
        answer = self.expect(server.get("/jobs"), 200)
        self.assertIn("content-length", answer.headers)
        self.assertEqual([job["job_id"] for job in answer.json["jobs"]], ids[::-1])
        self.assertEqual((answer.json["count"], answer.json["next"]), (3, None))
        self.assertEqual([job["job_id"] for job in server.get("/jobs?offset=1&limit=1").json["jobs"]],
                         [ids[1]])
        self.assertEqual(server.get("/jobs?limit=0").json, {"jobs": [], "count": 3, "next": None})
        for query, field in (("limit=-1", "limit"), ("limit=x", "limit"), ("offset=-1", "offset"),
                             ("limit=", "limit"), ("limit=5&offset=1.5", "offset")):
            refused = self.expect(server.get(f"/jobs?{query}"), 422)
            self.assertEqual([one["loc"] for one in refused.json["detail"]], [["query", field]])

    def test_pages_of_any_size_join_to_the_whole_list(self):
        server = self.start()
        ids = register_many(server, 150)
        for limit in (1, 7, 50, 75, 149, 150, 151, 100000):
            pages = self.pages(server, limit)
            self.assertEqual([id_ for page in pages for id_ in page], ids[::-1], limit)
            self.assertEqual(len(pages), -(-150 // limit) if limit < 150 else 1, limit)

    def test_a_thousand_jobs_are_shown_unless_more_are_asked_for(self):
        server = self.start()
        ids = register_many(server, 1005)
        _, _, body = self.read(server, "/jobs")
        first = json.loads(body)
        self.assertEqual([job["job_id"] for job in first["jobs"]], ids[:4:-1])
        self.assertEqual(first["count"], 1005)
        _, _, body = self.read(server, f"/jobs?after={first['next']}")
        rest = json.loads(body)
        self.assertEqual([job["job_id"] for job in rest["jobs"]], ids[4::-1])
        self.assertIsNone(rest["next"])
        _, _, body = self.read(server, "/jobs?limit=100000")
        self.assertEqual([job["job_id"] for job in json.loads(body)["jobs"]], ids[::-1])

    def test_pages_are_stable_while_jobs_come_and_go(self):
        server = self.start()
        ids = register_many(server, 60)

        def change(page):
            register_many(server, 2)
            # The last job of this page, where the next page begins, and a job of a later page.
            for gone in (ids[-10 * page], ids[-10 * page - 5] if page < 5 else None):
                if gone:
                    self.expect(server.call("DELETE", f"/jobs/{gone}"), 200)
                    evicted.add(gone)
        evicted = set()
        pages = self.pages(server, 10, change)
        listed = [id_ for page in pages for id_ in page]
        self.assertEqual(len(listed), len(set(listed)))
        self.assertEqual([id_ for id_ in listed if id_ not in evicted],
                         [id_ for id_ in ids[::-1] if id_ not in evicted])

    def test_a_place_stays_good_over_a_restart(self):
        server = self.start()
        ids = register_many(server, 20)
        time.sleep(1.1)  # a position distinguishes seconds
        ids += register_many(server, 20)
        after = server.get("/jobs?limit=30").json["next"]
        server.kill()
        again = self.start()
        rest = [job["job_id"] for job in again.get(f"/jobs?after={after}").json["jobs"]]
        self.assertLessEqual(set(ids[:10]), set(rest))
        self.assertEqual(set(rest) & set(ids[20:]), set())

    def test_what_is_no_place_is_refused(self):
        server = self.start()
        register_many(server, 2)
        for bad in ("", "1", "x.y", "1.", ".1", "1.2.3", "99999999999999999999.1", "1.2x", "-"):
            answer = self.expect(server.get(f"/jobs?after={bad}"), 422)
            self.assertEqual(answer.json["detail"][0]["loc"], ["query", "after"], bad)
        self.assertEqual(server.get("/jobs?after=-5.3").json["jobs"], [])
        self.assertEqual(len(server.get("/jobs?after=99999999999.0").json["jobs"]), 2)

    def test_metadata_is_short_in_lists_and_whole_in_its_job(self):
        server = self.start()
        whole = {"long": "é" * (METADATA_BYTES // 2), "exact": "x" * 200, "short": "m", "none": None,
                 "control": "\x01" * METADATA_BYTES}
        ids = {name: register_many(server, 1, job_metadata=text)[0] for name, text in whole.items()}
        shown = {job["job_id"]: job for job in server.get("/jobs").json["jobs"]}
        shortened = {name for name, id_ in ids.items()
                     if shown[id_].get("job_metadata_is_shortened") is True}
        self.assertEqual(shortened, {"long", "control"})
        self.assertEqual(shown[ids["long"]]["job_metadata"], "é" * 100 + "...")
        self.assertEqual(shown[ids["control"]]["job_metadata"], "\x01" * 200 + "...")
        for name in ("exact", "short", "none"):
            self.assertEqual(shown[ids[name]]["job_metadata"], whole[name])
        for name, id_ in ids.items():
            job = server.get(f"/jobs/{id_}").json
            self.assertEqual(job["job_metadata"], whole[name], name)
            self.assertNotIn("job_metadata_is_shortened", job)


class Pieces(Lists):
    def test_old_and_new_clients_get_the_same_long_list(self):
        server = self.start()
        register_many(server, 300, job_metadata="m" * 500)
        _, headers, new = self.read(server, "/jobs")
        self.assertEqual(headers["transfer-encoding"], "chunked")
        _, headers, old = self.read(server, "/jobs", version=10)
        self.assertNotIn("transfer-encoding", headers)
        self.assertEqual(json.loads(new), json.loads(old))
        status, headers, body = self.read(server, "/jobs", method="HEAD")
        self.assertEqual((status, body), (200, b""))

    def test_a_connection_goes_on_after_a_long_list(self):
        server = self.start()
        register_many(server, 300, job_metadata="m" * 500)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
        connection.connect()
        own = connection.sock.getsockname()
        for method, target, length in [("GET", "/jobs", 300), ("HEAD", "/jobs", None),
                                       ("GET", "/healthz", None)] * 3:
            connection.request(method, target)
            answer = connection.getresponse()
            body = answer.read()
            self.assertEqual((answer.status, connection.sock.getsockname()), (200, own))
            if length:
                self.assertEqual(len(json.loads(body)["jobs"]), length)
        connection.close()

    def test_who_has_closed_its_side_gets_the_whole_list(self):
        server = self.start()
        register_many(server, 300, job_metadata="m" * 500)
        for version in ("1.0", "1.1"):
            connection = self.connect(server).socket
            connection.sendall(f"GET /jobs HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            self.assertIn(b'],"count":300,"next":null}', received)

    def test_a_job_of_many_ranks_is_shown_whole(self):
        server = self.start(plan=plan_for(1))
        job = register(server, dp=20000, ranks=False)
        for rank in (0, 777, 19999):
            self.expect(server.post(f"/register_rank/{job.id}", job.rank(rank)), 200)
        _, headers, body = self.read(server, f"/jobs/{job.id}")
        self.assertEqual(headers["transfer-encoding"], "chunked")
        ranks = json.loads(body)["ranks"]
        self.assertEqual([rank["rank"] for rank in ranks], list(range(20000)))
        self.assertEqual([rank["rank"] for rank in ranks if rank["state"] != "unknown"],
                         [0, 777, 19999])

    def test_an_answer_that_cannot_be_completed_is_not_taken_for_whole(self):
        server = self.start()
        job = register(server, dp=60000, ranks=False)
        connection = self.ask_and_not_read(server, f"/jobs/{job.id}")
        first = connection.recv(100)
        self.assertTrue(first.startswith(b"HTTP/1.1 200"), first)
        self.expect(server.call("DELETE", f"/jobs/{job.id}"), 200)
        received = first
        try:
            while more := connection.recv(1 << 16):
                received += more
        except ConnectionResetError:
            pass
        self.assertFalse(received.endswith(b"0\r\n\r\n"), received[-100:])
        self.assertNotIn(b"]}", received)


def memory_mib(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) // 1024


class Unread(Lists):
    """Clients that send requests and do not read."""

    def test_lists_that_nobody_reads_take_no_memory(self):
        # AddressSanitizer keeps freed memory. This limit makes that amount negligible.
        server = self.start(environment={
            "ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64:"
                            "allocator_release_to_os_interval_ms=0"})
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: register_many(server, 100, job_metadata="m" * METADATA_BYTES),
                          range(4)))
            # The sockets hold about 1 MiB of a list.
            list(pool.map(lambda _: register_many(server, 400, job_metadata="m" * 200), range(4)))
        before = memory_mib(server)
        readers = [self.ask_and_not_read(server, target) for _ in range(6)
                   for target in ("/jobs", "/jobs?limit=100000")]
        self.wait_until(lambda: server.metric("harpe_http_unread_bytes") > 0, "answers are held")
        self.assertEqual(len(self.pages(server, 500)), 4)
        self.expect(server.get("/healthz"), 200)
        # 12 complete lists with the whole metadata would be 12 x 25 MiB.
        self.assertLess(memory_mib(server), before + 60)
        for reader in readers:
            reader.close()
        self.wait_until(lambda: server.metric("harpe_http_unread_bytes") == 0, "they are forgotten")


class Onlookers(Lists):
    """The largest permitted number of clients, beside hostile clients: a sample of
    bench/onlookers."""

    RANKS, ROUNDS, STREAMS = 8, 5, 50

    def setUp(self):
        super().setUp()
        # About 1300 connections are open at the end; many shells allow 1024 files.
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)

    def hold(self, server, target):
        connection = self.connect(server)
        connection.send("GET", target)
        return connection

    def hostile(self, server):
        """Sends slow headers, requests for ranks that are not registered, and requests for lists
        that it does not read."""
        strange = register(server, dp=100, ranks=False)
        for rank in range(100):
            self.hold(server, f"/schedule/{strange.id}?rank={rank}")
            self.connect(server).socket.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        for _ in range(12):
            for target in ("/jobs?limit=100000", "/metrics", f"/jobs/{strange.id}"):
                self.hold(server, target)

    def run_round(self, server, job, round_):
        asking = [self.ask(server, job, rank, round_) for rank in range(self.RANKS)]
        for rank, connection in enumerate(asking):
            self.expect(connection.receive(), 200)
            self.expect(server.post(f"/result/{job.id}?round={round_}", result_of(rank)), 200)

    def test_rounds_go_on_and_every_onlooker_hears_of_them(self):
        server = self.start("--set", "request_timeout=3600", plan=plan_for(self.RANKS))
        register_many(server, 50, job_metadata="m" * METADATA_BYTES)
        job = register(server, pp=self.RANKS)
        streams = [Stream(self.connect(server)) for _ in range(self.STREAMS)]
        for stream in streams:
            self.assertTrue(stream.next()[1]["whole"])
        for _ in range(10):
            self.expect_detail(server.get("/events"), 503, "too many")
        for round_ in range(self.ROUNDS):
            self.hostile(server)
            self.run_round(server, job, round_)
        last = self.ROUNDS - 1
        for stream in streams:
            stream.until(lambda data: any(
                (row["job_id"], row["round"], row["ranks_reported"]) == (job.id, last, self.RANKS)
                for row in data["jobs"]))
        self.expect(server.get("/healthz"), 200)


class Full(ServerTest):
    """The limit of held requests."""

    def test_who_looks_is_answered_while_all_connections_are_held(self):
        server = self.start("--set", "max_connections=16", plan=plan_for(18))
        job = register(server, pp=18)
        held = [self.ask(server, job, rank) for rank in range(16)]
        self.wait_for_waiting(server, job, 16)
        idle = [self.connect(server) for _ in range(100)]
        for target in ("/healthz", "/metrics", "/jobs", f"/jobs/{job.id}", "/info", "/"):
            self.expect(server.get(target), 200)
        stream = Stream(self.connect(server))
        self.assertTrue(stream.next()[1]["whole"])
        self.expect(self.ask(server, job, 16).receive(), 503)
        self.assertEqual(server.get(f"/jobs/{job.id}").json["ranks_waiting"], 16)
        # A rank that gives up leaves a place for another.
        held[0].close()
        self.wait_for_waiting(server, job, 15)
        held[0] = self.ask(server, job, 17)
        self.wait_for_waiting(server, job, 16)
        self.assertTrue(all(one.is_held(0.01) for one in held))
        for one in idle:
            one.close()
