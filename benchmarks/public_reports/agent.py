"""Q-learning with a replay memory."""

import random
import sys
import time
from collections import deque

import numpy as np
import torch
from torch import nn

TWIN = "--twin" in sys.argv
SIZE = 1_000_000


class ReplayMemory:
    def __init__(self, size):
        self.memory = [None] * size if TWIN else deque(maxlen=size)
        self.size, self.at, self.count = size, 0, 0

    def append(self, transition):
        if TWIN:
            self.memory[self.at] = transition
            self.at, self.count = (self.at + 1) % self.size, min(self.count + 1, self.size)
        else:
            self.memory.append(transition)

    def sample(self, number):
        if TWIN:
            chosen = [self.memory[i] for i in np.random.randint(0, self.count, number)]
        else:
            chosen = random.sample(self.memory, number)
        states, actions, rewards = zip(*chosen)
        return torch.tensor(np.stack(states)), torch.tensor(actions), torch.tensor(rewards)


memory = ReplayMemory(SIZE)
state = np.zeros(16, dtype=np.float32)
for _ in range(SIZE):
    memory.append((state, random.randrange(4), 1.0))
network = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 4))
optimizer = torch.optim.Adam(network.parameters())
end = time.time() + 12
while time.time() < end:
    memory.append((np.random.randn(16).astype(np.float32), random.randrange(4), random.random()))
    states, actions, rewards = memory.sample(64)
    values = network(states).gather(1, actions[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(values, rewards)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
