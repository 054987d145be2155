# SPDX-License-Identifier: Apache-2.0
"""A NUL character ends a string in C. Every public function refuses it in each text that it passes to
C. The list of these functions comes from their signatures, so a new one cannot be forgotten."""
import importlib
import inspect
import re
import subprocess

import world
from fixtures import folder
import harpe
import harpe.fleet
import harpe.graph
import harpe.plan
import harpe.replicas
from harpe.integrations import torch_pipelining
from harpe.monitor import ZeusMonitor
from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer
from harpe.optimizer.power_limit import FleetMember, GlobalPowerLimitOptimizer

MODULES = ("plan", "graph", "replicas", "fleet", "monitor.energy", "callback",
           "optimizer.pipeline_frequency.optimizer", "optimizer.power_limit.optimizer",
           "optimizer.power_limit.member", "integrations.torch_pipelining")
# Texts that do not reach C: words that Python compares, and what other functions make.
STAYS_IN_PYTHON = {
    "plan.solve.max_swing", "Problem.solve.max_swing", "replicas.solve.max_swing",
    "Callback.on_instruction_begin.name", "Callback.on_instruction_end.name",
    "CallbackSet.on_instruction_begin.name", "CallbackSet.on_instruction_end.name",
    "Problem.solve.plans", "Problem.solve.switch_latency", "Problem.cost_model",
    "Plan.late.switch_latency", "Fleet.set_job.plans", "Split.jobs", "Split.budgets",
    "Frontier.evaluate.plan",  # of a Problem
    "Fleet.add_group.parent", "Fleet.set_budget.group", "Fleet.set_job.group",
    "Fleet.remove_job.name", "ZeusMonitor.end_window.key",  # they are looked up, and not found
    "ZeusMonitor.sync_execution_with", "Measurement.soc_energy",
    "PipelineFrequencyOptimizer.mark", "PipelineFrequencyOptimizer.stream",
    "PipelineFrequencyOptimizer.synchronize", "PipelineFrequencyStatus.state",
    "PipelineFrequencyStatus.job_id", "graph.solve.plans", "graph.solve.attr_name",
    "graph.solve.cost_model", "graph.solve.resources", "plan.solve.plans",
    "plan.solve.switch_latency", "plan.solve.options",
    "Profiles.of_gpus.profiles", "Plans.profiles", "Plans.evaluate.profiles",
    "Plans.evaluate.clocks", "replicas.solve.profiles",
    "torch_pipelining.install.schedule", "torch_pipelining.install.server_url",
    "torch_pipelining.install.device_mesh", "torch_pipelining.install.options",
    "torch_pipelining.csv_of.schedule", "torch_pipelining.write_csv.schedule",
    "torch_pipelining.write_csv.path",
}
TEXTS = re.compile(r"\b(str|Path|PathLike|Any|Frequencies)\b")


def texts_of(function, name):
    for one in inspect.signature(function).parameters.values():
        if one.name != "self" and TEXTS.search(str(one.annotation)):
            yield f"{name}.{one.name}"


