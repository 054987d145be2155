# SPDX-License-Identifier: Apache-2.0
"""A driver so slow that the guard's 30 s are over when the limit is back: what counts is whether it is
back. The test stands in for the trainer and is the guard's parent, so it sees the guard's exit status,
which says the same as the guard's line in the system log. Needs only Python's standard library."""
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kills

BUILD = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", "build/release")).resolve()

# The messages of src/powerlimit/guard.h. The header: magic, version, size of a GPU's record, number
# of GPUs, the trainer's process, and the path of the driver's library. A GPU's record: its UUID,
# whether the rest is known, and the limit and the persistence mode that were found.
HEADER, GPU = struct.Struct("4Ii4096s"), struct.Struct("96siIi")
MAGIC, VERSION = 0x48475244, 4
ERROR_SIZE = 8 + 1024

FOUND_MW, TRAINED_MW = 231000, 175000
TIME_SCALE = 100
# Real seconds: longer than the guard's 30, half of them before the limit changes.
SLOW_S = 32


class LateGuard(unittest.TestCase):
    def setUp(self):
        os.environ["HARPE_EMULATOR_CLUSTER"] = f"late-{os.getpid()}"
        self.machine = kills.Machine(BUILD, "1xV100", TIME_SCALE)
        self.addCleanup(self.machine.close)
        folder = tempfile.TemporaryDirectory(prefix="harpe-test-")
        self.addCleanup(folder.cleanup)
        self.faults = pathlib.Path(folder.name, "faults")
        self.machine.set_limit(0, TRAINED_MW)

    def start_guard(self, uuid):
        """The guard, ready, and this side of its socket."""
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
        ours.send(HEADER.pack(MAGIC, VERSION, GPU.size, 1, os.getpid(), b""))
        ours.send(GPU.pack(uuid, 1, FOUND_MW, -1))
        answer = ours.recv(ERROR_SIZE)
        self.assertEqual(struct.unpack_from("i", answer)[0], 0, answer)
        return guard, ours

    def uuid(self):
        import ctypes
        text = ctypes.create_string_buffer(96)
        self.assertEqual(self.machine.nvml.nvmlDeviceGetUUID(self.machine.handles[0], text, 96), 0)
        return text.value

    def end_trainer(self, faults):
        guard, connection = self.start_guard(self.uuid())
        self.faults.write_text(faults)
        connection.close()
        return guard.wait(timeout=280)

    def test_a_limit_that_comes_back_late_is_back(self):
        self.assertEqual(self.end_trainer(f"slow_set={1000 * SLOW_S * TIME_SCALE}"), 0)
        self.assertEqual(self.machine.limit(0), FOUND_MW)

    def test_a_limit_that_never_comes_back_is_a_failure(self):
        self.assertEqual(self.end_trainer("no_permission"), 1)
        self.assertEqual(self.machine.limit(0), TRAINED_MW)


unittest.main()
