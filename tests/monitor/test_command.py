# SPDX-License-Identifier: Apache-2.0
"""`harpe monitor` end to end on emulated GPUs: measuring a command, the live view on a terminal and
in other output, machines without a GPU, and CPUs from a simulated powercap tree. HARPE_EMULATOR
names the emulated driver library."""
import csv
import fcntl
import io
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from program import HARPE, ProgramTest, environment, json, signal  # noqa: E402

EMULATOR = os.environ.get("HARPE_EMULATOR", "")
LIMIT_S = 300  # of every wait: far more than a loaded machine needs


class MonitorTest(ProgramTest):
    def setUp(self):
        super().setUp()
        cluster = f"monitor-{uuid.uuid4().hex}"
        self.variables = environment(
            HARPE_NVML_LIBRARY=EMULATOR, HARPE_EMULATOR_GPUS="2xA100",
            HARPE_EMULATOR_CLUSTER=cluster, NO_COLOR="", LC_ALL="C.UTF-8")
        self.variables.pop("CUDA_VISIBLE_DEVICES", None)
        memory = pathlib.Path(f"/dev/shm/harpe-emulator-{os.getuid()}-{cluster}")
        self.addCleanup(memory.unlink, missing_ok=True)

    def monitor(self, *arguments, **changes):
        values = dict(self.variables, **changes)
        return self.run_harpe("monitor", *arguments, env=values)

    def monitor_ok(self, *arguments, **changes):
        result = self.monitor(*arguments, **changes)
        self.assertEqual(result.code, 0, result)
        return result

    def measured(self, *arguments, **changes):
        """Measures again if a busy machine has held up the sampler for more than a second. Returns
        the result and when this measurement began."""
        for _ in range(20):
            began_s = time.monotonic()
            result = self.monitor(*arguments, **changes)
            if result.code == 0 or "could not be read for" not in result.err:
                break
        self.assertEqual(result.code, 0, result)
        return result, began_s

    def rapl(self, packages=1):
        for i in range(packages):
            zone = self.path / "rapl" / f"intel-rapl:{i}"
            zone.mkdir(parents=True)
            (zone / "name").write_text(f"package-{i}\n")
            (zone / "energy_uj").write_text("1000\n")
            (zone / "max_energy_range_uj").write_text("262143328850\n")
        return self.path / "rapl"


