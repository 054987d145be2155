# SPDX-License-Identifier: Apache-2.0
"""Compares zeusd's routes with the published daemon: sends the same requests to both, over the same
emulated GPUs. Status, headers and bodies must agree. DIFFERENCES lists the intended differences and
their reasons. The tests need the published program (cargo install zeusd --version 0.5.0) in PATH or
in $HARPE_ZEUSD."""
import itertools
import json
import os
import random
import time
import unittest

import zeusd_world
from zeusd_world import GROUPS, Connection, Published, Stream, ask, kills, token

# The intended differences. The tests below refer to them by name.
DIFFERENCES = {
    "discover": "Harpe adds pci_address and cumulative_energy_available, which later clients of Zeus read.",
    "reset_locked_clocks": "Harpe has this route, which resets both locks at once; zeusd 0.5.0 answers 404.",
    "device messages": "The text for a failed driver call is Harpe's: it names the GPU and says what to do. Its status "
                       "and the ids of the devices agree.",
    "token messages": "The text behind 'Invalid token: ' names the fault in other words if the token is malformed. "
                      "For a wrong signature, a wrong audience and an expired token the text agrees.",
    "encoded paths": "zeusd answers a path with percent encoding as if it were decoded, but checks the scope of the "
                     "path as it was sent. Harpe answers 404, so that no scope can be avoided.",
    "cpu energy": "Harpe counts from the start of the daemon, zeusd from the start of the kernel's counter.",
    "stream": "A stream of Harpe begins with the present value; one of zeusd with the next change. Harpe ends the "
              "body with the connection, zeusd sends chunks.",
    "requests that are no HTTP": "The HTTP server answers what it cannot parse, or a body above 64 KiB, in its words.",
}

READS = ["get_cumulative_energy", "get_power", "get_power_limit", "get_power_limit_constraints",
         "get_persistence_mode"]
WRITES = {"set_persistence_mode": ["enabled"], "set_power_limit": ["power_limit_mw"],
          "set_gpu_locked_clocks": ["min_clock_mhz", "max_clock_mhz"],
          "set_mem_locked_clocks": ["min_clock_mhz", "max_clock_mhz"], "reset_gpu_locked_clocks": [],
          "reset_mem_locked_clocks": []}
IDS = ["0", "1", "2", "0,1", "1,0", "0,0,1", "0%2C1", "%200%20,%201", "+1+", "01", "%2B1", "", "%20", ",", "0,", ",0",
       "0,,1", "3", "5,0,4", "0,99", "18446744073709551615", "18446744073709551616", "-1", "1.0", "x", "0;1", "0x1", "%",
       "%2", "%zz", "%C3%A9", "%FF", "%E2%80%8B0", "%C2%A00", "0%0A", "%221%22", "null", "[0]", "1e0", "%EF%BC%91",
       "0%261", "0#1"]
SWITCHES = ["true", "false", "True", "TRUE", "1", "0", "", "yes", "true%20", "%74rue", "truefalse", "null"]
LIMITS = ["150000", "231000", "100000", "300000", "99999", "300001", "0", "1", "4294967295", "4294967296", "-1", "+150000",
          "%2B150000", "0150000", "150000.0", "1e5", "", "x", "99999999999999999999", "150000%20", "%31%35%30000"]
CLOCKS = ["210", "1200", "1740", "0", "1", "405", "7251", "100000", "", "x", "-5", "4294967296"]


def query(pairs):
    return "&".join(f"{name}={value}" for name, value in pairs)


def good_values(names):
    return [(name, {"enabled": "true", "power_limit_mw": "150000", "min_clock_mhz": "405",
                    "max_clock_mhz": "405"}[name]) for name in names]


