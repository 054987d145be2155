# SPDX-License-Identifier: Apache-2.0
"""`harpe fleet` as a client: the request that each action makes, what people and programs get, and
errors. A small server records the requests and answers as the test says. The real server is in
tests/server."""
import time

from program import ProgramTest, environment
from fixtures import FakeServer

FLEET = {
    "at": 1764100000.5, "revision": 17, "state": "within",
    "power": {"measured_w": 41000, "unmeasured": 2, "planned_w": 40500, "counted_w": 43000, "limit_w": None},
    "weighted_slowdown": 2.3, "lower_bound": 0.0021, "objective": 0.0023,
    "budgets": [{"group": None, "watts": 60000, "margin": 0.02, "overhead": 1.25,
                 "now_watts": 45000, "limit_w": 36000, "power_w": 35500, "measured_w": 35400,
                 "counted_w": 35900, "least_w": 20000, "missing_w": 0, "price_per_kw": 0.1},
                {"group": "row1", "watts": 1000, "margin": 0, "overhead": 1, "now_watts": 1000,
                 "limit_w": 1000, "power_w": 2000, "measured_w": None, "counted_w": 2000,
                 "least_w": 1800, "missing_w": 800, "price_per_kw": 0}],
    "groups": [{"name": "row1", "parent": None}, {"name": "rack\u202e", "parent": "row1"}],
    "jobs": [{"job_id": "a" * 90, "name": "llama\x1b[2J", "group": "row1", "kind": "pipeline",
              "weight": 1, "max_slowdown": None, "priority": 0, "plan": 3, "plans": 40,
              "time_s": 1.1, "fastest_time_s": 1.0, "slowdown": 1.1, "planned_w": 4200,
              "measured_w": None, "counted_w": 4200, "gain_per_kw": 0.012, "state": "silent",
              "reason": "no answer for 60 s", "answered_at": None}],
    "events": [{"id": 4, "group": None, "from": 1764100000, "duration_s": 3600, "watts": None,
                "share": 0.25, "notice_s": 0, "ramp_s": 300, "note": "", "state": "active",
                "promised_w": 33000, "missing_w": 500, "reached_at": None, "highest_w": 34000,
                "breaches": 2}],
    "price": {"energy_per_kwh": 0.21, "carbon_g_per_kwh": 300, "carbon_per_kg": 0.1,
              "value_per_s": 0.01, "currency": "EUR", "series": 96,
              "set_at": 1764100000},
    "energy": {"since": 1764000000, "used_kwh": 123.4, "saved_kwh": 5.6,
               "saved_kwh_uncertainty": 0.7, "cost": None, "cost_saved": None,
               "carbon_kg": None, "carbon_kg_saved": None}}

# Words of the command, and the request that must come of them: method, target, body.
REQUESTS = (
    ("status", "GET", "/fleet", None),
    ("budget", "GET", "/fleet", None),
    ("budget set 60000", "PUT", "/fleet/budget", {"watts": 60000}),
    ("budget set 6e4 --group row1 --margin 0.02 --overhead 1.25", "PUT", "/fleet/budget",
     {"watts": 60000, "group": "row1", "margin": 0.02, "overhead": 1.25}),
    ("budget remove", "DELETE", "/fleet/budget", None),
    ("budget remove --group a/b&c", "DELETE", "/fleet/budget?group=a%2Fb%26c", None),
    ("group", "GET", "/fleet", None),
    ("group set rack/1 --parent room", "PUT", "/fleet/groups/rack%2F1", {"parent": "room"}),
    ("group set room", "PUT", "/fleet/groups/room", {}),
    ("group remove room", "DELETE", "/fleet/groups/room", None),
    ("job", "GET", "/fleet", None),
    ("job set my+job --weight 2 --max-slowdown 1.3 --priority -1 --group row1", "PUT",
     "/fleet/jobs/my%2Bjob", {"weight": 2, "max_slowdown": 1.3, "priority": -1, "group": "row1"}),
    ("load set cooling 800 --group row1", "PUT", "/fleet/loads/cooling",
     {"watts": 800, "group": "row1"}),
    ("load remove cooling", "DELETE", "/fleet/loads/cooling", None),
    ("member remove node7-42", "DELETE", "/fleet/members/node7-42", None),
    ("event", "GET", "/fleet", None),
    ("event add --share 0.25 --for 3600 --from 1764100000 --notice 600 --ramp 300 --note x"
     " --exceed-slowdown", "POST", "/fleet/events",
     {"share": 0.25, "duration_s": 3600, "from": 1764100000, "notice_s": 600, "ramp_s": 300,
      "note": "x", "may_exceed_slowdown": True}),
    ("event add --watts 100 --for 60 --group row1", "POST", "/fleet/events",
     {"watts": 100, "duration_s": 60, "group": "row1"}),
    ("event cancel 4", "DELETE", "/fleet/events/4", None),
    ("prices", "GET", "/fleet", None),
    ("prices set p.csv --from 1764100000 --currency EUR --carbon-price 0.1 --time-value 2", "PUT", "/fleet/prices",
     {"currency": "EUR", "carbon_per_kg": 0.1, "value_per_s": 2,
      "series": [{"at": 1764100000, "energy_per_kwh": 0.2, "carbon_g_per_kwh": 300},
                 {"at": 1764103600, "energy_per_kwh": 0.1, "carbon_g_per_kwh": 200}]}),
    ("prices remove", "DELETE", "/fleet/prices", None),
    ("audit", "GET", "/fleet/audit", None),
    ("audit --limit 5", "GET", "/fleet/audit?limit=5", None),
)