class Commands(MonitorTest):
    def check_time(self, time_s, least_s, began_s, scale=1):
        """Returns the window's length: at most the time since `began_s`."""
        self.assertGreaterEqual(time_s, least_s * scale)
        self.assertLessEqual(time_s, (time.monotonic() - began_s) * scale)

    def test_summary_is_on_stderr_and_stdout_is_the_commands(self):
        began_s = time.monotonic()
        result = self.monitor_ok("energy", "--", "sh", "-c", "sleep 0.3; echo hello")
        self.assertEqual(result.out, "hello\n")
        told = re.match(r"harpe monitor: (\d+\.\d+) s \(emulated GPUs\)\n", result.err)
        self.check_time(float(told.group(1)), 0.3, began_s)
        for name in ("GPU 0", "GPU 1", "total"):
            self.assertIn(name, result.err)

    def test_json_adds_up(self):
        began_s = time.monotonic()
        got = self.monitor_ok("energy", "--json", "--", "sleep", "0.3").json()
        self.assertEqual(got["command"], ["sleep", "0.3"])
        self.assertEqual((got["exit_status"], got["emulated"], len(got["gpus"])), (0, True, 2))
        self.check_time(got["time_s"], 0.3, began_s)
        self.assertGreater(got["gpus"][0]["energy_j"], 1)
        self.assertAlmostEqual(sum(gpu["energy_j"] for gpu in got["gpus"]), got["gpu_energy_j"], 6)
        self.assertAlmostEqual(got["gpu_energy_j"] + got["cpu_energy_j"], got["total_energy_j"], 6)

    def test_a_command_needs_no_mode(self):
        for options in ([], ["--gpus", "0"]):
            result = self.monitor_ok(*options, "--", "sh", "-c", "echo energy", "--json")
            self.assertEqual(result.out, "energy\n")
            self.assertRegex(result.err, r"(?m)^harpe monitor: \d+\.\d+ s \(emulated GPUs\)$")
        self.assertEqual(self.monitor("--", "sh", "-c", "exit 7").code, 7)

    def test_exit_status_is_passed_on(self):
        for script, code in (("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + 15)):
            self.assertEqual(self.monitor("energy", "--", "sh", "-c", script).code, code)
        self.assertEqual(self.monitor("energy", "--", "/nonexistent/command").code, 127)
        self.assertEqual(self.monitor("energy", "--", "/").code, 126)

    def test_signals_reach_the_command(self):
        script = "trap 'echo stopped; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
        process = subprocess.Popen([HARPE, "monitor", "energy", "--", "sh", "-c", script],
                                   env=self.variables, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, out), (9, "stopped\n"), err)
        self.assertIn("GPU 0", err)

    def test_command_starts_with_default_signals(self):
        result = self.monitor_ok("energy", "--", "sh", "-c", "yes | head -1; kill -l >/dev/null")
        self.assertEqual(result.out, "y\n")
        self.assertNotIn("Broken pipe", result.err)

    def test_csv_is_the_logs_layout(self):
        before_s = time.time()
        self.monitor_ok("energy", "--gpus", "1", "--csv", "log.csv", "--", "sh", "-c", "sleep 0.2")
        table = list(csv.DictReader(io.StringIO((self.path / "log.csv").read_text())))
        self.assertEqual(list(table[0])[:4],
                         ["start_time", "window_name", "elapsed_time", "gpu1_energy"])
        self.assertEqual(len(table), 1)
        self.assertEqual(table[0]["window_name"], "sh -c sleep 0.2")
        self.assertTrue(before_s - 1 < float(table[0]["start_time"]) < time.time() + 1)

    def test_scaled_time_is_the_emulators(self):
        began_s = time.monotonic()
        got = self.monitor_ok("energy", "--json", "--", "sleep", "0.2",
                              HARPE_EMULATOR_TIME_SCALE="100").json()
        self.check_time(got["time_s"], 0.2, began_s, scale=100)
        self.assertGreater(got["gpus"][0]["average_power_w"], 20)
        self.assertLess(got["gpus"][0]["average_power_w"], 450)


class Faults(MonitorTest):
    def test_gpu_without_a_counter_is_sampled(self):
        result, _ = self.measured("energy", "--json", "--", "sleep", "0.4",
                                  HARPE_EMULATOR_FAULTS="no_energy_counter")
        got = result.json()
        self.assertTrue(20 < got["gpus"][1]["average_power_w"] < 450, got)

    def gives_no_number(self, script, message, before=""):
        """The script writes the faults of the driver, which begin with `before`, while it is measured."""
        faults = self.path / "faults"
        faults.write_text(f"{before}\n")
        result = self.monitor("energy", "--json", "--gpus", "0", "--", "sh", "-c", script,
                              HARPE_EMULATOR_FAULTS_FILE=str(faults))
        self.assertEqual((result.code, result.out), (1, ""), result)
        self.assertIn(message, result.err)

    def test_faults_in_mid_window_give_no_number(self):
        self.monitor_ok("energy", "--", "sleep", "0.3")  # the counter is then well above 0
        sampled = "no_energy_counter"
        for before, script, message in (
                ("", "echo counter_restart_after=0 > faults", "ran backwards"),
                ("", "sleep 0.2; echo lost_after=0 > faults; sleep 0.2", "lost"),
                (sampled, f"sleep 0.2; echo {sampled},not_supported=power,not_supported=field_values > faults; "
                          f"sleep 3; echo {sampled} > faults; sleep 0.2", "its power could not be read for"),
                ("", "sleep 0.3; echo counter_factor=1e6 > faults; sleep 0.5", "the energy is not known"),
                ("counter_factor=100", "sleep 0.8", "the energy is not known")):
            with self.subTest(before=before, script=script):
                self.gives_no_number(script, message, before)

    def test_zero_energy_is_told(self):
        result = self.monitor_ok("energy", "--gpus", "0", "--", "true",
                                 HARPE_EMULATOR_FAULTS="energy_step=1e9")
        self.assertIn("did not move", result.err)

    def test_slow_driver_is_told_and_the_number_is_the_windows(self):
        for more in ("", ",no_energy_counter"):
            result, began_s = self.measured("energy", "--json", "--gpus", "0", "--", "sleep", "0.5",
                                            HARPE_EMULATOR_FAULTS="slow_get=200" + more)
            self.assertIn("the driver is slow", result.err)
            got = result.json()
            self.assertTrue(0.8 < got["time_s"] < time.monotonic() - began_s, got)
            self.assertTrue(20 < got["gpus"][0]["average_power_w"] < 450, got)

    def test_lost_gpu_is_told_and_the_commands_status_passed_on(self):
        for script, code in (("exit 0", 1), ("exit 5", 5)):
            result = self.monitor("energy", "--", "sh", "-c", f"sleep 4; {script}",
                                  HARPE_EMULATOR_FAULTS="lost_after=20,no_energy_counter")
            self.assertEqual((result.code, result.out), (code, ""), result)


class Machines(MonitorTest):
    def test_nothing_to_measure(self):
        variables = dict(self.variables, HARPE_NVML_LIBRARY="/nonexistent.so")
        for more in ([], ["--", "true"]):
            self.refuse(1, "nothing to measure", "monitor", "energy", "--no-cpu", *more,
                        env=variables)

    def test_without_a_gpu_the_cpus_are_measured(self):
        result = self.monitor_ok("energy", "--json", "--rapl-path", self.rapl(2), "--", "sh", "-c",
                                 "echo 3001000 > rapl/intel-rapl:1/energy_uj",
                                 HARPE_NVML_LIBRARY="/nonexistent.so")
        self.assertIn("no GPU, only CPUs are measured", result.err)
        got = result.json()
        self.assertEqual([cpu["name"] for cpu in got["cpus"]], ["package-0", "package-1"])
        self.assertEqual([cpu["energy_j"] for cpu in got["cpus"]], [0, 3])
        self.assertEqual((got["total_energy_j"], got["gpus"]), (3, []))
        self.assertIsNone(got["cpus"][0]["dram_energy_j"])

    def test_bad_usage(self):
        variables = self.variables
        for arguments, message in (
                ([], "a command after '--'; see"), (["heat"], "a command after '--', found 'heat'"),
                (["power", "--", "true"], "harpe monitor -- true"),
                (["sleep", "1"], "'sleep'"),
                (["energy", "--interval", "0"], "--interval"),
                (["energy", "--duration", "-1"], "--duration"),
                (["energy", "--interval", "1", "--", "true"], "live display"),
                (["power", "--json", "--csv", "-"], "--csv -"),
                (["power", "--gpus", "0,x"], "--gpus"), (["power", "--gpus", "2"], "no GPU 2"),
                (["power", "--gpus", "0,0"], "twice"), (["power", "--gpus", ""], "--gpus")):
            self.refuse(2, message, "monitor", *arguments, env=variables)
        self.refuse(1, "nodir/log.csv", "monitor", "energy", "--csv", "nodir/log.csv", "--", "true",
                    env=variables)


class Streams(MonitorTest):
    def test_a_line_per_interval_and_a_summary(self):
        process = subprocess.Popen([HARPE, "monitor", "power", "--interval", "0.1"], env=self.variables,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = [process.stdout.readline() for _ in range(4)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, err), (0, ""), out)
        shape = r"^ +(\d+\.\d+) s  GPU 0 +\d+\.\d W  GPU 1 +\d+\.\d W  .*total"
        times = [float(re.match(shape, line).group(1)) for line in lines]
        self.assertGreaterEqual(times[0], 0.1)
        self.assertEqual(times, sorted(set(times)))
        self.assertIn("(emulated GPUs)", out)  # the summary
        self.assertGreaterEqual(out.count("\n"), 3)
        self.assertNotIn("\x1b", "".join(lines) + out)

    def test_it_ends_by_itself(self):
        out = self.monitor_ok("power", "--interval", "0.1", "--duration", "0.35").out
        self.assertIn("(emulated GPUs)", out)

    def test_power_is_that_of_a_gpu(self):
        out = self.monitor_ok("power", "--json", "--interval", "0.1", "--duration", "0.3").out
        for line in out.splitlines():
            got = json.loads(line)
            for gpu in got["gpus"]:
                self.assertTrue(20 < gpu["power_w"] < 450, gpu)
                self.assertEqual(gpu["power_limit_w"], 400)
                self.assertGreater(gpu["temperature_c"], 10)
            self.assertAlmostEqual(got["total_power_w"], sum(g["power_w"] for g in got["gpus"]), 6)

    def test_csv_to_stdout_and_to_a_file(self):
        out = self.monitor_ok("energy", "--no-cpu", "--csv", "-", "--interval", "0.1", "--duration",
                              "0.35").out
        table = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual(list(table[0]), ["time", "elapsed_time", "gpu0_energy", "gpu1_energy"])
        energies = [float(row["gpu0_energy"]) for row in table]
        self.assertEqual(energies, sorted(energies))
        self.assertGreater(energies[-1], 0)
        self.monitor_ok("power", "--csv", "power.csv", "--interval", "0.1", "--duration", "0.15")
        self.assertIn(",gpu1_power", (self.path / "power.csv").read_text())

    def test_a_signal_ends_with_the_summary(self):
        process = subprocess.Popen([HARPE, "monitor", "energy", "-i", "0.1"], env=self.variables,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, err), (0, ""), out)
        self.assertIn("(emulated GPUs)", out)


