# SPDX-License-Identifier: Apache-2.0
"""The statements of docs/python.md and docs/migration.md about the package: names exist, arguments
are accepted, files exist, links have targets."""
import importlib
import inspect
import re
import unittest

import world

from harpe.optimizer.pipeline_frequency import PipelineFrequencyOptimizer

DOCUMENTS = [world.SOURCE / "docs" / name for name in ("python.md", "migration.md")]


def resolve(name):
    """Returns the object with a dotted name. A part that is no module is an attribute."""
    parts = name.split(".")
    thing = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], 2):
        if not hasattr(thing, part):
            importlib.import_module(".".join(parts[:depth]))
        thing = getattr(thing, part)
    return thing


class Documents(unittest.TestCase):
    def test_names_exist(self):
        seen = set()
        for document in DOCUMENTS:
            text = document.read_text(encoding="utf-8")
            for name in re.findall(r"\bharpe(?:\.[A-Za-z_]\w*)+", text):
                # The first is the name of a logger, not of the package. The other needs
                # transformers.
                if name in ("harpe.power_limit", "harpe.pipeline_frequency") or "HF" in name \
                        or name.endswith("integrations.transformers"):
                    continue
                with self.subTest(name, document=document.name):
                    resolve(name)
                    seen.add(name)
            imports = re.findall(r"^from (harpe[\w.]*) import (.*)$", text, re.MULTILINE)
            for module, names in imports:
                for name in re.split(", ", names):
                    if not module.endswith("transformers"):
                        resolve(f"{module}.{name.split(' as ')[0]}")
        self.assertGreater(len(seen), 15)

    def test_arguments_and_files_exist(self):
        parameters = inspect.signature(PipelineFrequencyOptimizer).parameters
        text = DOCUMENTS[0].read_text(encoding="utf-8")
        call = re.search(r"optimizer = PipelineFrequencyOptimizer\((.*?)\)\n", text, re.DOTALL)[1]
        for name in re.findall(r"(\w+)=", call) + ["job_key", "mark", "stream", "job_metadata"]:
            self.assertIn(name, parameters)
        for document in DOCUMENTS:
            text = document.read_text(encoding="utf-8")
            for path in re.findall(r"\]\(([\w.-]+\.md)\)", text):
                self.assertTrue((document.parent / path).is_file(), path)
            for path in re.findall(r"`((?:tests|examples)/[\w/.-]+)`", text):
                self.assertTrue((world.SOURCE / path).exists(), path)
