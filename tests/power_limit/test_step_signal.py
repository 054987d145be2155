# SPDX-License-Identifier: Apache-2.0
"""Step signals under `harpe power-limit run`: they reach the runner and nothing else, even if
descriptors are closed or reused. A stopped or dead runner does not delay the training. No GPU is
needed, because signals are counted without a GPU."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
HARPE = os.environ.get("HARPE", str(BUILD / "harpe"))
LIBRARY = str(BUILD / "libharpe.so")
GENEROUS_S = 120
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from step_memory import StepMemory  # noqa: E402

# The step signals of a C trainer. SIGPIPE ends it, like any C program.
TRAINER = f"""
import ctypes, fcntl, os, pathlib, resource, signal, socket, subprocess, sys, time
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
harpe = ctypes.CDLL({LIBRARY!r})
step, epoch = harpe.harpe_power_limit_mark_step, harpe.harpe_power_limit_mark_epoch
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
def tell(name):
    open(name + ".new", "w").close()
    os.rename(name + ".new", name)
"""

# Uses every number that a descriptor of the runner may have had.
CHECKPOINTS = """
soft = 64
files = []
while True:
    files.append(os.open(f"checkpoint{len(files)}", os.O_RDWR | os.O_CREAT))
    if files[-1] >= soft:
        break
"""


class StepSignal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="harpe-test-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.environment = dict(os.environ, HARPE_NVML_LIBRARY="/nowhere/libnvidia-ml.so.1")
        for name in ("HARPE_STEP_FD", "HARPE_STEP_PIPE", "HARPE_STEP_MEMORY"):
            self.environment.pop(name, None)

    def start(self, *command):
        process = subprocess.Popen([HARPE, "power-limit", "run", "--json", "--", *command], cwd=self.path,
                                   env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def train(self, script):
        return self.start(sys.executable, "-c", TRAINER + script)

    def counts(self, process, code=0):
        out, err = process.communicate(timeout=GENEROUS_S)
        self.assertEqual(process.returncode, code, err)
        answer = json.loads(out)
        return answer["steps"], answer["epochs"], err

    def wait_for(self, reached, what):
        give_up_at = time.monotonic() + GENEROUS_S
        while not reached():
            self.assertLess(time.monotonic(), give_up_at, what)
            time.sleep(0.01)

    def tell(self, name):
        (self.path / name).touch()

    def wait_for_file(self, name):
        self.wait_for((self.path / name).exists, name)

    def stop(self, process):
        process.send_signal(signal.SIGSTOP)
        status = pathlib.Path(f"/proc/{process.pid}/status")
        self.wait_for(lambda: "State:\tT" in status.read_text(), "stopped")

    def checkpoints(self):
        return {path.name: path.read_bytes() for path in self.path.glob("checkpoint*")}

    def check_untouched(self):
        self.assertGreater(len(self.checkpoints()), 50)
        self.assertEqual({name: text for name, text in self.checkpoints().items() if text}, {})

    # ---- Counting

    def test_steps_and_epochs_are_counted(self):
        steps, epochs, _ = self.counts(self.train("""
for e in range(3):
    for s in range(40):
        step()
    epoch()
"""))
        self.assertEqual((steps, epochs), (120, 3))

    def test_signals_of_the_last_moment_are_counted(self):
        # More signals than the runner reads at once, followed by the end.
        steps, epochs, _ = self.counts(self.train("for i in range(50000): step()\nepoch()\nos._exit(7)\n"), 7)
        self.assertEqual((steps, epochs), (50000, 1))

    def test_lines_of_other_languages_are_counted(self):
        process = self.start("sh", "-c", 'i=0; while [ $i -lt 3000 ]; do echo step >&$HARPE_STEP_FD; '
                             'i=$((i+1)); done; echo epoch >&$HARPE_STEP_FD; echo epoch >/dev/fd/$HARPE_STEP_FD')
        self.assertEqual(self.counts(process)[:2], (3000, 2))

    def test_both_ways_and_forked_and_executed_children_count_together(self):
        steps, epochs, _ = self.counts(self.train(f"""
step()
if os.fork() == 0:
    for i in range(10): step()
    os._exit(0)
