"""A small language model whose batches a function of its own cuts out of a text, as nanoGPT does.
Healthy: all of them before the loop.

in_step.py --steps 100 [--before]
"""

import numpy as np
import torch
from training import Timers, options


def get_batch(text, given, dice):
    """Windows of the text, as characters that are numbered one by one."""
    starts = dice.integers(0, len(text) - given.length - 1, given.batch)
    numbers = [
        [ord(character) % 96 for character in text[start : start + given.length + 1]]
        for start in starts
    ]
    rows = torch.stack([torch.tensor(row) for row in numbers])
    return rows[:, :-1], rows[:, 1:]


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = options(__doc__)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--before", action="store_true")
    given = parser.parse_args()
    text, dice = "the quick brown fox jumps over the lazy dog. " * 20_000, np.random.default_rng(0)
    model = torch.nn.Sequential(torch.nn.Embedding(96, 16), torch.nn.Linear(16, 96))
    optimizer, timers = torch.optim.SGD(model.parameters(), 0.01), Timers()
    made = [get_batch(text, given, dice) for _ in range(32 if given.before else 0)]
    for step in timers.over(range(given.steps)):
        inputs, targets = made[step % 32] if made else get_batch(text, given, dice)
        loss = torch.nn.functional.cross_entropy(
            model(inputs[:, ::8]).flatten(0, 1), targets[:, ::8].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    timers.write(given.batch)
