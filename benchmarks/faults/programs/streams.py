"""A training on a stream: its own, of webdataset, or of Hugging Face.

streams.py --source texts --split nothing --workers 2
"""

import itertools
import json
import pathlib
import random

import datasets
import torch
import webdataset
from torch.utils.data import IterableDataset, get_worker_info
from training import loader, options, train

WIDTH = 64


def line(number):
    """A sample as it is stored."""
    return json.dumps(
        {"number": number, "values": [(number * k) % 9973 for k in range(WIDTH * WIDTH // 16)]}
    )


def parsed(text, times=1):
    for _ in range(times):
        values = json.loads(text)["values"]
    return torch.tensor([float(sum(values[start::WIDTH])) for start in range(WIDTH)])


class Texts(IterableDataset):
    """Lines of JSON, split between workers by samples, by files of lines, or not at all."""

    def __init__(self, given):
        self.split, self.shards, self.buffer = given.split, given.shards, given.buffer
        self.first, self.times = given.first, given.times
        self.lines = [line(number) for number in range(given.batch * given.steps)]

    def __iter__(self):
        worker = get_worker_info()
        first, apart = (worker.id, worker.num_workers) if worker else (0, 1)
        if self.split == "samples":
            texts = itertools.islice(self.lines, first, None, apart)
        elif self.split == "files":
            texts = itertools.chain.from_iterable(self.files()[first::apart])
        else:
            texts = self.lines
        return shuffled((parsed(text, self.times) for text in texts), self.buffer)

    def files(self):
        """Files of as many lines each, or a large one and others."""
        count = len(self.lines)
        large = int(count * (self.first or 1 / self.shards))
        length = max(-(-(count - large) // max(self.shards - 1, 1)), 1)
        rest = [self.lines[start : start + length] for start in range(large, count, length)]
        return [self.lines[:large], *rest]


def shuffled(samples, size):
    """Samples by chance out of a buffer, which is filled first."""
    dice, samples = random.Random(0), iter(samples)
    buffer = list(itertools.islice(samples, size))
    for sample in samples:
        if not buffer:
            yield sample
            continue
        place = dice.randrange(len(buffer))
        yield buffer[place]
        buffer[place] = sample
    yield from buffer


def of_texts(given):
    return Texts(given)


def of_tars(given):
    """Files of JSON in tar archives, each worker with a shuffle buffer of its own."""
    urls = sorted(str(path) for path in given.folder.iterdir())
    split = [webdataset.split_by_worker] if given.split != "nothing" else []
    return webdataset.DataPipeline(
        webdataset.SimpleShardList(urls),
        *split,
        webdataset.tarfile_to_samples(),
        webdataset.map(lambda sample: parsed(sample["json"])),
        webdataset.shuffle(given.buffer, initial=given.buffer),
    )


def of_table(given):
    """A table of Hugging Face as a stream of so many shards."""
    texts = [line(number) for number in range(given.batch * given.steps)]
    table = datasets.Dataset.from_dict({"text": texts})
    rows = table.to_iterable_dataset(num_shards=given.shards)
    return rows.map(lambda row: {"x": parsed(row["text"])}, remove_columns=["text"])


SOURCES = {"texts": of_texts, "tars": of_tars, "table": of_table}


def inputs(batch):
    return torch.nn.functional.normalize(batch["x"] if isinstance(batch, dict) else batch)


def arguments():
    parser = options(__doc__)
    parser.add_argument("--source", choices=SOURCES, default="texts")
    parser.add_argument("--split", choices=("samples", "files", "nothing"), default="samples")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--first", type=float, default=0.0, help="share of the first file of lines")
    parser.add_argument("--times", type=int, default=1, help="that each line is parsed")
    parser.add_argument("--buffer", type=int, default=0, help="samples to shuffle among")
    parser.add_argument("--folder", type=pathlib.Path)
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = arguments()
    train(torch.nn.Linear(WIDTH, 10), loader(SOURCES[given.source](given), given), given, inputs)
