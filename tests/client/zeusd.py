# SPDX-License-Identifier: Apache-2.0
"""A stand-in for zeusd: HTTP over a Unix socket, or over TCP if the path is None. It applies the
calls of zeusd's GPU routes to the emulated GPU through NVML, and records them. With a token, it
refuses requests that do not bear it, as zeusd does."""
import http.server
import os
import pathlib
import secrets
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
import urllib.parse

# Route: NVML's function and the names of its arguments.
ROUTES = {
    "/gpu/set_persistence_mode": ("nvmlDeviceSetPersistenceMode", ["enabled"]),
    "/gpu/set_power_limit": ("nvmlDeviceSetPowerManagementLimit", ["power_limit_mw"]),
    "/gpu/set_gpu_locked_clocks": ("nvmlDeviceSetGpuLockedClocks", ["min_clock_mhz", "max_clock_mhz"]),
    "/gpu/reset_gpu_locked_clocks": ("nvmlDeviceResetGpuLockedClocks", []),
    "/gpu/set_mem_locked_clocks": ("nvmlDeviceSetMemoryLockedClocks", ["min_clock_mhz", "max_clock_mhz"]),
    "/gpu/reset_mem_locked_clocks": ("nvmlDeviceResetMemoryLockedClocks", []),
}


class Zeusd:
    def __init__(self, machine, path, token=None):
        self.path, self.machine, self.token = path and pathlib.Path(path), machine, token
        self.calls, self.refuses = [], False
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                given = self.headers.get("Authorization")
                if owner.token and given != f"Bearer {owner.token}":
                    code, text = 401, "invalid token" if given else "missing token"
                else:
                    code, text = owner.answer(self.path)
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def address_string(self):
                return "unix"

            def log_message(self, *arguments):
                pass

        family = socketserver.UnixStreamServer if path else socketserver.TCPServer

        class Server(socketserver.ThreadingMixIn, family):
            daemon_threads = True

        self.server = Server(str(self.path) if path else ("127.0.0.1", 0), Handler)
        self.host_port = None if path else "127.0.0.1:%d" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})

    def answer(self, target):
        if self.refuses:
            return 403, "NVML error: the current user does not have permission"
        url = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path not in ROUTES:
            return 404, ""
        if query.get("gpu_ids") != "0" or query.get("block") != "true":
            return 400, "gpu_ids or block"
        name, arguments = ROUTES[url.path]
        values = [{"true": 1, "false": 0}.get(query[key]) if key == "enabled" else int(query[key])
                  for key in arguments]
        self.calls.append(target)
        code = getattr(self.machine.nvml, name)(self.machine.handle, *values)
        return (200, "") if code == 0 else (500, f"NVML error: {code}")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        if self.path:
            self.path.unlink()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def published_program():
    """Returns the published zeusd (cargo install zeusd --version 0.5.0), or None."""
    return os.environ.get("HARPE_ZEUSD") or shutil.which("zeusd")


class Published:
    """The published daemon, over a socket, or over TCP if the path is None; with or without a
    token. It finds the emulated GPU in the place of NVML."""

    def __init__(self, machine, path, has_token):
        self.machine, self.path, self.has_token = machine, path, has_token

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="harpe-test-")
        library = pathlib.Path(self.folder.name, "libnvidia-ml.so.1")
        os.symlink(self.machine.build / "emulator" / library.name, library)
        environment = dict(os.environ, **self.machine.environment, LD_LIBRARY_PATH=self.folder.name)
        command = [published_program(), "serve", "--enable", "gpu-control,gpu-read"]
        if self.path:
            self.path.unlink(missing_ok=True)  # of an earlier daemon, over which zeusd does not bind
            self.environment = {"ZEUSD_SOCK_PATH": str(self.path)}
            command += ["--mode", "uds", "--socket-path", str(self.path)]
        else:
            address = f"127.0.0.1:{free_port()}"
            self.environment = {"ZEUSD_HOST_PORT": address}
            command += ["--mode", "tcp", "--tcp-bind-address", address]
        if self.has_token:
            key = pathlib.Path(self.folder.name, "key")
            key.write_text(secrets.token_hex(32))
            issued = subprocess.run(
                [published_program(), "token", "issue", "--signing-key-path", key, "--user", "test",
                 "--scope", "gpu-control,gpu-read", "--expires", "1h"],
                capture_output=True, text=True, check=True)
            self.environment["ZEUSD_TOKEN"] = issued.stdout.strip().split()[-1]
            command += ["--signing-key-path", str(key)]
        self.log = open(pathlib.Path(self.folder.name, "log"), "w+")
        self.process = subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log)
        end = time.monotonic() + 60
        while not self.is_up():
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                raise RuntimeError("zeusd does not start: " + self.log.read()[-2000:])
            time.sleep(0.02)
        return self

    def is_up(self):
        """Returns true if it answers."""
        address = str(self.path) if self.path else tuple(self.environment["ZEUSD_HOST_PORT"].split(":"))
        with socket.socket(socket.AF_UNIX if self.path else socket.AF_INET) as client:
            client.settimeout(5)
            try:
                client.connect(address if self.path else (address[0], int(address[1])))
                return True
            except OSError:
                return False

    def __exit__(self, *exception):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()
