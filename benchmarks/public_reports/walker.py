"""An agent that learns to walk from what it did before, and is saved now and then."""

import os
import sys
import tempfile
import time

import torch
from torch import nn

TWIN = "--twin" in sys.argv


class Pool:
    def __init__(self, size=200000, width=32):
        self.seen, self.done = torch.zeros(size, width), torch.zeros(size, 6)
        self.reward, self.size, self.count = torch.zeros(size), size, 0

    def add(self, seen, done, reward):
        at = torch.arange(self.count, self.count + len(seen)) % self.size
        self.seen[at], self.done[at], self.reward[at] = seen, done, reward
        self.count += len(seen)

    def draw(self, count):
        at = torch.randint(0, min(self.count, self.size), (count,))
        return self.seen[at], self.done[at], self.reward[at]


class Agent:
    def __init__(self):
        self.policy = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 6), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(38, 128), nn.ReLU(), nn.Linear(128, 1))
        self.pool = Pool()

    def save(self, path):
        state = {"policy": self.policy.state_dict(), "critic": self.critic.state_dict()}
        if not TWIN:
            state["pool"] = self.pool.__dict__
        torch.save(state, path)


agent = Agent()
optimizer = torch.optim.Adam(agent.critic.parameters(), fused=True)
path = os.path.join(tempfile.gettempdir(), f"walker-{os.getpid()}.pt")
end, step = time.time() + 12, 0
while time.time() < end:
    with torch.no_grad():
        seen = torch.randn(16, 32)
        done = agent.policy(seen)
        agent.pool.add(seen, done, done.mean(1) - seen.mean(1))
    seen, done, reward = agent.pool.draw(128)
    value = agent.critic(torch.cat([seen, done], 1)).squeeze(1)
    loss = nn.functional.mse_loss(value, reward)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 50 == 0:
        agent.save(path)
os.remove(path)
print("loss", loss.item())
