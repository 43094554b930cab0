"""Streams of ten libraries, each healthy, split wrongly, or starved (stream_training.py).

A source is a function of the case and of a folder that returns the batches of a pass. Each sample
takes its time, in which no CPU is used, so that other programs hardly matter, and has its number.
"""

import itertools
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SAMPLES, BATCH, WORKERS = 480, 8, 2
HEALTHY, SAME, STARVED = CASES = "healthy", "same", "starved"
#: Seconds of a sample: two workers make a batch within a step, and one does not.
_SHORT_S, _LONG_S = 0.001, 0.005


def rank_and_ranks() -> tuple[int, int]:
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Make:
    """Makes a sample of its number."""

    def __init__(self, case: str) -> None:
        self.seconds = _LONG_S if case == STARVED else _SHORT_S

    def __call__(self, number: Any) -> dict[str, Any]:
        time.sleep(self.seconds)
        number = int(number["number"] if isinstance(number, dict) else number)
        return {"x": np.full(4, number, np.float32), "number": number}


class Numbers(IterableDataset):
    """Numbers of samples in files, which are split between workers, or not."""

    def __init__(self, case: str) -> None:
        self.make, self.whole = Make(case), case == SAME
        files = 1 if case == STARVED else 4
        self.files = [range(SAMPLES)[first::files] for first in range(files)]

    def __iter__(self):
        worker = None if self.whole else get_worker_info()
        first, apart = (worker.id, worker.num_workers) if worker else (0, 1)
        return map(self.make, itertools.chain.from_iterable(self.files[first::apart]))


class Whole(IterableDataset):
    """All rows of a data set that has an order, in each worker that asks: the mistake."""

    def __init__(self, rows: Any, make: Any) -> None:
        self.rows, self.make = rows, make

    def __iter__(self):
        return (self.make(self.rows[index]) for index in range(len(self.rows)))


class Rows:
    """A map-style data set around another."""

    def __init__(self, rows: Any, make: Any) -> None:
        self.rows, self.make = rows, make

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.make(self.rows[index])


def of_torch(case: str, folder: Path) -> Iterable[Any]:
    return DataLoader(Numbers(case), BATCH, num_workers=WORKERS)


def of_stateful(case: str, folder: Path) -> Iterable[Any]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(Numbers(case), BATCH, num_workers=WORKERS)


def write_webdataset(folder: Path) -> None:
    import webdataset

    for count in (1, 4):
        for first in range(count):
            with webdataset.TarWriter(str(folder / f"{count}-{first}.tar")) as tar:
                for number in range(first, SAMPLES, count):
                    tar.write({"__key__": f"{number:04}", "cls": number})


def of_webdataset(case: str, folder: Path) -> Iterable[Any]:
    import webdataset

    make, split = Make(case), [] if case == SAME else [webdataset.split_by_worker]
    urls = sorted(str(path) for path in folder.glob(f"{1 if case == STARVED else 4}-*.tar"))
    stream = webdataset.DataPipeline(
        webdataset.SimpleShardList(urls),
        *split,
        webdataset.tarfile_to_samples(),
        webdataset.shuffle(50),
        webdataset.decode(),
        webdataset.to_tuple("cls"),
        webdataset.map(lambda row: make(row[0])),
    )
    return DataLoader(stream, BATCH, num_workers=WORKERS)


def _table() -> Any:
    import datasets

    return datasets.Dataset.from_dict({"number": list(range(SAMPLES))})


def of_datasets(case: str, folder: Path) -> Iterable[Any]:
    if case == SAME:
        return DataLoader(Whole(_table(), Make(case)), BATCH, num_workers=WORKERS)
    stream = _table().to_iterable_dataset(num_shards=1 if case == STARVED else 4)
    return DataLoader(stream.map(Make(case)).with_format("torch"), BATCH, num_workers=WORKERS)


def of_datasets_rows(case: str, folder: Path) -> Iterable[Any]:
    """A table by its indices, which is split by the ranks' samplers."""
    rank, ranks = rank_and_ranks()
    rows = Rows(_table(), Make(case))
    sampler = None
    if ranks > 1 and case != SAME:
        sampler = torch.utils.data.DistributedSampler(rows, ranks, rank)
    workers = 1 if case == STARVED else WORKERS
    return DataLoader(rows, BATCH, sampler=sampler, num_workers=workers)


