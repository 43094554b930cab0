"""Lightning's Trainer with two devices, by the strategy that is named: ddp starts this script once
more, ddp_spawn spawns both ranks.
"""

import sys

import counted
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader


class Small(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = counted.network()
        self.steps = self.samples = 0

    def training_step(self, batch, index):
        self.samples += len(batch)
        return self.net(batch).square().mean()

    def on_train_batch_end(self, outputs, batch, index):
        self.steps += 1

    def on_train_end(self):
        counted.tell(
            "group",
            self.net,
            self.steps,
            self.samples,
            self.trainer.global_rank,
            self.trainer.world_size,
        )

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy=sys.argv[1], max_epochs=2, **quiet)
    trainer.fit(Small(), DataLoader(counted.Numbers(48), batch_size=4))
