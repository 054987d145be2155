# SPDX-License-Identifier: Apache-2.0
"""The attacks. Each is a function (port, seconds, mark) that runs in a process of its own, ends by
itself, and returns how often the server showed each reaction. ATTACKS lists the reactions that may
occur and that must occur."""
import collections
import json
import re
import socket
import time

from hostile.swarm import Asker, Swarm, dial, get, post, reset

JOB = {"job_id": "", "pp_degree": 64, "dp_degree": 1, "tp_degree": 1, "world_size": 64}
SAFE_ID = re.compile(r"[A-Za-z0-9._:=,@+-]+")
CROWD_PROCESSES = 6


def encoded(value):
    return json.dumps(value).encode()


def until(seconds, step):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step()


def register(asker, **changes):
    assert asker.ask([post("/register_job", encoded({**JOB, **changes}))]) == ["200"]
    return json.loads(asker.last_body)


def register_ranks(asker, job):
    asker.ask([post(f"/register_rank/{job}",
                    encoded({"rank": rank, "dp_rank": 0, "pp_rank": rank, "tp_rank": 0,
                             "available_frequencies": [1000]})) for rank in range(64)])


# ---- Slow and absent ------------------------------------------------------------------------


def slow_headers(port, seconds, _):
    return Swarm(port, 2000, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"a: b\r\n").run(seconds)


def slow_bodies(port, seconds, _):
    return Swarm(port, 2000, b"POST /register_job HTTP/1.1\r\nHost: localhost\r\n"
                             b"Content-Length: 100000\r\n\r\n{", b" ").run(seconds)


def silent(port, seconds, _):
    return Swarm(port, 1000, b"").run(seconds)


def half_a_line(port, seconds, _):
    return Swarm(port, 1000, b"GET /sched").run(seconds)


def half_closed(port, seconds, _):
    return Swarm(port, 500, b"POST /result/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
                 ends_its_side=True).run(seconds)


def resets_while_held(port, seconds, _):
    asker = Asker(port)
    job = register(asker)
    register_ranks(asker, job)
    counts = collections.Counter()

    def step():
        held = [dial(port) for _ in range(32)]
        for rank, connection in enumerate(held):
            connection.setblocking(True)
            connection.sendall(get(f"/schedule/{job}?rank={rank}"))
        time.sleep(0.01)
        for connection in held:
            connection.setblocking(False)
            try:
                # a newer connection has replaced it
                counts[connection.recv(100)[9:12].decode() or "closed"] += 1
            except BlockingIOError:
                counts["held"] += 1
            reset(connection)

    until(seconds, step)
    return counts


def crowd(port, seconds, _, number=0):
    count = 100000 // CROWD_PROCESSES + 1
    return Swarm(port, count, get("/healthz"), total=count, source=f"127.0.1.{number + 1}",
                 rate=1.3 * count / seconds).run(seconds)


# ---- Large and deep -------------------------------------------------------------------------


def large_bodies(port, seconds, _):
    """Sends bodies of 1 GB, announced and in chunks, and as many bodies just below the limit as
    possible."""
    counts = collections.Counter()
    piece = b"100000\r\n" + b"1," * (1 << 19) + b"\r\n"
    largest = b"[" + b"1," * ((60 << 19) - 1) + b"1]"
    head = f"POST /result/{register(Asker(port))} HTTP/1.1\r\nHost: localhost\r\n".encode()

    def stream(head, pieces, data):
        connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        try:
            connection.sendall(head)
            for _ in range(pieces):
                connection.sendall(data)
        except OSError:
            pass  # the server has refused the request
        try:
            return connection.recv(4096)[9:12].decode() or "closed"
        except OSError:
            return "reset"
        finally:
            connection.close()

    def step():
        counts["announced " + stream(head + b"Content-Length: 1073741824\r\n\r\n", 4, piece)] += 1
        counts["chunked " + stream(head + b"Transfer-Encoding: chunked\r\n\r\n", 1024, piece)] += 1
        counts["60 MiB " + stream(head + f"Content-Length: {len(largest)}\r\n\r\n".encode(), 1,
                                  largest)] += 1

    until(seconds, step)
    return counts