def write_requests():
    for route, names in WRITES.items():
        path = "/gpu/" + route
        good = good_values(names)
        for ids in IDS:
            yield "POST", f"{path}?" + query([("gpu_ids", ids), *good, ("block", "true")])
        for block in SWITCHES:
            yield "POST", f"{path}?" + query([("gpu_ids", "1"), *good, ("block", block)])
        for name, values in (("enabled", SWITCHES), ("power_limit_mw", LIMITS), ("min_clock_mhz", CLOCKS),
                             ("max_clock_mhz", CLOCKS)):
            for value in values if name in names else []:
                changed = [(one, value if one == name else other) for one, other in good]
                yield "POST", f"{path}?" + query([("gpu_ids", "0,2"), *changed, ("block", "true")])
        whole = [("gpu_ids", "0"), *good, ("block", "true")]
        for i in range(len(whole)):
            yield "POST", f"{path}?" + query(whole[:i] + whole[i + 1:])
            yield "POST", f"{path}?" + query(whole + [whole[i]])
            yield "POST", f"{path}?" + query(whole[:i] + [("more", "1")] + whole[i:])
        yield "POST", f"{path}?" + query(reversed(whole))
        for text in ("", "?", "?&", "?=", "?gpu_ids", "?&&" + query(whole) + "&&", "?" + query(whole) + "&",
                     "?GPU_IDS=0&block=true", "?gpu%5Fids=0&block=true", "?gpu_ids=5&more=1", "?gpu_ids=%zz&block=x",
                     "?" + query(whole) + "&m%C3%B6re=1", "?" + query(whole) + "&=1", "?a=b&c=d"):
            yield "POST", path + text
        for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
            yield method, f"{path}?" + query(whole)


def read_requests():
    for route in READS:
        path = "/gpu/" + route
        yield "GET", path
        for ids in IDS:
            yield "GET", f"{path}?gpu_ids={ids}"
        for text in ("?", "?&", "?gpu_ids", "?gpu_ids=0&gpu_ids=1", "?cpu_ids=0", "?gpu_ids=0&block=true", "?x", "?=", "?=1"):
            yield "GET", path + text
        for method in ("POST", "PUT", "HEAD", "DELETE"):
            yield method, path
    for ids in ("3", "0,7,9", "", "x", "0,,1", "18446744073709551616"):
        yield "GET", f"/gpu/stream_power?gpu_ids={ids}"
    yield "GET", "/gpu/stream_power?more=1"
    yield "POST", "/gpu/stream_power"


def other_requests():
    for path in ("/", "/gpu", "/gpu/", "/gpu/nothing", "/gpu/set_nothing", "/gpu/reset_", "/cpu/get_power", "/cpu/",
                 "/cpu/get_cumulative_energy?cpu=true&dram=true", "/cpu/stream_power", "/cpu", "/auth/whoami", "/auth/",
                 "/auth", "/time", "/time/", "/time?x=1", "/Time", "/discover/", "/discover/x", "//time", "/nothing",
                 "/gpu//get_power", "/gpu/get_power/", "/gpu/get_power/0", "/favicon.ico", "/metrics"):
        for method in ("GET", "POST", "HEAD", "PUT"):
            yield method, path


def cpu_requests():
    for route, fields in (("get_cumulative_energy", "cpu=true&dram=true"), ("get_power", ""), ("stream_power", "x=1")):
        path = "/cpu/" + route
        for ids in IDS[10:]:
            yield "GET", f"{path}?cpu_ids={ids}&{fields}"
        for text in ("?x=1", "?cpu=true", "?dram=true", "?cpu=1&dram=true", "?cpu=true&dram=", "?gpu_ids=0",
                     "?cpu=true&cpu=true&dram=true", "?cpu_ids=&cpu=true&dram=true", "?cpu_ids=0&cpu_ids=0"):
            if not (route == "stream_power" and text == "?"):
                yield "GET", path + text
        if route != "stream_power":
            yield "GET", f"{path}?{fields}"
        for method in ("POST", "HEAD", "PUT"):
            yield method, f"{path}?{fields}"