WRONG = (
    ("budget set", "WATTS"), ("budget set x", "WATTS"), ("budget set 1e13", "WATTS"),
    ("budget set 5 6", "what is '6'"), ("budget drop", "set"), ("budget set 5 --weight 2", "--weight"),
    ("status now", "what is 'now'"), ("job set", "ID"), ("job set x", "--group|--weight"),
    ("load", "set or remove"), ("event add --for 5", "--watts"),
    ("event add --watts 5", "--for"), ("event add --watts 5 --share 0.1 --for 5", "only one"),
    ("event add --share 1.5 --for 5", "--share"), ("event add --watts 5 --for 5 --from x", "--from"),
    ("budget set 5 --group=", "--group has no name"), ("budget remove --group=", "--group has no name"),
    ("prices set no.csv", "no.csv"), ("audit --limit x", "--limit"),
)


class Fleet(ProgramTest):
    def setUp(self):
        super().setUp()
        self.server = FakeServer()
        self.addCleanup(self.server.close)
        self.env = environment(HARPE_SERVER=self.server.url, HARPE_TOKEN="secret", LC_ALL="C")
        (self.path / "p.csv").write_text("time_s,price_per_kwh,carbon_g_per_kwh\n"
                                         "0,0.2,300\n3600,0.1,200\n")

    def fleet(self, words, answer=(200, None), code=0):
        self.server.requests.clear()
        self.server.answer = answer
        result = self.run_harpe("fleet", *words.split(), env=self.env)
        self.assertEqual(result.code, code, result)
        return result

    def answer_for(self, target, method):
        return (FLEET if target == "/fleet" else [] if "audit" in target
                else {"id": 4, "promised_w": 100, "missing_w": 0} if method == "POST" else None)

    def test_each_action_makes_its_request(self):
        for words, method, target, body in REQUESTS:
            with self.subTest(words=words):
                before = time.time()
                self.fleet(words, (200, self.answer_for(target, method)))
                (got_method, got_target, got_body, headers), = self.server.requests
                if method == "POST" and "from" not in body:
                    got_body.pop("from", None)
                self.assertEqual((got_method, got_target, got_body), (method, target, body))
                self.assertEqual(headers["Authorization"], "Bearer secret")
        self.fleet("event add --watts 5 --for 9 --from +100", (200, {"id": 1, "promised_w": 1,
                                                                     "missing_w": 0}))
        start = self.server.requests[0][2]["from"]
        self.assertGreaterEqual(start, int(before) + 100)
        self.assertLessEqual(start, time.time() + 100)

    def test_wrong_words_make_no_request(self):
        for words, message in WRONG:
            with self.subTest(words=words):
                self.server.requests.clear()
                result = self.run_harpe("fleet", *words.split(), env=self.env)
                self.assertIn(result.code, (1, 2), result)
                self.assertRegex(result.err, message)
                self.assertEqual(self.server.requests, [])
                self.assertEqual(result.err.strip().count("\n"), 0, result)

    def test_json_is_the_answer_of_the_server(self):
        for words in ("status", "budget", "job", "event", "prices", "group"):
            self.assertEqual(self.fleet(words + " --json", (200, FLEET)).json(), FLEET)
        self.assertEqual(self.fleet("audit --json", (200, [{"who": "a"}])).json(), [{"who": "a"}])
        self.assertEqual(self.fleet("budget set 5 --json").json(), None)

    def test_texts_of_others_do_not_reach_the_terminal_as_json(self):
        hostile = {"groups": [{"name": "a\x9b2J\x9d0;t\u202e\u2066\u200f\ufeff\U000e0041 caf\u00e9", "parent": None}]}
        for words, answer in (("group", hostile), ("audit", [hostile]), ("status", "\x9b2J\u202e")):
            ran = self.fleet(words + " --json", (200, answer))
            bad = [hex(ord(c)) for c in ran.out if 0x7f <= ord(c) < 0xa0 or c in "\u202e\u2066\u200f\ufeff\U000e0041"]
            self.assertEqual(bad, [], words)
            self.assertEqual(ran.json(), answer)

    def test_tables(self):
        out = self.fleet("status", (200, FLEET)).out
        for words in ("state within at 2025-11-25 19:46:40 UTC", "41.00 kW measured, 2 jobs not measured yet, 40.50 kW planned", "limit -",
                      "weighted slowdown 2.3, cost rate 0.0023 EUR per s, lower bound 0.0021", "123.4 kWh", "5.6 kWh +- 0.7 kWh (against one clock: not measured)",
                      "whole fleet", "45.00 kW", "row1", "too small", "800.0 W are missing", "llama [2J",
                      "silent", "3/40", "4200 W", "1.100", "no answer for 60 s", "25.0 %",
                      "active", "33.00 kW", "500.0 W are missing", "not reached, then 34.00 kW at most, exceeded 2 times",
                      "    " + "a" * 90 + "\n"):
            self.assertIn(words, out)
        unpriced = FLEET | {"price": None, "lower_bound": 2.1, "objective": 2.3}
        self.assertIn("weighted slowdown 2.3, lower bound 2.1\n", self.fleet("status", (200, unpriced)).out)
        # Without a value of time, the split does not weigh it, and prices value the power.
        unweighed = unpriced | {"price": FLEET["price"] | {"value_per_s": None, "cost_per_h": 7.25}}
        shown = self.fleet("status", (200, unweighed)).out
        self.assertIn("weighted slowdown 2.3, lower bound 2.1\nthe measured power costs 7.25 EUR per h\n", shown)
        self.assertIn("no value of time: prices change no split", self.fleet("prices", (200, unweighed)).out)
        unnamed = FLEET | {"price": FLEET["price"] | {"currency": None}}
        self.assertIn("cost rate 0.0023 per s, lower bound 0.0021\n", self.fleet("status", (200, unnamed)).out)
        costs = {"currency": "EUR", "cost": 206.1, "cost_saved": 23.6, "cost_saved_uncertainty": 3.1}
        priced = self.fleet("status", (200, FLEET | {"energy": FLEET["energy"] | costs, "price": None})).out
        self.assertIn("\ncost 206.1 EUR, saved 23.6 EUR +- 3.1 EUR\n", priced)
        costs["currency"] = None
        priced = self.fleet("status", (200, FLEET | {"energy": FLEET["energy"] | costs})).out
        self.assertIn("\ncost 206.1, saved 23.6 +- 3.1\n", priced)
        self.assertNotIn("\x1b", out)
        self.assertNotIn("\u202e", self.fleet("group", (200, FLEET)).out)
        budgets = self.fleet("budget", (200, FLEET)).out
        self.assertRegex(budgets, r"margin +overhead")
        self.assertRegex(budgets, r"whole fleet +45\.00 kW +0\.02 +1\.25 ")
        prices = self.fleet("prices", (200, FLEET)).out
        self.assertIn("0.21 EUR per kWh", prices)
        self.assertIn("no prices", self.fleet("prices", (200, FLEET | {"price": None})).out)
        for price, words in (({"currency": ""}, "energy 0.21 per kWh, carbon dioxide 300 g per kWh and 0.1 per kg,"
                                                " time 0.01 per s\n"), ({"series": 1}, "\n1 price, set at ")):
            self.assertIn(words, self.fleet("prices", (200, FLEET | {"price": FLEET["price"] | price})).out)
        for event, words in (
                ({"reached_at": 1764100002, "highest_w": 32000, "breaches": 0},
                 "reached at 2025-11-25 19:46:42, then 32.00 kW at most\n"),
                ({"breaches": 1}, "not reached, then 34.00 kW at most, exceeded 1 time\n"),
                ({"highest_w": None, "breaches": 0}, "33.00 kW\n"),
                ({"highest_w": None, "breaches": 0, "state": "over", "reached_at": 1764100002},
                 "reached at 2025-11-25 19:46:42, not judged: shorter than the time to follow\n")):
            one = FLEET["events"][0] | {"missing_w": 0} | event
            self.assertTrue(self.fleet("event", (200, FLEET | {"events": [one]})).out.endswith(words), words)
        self.assertEqual(self.fleet("budget remove").out, "")
        self.assertEqual(self.fleet("budget set 5", (200, {"missing_w": 0})).out, "")
        self.assertIn("the budget is set, but it is 325.0 W too small for what the jobs draw at least", self.fleet("budget set 5", (200, {"missing_w": 325}), 3).out)
        for line in out.splitlines():
            self.assertLessEqual(len(line), 120, line)

    def test_odd_answers_print_dashes(self):
        for answer in ({}, [], None, 5, {"jobs": [5, None, {}], "budgets": [[], {}],
                                         "events": [{"id": "x", "from": 1e300}], "power": []}):
            for words in ("status", "budget", "group", "job", "event", "prices", "audit"):
                self.fleet(words, (200, answer))

    def test_the_audit_log(self):
        out = self.fleet("audit", (200, [
            {"at": 1764100000.2, "who": "anna", "role": "operator", "address": "127.0.0.1",
             "what": "PUT /fleet/budget", "request": '{"watts":5}', "status": 403,
             "detail": "no\x1b"}])).out
        for words in ("2025-11-25 19:46:40", "anna", "operator", "403", "PUT /fleet/budget",
                      '{"watts":5}'):
            self.assertIn(words, out)
        self.assertNotIn("\x1b", out)

    def test_an_event_that_cannot_be_met_exits_with_3(self):
        answer = {"id": 7, "promised_w": 40000, "missing_w": 1500}
        out = self.fleet("event add --watts 9000 --for 60", (200, answer), 3).out
        self.assertEqual(out, "event 7: cannot be met: 40.00 kW promised, 1500 W are missing\n")
        answer["missing_w"] = 0
        out = self.fleet("event add --watts 9000 --for 60", (200, answer)).out
        self.assertEqual(out, "event 7: 40.00 kW promised\n")

    def test_errors_are_one_line(self):
        for status, answer, words in (
                (401, {"detail": "a valid bearer token is needed"}, "does not accept the token"),
                (403, {"detail": "this needs the role operator"}, "this needs the role operator"),
                (404, {"detail": "there is no group x: make it first"}, "there is no group x"),
                (409, {"detail": "the group is used"}, "the group is used"),
                (422, {"detail": [{"loc": ["body"], "msg": "bad"}]}, "422"),
                (503, {"detail": "no server leads"}, "no server leads")):
            result = self.fleet("group remove x", (status, answer), 1)
            self.assertIn(words, result.err)
            self.assertEqual(result.err.count("\n"), 1, result)
            self.assertEqual(result.out, "")
        for words in ("event add --share 0.1 --for 60 --group x", "budget remove --group x", "group remove x"):
            detail = "there is no group x: a job of it must register"
            result = self.fleet(words, (404, {"detail": detail}), 1)
            self.assertIn(detail, result.err)
            self.assertNotIn("address", result.err)
            for answer in ({"detail": "Not Found"}, {"error": "no such page"}, None):
                result = self.fleet(words, (404, answer), 1)
                self.assertIn("not as harpe serve does: is the address right?", result.err)
        self.server.close()
        result = self.run_harpe("fleet", "status", env=self.env)
        self.assertEqual(result.code, 1, result)
        self.assertEqual(result.err.count("\n"), 1, result)
