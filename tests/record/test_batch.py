"""What is said of a batch."""

from collections import UserDict, namedtuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.taps.batch_contents import (
    _MAX_LEAVES,
    _OBJECT_BYTES,
    BatchContents,
    describe,
)
from feedline.profiler.taps.loader import TORCH, LoaderTaps
from feedline.profiler.taps.patch import Patches

Pair = namedtuple("Pair", "images labels")
IMAGES, LABELS = torch.zeros(8, 3, 4, 4), torch.zeros(8, dtype=torch.int64)
BYTES = IMAGES.nbytes + LABELS.nbytes


@pytest.mark.parametrize(
    "batch",
    [
        [IMAGES, LABELS],
        (IMAGES, [LABELS]),
        Pair(IMAGES, LABELS),
        {"images": IMAGES, "more": {"labels": LABELS, "names": ["a"] * 8}},
        UserDict(images=IMAGES, labels=LABELS),
        ["a", None, 3, IMAGES, LABELS],
    ],
)
def test_tensors_are_found_wherever_they_are(batch):
    assert describe(batch) == BatchContents(BYTES, 8, Flag.FLOAT32, tensors=2)


def test_arrays_count_and_large_ones_are_pickled():
    small, large = np.zeros((5, 2)), np.zeros((5, _OBJECT_BYTES))

    assert describe([small, 1]) == BatchContents(small.nbytes, 5, 0)
    assert describe({"x": large}) == BatchContents(large.nbytes, 5, Flag.OBJECTS)
    assert describe([small, LABELS]) == BatchContents(
        small.nbytes + LABELS.nbytes, 8, 0, 1
    )  # a tensor's rows come first


def test_bytes_in_halves_are_no_float32_and_shared_memory_is_told():
    assert describe(IMAGES.half()) == BatchContents(IMAGES.nbytes // 2, 8, 0, 1)
    assert describe([LABELS.clone().share_memory_()]) == BatchContents(
        LABELS.nbytes, 8, Flag.SHARED, 1
    )


def test_without_rows_the_list_has_a_length():
    assert describe(["a", "b"]) == BatchContents(0, 2, 0)
    assert describe([torch.tensor(1.0)] * 3) == BatchContents(12, 3, Flag.FLOAT32, 3)
    assert describe(None) == describe(7) == BatchContents(0, 0, 0)


def test_of_very_many_parts_the_first_ones_are_described():
    assert describe([torch.zeros(1)] * (2 * _MAX_LEAVES)).nbytes == 4 * _MAX_LEAVES


def test_the_tensors_of_very_many_parts_are_estimated_from_the_first_ones():
    targets = [{name: torch.zeros(4) for name in "abcdefg"} for _ in range(32)]

    assert describe([IMAGES, targets]).tensors == 1 + 32 * 7
    assert describe([["a", "b"]] * (2 * _MAX_LEAVES) + [IMAGES]).tensors == 0


class Visited(dict):
    """A dict that counts how many of its values are looked at."""

    visits = 0

    def values(self):
        for value in super().values():
            Visited.visits += 1
            yield value


@pytest.fixture
def visits():
    Visited.visits = 0
    return lambda: Visited.visits


def test_a_large_tree_is_looked_at_in_part(visits):
    inner = Visited(dict.fromkeys(range(64), IMAGES))
    middle = Visited(dict.fromkeys(range(64), inner))

    assert describe(Visited(dict.fromkeys(range(64), middle))).tensors == 64**3
    assert visits() < 2000


def test_empty_parts_end_as_well(visits):
    tree = Visited()
    for _ in range(4):
        tree = Visited(dict.fromkeys(range(32), tree))

    assert describe([tree, IMAGES]) == BatchContents(IMAGES.nbytes, 8, Flag.FLOAT32, 1)
    assert visits() < 2000


class Held:
    def __init__(self, **held) -> None:
        self.__dict__.update(held)


def test_of_a_long_vocabulary_the_first_words_are_looked_at(visits):
    held = Held(image=IMAGES, vocabulary=Visited(zip(range(10_000), range(10_000))))

    assert describe(held).tensors == describe([3, {"a": held}]).tensors == 1
    assert visits() <= 2 * (_MAX_LEAVES + 1)


def test_what_all_objects_of_a_batch_share_is_looked_at_once(visits):
    shared = Held(scale=torch.ones(1), settings=Visited(a=1, b=[2, "c"]))
    samples = [Held(image=IMAGES, labels=LABELS, settings=shared) for _ in range(16)]

    assert describe(samples).tensors == 16 * 2 + 1
    assert visits() == 2


def test_the_objects_of_a_batch_come_before_what_they_hold(visits):
    settings = {
        f"part{number}": Held(all=Visited.fromkeys(range(60), 0.1), next=Held(a=1))
        for number in range(60)
    }
    samples = [Held(x=IMAGES, of=Held(**settings)) for _ in range(60)]

    assert describe(samples).tensors == 60
    assert visits() < 2000


def test_a_list_in_itself_ends():
    endless = [IMAGES]
    endless.append(endless)

    assert describe(endless).samples == 8


def test_an_array_of_dates_is_an_array():
    dates = np.array(["2020-01-01"] * 8, "M8[D]")

    assert describe([LABELS, dates]) == BatchContents(LABELS.nbytes + 64, 8, 0, 1)


def test_a_sparse_tensor_has_no_bytes_of_its_own():
    assert describe([torch.eye(3).to_sparse(), LABELS]) == BatchContents(LABELS.nbytes, 8, 0, 2)


def test_of_a_batch_whose_parts_raise_nothing_is_known():
    class Exotic:
        @property
        def nbytes(self):
            raise RuntimeError("gone")

    assert describe([IMAGES, Exotic()]) == BatchContents(0, 0, 0)


class Graphs:
    """A batch that is an object, and holds itself."""

    def __init__(self) -> None:
        self.x, self.of = torch.ones(2), {"edges": [torch.ones(3)]}
        self.inner = self


def test_tensors_in_the_attributes_of_an_object_are_counted_each_once():
    assert describe(Graphs()).tensors == 2
    assert describe([1, "a cat", Graphs()]).tensors == 2


def one_item(batch):
    return batch[0]


@pytest.mark.parametrize(
    ("item", "collate", "samples"),
    [
        (
            (torch.zeros(64, 13), torch.zeros(26, 64), torch.zeros(64, 1)),
            one_item,
            0,
        ),  # 64 samples, or one of length 64
        ((torch.zeros(64, 13), torch.zeros(26, 64)), one_item, 1),
        (
            (torch.zeros(3, 8, 8), 5),
            lambda batch: tuple(zip(*batch)),
            1,
        ),  # of a detector: images of different sizes
        ((torch.zeros(64, 13), torch.zeros(64, 1)), None, 1),
    ],
)
def test_an_item_that_may_be_a_whole_batch_is_of_unknown_size(item, collate, samples, tmp_path):
    segment = Segment(tmp_path / "main.seg", {"role": "main"})
    recorder.open_main(segment)
    patches = Patches()
    LoaderTaps(tmp_path, lambda *_: 0, lambda *_: None).attach(TORCH, patches)
    try:
        for _ in DataLoader([item] * 3, batch_size=1, collate_fn=collate):
            pass
    finally:
        patches.undo()
        recorder.close()

    asked = read_segment(segment.path).of(Stage.NEXT)
    assert asked["extra"][asked["flags"] & Flag.END == 0].tolist() == [samples] * 3
