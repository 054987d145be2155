# SPDX-License-Identifier: Apache-2.0
"""The published Zeus, as pip installs it, for comparison and for communication. It is installed
once per build directory, in exactly the versions of published_zeus.txt, into a virtual environment
that also sees the system's packages (PyTorch). If pip cannot install it, tests are skipped and
print the reason. Harpe itself does not use it."""
import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import world

REQUIREMENTS = pathlib.Path(__file__).resolve().with_suffix(".txt")
FOLDER = world.BUILD / "published-zeus"
OLD_FOLDER = FOLDER / "old"
OLD = "zeus-ml==0.8.2"  # the last one with zeus.optimizer.perseus
LIMIT_S = 240
NEEDED = ("import zeus.monitor, zeus.optimizer.power_limit, uvicorn, "
          "zeus.optimizer.pipeline_frequency.server.scheduler")


def environment(**changes):
    """Returns the environment of programs that must find the published package and nothing of this
    tree."""
    values = {name: value for name, value in os.environ.items()
              if not name.startswith(("PYTHON", "HARPE_", "ZEUS", "PERSEUS_"))}
    return dict(values, **{name: str(value) for name, value in changes.items()})


def _run(*command):
    """Runs a command. Returns whether it succeeded, and its last line of output."""
    try:
        done = subprocess.run([*map(str, command)], env=environment(), text=True, check=False,
                              timeout=LIMIT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return done.returncode == 0, lines[-1] if lines else f"exit status {done.returncode}"


def _install():
    """Installs the package. Returns the reason of a failure, or None."""
    python = FOLDER / "bin" / "python"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + (OLD + sys.version).encode()).hexdigest()
    stamp = FOLDER / "installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return None
    shutil.rmtree(FOLDER, ignore_errors=True)
    for command in ((sys.executable, "-m", "venv", "--system-site-packages", FOLDER),
                    (python, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary",
                     ":all:", "--retries", "1", "--disable-pip-version-check", "--requirement",
                     REQUIREMENTS),
                    (python, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1",
                     "--disable-pip-version-check", "--target", OLD_FOLDER, OLD),
                    (python, "-c", NEEDED)):
        worked, said = _run(*command)
        if not worked:
            return said
    stamp.write_text(wanted)
    return None


@functools.lru_cache(maxsize=None)
def python():
    """Returns the path of its Python. Raises SkipTest if it cannot be installed."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{FOLDER}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test may be installing it
        reason = _install()
    if reason is not None:
        raise unittest.SkipTest(f"the published Zeus cannot be installed with pip: {reason}")
    return FOLDER / "bin" / "python"


def require_torch():
    """Skips the test if PyTorch, which Zeus's clients need, is missing."""
    worked, said = _run(python(), "-c", "import torch.distributed as d; assert d.is_available()")
    if not worked:
        raise unittest.SkipTest(f"PyTorch is missing (Debian's python3-torch): {said}")
