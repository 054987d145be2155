#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A job that learns on a server, round after round, until it is ended. Each rank answers its
schedule with the times and energies of a small simulated pipeline. Nothing is measured, so the plans do not
depend on the load of the machine.

Usage: learning_job.py URL STAGES MICROBATCHES METADATA SECONDS_PER_ROUND
"""
import pathlib
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))
from server import Connection  # noqa: E402
from online_job import Pipeline  # noqa: E402


class Served:
    """The part of a server that a Pipeline needs."""

    def __init__(self, url):
        self.port = urllib.parse.urlsplit(url).port

    def connect(self):
        return Connection(self.port)

    def post(self, target, body):
        connection = self.connect()
        try:
            return connection.send("POST", target, body).receive()
        finally:
            connection.close()


def conduct_of(rank, round_):
    """In the third round the GPU of rank 1 disobeys, and its counter shows too much."""
    disobeyed = 2 if (rank, round_) == (1, 2) else 0
    return {"steps": 6, "as_planned": 6 - disobeyed, "disobeyed": disobeyed, "left_out": disobeyed,
            "wanted_mhz": 1200 if disobeyed else 0, "held_mhz": 600 if disobeyed else 0,
            "tokens_per_step": 2048, "counter_energy": 1100.0 if rank == 1 else 1000.0,
            "power_energy": 1000.0, "energy_uncertainty": 8.0}


def main():
    url, stages, microbatches, metadata, pause_s = sys.argv[1:]
    frequencies = list(range(1410, 700, -30))
    job = Pipeline(Served(url), int(stages), int(microbatches), frequencies, metadata=metadata)
    plain = job.results
    job.results = lambda schedules: [dict(result, conduct=conduct_of(rank, job.round))
                                     for rank, result in enumerate(plain(schedules))]
    while True:
        job.run_round()
        time.sleep(float(pause_s))


main()
