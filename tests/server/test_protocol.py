#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every row of the protocol and of its errors, over real sockets with a real `harpe serve`, as
published clients and broken clients send them: names, rounds, ids, 422 bodies, lost clients, restarts,
start and end. Every rule of jobs, ranks and results is in test_jobs*.c, every field in tests/pfo."""
import re
import shutil

from server import *

MISSING = {"msg": "field required", "type": "value_error.missing"}
INTEGER = {"msg": "value is not a valid integer", "type": "type_error.integer"}
DICT = {"msg": "value is not a valid dict", "type": "type_error.dict"}


def problem(what, *place):
    return dict(what, loc=list(place))


def not_ge(limit, *place):
    return {"loc": list(place), "msg": f"ensure this value is greater than or equal to {limit}",
            "type": "value_error.number.not_ge", "ctx": {"limit_value": limit}}


class OtherSites(ServerTest):
    """Requests that a browser sends for a page of another site. The server has no token."""

    def test_their_pages_change_nothing(self):
        server = self.start()
        job = register(server)
        for origin in ("http://evil.example", "null", f"http://127.0.0.1:{server.port + 1}"):
            for method, target in (("POST", "/register_job"), ("POST", f"/straggler/{job.id}"),
                                   ("DELETE", f"/jobs/{job.id}")):
                answer = server.call(method, target, job_info(), {"Origin": origin})
                self.expect_detail(answer, 403, "another site")
        self.expect(server.post("/register_job", job_info(), Origin="http://localhost"), 200)
        self.assertEqual(len(server.get("/jobs").json["jobs"]), 2)

    # A page can set any User-Agent, but no other Host.
    AGENTS = ("Mozilla/5.0 (X11)", "python-httpx/0.27", "x", None)

    def ask(self, server, host, agent, method="GET", target="/jobs"):
        connection = self.connect(server)
        line = "" if agent is None else f"User-Agent: {agent}\r\n"
        connection.socket.sendall(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n"
                                  f"{line}Content-Length: 0\r\n\r\n".encode())
        try:
            return connection.receive()
        finally:
            connection.close()

    def check_hosts(self, server, hosts):
        for host, status in hosts:
            for agent in self.AGENTS:
                with self.subTest(host=host, agent=agent):
                    self.expect(self.ask(server, host, agent), status)

    def test_a_foreign_name_is_refused(self):
        server = self.start()
        self.check_hosts(server, (
            ("evil.example", 403), ("evil.example:7787", 403), ("10.0.0.1", 403),
            ("localhost.evil.example", 403), ("notlocalhost", 403), ("127.0.0.1.evil.example", 403),
            ("127.evil.example", 403), ("[::1].evil.example", 403), ("[::1", 403), ("::1", 403),
            ("[fe80::1]", 403), ("localhost:80@evil.example", 403), ("127.0.0.1:x", 403),
            ("evil.example.", 403), ("a" * 300 + ".localhost", 403), (".", 403),
            ("[::ffff:10.0.0.1]", 403),
            ("127.0.0.1:1", 200), ("127.0.0.1", 200), ("127.1", 200), ("LocalHost:7787", 200),
            ("localhost.:7787", 200), ("pfo.localhost", 200), ("[::1]:7787", 200),
            ("[::ffff:127.0.0.1]:1", 200), ("0.0.0.0:7787", 200), ("", 200)))
        self.expect(server.get("/healthz", **{"User-Agent": "Mozilla/5.0", "Sec-Fetch-Site": "none"}), 200)
        self.expect(self.ask(server, "probe.example", None, "GET", "/healthz"), 200)

    def test_a_foreign_name_is_refused_to_every_method_and_route(self):
        server = self.start()
        job = register(server, pp=1)
        for method, target in (
                ("GET", "/info"), ("GET", "/metrics"), ("GET", "/events"), ("GET", "/openapi.json"),
                ("HEAD", "/jobs"), ("OPTIONS", "/jobs"), ("PUT", "/jobs"), ("GET", "/nowhere"),
                ("GET", f"/jobs/{job.id}"), ("GET", f"/schedule/{job.id}?rank=0"),
                ("POST", "/register_job"), ("POST", f"/straggler/{job.id}"),
                ("DELETE", f"/jobs/{job.id}")):
            with self.subTest(method=method, target=target):
                connection = self.connect(server)
                connection.socket.sendall(f"{method} {target} HTTP/1.1\r\nHost: evil.example\r\n"
                                          "User-Agent: x\r\nContent-Length: 0\r\n\r\n".encode())
                while b"\r\n\r\n" not in connection.pending:
                    connection._more()
                self.assertTrue(connection.pending.startswith(b"HTTP/1.1 403 "),
                                connection.pending)
                connection.close()
        self.expect(server.get(f"/schedule/{job.id}?rank=0"), 200)
        self.assertEqual(len(server.get("/jobs").json["jobs"]), 1)

    def test_names_of_proxies_are_a_setting(self):
        server = self.start("--allowed-hosts", "pfo.example, .cluster.local,10.0.0.1")
        self.check_hosts(server, (
            ("pfo.example", 200), ("PFO.example:443", 200), ("a.b.cluster.local", 200),
            ("10.0.0.1:7787", 200), ("localhost", 200),
            ("cluster.local", 403), ("evilcluster.local", 403), ("x.pfo.example", 403),
            ("example", 403), ("10.0.0.11", 403)))
        server.kill()
        self.check_hosts(self.start("--allowed-hosts", "*"), (("evil.example", 200),))

    def test_a_server_for_the_network_knows_addresses_and_its_own_name(self):
        server = self.start("--listen", "0.0.0.0", "--insecure")
        own = socket.gethostname()
        self.check_hosts(server, (
            ("10.1.2.3:7787", 200), ("[fe80::1]:7787", 200), (own, 200), (own.split(".")[0], 200),
            ("localhost", 200), ("127.0.0.1", 200), ("evil.example", 403),
            (own + ".evil.example", 403), ("1.2.3.4.evil.example", 403)))

    def test_no_browser_takes_a_ranks_place(self):
        server = self.start()
        job = register(server, pp=1)
        for name, value in (("User-Agent", "Mozilla/5.0"), ("Sec-Fetch-Site", "same-origin"),
                            ("Origin", "http://evil.example")):
            answer = server.call("GET", f"/schedule/{job.id}?rank=0", None, {name: value})
            self.expect_detail(answer, 403, "training processes")
        self.expect(server.get(f"/schedule/{job.id}?rank=0"), 200)

    def test_no_page_of_another_site_reaches_any_route(self):
        """Also with a token. A page in a frame would hold streams, of which there are few."""
        (self.path / "token").write_text("secret\n")
        for arguments in ((), ("--token-file", self.path / "token")):
            server = self.start(*arguments)
            headers = {"User-Agent": "Mozilla/5.0", "Authorization": "Bearer secret"}
            for site in ("cross-site", "same-site"):
                for dest in ("iframe", "empty", "image", "document"):
                    for target in ("/events", "/jobs", "/metrics", "/healthz", "/nowhere", "/",
                                   "/fleet", "/openapi.json"):
                        with self.subTest(site=site, dest=dest, target=target):
                            answer = server.get(target, **headers, **{
                                "Sec-Fetch-Site": site, "Sec-Fetch-Dest": dest})
                            if target == "/" and dest == "document":
                                self.expect(answer, 200)  # a link in another page
                            else:
                                self.expect_detail(answer, 403, "page of another site")
            for site in ("same-origin", "none"):
                for target in ("/jobs", "/healthz", "/"):
                    self.expect(server.get(target, **headers, **{"Sec-Fetch-Site": site}), 200)
            if not arguments:
                answer = server.get("/jobs", Origin="http://evil.example")
                self.expect_detail(answer, 403, "page of another site")
            connection = self.connect(server)
            connection.send("GET", "/events", headers=headers)
            while b"\r\n\r\n" not in connection.pending:
                connection._more()
            self.assertIn(b"content-security-policy: frame-ancestors 'none'", connection.pending)
            server.kill()

    def test_with_a_token_any_name_and_any_origin_will_do(self):
        (self.path / "token").write_text("secret\n")
        server = self.start("--token-file", self.path / "token")
        connection = self.connect(server)
        connection.socket.sendall(b"GET /jobs HTTP/1.1\r\nHost: pfo.example\r\n"
                                  b"Origin: https://pfo.example\r\n"
                                  b"Authorization: Bearer secret\r\n\r\n")
        self.expect(connection.receive(), 200)


class Rounds(ServerTest):
    def test_a_stage_plan_serves_data_and_tensor_parallel_ranks(self):
        plan = plan_for(2)
        server = self.start(plan=plan, scheduler="PointSolution3D")
        for job in (register(server, 2, dp, 2) for dp in (1, 2)):
            for k in range(2):
                held = [self.ask(server, job, r) for r in range(job.size - 1)]
                self.wait_for_waiting(server, job, job.size - 1)
                self.assertTrue(held[0].is_held(0.1))
                held.append(self.ask(server, job, job.size - 1))
                for r, connection in enumerate(held):
                    answer = self.expect(connection.receive(), 200,
                                         schedule_of(plan, r, job.rank(r)["pp_rank"]))
                    self.assertEqual(answer.headers["harpe-round"], str(k))
                    self.assertEqual(answer.headers["content-type"], "application/json")
                for r in reversed(range(job.size)):
                    self.expect(server.post(f"/result/{job.id}", result_of(r, k)), 200)


class Results(ServerTest):
    def test_no_dump_writes_none(self):
        server = self.start("--no-dump")
        job = register(server)
        self.expect(self.ask(server, job, 0).receive(), 200)
        self.expect(server.post(f"/result/{job.id}", result_of(0)), 200)
        self.assertEqual(server.stop(), 0)
        self.assertFalse((self.path / "dump").exists())


class Ids(ServerTest):
    def test_ids_come_raw_or_percent_encoded(self):
        server = self.start()
        job = register(server, ranks=False)
        for form in (job.id, job.id.replace("+", "%2B"), job.id.replace("+", "%2b"),
                     "".join(f"%{ord(c):02x}" for c in job.id)):
            self.expect(server.post(f"/register_rank/{form}", job.rank(0)), 200)

    def test_metadata_is_shown_as_given_and_harmless_in_the_id(self):
        server = self.start()
        for metadata, part in (("gpt3,lr=1e-4:a@b.c", "gpt3,lr=1e-4:a@b.c"),
                               ("a b/c", "a_b_c"), ("../../etc/passwd", ".._.._etc_passwd"),
                               ("Grüße\n", "Gr__e_"), ("x" * 300, "x" * 128)):
            job = register(server, job_metadata=metadata)
            self.assertTrue(job.id.endswith("+PointSolution+" + part), job.id)
            self.expect(self.ask(server, job, 0).receive(), 200)
            shown = self.expect(server.get(f"/jobs/{job.id}"), 200).json
            self.assertEqual(shown["job_metadata"], metadata)
        for metadata in ("", None):
            self.assertTrue(register(server, job_metadata=metadata).id.endswith("PointSolution"))
        self.assertEqual(server.stop(), 0)
        outside = {p.name for p in self.path.iterdir()} - {"dump", "plan.py"}
        self.assertFalse({n for n in outside if not n.startswith(("harpe.db", "serve-"))}, outside)


class Registration(ServerTest):
    def test_bodies_are_json_whatever_the_content_type_of_json_says(self):
        server = self.start()
        for content_type in ("application/json", "application/json; charset=utf-8",
                             "application/vnd.api+json", None):
            headers = {"Content-Type": content_type} if content_type else {}
            self.expect(server.call("POST", "/register_job", job_info(), headers), 200)
        chunks = json.dumps(job_info()).encode()
        connection = self.connect(server)
        connection.send("POST", "/register_job", headers={"Transfer-Encoding": "chunked"})
        for part in chunks[:10], chunks[10:], b"":
            connection.socket.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        self.expect(connection.receive(), 200)


class Refusals(ServerTest):
    """The complete bodies of 422."""

    def refuse(self, answer, *problems):
        self.expect(answer, 422, {"detail": list(problems)})

    def test_bodies_that_are_no_object(self):
        server = self.start()
        for path in ("/register_job", "/register_rank/{}", "/result/{}"):
            path = path.format(register(server, ranks=False).id)
            self.refuse(server.post(path), problem(MISSING, "body"))
            self.refuse(server.post(path, "null"), problem(MISSING, "body"))
            for body in "[]", "3", '"text"':
                self.refuse(server.post(path, body), problem(DICT, "body"))
            doc = '{"pp_degree": 1,\n "dp_degree": }'
            at = doc.index("}")
            self.refuse(server.post(path, doc), {
                "loc": ["body", at], "type": "value_error.jsondecode",
                "msg": f"Expecting value: line 2 column 15 (char {at})",
                "ctx": {"msg": "Expecting value", "doc": doc, "pos": at, "lineno": 2,
                        "colno": 15}})
            answer = self.expect(server.post(path, b'{"a": "\xff\xfe"}'), 422)
            self.assertEqual(answer.json["detail"][0]["loc"][0], "body")
            self.expect(server.post(path, "[" * 10000), 422)

    def test_a_query_that_is_no_rank(self):
        server = self.start()
        path = f"/schedule/{register(server).id}"
        self.refuse(server.get(path), problem(MISSING, "query", "rank"))
        for bad in "x", "1.5", "", "true", "9" * 30:
            self.refuse(server.get(f"{path}?rank={bad}"), problem(INTEGER, "query", "rank"))
        self.refuse(server.get(f"{path}?rank=-1"), not_ge(0, "query", "rank"))
        self.refuse(server.get(f"{path}?rank=0&round=x"), problem(INTEGER, "query", "round"))

    def test_paths_and_methods_that_are_not_there(self):
        server = self.start()
        for path in ("/nothing", "/register_job/x/y", "/schedule", "/schedule/a/b",
                     "/register_rank/", "/../etc/passwd", "//register_job"):
            self.expect(server.get(path), 404, {"detail": "Not Found"})
        for method, path, allowed in (("GET", "/register_job", "POST"), ("PUT", "/info", "GET"),
                                      ("GET", "/register_rank/x", "POST"),
                                      ("POST", "/schedule/x", "GET"),
                                      ("DELETE", "/result/x", "POST")):
            answer = self.expect(server.call(method, path), 405, {"detail": "Method Not Allowed"})
            self.assertEqual(answer.headers["allow"], allowed)

    def head(self, server, path, status):
        """Checks the answer to HEAD. After it, the connection contains no data that was not
        announced."""
        connection = self.connect(server)
        connection.socket.sendall(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n".encode())
        received = b""
        while chunk := connection.socket.recv(1 << 16):
            received += chunk
        head, _, body = received.partition(b"\r\n\r\n")
        self.assertEqual((head.split()[1], body), (str(status).encode(), b""), (path, received))
        return head.decode().lower()

    def test_head_takes_nothing_from_a_rank(self):
        """The published server answers HEAD with 405 on all its four routes."""
        server = self.start(plan=plan_for(2))
        job = register(server, pp=2)
        for path, allowed in ((f"/schedule/{job.id}?rank=0", "get"),
                              (f"/schedule/{job.id}?rank=x", "get"), ("/schedule/none", "get"),
                              (f"/schedule/{job.id}?rank=1&round=0", "get"),
                              ("/register_job", "post"), (f"/register_rank/{job.id}", "post"),
                              (f"/result/{job.id}", "post")):
            self.assertIn(f"\r\nallow: {allowed}\r\n", self.head(server, path, 405) + "\r\n")
        self.assertEqual(server.get(f"/jobs/{job.id}").json["ranks_waiting"], 0)
        asked = [self.ask(server, job, 0)]
        self.wait_for_waiting(server, job, 1)
        for rank in range(2):
            self.head(server, f"/schedule/{job.id}?rank={rank}", 405)
        self.wait_for_waiting(server, job, 1)
        asked.append(self.ask(server, job, 1))
        for rank, connection in enumerate(asked):
            self.expect(connection.receive(), 200, schedule_of(plan_for(2), rank))

    def test_only_published_clients_are_refused_an_empty_schedule(self):
        """Published clients cannot run it. Other clients can."""
        server = self.start("--no-dump", scheduler="Perseus", args={})
        agent = {"User-Agent": "python-httpx/0.28.1"}
        job = register(server)
        self.expect_detail(server.get(f"/schedule/{job.id}?rank=0", **agent), 400,
                           "num_microbatches=N")
        empty = {"rank": 0, "frequencies": []}
        self.expect(server.get(f"/schedule/{job.id}?rank=0"), 200, empty)
        job = register(server)
        self.expect(server.get(f"/schedule/{job.id}?rank=0", **{"User-Agent": "curl/8"}), 200,
                    empty)
        told = register(server, job_metadata="num_microbatches=2")
        answer = self.expect(server.get(f"/schedule/{told.id}?rank=0", **agent), 200)
        self.assertEqual([entry[0] for entry in answer.json["frequencies"]],
                         ["forward", "backward"] * 2)

    def test_head_of_pages_is_that_of_get(self):
        server = self.start()
        job = register(server)
        for path in ("/", "/info", "/healthz", "/metrics", "/openapi.json", "/jobs",
                     f"/jobs/{job.id}", "/events"):
            self.head(server, path, 200)
        self.head(server, "/nothing", 404)


class Pages(ServerTest):
    def test_pages_answer(self):
        server = self.start()
        job = register(server)
        self.expect(server.get("/healthz"), 200)
        self.assertIsInstance(self.expect(server.get("/info"), 200).json, dict)
        jobs = self.expect(server.get("/jobs"), 200).json["jobs"]
        self.assertEqual([j["job_id"] for j in jobs], [job.id])
        paths = self.expect(server.get("/openapi.json"), 200).json["paths"]
        for path in ("/register_job", "/register_rank/{job_id}", "/schedule/{job_id}",
                     "/result/{job_id}"):
            self.assertIn(path, paths)
        metrics = self.expect(server.get("/metrics"), 200)
        self.assertTrue(metrics.headers["content-type"].startswith("text/plain"))
        self.assertIn(b"# TYPE ", metrics.body)

    def histogram(self, server, name, labels=""):
        """Returns the buckets of a histogram as (bound, count), its sum and its count."""
        text = server.get("/metrics").body.decode()
        self.assertIn(f"# TYPE {name} histogram\n", text)
        self.assertEqual(text.count(f"# HELP {name} "), 1)
        within = re.escape("{" + labels + ("," if labels else ""))
        buckets = re.findall(rf'^{name}_bucket{within}le="([^"]+)"}} (\d+)$', text, re.M)
        after = re.escape("{" + labels + "}") if labels else ""
        value = lambda what: float(re.search(rf"^{name}_{what}{after} (\S+)$", text, re.M).group(1))
        return [(float(b), int(c)) for b, c in buckets], value("sum"), value("count")

    def test_metrics_tell_how_long_requests_took(self):
        server = self.start(plan=plan_for(2))
        job = register(server, pp=2)
        early = self.ask(server, job, 0)
        self.wait_for_waiting(server, job, 1)
        time.sleep(0.3)
        self.expect(self.ask(server, job, 1).receive(), 200)
        self.expect(early.receive(), 200)
        self.expect(server.post("/result/nobody", result_of(0)), 404)
        requests = "harpe_http_request_duration_seconds"
        for route, calls in (("/register_job", 1), ("/register_rank/{job_id}", 2),
                             ("/result/{job_id}", 1), ("/plan/{job_id}", 0)):
            labels = f'method="POST",route="{route}"'
            buckets, total_s, count = self.histogram(server, requests, labels)
            self.assertEqual(count, calls, route)
            self.assertEqual(buckets[-1], (float("inf"), calls), route)
            self.assertEqual(sorted(buckets), buckets)
            self.assertLess(total_s, LIMIT_S)
            counts = [c for _, c in buckets]
            self.assertEqual(sorted(counts), counts)
        self.assertNotIn("/schedule", "".join(line for line in server.get(
            "/metrics").body.decode().splitlines() if line.startswith(requests)))
        buckets, total_s, count = self.histogram(server, "harpe_schedule_duration_seconds")
        self.assertEqual((count, buckets[-1]), (2, (float("inf"), 2)))
        self.assertEqual(dict(buckets)[3600.0], 2)
        self.assertGreater(total_s, 0.3)
        self.assertLessEqual(dict(buckets)[0.1], 1)


class Life(ServerTest):
    def test_kill_and_restart_in_the_middle_of_a_round(self):
        """Ranks that retry see one unbroken protocol, whenever the server dies."""
        plan = plan_for(4)
        servers = [self.start(plan=plan)]
        job = register(servers[0], pp=4)
        port, logs = servers[0].port, [[] for _ in range(4)]
        rounds = 12

        def insist(method, target, body=None):
            end = time.monotonic() + LIMIT_S
            while time.monotonic() < end:
                connection = None
                try:
                    connection = Connection(port)
                    answer = connection.send(method, target, body).receive()
                    if answer.status != 503:
                        return answer
                except OSError:
                    pass
                finally:
                    if connection:
                        connection.close()
                time.sleep(0.02)
            raise AssertionError(f"{method} {target}: no answer")

        def work(rank):
            for k in range(rounds):
                answer = insist("GET", f"/schedule/{job.id}?rank={rank}&round={k}")
                logs[rank].append((answer.status, answer.headers.get("harpe-round"), answer.body))
                answer = insist("POST", f"/result/{job.id}?round={k}", result_of(rank, k))
                logs[rank].append((answer.status, None, answer.body))
                time.sleep(0.03 * (rank + 1))

        threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(0.25)
            servers[-1].kill()
            servers.append(self.start(plan=plan, port=port))
        for thread in threads:
            thread.join(2 * LIMIT_S)
            self.assertFalse(thread.is_alive())
        for rank in range(4):
            expected = []
            for k in range(rounds):
                expected += [(200, str(k), schedule_of(plan, rank)), (200, None, None)]
            seen = [(s, r, json.loads(b)) for s, r, b in logs[rank]]
            self.assertEqual(seen, expected)
        shown = self.expect(servers[-1].get(f"/jobs/{job.id}"), 200).json
        self.assertEqual(shown["round"], rounds - 1)

    def test_sigterm_answers_who_waits_and_exits_with_success(self):
        for number in signal.SIGTERM, signal.SIGINT:
            server = self.start(plan=plan_for(2))
            job = register(server, pp=2)
            held = self.ask(server, job, 0)
            self.wait_for_waiting(server, job, 1)
            self.assertEqual(server.stop(number), 0, server.log())
            self.expect_detail(held.receive(), 503)

    def refuse_to_start(self, *arguments, **options):
        return super().refuse_to_start("--store", self.path / "other.db", *arguments, **options)

    def plan_arguments(self):
        self.write_plan(plan_for(1))
        return "--scheduler-args", json.dumps({"solution_path": str(self.path / "plan.py")})

    def test_a_store_has_one_server(self):
        server = self.start()
        line = self.refuse_to_start(*self.plan_arguments(), "--store", self.path / "harpe.db",
                                    exit_code=1)
        self.assertIn("harpe.db", line)
        register(server)

    def test_a_port_has_one_server(self):
        server = self.start()
        line = self.refuse_to_start(*self.plan_arguments(), "--port", server.port,
                                    exit_code=1)
        self.assertIn(str(server.port), line)
        self.assertIn("choose another with --port", line)
        self.assertFalse((self.path / "other.db").exists())

    def test_other_addresses_need_a_token_or_a_word(self):
        line = self.refuse_to_start(*self.plan_arguments(), "--listen", "0.0.0.0")
        self.assertIn("--token-file", line)
        self.assertIn("--insecure", line)
        server = self.start("--listen", "0.0.0.0", "--insecure")
        self.expect(server.get("/healthz"), 200)

    def test_arguments_of_the_scheduler_must_be_exactly_its_own(self):
        self.assertIn("solution_path", self.refuse_to_start("--scheduler", "PointSolution"))
        plan = str(self.path / "plan.py")
        self.write_plan(plan_for(1))
        more = json.dumps({"solution_path": plan, "colour": 1})
        self.assertIn("colour", self.refuse_to_start("--scheduler-args", more))
        (self.path / "plan.txt").write_text("[[]]")
        wrong = json.dumps({"solution_path": str(self.path / "plan.txt")})
        self.assertIn(".py", self.refuse_to_start("--scheduler-args", wrong))
        self.assertIn("NoSuch", self.refuse_to_start("--scheduler", "NoSuch"))
        self.assertIn("did you mean 'Perseus'?", self.refuse_to_start("--scheduler", "perseus"))

    def test_a_setting_that_is_not_valid_is_named(self):
        self.assertIn("--set max_body: '1k' is not a whole number",
                      self.refuse_to_start("--set", "port=0", "--set", "max_body=1k"))

    def test_what_starting_again_does_not_cure_exits_with_2(self):
        plan = self.plan_arguments()
        gone = self.path / "gone"
        (self.path / "empty").write_text("\n")
        for arguments in (("--scheduler-args", json.dumps({"solution_path": f"{gone}.py"})),
                          (*plan, "--token-file", gone),
                          (*plan, "--token-file", self.path / "empty"),
                          (*plan, "--tls-cert", gone, "--tls-key", gone), (*plan, "--config", gone),
                          ("--scheduler", gone.with_suffix(".so")),
                          ("--scheduler", "python:no_such_module.Class")):
            self.refuse_to_start(*arguments)
        self.refuse_to_start(*plan, "--store", f"postgresql://harpe@/harpe?host={self.path}",
                             exit_code=1)

    def make_certificates(self):
        """good.pem with good.key, and certificates that each have one mistake."""
        def openssl(*words):
            subprocess.run(["openssl", *words], cwd=self.path, check=True, capture_output=True,
                           timeout=LIMIT_S)
        for name in "good", "other":
            make_certificate(self.path, name)
        openssl("x509", "-in", "good.pem", "-outform", "DER", "-out", "cert.der")
        openssl("pkey", "-in", "good.key", "-outform", "DER", "-out", "key.der")
        openssl("pkey", "-in", "good.key", "-aes256", "-passout", "pass:x", "-out", "locked.key")
        openssl("req", "-new", "-key", "good.key", "-subj", "/CN=localhost", "-out", "request.pem")
        # An expired certificate: all versions of openssl can make one only as an authority.
        (self.path / "index").touch()
        (self.path / "serial").write_text("01\n")
        (self.path / "ca.conf").write_text("[ca]\ndefault_ca = own\n[own]\ndatabase = index\nserial = serial\n"
                                           "policy = names\nnew_certs_dir = .\n[names]\ncommonName = supplied\n")
        openssl("ca", "-config", "ca.conf", "-batch", "-selfsign", "-keyfile", "good.key", "-md", "sha256",
                "-startdate", "20200101000000Z", "-enddate", "20200102000000Z", "-in", "request.pem",
                "-out", "expired.pem", "-notext")
        (self.path / "empty").write_text("")
        (self.path / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n"
                                              "-----END CERTIFICATE-----\n")

    def test_a_client_says_what_is_wrong_with_a_connection(self):
        if not shutil.which("openssl"):
            self.skipTest("openssl is not installed")
        self.make_certificates()
        server = self.start("--tls-cert", self.path / "good.pem", "--tls-key", self.path / "good.key")
        good = self.path / "good.pem"

        def said(url, *options):
            done = run_harpe("jobs", "--server", f"{url}:{server.port}", *options)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            return done.stderr
        self.assertIn("is not trusted", message := said("https://localhost"))
        self.assertIn("name its authority with --ca-file", message)
        message = said("https://localhost", "--ca-file", self.path / "nowhere.pem")
        self.assertIn("certificate authorities cannot be read", message)
        self.assertIn("nowhere.pem", message)
        message = said("https://127.0.0.1", "--ca-file", good)
        self.assertIn("is for another name", message)
        self.assertIn("localhost", message)
        self.assertIn("and not with https://?", said("http://localhost"))
        done = run_harpe("jobs", "--server", f"https://localhost:{server.port}", "--ca-file", good)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_is_wrong_with_a_certificate_is_said(self):
        if not shutil.which("openssl"):
            self.skipTest("openssl is not installed")
        self.make_certificates()
        plan = self.plan_arguments()
        for cert, key, said in (("good.pem", "other.key", "tls_key: is not the key of the certificate"),
                                ("good.key", "good.pem", "swap the two"),
                                ("cert.der", "good.key", "tls_cert: is not a certificate in PEM"),
                                ("good.pem", "key.der", "tls_key: is not a private key in PEM"),
                                ("empty", "good.key", "tls_cert: is not a certificate in PEM"),
                                ("good.pem", "empty", "tls_key: is not a private key in PEM"),
                                ("request.pem", "good.key",
                                 "tls_cert: holds PEM data, but no certificate"),
                                ("good.pem", "other.pem",
                                 "tls_key: holds PEM data, but no private key"),
                                ("good.pem", "locked.key", "passphrase"),
                                ("expired.pem", "good.key", "expired on 20"),
                                ("broken.pem", "good.key", "cannot be used"),
                                ("gone.pem", "good.key", "gone.pem")):
            with self.subTest(cert=cert, key=key):
                line = self.refuse_to_start(*plan, "--tls-cert", self.path / cert, "--tls-key",
                                            self.path / key)
                self.assertIn(said, line)
                self.assertIn(cert, line)
                self.assertNotIn("requested data", line)

    def test_a_log_of_json_is_an_object_a_line(self):
        log = self.path / "log"
        with open(log, "wb") as output:
            process = self.begin_serve("--store", "memory", "--no-dump", "--log-format", "json",
                                       *self.plan_arguments(), output=output)
        self.wait_until(lambda: "listening on http://127.0.0.1:" in log.read_text(), log.read_text)
        process.terminate()
        self.assertEqual(process.wait(LIMIT_S), 0)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertIn("stopping", lines[-1]["message"])
        for line in lines:
            self.assertEqual(list(line), ["time", "level", "message"])
            self.assertRegex(line["time"], r"^\d{4}(-\d\d){2}T(\d\d:){2}\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("debug", "info", "warning", "error"))
        last = json.loads(self.refuse_to_start("--log-format", "json", "--scheduler", "NoSuch"))
        self.assertEqual(last["level"], "error")
        self.assertIn("NoSuch", last["message"])

    def serve_alone(self, *arguments, **variables):
        """Runs `harpe serve` in an empty directory, with only `variables` in the environment."""
        empty = self.path / "empty directory"
        empty.mkdir(exist_ok=True)
        said = self.path / "said"
        with open(said, "wb") as output:
            process = self.begin_serve(*arguments, cwd=empty, output=output, env={
                name: str(value) for name, value in variables.items()})
        self.wait_until(lambda: re.search("state is kept in.*\n|Error", said.read_text()),
                        said.read_text)
        return process, said.read_text(), empty

    def test_alone_it_serves_and_says_where_its_state_is(self):
        state = self.path / "state of mine"
        process, said, empty = self.serve_alone(XDG_STATE_HOME=state)
        self.assertIn("listening on http://127.0.0.1:", said)
        self.assertIn(f"state is kept in {state}/harpe (", said)
        process.terminate()
        self.assertEqual(process.wait(LIMIT_S), 0)
        self.assertTrue((state / "harpe" / "harpe.db").exists())
        self.assertEqual((state / "harpe").stat().st_mode & 0o777, 0o700)
        self.assertEqual(list(empty.iterdir()), [])

    def test_a_flag_names_another_place_for_the_state(self):
        process, said, empty = self.serve_alone("--state-dir", "here", XDG_STATE_HOME=self.path / "no")
        self.assertIn("state is kept in here (", said)
        process.terminate()
        process.wait(LIMIT_S)
        self.assertTrue((empty / "here" / "harpe.db").exists())
        self.assertFalse((self.path / "no").exists())

    def test_a_state_directory_that_cannot_be_is_named(self):
        (self.path / "file").write_text("")
        line = self.refuse_to_start("--set", "dump_data=true", "--state-dir", self.path / "file" / "below")
        self.assertIn("--state-dir", line)
        self.assertIn("file/below", line)

    def test_a_limit_on_bodies_holds(self):
        server = self.start("--set", "max_body=1024")
        answer = server.post("/register_job", job_info(job_metadata="x" * 2000))
        self.expect_detail(answer, 413)

    def test_bodies_that_need_not_be_large_may_not_be(self):
        server = self.start()
        job = register(server)
        largest = job_info(job_metadata="\x01" * 65536)
        self.expect(server.post("/register_job", largest), 200)
        small = ("straggler", "power_cap", "plan", "end", "%73traggler", "pl%61n")
        for target, most in (("/register_job", 512 << 10), ("/%72egister%5Fjob", 512 << 10),
                             *((f"/{name}/{job.id}", 64 << 10) for name in small)):
            self.expect(server.post(target, b" " * most), 422)
            self.expect_detail(server.post(target, b" " * (most + 1)), 413)
        for target in (f"/register_rank/{job.id}", f"/result/{job.id}"):
            self.expect(server.post(target, b" " * (1 << 20)), 422)
        self.expect_detail(server.post("/register_jobs", b" " * (1 << 20)), 404)

    def test_jobs_with_large_bodies_are_registered_once(self):
        """Workers decode these bodies, beside the loop."""
        server = self.start()
        info = job_info(4, job_metadata="m" * 60000, job_key="one")
        connections = [self.connect(server) for _ in range(20)]
        for connection in connections:
            connection.send("POST", "/register_job", info)
        ids = {self.expect(connection.receive(), 200).json for connection in connections}
        self.assertEqual(len(ids), 1)
        self.assertEqual(server.get("/jobs").json["count"], 1)
        gone = self.connect(server)
        gone.send("POST", "/register_job", info | {"job_key": "two"})
        gone.close()
        self.expect(server.post("/register_job", info | {"pp_degree": 2, "dp_degree": 2}), 409)
        self.expect(server.post("/register_job", info | {"pp_degree": "x"}), 422)


if __name__ == "__main__":
    unittest.main()
