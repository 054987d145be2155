#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Energy over restarts of a real `harpe serve`. Jobs that learn report, end and are evicted, and the
server is stopped, killed or starved of processor time at random moments. What the jobs and the fleet
show has one right value at any time, the energy of the rounds that all ranks have reported, or none. HARPE_RESTARTS
says how many restarts, and HARPE_SEED with which numbers. Needs only Python's standard library."""
import random
import re

from online_job import *

RESTARTS = int(os.environ.get("HARPE_RESTARTS", "6"))
SEED = int(os.environ.get("HARPE_SEED", "1"))
JOBS = 3
SPIN = "import os\nos.sched_setaffinity(0, {int(os.environ['CPU'])})\nwhile True: pass"


class Worker(Pipeline):
    """A job that remembers what it has reported."""

    def __init__(self, server):
        super().__init__(server, 2, 3)
        self.used_j = 0.0
        self.unreported = []

    def begin_round(self):
        self.ask()
        self.receive()
        self.unreported = self.results(self.schedules[-1])

    def report_one(self):
        result = self.unreported.pop(0)
        answer = self.server.post(f"/result/{self.id}?round={self.round}", result)
        assert answer.status == 200, answer
        if not self.unreported:  # a round counts when all ranks have reported it
            self.used_j += self.energy_j
            self.round += 1

    def step(self):
        if self.unreported:
            self.report_one()
        else:
            self.begin_round()


class EnergyRestartsTest(Online):
    def setUp(self):
        super().setUp()
        self.choose = random.Random(SEED)
        self.cpu = self.choose.choice(sorted(os.sched_getaffinity(0)))
        self.server = self.start_online()
        self.port = self.server.port
        self.jobs, self.gone_j = [], 0.0
        self.price, self.priced_j, self.cost = 0.0, 0.0, 0.0
        self.seen = {"none": 0, "right": 0}

    def start_online(self, port=0):
        return super().start_online(port=port, before=("taskset", "-c", self.cpu), num_microbatches=3)

    # ---- What must be shown ----

    def used_j(self):
        return self.gone_j + sum(job.used_j for job in self.jobs)

    def shown(self):
        """Returns (energy of each job, used energy of the fleet, its cost). None: not shown."""
        text = self.server.get("/metrics").body.decode()
        jobs = dict(re.findall(r'^harpe_job_energy_joules_total\{job_id="([^"]+)"\} (\S+)$', text,
                               re.MULTILINE))
        energy = self.expect(self.server.get("/fleet"), 200).json["energy"]
        listed = {job["job_id"]: job["figures"]["energy"]
                  for job in self.server.get("/jobs").json["jobs"]}
        return jobs, listed, energy

    def check_once(self):
        """Returns True if everything is shown. What is shown must be right."""
        jobs, listed, energy = self.shown()
        is_whole = True
        for job in self.jobs:
            for value in (jobs.get(job.id), listed[job.id]):
                is_whole &= value is not None
                if value is not None:
                    self.assertAlmostEqual(float(value) / max(job.used_j, 1e-9),
                                           1 if job.used_j else 0, places=9, msg=f"job {job.id}")
        if energy is None:
            is_whole = False
        else:
            self.assertAlmostEqual(energy["used_kwh"] * 3.6e6, self.used_j(), delta=1e-6 * self.used_j())
            cost = self.cost + (self.used_j() - self.priced_j) * self.price / 3.6e6
            self.assertAlmostEqual(energy["cost"], cost, delta=1e-6 * abs(cost) + 1e-12)
        self.seen["right" if is_whole else "none"] += 1
        return is_whole

    # ---- What happens ----

    def set_price(self):
        """What the ranks reported before has the price from before."""
        self.wait_until(self.check_once, "everything is shown")
        self.cost += (self.used_j() - self.priced_j) * self.price / 3.6e6
        self.priced_j, self.price = self.used_j(), self.choose.uniform(0.1, 1)
        self.expect(self.server.call("PUT", "/fleet/prices", {
            "currency": "EUR", "series": [{"at": 0, "energy_per_kwh": self.price}]}), 200)
        # The second change is stored after the energy at the old price.
        self.expect(self.server.call("PUT", "/fleet/loads/one", {"watts": 1}), 200)

    def replace_job(self):
        """The energy of a job counts up to its eviction."""
        job = self.choose.choice(self.jobs)
        if self.choose.random() < 0.5:
            self.end(self.server, job)
        self.expect(self.server.call("DELETE", f"/jobs/{job.id}"), 200)
        self.gone_j += job.used_j
        self.jobs[self.jobs.index(job)] = self.new_job()
        job.close()

    def new_job(self):
        return self.pipeline(self.server, kind=Worker)

    def starve(self):
        """Stops the server again and again, as if it got no processor time."""
        for _ in range(self.choose.randrange(1, 6)):
            self.server.process.send_signal(signal.SIGSTOP)
            time.sleep(self.choose.uniform(0, 0.2))
            self.server.process.send_signal(signal.SIGCONT)
            time.sleep(self.choose.uniform(0, 0.02))

    def restart(self, number):
        way = self.choose.choice(("stop", "kill", "starved stop", "starved kill"))
        if way.startswith("starved"):
            self.starve()
        for job in self.jobs:
            job.close()
        if way.endswith("kill"):
            self.server.kill()
        else:
            self.assertEqual(self.server.stop(), 0)
        self.server = self.start_online(self.port)
        if way.startswith("starved"):
            self.starve()
        # Everything is shown, and stays right while schedulers are made.
        with self.subTest(restart=number, way=way, seed=SEED):
            self.wait_until(self.check_once, "everything is shown")
            for _ in range(10):
                self.assertTrue(self.check_once())
        for job in self.jobs:
            job.connect(self.server)

    def test_used_energy_moves_only_by_what_ran(self):
        busy = subprocess.Popen(["python3", "-c", SPIN], env=dict(os.environ, CPU=str(self.cpu)))
        self.addCleanup(busy.wait)
        self.addCleanup(busy.kill)
        self.price = 0.25
        self.expect(self.server.call("PUT", "/fleet/prices", {
            "currency": "EUR", "series": [{"at": 0, "energy_per_kwh": self.price}]}), 200)
        self.jobs = [self.new_job() for _ in range(JOBS)]
        for number in range(RESTARTS):
            for _ in range(self.choose.randrange(1, 40)):
                self.choose.choice(self.jobs).step()
            if self.choose.random() < 0.3:
                self.replace_job()
            if self.choose.random() < 0.3:
                self.set_price()
            self.restart(number)
        print(f"{RESTARTS} restarts: {self.used_j():.1f} J used, {self.seen['right']} times all right, "
              f"{self.seen['none']} times not all known")


if __name__ == "__main__":
    unittest.main()
