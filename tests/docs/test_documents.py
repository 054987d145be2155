#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of the documents, and compares the output with the output in the documents.

A document is one of DOCUMENTS. Its marked blocks run in order, in an empty directory of its own. A
mark is an HTML comment right before the fence, so that readers do not see it:

    <!-- run -->              a ```sh block; every command of it must succeed
    <!-- output -->           a ```text block; its lines appear, in this order, in what the run
                              before it printed (numbers: see NUMBER_RULES)
    <!-- compile: name.c -->  a ```c block; is compiled against libharpe and must run with success
    <!-- file: path -->       a ```c block; a new file of the tree, and
    <!-- row: path -->        a line to add to HARPE_SCHEDULE_KINDS there: see test_new_schedule.py

In manual pages, every block of EXAMPLES that begins with `harpe` is run, each in a directory of its
own with the files that FIXTURES makes. The variables HARPE, HARPE_SOURCE_DIR and HARPE_BINARY_DIR
give the paths of the program, the source and the build.
"""
import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("HARPE_SOURCE_DIR", HERE.parent.parent))
BINARY = pathlib.Path(os.environ.get("HARPE_BINARY_DIR", SOURCE / "build" / "release"))
HARPE = pathlib.Path(os.environ.get("HARPE", BINARY / "harpe")).resolve()
DOCUMENTS = [*sorted(path for path in SOURCE.glob("*.md") if path.name != "CHANGELOG.md"),
             *sorted((SOURCE / "docs").glob("*.md"))]
PAGES = sorted((SOURCE / "docs" / "man").glob("*.scd"))

MARK = re.compile(r"^( *)<!-- (run|output|compile|file|row)(?:: *(\S+))? -->$")
FENCE = re.compile(r"^ *```(\w*)$")

# The permitted difference between a shown and a real number, by the text after the number. All
# other numbers are equal. How long something took, and how much memory, depends on the machine.
TOOK = re.compile(r"\bin [\d.]+ (?:ms|s)\b|\b[\d.]+ MiB\b")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
NUMBER_RULES = {"s": ("relative", 0.002), "J": ("relative", 0.002), "W": ("relative", 0.002),
                "%": ("absolute", 0.02)}


class Block:
    def __init__(self, kind, argument, line, text):
        self.kind, self.argument, self.line, self.text = kind, argument, line, text


def marked_blocks(path):
    """Returns the marked blocks of a Markdown file. A mark without a fence after it is an error."""
    lines = path.read_text(encoding="utf-8").split("\n")
    blocks = []
    for i, line in enumerate(lines):
        mark = MARK.match(line)
        if not mark:
            continue
        if not FENCE.match(lines[i + 1]):
            raise AssertionError(f"{path.name}:{i + 1}: no fence after the mark")
        end = next(k for k in range(i + 2, len(lines)) if FENCE.match(lines[k]))
        indent = len(mark.group(1))
        text = "\n".join(text_line[indent:] for text_line in lines[i + 2:end]) + "\n"
        blocks.append(Block(mark.group(2), mark.group(3), i + 1, text))
    return blocks


def anchors(page):
    """Returns the anchors that code-hosting sites give the headings of a page: lower case, hyphens
    for spaces, no other punctuation."""
    found = set()
    is_code = False
    for line in page.read_text(encoding="utf-8").splitlines():
        is_code ^= bool(FENCE.match(line))
        heading = None if is_code else re.match(r"#+ (.*)", line)
        if heading:
            found.add(re.sub(r"[^\w\- ]", "", heading.group(1).lower()).replace(" ", "-"))
    return found


def numbers_match(shown, real):
    """Returns true if two lines are equal except for white space and numbers, and the numbers are
    close enough."""
    shown, real = (TOOK.sub("in some time", line) for line in (shown, real))
    words = [re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip() for line in (shown, real)]
    if words[0] != words[1]:
        return False
    for a, b in zip(NUMBER.finditer(shown), NUMBER.finditer(real)):
        unit = re.match(r" ?([A-Za-z%]+)?", shown[a.end():]).group(1)
        rule, limit = NUMBER_RULES.get(unit, ("absolute", 0))
        difference = abs(float(a.group()) - float(b.group()))
        if rule == "relative":
            difference /= max(abs(float(b.group())), 1e-9)
        if difference > limit:
            return False
    return True


def first_line_missing(shown, real):
    """Returns the first shown line that does not follow in the real output, or None if all do."""
    rest = iter(real.splitlines())
    for line in shown.splitlines():
        if line.strip() and not any(numbers_match(line, candidate) for candidate in rest):
            return line
    return None


def environment():
    return dict(os.environ, PATH=f"{HARPE.parent}:{os.environ['PATH']}", NO_COLOR="1",
                # Lets compilers and Python find Harpe as if it were installed.
                CPATH=str(SOURCE / "include"), LIBRARY_PATH=str(BINARY), LD_LIBRARY_PATH=str(BINARY),
                PYTHONPATH=str(SOURCE / "python"), HARPE_LIBRARY=str(BINARY / "libharpe.so"),
                PYTHONDONTWRITEBYTECODE="1")


def shell(text, directory):
    """Runs commands. If one of them fails, those in the background end, too: they hold the pipes."""
    text = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + text
    return subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=directory,
                          env=environment(), text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=1800, check=False)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class InEmptyDirectory(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="harpe-docs-")
        self.addCleanup(holder.cleanup)
        self.path = pathlib.Path(holder.name)

    def run_shell(self, where, text):
        done = shell(text, self.path)
        self.assertEqual(done.returncode, 0,
                         f"{where}: exit {done.returncode}\n{text}\n{done.stdout}\n{done.stderr}")
        return done.stdout


class DocumentTest(InEmptyDirectory):
    @staticmethod
    def compiling(name):
        compiler = os.environ.get("CC", "cc")
        return (f"{compiler} -std=gnu17 -Wall -Wextra -Werror "
                f"-I{shlex.quote(str(SOURCE / 'include'))} {name} -o program "
                f"-L{shlex.quote(str(BINARY))} -lharpe")

    def compile_and_run(self, where, name, text):
        (self.path / name).write_text(text, encoding="utf-8")
        self.run_shell(where, f"{self.compiling(name)} && ./program")

    def test_marked_blocks_work(self):
        seen = 0
        holder = self.path
        for document in DOCUMENTS:
            self.path = holder / document.stem
            self.path.mkdir()
            printed = ""
            for block in marked_blocks(document):
                where = f"{document.name}:{block.line}"
                seen += 1
                if block.kind == "run":
                    text = block.text
                    if block.argument:  # a port, which may be taken
                        text = text.replace(block.argument, str(free_port()))
                    printed = self.run_shell(where, text)
                elif block.kind == "output":
                    missing = first_line_missing(block.text, printed)
                    self.assertIsNone(missing,
                                      f"{where}: not in the output:\n{missing}\n\n{printed}")
                elif block.kind == "compile":
                    self.compile_and_run(where, block.argument, block.text)
        self.assertGreater(seen, 5, "the documents have lost their marks")

    def test_programs_of_the_documents_say_what_is_missing(self):
        """Checks that commands in an empty directory end with one line and no signal."""
        seen = 0
        for document in DOCUMENTS:
            for block in marked_blocks(document):
                if block.kind != "compile" or '"profile.csv"' not in block.text:
                    continue
                seen += 1
                where = f"{document.name}:{block.line}"
                (self.path / block.argument).write_text(block.text, encoding="utf-8")
                self.run_shell(where, self.compiling(block.argument))
                done = shell("./program", self.path)
                self.assertEqual(done.returncode, 1, f"{where}: {done}")
                self.assertEqual(done.stdout, "", where)
                self.assertRegex(done.stderr, r"^profile\.csv: [^\n]+\n$", where)
        self.assertGreater(seen, 0)

    def test_links_lead_somewhere(self):
        seen = 0
        for document in DOCUMENTS:
            for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
                if target.startswith("http"):
                    continue
                name, _, anchor = target.partition("#")
                page = document.parent / name if name else document
                self.assertTrue(page.exists(), f"{document.name}: {target} is not there")
                if anchor:
                    seen += 1
                    self.assertIn(anchor, anchors(page), f"{document.name}: {target}")
        self.assertGreater(seen, 10)

    def test_the_index_names_every_page(self):
        index = SOURCE / "docs" / "index.md"
        named = set(re.findall(r"\]\(([\w-]+\.md)\)", index.read_text(encoding="utf-8")))
        self.assertEqual(named, {path.name for path in index.parent.glob("*.md")} - {index.name})
        self.assertIn("(docs/index.md)", (SOURCE / "README.md").read_text(encoding="utf-8"))

    def test_files_that_the_documents_name_exist(self):
        name = re.compile(r"`((?:src|include|tests|docs|scripts|bench|fuzz|examples)/[\w./*-]+)`")
        for document in DOCUMENTS:
            new = {block.argument for block in marked_blocks(document) if block.kind == "file"}
            for target in set(name.findall(document.read_text(encoding="utf-8"))) - new:
                self.assertTrue(list(SOURCE.glob(target.rstrip("/"))),
                                f"{document.name}: {target} is not there")

    def test_comparison_of_outputs_can_fail(self):
        self.assertTrue(numbers_match("  fastest  6.230 s  -0.68 %", "fastest 6.231 s -0.69 %"))
        self.assertTrue(numbers_match("frontier in 11 ms: 9 plans", "frontier in 2.5 s: 9 plans"))
        self.assertFalse(numbers_match("frontier in 11 ms: 97 plans", "frontier in 11 ms: 98 plans"))
        self.assertFalse(numbers_match("plan 96 is the fastest", "plan 97 is the fastest"))
        self.assertFalse(numbers_match("fastest 6.23 s", "fastest 6.83 s"))
        self.assertFalse(numbers_match("gap 0.1 %", "gap 1.2 %"))
        self.assertFalse(numbers_match("fastest 6.23 s", "slowest 6.23 s"))
        self.assertEqual(first_line_missing("a\nb\n", "b\na\n"), "b")
        self.assertIsNone(first_line_missing("a\n\nb\n", "x\na\ny\nb\n"))
        self.assertNotEqual(shell("false; true", self.path).returncode, 0)
        page = self.path / "page.md"
        page.write_text("# A, b: `c`?\n```sh\n# no\n```\n## GET /x_y\n", encoding="utf-8")
        self.assertEqual(anchors(page), {"a-b-c", "get-x_y"})


# ---- Manual pages --------------------------------------------------------------------------------

PROFILE = "harpe synth --stages 8 --quiet --output profile.csv\n"
GRAPH = """echo '{"activities": [{"name": "a", "time": 1}]}' >job.json
"""
TRACES = """for rank in 0 1; do
echo '[{"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 50000}]' >rank$rank.json
done
"""
FLEET = """echo '{"jobs": [{"name": "a", "plans": [{"time": 1, "power": 400}, {"time": 1.1, "power": 300}]}],
"budgets": [{"watts": 400}], "events": [{"from": 61200, "duration": 3600, "share": 0.2}]}' >fleet.json
"""
SMALL_PLANS = "harpe plan -q -i profile.csv -m 8 -p 70 -o {} --plans 5 --no-pictures >made\n"
# Rank 0 owns stages 0 and 3, rank 1 owns stages 1 and 2, and the backward is split, as in `zb-v`.
SCHEDULE_FILE = """harpe synth --stages 4 --split-backward --quiet --force --output profile.csv
cat >zbv.csv <<'END'
0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,0I2,0W2
1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1I1,2I2,1I2,1W1,2W2,1W2
END
"""
# The files that a page's examples find in their directory, by page and by a word of the example.
FIXTURES = [
    ("harpe-fleet.1", "", FLEET),
    ("harpe-graph.1", "", TRACES),
    ("harpe-plan.1", "job.json", GRAPH),
    ("harpe-plan.1", "zbv.csv", SCHEDULE_FILE),
    ("harpe-plan.1", "", PROFILE),
    ("harpe-choose.1", "", PROFILE + SMALL_PLANS.format("plans")),
    ("harpe-evaluate.1", "plans", PROFILE + SMALL_PLANS.format("plans")),
    ("harpe-evaluate.1", "freqs_pipeline_02296.py", PROFILE + SMALL_PLANS.format("other") +
     "cp other/freqs_pipeline_00000.py .\n"
     "cp other/freqs_pipeline_00001.py freqs_pipeline_02296.py\n"),
]


# Pages whose examples need GPUs or a training program. Their commands have tests of their own.
NEED_GPUS = ("harpe-agent.", "harpe-gpus.", "harpe-emulate.", "harpe-monitor.",
             "harpe-power-limit.", "harpe-profile.1", "harpe-run.", "harpe-tune.")


def page_examples(page):
    """Returns the blocks of a manual page's EXAMPLES as a reader sees them."""
    text = page.read_text(encoding="utf-8")
    section = re.search(r"^# EXAMPLES$(.*?)(?=^# [A-Z ]+$|\Z)", text, re.MULTILINE | re.DOTALL)
    if not section:
        return []
    blocks = re.findall(r"^```\n(.*?)^```$", section.group(1), re.MULTILINE | re.DOTALL)
    return [block.replace("\\\\", "\\") for block in blocks]


