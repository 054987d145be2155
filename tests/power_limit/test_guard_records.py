# SPDX-License-Identifier: Apache-2.0
"""The guard's records of GPUs, with another process in place of the trainer: a guard that cannot claim
all GPUs forgets none of an earlier guard of the same trainer. Needs only Python's standard library."""
import os
import pathlib
import socket
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import kills

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()

# The messages of src/power_limit/guard.h. The header: magic, version, size of a GPU's record, number
# of GPUs, the trainer's process, and the path of the driver's library. A GPU's record: its UUID,
# whether the rest is known, the original limit, the limit of a frequency controller, and the original
# persistence mode.
HEADER, GPU = struct.Struct("4Ii4096s4x48x"), struct.Struct("96siIIi")
MAGIC, VERSION = 0x48475244, 6
ERROR_SIZE = 8 + 1024
NOTE = ".power"  # the end of the name of a file with the original settings

FOUND_MW, TRAINED_MW = 231000, 175000


class Records(unittest.TestCase):
    """This process is the trainer, and communicates with the guard itself."""

    def setUp(self):
        os.environ["HARPE_EMULATOR_CLUSTER"] = f"late-{os.getpid()}"
        self.machine = kills.Machine(BUILD, "3xV100")
        self.addCleanup(self.machine.close)
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
            pass_fds=(3, 4), stdin=subprocess.DEVNULL, env=self.machine.environment)
        for descriptor in (socket_copy, starter_copy, starter):
            os.close(descriptor)
        theirs.close()
        self.addCleanup(guard.wait)
        self.addCleanup(guard.kill)
        self.addCleanup(ours.close)
        ours.send(HEADER.pack(MAGIC, VERSION, GPU.size, len(gpus), os.getpid(), b""))
        ours.send(b"".join(GPU.pack(self.uuids[gpu].encode(), 1, FOUND_MW, 0, -1) for gpu in gpus))
        return guard, ours, struct.unpack_from("i", ours.recv(ERROR_SIZE))[0]

    def noted(self):
        """Returns the GPUs whose original settings are recorded."""
        return [gpu for gpu, uuid in enumerate(self.uuids) if (kills.NOTES / (uuid + NOTE)).exists()]

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
