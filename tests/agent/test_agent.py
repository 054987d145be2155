# SPDX-License-Identifier: Apache-2.0
"""The node agent on emulated GPUs, with real processes and sockets: it lends clocks and power limits
to processes, and the GPUs are restored whatever ends the holder, the agent, or both."""
import contextlib
import fcntl
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "client"))
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import agents
import kills
import zeusd_world
from agents import DEFAULT_W, HIGHEST_MHZ, IDLE_MHZ, LIMIT_S, exchange, unexpected, wait_until
from process_groups import end_group
from record_locks import locked

OK, INVALID, NOT_FOUND, ALREADY, DENIED, LIMITED, UNSUPPORTED = 0, 1, 3, 4, 5, 8, 11


class AgentTest(agents.AgentTest):
    def hold(self, *arguments, command=("sleep", "infinity"), **popen):
        """Starts a job that holds GPU 0. Its processes are one group."""
        job = self.machine.start("agent", "hold", *arguments, "--", *command, stderr=subprocess.PIPE, **popen)
        self.addCleanup(end_group, job)
        return job

    def wait_for_command(self, job):
        """Waits until the job runs its command, so that everything is set."""
        children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children")
        self.wait(lambda: job.poll() is not None or children.read_text().strip(), "the command runs")


class Lending(AgentTest):
    def test_hold_sets_and_restores(self):
        agent = self.agent()
        done = self.machine.run("agent", "hold", "--gpu", "0,1", "--clock", 1200, "--power-limit", 300, "--",
                                sys.executable, "-c", "import subprocess, sys; sys.exit(7)")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.check_restored(agent)
        job = self.hold("--clock", 1200, "--power-limit", 300)
        self.wait_for_clock(1200)
        self.wait_for_limit(300)
        self.assertEqual(self.machine.clocks()[1], IDLE_MHZ)
        leases = agent.leases()
        self.assertEqual(sorted(lease["control"] for lease in leases), ["clocks", "power"])
        for lease in leases:
            self.assertEqual((lease["process"], lease["uid"], lease["gpu"]), (job.pid, os.getuid(), 0))
        restores = {lease["control"]: lease["restores"] for lease in leases}
        self.assertIn("clocks reset", restores["clocks"])
        self.assertIn("power limit 400 W", restores["power"])
        text = self.machine.run("agent", "status")
        self.assertEqual(text.returncode, 0)
        self.assertIn(str(job.pid), text.stdout)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(LIMIT_S), 128 + signal.SIGTERM)
        self.check_restored(agent)

    def test_a_job_that_is_killed_whole(self):
        agent = self.agent()
        for number in (signal.SIGKILL, signal.SIGTERM):
            job = self.hold("--gpu", "all", "--clock", 900, "--power-limit", 200)
            for gpu in range(2):
                self.wait_for_limit(200, gpu)
                self.wait_for_clock(900, gpu)
            os.killpg(job.pid, number)
            self.check_restored(agent)

    def test_a_job_without_a_lease_of_which_everything_is_killed(self):
        agent = self.agent()
        alone = {"HARPE_AGENT_SOCKET": ""}
        job = self.hold("--gpu", "all", "--clock", 900, "--power-limit", 200, gpu_environment=alone)
        for gpu in range(2):
            self.wait_for_limit(200, gpu)
            self.wait_for_clock(900, gpu)
        job.send_signal(signal.SIGSTOP)  # else it may start new helper processes
        for helper in self.machine.helpers():
            os.kill(helper, signal.SIGKILL)
        os.killpg(job.pid, signal.SIGKILL)
        self.check_restored(agent)
        self.assertIn(f"process {job.pid} (without a lease, uid {os.getuid()}): ended; the agent has restored the GPU",
                      agent.log())
        self.assertEqual(agent.status()["counts"]["restored_by_agent"], 4)

    def test_one_holder_for_each_gpu(self):
        agent = self.agent()
        job = self.hold("--clock", 900)
        self.wait_for_clock(900)
        second = self.machine.run("agent", "hold", "--clock", 1200, "--", "true")
        self.assertEqual(second.returncode, 1)
        self.assertIn(f"GPU 0: its clock is lent to process {job.pid} (harpe, uid {os.getuid()}", second.stderr)
        self.assertEqual(self.machine.run("agent", "hold", "--gpu", 1, "--clock", 1200, "--", "true").returncode, 0)
        waiting = self.hold("--wait", "--clock", 1200)
        self.assertIn("waiting: GPU 0: its clock is lent", waiting.stderr.readline())
        os.killpg(job.pid, signal.SIGKILL)
        self.wait_for_clock(1200)
        os.killpg(waiting.pid, signal.SIGKILL)
        self.check_restored(agent)

    def test_a_clock_that_the_gpu_does_not_offer(self):
        self.agent()
        done = self.machine.run("agent", "hold", "--clock", 1201, "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("the closest is 1200 MHz (210 to 1410)", done.stderr)

    def test_locks_of_the_administrator_are_restored(self):
        agent = self.agent(rules=f"default_locked_clocks = all 600 900\n"
                                 f"default_locked_clocks = {self.machine.uuids()[1]} 705 1005\n")
        job = self.hold("--gpu", "all", "--clock", 1200)
        self.wait_for_clock(1200, 1)
        os.killpg(job.pid, signal.SIGKILL)
        self.wait_for_clock(600, 0)  # the clock of an idle GPU is the lowest of its lock
        self.wait_for_clock(705, 1)
        # The agent does the same if a helper process was killed together with its job.
        job = self.hold("--gpu", "all", "--clock", 1200)
        self.wait_for_clock(1200, 1)
        for helper in self.machine.helpers():
            os.kill(helper, signal.SIGKILL)
        os.killpg(job.pid, signal.SIGKILL)
        self.wait_for_clock(600, 0)
        self.wait_for_clock(705, 1)
        self.wait(lambda: agent.leases() == [], "no lease is left")


class Ends(AgentTest):
    def test_a_killed_agent_is_continued(self):
        agent = self.agent()
        job = self.hold("--clock", 900, "--power-limit", 200)
        self.wait_for_limit(200)
        self.wait_for_clock(900)
        agent.kill()
        self.assertEqual((self.machine.clocks()[0], self.machine.limits()[0]), (900, 200))
        unfinished = self.machine.state / "GPU-0.power.lease.new"  # of an agent that was killed while it wrote
        unfinished.write_text("{")
        again = self.agent()
        self.assertFalse(unfinished.exists())
        self.assertIn("continued", again.log())
        self.assertEqual(len(again.leases()), 2)
        self.assertEqual({lease["process"] for lease in again.leases()}, {job.pid})
        self.assertEqual(self.machine.clocks()[0], 900)
        os.killpg(job.pid, signal.SIGKILL)
        self.check_restored(again)

    def test_a_killed_helper_process(self):
        agent = self.agent()
        job = self.hold("--clock", 900)
        self.wait_for_clock(900)
        self.wait_for_command(job)  # while hold still waits for the clock, it would fail
        os.kill(self.machine.helpers()[0], signal.SIGKILL)
        self.assertIn("the node agent's lease has ended", job.stderr.readline())
        self.assertIn("GPU 0: the clock is held again", job.stderr.readline())
        self.wait_for_clock(900)
        self.assertIn("the agent has restored the GPU", agent.log())
        os.killpg(job.pid, signal.SIGKILL)
        self.check_restored(agent)

    def test_a_power_limit_comes_back_with_the_agent(self):
        agent = self.agent()
        job = self.hold("--clock", 900, "--power-limit", 200)
        self.wait_for_command(job)
        self.assertEqual((self.machine.clocks()[0], self.machine.limits()[0]), (900, 200))
        self.assertEqual(agent.stop(), 0)
        self.assertFalse(self.machine.socket.exists())
        self.check_restored()
        told = "".join(job.stderr.readline() for _ in range(2))
        self.assertIn("harpe agent hold: GPU 0: the clock: the node agent's lease has ended", told)
        self.assertIn("harpe agent hold: the power limit: ", told)
        again = self.agent()
        self.wait_for_limit(200)
        self.wait_for_clock(900)
        os.killpg(job.pid, signal.SIGKILL)
        self.check_restored(again)

    def test_a_lease_that_cannot_start_leaves_the_gpu_of_another_job_alone(self):
        """A job without the agent has set a limit. It is stopped, and its guard is killed."""
        agent = self.agent()
        job = self.hold("--power-limit", 250, gpu_environment={"HARPE_AGENT_SOCKET": ""})
        self.wait_for_limit(250)
        os.kill(job.pid, signal.SIGSTOP)
        guard, = self.machine.processes("--guard-process")
        os.kill(guard, signal.SIGKILL)
        self.wait(lambda: not self.machine.helpers(), "the guard has ended")
        done = self.machine.run("agent", "hold", "--power-limit", 200, "--", "true")
        self.assertIn("GPU 0 has another power limit optimizer", done.stderr)
        self.wait(lambda: agent.leases() == [], "no lease is left")
        self.assertEqual(self.machine.limits()[0], 250)
        os.kill(job.pid, signal.SIGCONT)
        self.wait(self.machine.helpers, "the job has another guard")
        os.killpg(job.pid, signal.SIGTERM)
        job.wait()
        self.check_restored()

    def test_a_driver_that_refuses_for_a_while(self):
        agent = self.agent()
        job = self.hold("--clock", 900)
        self.wait_for_clock(900)
        self.machine.faults.write_text("no_permission")
        for helper in self.machine.helpers():
            os.kill(helper, signal.SIGKILL)
        os.killpg(job.pid, signal.SIGKILL)
        self.wait(lambda: any(lease["unrestored"] for lease in agent.leases()), "a GPU that is not restored")
        self.assertIn("the GPU is not restored, the agent tries again", agent.log())
        self.assertEqual(agent.status()["counts"]["not_restored"], 1)
        self.assertIn("NOT RESTORED", self.machine.run("agent", "status").stdout)
        refused = self.machine.run("agent", "hold", "--clock", 1200, "--", "true")
        self.assertEqual(refused.returncode, 1, refused)
        self.machine.faults.write_text("")
        self.check_restored(agent)
        self.assertEqual(agent.status()["counts"]["not_restored"], 0)
        self.assertEqual(self.machine.run("agent", "hold", "--clock", 1200, "--", "true").returncode, 0)

    def test_restore_ends_leases(self):
        agent = self.agent()
        job = self.hold("--gpu", "all", "--clock", 900)
        self.wait_for_clock(900, 1)
        os.kill(job.pid, signal.SIGSTOP)  # does not take the lease again
        done = self.machine.run("agent", "restore", "--gpu", 1)
        self.assertEqual((done.returncode, done.stdout), (0, "1 lease ended; the GPUs are restored.\n"), done)
        self.assertEqual(self.machine.clocks(), [900, IDLE_MHZ])
        self.assertEqual(self.machine.run("agent", "restore").returncode, 0)
        self.check_restored(agent)
        self.assertEqual(self.machine.run("agent", "restore").stdout, "There was no lease to end.\n")
        unknown = self.machine.run("agent", "restore", "--gpu", 7)
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("--gpu: there is no GPU 7; this process sees 2", unknown.stderr)
        unknown = self.machine.run("agent", "restore", "--gpu", "GPU-7")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("--gpu: the agent has no GPU 'GPU-7'", unknown.stderr)


class Resets(AgentTest):
    """A GPU is lost while its settings are lent, and returns after a reset with its default settings."""
    rules = "default_locked_clocks = all 900 1200\n"
    variables = dict(rules=rules)

    def lend_and_lose(self, agent):
        """Lends GPU 0, whose power limit was 300 W before. Loses the GPU, and then ends the job."""
        uuid = self.machine.uuids()[0]
        smi = self.machine.build / "emulator" / "bin" / "nvidia-smi"
        subprocess.run([smi, "-i", uuid, "-pl", "300"], env=self.machine.environment, check=True, capture_output=True)
        job = self.hold("--gpu", uuid, "--clock", 600, "--power-limit", 250)
        self.wait_for_command(job)
        self.assertEqual((self.machine.clocks()[0], self.machine.limits()[0]), (600, 250))
        self.machine.run("gpus", HARPE_EMULATOR_FAULTS="lost_after=0@0")
        end_group(job)
        self.wait(lambda: agent.status()["counts"]["not_restored"] == 2, "neither setting is restored")
        return uuid

    def give_back(self):
        self.machine.run("gpus", HARPE_EMULATOR_FAULTS="returns_after=0")

    def check_given_back(self, agent):
        self.wait(lambda: agent.leases() == [], "no lease is left")
        self.assertEqual((self.machine.clocks()[0], self.machine.limits()[0]), (900, 300))
        self.assertEqual(agent.status()["counts"]["not_restored"], 0)
        self.wait(lambda: not agent.status()["gpus"][0]["lost"], "the GPU is not lost any more")
        self.assertNotIn("LOST", self.machine.run("agent", "status").stdout)

    def test_a_gpu_is_restored_when_it_returns(self):
        agent = self.agent(**self.variables)
        uuid = self.lend_and_lose(agent)
        self.assertTrue(agent.status()["gpus"][0]["lost"])
        self.assertIn(f"GPU {uuid} is lost: it is restored when it has been reset", agent.log())
        self.assertNotIn("the GPU is restored", agent.log())
        self.give_back()
        self.check_given_back(agent)
        # A process that has counted meanwhile may number the GPUs after it differently.
        done = self.machine.run("agent", "hold", "--gpu", 1, "--clock", 900, "--", "true")
        self.assertIn(f"because {uuid} was lost", done.stderr)

    def test_a_later_agent_restores_it(self):
        """A GPU cannot be reset while an agent has it open."""
        agent = self.agent(**self.variables)
        keeper = self.hold("--gpu", self.machine.uuids()[1], "--clock", 900,  # keeps the emulated driver loaded
                           gpu_environment={"HARPE_AGENT_SOCKET": ""})
        self.wait_for_command(keeper)
        self.lend_and_lose(agent)
        self.assertEqual(agent.stop(), 1)
        self.assertIn("2 leases could not be ended", agent.log())
        meanwhile = self.agent(**self.variables)  # the driver does not tell it about the GPU
        self.assertEqual(len(meanwhile.status()["gpus"]), 1)
        self.assertEqual(meanwhile.stop(), 0)
        self.give_back()
        self.assertEqual(self.machine.limits()[0], DEFAULT_W)
        self.check_given_back(self.agent(**self.variables))


class Numbers(AgentTest):
    """After GPU `lost` is lost, a driver may number the GPUs anew or keep its numbers. Whatever it does, a
    number never names another GPU than before."""
    gpus = "3xA100"
    drivers = ({"HARPE_EMULATOR_FAULTS": "leave_out_lost"}, {"HARPE_EMULATOR_FAULTS": ""})

    def lose(self, gpu):
        uuids = self.machine.uuids()
        self.machine.run("gpus", HARPE_EMULATOR_FAULTS=f"lost_after=0@{gpu}")
        return uuids

    def clock_of(self, uuid):
        rows = self.machine.query("uuid", "clocks.gr")
        return next(clock for found, clock in rows if found == uuid)

    def numbers(self, **variables):
        """Returns {UUID: number}, as `harpe gpus` and as `harpe agent status` show them."""
        gpus = json.loads(self.machine.run("gpus", "--json", **variables).stdout)["gpus"]
        status = json.loads(self.machine.run("agent", "status", "--json", **variables).stdout)["gpus"]
        text = self.machine.run("agent", "status", **variables).stdout
        for gpu in status:
            shown = "-" if gpu["index"] is None else gpu["index"]
            self.assertRegex(text, f"(?m)^{shown} +{gpu['pci']} +{gpu['uuid']} ")
        return ({gpu["uuid"]: gpu["index"] for gpu in gpus},
                {gpu["uuid"]: gpu["index"] for gpu in status if gpu["index"] is not None})

    def check_refused(self, done, number, uuid):
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(f"--gpu: the number {number} may have meant another GPU before", done.stderr)
        self.assertIn(f"--gpu {uuid}", done.stderr)

    def test_the_commands_count_alike(self):
        self.agent()
        for visible in ({}, {"CUDA_VISIBLE_DEVICES": "2,1"}, {"CUDA_VISIBLE_DEVICES": "1"}):
            one, other = self.numbers(**visible)
            self.assertEqual(one, other)
        uuids = self.lose(0)
        for driver in self.drivers:
            for visible in ({}, {"CUDA_VISIBLE_DEVICES": "1,0"}):
                one, other = self.numbers(**driver, **visible)
                self.assertEqual(one, other)
                self.assertEqual(set(one), set(uuids[1:]))
        self.assertIn(f"{uuids[0]}   NVIDIA A100-SXM4-80GB (LOST)", self.machine.run("agent", "status").stdout)

    def test_a_number_that_has_moved_is_refused(self):
        agent = self.agent()
        uuids = self.lose(0)
        for driver in self.drivers:
            for number in (0, 1):
                done = self.machine.run("agent", "hold", "--gpu", number, "--clock", 900, "--", "true", **driver)
                self.check_refused(done, number, uuids[number + 1])
                done = self.machine.run("agent", "restore", "--gpu", number, **driver)
                self.check_refused(done, number, uuids[number + 1])
            done = self.machine.run("agent", "hold", "--clock", 900, "--", "true", **driver)
            self.check_refused(done, 0, uuids[1])
            self.assertEqual(self.machine.run("agent", "hold", "--gpu", 2, "--clock", 900, "--", "true",
                                              **driver).returncode, 2)
        self.assertEqual(agent.status()["counts"]["granted"], 0)

    def test_a_number_before_the_lost_gpu_means_what_it_meant(self):
        agent = self.agent()
        uuids = self.lose(1)
        for driver in self.drivers:
            done = self.machine.run("agent", "hold", "--gpu", 0, "--clock", 900, "--", "true", **driver)
            self.assertEqual(done.returncode, 0, done)
            done = self.machine.run("agent", "hold", "--gpu", "0,1", "--clock", 900, "--", "true", **driver)
            self.check_refused(done, 1, uuids[2])
        self.assertEqual(agent.status()["counts"]["granted"], 2)

    def answer_status(self, gpus):
        """Answers every request at the agent's socket as an agent that has these GPUs."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(self.machine.socket))
        listener.listen(8)
        self.addCleanup(listener.close)
        answer = json.dumps({"version": 1, "status": 0, "process": 1, "allowed": True, "gpus": gpus, "leases": [],
                             "zeusd": [], "ended": 0, "counts": {}}).encode()

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as client:
                        if client.recv(8192):
                            client.send(answer)
        threading.Thread(target=serve, daemon=True).start()

    def test_a_gpu_that_has_come_since_moves_numbers_too(self):
        uuids = self.machine.uuids()
        self.answer_status([{"gpu": number, "uuid": uuid, "pci": "", "lost": False}
                            for number, uuid in enumerate((uuids[0], uuids[2]))])
        for number, name in ((2, uuids[2]), (2, None)):
            done = self.machine.run("agent", "restore", "--gpu", name or number)
            if name:
                self.assertEqual(done.returncode, 0, done)
            else:
                self.check_refused(done, number, uuids[number])
                self.assertIn(f"the node agent, which started earlier, has not seen {uuids[1]}", done.stderr)
        self.assertEqual(self.machine.run("agent", "restore", "--gpu", 0).returncode, 0)

    def test_uuids_and_addresses_name_gpus(self):
        agent = self.agent()
        uuids = self.machine.uuids()
        addresses = [row[0] for row in self.machine.query("pci.bus_id")]
        self.lose(0)
        for driver in self.drivers:
            for name in (uuids[2], uuids[2].upper().replace("GPU", "gpu"), addresses[2], addresses[2][4:].lower()):
                job = self.hold("--gpu", name, "--clock", 900, gpu_environment=driver)
                self.wait(lambda: self.clock_of(uuids[2]) == "900", f"{name} at 900 MHz")
                self.assertEqual(self.clock_of(uuids[1]), str(IDLE_MHZ))
                ended = self.machine.run("agent", "restore", "--gpu", name, **driver)
                self.assertEqual(ended.returncode, 0, ended)
                end_group(job)
        for name in (uuids[0], "GPU-0", "MIG-" + uuids[1][4:], "0000:99:00.0", "x", ""):
            done = self.machine.run("agent", "hold", "--gpu", name or ",", "--clock", 900, "--", "true",
                                    **self.drivers[0])
            self.assertEqual(done.returncode, 2, done)
        self.assertEqual(self.machine.run("agent", "hold", "--gpu", f"2,{uuids[2]}", "--clock", 900, "--", "true",
                                          HARPE_AGENT_SOCKET="").returncode, 2)
        self.wait(lambda: agent.leases() == [], "no lease is left")


class Rules(AgentTest):
    def test_limits(self):
        self.agent(rules="lowest_clock_mhz = 600\nhighest_clock_mhz = 1200 # no more\n"
                         "lowest_power_limit_w = 150\nhighest_power_limit_w = 300\n")
        for arguments, word in ((("--clock", 300), "lowest_clock_mhz is 600"),
                                (("--clock", 1305), "highest_clock_mhz is 1200"),
                                (("--power-limit", 120), "the range is 150 to 300 W"),
                                (("--power-limit", 350), "the range is 150 to 300 W")):
            done = self.machine.run("agent", "hold", *arguments, "--", "true")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(word, done.stderr)
            self.check_restored()
        self.assertEqual(self.machine.run("agent", "hold", "--clock", 600, "--power-limit", 300, "--",
                                          "true").returncode, 0)

    def test_wrong_rules_are_told_with_their_line(self):
        for rules, line in (("allow_users = nobody-of-this-name\n", "line 1: allow_users: expected the name or number "
                                                                    "of a user, or *, found 'nobody-of-this-name'"),
                            ("\n# x\nallow_groups = 1 no-such-group", "line 3: allow_groups: expected"),
                            ("lowest_clock_mhz = fast", "line 1: lowest_clock_mhz: expected a clock in MHz"),
                            ("lowest_clock_mhz = -1", "line 1: lowest_clock_mhz: expected"),
                            ("lowest_clock_mhz = 99999999999", "line 1: lowest_clock_mhz: expected"),
                            ("changes_per_second = nan", "line 1: changes_per_second: expected a number"),
                            ("leases_per_second = -3", "line 1: leases_per_second: expected"),
                            ("clock = 3", "line 1: clock: there is no such rule"),
                            ("clock", "line 1: 'clock' is not name = value"),
                            ("device_directory = dev", "line 1: device_directory: expected the path"),
                            ("show_leases = some", "line 1: show_leases: expected all or own, found 'some'"),
                            ("default_locked_clocks = all 900", "line 1: default_locked_clocks: expected GPU LOWEST"),
                            ("default_locked_clocks = all 900 600", "line 1: default_locked_clocks: expected"),
                            ("default_locked_clocks = 0 900 1200", "line 1: default_locked_clocks: expected GPU "
                                                                   "LOWEST HIGHEST, with 'all', a UUID or a PCI"),
                            ("device_directory = /no/such", "the rule device_directory names '/no/such', which is not "
                                                            "a directory"),
                            ("lowest_clock_mhz = 900\nhighest_clock_mhz = 600", "lowest_clock_mhz (900) is above"),
                            ("a\0b", "is not a text file")):
            with self.subTest(rules=rules):
                self.machine.path.joinpath("wrong.conf").write_text(rules)
                done = self.machine.run("agent", "--config", self.machine.path / "wrong.conf", "--state-dir",
                                        self.machine.state)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(line, done.stderr)
                self.assertEqual(done.returncode, 2)
                self.assertFalse(self.machine.socket.exists())

    def test_rules_that_cannot_work_here_are_told(self):
        agent = self.agent(rules="highest_clock_mhz = 100\nlowest_power_limit_w = 500\n"
                                 "default_locked_clocks = GPU-of-another-machine 210 900\n")
        for line in ("GPU 1: the rule highest_clock_mhz is 100, but the lowest that the GPU offers is 210 MHz",
                     "GPU 0: the rule lowest_power_limit_w is 500, but the highest that the GPU offers is 400 W",
                     "the rules name the GPU 'GPU-of-another-machine', which this machine does not have"):
            self.assertIn(f"harpe agent: warning: {line}\n", agent.log())
        self.assertEqual(agent.log().count("warning"), 5)
        agent.stop()
        rules = "".join(f"default_locked_clocks = {gpu} 210 900\n" for gpu in ("all", *self.machine.uuids()))
        self.assertNotIn("warning", self.agent(rules=rules).log().split("lends")[-1])

    def test_only_one_agent(self):
        self.agent()
        for arguments, word in (((), "another agent runs on this machine"),
                                (("--state-dir", self.machine.path / "other"), "another program listens there")):
            done = self.machine.run("agent", *(("--state-dir", self.machine.state) if not arguments else arguments))
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stderr)

    def has_opened_state(self, agent):
        try:
            return str(self.machine.state) in agents.open_files(agent.process.pid)
        except OSError:  # it has just ended
            return False

    def test_a_killed_agent_s_lock_that_lasts_a_moment(self):
        self.machine.state.mkdir()
        for _ in range(20):
            state = os.open(self.machine.state / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(state, fcntl.LOCK_EX)
            agent = self.agent(ready=False)
            self.wait(lambda: agent.process.poll() is not None or self.has_opened_state(agent),
                      "the agent opens its state directory")
            os.close(state)
            self.wait(lambda: agent.process.poll() is not None or agent.status() is not None, "the agent runs")
            if agent.process.poll() is None:  # otherwise a busy machine held this process up for 5 s
                break
        self.assertIsNone(agent.process.poll(), agent.log())

    def test_a_lock_on_the_state_directory_keeps_no_agent_from_starting(self):
        self.machine.state.mkdir()
        state = os.open(self.machine.state, os.O_RDONLY)  # anybody can open it
        self.addCleanup(os.close, state)
        fcntl.flock(state, fcntl.LOCK_EX)
        self.agent()
        self.assertEqual((self.machine.state / "agent.lock").stat().st_mode & 0o777, 0o600)

    def test_a_file_or_stale_socket_at_the_socket_s_place(self):
        self.machine.socket.write_text("precious")
        done = self.machine.run("agent", "--state-dir", self.machine.state)
        self.assertEqual(done.returncode, 1)
        self.assertIn("it exists and is not a socket", done.stderr)
        self.assertEqual(self.machine.socket.read_text(), "precious")
        self.machine.socket.unlink()
        stale = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stale.bind(str(self.machine.socket))
        stale.close()
        self.assertEqual(self.agent().leases(), [])

    def test_without_an_agent_the_limit_of_before_comes_back(self):
        smi = self.machine.build / "emulator" / "bin" / "nvidia-smi"
        subprocess.run([smi, "-pl", "300"], env=self.machine.environment, capture_output=True, check=True)
        # The command keeps the emulated machine on.
        job = self.hold("--gpu", 1, "--clock", 600)
        self.wait_for_clock(600, 1)
        subprocess.run([smi, "-pl", "300"], env=self.machine.environment, capture_output=True, check=True)
        done = self.machine.run("agent", "hold", "--clock", 900, "--power-limit", 200, "--", smi, "--query-gpu=power.limit",
                                "--format=csv,noheader,nounits")
        self.assertEqual((done.returncode, done.stdout.split()[0]), (0, "200.00"), done)
        self.wait_for_limit(300)
        self.assertEqual(job.poll(), None)

    def test_without_an_agent_there_is_the_driver(self):
        done = self.machine.run("agent", "hold", "--clock", 900, "--", "true")
        self.assertEqual((done.returncode, unexpected(done.stderr)), (0, []))
        self.machine.faults.write_text("no_permission")
        self.agent().kill()  # leaves its socket
        done = self.machine.run("agent", "hold", "--clock", 900, "--", "true",
                                HARPE_EMULATOR_FAULTS_FILE=str(self.machine.faults))
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"the node agent at '{self.machine.socket}' does not answer", done.stderr)


LOCK = "POST /gpu/set_gpu_locked_clocks?gpu_ids=0&block=true&min_clock_mhz={0}&max_clock_mhz={0}"
LIMIT = "POST /gpu/set_power_limit?gpu_ids=0&block=true&power_limit_mw={0}"


class ZeusdRoutes(AgentTest):
    """zeusd's routes as a part of the agent. test_zeusd_*.py test the routes themselves."""

    def client(self, *command):
        process = subprocess.Popen([*command, sys.executable, "-c", zeusd_world.CLIENT,
                                    pathlib.Path(__file__).resolve().parent, self.machine.path / "zeusd.sock"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                   start_new_session=True)
        self.addCleanup(end_group, process)
        return process

    @staticmethod
    def ask(client, line):
        client.stdin.write(line + "\n")
        return tuple(json.loads(client.stdout.readline()))

    def started(self, rules=""):
        agent = self.agent("--zeusd-socket", self.machine.path / "zeusd.sock", rules=rules)
        return agent, self.client()

    def test_a_stopped_agent_restores_and_a_killed_one_is_made_up_for(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            agent, client = self.started()
            self.assertEqual(self.ask(client, LOCK.format(900)), (200, ""))
            agent.process.send_signal(number)
            self.assertEqual(agent.process.wait(LIMIT_S), 0 if number == signal.SIGTERM else -number)
            if number == signal.SIGKILL:
                self.assertEqual(self.machine.clocks()[0], 900)
                again = self.agent("--zeusd-socket", self.machine.path / "zeusd.sock")
                self.assertEqual(self.machine.clocks()[0], 900)  # the client lives
                os.killpg(client.pid, signal.SIGKILL)
                self.check_restored(again)
            self.check_restored()

    def test_a_record_of_a_killed_agent_that_another_process_keeps_locked(self):
        agent, client = self.started()
        self.assertEqual(self.ask(client, LOCK.format(900)), (200, ""))
        agent.kill()
        again = self.agent("--zeusd-socket", self.machine.path / "zeusd.sock")
        with locked(kills.NOTES / f"{self.machine.uuids()[0]}.clocks"):
            os.killpg(client.pid, signal.SIGKILL)
            time.sleep(5)  # longer than the agent's time between two looks; it leaves a locked record alone
            self.assertEqual((again.leases(), self.machine.clocks()[0]), ([], 900))
        self.check_restored(again)

    def test_the_lock_of_the_administrator_comes_back(self):
        agent, client = self.started("default_locked_clocks = all 705 1005\n")
        self.assertEqual(self.ask(client, LOCK.format(1200)), (200, ""))
        self.assertEqual(self.machine.clocks()[0], 1200)
        self.assertEqual(self.ask(client, "POST /gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true"), (200, ""))
        self.assertEqual(self.machine.clocks()[0], 705)
        self.assertEqual(self.ask(client, LOCK.format(1200)), (200, ""))
        os.killpg(client.pid, signal.SIGKILL)
        self.wait_for_clock(705)
        self.assertEqual(self.machine.clocks()[1], IDLE_MHZ)
        self.assertEqual(agent.leases(), [])

    def test_a_gpu_has_one_holder_of_either_kind(self):
        agent, client = self.started()
        job = self.hold("--clock", 1200)
        self.wait_for_command(job)
        status, text = self.ask(client, LOCK.format(900))
        self.assertEqual((status, self.machine.clocks()[0]), (403, 1200), text)
        os.killpg(job.pid, signal.SIGKILL)
        self.check_restored(agent)
        self.assertEqual(self.ask(client, LOCK.format(900)), (200, ""))
        done = self.machine.run("agent", "hold", "--clock", 1200, "--", "true")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f"GPU 0: its clock is set by process {client.pid} (uid {os.getuid()}) through zeusd's routes",
                      done.stderr)
        self.assertIn(f"GPU 0 ({self.machine.uuids()[0]}), clocks: process {client.pid} (uid {os.getuid()}) through "
                      "zeusd's routes", self.machine.run("agent", "status").stdout)
        self.assertEqual(self.machine.clocks()[0], 900)
        os.killpg(client.pid, signal.SIGKILL)
        self.check_restored(agent)

    def test_a_number_after_a_lost_gpu_is_refused(self):
        agent, client = self.started()
        lock = LOCK.replace("gpu_ids=0", "gpu_ids=1")
        self.assertEqual(self.ask(client, lock.format(900)), (200, ""))
        uuid = self.machine.uuids()[1]
        self.machine.run("gpus", HARPE_EMULATOR_FAULTS="lost_after=0@0")
        # The holder has counted before GPU 0 was lost.
        self.assertEqual(self.ask(client, lock.format(1200)), (200, ""))
        later = self.client()
        os.killpg(client.pid, signal.SIGKILL)
        self.wait(lambda: not agent.status()["zeusd"], "the holder is gone")
        for line in (lock.format(900), LIMIT.replace("gpu_ids=0", "gpu_ids=1").format(200000)):
            status, text = self.ask(later, line)
            self.assertEqual(status, 400, text)
            self.assertIn("GPU 0 was lost, so the number 1 can mean another GPU", text)
            self.assertIn(uuid, text)
        self.assertEqual(self.machine.limits_of(uuid), DEFAULT_W)

    def test_the_first_change_after_a_loss_is_refused_too(self):
        agent, client = self.started()
        self.machine.run("gpus", HARPE_EMULATOR_FAULTS="lost_after=0@0")
        status, text = self.ask(client, LIMIT.replace("gpu_ids=0", "gpu_ids=1").format(200000))
        self.assertEqual((status, "was lost" in text), (400, True), text)
        self.assertEqual(agent.status()["counts"]["granted"], 0)

    def test_the_rules_apply(self):
        agent, client = self.started("lowest_clock_mhz = 600\nhighest_power_limit_w = 300\n")
        status, text = self.ask(client, LOCK.format(300))
        self.assertEqual(status, 403)
        self.assertIn("its rule lowest_clock_mhz is 600", text)
        status, text = self.ask(client, LIMIT.format(350000))
        self.assertEqual(status, 403)
        self.assertIn("its rule highest_power_limit_w is 300", text)
        if os.getuid() == 0 and shutil.which("setpriv"):
            other = self.client("setpriv", f"--reuid={agents.NOT_EXIST_UID}", "--clear-groups")
            status, text = self.ask(other, LOCK.format(900))
            self.assertEqual(status, 403)
            self.assertIn(f"zeusd_users does not name the user with uid {agents.NOT_EXIST_UID}", text)
            self.assertEqual(self.ask(other, "GET /gpu/get_power_limit")[0], 200)
        self.check_restored(agent)

    def test_tcp_needs_a_key(self):
        for arguments, word in ((("--zeusd-listen", "127.0.0.1:0"), "--zeusd-listen needs --zeusd-key"),
                                (("--zeusd-key", "/etc/hosts"), "--zeusd-key needs --zeusd-listen"),
                                (("--zeusd-no-restore",), "--zeusd-no-restore needs --zeusd-socket or --zeusd-listen"),
                                (("--zeusd-listen", "localhost"), "--zeusd-listen: 'localhost' is not ADDR:PORT"),
                                (("--zeusd-listen", "127.0.0.1:0", "--zeusd-key", "/no/such/file"), "/no/such/file")):
            done = self.machine.run("agent", "--state-dir", self.machine.state, *arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(word, done.stderr)

    def test_a_weak_key_is_told(self):
        key = self.machine.path / "key"
        key.write_text("x" * 31)
        key.chmod(0o644)
        log = self.agent("--zeusd-listen", "127.0.0.1:0", "--zeusd-key", key).log()
        self.assertIn(f"--zeusd-key: the key in '{key}' has 31 bytes; RFC 7518 requires at least 32\n", log)
        self.assertIn(f"--zeusd-key: other users can read '{key}': make its mode 600\n", log)
        key = self.machine.path / "good"
        key.write_text("x" * 32)
        key.chmod(0o600)
        self.assertNotIn(str(key), self.agent("--zeusd-listen", "127.0.0.1:0", "--zeusd-key", key).log())

    def test_an_administrator_ends_what_clients_hold(self):
        agent, client = self.started()
        for flags in ((), ("--gpu", 0), ("--gpu", self.machine.query("pci.bus_id")[0][0].split(":", 1)[1].lower())):
            with self.subTest(flags=flags):
                self.assertEqual(self.ask(client, LOCK.format(900)), (200, ""))
                self.assertEqual(self.ask(client, LIMIT.format(200000)), (200, ""))
                done = self.machine.run("agent", "restore", "--gpu", 1)
                self.assertEqual(done.stdout, "There was no lease to end.\n", done)
                self.machine.faults.write_text("slow_set=200")
                done = self.machine.run("agent", "restore", *flags)
                self.machine.faults.write_text("")
                self.assertEqual((done.returncode, done.stdout), (0, "2 leases ended; the GPUs are restored.\n"), done)
                self.assertEqual((self.machine.clocks()[0], self.machine.limits()[0]), (IDLE_MHZ, DEFAULT_W))
                self.assertEqual(agent.status()["zeusd"], [])


class Strangers(AgentTest):
    """Requests that a client of Harpe never sends."""

    def memory(self, size=None, seals=0x0007):
        return super().memory(self.lease(), size, seals)

    def lease(self, **changes):
        return dict({"version": 1, "request": "lease", "gpu": self.machine.uuids()[0], "control": "clocks",
                     "memory": False, "node": False, "dwell_ns": 0, "poll_ns": -1, "wait": False}, **changes)

    def records(self):
        return list(pathlib.Path(f"/dev/shm/harpe-emulated-{os.getuid()}").glob(self.machine.uuids()[0] + ".clocks"))

    def ask_for_lease(self, memory):
        connection = self.connect()
        connection.sendmsg([json.dumps(self.lease(memory=True)).encode()],
                           [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", memory))])
        return connection

    @contextlib.contextmanager
    def locked_at_the_end(self, agent):
        """This process gets a lease, the helper process is killed, and this process has the lock of
        the record when the agent wants to restore the GPU."""
        connection = self.ask_for_lease(self.memory())
        _, received, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(4))
        self.addCleanup(os.close, struct.unpack("i", received[0][2])[0])
        self.wait_for_clock(HIGHEST_MHZ)
        record = self.records()[0]
        agent.process.send_signal(signal.SIGSTOP)
        helper = self.machine.helpers()[0]
        os.kill(helper, signal.SIGKILL)
        with locked(record):  # waits for the helper process's end
            agent.process.send_signal(signal.SIGCONT)
            yield

    def test_another_process_looks_at_the_record(self):
        """Each start of a controller or a guard locks all records for a moment."""
        agent = self.agent()
        with self.locked_at_the_end(agent):
            wait_until(lambda: agent.leases() == [], 1)  # a lease that ends too early
        self.check_restored(agent)
        self.assertEqual(self.records(), [])

    def test_another_process_keeps_the_record_locked(self):
        """The agent waits only 5 s for the lock. Then the lease is not over, and the agent tries again."""
        agent = self.agent()
        with self.locked_at_the_end(agent):
            self.wait(lambda: "tries again: " in agent.log() or "ended; " in agent.log(), "the agent has tried once")
            self.assertRegex(agent.log(), "the GPU is not restored, the agent tries again: .* another process has kept")
            self.assertEqual([lease["unrestored"] for lease in agent.leases()], [True])
            self.assertEqual(self.machine.clocks()[0], HIGHEST_MHZ)
        self.check_restored(agent)
        self.assertEqual(self.records(), [])
        self.assertIn("ended; the agent has restored the GPU", agent.log())

    def test_garbage(self):
        agent = self.agent()
        for data, status in ((b"", None), (b"{", UNSUPPORTED), (b"[]", UNSUPPORTED), (b"\xff" * 100, UNSUPPORTED),
                             (b"{}", UNSUPPORTED), (b'{"version": 2, "request": "status"}', UNSUPPORTED),
                             (b'{"version": 1}', INVALID), (b'{"version": 1, "request": "x"}', INVALID),
                             (b'{"version": 1, "request": 3}', INVALID), (b" " * 9000, None),
                             (b'{"version": 1, "version": 1, "request": "status"}', UNSUPPORTED),
                             (b'{"version": 1, "request": "node"}', NOT_FOUND),
                             (b'{"version": 1, "request": "node", "gpu": "GPU-1"}', NOT_FOUND),
                             (b"[" * 8000, UNSUPPORTED)):
            with self.subTest(data=data[:40]):
                own = self.connect()
                try:
                    answer = exchange(own, data)
                except ConnectionError:
                    answer = None
                self.assertEqual(answer and answer["status"], status, answer)
        for changes, status in (({"control": "fans"}, INVALID), ({"control": None}, INVALID), ({"gpu": 0}, NOT_FOUND),
                                ({}, INVALID), ({"memory": True}, INVALID)):
            answer = exchange(self.connect(), self.lease(**changes))
            self.assertEqual(answer["status"], status, answer)
            self.assertNotIn("\n", answer["message"])
        self.assertEqual(agent.leases(), [])

    def test_memory_that_could_kill_the_controller(self):
        agent = self.agent()
        size = self.slot_size(self.lease())
        small, unsealed, read_only = self.memory(4096), self.memory(seals=0), self.memory(seals=0x000f)
        plain = os.open(self.machine.path / "plain", os.O_RDWR | os.O_CREAT)
        self.addCleanup(os.close, plain)
        os.ftruncate(plain, size)
        for number in (small, unsealed, read_only, plain):
            answer = exchange(self.connect(), self.lease(memory=True), [number])
            self.assertEqual(answer["status"], INVALID, answer)
        self.assertEqual(agent.leases(), [])
        good = self.memory()
        own = self.connect()
        self.assertEqual(exchange(own, self.lease(memory=True), [good])["status"], OK)
        self.wait(lambda: agent.leases() == [], "the lease has ended, because its socket was closed")
        self.check_restored(agent)

    def test_writing_anything_to_the_slot_changes_nothing_else(self):
        """The holder fills the slot with noise again and again while it has the lease. The GPU is
        still restored."""
        agent = self.agent()
        import array
        import mmap
        import random
        number = self.memory()
        own = self.connect()
        data = json.dumps(self.lease(memory=True)).encode()
        own.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [number]))])
        _, received, _, _ = own.recvmsg(1 << 16, socket.CMSG_SPACE(4))
        lease = array.array("i", received[0][2])[0]
        choose = random.Random(1)
        with mmap.mmap(number, 0) as slot:
            for _ in range(300):
                slot[:] = bytes(choose.choices(range(256), k=64)) * (len(slot) // 64) + slot[len(slot) // 64 * 64:]
            slot[:] = b"\xff" * len(slot)
            os.close(lease)
            for _ in range(300):
                slot[:] = b"\1\0\0\0" * (len(slot) // 4)
            self.check_restored(agent)

    def test_a_flood_is_limited_and_disturbs_nobody(self):
        agent = self.agent(rules="allow_users = *\nleases_per_second = 5\n")
        job = self.hold("--gpu", 1, "--clock", 900)
        self.wait_for_clock(900, 1)
        own, statuses = [], []
        for _ in range(100):  # the agent closes a connection after a minute
            own.append(self.connect())
            statuses += [exchange(own[-1], self.lease())["status"] for _ in range(3)]
        # The agent's user has no limit (OtherUsers tests the limit), and these requests have no memory.
        self.assertEqual(set(statuses), {INVALID})
        self.assertEqual(self.machine.clocks()[1], 900)
        self.assertEqual(len(agent.leases()), 1)
        for each in own:
            each.close()
        os.killpg(job.pid, signal.SIGKILL)
        self.check_restored(agent)

    def connect_often(self, count):
        """Makes connections, asks with the last 100, and ends them. Returns the statuses, with None
        for no answer, and how long this took."""
        begin = time.monotonic()
        own, answers = [], set()
        while len(own) < count:
            try:
                own.append(self.connect())
            except BlockingIOError:  # the queue of new connections is full
                time.sleep(0.01)
        self.assertGreater(len(os.listdir("/proc/self/fd")), count)
        for each in own[-100:]:
            each.settimeout(LIMIT_S)
            try:
                answers.add(exchange(each, {"version": 1, "request": "status"})["status"])
            except (ConnectionError, TypeError):
                answers.add(None)
        for each in own:
            each.close()
        return answers, time.monotonic() - begin

    def test_more_connections_than_there_is_room_for(self):
        agent = self.agent()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
        for _ in range(20):
            answers, took_s = self.connect_often(1200)
            self.wait(lambda: (agent.status() or {}).get("status") == OK, "the agent answers again")
            if took_s < 50:  # the agent closes a connection after 60 s, and then has room
                break
        self.assertTrue(answers & {None, LIMITED}, answers)


@unittest.skipUnless(os.getuid() == 0 and shutil.which("setpriv"), "only root can become another user")
class OtherUsers(AgentTest):
    """A user without privileges asks an agent of root. The user has own emulated GPUs with the same
    UUIDs as the GPUs of the agent."""

    def as_other(self, *arguments, groups="--clear-groups", **changes):
        command = ["setpriv", f"--reuid={agents.NOT_EXIST_UID}", f"--regid={agents.NOT_EXIST_UID}", groups,
                   str(self.machine.harpe), *map(str, arguments)]
        return subprocess.run(command, env=self.machine.variables(**changes), text=True, capture_output=True,
                              timeout=LIMIT_S, check=False)

    def tearDown(self):
        for path in pathlib.Path("/dev/shm").glob(f"harpe-emulator-{agents.NOT_EXIST_UID}-{self.machine.cluster}*"):
            path.unlink()

    def try_hold(self, word=None, groups="--clear-groups"):
        done = self.as_other("agent", "hold", "--clock", 900, "--", "sh", "-c",
                             f"HARPE_AGENT_SOCKET={self.machine.socket} {self.machine.harpe} agent status", groups=groups)
        if word:
            self.assertEqual(done.returncode, 1, done)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(word, done.stderr)
        else:
            self.assertEqual((done.returncode, unexpected(done.stderr)), (0, []), done)
            self.assertIn(f"uid {agents.NOT_EXIST_UID}", done.stdout)
        return done

    def test_the_rules_decide(self):
        refused = "its rules allow_users and allow_groups do not name this user"
        for rules, word in (("", refused), (f"allow_users = {agents.NOT_EXIST_UID + 1}, root\n", refused),
                            (f"allow_users = {agents.NOT_EXIST_UID}\n", None), ("allow_users = *\n", None),
                            (f"allow_groups = {agents.NOT_EXIST_UID}\n", None)):
            with self.subTest(rules=rules):
                agent = self.agent(rules=rules)
                self.try_hold(word)
                self.check_restored(agent)
                self.assertEqual(agent.stop(), 0)
        agent = self.agent(rules="allow_groups = 64999\n")
        self.try_hold(refused)
        self.try_hold(groups="--groups=64998,64999")
        self.check_restored(agent)

    def test_the_device_node_proves_the_right_to_the_gpu(self):
        nodes = self.machine.path / "dev"
        nodes.mkdir()
        for gpu in range(2):
            (nodes / f"nvidia{gpu}").write_text("")
        agent = self.agent(rules=f"allow_users = *\ndevice_directory = {nodes}\n")
        os.chmod(nodes / "nvidia0", 0o666)
        self.try_hold()
        os.chmod(nodes / "nvidia0", 0o644)
        self.try_hold(f"this process cannot open '{nodes}/nvidia0' (Permission denied)")
        os.chmod(nodes / "nvidia0", 0o666)
        # A container: the process does not see the node.
        done = self.as_other("agent", "hold", "--clock", 900, "--", "true")
        self.assertEqual(done.returncode, 0, done)
        hidden = subprocess.run(["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none {nodes} && exec setpriv "
                                 f"--reuid={agents.NOT_EXIST_UID} --clear-groups {self.machine.harpe} agent hold "
                                 "--clock 900 -- true"], env=self.machine.variables(), text=True,
                                capture_output=True, timeout=LIMIT_S, check=False)
        if "unshare failed" not in hidden.stderr and "mount:" not in hidden.stderr:
            self.assertEqual(hidden.returncode, 1, hidden)
            self.assertIn(f"this process cannot open '{nodes}/nvidia0' (No such file or directory)", hidden.stderr)
        self.check_restored(agent)

    def test_a_descriptor_that_proves_nothing(self):
        nodes = self.machine.path / "dev"
        nodes.mkdir()
        (nodes / "nvidia0").write_text("")
        (nodes / "nvidia1").write_text("")
        os.chmod(nodes / "nvidia0", 0o666)
        os.chmod(nodes / "nvidia1", 0o666)
        agent = self.agent(rules=f"allow_users = *\ndevice_directory = {nodes}\n")
        script = """
import os, sys
sys.path.insert(0, sys.argv[1])
import agents, socket
own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
own.connect(sys.argv[2])
number = eval(sys.argv[4])
request = {"version": 1, "request": "lease", "gpu": sys.argv[3], "control": "power", "memory": False,
           "node": number is not None, "wait": False}
print(agents.exchange(own, request, [number] if number is not None else [])["status"])
"""
        for expression in ("None", "os.open('/dev/null', os.O_RDWR)", f"os.open('{nodes}/nvidia1', os.O_RDWR)",
                           f"os.open('{nodes}/nvidia0', os.O_RDONLY)", f"os.open('{nodes}/nvidia0', os.O_PATH)"):
            with self.subTest(expression=expression):
                done = subprocess.run(["setpriv", f"--reuid={agents.NOT_EXIST_UID}", "--clear-groups", sys.executable,
                                       "-c", script, pathlib.Path(__file__).resolve().parent, self.machine.socket,
                                       self.machine.uuids()[0], expression], text=True, capture_output=True,
                                      timeout=LIMIT_S, check=False)
                self.assertEqual(done.stdout, f"{DENIED}\n", done)
        self.assertEqual(agent.leases(), [])

    def test_only_the_administrator_ends_leases_and_sees_those_of_others(self):
        agent = self.agent(rules="allow_users = *\nshow_leases = own\n")
        job = self.hold("--clock", 900)
        self.wait_for_clock(900)
        done = self.as_other("agent", "restore")
        self.assertEqual(done.returncode, 1)
        self.assertIn("only root may end leases", done.stderr)
        self.assertEqual(json.loads(self.as_other("agent", "status", "--json").stdout)["leases"], [])
        self.assertEqual(self.machine.clocks()[0], 900)
        done = self.as_other("agent", "hold", "--clock", 600, "--", "true")
        self.assertIn(f"lent to process {job.pid}", done.stderr)
        os.killpg(job.pid, signal.SIGKILL)
        self.check_restored(agent)

    def test_a_user_who_asks_too_often(self):
        agent = self.agent(rules="allow_users = *\nleases_per_second = 2\n")
        script = """
import sys
sys.path.insert(0, sys.argv[1])
import agents, socket
own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
own.connect(sys.argv[2])
request = {"version": 1, "request": "lease", "gpu": sys.argv[3], "control": "clocks"}
print(*sorted({agents.exchange(own, request)["status"] for _ in range(200)}))
"""
        done = subprocess.run(["setpriv", f"--reuid={agents.NOT_EXIST_UID}", "--clear-groups", sys.executable, "-c",
                               script, pathlib.Path(__file__).resolve().parent, self.machine.socket,
                               self.machine.uuids()[0]], text=True, capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.stdout, f"{INVALID} {LIMITED}\n", done)
        self.assertIn("leases_per_second allows (2)", agent.log())
        self.assertEqual(self.machine.run("agent", "hold", "--clock", 900, "--", "true").returncode, 0)
        self.check_restored(agent)


# A program that works in steps and marks them.
MARKING = """
import ctypes, os
work = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"]).harpe_emulator_work
work.argtypes = [ctypes.c_uint, ctypes.c_double, ctypes.c_double, ctypes.c_void_p]
while not os.path.exists(os.environ["STOP"]):
    assert work(0, 0.05, 0.1, None) == 0
    os.write(int(os.environ["HARPE_STEP_FD"]), b"step\\n")
"""


class Tuning(AgentTest):
    def test_a_command_is_tuned_through_leases(self):
        """`harpe tune` needs no right to change GPUs, and tries only what the agent's rules allow."""
        agent = self.agent(rules="lowest_clock_mhz = 1200\nlowest_power_limit_w = 200\n")
        stop = self.machine.path / "stop"
        job = self.machine.start("tune", "--knob", "clock,limit", "--json", "--", sys.executable, "-c", MARKING,
                                 gpu_environment={"STOP": str(stop)}, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        self.addCleanup(end_group, job)
        self.wait(lambda: sorted(lease["control"] for lease in agent.leases()) ==
                  ["clocks", "clocks", "power", "power"], "all leases")
        self.wait(lambda: 1200 <= self.machine.clocks()[0] < HIGHEST_MHZ or
                  self.machine.limits()[0] < DEFAULT_W, "something lower is tried")
        stop.touch()
        out, err = job.communicate(timeout=LIMIT_S)
        self.assertEqual(job.returncode, 0, err)
        self.assertNotIn("untuned", err)
        self.assertTrue(json.loads(out)["is_restored"])
        self.check_restored(agent)
