#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""SIGHUP: the server takes a new certificate, a new token and a new file for its log while requests
are held, keeps the old ones if the new ones cannot be used, and stops if its terminal is gone."""
import os
import pty
import shutil
import signal
import socket
import ssl
import unittest
import unittest.mock

import server
from event_stream import Stream
from server import LIMIT_S, Connection, ServerTest, run_harpe

READ = "SIGHUP: has read the token and the certificate again"


class ReloadTest(ServerTest):
    def hang_up(self, running, line=READ):
        """Sends SIGHUP, and waits for the line that says what came of it. Returns this line."""
        count = running.log().count("SIGHUP: ")
        running.process.send_signal(signal.SIGHUP)
        self.wait_until(lambda: running.log().count("SIGHUP: ") > count, f"{line}: {running.log()}")
        said = [text for text in running.log().splitlines() if "SIGHUP: " in text][count:]
        self.assertEqual(len(said), 1, said)
        self.assertIn(line, said[0])
        return said[0]


class Reload(ReloadTest):
    def bearer(self, token):
        return {"Authorization": f"Bearer {token}"}

    def test_a_new_token_counts_from_then_on(self):
        token = self.path / "token"
        token.write_text("old\n")
        running = self.start("--token-file", token)
        token.write_text("new\n")
        self.expect(running.call("GET", "/jobs", None, self.bearer("old")), 200)
        self.hang_up(running)
        self.expect(running.call("GET", "/jobs", None, self.bearer("old")), 401)
        self.expect(running.call("GET", "/jobs", None, self.bearer("new")), 200)
        token.write_text("\n")
        said = self.hang_up(running, "stay those from before")
        self.assertIn("token_file", said)
        self.expect(running.call("GET", "/jobs", None, self.bearer("new")), 200)
        self.assertEqual(running.stop(), 0)

    def test_held_requests_and_streams_survive(self):
        running = self.start(plan=server.plan_for(2))
        job = server.register(running, pp=2)
        events = Stream(self.connect(running))
        held = self.ask(running, job, 0)
        self.wait_for_waiting(running, job, 1)
        for _ in range(3):
            self.hang_up(running)
        self.wait_for_waiting(running, job, 1)
        other = self.ask(running, job, 1)
        self.expect(held.receive(), 200)
        self.expect(other.receive(), 200)
        last = server.register(running)
        events.until(lambda data: last.id in str(data))

    def test_many_signals_at_once_are_harmless(self):
        running = self.start()
        for _ in range(200):
            running.process.send_signal(signal.SIGHUP)
        self.wait_until(lambda: READ in running.log(), running.log())
        self.expect(running.get("/healthz"), 200)
        self.assertEqual(running.stop(), 0)

    def test_a_log_that_was_renamed_is_left(self):
        log, kept = self.path / "harpe.log", self.path / "harpe.log.1"
        with unittest.mock.patch.object(server.Server, "log", lambda running: log.exists() and
                                        log.read_text() or ""):
            running = self.start("--log-file", log)
        log.rename(kept)
        running.process.send_signal(signal.SIGHUP)
        self.wait_until(lambda: log.exists() and READ in log.read_text(), "a new file")
        self.assertNotIn("SIGHUP", kept.read_text())
        self.assertEqual(log.stat().st_mode & 0o777, 0o600)
        log.rename(self.path / "harpe.log.2")
        last = self.path / "harpe.log.2"
        refused = "SIGHUP: log_file: cannot append to"
        log.mkdir()
        running.process.send_signal(signal.SIGHUP)
        self.wait_until(lambda: last.read_text().count(READ) == 2, last.read_text())
        self.assertEqual(last.read_text().count(refused), 1)
        log.rmdir()
        os.mkfifo(log)  # nobody reads it
        running.process.send_signal(signal.SIGHUP)
        self.wait_until(lambda: last.read_text().count(READ) == 3, last.read_text())
        self.assertEqual(last.read_text().count(refused), 2)
        self.assertEqual(running.stop(), 0)

    def test_a_log_that_cannot_be_written_prevents_the_start(self):
        pipe = self.path / "pipe"
        os.mkfifo(pipe)
        for log, code in (self.path, 2), (pipe, 1):
            self.assertIn("log_file: cannot append to", self.refuse_to_start(
                "--store", "memory", "--no-dump", "--log-file", log, exit_code=code))

    def test_without_its_terminal_it_stops(self):
        master, slave = pty.openpty()
        self.addCleanup(lambda: os.close(master) if master >= 0 else None)
        with open(self.path / "log", "wb") as log:
            process = self.begin_serve("--store", "memory", "--no-dump", stdin=slave, output=log)
        os.close(slave)
        self.wait_until(lambda: b"listening" in (self.path / "log").read_bytes(), "it listens")
        process.send_signal(signal.SIGHUP)
        self.wait_until(lambda: READ.encode() in (self.path / "log").read_bytes(), "it reads again")
        os.close(master)
        master = -1
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.wait(LIMIT_S), 0)


@unittest.skipUnless(shutil.which("openssl"), "openssl makes the certificates")
class Certificates(ReloadTest):
    def make(self, name):
        """Makes a certificate, and puts it in the places that the server reads."""
        server.make_certificate(self.path, name, "-addext", "subjectAltName=DNS:localhost")
        self.put(name, name)

    def put(self, cert, key):
        shutil.copy(self.path / f"{cert}.pem", self.path / "cert.pem")
        shutil.copy(self.path / f"{key}.key", self.path / "key.pem")

    def begin(self):
        self.make("first")
        running = self.start("--tls-cert", self.path / "cert.pem", "--tls-key", self.path / "key.pem",
                             plan=server.plan_for(2))
        running.connect = lambda: self.connect_tls(running, "first")
        return running

    def connect_tls(self, running, name):
        """Opens a connection that trusts only this certificate."""
        context = ssl.create_default_context(cafile=self.path / f"{name}.pem")
        plain = socket.create_connection(("127.0.0.1", running.port), timeout=LIMIT_S)
        return Connection(running.port, connected=context.wrap_socket(
            plain, server_hostname="localhost"))

    def asks(self, running, name):
        connection = self.connect_tls(running, name)
        self.addCleanup(connection.close)
        self.expect(connection.send("GET", "/healthz").receive(), 200)

    def test_new_connections_get_the_new_certificate_and_old_ones_stay(self):
        running = self.begin()
        job = server.register(running, pp=2)
        held = self.ask(running, job, 0)
        events = Stream(self.connect(running))
        self.wait_for_waiting(running, job, 1)
        self.make("second")
        self.asks(running, "first")
        self.hang_up(running)
        self.asks(running, "second")
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.connect_tls(running, "first")
        running.connect = lambda: self.connect_tls(running, "second")
        self.expect(self.ask(running, job, 1).receive(), 200)
        self.expect(held.receive(), 200)
        self.expect(held.send("GET", "/healthz").receive(), 200)  # on the connection from before
        last = server.register(running)
        events.until(lambda data: last.id in str(data))
        self.assertEqual(running.stop(), 0)

    def test_a_certificate_that_cannot_be_used_leaves_the_old_one(self):
        running = self.begin()
        self.make("second")
        self.put("first", "second")
        said = self.hang_up(running, "tls_key: is not the key of the certificate")
        self.assertIn("stay those from before", said)
        self.asks(running, "first")
        (self.path / "cert.pem").unlink()
        self.assertIn("cert.pem", self.hang_up(running, "stay those from before"))
        self.asks(running, "first")
        self.put("second", "second")
        self.hang_up(running)
        self.asks(running, "second")

    def test_all_clients_trust_the_file_that_the_environment_names(self):
        running = self.begin()
        url, trusted = f"https://localhost:{running.port}", self.path / "first.pem"
        self.make("stranger")
        strange = self.path / "stranger.pem"
        clients = (("jobs", "--server", url), ("fleet", "status", "--server", url),
                   ("train-sim", "--server", url, "--pp", "1", "--steps", "1"))
        for client in clients[:2]:
            with self.subTest(client=client[0]):
                for variables in ({"HARPE_CA_FILE": str(trusted)}, {"SSL_CERT_FILE": str(trusted)},
                                  {"HARPE_CA_FILE": str(trusted), "SSL_CERT_FILE": str(strange)}):
                    done = run_harpe(*client, environment=variables)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), variables)
                done = run_harpe(*client, "--ca-file", trusted,
                                 environment={"HARPE_CA_FILE": str(strange)})
                self.assertEqual((done.returncode, done.stderr), (0, ""))
        for client in clients:
            with self.subTest(client=client[0]):
                for variables in ({}, {"HARPE_CA_FILE": str(strange)}):
                    done = run_harpe(*client, environment=variables)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    self.assertIn("is not trusted", done.stderr)
                    self.assertIn("HARPE_CA_FILE", done.stderr)
                done = run_harpe(*client, environment={"HARPE_CA_FILE": "nowhere.pem"})
                self.assertIn("cannot be read", done.stderr)
                self.assertIn("they are given in HARPE_CA_FILE", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
