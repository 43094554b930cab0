"""A query goes through the whole table. Twin: it has an index."""

import sqlite3

import torch
from training import TWIN, WIDTH, folder, loader, train

FILE = folder() / "rows.sqlite"
with sqlite3.connect(FILE) as made:
    made.execute("CREATE TABLE rows (name TEXT, value BLOB, label INTEGER)")
    made.executemany(
        "INSERT INTO rows VALUES (?, ?, ?)",
        ((f"row {row}", bytes([row % 7]) * WIDTH, row % 10) for row in range(20_000)),
    )
    if TWIN:
        made.execute("CREATE INDEX names ON rows (name)")


class Rows(torch.utils.data.Dataset):
    database = None

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        if self.database is None:
            self.database = sqlite3.connect(FILE)
        query = "SELECT value, label FROM rows WHERE name = ?"
        value, label = self.database.execute(query, (f"row {index}",)).fetchone()  # SLOW
        return torch.frombuffer(bytearray(value), dtype=torch.uint8), label


train(loader(Rows()))
