# SPDX-License-Identifier: Apache-2.0
"""Tests each route of zeusd and each of its errors on emulated GPUs, and tokens, streams, limits
and drivers that hang. test_zeusd_published.py compares the same routes with the published daemon."""
import concurrent.futures
import json
import os
import pathlib
import select
import socket
import stat
import time

import zeusd_world
from zeusd_world import GROUPS, LIMIT_S, Connection, Daemon, DaemonTest, Rapl, Stream, ask, kills, token

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class Routes(DaemonTest):
    def start(self, *options, **more):
        self.rapl = Rapl(self.folder)
        return super().start("--rapl", self.rapl.root, *options, **more)

    def ask(self, method, target, **more):
        return ask(self.address, method, target, **more)

    def get(self, target, **more):
        answer = self.ask("GET", target, **more)
        self.assertEqual((answer.status, answer.type), (200, JSON), answer)
        return answer.json

    def post(self, target):
        answer = self.ask("POST", target)
        self.assertEqual((answer.status, answer.type, answer.body), (200, None, b""), answer)
        self.assertEqual(answer.headers["content-length"], "0")

    def refused(self, method, target, status, body, **more):
        """Checks an error: a dict is {"error": ...} or {"errors": ...}, a str is a plain text."""
        answer = self.ask(method, target, **more)
        if isinstance(body, str):
            self.assertEqual((answer.status, answer.type, answer.body.decode()), (status, TEXT, body), target)
        else:
            self.assertEqual((answer.status, answer.type, answer.json), (status, JSON, body), target)
        return answer

    def error(self, method, target, status, text, **more):
        return self.refused(method, target, status, {"error": text}, **more)

    # ---- Reading

    def test_discover(self):
        self.start()
        found = self.get("/discover")
        self.assertEqual([gpu["id"] for gpu in found["gpus"]], [0, 1, 2])
        for gpu in found["gpus"]:
            self.assertEqual(gpu["name"], "NVIDIA A40")
            self.assertRegex(gpu["pci_address"], "^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]$")
            self.assertIs(gpu["cumulative_energy_available"], True)
        self.assertEqual(len({gpu["pci_address"] for gpu in found["gpus"]}), 3)
        self.assertEqual(found["cpus"], [{"id": 0, "dram_available": True}, {"id": 1, "dram_available": False}])
        self.assertEqual(found["enabled_api_groups"], GROUPS)
        self.assertIs(found["auth_required"], False)
        self.assertEqual(self.get("/discover?anything=goes"), found)

    def test_discover_without_energy_counters(self):
        self.faults.write_text("no_energy_counter")
        self.start(faults_file=self.faults)
        self.assertEqual([gpu["cumulative_energy_available"] for gpu in self.get("/discover")["gpus"]], [False] * 3)
        answer = self.ask("GET", "/gpu/get_cumulative_energy?gpu_ids=1")
        self.assertEqual((answer.status, list(answer.json["errors"])), (400, ["1"]))

    def test_time(self):
        self.start()
        before = time.time() * 1000
        told = self.get("/time")["timestamp_ms"]
        self.assertIsInstance(told, int)
        self.assertTrue(before - 1000 <= told <= time.time() * 1000 + 1000)

    def test_gpu_readings(self):
        self.start()
        energy = self.get("/gpu/get_cumulative_energy")
        self.assertEqual(list(energy), ["0", "1", "2"])
        again = self.get("/gpu/get_cumulative_energy?gpu_ids=2")
        self.assertEqual(list(again), ["2"])
        self.assertGreaterEqual(again["2"]["energy_mj"], energy["2"]["energy_mj"])
        power = self.get("/gpu/get_power?gpu_ids=0,1")
        self.assertEqual(set(power), {"timestamp_ms", "power_mw"})
        self.assertEqual(list(power["power_mw"]), ["0", "1"])
        for value in power["power_mw"].values():
            self.assertTrue(5000 < value < 300000, value)
        self.assertEqual(self.get("/gpu/get_power_limit"),
                         {str(i): {"power_limit_mw": kills.FOUND_MW} for i in range(3)})
        self.assertEqual(self.get("/gpu/get_power_limit_constraints?gpu_ids=1"),
                         {"1": {"min_power_limit_mw": 100000, "max_power_limit_mw": 300000}})
        self.assertEqual(self.get("/gpu/get_persistence_mode?gpu_ids=0"), {"0": {"enabled": False}})

    def test_cpu_readings(self):
        self.start()
        first = self.get("/cpu/get_cumulative_energy?cpu=true&dram=true")
        self.rapl.set("intel-rapl:0", 3000000)
        self.rapl.set("intel-rapl:0/intel-rapl:0:0", 1500000)
        second = self.get("/cpu/get_cumulative_energy?cpu=true&dram=true")
        self.assertEqual(second["0"]["cpu_energy_uj"] - first["0"]["cpu_energy_uj"], 2000000)
        self.assertEqual(second["0"]["dram_energy_uj"] - first["0"]["dram_energy_uj"], 500000)
        self.assertIsNone(second["1"]["dram_energy_uj"])
        self.assertEqual(set(self.get("/cpu/get_cumulative_energy?cpu_ids=1&cpu=true&dram=false")), {"1"})
        nothing = self.get("/cpu/get_cumulative_energy?cpu_ids=0&cpu=false&dram=false")
        self.assertEqual(nothing, {"0": {"cpu_energy_uj": None, "dram_energy_uj": None}})
        power = self.get("/cpu/get_power")
        self.assertEqual(power["power_mw"], {"0": {"cpu_mw": 0, "dram_mw": 0}, "1": {"cpu_mw": 0, "dram_mw": None}})
        self.error("GET", "/cpu/get_power?cpu_ids=2", 400, "CPU 2 not found")
        self.error("GET", "/cpu/get_power?cpu_ids=", 400, "cpu_ids must contain at least one CPU index")
        self.refused("GET", "/cpu/get_cumulative_energy?cpu=true", 400,
                     "Query deserialize error: missing field `dram`")
        self.refused("GET", "/cpu/get_power?cpu=true", 400,
                     "Query deserialize error: unknown field `cpu`, expected `cpu_ids`")

    def test_cpu_power_is_measured(self):
        self.start()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            for attempt in range(100):  # a busy machine may read both before or after the change
                answer = pool.submit(self.get, "/cpu/get_power?cpu_ids=0")
                time.sleep(0.05)
                self.rapl.set("intel-rapl:0", 2000000 + attempt * 1000000)
                if answer.result()["power_mw"]["0"]["cpu_mw"] > 0:
                    return
        self.fail("no power was measured")

    def test_a_machine_without_counters_has_no_cpus(self):
        super().start("--rapl", "/nonexistent")
        self.assertEqual(self.get("/discover")["cpus"], [])
        self.assertEqual(self.get("/cpu/get_cumulative_energy?cpu=true&dram=true"), {})
        self.assertEqual(self.get("/cpu/get_power")["power_mw"], {})
        self.error("GET", "/cpu/get_power?cpu_ids=0", 400, "CPU 0 not found")

    # ---- Writing

    def test_settings_reach_the_driver(self):
        self.start("--no-restore")
        self.post("/gpu/set_power_limit?gpu_ids=1&power_limit_mw=150000&block=true")
        self.post("/gpu/set_persistence_mode?gpu_ids=1&enabled=true&block=true")
        self.post("/gpu/set_gpu_locked_clocks?gpu_ids=1&min_clock_mhz=1200&max_clock_mhz=1200&block=true")
        self.post("/gpu/set_mem_locked_clocks?gpu_ids=1&min_clock_mhz=405&max_clock_mhz=405&block=true")
        states = self.machine.states()
        self.assertEqual(states[1], (1200, 405, 150000, 1))
        self.assertEqual([states[0], states[2]], [self.machine.found_all[0], self.machine.found_all[2]])
        self.assertEqual(self.get("/gpu/get_persistence_mode?gpu_ids=1"), {"1": {"enabled": True}})
        self.post("/gpu/reset_gpu_locked_clocks?gpu_ids=1&block=true")
        self.assertEqual(self.machine.states()[1][:2], (self.machine.found_all[1][0], 405))
        self.post("/gpu/reset_mem_locked_clocks?gpu_ids=1&block=true")
        self.assertEqual(self.machine.states()[1][:2], self.machine.found_all[1][:2])
        self.post("/gpu/set_gpu_locked_clocks?gpu_ids=0,1&min_clock_mhz=0&max_clock_mhz=900&block=true")
        self.post("/gpu/set_mem_locked_clocks?gpu_ids=0,1&min_clock_mhz=405&max_clock_mhz=405&block=true")
        self.post("/gpu/reset_locked_clocks?gpu_ids=0,1&block=true")
        self.assertEqual([state[:2] for state in self.machine.states()],
                         [state[:2] for state in self.machine.found_all])

    def test_every_call_reaches_the_driver(self):
        # Another program may have changed a lock, so the daemon sets it again.
        self.start("--no-restore")
        lock = "/gpu/set_gpu_locked_clocks?gpu_ids=0&min_clock_mhz=1200&max_clock_mhz=1200&block=true"
        self.post(lock)
        self.machine.call("nvmlDeviceResetGpuLockedClocks", self.machine.handle)
        self.post(lock)
        self.assertEqual(self.machine.clock(), 1200)
        self.post("/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true")
        self.machine.call("nvmlDeviceSetGpuLockedClocks", self.machine.handle, 900, 900)
        self.post("/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true")
        self.assertEqual(self.machine.states(), self.machine.found_all)

    def test_lists_of_devices(self):
        self.start("--no-restore")
        for ids in ("0,1,2", "2,1,0", "0%2C1%2C2", "%200%20,%091,+2+", "1,0,2,2,1,0", "%C2%A00,1,2%E3%80%80", "00,01,%2B2"):
            limit = 120000 + 1000 * len(ids)
            self.post(f"/gpu/set_power_limit?gpu_ids={ids}&power_limit_mw={limit}&block=true")
            self.assertEqual([state[2] for state in self.machine.states()], [limit] * 3, ids)

    def test_unblocked_writes_are_made(self):
        self.start("--no-restore")
        self.post("/gpu/set_power_limit?gpu_ids=0,2&power_limit_mw=140000&block=false")
        self.machine.until(lambda: [state[2] for state in self.machine.states()] == [140000, kills.FOUND_MW, 140000])

    def test_the_last_unblocked_write_wins(self):
        self.faults.write_text("slow_set=300")
        daemon = self.start("--no-restore", faults_file=self.faults)
        connection = Connection(self.address)
        begin = time.monotonic()
        for limit in range(100000, 100000 + 200 * 100, 100):
            answer = connection.ask("POST", f"/gpu/set_power_limit?gpu_ids=0&power_limit_mw={limit}&block=false")
            self.assertEqual(answer.status, 200)
        took_s = time.monotonic() - begin
        self.machine.until(lambda: self.machine.states()[0][2] == 119900)
        connection.close()
        status, counts = daemon.stop()
        self.assertEqual(status, 0)
        self.assertEqual(counts["writes"], 200)
        # The driver takes 0.3 s for a call, so it made few calls while this process sent the writes.
        self.assertGreater(counts["replaced"], 200 - took_s / 0.3 - 3)

    def test_blocked_writes_wait_for_the_one_that_replaces_them(self):
        self.faults.write_text("slow_set=500")
        self.start("--no-restore", faults_file=self.faults)
        limits = [110000 + 1000 * i for i in range(20)]
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda limit: self.ask(
                "POST", f"/gpu/set_power_limit?gpu_ids=0&power_limit_mw={limit}&block=true").status, limits))
        self.assertEqual(answers, [200] * 20)
        self.assertIn(self.machine.states()[0][2], limits)

    def test_settings_do_not_replace_each_other(self):
        self.faults.write_text("slow_set=200")
        self.start("--no-restore", faults_file=self.faults)
        connection = Connection(self.address)
        for target in ("set_power_limit?power_limit_mw=150000", "set_persistence_mode?enabled=true",
                       "set_gpu_locked_clocks?min_clock_mhz=1200&max_clock_mhz=1200",
                       "set_mem_locked_clocks?min_clock_mhz=405&max_clock_mhz=405"):
            self.assertEqual(connection.ask("POST", f"/gpu/{target}&gpu_ids=0&block=false").status, 200)
        connection.close()
        self.machine.until(lambda: self.machine.states()[0] == (1200, 405, 150000, 1))

    # ---- Errors of queries

    def test_errors_of_writes(self):
        self.start()
        power = "/gpu/set_power_limit?gpu_ids={}&power_limit_mw=150000&block=true"
        self.error("POST", power.format(""), 400, "gpu_ids must contain at least one GPU index")
        self.error("POST", power.format("%20+%09"), 400, "gpu_ids must contain at least one GPU index")
        self.error("POST", power.format("0,,1"), 400, "gpu_ids contains an empty GPU index")
        self.error("POST", power.format("0,"), 400, "gpu_ids contains an empty GPU index")
        self.error("POST", power.format("x"), 400, "Invalid GPU index: x")
        self.error("POST", power.format("-1"), 400, "Invalid GPU index: -1")
        self.error("POST", power.format("1.0"), 400, "Invalid GPU index: 1.0")
        self.error("POST", power.format("99999999999999999999"), 400, "Invalid GPU index: 99999999999999999999")
        self.error("POST", power.format("0,%22%3C%0a%C3%A9"), 400, 'Invalid GPU index: "<\n\u00e9')
        self.error("POST", power.format("%ff"), 400, "Invalid GPU index: \ufffd")
        self.error("POST", power.format("%00"), 400, "Invalid GPU index: \ufffd")
        self.refused("POST", power.format("5"), 400, "GPU index 5 does not exist.")
        self.refused("POST", power.format("9,0,7,8"), 400, "GPU index 7 does not exist.")
        self.refused("POST", power.format("18446744073709551615"), 400,
                     "GPU index 18446744073709551615 does not exist.")
        start = "Query deserialize error: "
        self.refused("POST", "/gpu/set_power_limit", 400, start + "missing field `gpu_ids`")
        self.refused("POST", "/gpu/set_power_limit?gpu_ids=0", 400, start + "missing field `power_limit_mw`")
        self.refused("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=1", 400, start + "missing field `block`")
        for value, reason in (("", "cannot parse integer from empty string"), ("x", "invalid digit found in string"),
                              ("-1", "invalid digit found in string"), ("1e5", "invalid digit found in string"),
                              ("4294967296", "number too large to fit in target type")):
            self.refused("POST", f"/gpu/set_power_limit?gpu_ids=0&power_limit_mw={value}&block=true", 400,
                         start + reason)
        for value in ("True", "1", "", "yes", "true%20"):
            self.refused("POST", f"/gpu/set_persistence_mode?gpu_ids=0&enabled={value}&block=true", 400,
                         start + "provided string was not `true` or `false`")
        self.refused("POST", "/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true&more=1", 400,
                     start + "unknown field `more`, expected `gpu_ids` or `block`")
        self.refused("POST", "/gpu/set_power_limit?gpu_ids=0&unknown%20field=1", 400,
                     start + "unknown field `unknown field`, expected one of `gpu_ids`, `power_limit_mw`, `block`")
        self.refused("POST", "/gpu/set_power_limit?gpu_ids=0&gpu_ids=1", 400, start + "duplicate field `gpu_ids`")
        self.assertEqual(self.machine.states(), self.machine.found_all)

    def test_errors_of_reads(self):
        self.start()
        for route in ("get_power", "get_cumulative_energy", "get_power_limit", "get_power_limit_constraints",
                      "get_persistence_mode"):
            self.error("GET", f"/gpu/{route}?gpu_ids=5", 400, "GPU 5 not found")
            self.error("GET", f"/gpu/{route}?gpu_ids=", 400, "gpu_ids must contain at least one GPU index")
            self.refused("GET", f"/gpu/{route}?cpu_ids=0", 400,
                         "Query deserialize error: unknown field `cpu_ids`, expected `gpu_ids`")
        self.error("GET", "/gpu/stream_power?gpu_ids=7,1,9", 400, "Unknown GPU indices: [7, 9]. Available: [0, 1, 2]")
        self.error("GET", "/cpu/stream_power?cpu_ids=2", 400, "Unknown CPU indices: [2]. Available: [0, 1]")

    def test_paths_and_methods_without_a_route(self):
        self.start()
        for method, target in (("GET", "/"), ("GET", "/gpu"), ("GET", "/gpu/"), ("GET", "/time/"), ("POST", "/time"),
                               ("GET", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=1&block=true"),
                               ("POST", "/gpu/get_power"), ("PUT", "/gpu/set_power_limit"), ("GET", "/gpu/nothing"),
                               ("GET", "/cpu/nothing"), ("HEAD", "/time"), ("DELETE", "/discover"),
                               ("POST", "/gpu/%73et_power_limit?gpu_ids=0&power_limit_mw=150000&block=true")):
            answer = self.ask(method, target)
            self.assertEqual((answer.status, answer.type, answer.body), (404, None, b""), (method, target))

    def test_bodies_are_not_read(self):
        self.start()
        answer = self.ask("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=150000&block=true", body=b"x" * 60000)
        self.assertEqual(answer.status, 200)
        self.assertEqual(self.ask("POST", "/gpu/reset_locked_clocks", body=b"x" * 100000).status, 413)

    # ---- Errors of devices

    def test_errors_of_devices(self):
        self.start("--no-restore", faults_file=self.faults)
        answer = self.ask("POST", "/gpu/set_power_limit?gpu_ids=2,0&power_limit_mw=1&block=true")
        self.assertEqual((answer.status, sorted(answer.json["errors"])), (400, ["0", "2"]))
        self.assertIn("100 to 300 W", answer.json["errors"]["0"])
        for query in ("min_clock_mhz=900&max_clock_mhz=300", "min_clock_mhz=0&max_clock_mhz=0"):
            answer = self.ask("POST", f"/gpu/set_gpu_locked_clocks?gpu_ids=1&{query}&block=true")
            self.assertEqual((answer.status, list(answer.json["errors"])), (400, ["1"]))
        self.faults.write_text("no_permission")
        answer = self.ask("POST", "/gpu/reset_locked_clocks?gpu_ids=0&block=true")
        self.assertEqual((answer.status, list(answer.json["errors"])), (403, ["0"]))
        self.faults.write_text("not_supported=persistence,not_supported=instant_power,not_supported=field_values,"
                               "not_supported=power")
        answer = self.ask("POST", "/gpu/set_persistence_mode?gpu_ids=0&enabled=true&block=true")
        self.assertEqual((answer.status, list(answer.json["errors"])), (400, ["0"]))
        answer = self.ask("GET", "/gpu/get_power")
        self.assertEqual((answer.status, list(answer.json["errors"])), (400, ["0", "1", "2"]))

    def test_the_highest_status_of_several_devices(self):
        self.start("--no-restore", faults_file=self.faults)
        self.faults.write_text("lost_after=0@1")
        answer = self.ask("POST", "/gpu/set_power_limit?gpu_ids=0,1&power_limit_mw=1&block=true")
        self.assertEqual((answer.status, sorted(answer.json["errors"])), (500, ["0", "1"]))
        answer = self.ask("POST", "/gpu/set_power_limit?gpu_ids=0,1&power_limit_mw=150000&block=true")
        self.assertEqual((answer.status, list(answer.json["errors"])), (500, ["1"]))
        self.assertEqual(self.get("/gpu/get_power_limit?gpu_ids=0"), {"0": {"power_limit_mw": 150000}})

    # ---- Groups and tokens

    def test_groups_that_are_not_enabled(self):
        self.start("--groups", "gpu-read", "--unix-token")
        for method, target, group in (("POST", "/gpu/set_power_limit", "gpu-control"),
                                      ("GET", "/gpu/reset_anything", "gpu-control"),
                                      ("GET", "/cpu/get_power", "cpu-read"), ("GET", "/cpu/anything", "cpu-read")):
            self.error(method, target, 404, f"API group '{group}' is not enabled on this server.")  # without a token
        found = self.get("/discover")
        self.assertEqual((found["enabled_api_groups"], found["auth_required"], found["cpus"]), (["gpu-read"], True, []))
        self.get("/gpu/get_power", bearer=token())

    def test_without_tokens_there_is_no_whoami(self):
        self.start(tcp=True)
        self.error("GET", "/auth/whoami", 404, "Authentication is not enabled on this server.")
        self.error("GET", "/auth/anything", 404, "Authentication is not enabled on this server.", bearer=token())

    def test_tokens_on_tcp(self):
        daemon = self.start(tcp=True)
        self.assertIs(self.get("/discover")["auth_required"], False)  # on the Unix socket
        self.address = daemon.tcp
        self.assertIs(self.get("/discover")["auth_required"], True)
        self.get("/time", bearer="nonsense")
        missing = "Authentication required. Provide an Authorization: Bearer <token> header."
        for target in ("/auth/whoami", "/gpu/get_power", "/nothing"):
            answer = self.error("GET", target, 401, missing)
            self.assertEqual(answer.headers["www-authenticate"], 'Bearer realm="zeusd"')
        for header in ("Basic abc", "bearer " + token(), "Bearer", token()):
            self.error("GET", "/gpu/get_power", 401, missing, headers={"Authorization": header})
        end = int(time.time()) + 3600
        self.assertEqual(self.get("/auth/whoami", bearer=token(exp=end, scopes=["cpu-read", "gpu-read"])),
                         {"sub": "somebody", "scopes": ["cpu-read", "gpu-read"], "exp": end})
        self.assertEqual(self.get("/auth/whoami", bearer=token({"sub": "\u00e9 \"", "scopes": []})),
                         {"sub": "\u00e9 \"", "scopes": []})
        self.error("GET", "/gpu/get_power", 403, "Token for user 'somebody' lacks required scope 'gpu-read'. "
                   "Token scopes: ['cpu-read', 'gpu-control']", bearer=token(scopes=["cpu-read", "gpu-control"]))
        self.error("POST", "/gpu/set_power_limit", 403, "Token for user 'somebody' lacks required scope "
                   "'gpu-control'. Token scopes: []", bearer=token(scopes=[]))
        self.error("GET", "/gpu/get_power", 401, "Token has expired.", bearer=token(exp=int(time.time()) - 100))
        self.get("/gpu/get_power", bearer=token(exp=int(time.time()) - 30))  # clocks of machines differ

    def test_invalid_tokens(self):
        daemon = self.start(tcp=True)
        self.address = daemon.tcp
        good = token()
        head, claims, signature = good.split(".")
        bad = {
            "": None, "x": None, "..": None, good + ".": None, good + "x": None, good[:-2]: "InvalidSignature",
            f"{head}.{claims}.": "InvalidSignature", f"{head}.{claims}": "InvalidToken",
            token(key=b"another key"): "InvalidSignature",
            f"{head}.{zeusd_world.part({'sub': 'root', 'scopes': GROUPS})}.{signature}": "InvalidSignature",
            token(header={"typ": "JWT", "alg": "none"}): None, token(header={"typ": "JWT", "alg": "HS512"}): None,
            token(header={"typ": "JWT", "alg": "RS256"}): None, token(header={"typ": "JWT"}): None,
            token(header={"alg": "HS256", "crit": ["exp"]}): None, token(header=b"[]"): None,
            zeusd_world.part({"alg": "none"}) + "." + claims + ".": None,
            token(header=b'{"alg":"none","alg":"HS256"}'): None,
            token({"scopes": GROUPS}): None, token({"sub": "x"}): None, token({"sub": 1, "scopes": GROUPS}): None,
            token({"sub": "x", "scopes": ["root"]}): None, token({"sub": "x", "scopes": "gpu-read"}): None,
            token(exp="2100"): None, token(exp=-1): None, token(exp=1e300): None, token(aud="others"): "InvalidAudience",
            token(b"{"): None, token(b"\xff"): None, token(b"[" * 4000): None, "a" * 9000 + "." + "b" * 9000 + ".c": None,
        }
        for text, reason in bad.items():
            answer = self.ask("GET", "/auth/whoami", bearer=text)
            self.assertEqual((answer.status, answer.headers.get("www-authenticate")), (401, 'Bearer realm="zeusd"'), text)
            self.assertTrue(answer.json["error"].startswith("Invalid token: ") or text == "", answer)
            if reason:
                self.assertEqual(answer.json["error"], f"Invalid token: {reason}")
            if len(text) > 20:
                self.assertNotIn(text[5:20], answer.json["error"])

    def test_a_network_address_needs_a_key(self):
        daemon = self.start()
        daemon.stop()
        daemon.command += ["--tcp", "127.0.0.1"]
        with self.assertRaisesRegex(RuntimeError, "need a signing key"):
            daemon.start()
        (self.folder / "key").write_bytes(b"")
        daemon.command += ["--key", str(daemon.folder / "key")]
        with self.assertRaisesRegex(RuntimeError, "is empty"):
            daemon.start()

    # ---- The socket

    def test_the_socket(self):
        daemon = self.start()
        self.assertEqual(stat.S_IMODE(os.stat(self.address).st_mode), 0o666)
        with self.assertRaisesRegex(RuntimeError, "another program listens"):
            Daemon(self.machine, self.folder)
        self.get("/time")
        daemon.kill()
        self.assertTrue(self.address.exists())
        daemon.start()  # the stale socket is replaced
        self.get("/time")
        self.assertEqual(daemon.stop()[0], 0)
        self.assertFalse(self.address.exists())

    # ---- Streams

    def test_gpu_stream(self):
        self.start()
        stream = Stream(self.address, "/gpu/stream_power?gpu_ids=0,2")
        self.addCleanup(stream.close)
        self.assertEqual((stream.status, stream.headers["content-type"], stream.headers["cache-control"]),
                         (200, "text/event-stream", "no-cache"))
        seen, last = {}, {}
        while min(seen.get(0, 0), seen.get(2, 0)) < 3:
            event = stream.event()
            self.assertEqual(sorted(event), ["gpu_id", "power_mw", "timestamp_ms"])
            self.assertIn(event["gpu_id"], (0, 2))
            self.assertNotEqual(last.get(event["gpu_id"]), event["power_mw"])  # on change only
            last[event["gpu_id"]] = event["power_mw"]
            seen[event["gpu_id"]] = seen.get(event["gpu_id"], 0) + 1

    def test_cpu_stream(self):
        self.start()
        stream = Stream(self.address, "/cpu/stream_power")
        self.addCleanup(stream.close)
        first = sorted((stream.event() for _ in range(2)), key=lambda event: event["cpu_id"])
        self.assertEqual([sorted(event) for event in first], [["cpu_id", "cpu_mw", "dram_mw", "timestamp_ms"]] * 2)
        self.assertEqual([(event["cpu_id"], event["cpu_mw"], event["dram_mw"]) for event in first],
                         [(0, 0, 0), (1, 0, None)])
        self.rapl.set("intel-rapl:1", 2000000)
        event = stream.event()
        self.assertEqual((event["cpu_id"], event["cpu_mw"] > 0), (1, True))
        later = Stream(self.address, "/cpu/stream_power?cpu_ids=0")  # begins with the present value
        self.addCleanup(later.close)
        self.assertEqual(later.event()["cpu_id"], 0)

    def test_streams_are_limited_and_end(self):
        daemon = self.start("--streams", 4)
        most = 4 if os.geteuid() == 0 else 2  # a user other than root may have half of them
        streams = [Stream(self.address, "/gpu/stream_power") for _ in range(most)]
        self.error("GET", "/gpu/stream_power", 503, "the server has as many streams as it may: end one of them")
        for stream in streams:
            stream.event()
        streams.pop().close()
        end = time.monotonic() + LIMIT_S
        while self.stream_status() != 200:
            self.assertLess(time.monotonic(), end)
        for stream in streams:
            stream.event()
            stream.close()
        self.assertEqual(daemon.stop()[0], 0)

    def test_one_user_cannot_have_all_streams(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        daemon = self.start("--streams", 6)
        self.folder.chmod(0o755)
        users = [zeusd_world.OtherUser(daemon, uid) for uid in (12345, 12346)]
        for user in users:
            self.addCleanup(user.close)
        self.assertEqual([users[0].ask("GET", "/gpu/stream_power").status for _ in range(5)], [200] * 3 + [503] * 2)
        self.assertEqual([users[1].ask("GET", "/gpu/stream_power").status for _ in range(4)], [200] * 3 + [503])
        users[0].kill()
        self.machine.until(lambda: self.stream_status() == 200)

    def stream_status(self):
        stream = Stream(self.address, "/gpu/stream_power?gpu_ids=0")
        stream.close()
        return stream.status

    def test_a_client_that_does_not_read_a_stream_costs_nothing(self):
        daemon = self.start()
        lazy = [Stream(self.address, "/gpu/stream_power") for _ in range(20)]
        eager = Stream(self.address, "/gpu/stream_power")
        memory = self.memory_of(daemon)
        for _ in range(60):
            eager.event()
        self.assertLess(self.memory_of(daemon) - memory, 8 << 20)
        for stream in lazy + [eager]:
            stream.close()

    def memory_of(self, daemon):
        for line in pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    # ---- Drivers that hang

    def begin(self, method, target):
        """Sends a request. Returns its connection."""
        connection = Connection(self.address)
        connection.putrequest(method, target)
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        return connection

    def write_while_a_write_hangs(self, hangs_s):
        """Returns the connection of the write that hangs, or None if it was answered before the
        other writes. Then the call began without the fault, or the machine was busy for too long."""
        self.faults.write_text(f"slow_set={1000 * hangs_s}")
        hung = self.begin("POST", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=150000&block=true")
        time.sleep(hangs_s / 10)
        self.faults.unlink()
        self.post("/gpu/set_power_limit?gpu_ids=1,2&power_limit_mw=140000&block=true")
        self.get("/gpu/get_power_limit")
        for limit in range(100):  # they queue behind the call that hangs and are answered
            self.post(f"/gpu/set_power_limit?gpu_ids=0&power_limit_mw={160000 + limit}&block=false")
        if not select.select([hung.sock], [], [], 0)[0]:
            return hung
        hung.close()
        return None

    def test_a_write_that_hangs_holds_up_no_other_gpu(self):
        daemon = self.start("--no-restore", faults_file=self.faults)
        hangs_s = 5
        while (hung := self.write_while_a_write_hangs(hangs_s)) is None:
            hangs_s *= 2
            self.assertLess(hangs_s, 4 * LIMIT_S, "every write waits for the one that hangs")
            daemon.stop()
            daemon.start()
        self.assertEqual(hung.getresponse().status, 200)
        hung.close()
        self.machine.until(lambda: self.machine.states()[0][2] == 160099)
        self.assertEqual(daemon.stop()[1]["replaced"], 99)

    def test_a_read_that_hangs_holds_up_no_other_gpu(self):
        self.start("--close-ms", 1000, faults_file=self.faults)
        self.faults.write_text("slow_get=1e7@1")  # hours: whoever waits for the call gets no answer
        hung = self.begin("GET", "/gpu/get_power?gpu_ids=1")
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            for answer in pool.map(lambda i: self.ask("GET", f"/gpu/get_power?gpu_ids={2 * (i % 2)}"), range(200)):
                self.assertEqual(answer.status, 200)
        self.post("/gpu/set_power_limit?gpu_ids=0&power_limit_mw=140000&block=true")
        hung.close()

    def ask_again_while_a_read_hangs(self):
        """Returns the answer to a fast read on a GPU whose driver has not answered before. The
        earlier call hangs, unless a busy machine began it after the end of the fault."""
        self.faults.write_text("slow_get=1e7")
        hung = self.begin("GET", "/gpu/get_power?gpu_ids=0,1,2")
        answer = hung.getresponse()
        self.assertEqual((answer.status, answer.getheader("content-type")), (500, JSON))
        self.assertEqual(sorted(json.loads(answer.read())["errors"]), ["0", "1", "2"])
        self.faults.unlink()
        answer = hung.ask("GET", "/gpu/get_power_limit?gpu_ids=1")
        hung.close()
        return answer

    def test_a_driver_that_does_not_answer_becomes_an_error(self):
        self.start("--close-ms", 1000, "--timeout-ms", 300, faults_file=self.faults)
        for _ in range(20):
            answer = self.ask_again_while_a_read_hangs()
            if answer.status != 200:
                break
        self.assertEqual(answer.json, {"errors": {"1": "the driver has not answered for 0.3 s"}})

    def test_clients_that_leave_while_a_driver_hangs(self):
        daemon = self.start("--close-ms", 1000, faults_file=self.faults)
        self.faults.write_text("slow_get=1e7@0")
        hung = self.begin("GET", "/gpu/get_power?gpu_ids=0")
        memory = self.memory_of(daemon)
        for _ in range(2000):
            connection = Connection(self.address)
            connection.putrequest("GET", "/gpu/get_power")
            connection.endheaders()
            connection.close()
        self.get("/time")
        self.assertLess(self.memory_of(daemon) - memory, 8 << 20)
        hung.close()

    def test_connections_are_limited(self):
        if os.geteuid() != 0:
            self.skipTest("another user than root may have only half of the connections")
        self.start("--connections", 10)
        idle = [socket.socket(socket.AF_UNIX) for _ in range(50)]
        for one in idle:
            one.connect(str(self.address))
        for _ in range(20):
            self.get("/time")
        for one in idle:
            one.close()

    def test_nonsense_is_answered_and_others_are_served(self):
        self.start()
        for bytes_sent in (b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 100, b"GET /" + b"a" * 70000):
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(LIMIT_S)
            one.connect(str(self.address))
            try:
                one.sendall(bytes_sent)
                self.assertTrue(one.recv(100).startswith(b"HTTP/1.1 "))
            except (BrokenPipeError, ConnectionResetError):
                pass
            one.close()
        self.get("/time")


class ManyGpus(Routes):
    gpus = "64xA40"

    def test_64_gpus_at_once(self):
        self.start("--no-restore")
        ids = ",".join(str(i) for i in reversed(range(64)))
        self.post(f"/gpu/set_power_limit?gpu_ids={ids}&power_limit_mw=150000&block=true")
        self.post(f"/gpu/set_gpu_locked_clocks?gpu_ids={ids}&min_clock_mhz=900&max_clock_mhz=900&block=false")
        self.assertEqual({state[2] for state in self.machine.states()}, {150000})
        self.machine.until(lambda: {state[0] for state in self.machine.states()} == {900})
        self.assertEqual(len(self.get("/gpu/get_power")["power_mw"]), 64)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for answer in pool.map(lambda _: self.ask("GET", "/gpu/get_cumulative_energy"), range(100)):
                self.assertEqual(len(answer.json), 64)


for name in dir(Routes):  # the many GPUs have one test of their own
    if name.startswith("test_"):
        setattr(ManyGpus, name, None)
