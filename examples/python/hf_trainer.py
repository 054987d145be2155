#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a Trainer of Hugging Face transformers under the power limit optimizer. A script adds only
the import and the entry in `callbacks`.

    python3 hf_trainer.py [STEPS]
    harpe emulate --gpus 1xV100 --time-scale 100 -- python3 hf_trainer.py      (no GPU needed)
"""
import sys
import tempfile

try:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
except ImportError as error:
    sys.exit(f"hf_trainer.py: {error}; this example needs torch, transformers and accelerate")

from harpe.integrations.transformers import HFGlobalPowerLimitOptimizer
from harpe.monitor import ZeusMonitor


class Sentences(torch.utils.data.Dataset):
    """Generates data, so that nothing is downloaded. The task: is the first word in the lower
    half?"""

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        words = torch.randint(0, 1000, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": int(words[0] < 500)}


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    model = BertForSequenceClassification(BertConfig(
        vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=128))
    optimizer = HFGlobalPowerLimitOptimizer(ZeusMonitor(gpu_indices=[0]))
    with tempfile.TemporaryDirectory() as folder:
        Trainer(model=model, train_dataset=Sentences(), callbacks=[optimizer],
                args=TrainingArguments(output_dir=folder, max_steps=steps, report_to=[],
                                       per_device_train_batch_size=8, save_strategy="no")).train()
    print(f"optimum: {optimizer.optimizer.optimal_power_limit} W")


main()