class Display(MonitorTest):
    def display(self, key, columns=100, rows=24, **changes):
        """Returns the output on a terminal until the program ends. `key` is pressed after some
        frames."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        values = dict(self.variables, TERM="xterm", **changes)
        before = termios.tcgetattr(slave)
        process = subprocess.Popen([HARPE, "monitor", "power", "-i", "0.05"], env=values,
                                   stdin=slave, stdout=slave, stderr=slave,
                                   preexec_fn=lambda: (os.setsid(),
                                                       fcntl.ioctl(0, termios.TIOCSCTTY, 0)))
        text, end, pressed = b"", time.time() + LIMIT_S, False
        while time.time() < end and (process.poll() is None or select.select([master], [], [], 0)[0]):
            if select.select([master], [], [], 0.05)[0]:
                text += os.read(master, 65536)
            if not pressed and text.count(b"\x1b[H") >= 4:
                os.write(master, key)
                pressed = True
        self.assertEqual(process.wait(LIMIT_S), 0, text)
        self.assertEqual(termios.tcgetattr(slave), before)
        os.close(master)
        os.close(slave)
        return text.decode()

    def test_keys_end_it_and_the_terminal_is_as_before(self):
        for key in (b"q", b"\x03"):
            text = self.display(key)
            self.assertTrue(text.startswith("\x1b[?1049h"), repr(text[:40]))
            summary = text.split("\x1b[?1049l")
            self.assertEqual(len(summary), 2)
            self.assertIn("GPU 1", summary[1])
            # no frame clears the screen, so that it does not flicker
            self.assertNotIn("\x1b[2J", text[20:])

    def test_frame_fits_the_terminal(self):
        for columns in (62, 80, 100, 200):
            text = self.display(b"q", columns, NO_COLOR="1")
            frame = text.split("\x1b[?7h")[0].split("\x1b[H")[-1]
            lines = frame.replace("\x1b[K", "").replace("\x1b[J", "").splitlines()
            self.assertEqual(len([line for line in lines if "A100" in line]), 2, frame)
            self.assertLessEqual(max(map(len, lines)), columns, frame)
            self.assertNotIn("\x1b", "".join(lines))  # NO_COLOR

    def test_low_terminal_tells_of_the_rest(self):
        text = self.display(b"q", rows=8, HARPE_EMULATOR_GPUS="8xH100")
        frame = text.split("\x1b[H")[3]
        self.assertIn("and 5 more GPUs", frame)
        self.assertLess(frame.count("\n"), 8)
