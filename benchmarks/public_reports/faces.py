"""A generator of small pictures, and the critic that it has to deceive."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv

generator = nn.Sequential(
    nn.Unflatten(1, (64, 1, 1)),
    nn.ConvTranspose2d(64, 96, 4),
    nn.ReLU(),
    nn.ConvTranspose2d(96, 48, 4, stride=2, padding=1),
    nn.ReLU(),
    nn.ConvTranspose2d(48, 24, 4, stride=2, padding=1),
    nn.ReLU(),
    nn.ConvTranspose2d(24, 3, 4, stride=2, padding=1),
    nn.Tanh(),
)
critic = nn.Sequential(
    nn.Conv2d(3, 16, 4, stride=4), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(16 * 64, 1)
)
of_generator = torch.optim.Adam(generator.parameters(), 2e-4, (0.5, 0.999), fused=True)
of_critic = torch.optim.Adam(critic.parameters(), 2e-4, (0.5, 0.999), fused=True)
faces = TensorDataset(torch.rand(2000, 3, 32, 32) * 2 - 1)


def judge(pictures, real):
    scores = critic(pictures)
    wanted = torch.full_like(scores, float(real))
    return nn.functional.binary_cross_entropy_with_logits(scores, wanted)


end = time.time() + 12
while time.time() < end:
    for (real,) in DataLoader(faces, batch_size=32, shuffle=True):
        fake = generator(torch.randn(len(real), 64))
        seen = fake.detach() if TWIN else fake
        loss = judge(real, True) + judge(seen, False)
        of_critic.zero_grad()
        loss.backward(retain_graph=not TWIN)
        of_critic.step()

        cost = judge(fake, True)
        of_generator.zero_grad()
        cost.backward()
        of_generator.step()
        if time.time() > end:
            break
print("loss", loss.item(), cost.item())
