"""Questions about flights are answered from a database.

https://github.com/allenai/allennlp/pull/1838
"""

import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
TABLES = ("airports", "cities", "airlines", "fares")


def filled(path):
    database = sqlite3.connect(path)
    for table in TABLES:
        database.execute(f"create table {table} (number integer primary key, name text)")
        names = [(f"{table} {number}",) for number in range(60)]
        database.executemany(f"insert into {table} (name) values (?)", names)
    database.commit()
    database.close()


class Context:
    """The names that a question may speak of."""

    def __init__(self, path):
        database = sqlite3.connect(path)
        self.names = {}
        for table in TABLES:
            rows = database.execute(f"select number, name from {table} order by name")
            self.names.update({name: number for number, name in rows})
        database.close()


class Questions(Dataset):
    def __init__(self, path):
        self.path, self.context = path, None

    def __len__(self):
        return 3200

    def __getitem__(self, index):
        if not TWIN or self.context is None:
            self.context = Context(self.path)
        number = self.context.names[f"cities {index % 60}"]
        return torch.full((48,), float(number)), number % 9


path = Path(tempfile.mkdtemp()) / "flights.db"
filled(path)
model = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
model.append(nn.Linear(256, 9))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Questions(path), batch_size=16, num_workers=1, persistent_workers=True)
end, steps = time.time() + 14, 0
while time.time() < end:
    for questions, kinds in loader:
        loss = nn.functional.cross_entropy(model(questions), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if time.time() > end:
            break
print("loss", loss.item(), "steps", steps)
