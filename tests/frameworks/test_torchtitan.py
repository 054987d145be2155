# SPDX-License-Identifier: Apache-2.0
"""The adapter for torch.distributed.pipelining in torchtitan's own Trainer, on CPUs and emulated
GPUs: jobs of several processes with pipeline and data parallelism (torchtitan_job.py). Needs a
Python with torchtitan; without it the tests are skipped. `make check` does not run them."""
import importlib.util
import json
import os
import unittest
from unittest import mock

import jobs  # appends the directory of the next import to the path

from harpe.integrations import torch_pipelining  # noqa: E402

WHY_NOT = None if importlib.util.find_spec("torchtitan") else "torchtitan is not installed"
LETTERS = "abcdefgh"


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Job(jobs.JobTest):
    def write_files(self):
        """Writes a tokenizer that knows eight words, and a data set that consists of them."""
        tokenizer, data = self.path / "tokenizer", self.path / "data"
        for folder in (tokenizer, data):
            folder.mkdir()
        words = {"[UNK]": 0, **{letter: index + 1 for index, letter in enumerate(LETTERS)}}
        (tokenizer / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
            "decoder": None, "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}}))
        (data / "data.json").write_text(40 * (json.dumps({"text": " ".join(6 * LETTERS)}) + "\n"))
        return {"tokenizer": str(tokenizer), "data": str(data), "folder": str(self.path / "out")}

    def test_the_trainer_runs_two_pipelines_as_they_were_planned(self):
        order = torch_pipelining.order_of("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n"
                                          "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n")
        plan = [[(name, (1200 if name == "forward" else 900) - 15 * stage)
                 for name in order[stage]] for stage in range(2)]
        started = self.start(plan=plan, scheduler="PointSolution3D")
        with mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1",
                                          "HF_DATASETS_CACHE": str(self.path / "cache")}):
            results = self.run_ranks(
                "torchtitan_job.py", 4, url=f"http://127.0.0.1:{started.port}", ranks=2,
                microbatches=4, steps=4, schedule="1F1B",
                clocks=[[mhz for _, mhz in rank] for rank in plan], **self.write_files())
        for result in results:
            stage = result["rank"] // 2  # torchtitan's ranks 0 and 1 are the replicas of a stage
            self.assertEqual(result["first"], [
                "step_begin", *[f"instruction_{what} {name}" for name in order[stage]
                                for what in ("begin", "end")], "step_end"])
            self.assertEqual((result["steps"], result["all_the_same"]), (4, True))
            self.assertEqual((result["misfits"], result["left"]), (0, []))
            if stage == 1:
                self.assertLess(result["losses"][-1], result["losses"][0])
