# SPDX-License-Identifier: Apache-2.0
"""The interface that scripts for Zeus use: signatures, fields and exceptions equal those of the
published package, and one script has the same effect with both."""
import json
import os
import re
import subprocess
import sys
import unittest

import published_zeus
import world

# The names that both packages have, by the published module. A harpe module has the same path.
MIRRORED = {
    "monitor": ["ZeusMonitor", "Measurement", "PowerMonitor", "TemperatureMonitor"],
    "monitor.energy": ["ZeusMonitor", "Measurement"],
    "monitor.power": ["PowerMonitor", "PowerDomain"],
    "monitor.temperature": ["TemperatureMonitor"],
    "callback": ["Callback", "CallbackSet"],
    "device": ["get_gpus", "get_cpus"],
    "device.gpu": ["GPUs", "get_gpus"],
    "device.cpu": ["CPUs", "get_cpus"],
    "utils.env": ["get_env"],
    "optimizer.power_limit": ["GlobalPowerLimitOptimizer", "HFGlobalPowerLimitOptimizer",
                              "OptimumSelector", "Energy", "Time", "ZeusCost",
                              "MaxSlowdownConstraint", "PowerLimitMeasurement", "Ready", "Warmup",
                              "Profiling", "Done", "_PowerLimitMeasurementList"],
    "optimizer.pipeline_frequency": ["PipelineFrequencyOptimizer"],
    "optimizer.pipeline_frequency.optimizer": ["PipelineFrequencyOptimizer"],
    "optimizer.pipeline_frequency.frequency_controller": ["FrequencyController"],
    "optimizer.pipeline_frequency.common": [
        "PFOServerSettings", "JobInfo", "RankInfo", "FrequencySchedule", "ProfilingResult",
        "OfflineProfilingResult", "InstructionProfilingResult", "save_prof", "load_prof",
        "save_sched", "load_sched", "save_ranks", "load_ranks", "GET_SERVER_INFO_URL",
        "REGISTER_JOB_URL", "REGISTER_RANK_URL", "GET_FREQUENCY_SCHEDULE_URL",
        "REPORT_PROFILING_RESULT_URL"],
    "optimizer.pipeline_frequency.server.scheduler": [
        "FrequencyScheduler", "PointSolution", "PointSolution3D", "make_3d_parallel"],
}

# The names that both have, by the modules of the older package, zeus-ml.
MIRRORED_OLD = {
    "optimizer": ["GlobalPowerLimitOptimizer"],
    "optimizer.perseus": ["PerseusOptimizer"],
    "optimizer.perseus.optimizer": ["PerseusOptimizer"],
    "optimizer.perseus.frequency_controller": ["FrequencyController"],
    "optimizer.perseus.common": [
        "PerseusSettings", *(name for name in MIRRORED["optimizer.pipeline_frequency.common"]
                             if name != "PFOServerSettings")],
    "optimizer.perseus.server.scheduler": MIRRORED["optimizer.pipeline_frequency.server.scheduler"],
}

# Steps that subclasses override.
STEPS = {
    ("GlobalPowerLimitOptimizer", "_set_power_limit"),
    ("GlobalPowerLimitOptimizer", "_compute_optimal_power_limit"),
    ("GlobalPowerLimitOptimizer", "_save_profile"),
    ("PipelineFrequencyOptimizer", "_get_frequency_schedule"),
    ("PerseusOptimizer", "_get_frequency_schedule"),
    ("FrequencyScheduler", "_run"), ("PointSolution", "_run"),
    ("PFOServerSettings", "_fix_scheduler_import_path"),
    ("PFOServerSettings", "_validate_scheduler_args"),
    ("PerseusSettings", "_fix_scheduler_import_path"),
    ("PerseusSettings", "_validate_scheduler_args"),
}

