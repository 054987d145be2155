# SPDX-License-Identifier: Apache-2.0
"""The import hook of `harpe run` and `harpe tune`. Python imports this file when it starts, because
its directory is in PYTHONPATH. The file then imports the sitecustomize that it hides, and watches
the imports of the process. When a known framework is imported, adapters.py is imported as well.
Until then nothing else is loaded. Nothing here may stop the script: an error is one line on
standard error.

The file imports only modules that Python has imported already, and old versions of Python must be
able to read it."""
import atexit
try:
    import _thread
except ImportError:  # a Python that is too old for the hook
    _thread = None
import os
import sys

# `harpe tune` only counts the program's work. `harpe run` does so in a command of `harpe tune` or
# `harpe power-limit run`.
_ONLY_COUNTS = "HARPE_TUNE" in os.environ
_COUNTS = "HARPE_STEP_MEMORY" in os.environ
# The modules that adapters.py changes as soon as they are imported.
_WATCHED = frozenset((() if _ONLY_COUNTS else (
    "torch.distributed.device_mesh", "torch.distributed.pipelining.schedules",
    "megatron.training.training",
    "deepspeed.runtime.pipe.engine", "transformers.trainer",
    "lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"))
    + (("torch", "torch._dynamo.eval_frame") if _COUNTS else ()))
# Programs that start the ranks of a job, and helpers of PyTorch. They train nothing themselves.
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
              "deepspeed.launcher.runner", "deepspeed.launcher.launch")
_HELPERS = ("torch._inductor.compile_worker",)


def _say(text):
    """Prints a line, if standard error takes it. What remained in its buffer would make the script
    fail when Python ends."""
    line = ("harpe tune: " if _ONLY_COUNTS else "harpe run: ") + " ".join(str(text).split()) + "\n"
    try:
        sys.stderr.flush()
        if sys.stderr is sys.__stderr__:
            os.write(sys.stderr.fileno(), line.encode("utf-8", "backslashreplace"))
        else:
            sys.stderr.write(line)
            sys.stderr.flush()
    except Exception:
        pass


class _Process(object):
    """What is known about this process."""

    def __init__(self):
        self.pid = os.getpid()
        self.has_recognised = False
        self.said = set()

    def recognised(self, text):
        """A framework was recognised. The first rank says what happens."""
        self.has_recognised = True
        if os.environ.get("RANK", "0") == "0":
            self.say_once(text)

    def failed(self, text):
        """An adapter could not be installed. Every rank says why."""
        self.has_recognised = True
        self.say_once(text)

    def say_once(self, text):
        """Prints a line. A script may make a thousand Trainers."""
        if text not in self.said:
            self.said.add(text)
            _say(text)

    def at_exit(self):
        """Says that nothing was recognised. A script may have changed everything that this
        reads."""
        try:
            self.say_nothing_recognised()
        except Exception:
            pass

    def say_nothing_recognised(self):
        """Says it in the first rank of a job, and in the process that is the command itself."""
        if self.has_recognised or _ONLY_COUNTS or os.getpid() != self.pid \
                or os.environ.get("RANK", "0") != "0":
            return
        if not (os.environ.get("HARPE_RUN_PROCESS") == str(self.pid) or "torch" in sys.modules):
            return
        if self.is_launcher() or self.is_worker():
            return
        _say("no known framework trained in '%s'; the script ran unchanged"
             % (sys.argv[0] if getattr(sys, "argv", None) and sys.argv[0] else "python"))

    @staticmethod
    def is_launcher():
        main = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None) or ""
        if main.startswith(_LAUNCHERS + _HELPERS):
            return True
        return "RANK" not in os.environ and not set(sys.modules).isdisjoint(_LAUNCHERS)

    @staticmethod
    def is_worker():
        process = sys.modules.get("multiprocessing.process")
        parent = getattr(process, "parent_process", None)
        return parent is not None and parent() is not None


class _Finder(object):
    """Finds no module itself. It lets the finders behind it find a watched module, and has
    adapters.py called when the module has been executed."""

    def __init__(self, process):
        self.process = process
        self.searching = set()  # (thread, name): a finder may ask the others, and so this one

    def find_spec(self, name, path=None, target=None):
        search = (_thread.get_ident(), name)
        if name not in _WATCHED or search in self.searching:
            return None
        self.searching.add(search)
        try:
            spec = self.found_behind(name, path, target)
        finally:
            self.searching.discard(search)
        if spec is not None:
            self.watch(name, spec.loader)
        return spec

    def found_behind(self, name, path, target):
        """Returns what the next finders find. Python has asked those before this one."""
        finders = list(sys.meta_path)
        if self in finders:
            finders = finders[finders.index(self) + 1:]
        for finder in finders:
            find = getattr(finder, "find_spec", None)
            if find is None and sys.version_info < (3, 12):
                return None  # Python itself asks this finder, which has the older find_module
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def watch(self, name, loader):
        """Has adapters.py called after the next execution of this module. Then the loader is as it
        was before: the module keeps it, and others compare and pickle it."""
        try:
            before = vars(loader).get("exec_module")
            execute = loader.exec_module

            def exec_module(module):
                spec = module.__spec__
                if spec.name != name:  # of a loader that has several modules
                    return execute(module)
                if vars(loader).get("exec_module") is exec_module:
                    if before is None:
                        del loader.exec_module
                    else:
                        loader.exec_module = before
                execute(module)
                if spec.loader is loader:
                    _adapt(name, module, self.process)
                else:  # a LazyLoader: the first use of the module will execute it
                    self.process.failed("%s is loaded lazily; it stays unchanged" % name)

            # Python leaves frames of its import system out of tracebacks.
            exec_module.__code__ = exec_module.__code__.replace(
                co_filename="<frozen importlib._bootstrap_external>")
            loader.exec_module = exec_module
        except Exception as error:
            self.process.failed("%s cannot be watched: %s; it stays unchanged" % (name, error))


def _adapt(name, module, process):
    try:
        _find_package()
        from harpe._run import adapters
        adapters.adapt(name, module, process)
    except Exception as error:
        process.failed("%s: %s; it stays unchanged" % (name, error))


def _find_package():
    """Imports the package harpe: the one that this Python has, or else the one around this file.
    Another module of this name is not executed."""
    import importlib.util
    spec = importlib.util.find_spec("harpe")
    if spec is not None:
        for place in spec.submodule_search_locations or ():
            if os.path.isfile(os.path.join(place, "_run", "adapters.py")):
                import harpe
                return harpe
        raise ImportError("the module harpe of this Python (%s) is not Harpe, or is an older one"
                          % (spec.origin or "a directory"))
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(
        "harpe", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules["harpe"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop("harpe", None)
        raise
    return module


def _install():
    process = _Process()
    atexit.register(process.at_exit)
    sys.meta_path.insert(0, _Finder(process))


def _is_directory(entry, path):
    """Returns true if an entry of sys.path is this directory."""
    try:
        return os.path.abspath(entry or ".") == path
    except Exception:  # a relative path in a directory that was deleted
        return False


def _import_hidden():
    """Imports the sitecustomize that Python would have imported. This directory leaves sys.path;
    PYTHONPATH stays as it is for the processes that this one starts."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not _is_directory(entry, here)]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


if sys.version_info >= (3, 9):
    try:
        _install()
    except Exception as problem:
        _say("%s; this process stays unchanged" % (problem,))
_import_hidden()
