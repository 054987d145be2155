# SPDX-License-Identifier: Apache-2.0
"""A stand-in for zeusd: HTTP over a Unix socket, the calls of zeusd's GPU routes applied to the
emulated GPU through NVML, and recorded."""
import http.server
import pathlib
import socketserver
import threading
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
    def __init__(self, machine, path):
        self.path, self.machine = pathlib.Path(path), machine
        self.calls, self.refuses = [], False
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
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

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(str(self.path), Handler)
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
        self.path.unlink()
