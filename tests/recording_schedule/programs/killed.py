"""2,000 short steps, and a kill in the middle of a rest."""

import os
import signal
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(2005):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
Path(sys.argv[1]).write_text("2005")
os.kill(os.getpid(), signal.SIGKILL)
