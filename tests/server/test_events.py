#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The server reports changes of jobs as they happen: server-sent events over real sockets, from a
real `harpe serve`."""
from event_stream import Stream
from server import *


class Events(ServerTest):
    def follow(self, server, target="/events", last_id=None):
        stream = Stream(self.connect(server), target, last_id)
        self.expect(stream.answer, 200)
        self.assertEqual(stream.answer.headers["content-type"], "text/event-stream")
        return stream

    def follow_job(self, server, job, **more):
        return self.follow(server, f"/jobs/{job.id}/events", **more)

    def register(self, server, **more):
        """Returns a job whose scheduler has been created. The question for its frontier is answered
        after that."""
        job = register(server, **more)
        server.get(f"/jobs/{job.id}/frontier")
        return job

    def drain(self, stream):
        """Waits until nothing happens any more."""
        while stream.next(1):
            pass

    def test_all_jobs_come_first_and_then_only_those_that_change(self):
        server = self.start(plan=plan_for(2))
        old = self.register(server, pp=2)
        other = register(server, pp=2, ranks=False, job_metadata="b")
        stream = self.follow(server)
        name, first = stream.next()
        self.assertEqual((name, first["whole"]), ("jobs", True))
        self.assertEqual([job["job_id"] for job in first["jobs"]], [other.id, old.id])
        self.drain(stream)
        self.expect(server.post(f"/register_rank/{other.id}", other.rank(1)), 200)
        _, changed = stream.next()
        self.assertFalse(changed["whole"])
        self.assertEqual([(job["job_id"], job["ranks_registered"]) for job in changed["jobs"]],
                         [(other.id, 1)])
        self.assertIsNone(stream.next(0.6))

    def test_a_long_first_event_is_whole_whatever_happens_meanwhile(self):
        """The event is created in pieces of some 64 KiB, and its reader sees one event."""
        server = self.start("--set", "max_connections=1000")
        ids = register_many(server, 3000, job_metadata="m" * 200)
        connection = self.ask_and_not_read(server, "/events")
        self.assertTrue(connection.recv(1, socket.MSG_PEEK))  # it has begun
        job, = register_many(server, 1, job_metadata="new")
        gone = (ids[0], ids[1500], ids[-1])
        for one in gone:
            self.expect(server.call("DELETE", f"/jobs/{one}"), 200)
        reader = Stream(Connection(server.port, connected=connection), target=None)
        self.expect(reader.answer, 200)
        name, first = reader.next()
        told = [row["job_id"] for row in first["jobs"]]
        self.assertEqual((name, first["whole"], first["gone"]), ("jobs", True, []))
        self.assertEqual(len(told), len(set(told)))
        newest_first = ids[::-1]
        places = [newest_first.index(one) for one in told if one != job]
        self.assertEqual(places, sorted(places))
        self.assertLessEqual(set(ids) - set(gone), set(told))
        known = set(told)
        while job not in known or known & set(gone):
            _, changed = reader.next()
            self.assertFalse(changed["whole"])
            known |= {row["job_id"] for row in changed["jobs"]}
            known -= set(changed["gone"])
        self.assertEqual(known, (set(ids) | {job}) - set(gone))

    def test_nobody_waits_for_a_long_first_event(self):
        """The first event of 4000 jobs is not created in one piece: another request is answered
        before the event has been read, and that answer does not wait for its end."""
        server = self.start("--set", "max_connections=1000")
        register_many(server, 4000, job_metadata="m" * 200)
        stalled = [self.ask_and_not_read(server, "/events") for _ in range(6)]
        for one in stalled:
            self.assertTrue(one.recv(1))
        # Each event would be 3 MB if it were created at once.
        self.assertLess(server.metric("harpe_http_unread_bytes"), 6 * (1 << 19))
        stream = self.follow(server)
        self.assertEqual(len(stream.next()[1]["jobs"]), 4000)

    def test_ranks_are_told_by_state(self):
        server = self.start(plan=plan_for(5))
        job = register(server, pp=5, ranks=False)
        stream = self.follow_job(server, job)
        states = lambda: stream.next()[1]["rank_states"]
        self.assertEqual(states(), {"unknown": "0-4", "registered": "", "asking": "", "served": "",
                                    "reported": "", "ended": ""})
        for rank in (1, 2, 4):
            self.expect(server.post(f"/register_rank/{job.id}", job.rank(rank)), 200)
        shown, _ = stream.until(lambda row: row["rank_states"]["registered"] == "1-2,4")
        self.assertEqual(shown["rank_states"]["unknown"], "0,3")
        held = self.ask(server, job, 2)
        stream.until(lambda row: row["rank_states"]["asking"] == "2")
        held.close()
        stream.until(lambda row: row["rank_states"]["asking"] == "")

    def test_a_round_is_followed_from_asking_to_results(self):
        plan = plan_for(2)
        server = self.start(plan=plan)
        job = register(server, pp=2)
        stream = self.follow_job(server, job)
        held = [self.ask(server, job, rank) for rank in range(2)]
        for rank, connection in enumerate(held):
            self.expect(connection.receive(), 200, schedule_of(plan, rank))
        shown, _ = stream.until(lambda row: row["round"] == 0)
        self.assertEqual((shown["state"], shown["rank_states"]["served"]), ("running", "0-1"))
        self.expect(server.post(f"/result/{job.id}", result_of(0)), 200)
        stream.until(lambda row: row["rank_states"]["reported"] == "0")

    def test_a_burst_is_told_in_few_events(self):
        server = self.start(plan=plan_for(64))
        job = register(server, pp=64, ranks=False)
        stream = self.follow_job(server, job)
        stream.next()
        started = time.monotonic()
        for rank in range(64):
            self.expect(server.post(f"/register_rank/{job.id}", job.rank(rank)), 200)
        _, events = stream.until(lambda row: row["ranks_registered"] == 64)
        self.assertLessEqual(events, 3 + (time.monotonic() - started) / 0.2)

    def test_looking_is_no_change(self):
        server = self.start()
        job = self.register(server)
        stream = self.follow(server)
        self.drain(stream)
        for target in ("/jobs", f"/jobs/{job.id}", f"/jobs/{job.id}/frontier", "/metrics"):
            server.get(target)
        self.assertIsNone(stream.next(0.6))

    def test_an_evicted_job_ends_its_stream_and_leaves_the_list(self):
        server = self.start()
        job, stays = register(server), register(server)
        of_job, of_all = self.follow_job(server, job), self.follow(server)
        of_job.next(), of_all.next()
        self.expect(server.call("DELETE", f"/jobs/{job.id}"), 200)
        while (event := of_job.next())[0] != "end":
            pass
        end = event[1]
        self.assertIn("evicted", end["detail"])
        self.assertTrue(of_job.is_closed())
        gone, _ = of_all.until(lambda data: data["gone"])
        self.assertEqual((gone["whole"], gone["gone"]), (False, [job.id]))
        again = self.follow(server, last_id=of_all.last_id)
        self.expect(server.post(f"/register_rank/{stays.id}", stays.rank(0)), 200)
        self.assertEqual(again.next()[1]["gone"], [])
        self.expect_detail(server.get(f"/jobs/{job.id}/events"), 410, "evicted")
        self.expect_detail(server.get("/jobs/nobody/events"), 404, "nobody")

    def test_who_comes_back_hears_what_was_missed(self):
        server = self.start()
        known, changes = self.register(server), register(server, ranks=False)
        stream = self.follow(server)
        self.drain(stream)
        stream.connection.close()
        self.expect(server.post(f"/register_rank/{changes.id}", changes.rank(0)), 200)
        again = self.follow(server, last_id=stream.last_id)
        _, missed = again.next()
        self.assertEqual([job["job_id"] for job in missed["jobs"]], [changes.id])
        # Another server, or this one after a restart, begins with all jobs.
        server.kill()
        anew = self.follow(self.start(), last_id=again.last_id)
        _, whole = anew.next()
        self.assertTrue(whole["whole"])
        self.assertEqual({job["job_id"] for job in whole["jobs"]}, {known.id, changes.id})

    def test_a_server_that_stops_says_so(self):
        server = self.start()
        stream = self.follow(server)
        stream.next()
        self.assertEqual(server.stop(), 0)
        self.assertEqual(stream.next()[0], "end")
        self.assertTrue(stream.is_closed())

    def test_only_so_many_look_on_and_training_goes_on(self):
        server = self.start()
        self.assertNotIn("content-length", server.call("HEAD", "/events").headers)
        streams = [self.follow(server) for _ in range(50)]
        self.expect_detail(server.get("/events"), 503, "too many")
        job = register(server)
        self.expect(server.get(f"/schedule/{job.id}?rank=0"), 200)
        for stream in streams:
            stream.until(lambda data: data["jobs"])
        self.assertEqual(server.metric("harpe_http_streams"), 50)
        streams.pop().connection.close()
        self.wait_until(lambda: server.metric("harpe_http_streams") == 49, "the stream is forgotten")
        self.follow(server)

    def test_a_body_is_not_kept_with_its_stream(self):
        server = self.start()
        for _ in range(3):
            connection = self.connect(server)
            connection.send("GET", "/events", b" " * (8 << 20))
            self.expect(connection.receive(), 200)
        self.assertEqual(server.metric("harpe_http_body_bytes"), 0)

    def test_a_reader_that_reads_nothing_is_let_go(self):
        server = self.start("--set", "request_timeout=1")
        connection = self.connect(server)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.send("GET", "/events")
        jobs = [register(server, ranks=False) for _ in range(200)]
        writer = self.connect(server)

        def is_let_go():
            for job in jobs:
                writer.send("POST", f"/register_rank/{job.id}", job.rank(0)).receive()
            time.sleep(0.2)
            return server.metric("harpe_http_connections") == 2
        self.wait_until(is_let_go, "the stream is closed")
        register(server)

    def test_readers_that_read_nothing_do_not_hold_up_the_list_of_others(self):
        server = self.start("--set", "request_timeout=3600")
        register_many(server, 2000, job_metadata="m" * 200)
        for _ in range(3):
            self.assertTrue(self.ask_and_not_read(server, "/events").recv(10))
        self.assertEqual(len(self.follow(server).next()[1]["jobs"]), 2000)


if __name__ == "__main__":
    unittest.main()
