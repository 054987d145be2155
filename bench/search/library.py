# SPDX-License-Identifier: Apache-2.0
"""Starts worker.py, which makes plans with one build of libharpe. Two workers with two builds
compare them."""
import json
import os
import pathlib
import subprocess
import sys

WORKER = pathlib.Path(__file__).resolve().with_name("worker.py")


class Refused(Exception):
    """The library has refused a job."""


class Library:
    """One build of libharpe, in a process of its own."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.path = self.folder / "libharpe.so"
        if not self.path.exists():
            sys.exit(f"bench: {self.path} does not exist: build it first (make build), or name "
                     "another build folder")
        self._process = None
        self.schedules = []
        self._start()

    def _start(self):
        environment = dict(os.environ, HARPE_LIBRARY=str(self.path.resolve()),
                           PYTHONDONTWRITEBYTECODE="1")
        self._process = subprocess.Popen([sys.executable, str(WORKER)], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, env=environment, text=True)
        self.schedules = self._answer()["schedules"]

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"bench: the process with {self.path} ended with status "
                     f"{self._process.wait()}")
        return json.loads(line)

    def restart(self):
        """Starts a new process, so that the peak memory of the next job is its own."""
        self.close()
        self._start()

    def plan(self, job, **settings):
        """Plans a job (Job.write). Settings: `plans` (a number) or `times` (seconds), min_dwell_s,
        latency_s, threads, bound_only, with_clocks, with_one_clock, with_reports. Returns
        worker.results with times, and raises Refused if the library reports an error."""
        self._process.stdin.write(json.dumps({**job, **settings}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def graph(self, job, folder):
        """Returns the graph of a job as `harpe plan --export-graph` writes it."""
        path = pathlib.Path(folder) / "graph.json"
        subprocess.run([self.folder / "harpe", "plan", "-q", "-i", job["profile"], "-s",
                        job["schedule"], "-m", str(job["microbatches"]), "-p",
                        str(job["blocking_w"]), f"--export-graph={path}",
                        *([f"--chunks={job['chunks']}"] if job.get("chunks") else [])],
                       stdout=subprocess.DEVNULL, check=True)
        graph = json.loads(path.read_text())
        path.unlink()
        return graph

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