def random_requests(count, seed):
    """Returns queries of random parts."""
    choose = random.Random(seed)
    fields = ["gpu_ids", "block", "enabled", "power_limit_mw", "min_clock_mhz", "max_clock_mhz", "more", ""]
    for _ in range(count):
        route = choose.choice(list(WRITES) + READS)
        pairs = []
        for name in choose.sample(fields, choose.randint(0, 5)) if choose.random() < 0.5 else \
                ["gpu_ids", *WRITES.get(route, []), *(["block"] if route in WRITES else [])]:
            values = {"gpu_ids": IDS, "block": SWITCHES, "enabled": SWITCHES, "power_limit_mw": LIMITS}.get(name, CLOCKS)
            pairs.append((name, choose.choice(values)))
        yield "POST" if route in WRITES else "GET", f"/gpu/{route}?" + query(pairs)


def shape(value):
    """Replaces readings by their types, because readings change between two requests."""
    if isinstance(value, dict):
        moving = ("energy_mj", "timestamp_ms")
        return {name: type(one).__name__ if name in moving else shape_of_power(one) if name == "power_mw" else shape(one)
                for name, one in value.items()}
    return [shape(one) for one in value] if isinstance(value, list) else value


def shape_of_power(value):
    return {name: type(one).__name__ for name, one in value.items()} if isinstance(value, dict) else value


def comparable(answer):
    body = answer.body.decode()
    if answer.type == "application/json" and body:  # an answer to HEAD has none
        body = shape(answer.json)
        if list(body) == ["errors"]:
            body = {"errors": sorted(body["errors"])}  # "device messages"
    headers = {name: answer.headers.get(name) for name in ("content-type", "www-authenticate", "cache-control", "allow")}
    return answer.status, headers, body


