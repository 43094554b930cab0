"""A training on rows, texts or arrays, from memory or from files, whose input is as slow as its
arguments say.

rows.py --source tokens --batch 8 --workers 2
"""

import json
import os
import pathlib

import numpy as np
import torch
from torch.utils.data import BatchSampler, Dataset, RandomSampler, Sampler
from training import loader, options, train

WIDTH = 64
PAGE = 4096


class Rows(Dataset):
    """Random numbers in memory; a list of indices gives a whole batch."""

    def __init__(self, given):
        self.given = given
        self.prepare()

    def prepare(self):
        self.rows = torch.randn(4096, WIDTH)

    def __len__(self):
        return self.given.batch * self.given.steps

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.rows[torch.tensor(index) % len(self.rows)]
        return self.rows[index % len(self.rows)]


class Tokens(Rows):
    """As a dataset of Hugging Face gives them."""

    def __getitem__(self, index):
        return {
            "input_ids": torch.arange(WIDTH) + index,
            "attention_mask": torch.ones(WIDTH, dtype=torch.long),
            "labels": index % 2,
        }


class Described(Rows):
    """Each sample with the words, boxes and names that belong to it."""

    def __getitem__(self, index):
        row = self.rows[index % len(self.rows)]
        return row, [
            {"word": f"word {index} {number}", "box": (number, index, number)}
            for number in range(600)
        ]


class Parsed(Rows):
    """Lines of JSON, parsed and put together in Python."""

    def prepare(self):
        dice = np.random.default_rng(0)
        self.lines = [
            json.dumps({f"column {name}": float(dice.random()) for name in range(WIDTH * 8)})
            for _ in range(64)
        ]

    def __getitem__(self, index):
        values = list(json.loads(self.lines[index % len(self.lines)]).values())
        return torch.tensor([sum(values[start::WIDTH]) for start in range(WIDTH)])


class Kept(Parsed):
    """The same, parsed once."""

    def prepare(self):
        super().prepare()
        self.rows = torch.stack(
            [super(Kept, self).__getitem__(number) for number in range(len(self.lines))]
        )

    def __getitem__(self, index):
        return self.rows[index % len(self.rows)]


class Arrays(Rows):
    """Pictures that are decoded already."""

    def prepare(self):
        self.images = np.random.default_rng(0).integers(0, 256, (16, 384, 512, 3), np.uint8)

    def __getitem__(self, index):
        return self.images[index % 16]


class Pieces(Rows):
    """Each sample is 24 small files."""

    def prepare(self):
        self.files = sorted(self.given.folder.iterdir())

    def __getitem__(self, index):
        first = index * 24 % (len(self.files) - 24)
        return torch.from_numpy(
            np.concatenate([np.load(file) for file in self.files[first : first + 24]])[:WIDTH]
        )


class Packed(Rows):
    """The same in one file, opened once."""

    def prepare(self):
        self.file = None

    def __getitem__(self, index):
        if self.file is None:
            self.file = np.load(next(self.given.folder.glob("*.npy")), mmap_mode="r")
        first = index * 24 % (len(self.file) - 24)
        return torch.from_numpy(self.file[first : first + 24].reshape(-1)[:WIDTH].copy())


class Files(Rows):
    """An array of some megabytes for each sample, each read once."""

    def prepare(self):
        self.files = sorted(self.given.folder.iterdir())

    def __getitem__(self, index):
        return torch.from_numpy(np.load(self.files[index % len(self.files)])[:WIDTH].copy())


class Whole(Rows):
    """A row of a file of some megabytes that is read as a whole, or (``--keep``) mapped."""

    def prepare(self):
        self.files = sorted(self.given.folder.iterdir())

    def __getitem__(self, index):
        mode = "r" if self.given.keep else None
        values = np.load(self.files[index % 8], mmap_mode=mode)
        first = index * WIDTH % (len(values) - WIDTH)
        return torch.from_numpy(values[first : first + WIDTH].copy())