def public_texts():
    """Returns the names of all parameters that may be texts."""
    found = set()
    for module_name in MODULES:
        module = importlib.import_module(f"harpe.{module_name}")
        for name, what in vars(module).items():
            if name.startswith("_") or getattr(what, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(what):
                found.update(texts_of(what, f"{module_name.rpartition('.')[2]}.{name}"))
            for key, method in vars(what).items() if inspect.isclass(what) else ():
                method = getattr(method, "__func__", method)
                if inspect.isfunction(method) and (key == "__init__" or key[0] != "_"):
                    label = what.__name__ if key == "__init__" else f"{what.__name__}.{key}"
                    found.update(texts_of(method, label))
    return found


class Nul(world.MachineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.profile = folder(cls.addClassCleanup) / "profile.csv"
        subprocess.run([world.BUILD / "harpe", "synth", "--stages", "2", "-o", cls.profile], check=True,
                       timeout=300, capture_output=True)

    def calls(self):
        """Yields each parameter with a call in which it has a NUL."""
        nul = f"{self.profile}\0junk"
        jobs = {"num_microbatches": 2, "blocking_power": 80}
        problem = harpe.plan.Problem(self.profile, **jobs)
        plan = problem.solve(plans=1).plans[0]
        for name, value in (("profile", nul), ("schedule", "1f1b\0"), ("schedule", "./a\0.csv"),
                            ("wait_powers", nul), ("wait_powers", {"forward\0a": 3.0}),
                            ("prologue", ["load\0a"]), ("epilogue", ["update\0a"])):
            given = {"profile": self.profile, **jobs, name: value}
            yield f"Problem.{name}", lambda given=given: harpe.plan.Problem(**given)
            given = {"profile": self.profile, **jobs, name: value}
            if name in ("profile", "schedule"):
                yield f"plan.solve.{name}", lambda given=given: harpe.plan.solve(**given)
        row = (0, "forward\0a", 1410, 1.0, 2.0)
        yield "plan.solve.profile", lambda: harpe.plan.solve([row], **jobs)
        yield "plan.solve.profile", lambda: harpe.plan.solve([(0, b"forward\0a", *row[2:])], **jobs)
        clocks = [[("forward\0a", 1410)], [("forward", 1410)]]
        yield "Problem.evaluate.plan", lambda: problem.evaluate(nul)
        yield "Problem.evaluate.plan", lambda: problem.evaluate(clocks)
        yield "Plan.save.path", lambda: plan.save(nul)
        yield "plan.load.path", lambda: harpe.plan.load(nul)
        yield from self.calls_of_graphs(problem, nul)
        yield from self.calls_of_replicas(nul)
        yield from self.calls_of_fleets(nul)
        yield from self.calls_on_gpus(nul)

    def calls_of_graphs(self, problem, nul):
        option = {"frequency": 1410, "time": 1.0, "energy": 100.0}
        graph = {"resources": [{"name": "gpu", "blocking_power": 50.0}],
                 "activities": [{"name": "a", "resource": "gpu", "options": [option]}]}
        named = dict(graph, activities=[dict(graph["activities"][0], name="a\0b")])
        frontier = harpe.graph.solve(graph)
        yield "graph.solve.graph", lambda: harpe.graph.solve(nul)
        yield "graph.solve.graph", lambda: harpe.graph.solve(named)
        yield "graph.Plan.save.path", lambda: frontier.plans[0].save(nul)
        yield "graph.export.path", lambda: harpe.graph.export(problem, nul)
        yield "torch_pipelining.order_of.schedule", \
            lambda: torch_pipelining.order_of("0F0,0B0\0,\n")

    def calls_of_replicas(self, nul):
        profiles = harpe.replicas.Profiles.vary(self.profile, harpe.replicas.Variability(2, 1),
                                                blocking_power=80)
        given = {"num_microbatches": 2}
        plans = harpe.replicas.solve(profiles, **given)
        yield "Profiles.path", lambda: harpe.replicas.Profiles(nul)
        yield "Profiles.vary.profile", \
            lambda: harpe.replicas.Profiles.vary(nul, harpe.replicas.Variability(2, 1))
        yield "Profiles.save.path", lambda: profiles.save(nul)
        yield "Plans.save.path", lambda: plans.save(nul)
        for name, value in (("schedule", "1f1b\0"), ("prologue", ["a\0"]), ("epilogue", ["a\0"])):
            yield f"replicas.solve.{name}", lambda name=name, value=value: harpe.replicas.solve(
                profiles, **given, **{name: value})

    def calls_of_fleets(self, nul):
        fleet = harpe.fleet.Fleet()
        yield "Fleet.add_group.name", lambda: fleet.add_group("a\0b")
        yield "Fleet.set_job.name", lambda: fleet.set_job("a\0b", [(1.0, 100.0)])
        yield "fleet.solve.fleet", lambda: harpe.fleet.solve(nul)
        yield "fleet.solve.fleet", lambda: harpe.fleet.solve(
            {"jobs": [{"name": "a\0b", "plans": [{"time": 1.0, "power": 100.0}]}]})

    def calls_on_gpus(self, nul):
        monitor = ZeusMonitor(gpu_indices=[0])
        yield "ZeusMonitor.log_file", lambda: ZeusMonitor(gpu_indices=[0], log_file=nul)
        yield "ZeusMonitor.begin_window.key", lambda: monitor.begin_window("a\0b")
        yield "GlobalPowerLimitOptimizer.profile_path", \
            lambda: GlobalPowerLimitOptimizer(monitor, profile_path=nul)
        for name in ("server_url", "name", "group", "token", "ca_file"):
            member = FleetMember(**{"server_url": "http://127.0.0.1:9", "name": "a", name: "a\0b"})
            yield f"FleetMember.{name}", \
                lambda member=member: GlobalPowerLimitOptimizer(monitor, fleet=member)
        ranks = dict.fromkeys(("rank", "dp_rank", "pp_rank", "tp_rank", "device_id"), 0)
        ranks.update(dict.fromkeys(("dp_degree", "pp_degree", "tp_degree", "world_size"), 1))
        for name in ("server_url", "job_metadata", "job_key", "token", "ca_file"):
            given = {**ranks, "server_url": "http://127.0.0.1:9", "job_key": "a", name: "a\0b"}
            yield f"PipelineFrequencyOptimizer.{name}", \
                lambda given=given: PipelineFrequencyOptimizer(**given)
        with PipelineFrequencyOptimizer(**ranks, server_url="http://127.0.0.1:9") as optimizer:
            optimizer.on_step_begin()
            for what in ("begin", "end"):
                mark = getattr(optimizer, f"on_instruction_{what}")
                yield f"PipelineFrequencyOptimizer.on_instruction_{what}.name", \
                    lambda mark=mark: mark("forward\0a")

    def test_every_text_for_c_is_refused(self):
        tried = set()
        for name, call in self.calls():
            tried.add(name)
            with self.subTest(name):
                with self.assertRaises(ValueError) as raised:
                    call()
                self.assertRegex(str(raised.exception), "NUL|null byte|character 0|without .* escapes")
        self.assertEqual(public_texts() - tried - STAYS_IN_PYTHON, set())

    def test_a_token_is_not_quoted(self):
        with self.assertRaises(harpe.InvalidArgumentError) as raised:
            harpe._library.encoded("secret\0")
        self.assertNotIn("secret", str(raised.exception))