# Prints the public parts of these names: for functions their parameters, for classes their methods,
# for data their fields, for constants their values.
DUMP = r"""
import dataclasses, enum, importlib, inspect, json, sys

def parameters(function):
    return [[one.name, one.kind.name, None if one.default is one.empty else repr(one.default),
             one.default is one.empty] for one in inspect.signature(function).parameters.values()]

def fields(cls):
    if hasattr(cls, "__fields__"):  # pydantic 1
        return {name: [one.required is True, None if one.required else one.default]
                for name, one in cls.__fields__.items()}
    if hasattr(cls, "_kinds"):
        return {name: [not hasattr(cls, name), getattr(cls, name, None)] for name in cls._kinds()}
    if dataclasses.is_dataclass(cls):
        missing = dataclasses.MISSING
        return {one.name: [one.default is missing and one.default_factory is missing,
                           None if one.default is missing and one.default_factory is missing
                           else one.default_factory() if one.default is missing else one.default]
                for one in dataclasses.fields(cls)}
    return None

def is_own(cls, attribute):
    # Methods of a class library such as pydantic are not the package's.
    return attribute.__module__.split(".")[0] == package

def class_of(cls):
    methods = {}
    for name in dir(cls):
        found = inspect.getattr_static(cls, name)
        if name.startswith("_") and name != "__init__" and [cls.__name__, name] not in steps:
            continue
        if isinstance(found, classmethod):
            found = found.__func__
        if isinstance(found, (property,)) or type(found).__name__ == "cached_property":
            methods[name] = "property"
        elif inspect.isfunction(found) and is_own(cls, found):
            methods[name] = parameters(found)
    return {"kind": "class", "methods": methods, "fields": fields(cls),
            "constructor": parameters(cls)}

package, wanted, steps = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
out = {}
for module, names in wanted.items():
    loaded = importlib.import_module(f"{package}.{module}")
    for name in names:
        found = getattr(loaded, name, None)
        found = inspect.unwrap(found) if callable(found) else found
        name = f"{module}.{name}"
        if inspect.isclass(found) and issubclass(found, enum.Enum):
            out[name] = {"kind": "value", "value": [[one.name, one.value] for one in found]}
        elif inspect.isclass(found):
            out[name] = class_of(found)
        elif inspect.isfunction(found):
            out[name] = {"kind": "function", "parameters": parameters(found)}
        else:
            out[name] = {"kind": "value", "value": found}
print(json.dumps(out))
"""

# Intended differences.
NOT_MIRRORED = {
    ("device.gpu.GPUs", "gpus"): "the object has the calls; there are no objects of single GPUs",
    ("device.gpu.GPUs", "get_average_memory_power_usage"): "Harpe does not measure it",
    ("device.cpu.CPUs", "cpus"): "as GPUs.gpus",
}


