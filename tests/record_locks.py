# SPDX-License-Identifier: Apache-2.0
"""Locks the records of saved settings (src/gpu/saved_settings.h), as other processes do, or keeps
them apart from those of other tests."""
import contextlib
import fcntl
import os
import pathlib


def keep_apart(build, folder):
    """From now on, programs that this process starts have their records of emulated GPUs in a
    directory in `folder`. Returns its path."""
    records = pathlib.Path(folder, "records")
    os.environ.update(HARPE_TEST_RECORDS=str(records),
                      LD_PRELOAD=str(pathlib.Path(build, "tests", "private_records.so")))
    return records


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
