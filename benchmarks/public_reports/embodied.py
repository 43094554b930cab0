"""Robots of several kinds learn together; each of them has joints of its own.

https://github.com/NeuracoreAI/neuracore/pull/889
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
ROBOTS = {f"robot {i}": {f"joint {i * j % 41}": j for j in range(20)} for i in range(30)}


class Moves(Dataset):
    def __init__(self):
        self.moves = torch.randn(3200, 40)
        self.robots = [f"robot {i % 30}" for i in range(3200)]
        self.places = self.described()

    def __len__(self):
        return len(self.moves)

    def described(self):
        """Where each joint of each robot goes, among the joints of all of them."""
        names = sorted({name for joints in ROBOTS.values() for name in joints})
        places = {name: place for place, name in enumerate(names)}
        return {
            robot: [places[name] for name, _ in sorted(joints.items())]
            for robot, joints in ROBOTS.items()
        }

    def __getitem__(self, index):
        places = self.places if TWIN else self.described()
        padded = torch.zeros(41)
        mine = places[self.robots[index]]
        padded[mine] = self.moves[index, : len(mine)]
        return padded, self.moves[index, :7]


model = nn.Sequential(nn.Linear(41, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
model.append(nn.Linear(256, 7))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Moves(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
end, steps = time.time() + 14, 0
while time.time() < end:
    for joints, moves in loader:
        loss = nn.functional.mse_loss(model(joints), moves)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if time.time() > end:
            break
print("loss", loss.item(), "steps", steps)
