# SPDX-License-Identifier: Apache-2.0
"""Settings that clients of zeusd's routes have changed are restored: when the client's process ends
for any reason, when the daemon stops, and when a daemon starts after a daemon was killed. Real
processes and sockets on emulated GPUs."""
import os
import random
import signal
import socket
import subprocess
import time

import zeusd_world
from process_groups import end_group
from zeusd_world import LIMIT_S, Client, DaemonTest, ask, kills, token

LOCK = {"min_clock_mhz": 1200, "max_clock_mhz": 1200}
MEMORY = {"min_clock_mhz": 405, "max_clock_mhz": 405}


class Holders(DaemonTest):
    def nothing_is_left(self):
        super().nothing_is_left()
        self.assertEqual(self.records(), [])

    def records(self):
        """The records of this test's GPUs; other tests may run at the same time."""
        found = []
        for one in kills.NOTES.glob("*"):
            try:
                if one.suffix in (".power", ".clocks") and f"cluster {self.machine.cluster}@" in one.read_text():
                    found.append(one.name)
            except FileNotFoundError:
                continue
        return sorted(found)

    def client(self, daemon, **more):
        client = Client(daemon, **more)
        self.addCleanup(client.close)
        return client

    def started(self, *options, **more):
        daemon = self.start(*options, **more)
        return daemon, self.client(daemon)

    def ok(self, answer):
        self.assertEqual((answer.status, answer.body), (200, b""), answer)

    def refused(self, answer, *words, status=403, gpu="0"):
        self.assertEqual((answer.status, list(answer.json["errors"])), (status, [gpu]), answer)
        for word in words:
            self.assertIn(str(word), answer.json["errors"][gpu])

    def until_restored(self):
        self.machine.until(lambda: self.machine.states() == self.machine.found_all)
        self.machine.until(lambda: self.records() == [])

    def set_all(self, client, gpu=0):
        self.ok(client.post("set_power_limit", gpu_ids=gpu, power_limit_mw=150000))
        self.ok(client.post("set_persistence_mode", gpu_ids=gpu, enabled="true"))
        self.ok(client.post("set_gpu_locked_clocks", gpu_ids=gpu, **LOCK))
        self.ok(client.post("set_mem_locked_clocks", gpu_ids=gpu, **MEMORY))
        self.assertEqual(self.machine.states()[gpu], (1200, 405, 150000, 1))

    # ---- The end of the holder

    def test_everything_is_put_back_when_the_holder_is_killed(self):
        daemon, client = self.started()
        self.set_all(client, 0)
        self.set_all(client, 2)
        self.assertEqual(len(self.records()), 4)
        client.kill()
        self.until_restored()
        self.machine.until(lambda: "put back what process %d" % client.pid in daemon.said())
        self.assertEqual(daemon.stop()[0], 0)

    def test_a_client_that_ends_by_itself(self):
        daemon, client = self.started()
        self.set_all(client)
        client.process.stdin.close()
        client.process.wait()
        self.until_restored()
        client.process.stdin = open(os.devnull, "w", encoding="ascii")

    def test_the_setting_stays_while_the_holder_lives(self):
        # The connection has ended after each request; the process counts.
        daemon, client = self.started()
        self.set_all(client)
        client.process.send_signal(signal.SIGSTOP)
        for _ in range(50):
            self.assertEqual(ask(daemon.address, "GET", "/gpu/get_power_limit?gpu_ids=0").json,
                             {"0": {"power_limit_mw": 150000}})
        self.assertEqual(self.machine.states()[0], (1200, 405, 150000, 1))
        client.process.send_signal(signal.SIGCONT)
        self.ok(client.post("set_power_limit", power_limit_mw=160000))
        client.kill()
        self.until_restored()

    def test_a_child_of_the_holder_does_not_count(self):
        daemon, client = self.started()
        self.set_all(client)
        # A process that has the client's standard streams, like a worker of a data loader.
        self.assertTrue(os.path.isdir(f"/proc/{client.pid}"))
        child = subprocess.Popen(["sleep", "1000"], stdin=client.process.stdin)
        client.kill()
        self.until_restored()
        child.kill()
        child.wait()

    def test_killed_amid_slow_sets(self):
        self.faults.write_text("slow_set=150")
        daemon = self.start(faults_file=self.faults)
        choose = random.Random(1)
        for _ in range(10):
            client = self.client(daemon)
            for _ in range(choose.randint(1, 4)):
                client.send("POST", "/gpu/set_gpu_locked_clocks?gpu_ids=0,1,2&min_clock_mhz=900&max_clock_mhz=900"
                                    f"&block={choose.choice(['true', 'false'])}")
                client.send("POST", "/gpu/set_power_limit?gpu_ids=0,1,2&power_limit_mw=140000&block=false")
            time.sleep(choose.random() * 0.6)
            client.kill()
            self.until_restored()
        self.assertEqual(daemon.stop()[0], 0)

    def test_what_the_client_did_not_change_is_not_put_back(self):
        daemon, client = self.started()
        self.ok(client.post("set_power_limit", power_limit_mw=150000))
        self.machine.call("nvmlDeviceSetPersistenceMode", self.machine.handle, 1)  # by somebody else
        client.kill()
        self.machine.until(lambda: self.machine.states()[0] == (210, 405, kills.FOUND_MW, 1))
        self.machine.call("nvmlDeviceSetPersistenceMode", self.machine.handle, 0)
        self.assertEqual(daemon.stop()[0], 0)

    def test_the_first_limit_is_put_back_not_the_last(self):
        daemon, client = self.started()
        for limit in (150000, 160000, 170000):
            self.ok(client.post("set_power_limit", power_limit_mw=limit))
        client.kill()
        self.until_restored()

    def test_refused_settings_are_not_held(self):
        daemon = self.start(faults_file=self.faults)
        one, other = self.client(daemon), self.client(daemon)
        self.refused(one.post("set_power_limit", power_limit_mw=1), status=400)
        self.refused(one.post("set_gpu_locked_clocks", min_clock_mhz=900, max_clock_mhz=300), status=400)
        self.assertEqual(self.records(), [])
        self.faults.write_text("no_permission")
        self.refused(one.post("set_persistence_mode", enabled="true"), status=403)
        self.assertEqual(self.records(), [])
        self.faults.unlink()
        self.ok(other.post("set_power_limit", power_limit_mw=150000))
        self.refused(other.post("set_power_limit", power_limit_mw=1), status=400)
        other.kill()
        self.until_restored()

    # ---- Several clients

    def test_one_holder_for_each_gpu_and_kind(self):
        daemon = self.start()
        one, other = self.client(daemon), self.client(daemon)
        self.ok(one.post("set_gpu_locked_clocks", **LOCK))
        self.refused(other.post("set_gpu_locked_clocks", **MEMORY), f"process {one.pid} ", f"user {os.getuid()}")
        self.refused(other.post("reset_locked_clocks"), f"process {one.pid} ")
        self.refused(other.post("set_mem_locked_clocks", block="false", **MEMORY), f"process {one.pid} ")
        self.assertEqual(self.machine.states()[0][:2], (1200, 405))
        self.ok(other.post("set_power_limit", power_limit_mw=150000))  # another kind
        self.refused(one.post("set_persistence_mode", enabled="true"), f"process {other.pid} ")
        answer = other.post("set_gpu_locked_clocks", gpu_ids="0,1,2", **LOCK)  # other GPUs are free
        self.refused(answer, f"process {one.pid} ")
        self.assertEqual([state[0] for state in self.machine.states()], [1200, 1200, 1200])
        one.kill()
        self.machine.until(lambda: self.machine.states()[0][:2] == (210, 405))
        self.ok(other.post("set_gpu_locked_clocks", **LOCK))
        other.kill()
        self.until_restored()

    def test_a_client_that_has_reset_its_clocks_holds_them_no_longer(self):
        daemon = self.start()
        one, other = self.client(daemon), self.client(daemon)
        self.ok(one.post("set_gpu_locked_clocks", **LOCK))
        self.ok(one.post("set_mem_locked_clocks", **MEMORY))
        self.ok(one.post("reset_gpu_locked_clocks"))
        self.refused(other.post("set_gpu_locked_clocks", **LOCK))
        self.ok(one.post("reset_mem_locked_clocks"))
        self.assertEqual(self.records(), [])
        self.ok(other.post("set_gpu_locked_clocks", **LOCK))
        one.kill()
        time.sleep(0.2)
        self.assertEqual(self.machine.states()[0][0], 1200)
        other.kill()
        self.until_restored()

    def test_a_new_holder_comes_as_soon_as_the_old_one_has_ended(self):
        # The first client's changes are restored before the second client's saved settings are
        # recorded.
        daemon = self.start()
        for limit in range(150000, 160000, 500):
            client = self.client(daemon)
            self.ok(client.post("set_power_limit", power_limit_mw=limit))
            client.kill()
        self.until_restored()
        self.assertEqual(daemon.stop()[0], 0)

    def test_tcp_and_unix_clients(self):
        daemon, client = self.started(tcp=True)
        self.ok(client.post("set_power_limit", power_limit_mw=150000))
        target = "/gpu/set_power_limit?gpu_ids={}&power_limit_mw=140000&block=true"
        self.refused(ask(daemon.tcp, "POST", target.format(0), bearer=token()), f"process {client.pid} ")
        self.ok(ask(daemon.tcp, "POST", target.format(1), bearer=token()))
        self.assertEqual(self.records(), [name for name in self.records() if name.endswith(".power")])
        self.assertEqual(len(self.records()), 1)
        client.kill()
        self.machine.until(lambda: [state[2] for state in self.machine.states()] == [kills.FOUND_MW, 140000,
                                                                                     kills.FOUND_MW])
        status, _ = daemon.stop()  # a setting that came over TCP stays
        self.assertEqual(status, 0)
        self.assertEqual(self.machine.states()[1][2], 140000)
        self.machine.call("nvmlDeviceSetPowerManagementLimit", self.machine.handles[1], kills.FOUND_MW)

    def test_no_restore(self):
        daemon = self.start("--no-restore")
        one, other = self.client(daemon), self.client(daemon)
        self.set_all(one)
        self.assertEqual(self.records(), [])
        self.ok(other.post("set_power_limit", power_limit_mw=140000))  # the last writer wins
        one.kill()
        other.kill()
        self.assertEqual(daemon.stop()[0], 0)
        self.assertEqual(self.machine.states()[0], (1200, 405, 140000, 1))

    # ---- Other jobs of Harpe

    def test_a_gpu_with_a_frequency_controller_is_refused(self):
        daemon, client = self.started()
        trainer = self.machine.start()
        self.addCleanup(end_group, trainer)
        self.assertEqual([trainer.stdout.readline(), trainer.stdout.readline()], ["starting\n", "training\n"])
        taken = self.machine.states()[0]
        self.refused(client.post("set_gpu_locked_clocks", **LOCK), "frequency controller")
        self.refused(client.post("reset_locked_clocks"), "frequency controller")
        self.assertEqual(self.machine.states()[0], taken)
        trainer.kill()
        self.machine.until(lambda: not self.machine.controllers())
        self.ok(client.post("set_gpu_locked_clocks", **LOCK))

        # and the other way round
        other = self.machine.start()
        self.assertEqual(other.stdout.readline(), "starting\n")
        self.assertIn("frequency controller", other.stdout.readline())
        other.wait()
        end_group(other)
        client.kill()
        self.until_restored()

    def test_a_gpu_that_a_killed_job_has_left_changed(self):
        # The job and its controller are killed at once. The next client's change restores the GPU first.
        daemon = self.start()
        trainer = self.machine.start()
        self.addCleanup(end_group, trainer)
        self.assertEqual([trainer.stdout.readline(), trainer.stdout.readline()], ["starting\n", "training\n"])
        self.machine.until(lambda: self.machine.states() != self.machine.found_all)
        self.machine.until(self.machine.controllers)
        both = [trainer.pid] + self.machine.controllers()
        for one in both:
            os.kill(one, signal.SIGSTOP)
        # a signal to another process needs time to arrive
        self.machine.until(lambda: all(kills.is_stopped(one) for one in both))
        for one in reversed(both):
            os.kill(one, signal.SIGKILL)
        trainer.wait()
        self.machine.until(lambda: not self.machine.controllers())
        self.assertEqual(len(self.records()), 1)
        client = self.client(daemon)
        self.ok(client.post("set_gpu_locked_clocks", **LOCK))
        self.assertEqual(self.machine.states()[0], (1200, 405, kills.FOUND_MW, 0))
        client.kill()
        self.until_restored()

    # ---- The end of the daemon

    def test_a_daemon_that_stops_puts_everything_back(self):
        daemon, client = self.started()
        self.set_all(client, 0)
        self.set_all(client, 1)
        self.assertEqual(daemon.stop()[0], 0)
        self.assertEqual(self.machine.states(), self.machine.found_all)
        self.assertEqual(self.records(), [])

    def test_a_killed_daemon_puts_back_at_its_next_start(self):
        daemon, client = self.started()
        self.set_all(client)
        daemon.kill()
        client.kill()
        self.assertEqual(self.machine.states()[0], (1200, 405, 150000, 1))
        daemon.start()
        self.until_restored()

    def test_holders_of_a_killed_daemon_live_on(self):
        daemon = self.start()
        one, other = self.client(daemon), self.client(daemon)
        self.set_all(one, 0)
        self.set_all(other, 1)
        daemon.kill()
        daemon.start()
        self.assertEqual(self.machine.states()[0], (1200, 405, 150000, 1))
        self.refused(other.post("set_power_limit", gpu_ids=0, power_limit_mw=140000))
        self.ok(one.post("set_power_limit", gpu_ids=0, power_limit_mw=140000))  # takes its GPU again
        one.kill()
        self.machine.until(lambda: self.machine.states()[0][2] == kills.FOUND_MW)
        # A node agent looks for records of processes that have told the second daemon nothing.
        other.kill()
        self.assertEqual(daemon.stop()[0], 0)
        daemon.start()
        self.until_restored()

    def test_daemon_and_holder_killed_together_many_times(self):
        self.faults.write_text("slow_set=20")
        daemon = self.start(faults_file=self.faults)
        choose = random.Random(2)
        for _ in range(15):
            client = self.client(daemon)
            for gpu in range(3):
                client.send("POST", f"/gpu/set_gpu_locked_clocks?gpu_ids={gpu}&min_clock_mhz=900&max_clock_mhz=900&block=true")
                client.send("POST", f"/gpu/set_power_limit?gpu_ids={gpu}&power_limit_mw=140000&block=true")
            time.sleep(choose.random() * 0.3)
            first, second = choose.sample([daemon, client], 2)
            first.kill()
            second.kill()
            daemon.start()
            self.until_restored()

    def stop_while_a_call_hangs(self, daemon, pause_s):
        """Returns the daemon's exit status, or None if the call began after the end of the fault."""
        client = self.client(daemon)
        self.set_all(client, 1)
        self.faults.write_text("slow_set=60000")
        client.send("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=140000&block=true")
        self.machine.until(lambda: len(self.records()) == 3)
        time.sleep(pause_s)
        self.faults.unlink()
        status, _ = daemon.stop()
        self.assertEqual(self.machine.states()[1], self.machine.found_all[1])
        is_answered = client.process.stdout.readline() != ""
        client.kill()
        daemon.start()
        self.until_restored()
        return None if is_answered else status

    def test_a_daemon_that_stops_while_a_call_hangs(self):
        daemon = self.start("--close-ms", 1000, faults_file=self.faults)
        pause_s = 0.2
        while (status := self.stop_while_a_call_hangs(daemon, pause_s)) is None:
            pause_s *= 2
            self.assertLess(pause_s, LIMIT_S)
        self.assertIn(status, (3, 4))  # work is left, and the rest is put back

    def test_putting_back_is_tried_again(self):
        daemon, client = self.started(faults_file=self.faults)
        self.set_all(client)
        self.faults.write_text("no_permission")
        client.kill()
        self.machine.until(lambda: "is not put back and is tried again" in daemon.said())
        self.assertEqual(self.machine.states()[0], (1200, 405, 150000, 1))
        other = self.client(daemon)
        self.refused(other.post("set_power_limit", power_limit_mw=140000))
        self.faults.unlink()
        self.until_restored()
        self.ok(other.post("set_power_limit", power_limit_mw=140000))
        other.kill()
        self.until_restored()

    # ---- Attacks

    def test_a_connection_that_was_passed_on(self):
        # The process that connected is the holder, also if another process uses the connection.
        daemon = self.start()
        ends = socket.socketpair()
        child = os.fork()
        if child == 0:
            one = socket.socket(socket.AF_UNIX)
            one.connect(str(daemon.address))
            socket.send_fds(ends[1], [b"x"], [one.fileno()])
            os._exit(0)
        _, (fd,), _, _ = socket.recv_fds(ends[0], 1, 1)
        os.waitpid(child, 0)
        stolen = socket.socket(fileno=fd)
        stolen.settimeout(LIMIT_S)
        stolen.sendall(b"POST /gpu/set_power_limit?gpu_ids=0&power_limit_mw=150000&block=true HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertTrue(stolen.recv(1000).startswith(b"HTTP/1.1 403 "))
        self.assertEqual(self.machine.states(), self.machine.found_all)
        stolen.close()
        for end in ends:
            end.close()

    def test_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        daemon = self.start()
        self.folder.chmod(0o755)
        client, other = (zeusd_world.OtherUser(daemon, uid) for uid in (12345, 12346))
        self.addCleanup(client.close)
        self.addCleanup(other.close)
        self.set_all(client)
        self.refused(other.post("set_power_limit", power_limit_mw=140000), f"process {client.pid} (user 12345)")
        client.kill()
        self.until_restored()

    def test_many_short_clients(self):
        daemon = self.start()
        children = []
        for i in range(60):
            child = os.fork()
            children.append(child)
            if child == 0:
                query = f"gpu_ids={i % 3}&min_clock_mhz=900&max_clock_mhz=900&block={'true' if i % 2 else 'false'}"
                try:
                    ask(daemon.address, "POST", f"/gpu/set_gpu_locked_clocks?{query}")
                finally:
                    os._exit(0)
            if i % 5 == 0:
                os.waitpid(children.pop(), 0)
        for child in children:
            os.waitpid(child, 0)
        self.until_restored()
        descriptors = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        self.assertLess(descriptors, 60)
        self.assertEqual(daemon.stop()[0], 0)
