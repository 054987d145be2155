# SPDX-License-Identifier: Apache-2.0
"""Ends programs that have processes of their own. Each program was started in a new session."""
import os
import signal


def end_group(process):
    """Kills a process and its process group, unless they are dead, and closes its pipes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()
