# SPDX-License-Identifier: Apache-2.0
"""The common part of the tests with real frameworks: jobs of several processes on an emulated
machine. A job is a script; each of its processes prints one line of JSON at its end."""
import json
import os
import pathlib
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "python"))
import training  # noqa: E402
import world  # noqa: E402


class JobTest(training.TrainingTest):
    """One emulated machine with four GPUs for all tests of a class, and a server if a test starts
    one."""

    gpus = "4xA100"

    def run_ranks(self, script, world_size, while_it_runs=lambda processes: None, **settings):
        """Starts one process of HERE/script for each rank, as torchrun would: RANK, LOCAL_RANK,
        WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Its argument is JSON: the settings, and "until", the
        path of a file that is made when while_it_runs has returned. Waits for the processes.
        Returns what they have printed, in the order of the ranks."""
        settings = dict({"world_size": world_size, "until": str(self.path / "end")}, **settings)
        port = world.reserve_port(self)
        processes = [
            subprocess.Popen([sys.executable, "-W", "ignore", HERE / script, json.dumps(settings)],
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=dict(os.environ, OMP_NUM_THREADS="1", RANK=str(rank),
                                      LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size),
                                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port))
            for rank in range(world_size)]
        answers = [None] * len(processes)

        def communicate(rank, process):
            answers[rank] = process.communicate()

        threads = [threading.Thread(target=communicate, args=one) for one in enumerate(processes)]
        for thread in threads:
            thread.start()
        failed = None
        try:
            try:
                while_it_runs(processes)
            except AssertionError:
                failed = [rank for rank, process in enumerate(processes) if process.poll()]
                if not failed:
                    raise
            pathlib.Path(settings["until"]).touch()
            for thread in threads if not failed else ():
                thread.join(training.LIMIT_S)
        finally:
            for process in processes:
                process.kill()
            for thread in threads:
                thread.join()
        for rank in failed or range(len(processes)):
            self.assertEqual(processes[rank].returncode, 0, answers[rank][1])
        return [json.loads(out.splitlines()[-1]) for out, _ in answers]

    def wait_for_clocks(self, clocks, processes):
        """Waits until each GPU of `clocks` has its clock in MHz. Fails if a process has failed."""
        def are_there():
            self.assertFalse([one for one in processes if one.poll()], "a rank has ended")
            return all(self.clock(gpu) == mhz for gpu, mhz in clocks.items())
        self.wait_until(are_there, f"no clocks {clocks}")