def dump(package, names, **environment):
    """Returns {module.name: what it is} of a package."""
    python = sys.executable
    if package == "zeus":
        python, environment = published_zeus.python(), published_zeus.environment(**environment)
    else:
        environment = dict(os.environ)
    done = subprocess.run([str(python), "-W", "ignore", "-c", DUMP, package, json.dumps(names),
                           json.dumps(sorted(STEPS))],
                          env=environment, text=True, timeout=600, capture_output=True,
                          check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Signatures(unittest.TestCase):
    NAMES = MIRRORED
    LEAST = {"methods": 100, "fields": 50}

    @classmethod
    def setUpClass(cls):
        cls.zeus, cls.harpe = cls.published(), dump("harpe", cls.NAMES)

    @classmethod
    def published(cls):
        return dump("zeus", cls.NAMES)

    def compare(self, where, published, ours):
        """Our parameters begin with the published ones. Additional parameters are by keyword or
        optional. If the published type is Any, ours may be more specific."""
        if [one[1] for one in published[-2:]] == ["VAR_POSITIONAL", "VAR_KEYWORD"]:
            self.assertEqual(ours[:len(published) - 2], published[:-2], where)
            return
        self.assertEqual(ours[:len(published)], published, where)
        for name, kind, _, is_required in ours[len(published):]:
            self.assertFalse(is_required and kind != "VAR_KEYWORD", f"{where}: {name} is required")

    def test_every_name_is_there(self):
        names = {f"{module}.{name}" for module, names in self.NAMES.items() for name in names}
        self.assertEqual((set(self.zeus), set(self.harpe)), (names, names))
        for name, ours in self.harpe.items():
            with self.subTest(name):
                self.assertNotEqual(ours, {"kind": "value", "value": None}, "is missing")
                self.assertEqual(ours["kind"], self.zeus[name]["kind"])

    def test_functions_and_constants(self):
        for name, published in self.zeus.items():
            ours = self.harpe[name]
            with self.subTest(name):
                if published["kind"] == "function":
                    self.compare(name, published["parameters"], ours["parameters"])
                elif published["kind"] == "value":
                    self.assertEqual(ours["value"], published["value"])

    def test_methods(self):
        compared = 0
        for name, published in self.zeus.items():
            for method, signature in published.get("methods", {}).items():
                is_deprecated = method != method.lower()  # getName() beside get_name()
                if is_deprecated or (name, method) in NOT_MIRRORED:
                    continue
                with self.subTest(f"{name}.{method}"):
                    compared += 1
                    ours = self.harpe[name]["methods"].get(method)
                    self.assertIsNotNone(ours, "is missing")
                    if "property" in (signature, ours):
                        self.assertEqual(ours, signature)
                    elif not (published["fields"] and method == "__init__"):
                        self.compare(name, signature, ours)
        self.assertGreater(compared, self.LEAST["methods"])

    def test_fields_of_data(self):
        compared = 0
        for name, published in self.zeus.items():
            for field, described in (published.get("fields") or {}).items():
                with self.subTest(f"{name}.{field}"):
                    compared += 1
                    self.assertEqual(self.harpe[name]["fields"].get(field), described)
        self.assertGreater(compared, self.LEAST["fields"])


class OldSignatures(Signatures):
    """The names that Zeus had when the optimizer was called Perseus."""

    NAMES = MIRRORED_OLD
    LEAST = {"methods": 20, "fields": 30}

    @classmethod
    def published(cls):
        """The older package, with the present names of three arguments."""
        published_zeus.require_torch()
        found = dump("zeus", cls.NAMES, PYTHONPATH=published_zeus.OLD_FOLDER)
        text = json.dumps(found).replace('"perseus_settings"', '"pfo_settings"')
        return json.loads(text.replace('"nvml_device_id"', '"device_id"').replace('"_"', '"name"'))


# Modules whose names users import from the package above.
ONLY_INSIDE = {"zeus", "zeus.monitor.energy", "zeus.monitor.__main__",
               "zeus.optimizer.pipeline_frequency.optimizer"}


class Migration(unittest.TestCase):
    def test_the_page_names_every_public_module_of_the_published_package(self):
        """Finds the module by its own name, or by that of the package that contains it."""
        package, = (published_zeus.python().parents[1] / "lib").glob("python*/site-packages/zeus")
        listed = sorted(".".join(path.relative_to(package.parent).with_suffix("").parts)
                        .removesuffix(".__init__") for path in package.rglob("*.py"))
        self.assertIn("zeus.monitor.power_streaming", listed)
        page = (world.SOURCE / "docs" / "migration.md").read_text(encoding="utf-8")
        named = set(re.findall(r"\bzeus(?:\.\w+)+", page))
        for module in listed:
            if module in ONLY_INSIDE:
                continue
            parts = module.split(".")
            # Some parts of these two exist, and others do not.
            first = 3 if parts[1] in ("monitor", "optimizer") else 2
            above = {".".join(parts[:end]) for end in range(first, len(parts) + 1)}
            with self.subTest(module):
                self.assertTrue(above & named or any(one.startswith(f"{module}.") for one in named),
                                "is not mentioned")
        for name in ("PowerMonitor", "TemperatureMonitor", "PowerStreamingClient"):
            self.assertIn(name, page)


# A script in the form that users write, run with both packages. It prints the result of each call.
# A stand-in replaces PyTorch and only records the waits.
SCRIPT = r"""
import builtins, dataclasses, importlib, json, logging, os, sys, time, types, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
waited, fails = [], []

def synchronize(device):
    if fails:
        raise RuntimeError("CUDA error")
    waited.append(device)

torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True,
                                   synchronize=synchronize)
torch.distributed = types.SimpleNamespace(is_available=lambda: False)
torch.__version__ = "2.0"
cupy = types.ModuleType("cupy")
cupy.cuda = types.SimpleNamespace(Device=lambda device: types.SimpleNamespace(
    synchronize=lambda: waited.append(f"cupy {device}")))
sys.modules.update(torch=torch, cupy=cupy)
package, folder = sys.argv[1:]
ZeusMonitor = importlib.import_module(f"{package}.monitor").ZeusMonitor
out = []

def described(value):
    if not dataclasses.is_dataclass(value):
        return repr(value)
    energies = value.gpu_energy
    return {"fields": [field.name for field in dataclasses.fields(value)],
            "is_long": value.time > 0.05, "time_is": type(value.time).__name__,
            "gpus": list(energies), "moved": [energy > 1 for energy in energies.values()],
            "total": abs(value.total_energy - sum(energies.values())) < 1e-9,
            "cpu": value.cpu_energy or None, "dram": value.dram_energy, "soc": value.soc_energy}

# Builtin exceptions that a script may name to catch it.
def caught_by(error):
    return [cls.__name__ for cls in type(error).__mro__
            if getattr(builtins, cls.__name__, None) is cls and cls not in (Exception, BaseException, object)]

def call(name, function, *arguments, **keywords):
    waited.clear()
    try:
        answer = {"gives": described(function(*arguments, **keywords))}
    except Exception as error:
        answer = {"raises": caught_by(error)}
    out.append([name, answer, list(waited)])

def make(**keywords):
    return ZeusMonitor(**dict({"cpu_indices": []}, **keywords))

def use(**keywords):
    monitor = make(**keywords)
    monitor.begin_window("a")
    time.sleep(0.3)
    return monitor.end_window("a")

log = os.path.join(folder, "new", f"{package}.csv")
monitor = make(log_file=log)
out.append(["gpu_indices", list(monitor.gpu_indices), list(monitor.cpu_indices)])
call("end, never begun", monitor.end_window, "a")
call("begin", monitor.begin_window, "a")
call("begin again", monitor.begin_window, "a")
call("begin again, not waiting", monitor.begin_window, "a", False)
call("begin again, waiting", monitor.begin_window, "a", True)
call("restart by position", monitor.begin_window, "a", False, True)
call("restart by keyword", monitor.begin_window, key="a", restart=True)
call("restart what is not open", monitor.begin_window, "b", restart=True)
time.sleep(0.3)
call("end", monitor.end_window, "a")
call("end again", monitor.end_window, "a")
call("cancel by position", monitor.end_window, "b", False, True)
call("cancel again", monitor.end_window, "b", cancel=True)
call("not waiting", monitor.begin_window, "a", sync_execution=False)
call("reset", monitor.reset_windows)
call("end after a reset", monitor.end_window, "a")
call("begin after a reset", monitor.begin_window, "a")
call("reset of two", lambda: (monitor.begin_window("c"), monitor.reset_windows())[1])
call("reset of none", monitor.reset_windows)
call("begin both anew", lambda: (monitor.begin_window("a"), monitor.begin_window("c"))[0])
call("cancel one", monitor.end_window, "a", True, True)
call("too many arguments", monitor.begin_window, "d", True, True, True)
call("unknown keyword", monitor.begin_window, "d", wait=True)
call("no key", monitor.begin_window)
fails.append(True)
call("begin, and waiting fails", monitor.begin_window, "e")
fails.clear()
call("end of what did not begin", monitor.end_window, "e")
fails.append(True)
call("an open name before waiting", monitor.begin_window, "c")
call("an unknown name before waiting", monitor.end_window, "e")
fails.clear()
with open(log, encoding="utf-8") as file:
    lines = file.read().splitlines()
out.append(["log", lines[0], len(lines), [line.split(",")[1] for line in lines[1:]]])
gpus = len(monitor.gpu_indices)
call("no GPUs", use, gpu_indices=[])
call("the first", use, gpu_indices=[0])
call("the last two, backwards", use, gpu_indices=[3, 2])
call("one too many", use, gpu_indices=[0, 4])
call("no number", use, gpu_indices=["0"])
call("a fraction", use, gpu_indices=[0.5])
call("a CPU that is not there", use, cpu_indices=[97])
call("all by position", lambda: ZeusMonitor([0], [], False, None, "torch").gpu_indices)
call("approximated", use, gpu_indices=[0], approx_instant_energy=True)
call("cupy", use, gpu_indices=[0], sync_execution_with="cupy")
call("an unknown framework", use, gpu_indices=[0], sync_execution_with="numpy")
print(json.dumps(out))
"""


class SameScript(unittest.TestCase):
    def run_with(self, package, gpus):
        """Returns the output of SCRIPT on emulated GPUs, or without any GPU if `gpus` is None."""
        if package == "zeus":
            python, environment = published_zeus.python(), published_zeus.environment()
        else:
            python, environment = sys.executable, dict(os.environ)
        program = [str(python), "-c", SCRIPT, package, self.folder]
        if gpus is not None:
            program = [os.environ.get("HARPE", str(world.BUILD / "harpe")), "emulate", "--gpus",
                       gpus, "--"] + program
        done = subprocess.run(program, env=environment, text=True, timeout=200, check=False,
                              capture_output=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def compare(self, gpus, meant=()):
        """Every call has the same result in both packages, or raises an exception that a script for
        Zeus also catches. Only the intended differences remain."""
        import tempfile
        with tempfile.TemporaryDirectory(prefix="harpe-zeus-") as self.folder:
            published, ours = self.run_with("zeus", gpus), self.run_with("harpe", gpus)
        self.assertEqual(len(published), len(ours))
        self.assertGreaterEqual(len(published), 40)
        for expected, found in zip(published, ours):
            with self.subTest(expected[0]):
                if expected[0] in meant:
                    self.assertNotEqual(found, expected)
                elif isinstance(expected[1], dict) and "raises" in expected[1]:
                    self.assertIn("raises", found[1])
                    self.assertLessEqual(set(expected[1]["raises"]), set(found[1]["raises"]))
                    self.assertEqual(found[2], [] if found[2] == [] else expected[2])
                else:
                    self.assertEqual(found, expected)
        return published

    def test_on_emulated_gpus(self):
        published = self.compare("4xA100")
        self.assertEqual(published[0], ["gpu_indices", [0, 1, 2, 3], []])

    def test_on_one_gpu(self):
        self.compare("1xV100")

    def test_without_gpus(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("there is a GPU")
        # Without GPUs the published header ends in a comma.
        published = self.compare(None, meant=["log"])
        self.assertEqual(published[0], ["gpu_indices", [], []])
