# SPDX-License-Identifier: Apache-2.0
"""Locks the records of saved settings (src/gpu/saved_settings.h), as other processes do."""
import contextlib
import fcntl
import os


@contextlib.contextmanager
def locked(record):
    """Locks a record, given by its path. Other processes, which look at all records, remove the file
    of a lock when they leave it, so that another file may have the same name."""
    path = f"{record}.lock"
    while True:
        with open(path, "a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                is_same = os.path.samestat(os.fstat(lock.fileno()), os.stat(path))
            except FileNotFoundError:
                is_same = False
            if is_same:
                yield
                return
