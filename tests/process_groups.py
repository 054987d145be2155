# SPDX-License-Identifier: Apache-2.0
"""Ends programs. If a program was started in a new session, also ends the processes of its group."""
import os
import signal


def end_group(process):
    """Kills a process, and its process group if it leads one, unless they are dead. Closes its pipes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()
