"""Streams of webdataset and of Hugging Face: who delivers which samples, and what is said of it."""

import pathlib
import time
from dataclasses import replace
from typing import Any

import datasets
import pytest
import torch
import webdataset
from recording_schedule.conftest import one_thread as one_thread
from torch.utils.data import DataLoader

import feedline
from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.reports_of_run import training_input
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.rules.input import workers_without_data
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.trainings import open_run

SAMPLES, BATCH = 640, 8


def sample(number: int) -> torch.Tensor:
    """A sample that takes its time, in which no CPU is used."""
    time.sleep(0.001)
    return torch.full((4,), float(number))


def tars(folder: pathlib.Path, count: int) -> list[str]:
    paths = [folder / f"{number}.tar" for number in range(count)]
    for first, path in enumerate(paths):
        with webdataset.TarWriter(str(path)) as tar:
            for number in range(first, SAMPLES, count):
                tar.write({"__key__": f"{number:04}", "cls": number})
    return [str(path) for path in paths]


def of_tars(folder: pathlib.Path, shards: int, split: bool = True) -> Any:
    return webdataset.DataPipeline(
        webdataset.SimpleShardList(tars(folder, shards)),
        *([webdataset.split_by_worker] if split else []),
        webdataset.tarfile_to_samples(),
        webdataset.shuffle(50),
        webdataset.decode(),
        webdataset.to_tuple("cls"),
        webdataset.map(lambda made: sample(made[0])),
    )


def of_table(shards: int) -> Any:
    table = datasets.Dataset.from_dict({"number": list(range(SAMPLES))})
    return table.to_iterable_dataset(num_shards=shards).map(
        lambda row: {"x": sample(row["number"])}, remove_columns=["number"]
    )


class Whole(torch.utils.data.IterableDataset):
    """A stream of Hugging Face with random crops, read whole by each worker."""

    def __init__(self) -> None:
        self.rows = datasets.Dataset.from_dict({"number": list(range(SAMPLES))})

    def __iter__(self):
        for row in self.rows:
            yield {"name": f"image {row['number']}", "x": sample(row["number"]) + torch.randn(4)}