def hoarded_bodies(port, seconds, _):
    """Announces 200 bodies of 60 MiB each that never end. A server that reserved this memory would
    need 12 GB."""
    head = f"POST /result/{register(Asker(port))} HTTP/1.1\r\nHost: localhost\r\n".encode()
    return Swarm(port, 200, head + b"Content-Length: 62914560\r\n\r\n" + b" " * (1 << 20),
                 b" " * (4 << 20), 0.2).run(seconds)


def nesting(port, seconds, _):
    asker = Asker(port)
    job = register(asker)
    depth = 10000
    bodies = [b"[" * depth + b"]" * depth, b"[" * depth, b'{"a":' * depth + b"1" + b"}" * depth,
              b'{"job_metadata":' + b"[" * depth + b"]" * depth + b"}"]
    requests = [post(path, body) for body in bodies
                for path in ("/register_job", f"/register_rank/{job}", f"/result/{job}",
                             f"/straggler/{job}", f"/plan/{job}")]
    until(seconds, lambda: asker.ask(requests))
    return asker.counts


def invalid_utf8(port, seconds, _):
    asker = Asker(port)
    job = register(asker)
    bad = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"]
    requests = []
    for text in bad:
        word = text.decode("latin-1")
        quoted = "".join(f"%{byte:02x}" for byte in text)
        requests += [post("/register_job", b'{"job_metadata":"' + text + b'"}'),
                     post(f"/result/{job}", b'{"' + text + b'":1}'), post("/register_job", text),
                     get(f"/schedule/{word}?rank=0"), get(f"/schedule/{quoted}?rank=0"),
                     get(f"/schedule/{job}?rank={quoted}"), get(f"/{word}"), get(f"/jobs/{quoted}"),
                     post("/register_job", b"{}", f"X-Name: {word}\r\n")]
    until(seconds, lambda: asker.ask(requests))
    return asker.counts


# ---- Lists and strangers ----------------------------------------------------------------------

LISTED, READERS, PAUSE_S, MOST_UNREAD = 800, 12, 0.5, 72
STRANGERS = 4096


def register_listed(port):
    """Registers jobs with the largest permitted metadata. Returns a function that evicts the
    jobs."""
    asker = Asker(port)
    jobs = [register(asker, job_metadata="m" * 65536) for _ in range(LISTED)]
    return lambda: Asker(port).ask([get(f"/jobs/{job}", "DELETE") for job in jobs])


def unread_lists(port, seconds, _):
    """Requests the list of all jobs repeatedly without reading the answers."""
    counts = collections.Counter()
    readers = []

    def step():
        for reader in readers[:max(0, len(readers) + READERS - MOST_UNREAD)]:
            reader.close()
            readers.remove(reader)
        for _ in range(READERS):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", port))
            reader.sendall(get("/jobs?limit=100000"))
            readers.append(reader)
            counts["asked"] += 1
        time.sleep(PAUSE_S)

    until(seconds, step)
    for reader in readers:
        reader.close()
    return counts


