# SPDX-License-Identifier: Apache-2.0
"""GlobalPowerLimitOptimizer as a member of the fleet of a real server: the options, one process, and
two ranks of which one talks to the server."""
import importlib.util
import json
import logging
import math
import os
import subprocess
import sys
import unittest

import world

sys.path.insert(0, str(world.SOURCE / "tests" / "server"))
from harpe import InvalidArgumentError
from harpe.monitor import ZeusMonitor
from harpe.optimizer.power_limit import (FleetMember, GlobalPowerLimitOptimizer,
                                         HFGlobalPowerLimitOptimizer, Time)
from server import LIMIT_S, ServerTest

# All GPUs of a job draw their limits.
LIMITS = ((300, 10.0), (200, 11.0), (100, 13.0))

# Trains until the file exists; all ranks agree on the end, as training in lock step does.
RANK = """
import os, sys, time
import torch
from torch import distributed
from harpe.monitor import ZeusMonitor
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer, Time
rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(gpu_indices=[rank], cpu_indices=[]), Time(), pl_step=100,
                                      profile_steps=1000, profile_path=sys.argv[3])
end = torch.zeros(1)
while not end.item():
    optimizer.on_step_begin()
    time.sleep(0.01)
    end.fill_(float(rank == 0 and os.path.exists(sys.argv[4])))
    distributed.all_reduce(end)
optimizer.on_train_end()
"""


class Members(ServerTest, world.MachineTest):
    gpus, time_scale = "2xA40", 20  # of one machine: the monitors of this process keep its GPUs open

    def setUp(self):
        super().setUp()
        self.found = self.machine.state()
        self.server = self.start()
        self.url = f"http://127.0.0.1:{self.server.port}"

    def profile(self, gpus):
        path = self.path / "profile.json"
        path.write_text(json.dumps({"measurements": [
            {"power_limit": limit, "energy": gpus * limit * seconds, "time": seconds}
            for limit, seconds in LIMITS]}))
        return path

    def jobs(self):
        return self.expect(self.server.get("/fleet"), 200).json["jobs"]

    def budget(self, watts):
        self.expect(self.server.call("PUT", "/fleet/budget", {"watts": watts}), 200)

    def make(self, **arguments):
        return GlobalPowerLimitOptimizer(ZeusMonitor(gpu_indices=[0], cpu_indices=[]), Time(), pl_step=100,
                                         profile_path=self.profile(1), **arguments)

    def test_a_job_follows_a_budget_and_leaves(self):
        with self.assertLogs("harpe.power_limit", logging.INFO) as logs:
            optimizer = self.make(fleet=FleetMember(self.url, name="notebook", group="desk", weight=3,
                                                    max_slowdown=1.5))
            self.addCleanup(optimizer.close)
            self.wait_until(lambda: self.jobs() and self.jobs()[0]["plans"] == 3, "declared")
            self.wait_until(lambda: logs.output, "told in the log, after the server's answer")
        self.assertIn("fleet member notebook: declared to", logs.output[0])
        job, = self.jobs()
        self.assertEqual((job["job_id"], job["group"], job["weight"], job["max_slowdown"]),
                         ("notebook", "desk", 3, 1.5))
        self.assertEqual(optimizer.current_power_limit, 300)
        self.budget(250)

        def is_lowered():
            optimizer.on_step_begin()
            return optimizer.current_power_limit == 200

        self.wait_until(is_lowered, "lowered")
        self.assertEqual(self.machine.limit(0), 200000)
        self.assertEqual(optimizer.optimal_power_limit, 300)
        optimizer.on_train_end()
        self.assertEqual(self.jobs(), [])
        self.assertEqual(self.machine.state(), self.found)

    def test_the_variable_names_the_server_unless_the_job_declines(self):
        os.environ["HARPE_SERVER"] = self.url
        self.addCleanup(os.environ.pop, "HARPE_SERVER")
        optimizer = self.make(fleet=FleetMember(server_url=""))
        optimizer.close()
        for make in (self.make, lambda: HFGlobalPowerLimitOptimizer(
                ZeusMonitor(gpu_indices=[0], cpu_indices=[]), fleet=FleetMember(name="named")).optimizer):
            optimizer = make()
            self.addCleanup(optimizer.close)
            self.wait_until(self.jobs, "declared")
            optimizer.close()
            self.assertEqual(self.jobs(), [])

    def test_wrong_terms_are_refused_and_change_nothing(self):
        for wrong, text in (({"server_url": "head-node"}, "HOST:PORT"),
                            ({"name": ""}, "name of the member"), ({"group": "a\nb"}, "group"),
                            ({"weight": 0}, "^fleet: weight must be above 0, not 0$"),
                            ({"weight": -2}, "^fleet: weight must be above 0 and at most 1e\\+12, not -2$"),
                            ({"weight": math.nan}, "weight must be above 0 and at most 1e\\+12, not nan"),
                            ({"max_slowdown": 0}, "^fleet: max_slowdown must be at least 1, not 0$"),
                            ({"max_slowdown": 0.5}, "max_slowdown must be from 1 to 1e\\+09, not 0.5"),
                            ({"hold_s": 0.0}, "^fleet: hold_s must be above 0, not 0.0$"),
                            ({"hold_s": -1}, "^fleet: hold_s must be above 0, not -1$"),
                            ({"token": "two words"}, "token")):
            with self.subTest(wrong), self.assertRaisesRegex(InvalidArgumentError, text):
                self.make(fleet=FleetMember(**{"server_url": self.url, **wrong}))
            self.assertEqual(self.machine.state(), self.found)
        self.assertNotIn("secret", repr(FleetMember(token="secret")))
        self.assertEqual(self.jobs(), [])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_one_rank_talks_and_all_ranks_follow(self):
        end = self.path / "end"
        environment = dict(os.environ, HARPE_SERVER=self.url)
        with open(self.path / "ranks.log", "wb") as log:
            ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(rank), self.path / "meet",
                                       self.profile(2), end], env=environment, stderr=log)
                     for rank in range(2)]
            try:
                self.wait_until(lambda: self.jobs() and self.jobs()[0]["plans"] == 3, "declared")
                self.assertEqual(len(self.jobs()), 1)
                self.budget(250)
                self.wait_until(lambda: self.machine.limit(0) == self.machine.limit(1) == 100000,
                                "lowered")
                self.wait_until(lambda: self.jobs()[0]["plan"] == 2 and self.jobs()[0]["measured_w"],
                                "measured")
                end.touch()
                self.assertEqual([rank.wait(LIMIT_S) for rank in ranks], [0, 0])
            finally:
                for rank in ranks:
                    rank.kill()
                    rank.wait(LIMIT_S)
        self.assertEqual(self.jobs(), [])
        self.assertEqual(self.machine.state(), self.found)
