# SPDX-License-Identifier: Apache-2.0
"""`harpe run` with scripts that use no framework, and with modules that have a framework's name and
the parts that the hook changes. The real frameworks are in tests/frameworks/test_run.py."""
import os
import shutil
import signal
import subprocess
import sys
import unittest

import world
from fixtures import folder

HARPE = os.environ.get("HARPE", str(world.BUILD / "harpe"))
NOTHING = "harpe run: no known framework trained in "

PIPELINE = """
class _PipelineSchedule:
    def __init__(self):
        self.ran = []
class PipelineScheduleSingle(_PipelineSchedule):
    def step(self, *arguments, **named):
        self.ran.append((arguments, named))
        return sum(arguments)
class Schedule1F1B(PipelineScheduleSingle):
    pass
"""
MEGATRON = """
def get_timers():
    raise AssertionError("timers is not initialized")
def train(count):
    return count + 1
def pretrain(count):
    return train(count)
"""
ENGINE = """
class PipelineEngine:
    count = 0
    def train_batch(self):
        self.count += 1
        return self.count
"""
TRAINER = """
class Trainer:
    def __init__(self, name):
        self.name = name
    def train(self):
        return self.name
"""
# With the parts that Harpe's callbacks use.
WHOLE_TRAINER = """
import types
class TrainerCallback:
    pass
class Handler:
    def __init__(self, callbacks):
        self.callbacks = list(callbacks)
class Trainer:
    def __init__(self, callbacks=()):
        self.callback_handler = Handler(callbacks)
        self.args = types.SimpleNamespace(device=None, local_process_index=0, world_size=1)
    def add_callback(self, callback):
        self.callback_handler.callbacks.append(callback)
    def names(self):
        return [type(one).__name__ for one in self.callback_handler.callbacks]
    def train(self, fails=False):
        if fails:
            raise KeyboardInterrupt
        return self.names()
    def evaluate(self):
        return self.names()
"""


