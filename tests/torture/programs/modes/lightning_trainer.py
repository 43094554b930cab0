"""A tiny LightningModule under Trainer.fit, with automatic and manual optimization."""

import logging
import warnings

import pytorch_lightning as lightning
from tiny import digest, loader, network, sgd

warnings.simplefilter("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Task(lightning.LightningModule):
    def __init__(self, manual):
        super().__init__()
        self.net, self.automatic_optimization = network(), not manual

    def training_step(self, x, number):
        loss = self.net(x).square().mean()
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def configure_optimizers(self):
        return sgd(self)


for manual in (False, True):
    task = Task(manual)
    settings = {
        "enable_progress_bar": False,
        "logger": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
    }
    lightning.Trainer(max_epochs=2, accelerator="cpu", devices=1, **settings).fit(task, loader())
    digest(task)
