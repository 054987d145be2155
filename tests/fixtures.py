# SPDX-License-Identifier: Apache-2.0
"""What the tests of several folders need."""
import http.server
import importlib.util
import json
import pathlib
import ssl
import tempfile
import threading
import unittest

LIMIT_S = 600


def folder(add_cleanup):
    """Returns an empty folder. `add_cleanup` is addCleanup of a test or addClassCleanup of a class, at
    whose end the folder is removed."""
    holder = tempfile.TemporaryDirectory(prefix="harpe-test-")
    add_cleanup(holder.cleanup)
    return pathlib.Path(holder.name)


def needs(*packages):
    """Skips a test if one of these packages is not installed."""
    missing = next((name for name in packages if importlib.util.find_spec(name) is None), None)
    return unittest.skipIf(missing, f"{missing} is not installed")


class FakeServer:
    """Answers every request with `answer`: a status and JSON, or a status, a text and more headers, or a
    function that returns these for a target. It records methods, targets, bodies and headers. While
    `held` is set, it holds requests."""

    def __init__(self, answer=(200, None), certificate=None, key=None):
        fake = self
        self.requests, self.answer, self.held = [], answer, None

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                fake.requests.append((self.command, self.path, json.loads(body) if body else None,
                                      dict(self.headers)))
                if fake.held:
                    fake.held.wait(LIMIT_S)
                status, content, *headers = fake.answer(self.path) if callable(fake.answer) else fake.answer
                text = (content if headers else json.dumps(content)).encode()
                self.send_response(status)
                # Without its length, a client of TLS cannot tell an answer from a part of one.
                for name, value in ({"Content-Length": len(text)} | (headers[0] if headers else {})).items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(text)
                self.close_connection = bool(headers)

            do_GET = do_PUT = do_POST = do_DELETE = serve

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # a client that a signal has ended
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.url = (f"https://localhost:{self.http.server_port}" if certificate
                    else f"http://127.0.0.1:{self.http.server_port}")
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        if self.held:
            self.held.set()
        self.http.shutdown()
        self.http.server_close()