def strangers(port, seconds, _):
    """Asks for schedules of ranks that are not registered."""
    asker = Asker(port)
    counts = collections.Counter()
    job = register(asker, dp_degree=STRANGERS // 64, world_size=STRANGERS)
    held = []
    for rank in range(STRANGERS):
        connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        connection.sendall(get(f"/schedule/{job}?rank={rank}"))
        held.append(connection)
    time.sleep(seconds)
    for connection in held:
        connection.setblocking(False)
        try:
            counts[connection.recv(100)[9:12].decode() or "closed"] += 1
        except BlockingIOError:
            counts["held"] += 1
        except OSError:
            counts["reset"] += 1
        connection.close()
    asker.ask([get(f"/jobs/{job}", "DELETE")])
    return counts


# ---- Paths ----------------------------------------------------------------------------------


def tricks(mark):
    names = [f"../{mark}", f"../../../../../../../../tmp/{mark}", f"/tmp/{mark}", "..", ".",
             f"..\\..\\{mark}", f"a/../../{mark}", f"x\x00/../../{mark}", f"{mark}\n../{mark}",
             "~root", "$(touch /tmp/" + mark + ")", "`id`", "a" * 5000, "CON", "%2e%2e%2f" + mark,
             "\u202e\u2044..\u2044" + mark, ".2/../" + mark, "con'; DROP TABLE jobs; --"]
    ids = ["..", ".", f"..%2f{mark}", f"%2e%2e%2f{mark}", f"..%252f{mark}", f"..%5c{mark}",
           f"%2ftmp%2f{mark}", f"%00{mark}", f"a%00%2f..%2f{mark}", f"..%c0%af{mark}", "%2e", "%",
           f"../../{mark}", f"//tmp/{mark}", "a" * 8000, "a%0d%0aX-Y:%20z", "%22%3b--"]
    return names, ids


def path_tricks(port, seconds, mark):
    """Sends odd characters in metadata, which become parts of ids and directories, and in ids, on
    every route that takes an id."""
    asker = Asker(port)
    names, ids = tricks(mark)
    for name in names:
        outcome = asker.ask([post("/register_job", encoded({**JOB, "job_metadata": name}))])
        if outcome != ["200"]:
            continue
        made = json.loads(asker.last_body)
        if not SAFE_ID.fullmatch(made) or len(made) > 255:
            asker.counts["unsafe id"] += 1
        register_ranks(asker, made)  # now the server has created the job's directory
        asker.ask([post(f"/result/{made}", encoded({"rank": 0, "iter_time": [1],
                                                    "iter_energy": [1]}))])
    requests = []
    for one in ids:
        requests += [get(f"/schedule/{one}?rank=0"), get(f"/jobs/{one}"),
                     get(f"/jobs/{one}", "DELETE"), get(f"/jobs/{one}/frontier"),
                     post(f"/register_rank/{one}", b"{}"), post(f"/result/{one}", b"{}"),
                     post("/register_job", encoded({**JOB, "job_id": one}))]
    until(seconds, lambda: asker.ask(requests))
    return asker.counts


# ---- Together -------------------------------------------------------------------------------

# Functions (port) that prepare an attack before its time begins. Each returns a function that
# undoes the preparation.
PREPARATIONS = {"unread lists": register_listed}

# name: (processes, outcomes that must be seen, outcomes that may be seen)
SLOW = {"tried", "still open", "closed"}
BAD = {"400", "404", "405", "422", "431"}
ATTACKS = {
    "slow headers": ([slow_headers], {"408"}, SLOW),
    "slow bodies": ([slow_bodies], {"408"}, SLOW),
    "half-open": ([silent, half_a_line, half_closed], {"408", "closed"}, SLOW),
    "resets while held": ([resets_while_held], {"held"}, {"409"}),
    "100,000 connections": ([lambda *a, n=n: crowd(*a, number=n) for n in range(CROWD_PROCESSES)],
                            {"200", "closed"}, SLOW | {"reset"}),
    "bodies of 1 GB": ([large_bodies], {"announced 413", "chunked 413", "60 MiB 422"}, set()),
    "hoarded bodies": ([hoarded_bodies], set(), SLOW | {"503", "408", "reset"}),
    "nesting of 10,000": ([nesting], {"422"}, {"200"}),
    "invalid UTF-8": ([invalid_utf8], {"422", "404"}, BAD | {"200"}),
    "unread lists": ([unread_lists], {"asked"}, set()),
    "strangers": ([strangers], {"503", "held"}, {"closed", "reset"}),
    "path tricks": ([path_tricks], {"404", "422"}, BAD | {"200", "409"}),
}
