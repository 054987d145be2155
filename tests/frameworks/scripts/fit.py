# SPDX-License-Identifier: Apache-2.0
"""A script as the documentation of Lightning shows them. It names nothing of Harpe.

    python3 fit.py FOLDER
"""
import sys

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


loader = torch.utils.data.DataLoader(torch.rand(32, 8), batch_size=2)
trainer = lightning.Trainer(accelerator="cpu", max_epochs=1, log_every_n_steps=4,
                            logger=CSVLogger(sys.argv[1], name="log", version=0),
                            enable_progress_bar=False, enable_model_summary=False,
                            enable_checkpointing=False)
trainer.fit(Model(), loader)