class Run(unittest.TestCase):
    def setUp(self):
        self.path = folder(self.addCleanup)
        self.environment = {name: value for name, value in os.environ.items()
                            if name not in ("PYTHONPATH", "HARPE_SERVER", "RANK")
                            and not name.startswith("HARPE_RUN")}

    def module(self, name, text):
        """Writes a module below the test's folder, with the packages around it."""
        file = self.path.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        for package in file.parents:
            if package == self.path:
                break
            (package / "__init__.py").touch()
        file.write_text(text, encoding="utf-8")

    def command(self, *arguments, options=(), **environment):
        return subprocess.run([HARPE, "run", *options, "--", *arguments], text=True, timeout=600,
                              env=dict(self.environment, **environment), cwd=self.path,
                              capture_output=True, check=False)

    def script(self, text, *arguments, options=(), **environment):
        (self.path / "train.py").write_text(text, encoding="utf-8")
        return self.command(sys.executable, "train.py", *arguments, options=options, **environment)

    # ---- The command is unchanged ----

    def test_arguments_streams_and_exit_status_are_the_commands(self):
        done = self.script("import sys\nprint(sys.argv, sys.stdin.read())\nsys.exit(7)",
                           "--server", "x y", options=["--server", "http://127.0.0.1:1"])
        self.assertEqual(done.returncode, 7)
        self.assertTrue(done.stdout.startswith("['train.py', '--server', 'x y']"), done.stdout)
        self.assertEqual(done.stderr, NOTHING + "'train.py'; the script ran unchanged\n")

    def test_a_command_without_python_is_unchanged(self):
        done = self.command("sh", "-c", "echo out; echo err >&2; exit 5")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (5, "out\n", "err\n"))

    def test_a_signal_ends_it_as_a_signal(self):
        done = self.script("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
        self.assertEqual(done.returncode, -signal.SIGTERM)

    def test_it_is_the_command_that_receives_signals(self):
        script = self.path / "train.py"
        script.write_text("import signal, sys, time\n"
                          "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(9))\n"
                          "print('ready', flush=True)\nwhile True:\n    time.sleep(1)\n")
        process = subprocess.Popen([HARPE, "run", sys.executable, script], env=self.environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(600), 9)

    def test_pipes_break_as_without_it(self):
        done = self.command("sh", "-c", "yes | head -n 1")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "y\n", ""))

    def test_a_command_that_cannot_run(self):
        (self.path / "text").write_text("no program")
        for name, code in (("./nosuch", 127), ("./text", 126)):
            done = self.command(name)
            self.assertEqual(done.returncode, code)
            self.assertRegex(done.stderr, f"^harpe run: cannot run '{name}': .*\n$")

    def test_wrong_usage(self):
        for arguments in ((), ("--measure-only", "--power-limit", "true"), ("--nosuch", "true")):
            done = subprocess.run([HARPE, "run", *arguments], capture_output=True, text=True,
                                  env=self.environment, check=False)
            self.assertEqual(done.returncode, 2, arguments)

    # ---- Python is unchanged ----

    def test_nothing_is_imported_early(self):
        text = "import sys\nprint(*sorted(sys.modules))\nprint(sys.path)"
        with_it = self.script(text).stdout.splitlines()
        without = subprocess.run([sys.executable, "train.py"], env=self.environment, text=True,
                                 cwd=self.path, capture_output=True, check=True).stdout.splitlines()
        more = set(with_it[0].split()) - set(without[0].split())
        self.assertLessEqual(more, {"sitecustomize", "atexit"})
        self.assertEqual(with_it[1], without[1])

    def test_the_hidden_sitecustomize_runs(self):
        self.module("sitecustomize", "value = 5\nprint('hidden', __name__)")
        done = self.script("import sitecustomize\nprint(sitecustomize.value)",
                           PYTHONPATH=str(self.path))
        self.assertEqual((done.returncode, done.stdout), (0, "hidden sitecustomize\n5\n"))

    def test_a_broken_hidden_sitecustomize_breaks_as_without_it(self):
        self.module("sitecustomize", "import nosuch")
        done = self.script("print('goes on')", PYTHONPATH=str(self.path))
        self.assertEqual((done.returncode, done.stdout), (0, "goes on\n"))
        self.assertIn("No module named 'nosuch'", done.stderr)

    def test_isolated_pythons_are_unchanged(self):
        for option in ("-I", "-S", "-E"):
            done = self.command(sys.executable, option, "-c", "print(1)")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "1\n", ""), option)

    def test_processes_below_it_have_the_hook(self):
        done = self.script("import subprocess, sys\nsubprocess.run([sys.executable, '-c', "
                           "'import sys; print(type(sys.meta_path[0]).__name__)'])")
        self.assertEqual(done.stdout, "_Finder\n")
        self.assertEqual(done.stderr.count(NOTHING), 1)  # the child is not the command

    def test_workers_and_ranks_say_nothing(self):
        text = ("import multiprocessing as m, sys, types\nsys.modules['torch'] = types\n"
                "def work():\n    sys.modules['torch'] = types\n"
                "if __name__ == '__main__':\n    for how in ('spawn', 'fork'):\n"
                "        one = m.get_context(how).Process(target=work)\n"
                "        one.start()\n        one.join()\n")
        self.assertEqual(self.script(text).stderr.count(NOTHING), 1)
        self.assertEqual(self.script(text, RANK="1").stderr, "")

    def outside(self, **environment):
        """Runs the script without `harpe run`."""
        return subprocess.run([sys.executable, "train.py"], text=True, cwd=self.path, check=False,
                              capture_output=True, env=dict(self.environment, **environment))

    def test_a_standard_error_that_takes_nothing_changes_no_status(self):
        for text in ("import os\nos.close(2)",
                     "import os\nos.dup2(os.open('/dev/full', os.O_WRONLY), 2)",
                     "import sys\nsys.stderr = open('/dev/full', 'w')\nsys.stderr.close()",
                     "import sys\nsys.stderr = None"):
            self.assertEqual(self.script(text).returncode, 0, text)

    def test_a_replaced_standard_error_gets_the_line(self):
        text = "import sys\nsys.stderr = open('err', 'w')\nsys.stderr.write('own ')"
        done = self.script(text)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex((self.path / "err").read_text(), f"^own {NOTHING}.*\n$")

    def test_what_a_script_does_to_the_interpreter_is_no_error_at_its_end(self):
        done = self.script("import sys, types\nsys.argv = None\nsys.modules['torch'] = None\n"
                           "sys.modules['__main__'] = types.SimpleNamespace(__spec__="
                           "types.SimpleNamespace(name=3))\nsys.meta_path[:] = []")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertNotIn("Traceback", done.stderr)

    def test_tracebacks_of_frameworks_are_unchanged(self):
        for error in ("ValueError", "ImportError"):
            self.module("transformers.trainer", f"raise {error}('x')")
            done = self.script("import transformers.trainer")
            self.assertEqual(done.stderr.replace(NOTHING + "'train.py'; the script ran unchanged\n",
                                                 ""), self.outside().stderr)
            self.assertEqual(done.returncode, 1)

    # ---- The import system is unchanged ----

    def test_specs_and_loaders_are_unchanged(self):
        self.module("transformers.trainer", TRAINER)
        text = ("import importlib, importlib.util, inspect, pickle\n"
                "import transformers.trainer as t\n"
                "print(vars(t.__loader__), t.__loader__ is t.__spec__.loader)\n"
                "print(pickle.loads(pickle.dumps(t.__spec__)) == t.__spec__)\n"
                "print(pickle.loads(pickle.dumps(t.Trainer)) is t.Trainer)\n"
                "print(inspect.getsource(t), inspect.signature(t.Trainer))\n"
                "print(t.Trainer('x').train(), importlib.reload(t).Trainer('y').train())")
        done = self.script(text)
        self.assertEqual((done.returncode, done.stdout), (0, self.outside().stdout), done.stderr)
        self.assertEqual(done.stderr.count("the Trainer of Transformers"), 1, done.stderr)

    def test_a_loader_of_several_modules(self):
        self.module("transformers.other", "value = 1")
        self.module("transformers.trainer", "import transformers.other\n" + TRAINER)
        shutil.make_archive(str(self.path / "all"), "zip", self.path, "transformers")
        shutil.rmtree(self.path / "transformers")
        done = self.script("import sys\nsys.path.insert(0, 'all.zip')\nimport transformers.trainer "
                           "as t\nprint(t.__loader__, t.Trainer('x').train())")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, self.outside().stdout)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_lazy_module_stays_lazy(self):
        self.module("transformers.trainer", "print('executed')\n" + TRAINER)
        done = self.script(
            "import importlib.util as u, sys\nimport transformers\n"
            "class Lazy:\n    def find_spec(self, name, path=None, target=None):\n"
            "        if name != 'transformers.trainer':\n            return None\n"
            "        sys.meta_path.remove(self)\n        spec = u.find_spec(name)\n"
            "        spec.loader = u.LazyLoader(spec.loader)\n        return spec\n"
            "sys.meta_path.insert(1, Lazy())\nimport transformers.trainer as t\n"
            "print('imported')\nprint(t.Trainer('x').name)")
        self.assertEqual((done.returncode, done.stdout), (0, "imported\nexecuted\nx\n"),
                         done.stderr)
        self.assertRegex(done.stderr, "^harpe run: .*loaded lazily; it stays unchanged\n$")

    def test_other_finders_are_asked_as_before(self):
        self.module("transformers.trainer", TRAINER)
        done = self.script(
            "import sys\nclass Asking:\n    def find_spec(self, name, path=None, target=None):\n"
            "        if name != 'transformers.trainer':\n            return None\n"
            "        print('asked')\n        for one in sys.meta_path:\n"
            "            if one is not self:\n"
            "                spec = one.find_spec(name, path, target)\n"
            "                if spec is not None:\n                    return spec\n"
            "for place in (0, 2):\n    sys.meta_path.insert(place, Asking())\n"
            "    import transformers.trainer as t\n    print(t.Trainer('x').train())\n"
            "    del sys.modules['transformers.trainer'], sys.meta_path[place]\n")
        self.assertEqual((done.returncode, done.stdout), (0, "asked\nx\nasked\nx\n"),
                         done.stderr[-500:])
        self.assertEqual(done.stderr.count("the Trainer of Transformers"), 1, done.stderr)

    def test_a_class_that_does_not_train_stays(self):
        self.module("transformers.trainer", "class Trainer:\n    def __new__(cls, name):\n"
                    "        return super().__new__(cls)\n")
        done = self.script("import transformers.trainer as t\nt.Trainer('x')")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("stays unchanged", done.stderr)

    def test_another_module_of_the_packages_name_is_not_executed(self):
        self.module("transformers.trainer", TRAINER)
        self.module("harpe", "print('mine')")
        done = self.script("import sys\nimport transformers.trainer as t\n"
                           "print(t.Trainer('x').name, 'harpe' in sys.modules)\nimport harpe")
        self.assertEqual((done.returncode, done.stdout), (0, "x False\nmine\n"), done.stderr)
        self.assertRegex(done.stderr, "^harpe run: transformers.trainer: .*stays unchanged\n$")

    # ---- Frameworks ----

    def test_a_schedule_runs_once_for_each_call_without_a_server(self):
        self.module("torch.distributed.pipelining.schedules", PIPELINE)
        done = self.script(
            "from torch.distributed.pipelining.schedules import *\nimport inspect\n"
            "import torch.distributed.pipelining.schedules as s\n"
            "one = Schedule1F1B()\nprint(one.step(1, 2), one.step(3, x=4), one.ran)\n"
            "print(Schedule1F1B.step.__name__, 'PipelineScheduleSingle' in inspect.getsource(s))")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "3 3 [((1, 2), {}), ((3,), {'x': 4})]\nstep True\n")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertRegex(done.stderr, r"^harpe run: torch.distributed.pipelining \(Schedule1F1B\): "
                                      r".*--server URL.*goes on without Harpe\n$")

    def test_an_adapter_that_refuses_does_not_stop_the_training(self):
        self.module("torch.distributed.pipelining.schedules", PIPELINE)
        self.module("megatron.training.training", MEGATRON)
        done = self.script(
            "from torch.distributed.pipelining.schedules import *\nfrom megatron.training.training "
            "import pretrain\none = Schedule1F1B()\nprint(one.step(1), pretrain(1))",
            options=["--server", "http://127.0.0.1:1"])
        self.assertEqual((done.returncode, done.stdout), (0, "1 2\n"), done.stderr)
        self.assertEqual(done.stderr.count("goes on without Harpe"), 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 2, done.stderr)

    def test_what_the_script_installs_itself_is_left_alone(self):
        self.module("torch.distributed.pipelining.schedules", PIPELINE)
        done = self.script("from torch.distributed.pipelining.schedules import *\n"
                           "one = Schedule1F1B()\none.step = lambda: Schedule1F1B.step(one, 2)\n"
                           "print(one.step())", options=["--server", "http://127.0.0.1:1"])
        self.assertEqual((done.returncode, done.stdout), (0, "2\n"), done.stderr)
        self.assertNotIn("Schedule1F1B", done.stderr)

    def test_an_engine_of_deepspeed_runs_once_for_each_call(self):
        self.module("deepspeed.runtime.pipe.engine", ENGINE)
        done = self.script("from deepspeed.runtime.pipe.engine import *\none = PipelineEngine()\n"
                           "print(one.train_batch(), one.train_batch())",
                           options=["--server", "http://127.0.0.1:1"])
        self.assertEqual((done.returncode, done.stdout), (0, "1 2\n"), done.stderr)
        self.assertRegex(done.stderr, r"^harpe run: DeepSpeed \(PipelineEngine\): .*"
                                      r"_INSTRUCTION_MAP.*goes on without Harpe\n$")

    def test_a_trainer_of_another_kind_does_not_stop_the_script(self):
        self.module("transformers.trainer", TRAINER)
        done = self.script("import transformers.trainer as t\nprint(t.Trainer('x').train())")
        self.assertEqual((done.returncode, done.stdout), (0, "x\n"), done.stderr)
        self.assertRegex(done.stderr, "^harpe run: the Trainer of Transformers: .*goes on.*\n$")

    def test_a_line_comes_once(self):
        self.module("transformers.trainer", TRAINER)
        done = self.script("import transformers.trainer as t\nfor i in range(100):\n"
                           "    t.Trainer(i).train()")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr[:500])

    def whole_trainer(self, text, **options):
        """Runs a script with a Trainer that has callbacks. Returns what it prints, and the lines
        of harpe."""
        self.module("transformers.trainer", WHOLE_TRAINER)
        (self.path / "transformers" / "__init__.py").write_text(
            "from transformers.trainer import TrainerCallback\n")
        done = self.script("from transformers.trainer import Trainer\n" + text,
                           PYTHONPATH=str(world.SOURCE / "python"), **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        start = "harpe run: the Trainer of Transformers: "
        return done.stdout.splitlines(), [line[len(start):] for line in done.stderr.splitlines()
                                          if line.startswith(start)]

    ADD = ("from harpe.integrations.transformers import *\nTrainer.own = lambda self: "
           "self.add_callback(EnergyCallback())\none = Trainer()\n")

    def test_a_trainer_has_each_callback_once(self):
        """Also if the script adds its own after the Trainer is made, or between two trainings, or
        takes out that of `harpe run`."""
        energy, limit = ["['EnergyCallback']"], "['EnergyCallback', 'PowerLimitCallback']"
        added = ["its log gets the energy"]
        own = ["the script itself has added Harpe's callbacks"]
        self.assertEqual(self.whole_trainer("print(Trainer().train())"), (energy, added))
        self.assertEqual(self.whole_trainer("print(Trainer().evaluate())"), (energy, added))
        self.assertEqual(self.whole_trainer(self.ADD + "one.own()\nprint(one.train())"),
                         (energy, own))
        out, said = self.whole_trainer(
            self.ADD + "print(one.train())\none.own()\nmine = one.callback_handler.callbacks[-1]\n"
            "print(one.train())\nassert one.callback_handler.callbacks == [mine]")
        self.assertEqual((out, said), (energy * 2, added))
        out, said = self.whole_trainer("one = Trainer()\none.train()\n"
                                       "one.callback_handler.callbacks.clear()\n"
                                       "print(one.train())")
        self.assertEqual((out, said), (["[]"], added))
        out, said = self.whole_trainer(
            self.ADD + "one.train()\none.own()\nprint(one.train())", options=["--power-limit"])
        self.assertEqual(sorted(eval(out[0])), eval(limit))
        self.assertEqual(said, [added[0] + ", the best power limit is looked for"])

    def test_a_frameworks_own_error_stays(self):
        self.module("transformers.trainer", "raise ImportError('no torch here')")
        done = self.script("try:\n    import transformers.trainer\nexcept ImportError as error:\n"
                           "    print(error)")
        self.assertEqual((done.returncode, done.stdout), (0, "no torch here\n"), done.stderr)

    # ---- The package ----

    def test_without_the_package_the_command_runs(self):
        done = self.script("print('runs')", HARPE_PYTHON_PACKAGE=str(self.path / "nosuch"))
        self.assertEqual((done.returncode, done.stdout), (0, "runs\n"))
        self.assertRegex(done.stderr, "^harpe run: .*HARPE_PYTHON_PACKAGE.*runs unchanged\n$")

    def test_the_directory_around_the_package_is_named_in_the_message(self):
        around = str(world.SOURCE / "python")
        done = self.script("print('runs')", HARPE_PYTHON_PACKAGE=around)
        self.assertEqual((done.returncode, done.stdout), (0, "runs\n"))
        self.assertIn(f"HARPE_PYTHON_PACKAGE: {around} has no _run/sitecustomize.py", done.stderr)
        self.assertNotIn("not near this program", done.stderr)

    def test_a_broken_package_is_one_line(self):
        shutil.copytree(world.SOURCE / "python" / "harpe", self.path / "copy" / "harpe",
                        ignore=shutil.ignore_patterns("__pycache__"))
        package = self.path / "copy" / "harpe"
        (package / "_run" / "adapters.py").write_text("raise RuntimeError('broken')")
        self.module("transformers.trainer", TRAINER)
        done = self.script("import transformers.trainer as t\nprint(t.Trainer('x').name)",
                           HARPE_PYTHON_PACKAGE=str(package))
        self.assertEqual((done.returncode, done.stdout), (0, "x\n"), done.stderr)
        self.assertEqual(done.stderr, "harpe run: transformers.trainer: broken; it stays "
                                      "unchanged\n")

    def test_the_package_that_others_may_write_is_not_used(self):
        shutil.copytree(world.SOURCE / "python" / "harpe" / "_run", self.path / "harpe" / "_run")
        for name, mode in (("_run/sitecustomize.py", 0o666), ("_run", 0o777)):
            before = (self.path / "harpe" / name).stat().st_mode
            (self.path / "harpe" / name).chmod(mode)
            done = self.script("print('runs')", HARPE_PYTHON_PACKAGE=str(self.path / "harpe"))
            (self.path / "harpe" / name).chmod(before)
            self.assertEqual((done.returncode, done.stdout), (0, "runs\n"))
            self.assertIn("runs unchanged", done.stderr)

    def test_a_path_that_pythonpath_cannot_hold_is_not_used(self):
        shutil.copytree(world.SOURCE / "python" / "harpe" / "_run", self.path / "a:b" / "_run")
        done = self.script("import sys\nprint(*[one for one in sys.path if one.endswith('_run')])",
                           HARPE_PYTHON_PACKAGE=str(self.path / "a:b"))
        self.assertEqual((done.returncode, done.stdout), (0, "\n"))
        self.assertRegex(done.stderr, "^harpe run: .*a colon.*runs unchanged\n$")

    def test_an_installed_prefix_is_found(self):
        """Program and package lie in one prefix, as `make install` and Debian's packages put them,
        or the program lies inside of the package, where the wheel puts it."""
        for program, package in (("usr/bin", "usr/lib/python3/dist-packages/harpe"),
                                 ("local/bin", "local/lib/python3.12/site-packages/harpe"),
                                 ("venv/harpe/_bundled/bin", "venv/harpe")):
            shutil.copytree(world.SOURCE / "python" / "harpe", self.path / package,
                            dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            (self.path / program).mkdir(parents=True, exist_ok=True)
            harpe = self.path / program / "harpe"
            shutil.copy(HARPE, harpe)
            done = subprocess.run(
                [harpe, "run", "--", "sh", "-c", "echo $PYTHONPATH"],
                env=dict(self.environment, LD_LIBRARY_PATH=str(world.BUILD)), text=True,
                capture_output=True, check=False)
            self.assertEqual(done.stdout.strip(), str((self.path / package / "_run").resolve()),
                             done.stderr)