class Comparison(zeusd_world.DaemonTest):
    maxDiff = None

    def setUp(self):
        if not zeusd_world.published_program():
            raise unittest.SkipTest("the published zeusd is neither in PATH nor in $HARPE_ZEUSD")
        super().setUp()

    def start(self, tcp=False, groups="gpu-control,gpu-read"):
        ours = super().start("--no-restore", "--groups", groups, tcp=tcp)
        theirs = Published(self.machine, zeusd_world.folder(self.addCleanup), tcp=tcp, groups=groups)
        self.addCleanup(theirs.close)
        self.ours, self.theirs = ours.tcp or ours.address, theirs.tcp or theirs.address

    def compare(self, requests, **more):
        """Sends each request to both daemons. The GPUs must also be in the same state after both."""
        different, count = [], 0
        for method, target in requests:
            count += 1
            answers, states = [], []
            for address in (self.theirs, self.ours):
                self.reset()
                answers.append(comparable(ask(address, method, target, **more)))
                if method == "POST":
                    self.settle(address, target)
                states.append(self.machine.states())
            if answers[0] != answers[1] or states[0] != states[1]:
                different.append(f"{method} {target}\n  zeusd: {answers[0]}\n  harpe: {answers[1]}\n" +
                                 ("" if states[0] == states[1] else f"  GPUs: {states[0]}, {states[1]}\n"))
        self.assertEqual(different, [], f"\n{len(different)} of {count}:\n" + "\n".join(different[:40]))
        return count

    def reset(self):
        for handle in self.machine.handles:
            self.machine.call("nvmlDeviceSetPowerManagementLimit", handle, kills.FOUND_MW)
            self.machine.call("nvmlDeviceSetPersistenceMode", handle, 0)
            self.machine.call("nvmlDeviceResetGpuLockedClocks", handle)
            self.machine.call("nvmlDeviceResetMemoryLockedClocks", handle)

    def settle(self, address, target):
        """Waits until a write with block=false is made. It sends a later write with block=true,
        which the daemon makes after the first write. The later write resets a lock that the request
        does not set, so it changes nothing."""
        if "block=false" in target:
            other = "gpu" if "_mem_" in target else "mem"
            ask(address, "POST", f"/gpu/reset_{other}_locked_clocks?gpu_ids=0,1,2&block=true")

    def test_writes(self):
        self.start()
        self.assertGreater(self.compare(write_requests()), 400)

    def test_reads(self):
        self.start()
        self.assertGreater(self.compare(read_requests()), 200)

    def test_other_paths(self):
        self.start()
        self.compare(other_requests())

    def test_random_queries(self):
        self.start()
        seed = int(os.environ.get("HARPE_TEST_SEED", "1"))
        self.compare(random_requests(int(os.environ.get("HARPE_TEST_SCALE", "1")) * 300, seed))

    def test_cpus(self):
        if os.path.isdir("/sys/class/powercap/intel-rapl"):
            self.skipTest("the published daemon reads this machine's own counters")
        self.start(groups=",".join(GROUPS))
        self.compare(cpu_requests())

    def test_groups(self):
        for groups in ("gpu-read", "gpu-control", "gpu-control,gpu-read,cpu-read"):
            with self.subTest(groups=groups):
                self.start(groups=groups)
                sample = itertools.chain(itertools.islice(write_requests(), 0, None, 60),
                                         itertools.islice(read_requests(), 0, None, 30), other_requests())
                self.compare(request for request in sample if not request[1].startswith("/cpu/stream_power"))
                self.doCleanups()
                self.setUp()

    def test_drivers_that_refuse(self):
        requests = ["/gpu/set_power_limit?gpu_ids=0,1&power_limit_mw=150000&block=true",
                    "/gpu/set_persistence_mode?gpu_ids=0,1&enabled=true&block=true",
                    "/gpu/set_gpu_locked_clocks?gpu_ids=2&min_clock_mhz=900&max_clock_mhz=900&block=true",
                    "/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true",
                    "/gpu/set_mem_locked_clocks?gpu_ids=2&min_clock_mhz=405&max_clock_mhz=405&block=true",
                    "/gpu/reset_mem_locked_clocks?gpu_ids=0&block=false"]
        for faults in ("no_permission", "not_supported=power_limit", "not_supported=persistence",
                       "not_supported=clock_locks,not_supported=memory_locks", "no_energy_counter"):
            with self.subTest(faults=faults):
                # The test itself, which resets the GPUs, has no faults.
                self.machine.environment["HARPE_EMULATOR_FAULTS"] = faults
                self.start()
                self.compare([("POST", target) for target in requests] + [("GET", f"/gpu/{one}") for one in READS])
                self.doCleanups()
                self.setUp()

    # ---- Tokens

    def test_tokens(self):
        self.start(tcp=True)
        now = int(time.time())
        head, claims, signature = token().split(".")
        tokens = [None, "", "x", "..", "a.b.c", token(), token(key=b"x"), token(exp=now + 10), token(exp=now - 1),
                  token(exp=now - 50), token(exp=now - 70), token(exp=now - 100000), token(exp=0), token(exp=-1),
                  token(exp=None), token(exp="2100"), token(exp=1.5e10), token(exp=True),
                  token({"sub": "x", "scopes": GROUPS}), token({"sub": "x", "scopes": []}),
                  token(scopes=["gpu-read"]), token(scopes=["gpu-control"]), token(scopes=["cpu-read"]),
                  token(scopes=["gpu-read", "gpu-read", "gpu-control"]), token(scopes=["GPU-READ"]), token(scopes=["x"]),
                  token(scopes=None), token(scopes="gpu-read"), token(scopes={}), token(scopes=[1]), token(sub=""),
                  token(sub=1), token(sub=None), token(sub="M\u00fcller \"x\""), token({"scopes": GROUPS}), token({"sub": "x"}),
                  token(aud="zeusd"), token(aud=["a", "b"]), token(nbf=now + 1000), token(iss="x"), token(more=[1, {}]),
                  token(header={"alg": "none"}), token(header={"alg": "HS384"}), token(header={"alg": "RS256"}),
                  token(header={"alg": "hs256"}), token(header={"typ": "JWT"}), token(header={"alg": "HS256"}),
                  token(header={"alg": "HS256", "typ": "JOSE"}), token(header=b"{}"), token(header=b"[]"), token(header=b"x"),
                  token(b"x"), token(b"[]"), token(b"null"), token(b'{"sub":"a","sub":"b","scopes":[]}'),
                  f"{head}.{claims}", f"{head}.{claims}.", f"{head}..{signature}", f".{claims}.{signature}",
                  f"{head}.{claims}.{signature}.", f"{head}.{claims}.{signature}=", f"{head}.{claims}.{signature[:-1]}",
                  f" {head}.{claims}.{signature}", f"{head}.{claims}.{signature} "]
        targets = [("GET", "/auth/whoami"), ("GET", "/gpu/get_power_limit"), ("GET", "/nothing"),
                   ("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=150000&block=true"), ("GET", "/cpu/get_power"),
                   ("GET", "/time"), ("POST", "/gpu/set_nothing"), ("GET", "/auth/nothing")]
        different = []
        for (method, target), bearer in itertools.product(targets, tokens):
            theirs, ours = (self.comparable_token(ask(address, method, target, bearer=bearer))
                            for address in (self.theirs, self.ours))
            if theirs != ours:
                different.append(f"{method} {target} {bearer}\n  zeusd: {theirs}\n  harpe: {ours}")
        self.assertEqual(different, [], f"\n{len(different)}:\n" + "\n".join(different[:20]))

    @staticmethod
    def comparable_token(answer):
        status, headers, body = comparable(answer)
        if status == 401 and isinstance(body, dict) and body["error"].startswith("Invalid token: "):
            kind = body["error"][len("Invalid token: "):]
            body = kind if kind in ("InvalidSignature", "InvalidAudience") else "Invalid token"  # "token messages"
        return status, headers, body

    def test_forms_of_the_header(self):
        self.start(tcp=True)
        for field in ("Bearer", "Bearer ", "bearer " + token(), "BEARER " + token(), "Bearer  " + token(), token(),
                      "Basic dTpw", "Bearer\t" + token()):
            theirs, ours = (self.comparable_token(ask(address, "GET", "/auth/whoami", headers={"Authorization": field}))
                            for address in (self.theirs, self.ours))
            self.assertEqual(theirs, ours, field)

    # ---- The differences

    def test_discover(self):
        self.start()
        theirs, ours = (ask(address, "GET", "/discover").json for address in (self.theirs, self.ours))
        for gpu in ours["gpus"]:  # "discover"
            self.assertIsInstance(gpu.pop("pci_address"), str)
            self.assertIs(gpu.pop("cumulative_energy_available"), True)
        theirs["enabled_api_groups"].sort()
        ours["enabled_api_groups"].sort()
        self.assertEqual(ours, theirs)

    def test_readings_agree(self):
        self.start()
        for _ in range(3):
            theirs, ours, again = (ask(address, "GET", "/gpu/get_cumulative_energy").json
                                   for address in (self.theirs, self.ours, self.theirs))
            for gpu in theirs:
                self.assertTrue(theirs[gpu]["energy_mj"] <= ours[gpu]["energy_mj"] <= again[gpu]["energy_mj"])
        theirs, ours = (ask(address, "GET", "/time").json["timestamp_ms"] for address in (self.theirs, self.ours))
        self.assertLessEqual(theirs, ours)

    def test_streams(self):
        self.start()
        found = []
        for address in (self.theirs, self.ours):
            stream = Stream(address, "/gpu/stream_power?gpu_ids=1")
            events = [stream.event() for _ in range(3)]
            found.append((stream.status, stream.headers["content-type"], stream.headers["cache-control"],
                          [{name: type(value) for name, value in event.items()} for event in events],
                          {event["gpu_id"] for event in events}))
            stream.close()
        self.assertEqual(found[0], found[1])

    def test_what_only_one_of_them_has(self):
        self.start()
        target = "/gpu/reset_locked_clocks?gpu_ids=0&block=true"  # "reset_locked_clocks"
        self.assertEqual([ask(address, "POST", target).status for address in (self.theirs, self.ours)], [404, 200])
        target = "/gpu/%67et_power_limit"  # "encoded paths"
        self.assertEqual([ask(address, "GET", target).status for address in (self.theirs, self.ours)], [200, 404])

    def test_a_kept_connection_answers_the_same(self):
        self.start()
        answers = []
        for address in (self.theirs, self.ours):
            connection = Connection(address)
            answers.append([comparable(connection.ask(method, target))
                            for method, target in itertools.islice(read_requests(), 0, None, 10) if method != "HEAD"])
            connection.close()
        self.assertEqual(json.dumps(answers[0]), json.dumps(answers[1]))
