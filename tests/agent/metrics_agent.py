# SPDX-License-Identifier: Apache-2.0
"""Runs `harpe agent` with --metrics-listen on emulated GPUs, for the tests of its metrics. Needs
HARPE (the program) and HARPE_EMULATOR (the library)."""
import array
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "emulator"), str(HERE.parent / "server")]
from exposition import parse, promtool  # noqa: E402
from nvml_client import HARPE, LIBRARY, LIMIT_S, EmulatorTestCase  # noqa: E402

VERSION = 1  # of the agent's protocol


class Agent:
    """A running agent. `faults` is a file with faults that only the agent and the processes that it
    starts have."""

    def __init__(self, directory, *arguments, listen="127.0.0.1:0"):
        self.directory = pathlib.Path(directory)
        self.faults = self.directory / "faults"
        self.socket = str(self.directory / "agent.sock")
        (self.directory / "state").mkdir(exist_ok=True)
        environment = dict(os.environ, HARPE_NVML_LIBRARY=LIBRARY,
                           HARPE_EMULATOR_FAULTS_FILE=str(self.faults))
        metrics = ["--metrics-listen", listen] if listen else []
        self.process = subprocess.Popen(
            [HARPE, "agent", "--socket", self.socket, "--state-dir", self.directory / "state",
             *metrics, *arguments], env=environment, stderr=subprocess.PIPE, text=True)
        self.lines, self.address = [], None
        self.hanging = set()  # GPUs whose samples may be old
        while not self.lines or " lends " not in self.lines[-1]:
            line = self.process.stderr.readline()
            if not line:
                self.end()
                raise AssertionError(self.lines)
            self.lines.append(line)
        for line in self.lines:
            found = re.search(r"metrics on http://(\S+):(\d+)/metrics", line)
            if found:
                self.address = found[1].strip("[]"), int(found[2])

    def ask(self, method, path):
        connection = http.client.HTTPConnection(*self.address, timeout=LIMIT_S)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, answer.getheader("content-type"), body

    def page(self):
        return self.timed_page()[0]

    def timed_page(self):
        """Returns the page, and how long the agent took at most to answer."""
        begin_s = time.monotonic()
        status, kind, text = self.ask("GET", "/metrics")
        took_s = time.monotonic() - begin_s
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8"), (status, kind)
        wrong = promtool("check", "metrics", text=text)
        assert not wrong, wrong
        return text, took_s

    def metrics(self):
        """Returns {name without prefix: {labels as sorted pairs: value}}. On a busy machine an
        answer may have samples that are older than the request. Then this function asks again,
        except for GPUs in `hanging`."""
        give_up_s = time.monotonic() + LIMIT_S
        while True:
            text, took_s = self.timed_page()
            found = {name.removeprefix("harpe_agent_"): samples for name, samples in parse(text).items()}
            fresh = {dict(labels)["gpu"] for labels, age_s in
                     found.get("sample_age_seconds", {}).items() if age_s <= took_s}
            gpus = {dict(labels)["gpu"] for labels in found["gpu_up"]}
            if gpus - {str(gpu) for gpu in self.hanging} <= fresh:
                return found
            assert time.monotonic() < give_up_s, f"no samples of {gpus - fresh}"

    def of_gpu(self, gpu, metrics=None):
        """Returns {name, with the values of labels that not all metrics of a GPU have: value}."""
        found = {}
        common = ("gpu", "uuid", "pci", "model")
        for name, samples in (metrics or self.metrics()).items():
            for labels, value in samples.items():
                if dict(labels).get("gpu") == str(gpu):
                    more = [text for label, text in labels if label not in common]
                    found[" ".join([name, *more])] = value
        return found

    def count(self, name):
        return self.metrics()[name][()]

    def environment(self):
        return dict(os.environ, HARPE_NVML_LIBRARY=LIBRARY, HARPE_AGENT_SOCKET=self.socket)

    def run(self, *arguments):
        return subprocess.run([HARPE, "agent", *arguments], env=self.environment(), text=True,
                              capture_output=True, timeout=LIMIT_S, check=False)

    def hold(self, *arguments):
        """Starts a command that holds a GPU until its standard input ends."""
        return subprocess.Popen([HARPE, "agent", "hold", *arguments, "--", "sh", "-c",
                                 "echo held; exec cat"], env=self.environment(), text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def status(self):
        return json.loads(self.run("status", "--json").stdout)

    def request(self, files=(), **members):
        """Sends a request of the agent's protocol. Returns the answer and the connection."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(LIMIT_S)
        connection.connect(self.socket)
        text = json.dumps({"version": VERSION, **members}).encode()
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        connection.sendmsg([text], control)
        answer, passed, _, _ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(4))
        descriptors = array.array("i")
        for _, _, data in passed:
            descriptors.frombytes(data[:4])
        return json.loads(answer), connection, list(descriptors)

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(LIMIT_S)
        if not self.process.stderr.closed:
            self.lines += self.process.stderr.readlines()
            self.process.stderr.close()
        return code


class AgentTest(EmulatorTestCase):
    def start_agent(self, gpus="1xA100", *arguments, faults="", listen="127.0.0.1:0", **environment):
        """Makes a cluster and starts an agent for it. Returns the NVML of this process, which has
        no faults, and the agent."""
        nvml = self.start(gpus=gpus, **environment)
        folder = tempfile.TemporaryDirectory(prefix="harpe-agent-")
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / "faults").write_text(faults)
        agent = Agent(folder.name, *arguments, listen=listen)
        self.addCleanup(self.end_agent, agent)
        return nvml, agent

    def end_agent(self, agent):
        """Ends an agent that no test has killed. The agent must end without an error."""
        self.assertIn(agent.end(), (0, -signal.SIGKILL), agent.lines)
        self.assertNotIn("Sanitizer", "".join(agent.lines))

    def hold(self, agent, *arguments):
        process = agent.hold(*arguments)
        self.addCleanup(self.end_holder, process)
        self.assertEqual(process.stdout.readline(), "held\n")
        return process

    @staticmethod
    def end_holder(process):
        if process.poll() is None:
            process.stdin.close()
        process.wait(LIMIT_S)
        process.stdout.close()
