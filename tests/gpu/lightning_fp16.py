"""A LightningModule in 16-bit mixed precision with gradient scaling, two batches per update.

Knows nothing of feedline. Prints JSON.
"""

import hashlib
import json
import os

import pytorch_lightning as pl
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    """Images of random pixels, each the same every time."""

    def __len__(self):
        return 1024

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 64, 64, generator=generator), index % 10


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        layers = []
        for before, after in [(3, 64), (64, 128), (128, 256)]:
            layers += [
                torch.nn.Conv2d(before, after, 3, 2, 1),
                torch.nn.BatchNorm2d(after),
                torch.nn.ReLU(),
            ]
        self.net = torch.nn.Sequential(
            *layers, torch.nn.Flatten(), torch.nn.Linear(256 * 8 * 8, 10)
        )

    def training_step(self, batch, index):
        images, labels = batch
        loss = functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    pl.seed_everything(1)
    on_gpu = torch.cuda.is_available()
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as torch's notes on reproducibility ask
    torch.use_deterministic_algorithms(True)
    loader = DataLoader(Noise(), batch_size=32, shuffle=True, num_workers=2, pin_memory=on_gpu)
    trainer = pl.Trainer(
        max_epochs=2,
        accumulate_grad_batches=2,
        accelerator="gpu" if on_gpu else "cpu",
        devices=1,
        precision="16-mixed" if on_gpu else "bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Classifier()
    trainer.fit(model, loader)
    digest = hashlib.sha256(
        b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    ).hexdigest()
    print(json.dumps({"digest": digest, "updates": trainer.global_step}))


if __name__ == "__main__":
    main()
