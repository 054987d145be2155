# SPDX-License-Identifier: Apache-2.0
"""The frequency controller on an emulated GPU, as far as it needs real processes: signals, sessions,
descriptors, files, users, the commands that restore, and zeusd. test_controller_end.c kills trainers and
controllers."""
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import kills
import zeusd
from attempts import attempt
from record_locks import keep_apart, locked

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()
FOLDER = tempfile.TemporaryDirectory(prefix="harpe-test-")
kills.NOTES = keep_apart(BUILD, FOLDER.name)
TAKEN = (kills.HIGHEST_MHZ, kills.HIGHEST_MEMORY_MHZ, 300000, 0)
STOP_S = 3.0
ALREADY_EXISTS, NOT_SUPPORTED, PERMISSION_DENIED, UNAVAILABLE = 4, 11, 5, 15


class Trainer:
    """A trainer that has started its controller and answers commands."""

    def __init__(self, machine, **environment):
        self.process = machine.start(**environment)
        self.machine = machine
        assert self.answer() == "starting"
        self.first = self.answer()

    def answer(self):
        return self.process.stdout.readline().rstrip("\n")

    def tell(self, command):
        self.process.stdin.write(command + "\n")

    def ask(self, command):
        self.tell(command)
        return self.answer()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Controller(unittest.TestCase):
    def setUp(self):
        self.segments = kills.segments()
        self.machine = kills.Machine(BUILD)
        self.uuid = self.machine.uuid()  # also known while the machine is closed

    def tearDown(self):
        self.machine.close()
        self.assertEqual(kills.own_segments(self.segments), set())

    def started(self, **environment):
        trainer = Trainer(self.machine, **environment)
        self.addCleanup(trainer.end)
        self.assertEqual(trainer.first, "training")
        self.assertEqual(self.machine.state(), TAKEN)
        return trainer

    def set(self, trainer, mhz):
        self.assertEqual(trainer.ask(f"set {mhz}"), "set")
        self.assertIsNotNone(self.machine.wait_until(lambda: self.machine.clock() == mhz, kills.LIMIT_S))

    def check_restored(self, within_s=kills.LIMIT_S):
        self.assertIsNotNone(self.machine.wait_until(self.machine.is_restored, within_s), self.machine.state())
        self.assertIsNotNone(self.machine.wait_until(lambda: not self.machine.controllers(), kills.LIMIT_S))
        self.assertEqual(self.machine.state(), self.machine.found)

    def stop(self, trainer):
        """Stops the controller. A stop returns when everything is restored. If that takes more than
        STOP_S, as on a busy machine, the controller continues alone."""
        start = time.monotonic()
        self.assertEqual(trainer.ask("stop"), "stopped")
        if time.monotonic() - start < STOP_S:
            self.assertEqual(self.machine.state(), self.machine.found)
            self.assertEqual(self.machine.controllers(), [])
        self.check_restored()

    # ---- The trainer's end

    def test_stop_puts_everything_back(self):
        trainer = self.started()
        self.set(trainer, 1200)
        self.stop(trainer)

    def test_an_exit_without_stop(self):
        for command, status in (("exit", 0), ("abort", 3)):
            trainer = self.started()
            self.set(trainer, 1200)
            trainer.tell(command)
            self.assertEqual(trainer.process.wait(kills.LIMIT_S), status)
            self.check_restored()

    def test_killed(self):
        trainer = self.started()
        trainer.tell("train")
        time.sleep(0.1)
        trainer.kill()
        self.check_restored()

    def test_stopped_then_killed(self):
        trainer = self.started()
        self.set(trainer, 1200)
        trainer.kill(signal.SIGSTOP)
        time.sleep(0.1)
        self.assertEqual(self.machine.clock(), 1200)  # a stopped trainer is not a dead trainer
        trainer.kill()
        self.check_restored()

    def test_a_forked_child_that_keeps_descriptors_does_not_hide_the_death(self):
        trainer = self.started()
        self.set(trainer, 1200)
        child = int(trainer.ask("fork"))
        try:
            trainer.kill()
            self.check_restored()
            os.kill(child, 0)  # it still exists
        finally:
            os.kill(child, signal.SIGKILL)

    def test_a_forked_child_cannot_stop_its_parents_controller(self):
        trainer = self.started()
        self.set(trainer, 1200)
        self.assertEqual(trainer.ask("fork-stop"), "stopped in a child")
        self.assertEqual(self.machine.clock(), 1200)
        self.set(trainer, 900)
        trainer.kill()
        self.check_restored()

    def test_signals_to_the_trainers_group_pass_the_controller_by(self):
        trainer = self.started()
        controller, = self.machine.controllers()
        self.assertNotEqual(os.getsid(controller), os.getsid(trainer.process.pid))
        os.kill(controller, signal.SIGTERM)
        os.killpg(trainer.process.pid, signal.SIGINT)
        trainer.process.wait(kills.LIMIT_S)
        self.check_restored()

    # ---- Both ends

    def harpe(self, *arguments, **environment):
        return subprocess.run([BUILD / "harpe", *arguments], env=dict(self.machine.environment, **environment),
                              text=True, capture_output=True, timeout=120)

    def records(self):
        """Returns the file that stores the settings of this machine's GPU."""
        return sorted(path.name for path in kills.NOTES.glob(f"{self.machine.uuid()}.*"))

    def check_no_records(self):
        """A process of another test may hold the lock of a record that it has just read."""
        self.assertIsNotNone(self.machine.wait_until(lambda: not self.records(), kills.LIMIT_S), self.records())

    def kill_both(self, trainer, controller_first=True):
        """Kills both at the same instant, as far as signals allow. No process is left that could
        restore the GPU."""
        controller, = self.machine.controllers()
        for process in (controller, trainer.process.pid) if controller_first else (trainer.process.pid, controller):
            os.kill(process, signal.SIGSTOP)
        os.kill(controller, signal.SIGKILL)
        os.kill(trainer.process.pid, signal.SIGKILL)
        trainer.process.wait()
        self.assertIsNotNone(self.machine.wait_until(lambda: not self.machine.controllers(), kills.LIMIT_S))

    def left_changed(self, **environment):
        trainer = self.started(**environment)
        self.set(trainer, 1200)
        self.kill_both(trainer)
        self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]))
        # The processes of other tests look at each record, and remove the lock of the dead process.
        self.assertIn(f"{self.machine.uuid()}.clocks", self.records())
        return trainer

    def test_what_is_found_is_on_disk_while_it_is_changed_and_only_then(self):
        trainer = self.started()
        self.assertIn(f"{self.machine.uuid()}.clocks", self.records())
        folder = kills.NOTES.stat()
        self.assertEqual((folder.st_uid, folder.st_mode & 0o777), (os.geteuid(), 0o700))
        self.assertIn(f"\npower_limit_mw {kills.FOUND_MW}\n",
                      (kills.NOTES / f"{self.machine.uuid()}.clocks").read_text())
        self.stop(trainer)
        self.check_no_records()

    def test_killed_together_then_restored_by_hand(self):
        trainer = self.left_changed()
        told = self.harpe("gpus").stdout
        self.assertRegex(told, f"GPU 0: process {trainer.process.pid} was killed .*harpe gpus --restore")
        result = self.harpe("gpus", "--restore", "--dry-run")
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("would put back: clocks reset, power limit 231 W", result.stdout)
        self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]))
        result = self.harpe("gpus", "--restore", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("GPU 0 (NVIDIA A40): put back: clocks reset, power limit 231 W", result.stdout)
        self.assertEqual(self.machine.state(), self.machine.found)
        self.check_no_records()
        # Other tests may have records of their own GPUs at the same time.
        self.assertNotIn(self.machine.uuid(), self.harpe("gpus", "--restore").stdout)

    def test_restoring_by_hand_as_json(self):
        trainer = self.left_changed()
        for flags, outcome in ((["--dry-run"], "would_restore"), ([], "restored")):
            answer = json.loads(self.harpe("gpus", "--restore", "--json", *flags).stdout)
            self.assertEqual(answer["dry_run"], bool(flags))
            records = [record for record in answer["records"] if record["uuid"] == self.machine.uuid()]
            self.assertEqual(records, [{
                "driver_index": 0, "uuid": self.machine.uuid(), "changed_by": "frequency controller",
                "process": trainer.process.pid, "outcome": outcome, "resets_clocks": True,
                "power_limit_w": kills.FOUND_MW / 1000, "persistence": None, "error": None}])
        self.assertEqual(self.machine.state(), self.machine.found)

    def test_a_power_limit_run_puts_back_what_a_controller_has_left(self):
        self.left_changed()
        result = self.harpe("power-limit", "run", "--", "true")
        self.assertEqual(result.returncode, 0, result)
        self.check_restored()

    def test_a_gpu_whose_trainer_lives_is_left_alone(self):
        trainer = self.started()
        self.set(trainer, 1200)
        self.assertIn(f"left alone: process {trainer.process.pid} uses it", self.harpe("gpus", "--restore").stdout)
        self.assertNotIn("was killed", self.harpe("gpus").stdout)
        trainer.kill()
        self.check_restored()

    def test_a_trainer_that_nobody_waits_for_is_dead(self):
        trainer = self.started()
        self.set(trainer, 1200)
        controller, = self.machine.controllers()
        os.kill(controller, signal.SIGSTOP)
        trainer.kill()  # a zombie until its parent waits for it
        self.assertIsNotNone(self.machine.wait_until(lambda: kills.is_zombie(trainer.process.pid),
                                                     kills.LIMIT_S))
        os.kill(controller, signal.SIGKILL)
        self.assertIsNotNone(self.machine.wait_until(lambda: not self.machine.controllers(), kills.LIMIT_S))
        self.assertIn("put back:", self.harpe("gpus", "--restore").stdout)
        self.check_restored()

    def test_without_permission_the_record_stays(self):
        self.left_changed()
        result = self.harpe("gpus", "--restore", HARPE_EMULATOR_FAULTS="no_permission")
        self.assertEqual(result.returncode, 1, result)
        self.assertIn("NO_PERMISSION", result.stderr)
        self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]))
        self.assertEqual(self.harpe("gpus", "--restore").returncode, 0)
        self.check_restored()

    def check_discarded(self, leave_a_record, *arguments):
        """Checks that the program discards a useless record of this machine. A test that runs at the
        same time may discard it first, and then the record is left once more."""
        def discard(_):
            leave_a_record()
            return self.harpe(*arguments).stdout
        expected = rf"GPU ({self.uuid}|0 \(NVIDIA A40\)): discarded its record"
        self.assertRegex(attempt(discard, lambda said: re.search(expected, said)), expected)

    def test_a_record_that_another_process_keeps_locked(self):
        self.left_changed()
        with locked(kills.NOTES / f"{self.machine.uuid()}.clocks"):
            # Nobody waits for the lock of a record that does not concern the GPUs.
            result = self.harpe("emulate", "--gpus", "1xA40", "--", BUILD / "harpe", "gpus", "--restore")
            self.assertEqual(result.returncode, 0, result)
            self.assertRegex(result.stdout, f"GPU {self.machine.uuid()}: left alone: it is not one of these GPUs")
            result = self.harpe("gpus", "--restore")
            self.assertEqual(result.returncode, 1, result)
            record = f"{self.machine.uuid()}.clocks"
            reason = (f"GPU {self.machine.uuid()} is not restored: another process has kept the record {record} locked "
                      "for more than 5 s; try again, or end that process")
            self.assertIn(f"GPU 0 (NVIDIA A40): not put back: {reason}", result.stdout)
            self.assertIn(reason, result.stderr)
            self.assertIn("would put back: ", self.harpe("gpus", "--restore", "--dry-run").stdout)
            # While a useless record is locked, the command leaves it to the next command and reports nothing.
            text = (kills.NOTES / record).read_text()
            (kills.NOTES / record).write_text(re.sub("boot .*", "boot 00000000-0000-0000-0000-000000000000", text))
            result = self.harpe("gpus", "--restore")
            self.assertEqual((result.returncode, result.stderr), (0, ""), result)
            self.assertNotIn(self.machine.uuid(), result.stdout)
            (kills.NOTES / record).write_text(text)
            self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]))
        self.assertIn("put back: ", self.harpe("gpus", "--restore").stdout)
        self.check_restored()

    def test_a_record_of_another_cluster_is_no_record_of_this_one(self):
        self.left_changed()
        uuid, notes = self.machine.uuid(), {path.name: path.read_bytes() for path in
                                            kills.NOTES.glob(f"{self.machine.uuid()}.*")}
        # Under another cluster name, the record is not used while its own cluster exists.
        result = self.harpe("emulate", "--gpus", "1xA40", "--", BUILD / "harpe", "gpus", "--restore")
        self.assertRegex(result.stdout, f"GPU {uuid}: left alone")
        self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]))
        # A new cluster with the same name has the same UUIDs but different settings.
        self.machine.close()
        self.machine = kills.Machine(BUILD)
        self.assertEqual(self.machine.uuid(), uuid)
        self.machine.call("nvmlDeviceSetPowerManagementLimit", self.machine.handle, 222000)

        def leave_notes():
            for name, text in notes.items():
                (kills.NOTES / name).write_bytes(text)
        self.check_discarded(leave_notes, "gpus", "--restore")
        self.assertEqual(self.machine.state()[2], 222000)
        self.check_no_records()
        self.machine.found = self.machine.state()

    def test_a_record_of_a_cluster_that_is_gone_is_discarded(self):
        def leave_a_record():
            self.machine = kills.Machine(BUILD)
            self.left_changed()
            self.machine.close()
        self.machine.close()
        self.check_discarded(leave_a_record, "emulate", "--gpus", "1xA40", "--", BUILD / "harpe", "gpus", "--restore")
        self.machine = kills.Machine(BUILD)

    def test_records_that_make_no_sense(self):
        self.left_changed()
        note = kills.NOTES / f"{self.machine.uuid()}.clocks"
        text = note.read_text()
        odd = ("", "x", text[:40], text.replace("gpu ", "gqu "), text.replace("clocks", "socks"), "\0" * 5000,
               text.replace("power_limit_mw 231000", "power_limit_mw -1"), text.replace("power_limit_mw 231000\n", ""),
               text + "gpu " + "x" * 4000 + "\n")
        for wrong in odd:
            note.write_text(wrong)
            told = f"{note.name}: this record of saved settings is damaged"
            self.assertIn(told, self.harpe("gpus").stdout, wrong)
            result = self.harpe("gpus", "--restore")
            self.assertNotEqual(result.returncode, 0, (wrong, result))
            self.assertIn(told, result.stdout, wrong)
            self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]), wrong)
            self.assertFalse(note.exists(), wrong)
        note.write_text(text + "what_comes_later 5 6 7\n")
        self.assertEqual(self.harpe("gpus", "--restore").returncode, 0)
        self.check_restored()

    def test_another_start_of_the_machine_voids_a_record(self):
        self.left_changed()
        note = kills.NOTES / f"{self.machine.uuid()}.clocks"
        text = re.sub("boot .*", "boot 00000000-0000-0000-0000-000000000000", note.read_text())
        self.check_discarded(lambda: note.write_text(text), "gpus", "--restore")
        self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]))

    @unittest.skipIf(os.geteuid() != 0 or not os.path.exists("/usr/bin/python3"),
                     "needs root, to be another user")
    def test_another_user_cannot_keep_a_controller_out(self):
        # This user binds the name that claims a GPU, and has no directory for a lock of its own.
        holder = subprocess.Popen(["/usr/bin/python3", "-c", """
import glob, os, socket, sys, time
folder, uuid = sys.argv[1:]
held = [socket.socket(socket.AF_UNIX) for _ in range(2)]
held[0].bind("\\0harpe-gpu-0-" + uuid)
held[1].bind("\\0harpe-gpu-" + uuid)
for name in (uuid + ".clocks", uuid + ".clocks.lock"):
    try:
        os.open(os.path.join(folder, name), os.O_CREAT | os.O_RDWR)
        print("made", name)
    except PermissionError:
        pass
print("holds", flush=True)
time.sleep(600)
""", str(kills.NOTES), self.machine.uuid()], user=65534, group=65534, extra_groups=[], stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(holder.stdout.readline(), "holds\n")
            trainer = self.started()
            self.set(trainer, 1200)
            trainer.kill()
            self.check_restored()
        finally:
            holder.kill()
            holder.communicate()

    # ---- zeusd

    def test_zeusd_is_asked_instead_of_the_driver(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder, \
                zeusd.Zeusd(self.machine, pathlib.Path(folder, "zeusd.sock")) as server:
            # The trainer and its controller themselves must not be able to change anything.
            trainer = self.started(HARPE_EMULATOR_FAULTS="no_permission", ZEUSD_SOCK_PATH=str(server.path))
            self.set(trainer, 1200)
            trainer.kill()
            self.check_restored()
            self.assertEqual(server.calls, [
                "/gpu/set_power_limit?gpu_ids=0&block=true&power_limit_mw=300000",
                "/gpu/set_mem_locked_clocks?gpu_ids=0&block=true&min_clock_mhz=7251&max_clock_mhz=7251",
                "/gpu/set_gpu_locked_clocks?gpu_ids=0&block=true&min_clock_mhz=1740&max_clock_mhz=1740",
                "/gpu/set_gpu_locked_clocks?gpu_ids=0&block=true&min_clock_mhz=1200&max_clock_mhz=1200",
            ] + server.calls[4:])
            self.assertEqual(sorted(server.calls[4:]), [
                "/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true",
                "/gpu/reset_mem_locked_clocks?gpu_ids=0&block=true",
                f"/gpu/set_power_limit?gpu_ids=0&block=true&power_limit_mw={kills.FOUND_MW}",
            ])

    def check_fails(self, said, **environment):
        trainer = Trainer(self.machine, **environment)
        self.addCleanup(trainer.end)
        self.assertRegex(trainer.first, f"^failed {said}")
        self.check_restored()

    def test_a_zeusd_that_refuses_or_is_not_there(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder, \
                zeusd.Zeusd(self.machine, pathlib.Path(folder, "zeusd.sock")) as server:
            server.refuses = True
            self.check_fails(f"{PERMISSION_DENIED}: GPU 0: zeusd refuses .* 403", ZEUSD_SOCK_PATH=str(server.path))
        self.check_fails(f"{UNAVAILABLE}: zeusd at '/nowhere/zeusd.sock' .*ZEUSD_SOCK_PATH",
                         ZEUSD_SOCK_PATH="/nowhere/zeusd.sock")

    def test_a_zeusd_behind_tcp_with_a_token(self):
        with zeusd.Zeusd(self.machine, None, token="a.good.token") as server:
            trainer = self.started(HARPE_EMULATOR_FAULTS="no_permission", ZEUSD_HOST_PORT=server.host_port,
                                   ZEUSD_TOKEN=" a.good.token\n")
            self.set(trainer, 1200)
            trainer.kill()
            self.check_restored()
            self.assertIn("/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true", server.calls)

    def test_a_zeusd_that_wants_a_token(self):
        with zeusd.Zeusd(self.machine, None, token="a.good.token") as server:
            for token, advice in ((None, "set ZEUSD_TOKEN to a token"), ("another", "is not accepted")):
                given = {"ZEUSD_TOKEN": token} if token else {}
                self.check_fails(f"{PERMISSION_DENIED}: GPU 0: zeusd refuses .* 401: .*{advice}",
                                 ZEUSD_HOST_PORT=server.host_port, **given)
            self.assertEqual(server.calls, [])

    def test_the_socket_of_zeusd_comes_before_its_port(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder, \
                zeusd.Zeusd(self.machine, pathlib.Path(folder, "zeusd.sock"), token="t") as server:
            trainer = self.started(HARPE_EMULATOR_FAULTS="no_permission", ZEUSD_SOCK_PATH=str(server.path),
                                   ZEUSD_HOST_PORT="127.0.0.1:1", ZEUSD_TOKEN="t")
            trainer.kill()
            self.check_restored()

    def test_values_for_zeusd_that_cannot_be_right(self):
        cases = [({"ZEUSD_HOST_PORT": text}, f"ZEUSD_HOST_PORT: expected HOST:PORT, found '{re.escape(text)}'")
                 for text in ("somewhere", ":80", "somewhere:", "somewhere:port", "somewhere:99999", "::1:80", "[::1:80", "http://h:1",
                              "h:1/path", "user@h:1", "h:1 ", "h" * 400 + ":1")]
        cases.append(({"ZEUSD_HOST_PORT": "127.0.0.1:1"}, "zeusd at '127.0.0.1:1' does not answer .*ZEUSD_HOST_PORT"))
        cases.append(({"ZEUSD_HOST_PORT": "127.0.0.1:1", "ZEUSD_TOKEN": "two words"}, "ZEUSD_TOKEN"))
        cases.append(({"ZEUSD_HOST_PORT": "127.0.0.1:1", "ZEUSD_TOKEN": "x" * 5000}, "ZEUSD_TOKEN: has more than 4096"))
        for environment, message in cases:
            with self.subTest(environment=environment):
                trainer = Trainer(self.machine, **environment)
                self.addCleanup(trainer.end)
                self.assertRegex(trainer.first, f"^failed [0-9]+: {message[:200]}")
                self.assertNotIn("xxxx", trainer.first)
                self.assertNotIn("two words", trainer.first)
        self.check_restored()

    def test_the_next_start_restores_through_tcp(self):
        with zeusd.Zeusd(self.machine, None, token="secret-token") as server:
            where = {"ZEUSD_HOST_PORT": server.host_port, "ZEUSD_TOKEN": "secret-token"}
            trainer = self.started(HARPE_EMULATOR_FAULTS="no_permission", **where)
            self.set(trainer, 1200)
            for victim in (*self.machine.controllers(), trainer.process.pid):
                os.kill(victim, signal.SIGKILL)
            trainer.process.wait()
            records = list(kills.NOTES.glob(f"{self.machine.uuid()}.clocks"))
            self.assertTrue(any(server.host_port in path.read_text() for path in records), records)
            self.assertFalse(any("secret-token" in path.read_text() for path in records))
            command = [BUILD / "harpe", "gpus", "--restore"]
            environment = dict(self.machine.environment, HARPE_EMULATOR_FAULTS="no_permission")
            refused = subprocess.run(command, env=environment, capture_output=True, text=True)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("ZEUSD_TOKEN", refused.stderr + refused.stdout)
            subprocess.run(command, env=dict(environment, **where), check=True, stdout=subprocess.DEVNULL)
            self.check_restored()

    @unittest.skipUnless(zeusd.published_program(), "zeusd is not installed (cargo install zeusd)")
    def test_the_published_zeusd(self):
        """Runs the real daemon on the emulated GPU, over its socket and over TCP, each with and without
        a token."""
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            for path, has_token in itertools.product((pathlib.Path(folder, "zeusd.sock"), None),
                                                     (False, True)):
                with self.subTest(path=path, has_token=has_token), \
                        zeusd.Published(self.machine, path, has_token) as daemon:
                    trainer = self.started(HARPE_EMULATOR_FAULTS="no_permission", **daemon.environment)
                    self.set(trainer, 1200)
                    self.set(trainer, 900)
                    trainer.kill()
                    self.check_restored()
                    if has_token:
                        self.check_fails(f"{PERMISSION_DENIED}: .*zeusd refuses",
                                         **dict(daemon.environment, ZEUSD_TOKEN="another"))


unittest.main()