class ManualPageTest(InEmptyDirectory):
    def fixture(self, page, example):
        for name, word, commands in FIXTURES:
            if page.name.startswith(name + ".") and word in example:
                return commands
        return ""

    def test_examples_work(self):
        seen = 0
        for page in PAGES:
            for number, example in enumerate(page_examples(page)):
                if not example.startswith("harpe ") or page.name.startswith(NEED_GPUS):
                    continue
                seen += 1
                where = f"{page.name}, example {number + 1}"
                self.path = self.path / f"{page.stem}-{number}"
                self.path.mkdir()
                self.run_shell(where + " (its fixture)", self.fixture(page, example))
                self.run_shell(where, example)
                self.path = self.path.parent
        self.assertGreater(seen, 5, "the manual pages have lost their examples")

    def test_every_command_has_a_page_and_a_place_in_the_first_one(self):
        shown = self.run_shell("harpe", "harpe --help").partition("\nOptions:\n")[0]
        groups = [(title, re.findall(r"^  ([a-z-]+) ", rows, re.MULTILINE)) for title, rows
                  in re.findall(r"^([A-Z][^\n:]*):\n((?:  .*\n)+)", shown, re.MULTILINE)]
        self.assertEqual([title for title, _ in groups],
                         ["Plan", "Measure and tune", "Run a job", "Run a cluster", "Try without a GPU"])
        commands = [command for _, names in groups for command in names]
        self.assertGreater(len(commands), 5, shown)
        first = (SOURCE / "docs" / "man" / "harpe.1.scd").read_text(encoding="utf-8")
        listed = re.search(r"^# COMMANDS$(.*?)^# ", first, re.MULTILINE | re.DOTALL).group(1)
        also = re.search(r"^# SEE ALSO$(.*)", first, re.MULTILINE | re.DOTALL).group(1)
        parts = re.split(r"^## (.*)$", listed, flags=re.MULTILINE)[1:]
        self.assertEqual([(title, re.findall(r"^\*([a-z-]+)\*$", text, re.MULTILINE))
                          for title, text in zip(parts[::2], parts[1::2])], groups)
        reference = (SOURCE / "docs" / "reference.md").read_text(encoding="utf-8")
        for title, names in groups:
            row = re.search(rf"^\| {title} \| (.*) \|$", reference, re.MULTILINE).group(1)
            self.assertEqual(re.findall(r"\[harpe-([a-z-]+)\(1\)\]", row), names)
        for command in commands:
            self.assertIn(f"*harpe-{command}*(1)", listed)
            self.assertIn(f"*harpe-{command}*(1)", also)
            self.assertIn(f"harpe-{command}.1.scd", [page.name for page in PAGES])

    def test_rules_of_the_node_agent_are_described(self):
        """Compares the rules that the source reads with the manual page and with docs/agent.md."""
        source = (SOURCE / "src" / "agent" / "policy.c").read_text(encoding="utf-8")
        rules = set(re.findall(r'strcmp\(name, "([a-z_]+)"\) == 0\)\s+return read_', source))
        self.assertGreater(len(rules), 10)
        page = (SOURCE / "docs" / "man" / "harpe-agent.1.scd").read_text(encoding="utf-8")
        section = re.search(r"^# RULES$(.*?)^# ", page, re.MULTILINE | re.DOTALL).group(1)
        terms = re.findall(r"^(\*[a-z_*, ]+\*.*)$", section, re.MULTILINE)
        self.assertEqual(set(re.findall(r"\*([a-z_]+)\*", "\n".join(terms))), rules)
        guide = (SOURCE / "docs" / "agent.md").read_text(encoding="utf-8")
        table = re.findall(r"^\| (`.*?) \|", guide, re.MULTILINE)
        self.assertEqual(rules - set(re.findall(r"`([a-z_]+)`", "\n".join(table))), set())

    def test_example_configuration_shows_every_setting_with_its_default(self):
        """packaging/serve.conf.example equals the commented output of `harpe serve
        --print-settings`."""
        example = SOURCE / "packaging" / "serve.conf.example"
        lines = example.read_text(encoding="utf-8").splitlines()
        settings = [line.removeprefix("#") for line in lines if line.startswith("#")
                    and not line.startswith("# ")]
        printed = self.run_shell(example.name, "STATE_DIRECTORY=/var/lib/harpe "
                                               "harpe serve --print-settings").splitlines()
        self.assertEqual(settings, [line for line in printed if not line.startswith("#")])
        for comment in (line for line in printed if line.startswith("#")):
            self.assertIn(comment.removesuffix(" (default)"), lines)
        (self.path / "serve.conf").write_text("\n".join(settings) + "\n", encoding="utf-8")
        self.run_shell(example.name, "harpe serve --config serve.conf --print-settings\n"
                                     f"harpe serve --config {shlex.quote(str(example))} "
                                     "--print-settings")

    def test_example_of_a_plan_file_is_one(self):
        page = SOURCE / "docs" / "man" / "harpe-plan.5.scd"
        (self.path / "plan.py").write_text(page_examples(page)[0], encoding="utf-8")
        self.run_shell(page.name, "harpe synth --stages 2 --quiet --output profile.csv\n"
                                  "harpe evaluate -i profile.csv -m 2 -p 70 --plan plan.py")

    def test_example_of_a_graph_is_one(self):
        page = SOURCE / "docs" / "man" / "harpe-graph.5.scd"
        (self.path / "job.json").write_text(page_examples(page)[0], encoding="utf-8")
        self.run_shell(page.name, "harpe plan --graph job.json --output-dir plans")

    def test_example_of_a_profile_is_one(self):
        page = SOURCE / "docs" / "man" / "harpe-profile.5.scd"
        (self.path / "profile.csv").write_text(page_examples(page)[0], encoding="utf-8")
        self.run_shell(page.name, "harpe plan -i profile.csv -m 4 -p 70 --bound-only")


if __name__ == "__main__":
    if not HARPE.exists():
        sys.exit(f"{HARPE} is not there: run make build")
    unittest.main()
