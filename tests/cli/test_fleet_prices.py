# SPDX-License-Identifier: Apache-2.0
"""`harpe fleet prices set` with a URL: a small HTTP or HTTPS server gives the prices, and another
one takes them. With --every the program goes on, and logs each change of state once."""
import os
import shutil
import threading

from program import HARPE, LIMIT_S, ProgramTest, environment, signal, subprocess, unittest
from fixtures import FakeServer

CSV = "at,price_per_kwh,carbon_g_per_kwh\n2025-11-26T06:00Z,0.2,300\n1764140400,0.1,200\n"
JSON = ('[{"at": "2025-11-26T06:00Z", "energy_per_kwh": 0.2, "carbon_g_per_kwh": 300},'
        ' {"at": 1764140400, "energy_per_kwh": 0.1, "carbon_g_per_kwh": 200}]')
SERIES = [{"at": 1764136800, "energy_per_kwh": 0.2, "carbon_g_per_kwh": 300},
          {"at": 1764140400, "energy_per_kwh": 0.1, "carbon_g_per_kwh": 200}]


class Prices(ProgramTest):
    def setUp(self):
        super().setUp()
        self.server, self.feed = FakeServer(), FakeServer((200, CSV, {}))
        self.addCleanup(self.server.close)
        self.addCleanup(self.feed.close)
        self.env = environment(HARPE_SERVER=self.server.url, HARPE_TOKEN="secret", LC_ALL="C")

    def set_prices(self, *words, code=0):
        self.server.requests.clear()
        result = self.run_harpe("fleet", "prices", "set", *words, env=self.env)
        self.assertEqual(result.code, code, result)
        return result

    def refused(self, message, *words, code=1):
        result = self.set_prices(*words, code=code)
        self.assertIn(message, result.err)
        self.assertEqual((result.err.count("\n"), result.out), (1, ""), result)
        self.assertEqual(self.server.requests, [])
        return result

    def taken(self):
        (method, target, body, _), = self.server.requests
        self.assertEqual((method, target), ("PUT", "/fleet/prices"))
        return body

    def test_csv_and_json_of_a_url_and_of_a_file_are_the_same(self):
        for text in CSV, JSON, '{"series": ' + JSON + "}":
            self.feed.answer = (200, text, {})
            (self.path / "prices").write_text(text)
            for source in f"{self.feed.url}/day?key=a&b=%20c", "prices":
                result = self.set_prices(source, "--currency", "EUR", "--time-value", "2")
                self.assertEqual((result.out, result.err), ("", ""))
                self.assertEqual(self.taken(), {"currency": "EUR", "value_per_s": 2,
                                                "series": SERIES})
        _, target, _, headers = self.feed.requests[0]
        self.assertEqual(target, "/day?key=a&b=%20c")
        self.assertNotIn("secret", str(headers))  # the token is for the server alone
        self.assertNotIn("Authorization", headers)

    def test_prices_may_be_negative(self):
        self.feed.answer = (200, "at,price_per_kwh\n1764136800,-0.05\n1764140400,0.1\n", {})
        self.set_prices(self.feed.url)
        self.assertEqual([row["energy_per_kwh"] for row in self.taken()["series"]], [-0.05, 0.1])
        self.feed.answer = (200, "at,price_per_kwh\n1764136800,-2e6\n", {})
        self.refused("price_per_kwh must be -1e6 .. 1e6", self.feed.url)

    def test_times_without_a_day_count_from_the_given_moment(self):
        self.feed.answer = (200, "time_s,price_per_kwh\n0,0.2\n60,0.1\n", {})
        self.set_prices(self.feed.url, "--from", "1764100000")
        self.assertEqual([row["at"] for row in self.taken()["series"]], [1764100000, 1764100060])
        self.feed.answer = (200, CSV, {})
        self.refused("--from cannot be given: these prices have times of day (at)", self.feed.url, "--from", "+5", code=2)

    def test_each_failure_has_one_line(self):
        url = f"{self.feed.url}/p?key=hidden"
        for answer, message in (
                ((404, CSV, {}), "answered 404: is the address right?"),
                ((500, CSV, {}), "answered 500"),
                ((403, CSV, {}), "it wants to know who asks"),
                ((302, "", {"Location": f"{self.feed.url}/other"}), "answered 302, a redirect"),
                ((200, "<!DOCTYPE html>\n<p>", {}), "/p:1:1: the columns are"),
                ((200, "", {}), "/p: the first line must name the columns"),
                ((200, "at,price_per_kwh\n1,2\n3,\x1b[2J\n", {}), "/p:3:3: price_per_kwh"),
                ((200, "[{]", {}), "/p:1:3: "),
                ((200, '[{"at": 1}]', {}), '/p: entry 0 (the first is 0): "energy_per_kwh" must'),
                ((200, CSV, {"Content-Length": "500"}), "/p: cannot be fetched: ")):
            with self.subTest(answer=answer):
                self.feed.answer = answer
                line = self.refused(message, url).err
                self.assertNotIn("hidden", line)
                self.assertNotIn("\x1b", line)
                self.assertTrue(line.startswith(f"harpe fleet: {self.feed.url}/p:"), line)
        self.assertNotIn("/other", [request[1] for request in self.feed.requests])
        gone = FakeServer()
        gone.close()
        self.refused("/x: cannot be fetched: ", f"{gone.url}/x")

    def test_wrong_words(self):
        for words, message in (
                (["http://user:pass@127.0.0.1:1/p"], "user name or password"),
                (["http://"], "expected http://HOST:PORT"), (["http://h/a b"], "without spaces"),
                (["http://h?x"], "expected http://HOST:PORT/PATH"),
                ([self.feed.url, "--every", "0"], "--every"),
                ([self.feed.url, "--every", "5", "--json"], "--every prints no answers, so --json cannot be given with it"),
                ([], "FILE or URL is missing")):
            line = self.refused(message, *words, code=2).err
            self.assertNotIn("pass@", line)
        self.feed.answer = (200, "time_s,price_per_kwh\n0,1\n", {})
        self.refused("need --from TIME", self.feed.url, "--every", "5", code=2)
        self.assertEqual(self.run_harpe("fleet", "budget", "set", "5", "--every", "5",
                                        env=self.env).code, 2)

    def test_a_signal_ends_a_request_that_hangs(self):
        self.feed.held = threading.Event()
        for words, code in ((), 128 + signal.SIGTERM), (("--every", "1000"), 0):
            self.feed.requests.clear()
            process = self.start(*words)
            self.wait_until(lambda: self.feed.requests, "a request")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(LIMIT_S), code)

    # ---- With --every --------------------------------------------------------------------------

    def start(self, *words, source=None, before=()):
        process = subprocess.Popen(
            [*before, HARPE, "fleet", "prices", "set", source or self.feed.url, *words], env=self.env,
            cwd=self.path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def more_fetches(self, count=2):
        """Waits until so many requests have come."""
        wanted = len(self.feed.requests) + count
        self.wait_until(lambda: len(self.feed.requests) >= wanted, "more requests")

    def test_each_change_of_state_is_one_line(self):
        process = self.start("--every", "1")
        read = process.stderr.readline
        self.assertEqual(read(), "harpe fleet: the prices are set\n")
        self.more_fetches()
        self.feed.answer = (500, "", {})
        self.assertIn("answered 500; the server keeps the prices", read())
        self.more_fetches()
        taken = len(self.server.requests)
        self.feed.answer = (503, "", {})
        self.assertIn("answered 503", read())
        self.more_fetches()
        self.feed.answer = (200, "at,price_per_kwh\n1,x\n", {})
        self.assertIn(":2:3: price_per_kwh", read())
        self.feed.answer = (200, "at,price_per_kwh\n1,0.1\n2,y\n", {})
        self.more_fetches()
        self.assertEqual(len(self.server.requests), taken)  # the server was left alone
        self.feed.answer = (200, CSV, {})
        self.assertEqual(read(), "harpe fleet: the prices are set again\n")
        self.server.answer = (503, {"detail": "no server leads"})
        self.assertIn("answered 503: no server leads", read())
        self.more_fetches()
        self.server.answer = (503, {"detail": "1 of 3 stores answers"})
        self.more_fetches()  # the same failure in other words
        self.server.answer = (422, {"detail": "no series"})
        self.assertIn("answered 422: no series", read())
        self.server.answer = (200, None)
        self.assertEqual(read(), "harpe fleet: the prices are set again\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.communicate(timeout=LIMIT_S)[1], "")
        self.assertEqual(process.returncode, 0)

    def test_a_start_without_the_feed_waits_for_it(self):
        (self.path / "late.csv").unlink(missing_ok=True)
        process = self.start("--every", "1", source="late.csv")
        self.assertIn("late.csv", process.stderr.readline())
        (self.path / "new").write_text(CSV)
        (self.path / "new").rename(self.path / "late.csv")
        self.assertEqual(process.stderr.readline(), "harpe fleet: the prices are set\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(LIMIT_S), 0)

    @unittest.skipIf(os.geteuid() == 0 and not shutil.which("setpriv"),
                     "root reads every file, and setpriv is not installed")
    def test_a_file_that_may_not_be_read_is_tried_again(self):
        (self.path / "hidden.csv").write_text(CSV)
        (self.path / "hidden.csv").chmod(0)
        # Root reads every file, unless it lacks these two capabilities.
        before = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
        process = self.start("--every", "1", source="hidden.csv",
                             before=before if os.geteuid() == 0 else ())
        self.assertEqual(process.stderr.readline(), "harpe fleet: hidden.csv: Permission denied; "
                         "the server keeps the prices that it has, and this is tried again\n")
        (self.path / "hidden.csv").chmod(0o600)
        self.assertEqual(process.stderr.readline(), "harpe fleet: the prices are set\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(LIMIT_S), 0)

    def test_a_refused_token_ends_it(self):
        self.server.answer = (401, {"detail": "a valid bearer token is needed"})
        process = self.start("--every", "1000")
        err = process.communicate(timeout=LIMIT_S)[1]
        self.assertEqual((process.returncode, err.count("\n")), (1, 1), err)
        self.assertIn("does not accept the token", err)

    # ---- With TLS ------------------------------------------------------------------------------

    @unittest.skipUnless(shutil.which("openssl"), "openssl makes the certificate")
    def test_https_checks_the_certificate(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout",
                        "k.pem", "-out", "c.pem"],
                       cwd=self.path, check=True, capture_output=True, timeout=LIMIT_S)
        feed = FakeServer((200, CSV, {}), self.path / "c.pem", self.path / "k.pem")
        self.addCleanup(feed.close)
        self.set_prices(f"{feed.url}/p", "--feed-ca-file", "c.pem")
        self.assertEqual(self.taken(), {"series": SERIES})
        self.refused("is not trusted", f"{feed.url}/p")
        other_name = f"{feed.url}/p".replace("localhost", "127.0.0.1")
        result = self.refused("is for another name", other_name, "--feed-ca-file", "c.pem")
        self.assertNotIn("--feed-ca-file", result.err)
        self.assertEqual(len(feed.requests), 1)
        self.refused("cannot be fetched", f"{self.feed.url}/p".replace("http:", "https:"))
