# SPDX-License-Identifier: Apache-2.0
"""A script as the documentation of Hugging Face transformers shows them: a Trainer, with a tiny
model made from a configuration and generated data. It names nothing of Harpe.

    python3 trainer.py FOLDER
"""
import json
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        words = torch.randint(0, 32, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


def main():
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=1, vocab_size=32, n_positions=8,
                                       bos_token_id=0, eos_token_id=0))
    trainer = Trainer(model=model, train_dataset=Sentences(), args=TrainingArguments(
        sys.argv[1], use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no",
        num_train_epochs=1, logging_steps=10, per_device_train_batch_size=1))
    trainer.train()
    print(json.dumps(trainer.state.log_history))


main()
