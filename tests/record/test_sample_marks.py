"""Workers that deliver the same samples are told from data that repeats for other reasons."""

import random
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from feedline.analysis.measure.clues import SameSamples
from feedline.analysis.measure.stream_workers import same_samples
from feedline.profiler.events import Stage, batch_key
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import Process, read_segment
from feedline.profiler.taps.sample_marks import SampleMarks

WORKERS, BATCH, BATCHES = 4, 16, 40
Stream = Callable[[int], Iterable[Any]]  # the samples of a worker


@pytest.fixture
def compare(tmp_path, monkeypatch):
    """Records marks as workers would, and compares them."""

    def record(worker: int, samples: list[Any], salt: bytes) -> Process:
        path = tmp_path / f"worker-{worker}.seg"
        segment = Segment(path, {"role": "worker", "loader": 0, "worker": worker})
        marks = SampleMarks(salt)
        for number, start in enumerate(range(0, len(samples), BATCH)):
            monkeypatch.setattr(recorder, "batch", batch_key(0, worker + number * WORKERS))
            marks.note(segment, samples[start : start + BATCH])
        segment.close()
        process = read_segment(path)
        path.unlink()
        return process

    def compared(
        stream: Stream, asks: bool | None = True, workers: int = WORKERS
    ) -> SameSamples | None:
        salt = random.randbytes(16)
        made = [list(islice(stream(worker), BATCH * BATCHES)) for worker in range(workers)]
        return same_samples(
            [record(worker, samples, salt) for worker, samples in enumerate(made)], asks
        )

    return compared


def noise(worker: int, *shape: int) -> torch.Tensor:
    return torch.randn(
        *shape or (80,), generator=torch.Generator().manual_seed(random.getrandbits(40))
    )


def buffered(numbers: Iterable[int], size: int, seed: int) -> Iterable[int]:
    """Numbers through a shuffle buffer."""
    dice, buffer = random.Random(seed), []
    for number in numbers:
        buffer.append(number)
        if len(buffer) > size:
            yield buffer.pop(dice.randrange(len(buffer)))


