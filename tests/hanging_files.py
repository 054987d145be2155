# SPDX-License-Identifier: Apache-2.0
"""A file system with one file, F, in which a chosen kind of request gets no answer: whoever makes
such a request waits until the file system ends. It speaks FUSE's protocol (linux/fuse.h) itself."""
import ctypes
import os
import select
import signal
import struct
import subprocess
import sys

LOOKUP, GETATTR, OPEN, STATFS, RELEASE, FLUSH, INIT = 1, 3, 14, 17, 18, 25, 26
FORGET, INTERRUPT, BATCH_FORGET = 2, 36, 42
ROOT, FILE = 1, 2
ENOENT, ENOSYS = 2, 38
DIRECTORY_MODE, FILE_MODE = 0o40755, 0o100666


def attributes(node):
    mode = DIRECTORY_MODE if node == ROOT else FILE_MODE
    return struct.pack("<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer_of(opcode, node, body):
    """Returns an errno and the content of the answer."""
    if opcode == INIT:
        return 0, struct.pack("<4I2H2I", 7, 31, 0, 0, 1, 1, 4096, 1) + bytes(64 - 32)
    if opcode == LOOKUP:
        if body.rstrip(b"\0") != b"F":
            return ENOENT, b""
        return 0, struct.pack("<4Q2I", FILE, 0, 3600, 3600, 0, 0) + attributes(FILE)
    if opcode == GETATTR:
        return 0, struct.pack("<Q2I", 3600, 0, 0) + attributes(node)
    if opcode == OPEN:
        return 0, struct.pack("<Q2I", 1, 0, 0)
    if opcode == RELEASE:
        return 0, b""
    return ENOSYS, b""


def serve(device, hangs_at, told):
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError:  # unmounted
            return
        _, opcode, unique, node = struct.unpack_from("<2I2Q", request)
        if opcode == hangs_at:
            os.write(told, b"x")
            continue
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        failure, content = answer_of(opcode, node, request[40:])
        os.write(device, struct.pack("<IiQ", 16 + len(content), -failure, unique) + content)


class HangingFiles:
    """Mounts the file system. `reason` says why that is not possible here, or is None."""

    def __init__(self, folder, hangs_at):
        self.folder, self.reason, self.senders, self.server = folder, None, [], 0
        try:
            device = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            self.reason = f"no FUSE: {error}"
            return
        os.mkdir(folder)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"harpe-test", os.fsencode(folder), b"fuse", ctypes.c_ulong(0), options) != 0:
            self.reason = f"no FUSE: mount: {os.strerror(ctypes.get_errno())}"
            os.close(device)
            return
        self.hangs, told = os.pipe()
        self.server = os.fork()
        if self.server == 0:
            serve(device, hangs_at, told)
            os._exit(0)
        os.close(device)
        os.close(told)

    def wait_until_hangs(self, limit_s):
        """Waits for the next request that gets no answer."""
        ready, _, _ = select.select([self.hangs], [], [], limit_s)
        assert ready and os.read(self.hangs, 1) == b"x", "no request hangs"

    def send(self, path, request, copies=1):
        """Sends a request with descriptors of F to a socket, from a process that then hangs in its
        own close()."""
        script = ("import array, os, socket, sys, time\n"
                  "own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                  "own.connect(sys.argv[1])\n"
                  "file = os.open(sys.argv[2] + '/F', os.O_RDWR)\n"
                  "own.sendmsg([sys.argv[3].encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, "
                  "array.array('i', [file] * int(sys.argv[4])))])\n"
                  "print('sent', flush=True)\n"
                  "time.sleep(1000)\n")
        sender = subprocess.Popen([sys.executable, "-c", script, str(path), str(self.folder), request, str(copies)],
                                  stdout=subprocess.PIPE, text=True)
        self.senders.append(sender)
        assert sender.stdout.readline() == "sent\n"
        return sender

    def close(self):
        """Ends the file system, and with it all waits."""
        for sender in self.senders:
            sender.kill()
        if self.server:
            os.kill(self.server, signal.SIGKILL)
            os.waitpid(self.server, 0)
            ctypes.CDLL(None).umount2(os.fsencode(self.folder), 2)  # MNT_DETACH
            os.close(self.hangs)
            self.server = 0
        for sender in self.senders:
            sender.wait()
            sender.stdout.close()
        self.senders = []
        if os.path.isdir(self.folder):
            os.rmdir(self.folder)
