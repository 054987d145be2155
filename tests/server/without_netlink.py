# SPDX-License-Identifier: Apache-2.0
"""Runs a command that cannot create netlink sockets, as under systemd's RestrictAddressFamilies: a
seccomp filter makes socket(AF_NETLINK, ...) fail with EAFNOSUPPORT."""
import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SOCKET = {"x86_64": 41, "aarch64": 198}[platform.machine()]
AF_NETLINK = 16
ALLOW, FAIL = 0x7FFF0000, 0x00050000 | errno.EAFNOSUPPORT
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06

program = b"".join(struct.pack("=HBBI", *one) for one in (
    (LOAD, 0, 0, 0),  # the number of the system call
    (EQUAL, 0, 3, SOCKET),
    (LOAD, 0, 0, 16),  # its first argument
    (EQUAL, 0, 1, AF_NETLINK),
    (RETURN, 0, 0, FAIL),
    (RETURN, 0, 0, ALLOW)))


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]


libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + 4 * [ctypes.c_ulong]
keeper = Filter(len(program) // 8, program)
if (libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or
        libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(keeper), 0, 0)):
    sys.exit(f"no seccomp: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
