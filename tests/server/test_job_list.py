#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sorted and searched lists of jobs, their sums, and jobs whose processes were killed. Uses a real
`harpe serve` over sockets."""
import urllib.parse

from server import *
from online_job import Online


class Queries(ServerTest):
    def query(self, server, **query):
        return self.expect(server.get("/jobs?" + urllib.parse.urlencode(query)), 200).json

    def names(self, answer):
        return [job["job_metadata"].split()[0] for job in answer["jobs"]]

    def start_three(self):
        server = self.start()
        for metadata, ranks in (("one user=zoe node=node10 slurm_job=9 fleet_group=red", 2),
                                ("two user=adam node=node2 slurm_job=10 nodes=3", 4),
                                ("three", 1)):
            register_many(server, 1, pp=ranks, job_metadata=metadata)
        return server

    def test_rows_say_who_runs_a_job_and_where(self):
        rows = {job["job_metadata"].split()[0]: job
                for job in self.query(self.start_three(), sort="start")["jobs"]}
        shown = {name: [row[key] for key in ("user", "slurm_job", "node", "nodes", "group")]
                 for name, row in rows.items()}
        self.assertEqual(shown, {"one": ["zoe", "9", "node10", None, "red"],
                                 "two": ["adam", "10", "node2", "3", None],
                                 "three": [None] * 5})
        # The words by which people find a job do not make its id longer.
        self.assertTrue(rows["two"]["job_id"].endswith("+two"), rows["two"]["job_id"])
        self.assertEqual([row["power_cap"] for row in rows.values()], [None] * 3)

    def test_a_list_is_sorted_by_any_value_and_those_without_it_come_last(self):
        server = self.start_three()
        for sort, names in (("start", ["one", "two", "three"]), ("-start", ["three", "two", "one"]),
                            ("user", ["two", "one", "three"]), ("-user", ["one", "two", "three"]),
                            ("node", ["two", "one", "three"]), ("slurm_job", ["one", "two", "three"]),
                            ("-gpus", ["two", "one", "three"]), ("group", ["one", "three", "two"]),
                            ("name", ["one", "three", "two"]), ("-energy", ["three", "two", "one"])):
            self.assertEqual(self.names(self.query(server, sort=sort)), names, sort)
        for bad in ("", "-", "size", "start "):
            refused = self.expect(server.get("/jobs?" + urllib.parse.urlencode({"sort": bad})), 422)
            self.assertEqual(refused.json["detail"][0]["loc"], ["query", "sort"], bad)

    def test_every_word_of_a_search_must_occur(self):
        server = self.start_three()
        for search, names in (("ZOE", ["one"]), ("node", ["two", "one"]), ("node adam", ["two"]),
                              ("red registering", ["one"]), ("adam red", []), ("%\n\\", []),
                              ("", ["three", "two", "one"]), (" \t", ["three", "two", "one"])):
            answer = self.query(server, search=search)
            self.assertEqual(self.names(answer), names, search)
            self.assertEqual((answer["count"], answer["all"]), (len(names), 3))

    def test_pages_of_a_query_join_to_the_whole_list(self):
        server = self.start()
        ids = register_many(server, 250)
        pages = [self.query(server, sort="-start", limit=200, offset=first) for first in (0, 200)]
        self.assertEqual([job["job_id"] for page in pages for job in page["jobs"]], ids[::-1])
        self.assertEqual({page["count"] for page in pages}, {250})
        self.assertEqual(len(self.query(server, sort="start", limit=1000)["jobs"]), 200)
        self.assertEqual(self.query(server, sort="start", offset=250)["jobs"], [])
        self.assertEqual(self.query(server, sort="start", limit=0)["count"], 250)


class Sums(Online):
    def start_online(self):
        return super().start_online(num_microbatches=4, learning="explore")

    def start_planned(self):
        server = self.start_online()
        job = self.pipeline(server, 2, 4, noise=0.002)
        job.run_until_planned()
        job.run_round()
        job.frontier()  # it comes after the scheduler has taken the round's results
        return server, job

    def test_sums_are_those_of_the_rows_and_of_the_final_reports(self):
        server, job = self.start_planned()
        self.expect(server.post(f"/power_cap/{job.id}", {"watts": 5000}), 200)
        answer = self.expect(server.get("/jobs?sort=energy"), 200).json
        row, sums = answer["jobs"][0], answer["sums"]
        saved = row["figures"]["saved"]
        self.assertEqual(row["power_cap"], 5000)
        self.assertEqual((sums["jobs"], sums["compared"]), (1, 1))
        for name, value in (("energy", row["figures"]["energy"]), ("power", row["figures"]["power"]),
                            ("saved", saved["energy"]),
                            ("saved_uncertainty", saved["energy_uncertainty"]),
                            ("energy_baseline", saved["energy_baseline"])):
            self.assertAlmostEqual(sums[name] / value, 1, delta=1e-9)
        none = self.expect(server.get("/jobs?search=nothing"), 200).json["sums"]
        self.assertEqual(set(none.values()), {0})
        self.expect(server.call("DELETE", f"/jobs/{job.id}"), 200)
        final = self.expect(server.get("/finished?limit=0"), 200).json
        self.assertEqual((final["jobs"], final["count"]), ([], 1))
        self.assertEqual(final["sums"], sums | {"power": 0})

    def test_an_ended_job_keeps_its_savings_over_a_restart(self):
        server, job = self.start_planned()
        self.end(server, job)
        before = server.get("/jobs?sort=start").json["jobs"][0]
        server.kill()
        again = self.start_online()
        row = lambda: again.get("/jobs?sort=start").json["jobs"][0]
        self.wait_until(lambda: row()["figures"]["saved"], "the scheduler is made again")
        self.assertEqual((row()["state"], row()["figures"]["saved"]),
                         ("ended", before["figures"]["saved"]))


class Contact(ServerTest):
    """A rank of Harpe's client keeps its connection while it trains."""

    def start_job(self, headers, ranks=2):
        server = self.start(plan=plan_for(ranks))
        job = register(server, pp=ranks)
        connections = [server.connect() for _ in range(ranks)]
        for rank, connection in enumerate(connections):
            self.addCleanup(connection.close)
            connection.send("GET", f"/schedule/{job.id}?rank={rank}&round=0", headers=headers)
        self.assertEqual([one.receive().status for one in connections], [200] * ranks)
        return server, job, connections

    def close(self, server, *connections):
        """Closes connections, and waits until the server has noticed."""
        before = server.metric("harpe_http_connections")
        for connection in connections:
            connection.close()
        self.wait_until(lambda: server.metric("harpe_http_connections") <= before - len(connections),
                        "the connections end")

    def row(self, server):
        return server.get("/jobs?sort=start").json["jobs"][0]

    def test_a_job_whose_connections_have_all_ended_is_out_of_contact(self):
        server, job, connections = self.start_job({"Harpe-Connection": "kept"})
        self.close(server, connections[0])
        self.assertIsNone(self.row(server)["no_contact_since"])  # the other rank lives
        self.close(server, connections[1])
        row = self.row(server)
        self.assertEqual(row["state"], "running")
        self.assertLessEqual(abs(row["no_contact_since"] - row["last_seen"]), LIMIT_S)
        self.assertEqual(len(server.get("/jobs?search=no+contact").json["jobs"]), 1)
        self.expect(server.post(f"/result/{job.id}?round=0", result_of(0)), 200)
        self.assertIsNone(self.row(server)["no_contact_since"])

    def test_an_ended_job_is_not_out_of_contact(self):
        server, job, connections = self.start_job({"Harpe-Connection": "kept"}, ranks=1)
        self.expect(server.post(f"/end/{job.id}", {"rank": 0}), 200)
        self.close(server, connections[0])
        self.expect(server.post(f"/register_rank/{job.id}", job.rank(0)), 200)
        self.assertIsNone(self.row(server)["no_contact_since"])

    def test_published_clients_and_proxies_close_connections_without_meaning(self):
        for proxy in (None, {"X-Forwarded-For": "10.0.0.7"}, {"Via": "1.1 proxy"}):
            server, _, connections = self.start_job(proxy and {"Harpe-Connection": "kept"} | proxy)
            self.close(server, *connections)
            self.assertIsNone(self.row(server)["no_contact_since"], proxy)
            server.kill()


if __name__ == "__main__":
    unittest.main()