def train(
    folder: pathlib.Path, stream: Any, workers: int = 2, kind: Any = DataLoader
) -> tuple[RuleInputs, list[int]]:
    """Train for a pass; return the facts and the samples of each worker."""
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 1e-9)
    with feedline.record(folder / "run", strict=True):
        for batch in kind(stream, batch_size=BATCH, num_workers=workers):
            net(batch["x"] if isinstance(batch, dict) else batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    run = open_run(folder / "run")
    facts = training_input(run).facts
    assert facts is not None
    of_workers = sorted(
        (process.header["worker"], process.of(Stage.FETCH))
        for process in run.ranks[0].processes
        if process.is_worker
    )
    return facts, [
        int(rows["extra"][rows["flags"] & Flag.END == 0].sum()) for _, rows in of_workers
    ]


def test_healthy_streams_are_called_neither(tmp_path):
    (tmp_path / "tars").mkdir()
    for name, stream in {"a": of_tars(tmp_path / "tars", 4), "b": of_table(4)}.items():
        facts, of_workers = train(tmp_path / name, stream)

        assert of_workers == [SAMPLES // 2, SAMPLES // 2]
        assert facts.setting("dataset_shards") == 4
        assert facts.same_samples is None and not facts.idle_workers
        said = [finding.rule_id for finding in diagnose(facts)]
        assert not {"same_samples", "workers_without_data"} & {*said}


def test_tars_that_each_worker_reads_and_shuffles_are_seen(tmp_path):
    facts, of_workers = train(tmp_path, of_tars(tmp_path, 4, split=False))

    assert of_workers == [SAMPLES, SAMPLES]
    assert facts.same_samples is not None and facts.same_samples.times == 2
    first = diagnose(facts)[0]
    assert first.rule_id == "same_samples" and "wds.split_by_worker" in first.fix


def test_a_table_that_each_worker_reads_whole_is_seen_behind_random_crops(tmp_path):
    facts, of_workers = train(tmp_path, Whole())

    assert of_workers == [SAMPLES, SAMPLES]
    assert facts.same_samples is not None
    assert facts.same_samples.by_labels and facts.same_samples.in_order
    first = diagnose(facts)[0]
    assert first.rule_id == "same_samples" and "to_iterable_dataset" in first.fix


@pytest.mark.parametrize("library", ["webdataset", "datasets"])
def test_a_stream_of_one_shard_leaves_a_worker_without_data(tmp_path, library):
    stream = of_tars(tmp_path, 1) if library == "webdataset" else of_table(1)
    facts, of_workers = train(tmp_path, stream)

    assert of_workers == [SAMPLES, 0]
    assert (facts.idle_workers, facts.setting("dataset_shards")) == (1, 1)
    told = {finding.rule_id: finding for finding in diagnose(facts)}
    assert "too_few_workers" not in told
    assert not any("num_workers" in one.settings for one in told.values())
    finding = workers_without_data._check(replace(facts, cpus=None))  # whatever else runs here
    assert finding is not None
    assert finding.message == "1 of 2 workers never made a batch: the stream has 1 shard"


def test_shards_that_are_drawn_with_replacement_are_no_mistake(tmp_path):
    stream = (
        webdataset.WebDataset(tars(tmp_path, 2), resampled=True, shardshuffle=0)
        .decode()
        .to_tuple("cls")
        .map(lambda made: sample(made[0]))
        .with_epoch(200)
    )
    facts, _ = train(tmp_path, stream)

    assert facts.setting("resampled") is True and facts.same_samples is None


def test_an_epoch_that_workers_see_in_shared_memory_is_no_change(tmp_path):
    """``set_epoch`` of Hugging Face's streams: workers may stay."""
    stream, net = of_table(2).shuffle(seed=1, buffer_size=10), torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 1e-9)
    loader = DataLoader(stream, 64, num_workers=2)
    with feedline.record(tmp_path / "run", strict=True):
        for epoch in range(3):
            stream.set_epoch(epoch)
            for batch in loader:
                net(batch["x"]).mean().backward()
                optimizer.step()

    facts = training_input(open_run(tmp_path / "run")).facts
    assert facts is not None and facts.dataset_changes == []


def write_chunks(folder: pathlib.Path) -> None:
    """Write the files of LitData, four chunks."""
    from litdata.streaming.writer import BinaryWriter

    out = BinaryWriter(str(folder), chunk_size=SAMPLES // 4)
    for number in range(SAMPLES):
        out[number] = {"number": number}
    out.done()
    out.merge(1)


class ByIndex(torch.utils.data.IterableDataset):
    """The same, read by index in each worker: it does not split itself then."""

    def __init__(self, chunks: Any) -> None:
        self.chunks = chunks

    def __iter__(self):
        return (sample(self.chunks[index]["number"]) for index in range(SAMPLES))


def test_a_stream_of_litdata_splits_itself_unless_it_is_read_by_index(tmp_path):
    litdata = pytest.importorskip("litdata", reason="litdata is not installed: no requirement")
    write_chunks(folder := tmp_path / "chunks")
    whole = litdata.StreamingDataset(str(folder), transform=lambda row: sample(row["number"]))
    _, of_workers = train(tmp_path / "whole", whole, kind=litdata.StreamingDataLoader)
    assert of_workers == [SAMPLES // 2, SAMPLES // 2]

    by_index = ByIndex(litdata.StreamingDataset(str(folder)))
    facts, of_workers = train(tmp_path / "by_index", by_index)

    assert of_workers == [SAMPLES, SAMPLES]
    assert facts.setting("wrapped_library") == "litdata"
    first = diagnose(facts)[0]
    assert first.rule_id == "same_samples" and "litdata.StreamingDataset" in first.fix