LABELS = random.Random(1).choices(range(10), k=20_000)
WHOLE: dict[str, Stream] = {
    "numbers": lambda worker: range(10_000),
    "texts": lambda worker: (f"text {number}" for number in range(10_000)),
    "dicts of arrays": lambda worker: (
        {"x": np.full(300, number), "y": [number, None]} for number in range(10_000)
    ),
    "bytes": lambda worker: ((b"%d" % number * 100, "jpg") for number in range(10_000)),
    "few different rows": lambda worker: (torch.full((32,), i % 50.0) for i in range(10_000)),
    "names beside augmented images": lambda worker: (
        {"__key__": f"{number:06}", "image": noise(worker), "label": number % 2}
        for number in range(10_000)
    ),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_a_stream_that_is_not_split_is_seen(compare, kind):
    same = compare(WHOLE[kind], asks="augmented" not in kind)

    assert same is not None and (same.times, same.workers, same.in_order) == (4, 4, True)
    assert same.by_labels == ("augmented" in kind)


@pytest.mark.parametrize("kind", WHOLE)
def test_one_that_is_split_is_not(compare, kind):
    """By samples, and by parts of the data."""
    by_samples = compare(lambda worker: islice(WHOLE[kind](worker), worker, None, WORKERS))
    by_parts = compare(lambda worker: islice(WHOLE[kind](worker), 1003 * worker, None))

    assert by_samples is None and by_parts is None


def test_two_pairs_of_workers_each_deliver_the_same(compare):
    same = compare(lambda worker: range(worker % 2, 10_000, 2))

    assert same is not None and (same.times, same.workers) == (2, 4)


@pytest.mark.parametrize("augmented", [False, True])
def test_workers_that_shuffle_the_same_stream_each_in_its_own_way_are_seen(compare, augmented):
    def shuffled(worker: int) -> Iterable[Any]:
        for number in buffered(range(10_000), 500, worker):
            yield (f"name {number}", noise(worker)) if augmented else f"name {number}"

    same = compare(shuffled, asks=not augmented)
    split = compare(lambda worker: buffered(range(worker, 10_000, WORKERS), 500, worker))

    assert same is not None and (same.times, same.in_order, same.by_labels) == (4, False, augmented)
    assert split is None


def test_numbers_that_begin_again_in_each_file_are_no_names_of_samples(compare):
    """Each worker reads recordings of its own, and counts its windows."""

    def windows(worker: int) -> Iterable[Any]:
        for _ in range(4):
            yield from ((noise(worker), number) for number in range(3_000))

    assert compare(windows, asks=True) is None
    assert compare(windows, asks=False) is not None


def test_labels_beside_random_images_count_where_nothing_asks_for_its_worker(compare):
    def augmented(worker: int) -> Iterable[Any]:
        return ((noise(worker), label) for label in LABELS)

    same = compare(augmented, asks=False)
    assert same is not None and same.by_labels
    assert compare(augmented, asks=True) is None and compare(augmented, asks=None) is None
    periodic = compare(lambda w: ((noise(w), i % 10) for i in range(10_000)), asks=False)
    sorted_by_class = compare(lambda w: ((noise(w), i // 5000) for i in range(10_000)), asks=False)
    assert periodic is None and sorted_by_class is None


def drawn(worker: int, of: int) -> Iterable[int]:
    dice = random.Random(random.getrandbits(40))
    while True:
        yield dice.randrange(of)


def resampled(worker: int, shards: int, length: int) -> Iterable[int]:
    """Shards drawn with replacement, as webdataset's ResampledShards does."""
    dice = random.Random(random.getrandbits(40))
    while True:
        shard = dice.randrange(shards)
        yield from range(shard * length, (shard + 1) * length)


REPEATING: dict[str, Stream] = {
    "zeros": lambda worker: (torch.zeros(8) for _ in range(10_000)),
    "four points": lambda worker: drawn(worker, 4),
    "fifty points": lambda worker: drawn(worker, 50),
    "a thousand with replacement": lambda worker: drawn(worker, 1000),
    "a million with replacement": lambda worker: drawn(worker, 1_000_000),
    "oversampled": lambda worker: (
        number // 3 for number in range(worker * 2_000, (worker + 1) * 2_000)
    ),
    "a rare class that every worker has": lambda worker: (
        drawn_number % 30 if drawn_number % 20 == 0 else drawn_number
        for drawn_number in range(worker, 100_000, 4)
    ),
    "padded with the same sample": lambda worker: (
        number if number % 2 == 0 else "padding" for number in range(worker * 1000, 10_000)
    ),
    "nothing that can be marked": lambda worker: (object() for _ in range(1000)),
    "no samples": lambda worker: (),
    "sparse tensors and Nones": lambda worker: (
        (torch.zeros(3, 3).to_sparse(), None, {"a": {1, 2}}) for _ in range(1000)
    ),
    "shards with replacement": lambda worker: resampled(worker, 40, 100),
}


@pytest.mark.parametrize("kind", REPEATING)
def test_data_that_repeats_for_other_reasons_is_never_taken_for_it(compare, kind):
    for _ in range(10):
        assert compare(REPEATING[kind]) is None
        assert compare(REPEATING[kind], workers=2) is None


def test_one_worker_repeats_nobody(compare):
    assert compare(lambda worker: range(10_000), workers=1) is None


@pytest.mark.long
def test_what_cannot_be_marked_is_left_out_and_the_rest_counts(compare):
    loop: list[Any] = []
    loop.append(loop)

    class Odd(dict):
        def values(self):
            raise RuntimeError

    same = compare(
        lambda worker: (
            (number, Odd(), np.array([object()]), torch.zeros(2, device="meta"), "\ud800")
            for number in range(10_000)
        )
    )

    assert same is not None
    assert compare(lambda worker: ((number, loop) for number in range(10_000))) is None


def test_a_tensor_whose_memory_was_freed_or_shrunk_is_left_out(compare):
    def emptied(number: int) -> torch.Tensor:
        tensor = torch.full((4096,), float(number))
        tensor.untyped_storage().resize_(0)
        return tensor

    def beyond(number: int) -> torch.Tensor:
        tensor = torch.full((8192,), float(number))
        tail = tensor[4096:]
        tensor.untyped_storage().resize_(4096 * 4)  # enough for the tail's size, not where it is
        return tail

    for left_out in (emptied, beyond):
        assert compare(lambda worker, of=left_out: (of(n) for n in range(10_000))) is None
    assert compare(lambda worker: ((n, emptied(n)) for n in range(10_000))) is not None


def test_only_the_first_two_passes_are_marked_and_late_batches_rarely(tmp_path, monkeypatch):
    segment = Segment(tmp_path / "a.seg", {"role": "worker", "loader": 0, "worker": 0})
    for epoch in range(4):
        marks = SampleMarks(b"salt")
        for batch in range(100):
            monkeypatch.setattr(recorder, "batch", batch_key(epoch, batch))
            marks.note(segment, [batch] * 8)
    segment.close()

    rows = read_segment(tmp_path / "a.seg").of(Stage.MARKS)
    assert sorted({int(number) >> 32 for number in rows["number"]}) == [0, 1]
    of_pass = [int(number) & 0xFFFFFFFF for number in rows["number"][: len(rows) // 2 : 2]]
    assert of_pass == [*range(25), 32, 48, 64, 96]


def test_without_a_key_nothing_is_marked(tmp_path):
    segment = Segment(tmp_path / "a.seg", {"role": "worker", "loader": 0, "worker": 0})
    SampleMarks(b"").note(segment, [1, 2])
    segment.close()

    assert not len(read_segment(tmp_path / "a.seg").of(Stage.MARKS))
