# SPDX-License-Identifier: Apache-2.0
"""A well-behaved job with one connection per rank. It registers, runs rounds, is evicted, and
begins again until it is stopped. Records the duration of each request."""
import json
import select
import socket
import time

RANKS = 64
ROUNDS = 4  # of each registration
THINKING_S = 0.01  # pause between a job's steps, because real ranks also train
PATIENCE_S = 30


class Broken(Exception):
    """The server has closed a connection, or its answer is not the expected one."""


class Rank:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        self.sent_at = 0.0

    def ask(self, method, target, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        self.received = b""
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        self.sent_at = time.perf_counter()
        self.socket.sendall(head.encode() + data)

    def take(self):
        """Returns the answer's status and body, or None while the answer is incomplete."""
        more = self.socket.recv(1 << 16)
        if not more:
            raise Broken(f"closed after {self.received[:80]!r}")
        self.received += more
        head, separator, body = self.received.partition(b"\r\n\r\n")
        if not separator:
            return None
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        return (int(head[9:12]), body) if len(body) >= length else None


class GoodJob:
    def __init__(self, port):
        self.ranks = [Rank(port) for _ in range(RANKS)]
        self.latencies_s = []
        self.by_socket = {rank.socket.fileno(): rank for rank in self.ranks}

    def _answers(self, asked, since=None):
        """Waits for all answers and records the duration of each. Returns their bodies."""
        epoll = select.epoll()
        bodies = {}
        for rank in asked:
            epoll.register(rank.socket.fileno(), select.EPOLLIN)
        end = time.perf_counter() + PATIENCE_S
        while len(bodies) < len(asked):
            events = epoll.poll(max(0.0, end - time.perf_counter()))
            if not events:
                raise Broken("no answer")
            for descriptor, _ in events:
                rank = self.by_socket[descriptor]
                answer = rank.take()
                if answer is None:
                    continue
                self.latencies_s.append(time.perf_counter() - max(rank.sent_at, since or 0.0))
                if answer[0] != 200:
                    raise Broken(f"answered {answer}")
                bodies[rank] = answer[1]
        epoll.close()
        time.sleep(THINKING_S)
        return bodies

    def _one(self, *request):
        self.ranks[0].ask(*request)
        return json.loads(self._answers(self.ranks[:1])[self.ranks[0]])

    def live(self):
        """Runs one job from registration to eviction."""
        job_id = self._one("POST", "/register_job",
                           {"job_id": "", "pp_degree": RANKS, "dp_degree": 1, "tp_degree": 1,
                            "world_size": RANKS, "job_metadata": "good"})
        for number, rank in enumerate(self.ranks):
            rank.ask("POST", f"/register_rank/{job_id}",
                     {"rank": number, "dp_rank": 0, "pp_rank": number, "tp_rank": 0,
                      "available_frequencies": [1740, 1200]})
        self._answers(self.ranks)
        for _ in range(ROUNDS):
            for number, rank in enumerate(self.ranks):
                rank.ask("GET", f"/schedule/{job_id}?rank={number}")
            # held until all ranks have asked
            self._answers(self.ranks, since=self.ranks[-1].sent_at)
            for number, rank in enumerate(self.ranks):
                rank.ask("POST", f"/result/{job_id}",
                         {"rank": number, "iter_time": [1.5], "iter_energy": [200.0],
                          "time_breakdown": {"forward": [[0.5] * 40]},
                          "energy_breakdown": {"forward": [[50.0] * 40]}})
            self._answers(self.ranks)
        self._one("DELETE", f"/jobs/{job_id}")


def run(port, seconds, pipe):
    """Runs in a process of its own: sends (latencies in s, number of jobs, error or None)."""
    jobs, problem, latencies = 0, None, []
    try:
        job = GoodJob(port)
        latencies = job.latencies_s
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            job.live()
            jobs += 1
    except (Broken, OSError) as failure:
        problem = repr(failure)
    pipe.send((latencies, jobs, problem))
