# SPDX-License-Identifier: Apache-2.0
"""GET /jobs/{job}/pipeline of a job that learns (learning_job.py): checks that the numbers add
up."""
import json
import pathlib
import subprocess
import sys
from urllib.parse import quote

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))
from server import LIMIT_S, Server, ServerTest, clean_environment  # noqa: E402

STAGES, MICROBATCHES = 3, 4


class Pipeline(ServerTest):
    def train(self):
        """Starts a server. Returns it and the path of one of its jobs, which runs a plan."""
        server = Server(self.path, "--store", self.path / "harpe.db", "--dump-dir", self.path / "dump",
                        "--scheduler", "Perseus", "--scheduler-args",
                        json.dumps({"frequency_stride": 3, "num_microbatches": MICROBATCHES}))
        self.addCleanup(server.kill)
        with open(self.path / "train.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, pathlib.Path(__file__).with_name("learning_job.py"),
                 f"http://127.0.0.1:{server.port}", str(STAGES), str(MICROBATCHES), "train-sim", "0.02"],
                stdout=log, stderr=log, env=clean_environment())
        self.addCleanup(process.wait, LIMIT_S)
        self.addCleanup(process.terminate)
        self.wait_until(lambda: server.get("/jobs").json["jobs"], "the job registers")
        job = "/jobs/" + quote(server.get("/jobs").json["jobs"][0]["job_id"], safe="")
        self.wait_until(lambda: server.get(f"{job}/frontier").status == 200, "all ranks are there")
        detail = server.get(f"{job}/pipeline")
        if detail.status != 200:
            self.expect_detail(detail, 409, "no plan yet")
        self.wait_until(lambda: "plans" in server.get(f"{job}/frontier").json, "there are plans")
        return server, job

    def add_up(self, pipeline):
        ends, boxes = [], []
        energy = 0
        for rank in pipeline["ranks"]:
            last = busy = 0
            for entry, start, duration, power in zip(*(rank[k] for k in ("entry", "start", "duration", "power"))):
                self.assertGreaterEqual(start, last - 1e-6)
                last = start + duration
                busy += duration
                energy += duration * power
                boxes.append((start, last))
            self.assertEqual(len(rank["entry"]), 2 * MICROBATCHES)
            energy += (pipeline["time"] - busy) * pipeline["blocking_power"]
            ends.append(last)
        self.assertAlmostEqual(max(ends), pipeline["time"], places=6)
        self.assertAlmostEqual(energy / pipeline["energy"], 1, places=5)
        path = [boxes[i] for i in pipeline["critical"]]
        self.assertAlmostEqual(path[0][0], 0)
        self.assertAlmostEqual(path[-1][1], pipeline["time"], places=6)
        for (_, end), (start, _) in zip(path, path[1:]):
            self.assertAlmostEqual(end, start, places=6)

    def test_plans_add_up_in_time_and_energy(self):
        server, job = self.train()
        frontier = server.get(f"{job}/frontier").json
        for number in (0, len(frontier["plans"]) - 1, -2):
            shown = self.expect(server.get(f"{job}/pipeline?plan={number}"), 200).json
            self.add_up(shown)
            frequencies = {f for rank in shown["ranks"] for f in rank["frequency"]}
            self.assertEqual(len(frequencies) == 1, number == -2, frequencies)
        self.add_up(self.expect(server.get(f"{job}/pipeline"), 200).json)

        measured = []

        def is_measured():
            measured[:] = [server.get(f"{job}/pipeline").json]
            return measured[0]["measured_round"] is not None
        self.wait_until(is_measured, "a round ran the plan")
        for entry in measured[0]["entries"]:
            self.assertEqual(entry["runs"], MICROBATCHES)
            self.assertGreater(entry["measured"][0], 0)
        self.expect_detail(server.get(f"{job}/pipeline?plan=100000"), 409, "no plan 100000")
        self.expect_detail(server.get(f"{job}/pipeline?plan=-3"), 409, "no plan -3")
        self.expect(server.get(f"{job}/pipeline?plan=first"), 422)
        self.expect(server.get("/jobs/none/pipeline"), 404)
