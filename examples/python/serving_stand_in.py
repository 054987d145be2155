#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a busy server of a language model, on an emulated GPU: it decodes the tokens of 32
requests at a time, and a new request follows each one that is finished. Like vLLM, it has a page of
metrics for Prometheus with a counter of tokens and a histogram of latencies.

    harpe emulate --time-scale 20 -- harpe tune --rate-url http://127.0.0.1:8000 --rate tokens_total \\
        -- python3 serving_stand_in.py 8000 1200

The arguments are the port, and the seconds of the GPU's time for which it serves (default: 1200).
"""
import ctypes
import http.server
import os
import sys
import threading

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
SERVES_S = float(sys.argv[2]) if len(sys.argv) > 2 else 1200
REQUESTS = 32
CALLS = 8                 # for all tokens of a request
TOKENS = 16               # of a request in a call
CALL_S = 0.2              # at the highest clock
COMPUTE_SHARE = 0.2       # of this time; the rest waits for memory and does not depend on the clock
BOUNDS_S = (1.0, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.5, 5.0)
gpu = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"])  # `harpe emulate` sets it
gpu.harpe_emulator_work.argtypes = [ctypes.c_uint, ctypes.c_double, ctypes.c_double, ctypes.c_void_p]
gpu.harpe_emulator_now_ns.restype = ctypes.c_int64
tokens = 0
latencies = [0] * (len(BOUNDS_S) + 1)  # finished requests by the first bound that holds them


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        lines = [f"# TYPE tokens_total counter\ntokens_total {tokens}\n# TYPE request_seconds histogram"]
        finished = 0
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], latencies):
            finished += count
            lines.append(f'request_seconds_bucket{{le="{bound}"}} {finished}')
        self.send_response(200)
        self.end_headers()
        self.wfile.write("\n".join([*lines, ""]).encode())

    def log_message(self, *_):
        pass


def now_s():
    return gpu.harpe_emulator_now_ns() * 1e-9


def serve():
    """Decodes until the time is over. The requests began at different times, and are equally long."""
    global tokens
    start_s = now_s()
    began_s = [start_s] * REQUESTS
    calls = 0
    while now_s() - start_s < SERVES_S:
        gpu.harpe_emulator_work(0, CALL_S, COMPUTE_SHARE, None)
        tokens += REQUESTS * TOKENS
        calls += 1
        for i in range(calls % CALLS, REQUESTS, CALLS):
            taken_s = now_s() - began_s[i]
            latencies[sum(bound < taken_s for bound in BOUNDS_S)] += 1
            began_s[i] += taken_s


page = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Page)
threading.Thread(target=page.serve_forever, daemon=True).start()
serve()
