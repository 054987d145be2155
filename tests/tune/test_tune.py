# SPDX-License-Identifier: Apache-2.0
"""`harpe tune` on emulated GPUs, as far as it needs real processes: how work is measured, what reaches the
command, and what is restored. test_thread.c checks the choices in virtual time."""
import contextlib
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from process_groups import end_group
from record_locks import keep_apart

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
HARPE = str(BUILD / "harpe")
LIBRARY = str(BUILD / "emulator" / "libnvidia-ml.so.1")
FOLDER = tempfile.TemporaryDirectory(prefix="harpe-test-")
keep_apart(BUILD, FOLDER.name)
LIMIT_S = 600
HIGHEST_MHZ = 1410

# A program that works in steps until the file "stop" exists, and calls done(step) after each.
PROGRAM = f"""
import ctypes, os, sys, time
emulator = ctypes.CDLL({LIBRARY!r})
work = emulator.harpe_emulator_work
work.argtypes = [ctypes.c_uint, ctypes.c_double, ctypes.c_double, ctypes.c_void_p]
def run(done, step_s=0.5):
    step = 0
    while not os.path.exists("stop"):
        assert work(0, step_s, 0.1, None) == 0
        step += 1
        done(step)
    return step
"""
MARKING = PROGRAM + """
marks = int(os.environ["HARPE_STEP_FD"])
run(lambda step: os.write(marks, b"step\\n"))
sys.exit(7)
"""
PRINTING = PROGRAM + """
def done(step):
    sys.stdout.buffer.write(b"loss 0.5\\xff step %d\\n" % step)
    sys.stderr.write(f"\\rbar {step}")
    sys.stdout.flush(); sys.stderr.flush()
print("steps", run(done))
"""
SERVING = PROGRAM + """
import http.server, threading
count = fast = 0
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if os.path.exists("away"):
            self.send_error(503)
            return
        text = f"# TYPE tokens_total counter\\ntokens_total{{engine=\\"0\\"}} {count * 100}\\nother NaN\\n"
        bounds = [("0.1", fast), ("10", count), ("+Inf", count)]
        text += "".join(f'wait_seconds_bucket{{le="{bound}"}} {n}\\n' for bound, n in bounds)
        self.send_response(200); self.end_headers(); self.wfile.write(text.encode())
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
with open("port.new", "w") as port:
    port.write(str(server.server_port))
os.rename("port.new", "port")
def done(step):
    # Answers are slow at all clocks but the highest one, and at all while the file "slow" exists.
    global count, fast
    mhz = ctypes.c_uint()
    emulator.harpe_emulator_clock(0, ctypes.byref(mhz), None, None)
    fast += mhz.value == 1410 and not os.path.exists("slow")
    count = step
run(done)
"""
COUNTING = PROGRAM + """
def done(step):
    with open("count.new", "w") as count:
        count.write(f"{step}\\n")
    os.rename("count.new", "count")
run(done)
"""


