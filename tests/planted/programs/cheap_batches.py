"""Batches of 4 kB that take less time to make than to receive from a worker, as a fine-tuning with
Hugging Face's Trainer makes them.

Healthy: by the training's own process.
"""

import sys

import torch
from torch.utils.data import DataLoader, Dataset

HEALTHY = "healthy" in sys.argv
torch.set_num_threads(1)


class Texts(Dataset):
    def __len__(self):
        return 8 * 1500

    def __getitem__(self, index):
        return {
            "input_ids": torch.arange(64) + index,
            "attention_mask": torch.ones(64, dtype=torch.long),
            "labels": index % 2,
        }


def collate(samples):
    """Not torch's own, as any tokenizer's."""
    batch = {
        name: torch.stack([sample[name] for sample in samples])
        for name in ("input_ids", "attention_mask")
    }
    return batch | {"labels": torch.tensor([sample["labels"] for sample in samples])}


if __name__ == "__main__":
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in DataLoader(
        Texts(), batch_size=8, num_workers=0 if HEALTHY else 2, collate_fn=collate
    ):
        optimizer.zero_grad()
        model(batch["input_ids"].float() / 1000).square().mean().backward()
        optimizer.step()
