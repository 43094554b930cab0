"""A LightningModule with a validation loop, trained by Lightning's Trainer, which keeps its defaults for logging and checkpoints."""

import pytorch_lightning as pl
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = functional.cross_entropy(self(x), y)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("accuracy", (self(x).argmax(1) == y).float().mean())

    def on_train_epoch_end(self):
        print("epoch", self.current_epoch, f"{self.trainer.callback_metrics['accuracy']:.6f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def numbers(count):
    x = torch.randn(count, 64)
    return TensorDataset(x, (x[:, :10]).argmax(1))


if __name__ == "__main__":
    pl.seed_everything(1)
    train = DataLoader(numbers(80), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    validation = DataLoader(numbers(24), batch_size=8)
    trainer = pl.Trainer(max_epochs=2, accumulate_grad_batches=2, accelerator="cpu", enable_progress_bar=False, log_every_n_steps=5)
    trainer.fit(Classifier(), train, validation)
    print("updates", trainer.global_step)
