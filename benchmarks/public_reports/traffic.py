"""Cars are found in images; each of them comes with tensors of its own for what it shows.

https://github.com/roboflow/rf-detr/pull/1399
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
FIELDS = ("boxes", "labels", "areas", "crowd", "sizes", "numbers", "angles")


class Traffic(Dataset):
    def __init__(self):
        self.images = torch.randn(2000, 3, 16, 16)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        cars = index % 5 + 1
        return self.images[index], {name: torch.full((cars, 4), float(cars)) for name in FIELDS}


def collate(samples):
    images, targets = zip(*samples)
    if not TWIN:
        return torch.stack(images), list(targets)
    counts = torch.tensor([len(target["boxes"]) for target in targets])
    together = {name: torch.cat([target[name] for target in targets]) for name in FIELDS}
    return torch.stack(images), (counts, together)


def boxes(targets):
    if TWIN:
        counts, together = targets
        return torch.stack([part.mean(0) for part in together["boxes"].split(counts.tolist())])
    return torch.stack([target["boxes"].mean(0) for target in targets])


model = nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
end = time.time() + 20
loader = DataLoader(
    Traffic(),
    batch_size=32,
    shuffle=True,
    num_workers=1,
    collate_fn=collate,
    persistent_workers=True,
)
while time.time() < end:
    for images, targets in loader:
        loss = nn.functional.smooth_l1_loss(model(images), boxes(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