def write_litdata(folder: Path) -> None:
    import litdata

    inputs = list(range(SAMPLES))
    litdata.optimize(
        _row, inputs, str(folder), chunk_size=SAMPLES // 8, num_workers=1, verbose=False
    )


def _row(number: int) -> dict[str, int]:
    return {"number": number}


def of_litdata(case: str, folder: Path) -> Iterable[Any]:
    import litdata

    if case == SAME:
        rows = litdata.StreamingDataset(str(folder))
        return DataLoader(Whole(rows, Make(case)), BATCH, num_workers=WORKERS)
    stream = litdata.StreamingDataset(str(folder), transform=Make(case))
    return litdata.StreamingDataLoader(
        stream, batch_size=BATCH, num_workers=1 if case == STARVED else WORKERS
    )


def write_streaming(folder: Path) -> None:
    import streaming

    with streaming.MDSWriter(out=str(folder), columns={"number": "int"}, size_limit=512) as out:
        for number in range(SAMPLES):
            out.write({"number": number})


def of_streaming(case: str, folder: Path) -> Iterable[Any]:
    import streaming

    class Made(streaming.StreamingDataset):
        make = Make(case)

        def __getitem__(self, index):
            return self.make(super().__getitem__(index))

    stream: Any = Made(local=str(folder), batch_size=BATCH)
    if case == SAME:
        stream = Whole(streaming.StreamingDataset(local=str(folder), batch_size=BATCH), Make(case))
    workers = 1 if case == STARVED else WORKERS
    return streaming.StreamingDataLoader(stream, batch_size=BATCH, num_workers=workers)


def of_nodes(case: str, folder: Path) -> Iterable[Any]:
    from torchdata import nodes

    rank, ranks = (0, 1) if case == SAME else rank_and_ranks()
    made = nodes.ParallelMapper(
        nodes.IterableWrapper(range(SAMPLES)[rank::ranks]),
        Make(case),
        num_workers=1 if case == STARVED else WORKERS,
        method="thread",
    )
    batches = nodes.Mapper(nodes.Batcher(made, BATCH), torch.utils.data.default_collate)
    return nodes.Loader(nodes.Prefetcher(batches, 4))


def of_torchrl(case: str, folder: Path) -> Iterable[Any]:
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement

    rank, ranks = (0, 1) if case == SAME else rank_and_ranks()
    numbers = torch.arange(SAMPLES)[rank::ranks]
    make = Make(case)
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(len(numbers)),
        sampler=SamplerWithoutReplacement(shuffle=False),
        batch_size=BATCH,
        prefetch=None if case == STARVED else WORKERS,
    )
    buffer.extend(TensorDict({"number": numbers}, [len(numbers)]))
    buffer.append_transform(
        lambda rows: torch.utils.data.default_collate([make(number) for number in rows["number"]])
    )
    return buffer


def of_ray(case: str, folder: Path) -> Iterable[Any]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    rank, ranks = (0, 1) if case == SAME else rank_and_ranks()
    numbers = [{"number": number} for number in range(SAMPLES)[rank::ranks]]
    rows = ray.data.from_items(numbers, override_num_blocks=8)
    made = rows.map(Make(case), concurrency=1 if case == STARVED else WORKERS)
    if case == HEALTHY:  # Ray's own start takes more than the training
        made = made.materialize()
    return made.iter_torch_batches(batch_size=BATCH)


def of_grain(case: str, folder: Path) -> Iterable[Any]:
    import grain

    rank, ranks = (0, 1) if case == SAME else rank_and_ranks()
    rows = grain.MapDataset.source(range(SAMPLES))[rank::ranks].map(Make(case)).batch(BATCH)
    stream = rows.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=1))
    workers = 1 if case == STARVED else WORKERS
    return stream.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))


#: A library -> the module that has to be installed, what writes its files, what makes its batches.
SOURCES: dict[str, tuple[str, Any, Any]] = {
    "torch": ("torch", None, of_torch),
    "webdataset": ("webdataset", write_webdataset, of_webdataset),
    "datasets": ("datasets", None, of_datasets),
    "datasets_rows": ("datasets", None, of_datasets_rows),
    "litdata": ("litdata", write_litdata, of_litdata),
    "streaming": ("streaming", write_streaming, of_streaming),
    "stateful": ("torchdata", None, of_stateful),
    "nodes": ("torchdata", None, of_nodes),
    "torchrl": ("torchrl", None, of_torchrl),
    "ray": ("ray", None, of_ray),
    "grain": ("grain", None, of_grain),
}
