# SPDX-License-Identifier: Apache-2.0
"""The guard's report and record of the GPUs that it restores. A driver may be so slow that the
guard's 30 s are over when the limit is restored. The result counts, not the time. The test replaces
the trainer and is the guard's parent, so that it sees the guard's exit status, which has the same
meaning as the guard's line in the system log. Needs only Python's standard library."""
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import kills
import side_by_side

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()

# The messages of src/powerlimit/guard.h. The header: magic, version, size of a GPU's record, number
# of GPUs, the trainer's process, and the path of the driver's library. A GPU's record: its UUID,
# whether the rest is known, the original limit, the limit of a frequency controller, and the original
# persistence mode.
HEADER, GPU = struct.Struct("4Ii4096s4x48x"), struct.Struct("96siIIi")
MAGIC, VERSION = 0x48475244, 6
ERROR_SIZE = 8 + 1024
NOTE = ".power"  # the end of the name of a file with the original settings

FOUND_MW, TRAINED_MW = 231000, 175000
TIME_SCALE = 100
# Real seconds: longer than the guard's 30, half of them before the limit changes.
SLOW_S = 32


class GuardTest(unittest.TestCase):
    """This process is the trainer, and communicates with the guard itself."""

    gpus = "1xV100"

    def setUp(self):
        os.environ["HARPE_EMULATOR_CLUSTER"] = f"late-{os.getpid()}"
        self.machine = kills.Machine(BUILD, self.gpus, TIME_SCALE)
        self.addCleanup(self.machine.close)
        folder = tempfile.TemporaryDirectory(prefix="harpe-test-")
        self.addCleanup(folder.cleanup)
        self.faults = pathlib.Path(folder.name, "faults")
        self.uuids = self.machine.uuids()  # a lost GPU does not report its own
        for uuid in self.uuids:
            self.addCleanup((kills.NOTES / (uuid + NOTE)).unlink, missing_ok=True)
        for gpu in range(len(self.machine.handles)):
            self.machine.set_limit(gpu, TRAINED_MW)

    def start_guard(self, gpus=(0,)):
        """The guard, this side of its socket, and its exit status."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        starter = os.pidfd_open(os.getpid())
        socket_copy, starter_copy = os.dup(theirs.fileno()), os.dup(starter)

        def place_descriptors():
            os.dup2(socket_copy, 103)
            os.dup2(starter_copy, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)
        guard = subprocess.Popen(
            [BUILD / "harpe", "power-limit", "--guard-process"], preexec_fn=place_descriptors,
            pass_fds=(3, 4), stdin=subprocess.DEVNULL,
            env=dict(self.machine.environment, HARPE_EMULATOR_FAULTS_FILE=str(self.faults)))
        for descriptor in (socket_copy, starter_copy, starter):
            os.close(descriptor)
        theirs.close()
        self.addCleanup(guard.wait)
        self.addCleanup(guard.kill)
        self.addCleanup(ours.close)
        ours.send(HEADER.pack(MAGIC, VERSION, GPU.size, len(gpus), os.getpid(), b""))
        ours.send(b"".join(GPU.pack(self.uuids[gpu].encode(), 1, FOUND_MW, 0, -1) for gpu in gpus))
        return guard, ours, struct.unpack_from("i", ours.recv(ERROR_SIZE))[0]

    def end_trainer(self, faults, gpus=(0,)):
        guard, connection, status = self.start_guard(gpus)
        self.assertEqual(status, 0)
        self.faults.write_text(faults)
        connection.close()
        return guard.wait(timeout=280)

    def noted(self):
        """Returns the GPUs whose original settings are recorded."""
        return [gpu for gpu, uuid in enumerate(self.uuids) if (kills.NOTES / (uuid + NOTE)).exists()]


class LateGuard(GuardTest):
    def test_a_limit_that_comes_back_late_is_back(self):
        self.assertEqual(self.end_trainer(f"slow_set={1000 * SLOW_S * TIME_SCALE}"), 0)
        self.assertEqual(self.machine.limit(0), FOUND_MW)


class FailedGuard(GuardTest):
    def test_a_limit_that_never_comes_back_is_a_failure(self):
        self.assertEqual(self.end_trainer("no_permission"), 1)
        self.assertEqual(self.machine.limit(0), TRAINED_MW)


class Notes(GuardTest):
    """A record says what must be restored. It must be removed with the restored setting, for each
    GPU separately."""

    gpus = "3xV100"

    def lose(self, lost):
        """The records of restored GPUs are removed even though another GPU is lost."""
        self.assertEqual(self.end_trainer(f"lost_after=1@{lost}", range(3)), 1)
        others = [gpu for gpu in range(3) if gpu != lost]
        self.assertEqual([self.machine.limit(gpu) for gpu in others], [FOUND_MW] * 2)
        self.assertEqual(self.noted(), [lost])

    def test_the_first_gpu_is_lost(self):
        self.lose(0)

    def test_the_second_gpu_is_lost(self):
        self.lose(1)

    def test_the_last_gpu_is_lost(self):
        self.lose(2)

    def test_a_guard_that_cannot_claim_all_gpus_forgets_none_of_an_earlier_one(self):
        first, _, status = self.start_guard([0])
        self.assertEqual(status, 0)
        first.kill()
        first.wait()
        other, connection, status = self.start_guard([1])
        self.assertEqual((status, self.noted()), (0, [0, 1]))
        replacement, _, status = self.start_guard([2, 0, 1])  # 1 is claimed
        self.assertNotEqual(status, 0)
        replacement.wait(timeout=280)
        self.assertEqual(self.noted(), [0, 1])
        last, last_connection, status = self.start_guard([0])
        self.assertEqual(status, 0)
        for guard, end in ((other, connection), (last, last_connection)):
            end.close()
            self.assertEqual(guard.wait(timeout=280), 0)
        self.assertEqual([self.machine.limit(gpu) for gpu in range(3)],
                         [FOUND_MW, FOUND_MW, TRAINED_MW])
        self.assertEqual(self.noted(), [])


if __name__ == "__main__":
    side_by_side.main()  # in place of unittest.main()
