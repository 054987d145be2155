# SPDX-License-Identifier: Apache-2.0
"""The frequency controller on an emulated GPU, with real processes: however the trainer ends, the
GPU's settings are restored and nothing is left behind. bench/kill_training measures the time."""
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

    def counts(self):
        names = ("clock_requests", "written", "skipped", "superseded", "failed", "median_s", "p99_s", "maximum_s")
        return dict(zip(names, (float(value) for value in self.ask("count").split())))

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

    def test_exit_without_stop(self):
        trainer = self.started()
        self.set(trainer, 1200)
        trainer.tell("exit")
        self.assertEqual(trainer.process.wait(kills.LIMIT_S), 0)
        self.check_restored()

    def test_sudden_exit(self):
        trainer = self.started()
        self.set(trainer, 1200)
        trainer.tell("abort")
        self.assertEqual(trainer.process.wait(kills.LIMIT_S), 3)
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

    def test_killed_amid_slow_sets(self):
        trainer = self.started(HARPE_EMULATOR_FAULTS="slow_set=200")
        trainer.tell("train")
        time.sleep(0.55)
        trainer.kill()
        self.check_restored()

    def kill_amid_a_hanging_call(self, after_s):
        """Kills the trainer during a single call that hangs. Returns False if the call has not
        hung: on a busy machine it begins late."""
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            faults = pathlib.Path(folder, "faults")
            trainer = self.started(HARPE_EMULATOR_FAULTS_FILE=str(faults))
            self.set(trainer, 1200)
            controller, = self.machine.controllers()
            faults.write_text("slow_set=20000")
            self.assertEqual(trainer.ask("set 600"), "set")
            time.sleep(after_s)
            faults.unlink()  # the single call is in progress
            trainer.kill()
            self.assertIsNotNone(self.machine.wait_until(self.machine.is_restored, kills.LIMIT_S))
            # It still locks the clock ten seconds after it began. This lock is also undone.
            seen = set()
            self.assertIsNotNone(self.machine.wait_until(
                lambda: seen.add(self.machine.clock()) or 600 in seen or not os.path.exists(f"/proc/{controller}/exe"),
                kills.LIMIT_S))
            self.check_restored()
            return 600 in seen

    def test_a_driver_call_that_hangs_does_not_hold_up_the_rest(self):
        self.assertTrue(any(self.kill_amid_a_hanging_call(after_s) for after_s in (2, 3, 4, 5, 6)))

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

    def test_a_trainer_that_comes_back_at_once_waits_until_all_is_put_back(self):
        first = self.started(HARPE_EMULATOR_FAULTS="slow_set=300")
        first.tell("train")
        time.sleep(0.5)
        first.kill()
        second = self.started()
        self.set(second, 1200)
        self.assertEqual(len(self.machine.controllers()), 1)
        time.sleep(1)
        self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]))
        second.kill()
        self.check_restored()

    def test_a_gpu_has_one_controller(self):
        trainer = self.started()
        self.set(trainer, 1200)
        second = Trainer(self.machine)
        self.addCleanup(second.end)
        self.assertRegex(second.first, f"^failed {ALREADY_EXISTS}: GPU 0 has another frequency controller")
        self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]))
        trainer.kill()
        self.check_restored()

    def test_15_kills_at_random_moments(self):
        outcome = kills.kill_many(self.machine, 15, seed=int(time.time()),
                                  within_s=kills.LIMIT_S)
        print(outcome, file=sys.stderr)
        self.assertEqual((outcome.failures, outcome.left), (0, 0), outcome)
        self.assertGreater(outcome.changed, 5, outcome)

    def test_6_kills_of_both_in_all_orders(self):
        outcome = kills.kill_both_many(self.machine, 6, seed=int(time.time()))
        print(outcome, file=sys.stderr)
        self.assertEqual((outcome.failures, outcome.left), (0, 0), outcome)

    # ---- The controller's end

    def test_another_controller_knows_what_the_first_one_had_found(self):
        trainer = self.started()
        self.set(trainer, 1200)
        first, = self.machine.controllers()
        os.kill(first, signal.SIGKILL)
        self.assertIsNotNone(self.machine.wait_until(lambda: not self.machine.controllers(), kills.LIMIT_S))
        # Its memory is released before its end of the socket is closed.
        self.assertIsNotNone(self.machine.wait_until(
            lambda: trainer.ask("check").startswith(f"{UNAVAILABLE} "), kills.LIMIT_S))
        for _ in range(2):
            status, message = trainer.ask("check").split(" ", 1)
            self.assertEqual(int(status), UNAVAILABLE)
            self.assertIn(f"process {first}) has died", message)
        self.assertEqual(trainer.ask("set 600"), "set")  # waits
        self.assertEqual(trainer.ask("restart"), "restarted")
        self.assertIsNotNone(self.machine.wait_until(lambda: self.machine.clock() == 600, kills.LIMIT_S))
        self.assertEqual(trainer.ask("check").split()[0], "0")
        self.set(trainer, 900)
        self.assertIsNotNone(self.machine.wait_until(lambda: trainer.counts()["written"] == 3, kills.LIMIT_S))
        trainer.kill()
        self.check_restored()

    def check_stop(self, stop):
        """Checks that stop(trainer, controller) restores the GPU by means of another controller,
        which must start and answer within STOP_S. On a busy machine, tries again with another
        trainer."""
        def stop_another(_):
            trainer = self.started()
            self.set(trainer, 1200)
            start = time.monotonic()
            stop(trainer, *self.machine.controllers())
            took_s = time.monotonic() - start
            if took_s >= STOP_S:
                trainer.end()
                self.assertEqual(self.harpe("gpus", "--restore").returncode, 0)
            self.check_restored()
            return took_s
        self.assertLess(attempt(stop_another, lambda took_s: took_s < STOP_S), STOP_S)

    def test_stop_puts_back_what_a_dead_controller_left(self):
        def stop(trainer, controller):
            os.kill(controller, signal.SIGKILL)
            self.assertIsNotNone(self.machine.wait_until(lambda: not self.machine.controllers(), kills.LIMIT_S))
            self.assertEqual(trainer.ask("stop"), "stopped")
        self.check_stop(stop)

    def test_stop_puts_back_what_a_controller_leaves_that_dies_meanwhile(self):
        def stop(trainer, controller):
            os.kill(controller, signal.SIGSTOP)
            trainer.tell("stop")
            time.sleep(0.3)
            os.kill(controller, signal.SIGKILL)
            self.assertEqual(trainer.answer(), "stopped")
        self.check_stop(stop)

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

    def test_killed_together_then_the_next_start_knows_what_was_found(self):
        self.left_changed()
        trainer = self.started()
        self.set(trainer, 900)
        self.stop(trainer)
        self.check_no_records()

    def test_killed_together_twice(self):
        self.left_changed()
        self.left_changed()
        self.started().kill()
        self.check_restored()

    def test_a_power_limit_run_puts_back_what_a_controller_has_left(self):
        self.left_changed()
        result = self.harpe("power-limit", "run", "--", "true")
        self.assertEqual(result.returncode, 0, result)
        self.check_restored()

    def test_a_start_on_another_gpu_puts_this_one_back(self):
        self.machine.close()
        self.machine = kills.Machine(BUILD, gpus="2xA40")
        self.left_changed()
        other = Trainer(self.machine, CUDA_VISIBLE_DEVICES="1")
        self.addCleanup(other.end)
        self.assertEqual(other.first, "training")
        self.assertEqual(self.machine.state(), self.machine.found)

    def test_two_starts_at_once_after_a_kill(self):
        self.left_changed()
        processes = [subprocess.Popen([BUILD / "harpe", "gpus", "--restore"], env=self.machine.environment,
                                      stdout=subprocess.PIPE, text=True) for _ in range(8)]
        said = [process.communicate()[0] for process in processes]
        self.assertEqual([process.returncode for process in processes], [0] * 8)
        self.assertEqual(sum("put back:" in text for text in said), 1, said)
        self.assertEqual(self.machine.state(), self.machine.found)

    def test_the_controller_first_and_then_the_trainer(self):
        trainer = self.started()
        self.set(trainer, 1200)
        os.kill(self.machine.controllers()[0], signal.SIGKILL)
        time.sleep(1.5)
        trainer.kill()
        trainer.process.wait()
        self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]))
        self.assertEqual(self.harpe("gpus", "--restore").returncode, 0)
        self.check_restored()

    def test_a_gpu_whose_trainer_lives_is_not_touched(self):
        trainer = self.started()
        self.set(trainer, 1200)
        self.assertIn("left alone", self.harpe("gpus", "--restore").stdout)
        os.kill(self.machine.controllers()[0], signal.SIGKILL)
        self.assertIsNotNone(self.machine.wait_until(lambda: not self.machine.controllers(), kills.LIMIT_S))
        result = self.harpe("gpus", "--restore")  # the trainer may start another controller
        self.assertIn(f"left alone: process {trainer.process.pid} uses it", result.stdout)
        self.assertNotIn("was killed", self.harpe("gpus").stdout)
        self.assertEqual(self.machine.state(), (1200, *TAKEN[1:]))
        second = Trainer(self.machine)
        self.addCleanup(second.end)
        self.assertRegex(second.first, f"^failed {ALREADY_EXISTS}: GPU 0 has another frequency controller")
        self.assertEqual(trainer.ask("restart"), "restarted")
        trainer.kill()
        self.check_restored()

    def test_a_trainer_that_nobody_waits_for_is_dead(self):
        trainer = self.started()
        self.set(trainer, 1200)
        controller, = self.machine.controllers()
        os.kill(controller, signal.SIGSTOP)
        trainer.kill()  # a zombie until its parent waits for it
        os.kill(controller, signal.SIGKILL)
        self.assertIsNotNone(self.machine.wait_until(lambda: not self.machine.controllers(), kills.LIMIT_S))
        self.assertIn("put back:", self.harpe("gpus", "--restore").stdout)
        self.check_restored()

    def test_a_restart_after_everything_else_has_the_first_ones_findings(self):
        trainer = self.started()
        self.set(trainer, 1200)
        for _ in range(2):
            os.kill(self.machine.controllers()[0], signal.SIGKILL)
            self.assertIsNotNone(self.machine.wait_until(
                lambda: trainer.ask("check").startswith(f"{UNAVAILABLE} "), kills.LIMIT_S))
            self.assertEqual(trainer.ask("restart"), "restarted")
        self.kill_both(trainer)
        self.assertIn("power limit 231 W", self.harpe("gpus", "--restore").stdout)
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
               text.replace("power_limit_mw 231000", "power_limit_mw -1"), text.replace("harpe-found 1", "harpe-found 2"),
               text + "gpu " + "x" * 4000 + "\n")
        for wrong in odd:
            note.write_text(wrong)
            result = self.harpe("gpus", "--restore")
            self.assertEqual(result.returncode, 0, (wrong, result))
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

    # ---- The driver's faults

    def test_without_permission_the_start_fails_with_one_line(self):
        trainer = Trainer(self.machine, HARPE_EMULATOR_FAULTS="no_permission")
        self.addCleanup(trainer.end)
        self.assertRegex(trainer.first, f"^failed {PERMISSION_DENIED}: GPU 0 .*NO_PERMISSION.*run as root")
        self.assertEqual(trainer.answer(), "")
        self.check_restored()

    def test_clocks_that_cannot_be_locked(self):
        trainer = Trainer(self.machine, HARPE_EMULATOR_FAULTS="not_supported=clock_locks")
        self.addCleanup(trainer.end)
        self.assertRegex(trainer.first, f"^failed {NOT_SUPPORTED}: GPU 0 ")
        self.check_restored()

    def test_the_memory_clock_is_left_alone_where_it_cannot_be_locked(self):
        trainer = Trainer(self.machine, HARPE_EMULATOR_FAULTS="not_supported=memory_locks")
        self.addCleanup(trainer.end)
        self.assertEqual(trainer.first, "training")
        self.assertEqual(self.machine.state(), (kills.HIGHEST_MHZ, 405, 300000, 0))
        self.set(trainer, 1200)
        trainer.kill()
        self.check_restored()

    def test_a_refusal_is_told_once_and_tried_again(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            faults = pathlib.Path(folder, "faults")
            trainer = self.started(HARPE_EMULATOR_FAULTS_FILE=str(faults))
            self.set(trainer, 1200)
            faults.write_text("no_permission")
            self.assertEqual(trainer.ask("set 600"), "set")
            self.assertIsNotNone(self.machine.wait_until(lambda: trainer.counts()["failed"] >= 1, kills.LIMIT_S))
            self.assertRegex(trainer.ask("check"), f"^{PERMISSION_DENIED} GPU 0 .*600.*NO_PERMISSION")
            for mhz in (615, 630, 645):
                trainer.ask(f"set {mhz}")
            self.assertIsNotNone(self.machine.wait_until(lambda: trainer.counts()["failed"] >= 2, kills.LIMIT_S))
            self.assertEqual(trainer.ask("check").split()[0], "0")
            self.assertEqual(self.machine.clock(), 1200)
            faults.unlink()
            self.set(trainer, 660)
            trainer.kill()
            self.check_restored()

    def test_a_lost_gpu_is_told_and_does_not_keep_the_controller(self):
        trainer = Trainer(self.machine, HARPE_EMULATOR_FAULTS="lost_after=40")
        self.addCleanup(trainer.end)
        self.assertEqual(trainer.first, "training")
        clocks = itertools.cycle(range(300, 1500, 15))

        def has_failed():
            trainer.ask(f"set {next(clocks)}")
            return trainer.counts()["failed"] >= 1
        self.assertIsNotNone(self.machine.wait_until(has_failed, kills.LIMIT_S))
        self.assertIn("lost", trainer.ask("check").lower())
        trainer.kill()
        self.assertIsNotNone(self.machine.wait_until(lambda: not self.machine.controllers(), kills.LIMIT_S))
        # After a reset, the next start restores the power limit, which is not the default.
        subprocess.run([BUILD / "harpe", "gpus", "--restore"], check=True, stdout=subprocess.DEVNULL,
                       env=dict(self.machine.environment, HARPE_EMULATOR_FAULTS="returns_after=0"))
        self.check_restored()

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

    def test_a_zeusd_that_refuses(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder, \
                zeusd.Zeusd(self.machine, pathlib.Path(folder, "zeusd.sock")) as server:
            server.refuses = True
            trainer = Trainer(self.machine, ZEUSD_SOCK_PATH=str(server.path))
            self.addCleanup(trainer.end)
            self.assertRegex(trainer.first, f"^failed {PERMISSION_DENIED}: GPU 0: zeusd refuses .* 403")
            self.check_restored()

    def test_a_zeusd_that_is_not_there(self):
        trainer = Trainer(self.machine, ZEUSD_SOCK_PATH="/nowhere/zeusd.sock")
        self.addCleanup(trainer.end)
        self.assertRegex(trainer.first, f"^failed {UNAVAILABLE}: zeusd at '/nowhere/zeusd.sock' .*ZEUSD_SOCK_PATH")
        self.check_restored()

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
                trainer = Trainer(self.machine, ZEUSD_HOST_PORT=server.host_port, **given)
                self.addCleanup(trainer.end)
                self.assertRegex(trainer.first, f"^failed {PERMISSION_DENIED}: GPU 0: zeusd refuses .* 401: .*{advice}")
                self.check_restored()
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
                        given = dict(daemon.environment, ZEUSD_TOKEN="another")
                        refused = Trainer(self.machine, **given)
                        self.addCleanup(refused.end)
                        self.assertRegex(refused.first, f"^failed {PERMISSION_DENIED}: .*zeusd refuses")


unittest.main()