class Tune(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="harpe-test-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.use_gpus()

    def use_gpus(self, faults=""):
        self.cluster = f"tune-{os.getpid()}-{time.monotonic_ns()}"
        self.environment = dict(os.environ, HARPE_NVML_LIBRARY=LIBRARY, HARPE_EMULATOR_GPUS="2xA100",
                                HARPE_EMULATOR_TIME_SCALE="50", HARPE_EMULATOR_CLUSTER=self.cluster,
                                HARPE_PROGRAM=HARPE, HARPE_AGENT_SOCKET="", HARPE_EMULATOR_FAULTS=faults)
        for name in ("CUDA_VISIBLE_DEVICES", "HARPE_EMULATOR_FAULTS_FILE", "HARPE_STEP_MEMORY"):
            self.environment.pop(name, None)
        self.addCleanup(lambda cluster=self.cluster: self.remove(cluster))

    @staticmethod
    def remove(cluster):
        for file in pathlib.Path("/dev/shm").glob(f"*{cluster}*"):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()

    def start(self, *command, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen(command, cwd=self.path, env=self.environment, start_new_session=True, **options)
        self.addCleanup(end_group, process)
        return process

    def tune(self, *arguments, **options):
        return self.start(HARPE, "tune", *arguments, **options)

    def wait_for(self, reached, what):
        give_up_at = time.monotonic() + LIMIT_S
        while not reached():
            self.assertLess(time.monotonic(), give_up_at, what)
            time.sleep(0.01)

    def ask_gpus(self, code):
        """Runs Python with `gpu` and `nvml`, the driver library, in a process of its own."""
        script = f"""
import ctypes
nvml = ctypes.CDLL({LIBRARY!r})
nvml.nvmlInit_v2()
gpu = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu))
{code}
"""
        return subprocess.run([sys.executable, "-c", script], env=self.environment, check=True, text=True,
                              stdout=subprocess.PIPE, timeout=LIMIT_S).stdout.strip()

    def writes(self):
        """Returns how often settings of the first GPU were changed."""
        return int(self.ask_gpus("""
counts = [ctypes.c_uint64() for _ in range(3)]
nvml.harpe_emulator_write_count(0, *map(ctypes.byref, counts))
print(sum(count.value for count in counts))"""))

    def working_mhz(self):
        return int(self.ask_gpus("""
mhz = ctypes.c_uint()
nvml.harpe_emulator_wait(0, 1)
nvml.nvmlDeviceGetClockInfo(gpu, 0, ctypes.byref(mhz))
nvml.harpe_emulator_wait(0, 0)
print(mhz.value)"""))

    def wait_for_trial(self, process):
        """Waits until a clock was tried: the first two writes lock the highest ones."""
        self.wait_for(lambda: self.writes() > 3 or process.poll() is not None, "a clock is tried")
        self.assertIsNone(process.poll(), "the command has ended")

    def finish(self, process, code=0):
        """Ends the program in its own way. Returns the report and standard error."""
        (self.path / "stop").touch()
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, code, err)
        (self.path / "stop").unlink()
        return out, err.decode(errors="replace")

    def check_restored(self):
        self.wait_for(lambda: self.working_mhz() == HIGHEST_MHZ, "clocks are restored")

    # ---- How work is measured

    def test_marks_are_used_and_the_exit_status_passes(self):
        process = self.tune("--json", "--", sys.executable, "-c", MARKING)
        self.wait_for_trial(process)
        out, err = self.finish(process, 7)
        report = json.loads(out)
        self.assertEqual(report["meter"], "the program's marks")
        self.assertGreater(report["work"], 5)
        self.assertGreater(report["energy_j"], 0)
        self.assertTrue(report["is_restored"])
        self.assertIn("work is measured by the program's marks", err)
        self.check_restored()

    def tune_server(self, *arguments):
        server = self.start(sys.executable, "-c", SERVING)
        self.wait_for((self.path / "port").exists, "the server is there")
        url = f"http://127.0.0.1:{(self.path / 'port').read_text()}/metrics"
        return self.tune("--json", "--attach", str(server.pid), "--rate-url", url, "--rate",
                         'tokens_total{engine="0"}', *arguments)

    def test_a_setting_with_long_latencies_is_too_slow(self):
        process = self.tune_server("--selector", "energy", "--latency-p95", "wait_seconds:5")
        for line in process.stderr:
            if b"settled after" in line:
                break
        out, _ = self.finish(process)
        report = json.loads(out)
        self.assertEqual((report["phase"], report["clock_mhz"]), ("settled", HIGHEST_MHZ))
        self.assertGreater(report["trials"], 0)

    def test_a_counter_on_a_page(self):
        process = self.tune_server("--latency-p95", "wait_seconds:5")
        self.wait_for_trial(process)
        (self.path / "away").touch()  # the page is gone for a while
        time.sleep(0.5)
        (self.path / "away").unlink()
        before = self.writes()
        self.wait_for(lambda: self.writes() > before + 4, "tuning goes on")
        (self.path / "slow").touch()  # the latency has become too long
        for line in process.stderr:
            if b"the latency is above its limit" in line:
                break
        out, _ = self.finish(process)
        report = json.loads(out)
        self.assertEqual(report["meter"], "the counter on the page of metrics")
        self.assertGreater(report["work"], 500)
        self.assertIsNone(report["reason"])
        self.check_restored()

    def test_output_passes_unchanged(self):
        process = self.tune("--json", "--rate-regex", "step ([0-9]+)", "--", sys.executable, "-c", PRINTING)
        self.wait_for_trial(process)
        out, err = self.finish(process)
        lines, _, report = out.partition(b"{")
        count = int(lines.split()[-1])
        self.assertEqual(lines, b"".join(b"loss 0.5\xff step %d\n" % step for step in range(1, count + 1)) +
                         b"steps %d\n" % count)
        for step in (1, count // 2, count):
            self.assertIn(f"\rbar {step}", err)
        report = json.loads(b"{" + report)
        self.assertEqual(report["meter"], "the command's output")
        self.assertAlmostEqual(report["work"], count, delta=3)
        self.check_restored()

    def test_a_program_that_cannot_be_measured_is_unchanged_and_told(self):
        before = self.writes()
        process = self.tune("--", "sh", "-c", "i=0; while [ $i -lt 20 ]; do sleep 0.1; i=$((i+1)); done; exit 3")
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, out), (3, b""))
        self.assertEqual(err.count(b"cannot measure this program"), 1, err)
        self.assertEqual(self.writes(), before)

    # ---- Whatever happens

    def test_clocks_come_back_after_a_kill_and_the_program_goes_on(self):
        process = self.tune("--rate-regex", "step ([0-9]+)", "--", sys.executable, "-c", PRINTING)
        self.wait_for_trial(process)
        process.kill()
        process.wait(timeout=LIMIT_S)
        self.check_restored()
        (self.path / "stop").touch()
        out = process.stdout.read()  # until the program has ended
        count = int(out.split()[-1])
        self.assertEqual(out.count(b"\n"), count + 1)

    def test_signals_reach_the_command(self):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            script = f"trap 'exit 5' {int(number)}; touch ready; while :; do sleep 0.05; done"
            process = self.tune("--", "sh", "-c", script)
            self.wait_for((self.path / "ready").exists, "the command runs")
            (self.path / "ready").unlink()
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=LIMIT_S), 5)

    def test_a_signal_for_all_processes_of_a_job_stops_no_output(self):
        script = "trap : USR1; touch ready; until [ -e stop ]; do sleep 0.05; done; echo end"
        process = self.tune("--rate-regex", "x", "--", "sh", "-c", script)
        self.wait_for((self.path / "ready").exists, "the command runs")
        os.killpg(process.pid, signal.SIGUSR1)
        out, _ = self.finish(process)
        self.assertEqual(out, b"end\n")

    def test_without_gpus_or_rights_the_command_runs(self):
        self.use_gpus(faults="no_permission")
        process = self.tune("--", sys.executable, "-c", MARKING)
        line = process.stderr.readline() + process.stderr.readline()
        self.assertIn(b"the program runs on untuned", line)
        self.finish(process, 7)
        self.environment["HARPE_NVML_LIBRARY"] = "/nowhere/libnvidia-ml.so.1"
        process = self.tune("--", "sh", "-c", "echo out; exit 4")
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, out), (4, b"out\n"))
        self.assertEqual(err.count(b"\n"), 1, err)
        self.assertIn(b"the program runs untuned", err)

    # ---- Options

    def test_dry_run_needs_no_rights_and_changes_nothing(self):
        self.use_gpus(faults="no_permission")
        before = self.writes()
        process = self.tune("--dry-run", "--", sys.executable, "-c", MARKING)
        self.assertIn(b"work is measured", process.stderr.readline())
        time.sleep(1)
        _, err = self.finish(process, 7)
        self.assertIn("nothing was changed (--dry-run)", err)
        self.assertEqual(self.writes(), before)

    def test_a_process_that_runs_is_tuned_until_its_end(self):
        program = self.start(sys.executable, "-c", COUNTING)
        process = self.tune("--json", "--attach", str(program.pid), "--rate-file", "count")
        self.wait_for_trial(process)
        out, _ = self.finish(process)
        self.assertEqual(json.loads(out)["meter"], "the number in the file")
        self.assertEqual(program.wait(timeout=LIMIT_S), 0)
        self.check_restored()

    def test_a_result_is_saved_and_used(self):
        for _ in range(2):
            process = self.tune("--save", "result", "--max-slowdown", "0.5", "--", sys.executable, "-c", MARKING)
            for line in process.stderr:
                if b"settled after" in line:
                    break
            _, err = self.finish(process, 7)
            self.assertRegex(err, r"saved so far: -?[0-9.e-]+ kWh( \(\+- [0-9.e-]+ kWh\)|, which could be noise)")
            saved = json.loads((self.path / "result").read_text())
            self.assertLessEqual(saved["clock_mhz"], HIGHEST_MHZ)
        self.assertGreater(saved["energy_ratio"], 0)

    def test_a_report_that_cannot_be_written_is_told_and_the_status_stays(self):
        with open("/dev/full", "wb") as full:
            process = self.tune("--json", "--", "sh", "-c", "exit 6", stdout=full)
            _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 6)
        self.assertIn(b"No space left", err)

    def test_the_live_line_is_for_terminals(self):
        ours, theirs = pty.openpty()
        process = self.start(HARPE, "tune", "--", sys.executable, "-c", MARKING, stderr=theirs)
        os.close(theirs)
        text = b""
        while b"MHz, " not in text or b"\r\x1b[K" not in text:
            text += os.read(ours, 4096)
        (self.path / "stop").touch()
        with contextlib.suppress(OSError):
            while os.read(ours, 4096):
                pass
        self.assertEqual(process.wait(timeout=LIMIT_S), 7)
        os.close(ours)

    def test_mistakes_end_it_before_the_command_starts(self):
        (self.path / "wrong").write_text("{}")
        for arguments, reason in (
                (["--rate-regex", "("], "--rate-regex '('"),
                (["--rate-url", "x", "--rate", "a"], "--rate-url"),
                (["--rate-url", "http://a:1", "--rate", "1"], "--rate: expected NAME"),
                (["--rate-url", "http://a:1"], "belong together"),
                (["--rate-file", "a", "--rate-regex", "b"], "exclude each other"),
                (["--latency-p95", "a:1"], "needs --rate-url"),
                (["--latency-p95", "a"], "HISTOGRAM:SECONDS"),
                (["--knob", "fan"], "--knob: expected"),
                (["--max-slowdown", "5"], "--max-slowdown"),
                (["--max-slowdown", "1.05"], "--max-slowdown"),
                (["--eta", "0.5"], "--eta needs"),
                (["--attach", "1"], "exclude each other"),
                (["--save", ""], "--save: the name of the file is empty"),
                (["--save", "wrong"], "is no result of harpe tune")):
            process = self.tune(*arguments, "--", "touch", "started")
            _, err = process.communicate(timeout=LIMIT_S)
            self.assertIn(process.returncode, (1, 2), arguments)
            self.assertIn(reason, err.decode())
            self.assertEqual(err.count(b"\n"), 1, err)
        self.assertFalse((self.path / "started").exists())
        process = self.tune("--", "/nowhere/program")
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 127)
