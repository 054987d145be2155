# SPDX-License-Identifier: Apache-2.0
"""The dashboard's pages over HTTP: their content and their protection. Needs no browser."""
import gzip
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))
from server import SOURCE, ServerTest  # noqa: E402

WEB = SOURCE / "web"
FILES = sorted(file for file in WEB.iterdir() if file.is_file())  # web/report/ is for report.html


class Pages(ServerTest):
    def test_every_file_is_served_as_it_is(self):
        server = self.start()
        for file in FILES:
            path = "/" if file.name == "index.html" else f"/dashboard/{file.name}"
            plain = self.expect(server.get(path), 200)
            self.assertEqual(plain.body, file.read_bytes(), path)
            packed = self.expect(server.get(path, **{"Accept-Encoding": "br, gzip"}), 200)
            self.assertEqual(packed.headers["content-encoding"], "gzip")
            self.assertEqual(gzip.decompress(packed.body), file.read_bytes(), path)
        self.expect(server.get("/dashboard/report.js"), 404)

    def test_the_page_asks_for_what_there_is_and_for_nothing_elsewhere(self):
        names = {f"/dashboard/{file.name}" for file in FILES} - {"/dashboard/index.html"}
        asked = set(re.findall(r'(?:src|href)="(/dashboard/[^"]*)"', (WEB / "index.html").read_text()))
        self.assertEqual(asked, names)
        for file in FILES + list((WEB / "report").iterdir()):
            strangers = set(re.findall(r"https?://[^\s\"'`)]*", file.read_text()))
            self.assertEqual(strangers - {"http://www.w3.org/2000/svg"}, set(), file.name)

    def test_every_state_has_a_sign_that_every_font_has(self):
        # The symbols of WGL4, which text fonts contain. No emoji and no rare technical signs.
        common = set("○●◊≡►◄▲▼■□▪▫▬◘◙◦×–—…•†‡¤÷≈≠≤≥∞√∂∆∏∑∙♀♂♠♣♥♦♪♫☼")
        names = re.search(r"names\[\] = \{(.*?)\};", (SOURCE / "src/server/engine/job.c").read_text(), re.DOTALL)
        states = set(re.findall(r'"(\w+)"', names.group(1)))
        self.assertIn("ended", states)
        table = re.search(r"SIGNS = \{(.*?)\}", (WEB / "state.js").read_text(), re.DOTALL).group(1)
        signs = dict(re.findall(r'(\w+): "(.)"', table))
        self.assertEqual(set(signs), states | {"quiet"})
        self.assertEqual(len(set(signs.values())), len(signs), signs)
        self.assertEqual(set(signs.values()) - common, set())

    def test_what_a_browser_has_is_not_sent_again(self):
        server = self.start()
        first = server.get("/dashboard/main.js")
        again = self.expect(server.get("/dashboard/main.js", **{"If-None-Match": first.headers["etag"]}), 304)
        self.assertEqual(again.body, b"")
        self.assertEqual(again.headers["etag"], first.headers["etag"])
        self.expect(server.get("/dashboard/main.js", **{"If-None-Match": '"another"'}), 200)

    def test_pages_may_load_nothing_from_elsewhere_and_not_be_framed(self):
        headers = self.start().get("/").headers
        self.assertIn("default-src 'none'", headers["content-security-policy"])
        self.assertIn("frame-ancestors 'none'", headers["content-security-policy"])
        self.assertNotIn("unsafe", headers["content-security-policy"])
        self.assertEqual(headers["x-content-type-options"], "nosniff")

    def test_pages_need_no_token_and_data_does(self):
        (self.path / "token").write_text("secret\n")
        os.chmod(self.path / "token", 0o600)
        server = self.start("--token-file", self.path / "token")
        self.expect(server.get("/"), 200)
        self.expect(server.get("/dashboard/main.js"), 200)
        self.expect(server.get("/jobs"), 401)
        self.expect(server.post("/", {}), 401)
        self.expect(server.get("/dashboard/none.js"), 401)

    def test_there_are_no_other_pages(self):
        server = self.start()
        self.expect(server.get("/dashboard/none.js"), 404)
        self.expect(server.get("/dashboard/../etc/passwd"), 404)
        self.expect(server.post("/", {}), 404)
