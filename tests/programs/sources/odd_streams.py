"""Streams that break off, end at once, or yield what is no tensor, one after another."""

import sys
import warnings

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Stream(IterableDataset):
    """Samples of a function of their number, split between workers."""

    def __init__(self, make, count=24):
        self.make, self.count = make, count

    def __iter__(self):
        worker = get_worker_info()
        first, apart = (worker.id, worker.num_workers) if worker else (0, 1)
        return (self.make(number) for number in range(first, self.count, apart))


class LongerThanItSays(Stream):
    def __len__(self):
        return 10


class ShorterThanItSays(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return [torch.ones(4)][index // 10]


class OneWithoutEqual(torch.Tensor):
    def __eq__(self, other):
        raise RuntimeError("not comparable")

    __hash__ = torch.Tensor.__hash__


def breaks_off(number):
    if number == 13:
        raise ValueError("a file is damaged")
    return torch.full((4,), number + 1.0)


def ragged(number):
    return [float(number)] * (1 + number % 3)


STREAMS = {
    "ends at once": (Stream(torch.ones, 0), None),
    "None": (Stream(lambda number: None), None),
    "None, as it is": (Stream(lambda number: None), list),
    "dicts": (Stream(lambda number: {"x": torch.randn(4), "name": f"{number}"}), None),
    "strings": (Stream(str), None),
    "ragged": (Stream(ragged), None),
    "ragged, as it is": (Stream(ragged), list),
    "shared": (Stream(lambda number: torch.full((4,), 1.0).share_memory_()), None),
    "subclass": (Stream(lambda number: torch.ones(4).as_subclass(OneWithoutEqual)), list),
    "longer": (LongerThanItSays(lambda number: torch.ones(4)), None),
    "shorter": (ShorterThanItSays(), None),
    "breaks off": (Stream(breaks_off), None),
}
#: torch takes up to 10 s for each of these to end its workers.
WITHOUT_WORKERS = ("None", "ragged", "shorter")


def numbers(batch):
    """What the model gets of a batch: the numbers in it."""
    if isinstance(batch, dict):
        batch = batch["x"]
    if isinstance(batch, torch.Tensor):
        return batch
    return torch.tensor([[float(len(str(part)))] * 4 for part in batch])


def train(model, optimizer, batches):
    """Train until the end or an error; return what was seen."""
    seen, error = [], None
    try:
        for batch in batches:
            model(numbers(batch)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(type(batch).__name__)
    except Exception as raised:
        error = f"{type(raised).__name__}: {str(raised).strip().splitlines()[-1]}"
    return seen, error, model.weight.sum().item()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    workers = int(sys.argv[1])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-5)
    for name in [one for one in STREAMS if not workers or one not in WITHOUT_WORKERS]:
        stream, collate = STREAMS[name]
        batches = DataLoader(stream, 4, num_workers=workers, collate_fn=collate)
        print(name, *train(model, optimizer, batches))
