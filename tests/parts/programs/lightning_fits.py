"""Two fits with Lightning's Trainer in one program, each with its own model, loaders and sanity
check.
"""

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader
from trainings import FEATURES, data


class Classifier(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr, self.net = lr, torch.nn.Linear(FEATURES, 3)

    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("loss", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


if __name__ == "__main__":
    torch.set_num_threads(1)
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    for lr, epochs in ((0.1, 2), (0.2, 1)):
        trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", devices=1, **quiet)
        trainer.fit(
            Classifier(lr),
            DataLoader(data(96), batch_size=8, shuffle=True),
            DataLoader(data(96), batch_size=16),
        )