class Pages(Rows):
    """Rows all over a large memory map."""

    def prepare(self):
        self.map = None

    def __getitem__(self, index):
        if self.map is None:
            self.map = np.memmap(next(self.given.folder.iterdir()), np.uint8, "r")
            self.map._mmap.madvise(1)  # MADV_RANDOM
        where = (
            np.random.default_rng(index).integers(0, len(self.map) // PAGE, self.given.pages) * PAGE
        )
        return torch.from_numpy(self.map[where][:WIDTH].copy()).float()


class Owned(Pages):
    """Rows all over a large array of this process's own memory."""

    def prepare(self):
        self.map = np.random.default_rng(0).integers(0, 256, self.given.mb << 20, np.uint8)


class Lists(Rows):
    """Labels in a list of Python numbers: to look at one writes its reference count, and so copies
    its page in each worker.
    """

    def prepare(self):
        self.labels = [float(number) for number in range(self.given.mb << 20 >> 5)]

    def __getitem__(self, index):
        where = np.random.default_rng(index).integers(0, len(self.labels), self.given.pages)
        return torch.tensor([self.labels[number] for number in where.tolist()])[:WIDTH]


class Columns(Lists):
    """The same in an array."""

    def prepare(self):
        self.labels = np.arange(self.given.mb << 20 >> 5, dtype=np.float64)

    def __getitem__(self, index):
        where = np.random.default_rng(index).integers(0, len(self.labels), self.given.pages)
        return torch.from_numpy(self.labels[where][:WIDTH]).float()


class Scratch(Rows):
    """Work in a large new array for each sample, or (``--keep``) always in the same one."""

    def prepare(self):
        super().prepare()
        self.scratch = torch.zeros(self.given.mb << 20, dtype=torch.uint8)

    def __getitem__(self, index):
        scratch = (
            self.scratch if self.given.keep else torch.empty(self.given.mb << 20, dtype=torch.uint8)
        )
        scratch[::PAGE] = 1
        return self.rows[index % len(self.rows)] + scratch[0]


class Threaded(Rows):
    """A convolution for each sample, by as many of torch's threads as each worker has."""

    def prepare(self):
        self.images, self.kernel = torch.randn(16, 3, 160, 160), torch.randn(16, 3, 7, 7)

    def __getitem__(self, index):
        return torch.nn.functional.conv2d(self.images[index % 16][None], self.kernel).mean(
            (0, 1, 2)
        )[:WIDTH]


KINDS = (
    Rows,
    Tokens,
    Described,
    Parsed,
    Kept,
    Arrays,
    Pieces,
    Packed,
    Files,
    Whole,
    Pages,
    Owned,
    Lists,
    Columns,
    Scratch,
    Threaded,
)
SOURCES = {kind.__name__.lower(): kind for kind in KINDS}


def beside(samples):
    """Tensors, and what goes with them as it is."""
    return torch.stack([row for row, _ in samples]), [words for _, words in samples]


def tensors_only(samples):
    return torch.stack([row for row, _ in samples])


def apart(samples):
    """Tensors of its own for each sample, as boxes and labels are."""
    return torch.stack(samples), [
        {name: row[8 * name :][:8].clone() for name in range(7)} for row in samples
    ]


def tokens(samples):
    """Not torch's own, as any tokenizer's."""
    batch = {
        name: torch.stack([sample[name] for sample in samples])
        for name in ("input_ids", "attention_mask")
    }
    return batch | {"labels": torch.tensor([sample["labels"] for sample in samples])}


def stacked(samples):
    return torch.from_numpy(np.stack(samples))


def arrays(samples):
    return np.stack(samples)


COLLATES = {
    "default": None,
    "beside": beside,
    "apart": apart,
    "tensors": tensors_only,
    "tokens": tokens,
    "stacked": stacked,
    "arrays": arrays,
}


def inputs(batch):
    """One row of numbers for each sample."""
    if isinstance(batch, dict):
        return torch.nn.functional.normalize(batch["input_ids"].float())
    rows = torch.as_tensor(batch[0] if isinstance(batch, (list, tuple)) else batch)
    rows = rows[:, ::64, ::64] if rows.dim() == 4 else rows
    rows = torch.nn.functional.normalize(rows.flatten(1)[:, :WIDTH].float())
    return torch.nn.functional.pad(rows, (0, WIDTH - rows.shape[1]))


class ByLength(Sampler):
    """Batches of samples of similar length.

    Sorts a pool of lengths again for each batch, or (``stored``) once before the training.
    """

    def __init__(self, data, given, stored):
        dice = np.random.default_rng(0)
        self.lengths = dice.integers(10, 1000, 20_000).tolist()
        self.size, self.batches, self.stored = given.batch, given.steps, stored
        self.order = self.sort()

    def sort(self):
        return sorted(range(len(self.lengths)), key=self.lengths.__getitem__)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for number in range(self.batches):
            first = 997 * number % (len(self.lengths) - self.size)
            yield (self.order if self.stored else self.sort())[first : first + self.size]


class Threads:
    """For worker_init_fn: as many of torch's threads."""

    def __init__(self, count):
        self.count = count

    def __call__(self, worker):
        torch.set_num_threads(self.count)


def arguments():
    parser = options(__doc__)
    parser.add_argument("--source", choices=SOURCES, default="rows")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--collate", choices=COLLATES, default="default")
    parser.add_argument(
        "--by-length",
        choices=("sorted", "stored"),
        help="batches of similar length: sorted for each, or once",
    )
    parser.add_argument("--whole", action="store_true", help="make each batch in one call")
    parser.add_argument("--pages", type=int, default=300, help="that a sample looks at")
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument(
        "--hidden", type=int, default=0, help="neurons of two layers that all CPUs compute"
    )
    return parser.parse_args()


def model(hidden):
    """One layer, or (``hidden``) a perceptron that takes most of the step."""
    if not hidden:
        return torch.nn.Linear(WIDTH, 10)
    layers = [torch.nn.Linear(WIDTH, hidden), torch.nn.Linear(hidden, hidden)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(hidden, 10))


if __name__ == "__main__":
    given = arguments()
    torch.set_num_threads((os.cpu_count() or 1) if given.hidden else 1)
    data, how = SOURCES[given.source](given), {"collate_fn": COLLATES[given.collate]}
    if given.whole:
        how = {
            "batch_size": None,
            "sampler": BatchSampler(RandomSampler(data), given.batch, drop_last=False),
        }
    if given.by_length:
        how |= {
            "batch_size": 1,
            "batch_sampler": ByLength(data, given, given.by_length == "stored"),
        }
    if given.threads > 1:
        how |= {"worker_init_fn": Threads(given.threads)}
    train(model(given.hidden), loader(data, given, **how), given, inputs)
