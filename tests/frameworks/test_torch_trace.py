# SPDX-License-Identifier: Apache-2.0
"""`harpe graph import` with traces that torch.profiler itself writes. Without a GPU such a trace has
no kernels, and the command says so. For the rest, the outermost operators of the CPU take the place
of kernels: everything else in the file stays as torch wrote it."""
import gzip
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

try:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule
    WHY_NOT = None
except ImportError as error:
    WHY_NOT = f"torch cannot be imported: {error}"

STEPS = 3


def record(path):
    """Writes the trace of some steps of a small model."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=1, warmup=1, active=STEPS),
                 on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path))) as profiler:
        for _ in range(2 + STEPS):
            optimizer.zero_grad()
            model(torch.randn(32, 64)).sum().backward()
            optimizer.step()
            profiler.step()


def outermost(events):
    """Returns the operators of one thread that are in no other one, in order."""
    operators = sorted((event for event in events if event.get("cat") == "cpu_op"),
                       key=lambda event: (event["ts"], -event["dur"]))
    threads = [event["tid"] for event in operators]
    thread, end, found = max(set(threads), key=threads.count), float("-inf"), []
    for event in operators:
        if event["tid"] == thread and event["ts"] >= end:
            end = event["ts"] + event["dur"]
            found.append(event)
    return found


@unittest.skipIf(WHY_NOT, WHY_NOT)
class TorchTraceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="harpe-test-")
        cls.addClassCleanup(cls.directory.cleanup)
        cls.path = pathlib.Path(cls.directory.name)
        record(cls.path / "trace.json")
        record(cls.path / "packed.json.gz")

    def import_trace(self, name, *options):
        return subprocess.run([os.environ["HARPE"], "graph", "import", name, "--output", "job.json",
                               "--force", "--json", *options], cwd=self.path, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL)

    def test_trace_without_a_gpu_is_refused(self):
        for name in ("trace.json", "packed.json.gz"):
            result = self.import_trace(name)
            self.assertEqual(result.returncode, 1, result)
            self.assertIn("is on a GPU: record with ProfilerActivity.CUDA", result.stderr)

    def test_steps_and_times_are_those_of_the_file(self):
        text = (self.path / "trace.json").read_text()
        self.assertEqual(json.loads(gzip.open(self.path / "packed.json.gz").read())["schemaVersion"],
                         json.loads(text)["schemaVersion"])
        trace = json.loads(text)
        kernels = outermost(trace["traceEvents"])
        for event in kernels:
            event.update(cat="kernel", pid=0)
        (self.path / "kernels.json").write_text(json.dumps(trace))
        steps = {int(event["name"].split("#")[1]): event for event in trace["traceEvents"]
                 if event.get("name", "").startswith("ProfilerStep#")}
        self.assertEqual(len(steps), STEPS)
        for number, step in sorted(steps.items()):
            inside = [event for event in kernels
                      if step["ts"] <= event["ts"] < step["ts"] + step["dur"]]
            span = inside[-1]["ts"] + inside[-1]["dur"] - inside[0]["ts"]
            result = self.import_trace("kernels.json", "--step", str(number), "--gpu", "A100")
            self.assertEqual(result.returncode, 0, result)
            summary = json.loads(result.stdout)
            self.assertEqual(summary["step"], number)
            self.assertAlmostEqual(summary["longest_s"], span * 1e-6, 6)
            graph = json.loads((self.path / "job.json").read_text())
            total = sum(activity["options"][0]["time"] for activity in graph["activities"])
            self.assertAlmostEqual(total, span * 1e-6, 6)