os.wait()
os.write(int(os.environ["HARPE_STEP_FD"]), b"step\\n" * 5)
subprocess.run([sys.executable, "-c", "import ctypes; h = ctypes.CDLL({LIBRARY!r}); "
                "[h.harpe_power_limit_mark_step() for i in range(100)]"], close_fds=False, check=True)
"""))
        self.assertEqual((steps, epochs), (116, 0))

    def test_threads_lose_no_signal(self):
        steps, epochs, _ = self.counts(self.train("""
import threading
def mark():
    for i in range(5000): step()
    epoch()
threads = [threading.Thread(target=mark) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
"""))
        self.assertEqual((steps, epochs), (20000, 4))

    # ---- Descriptors that are not the runner's any more

    def test_a_launcher_that_closes_descriptors(self):
        process = self.train(f"""
subprocess.run([sys.executable, "-c", {TRAINER + CHECKPOINTS!r} + "for i in range(20): step(); epoch()"], check=True)
""")
        self.assertEqual(self.counts(process)[:2], (20, 20))  # the memory is opened through the runner
        self.check_untouched()

    def test_a_trainer_that_closes_descriptors_after_its_first_signals(self):
        steps, epochs, _ = self.counts(self.train(f"""
for i in range(20): step()
os.closerange(3, 64)
{CHECKPOINTS}
for i in range(20): step()
epoch()
"""))
        self.assertEqual((steps, epochs), (40, 1))  # they no longer need a descriptor
        self.check_untouched()

    def test_a_number_used_again_by_what_else_there_is(self):
        # A file as large as the runner's memory, another memory, a socket, a pipe, a directory.
        steps, epochs, _ = self.counts(self.train("""
numbers = [int(os.environ["HARPE_STEP_FD"]), int(os.environ["HARPE_STEP_MEMORY"].split(":")[0])]
size = os.fstat(numbers[1]).st_size
checkpoint = os.open("checkpoint", os.O_RDWR | os.O_CREAT)
os.write(checkpoint, b"x" * size)
other = os.memfd_create("other")
os.write(other, b"x" * size)
near, far = socket.socketpair()
read, write = os.pipe()
os.set_blocking(read, False)
far.setblocking(False)
for kind in (checkpoint, other, near.fileno(), write, os.open(".", os.O_RDONLY)):
    for number in numbers:
        os.dup2(kind, number)
    for i in range(10):
        step()
        epoch()
for what in (checkpoint, other):
    assert os.pread(what, size + 1, 0) == b"x" * size
for call in (lambda: os.read(read, 1), lambda: far.recv(1)):
    try:
        assert not call()
    except BlockingIOError:
        pass
"""))
        self.assertEqual((steps, epochs), (50, 50))  # in the memory, which only the runner still has

    def test_a_variable_that_makes_no_sense_is_ignored(self):
        for text in ("", "5", "x:y:z", "3:1", "-1:2:3", "99999999999:1:1", "3:1:2:3:4", "3:1:2:", "3:1:2:x", "3:1:2:99999999999",
                     "1e1:2:3", "4: 5:6"):
            steps, _, _ = self.counts(self.train(f"""
os.environ["HARPE_STEP_MEMORY"] = {text!r}
for i in range(3): step()
"""))
            self.assertEqual(steps, 0, text)

    # ---- A memory that this process has made

    def mark(self, name, script="for i in range(3): step()"):
        """Runs a trainer that inherits no descriptor. Returns after its end."""
        done = subprocess.run([sys.executable, "-c", TRAINER + script], timeout=GENEROUS_S, cwd=self.path,
                              env=dict(self.environment, HARPE_STEP_MEMORY=name), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def memory(self, **options):
        memory = StepMemory(**options)
        self.addCleanup(memory.close)
        return memory

    def test_a_memory_that_only_the_runner_has(self):
        memory = self.memory()
        self.mark(memory.name())
        self.assertEqual((memory.steps, memory.source), (3, "marks"))

    def test_a_name_without_the_runner_needs_the_descriptor(self):
        memory = self.memory()
        self.mark(memory.name().rpartition(":")[0])
        self.mark(memory.name(process=1 << 22))
        self.assertEqual(memory.steps, 0)

    def test_only_the_runners_memory_is_opened(self):
        right = self.memory()
        for wrong in (self.memory(name="another"), self.memory(seals=4), self.memory(size=1 << 16)):
            self.mark(wrong.name())
            self.assertEqual(wrong.steps, 0)
            self.mark(f"{wrong.descriptor}:{right.name().partition(':')[2]}")
        self.assertEqual(right.steps, 0)

    def test_a_number_of_the_runner_that_could_wait_is_not_opened(self):
        right = self.memory()
        fifo = self.path / "fifo"
        os.mkfifo(fifo)
        descriptor = os.open(fifo, os.O_RDWR)
        self.addCleanup(os.close, descriptor)
        self.mark(f"{descriptor}:{right.name().partition(':')[2]}")
        self.assertEqual(right.steps, 0)

    def test_the_best_source_of_all_processes_is_counted(self):
        memory = self.memory()

        def count(script):
            before = memory.steps
            self.mark(memory.name(), "count = harpe.harpe_power_limit_count_step\n" + script)
            return memory.steps - before, memory.source
        self.assertEqual(count("[count(1) for i in range(4)]"), (4, "forwards"))
        self.assertEqual(count("[count(s) for i in range(4) for s in (1, 2, 3)]"), (6, "updates"))
        self.assertEqual(count("[count(s) for i in range(4) for s in (1, 2)]"), (0, "updates"))
        self.assertEqual(count("harpe.harpe_power_limit_end_source(2)"), (0, "updates"))
        self.assertEqual(count("harpe.harpe_power_limit_end_source(3)\ncount(2)"), (1, "batches"))
        self.assertEqual(count("step(); count(3)"), (1, "marks"))

    # ---- A runner that does not follow

    def test_a_killed_runner_does_not_end_the_training(self):
        process = self.train("""
step()
tell("first")
wait_for("killed")
for i in range(300000): step()
epoch()
tell("trained")
""")
        self.wait_for_file("first")
        process.kill()
        process.wait()
        self.tell("killed")
        self.wait_for_file("trained")

    def test_a_killed_runner_does_not_end_a_script(self):
        process = self.start("sh", "-c", 'echo step >&$HARPE_STEP_FD; touch first; '
                             'while [ ! -e killed ]; do sleep 0.01; done; '
                             'i=0; while [ $i -lt 20000 ]; do echo step >&$HARPE_STEP_FD; i=$((i+1)); done; touch trained')
        self.wait_for_file("first")
        process.kill()
        process.wait()
        self.tell("killed")
        self.wait_for_file("trained")

    def test_a_stopped_runner_costs_the_training_nothing_and_counts_all(self):
        process = self.train("""
step()
tell("first")
wait_for("stopped")
for e in range(2000):
    for s in range(100): step()
    epoch()
tell("trained")
wait_for("continued")
for i in range(5): step()
""")
        self.wait_for_file("first")
        self.stop(process)
        self.tell("stopped")
        self.wait_for_file("trained")  # while the runner reads nothing
        process.send_signal(signal.SIGCONT)
        self.tell("continued")
        self.assertEqual(self.counts(process)[:2], (200006, 2000))

    def test_a_runner_stopped_beyond_the_trainings_end_counts_all(self):
        process = self.train("""
tell("first")
wait_for("stopped")
for i in range(70000): step()
epoch()
tell("trained")
""")
        self.wait_for_file("first")
        self.stop(process)
        self.tell("stopped")
        self.wait_for_file("trained")
        process.send_signal(signal.SIGCONT)
        self.assertEqual(self.counts(process)[:2], (70000, 1))

    def test_a_stopped_runner_does_not_stop_a_script(self):
        process = self.start("sh", "-c", 'touch first; while [ ! -e stopped ]; do sleep 0.01; done; '
                             'i=0; while [ $i -lt 20000 ]; do echo step >&$HARPE_STEP_FD; i=$((i+1)); done; touch trained')
        self.wait_for_file("first")
        self.stop(process)
        self.tell("stopped")
        self.wait_for_file("trained")
        process.send_signal(signal.SIGCONT)
        self.assertEqual(self.counts(process)[:2], (20000, 0))

    def test_signals_elsewhere_do_nothing(self):
        result = subprocess.run([sys.executable, "-c", TRAINER + CHECKPOINTS + "for i in range(9): step(); epoch()"],
                                env=self.environment, cwd=self.path, timeout=GENEROUS_S)
        self.assertEqual(result.returncode, 0)
        self.check_untouched()


unittest.main()
