#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# The ranks of a training job, without the training: each registers with a running `harpe serve`,
# fetches its frequency schedule and reports a made-up result. For `make demo`.
#
# Usage: demo_ranks.py URL RANKS
import concurrent.futures
import json
import sys
import urllib.request

url, ranks = sys.argv[1], int(sys.argv[2])


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer), answer.headers.get("harpe-round")


def run(job, rank):
    """One rank: registers, waits for its schedule until all the others ask too, reports."""
    ask(f"/register_rank/{job}", {"rank": rank, "dp_rank": 0, "pp_rank": rank, "tp_rank": 0,
                                  "available_frequencies": [1410, 1305, 1200, 1110]})
    schedule, number = ask(f"/schedule/{job}?rank={rank}")
    ask(f"/result/{job}", {"rank": rank, "iter_time": [6.5], "iter_energy": [1500.0]})
    return schedule["frequencies"], number


job, _ = ask("/register_job", {"pp_degree": ranks, "dp_degree": 1, "tp_degree": 1,
                               "world_size": ranks, "job_metadata": "demo"})
print(f"job {job}\n")
with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
    answers = list(pool.map(lambda rank: run(job, rank), range(ranks)))
print("rank  round  instructions  clocks, MHz   first in the list")
for rank, (frequencies, number) in enumerate(answers):
    clocks = [mhz for _, mhz in frequencies]
    first = ", ".join(f"{name} {mhz}" for name, mhz in frequencies[:2])
    print(f"{rank:4}  {number:>5}  {len(frequencies):12}  {min(clocks):4} to {max(clocks):4}  {first}")
