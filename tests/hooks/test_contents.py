"""What a look at a batch and at parameters finds: padding that no row needs, denormal numbers."""

import pytest
import torch
from torch import nn

from feedline.profiler.events import DENORMAL, PADDING, Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.taps.contents import ContentTap
from feedline.profiler.taps.patch import Patches

LENGTHS = [5, 9, 12, 7, 20, 3, 11, 16]


class Training:
    """As much of a convergence tap as this tap asks for."""

    def __init__(self, model):
        self.updates, self.model = 0, model


@pytest.fixture
def tap(tmp_path, monkeypatch):
    segment = Segment(tmp_path / "main.seg", {"role": "main"})
    recorder.open_main(segment)
    segment.add(Stage.FORWARD, 1, 1)  # it trains
    monkeypatch.setattr(recorder, "convergence", Training(nn.Embedding(100, 4)))
    tap = ContentTap()
    tap.attach(Patches())
    yield tap
    tap.stop()
    assert recorder.contents is None
    recorder.close()


def rows(length, lengths=LENGTHS, fill=0, side="right"):
    batch = torch.full((len(lengths), length), fill)
    for row, of in zip(batch, lengths):
        values = torch.arange(of) % 90 + 1
        row[slice(of) if side == "right" else slice(length - of, length)] = values
    return batch


def seen(kind):
    process = read_segment(recorder.main.path)
    looks = process.view(Stage.CONTENTS)
    return looks[[process.names[int(number)] == kind for number in looks["source"]]]


def handed_over(tap, batch, times=30):
    for update in range(times):
        recorder.convergence.updates = update
        tap.handed_over(batch)
    return seen(PADDING)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("fill", [0, -100])
def test_columns_that_no_row_needs_are_counted(tap, side, fill):
    looks = handed_over(tap, {"ids": rows(64, fill=fill, side=side), "label": torch.ones(8)})

    assert 3 < len(looks) < 12
    assert set(looks["values"]) == {8 * 64} and set(looks["needless"]) == {8 * 44}
    assert set(looks["padded"]) == {8 * 64 - sum(LENGTHS)}


def test_nested_batches_are_looked_into(tap):
    looks = handed_over(tap, ({"ids": rows(64), "mask": (rows(64) > 0).long()}, torch.ones(8)))

    assert set(looks["needless"]) == {8 * 44}


def test_labels_that_do_not_count_are_no_padding_of_the_tokens_beside_them(tap):
    kinds = torch.zeros(8, 64, dtype=torch.int64)
    tokens, labels = torch.randint(1, 50, (8, 64)), rows(64, fill=-100, side="left")

    assert not handed_over(tap, {"labels": labels, "ids": tokens, "kinds": kinds})["needless"].any()


def test_a_batch_that_is_padded_to_its_longest_row_has_no_such_columns(tap):
    looks = handed_over(tap, (rows(20), torch.ones(8)))

    assert len(looks) and not looks["needless"].any() and looks["padded"].all()


@pytest.mark.parametrize(
    "batch",
    [
        rows(64, [20] * 8),  # a frame of one size
        torch.cat([rows(40), rows(24, [4] * 8)], 1),  # the same value is among the others
        torch.randint(1, 50, (8, 64)),
        torch.zeros(8, 64, dtype=torch.int64),
    ],
    ids=["frame", "inside", "full", "empty"],
)
def test_other_rows_of_integers_are_not_taken_for_padded(tap, batch):
    assert not handed_over(tap, [batch])["needless"].any()


@pytest.mark.parametrize(
    "batch", [rows(64).float(), rows(8, [3, 4, 5]), torch.ones(()), "text", None]
)
def test_what_cannot_be_rows_of_indices_is_not_looked_at(tap, batch):
    assert len(handed_over(tap, [batch])) == 0 and recorder.contents is tap


def test_a_model_without_a_table_is_not_looked_at(tap):
    recorder.convergence.model = nn.Linear(64, 4)

    assert len(handed_over(tap, [rows(64)])) == 0


def updated(tap, scale, flush=False):
    layer = nn.Linear(256, 64)
    with torch.no_grad():
        layer.weight.mul_(scale)
    optimizer = torch.optim.SGD(layer.parameters())
    torch.set_flush_denormal(flush)
    try:
        for update in range(30):
            recorder.convergence.updates = update
            tap.updating(optimizer)
    finally:
        torch.set_flush_denormal(False)
    return seen(DENORMAL)


def test_denormal_parameters_are_counted(tap):
    looks = updated(tap, 1e-38)

    assert 5 < len(looks) < 30
    assert (looks["needless"] > 0.5 * looks["values"]).all()


@pytest.mark.parametrize(("scale", "flush"), [(1e-30, False), (0.0, False), (1e-38, True)])
def test_small_and_zero_parameters_are_not_denormal_nor_those_that_are_flushed(tap, scale, flush):
    if flush and not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormal numbers")
    looks = updated(tap, scale, flush)

    assert len(looks) > 5 and not looks["needless"].any()


def test_gradients_count_and_nothing_is_changed(tap):
    layer = nn.Linear(64, 64, bias=False)
    layer.weight.grad = torch.full((64, 64), 1e-40)
    before, state = layer.weight.detach().clone(), torch.get_rng_state()
    recorder.convergence.updates = 3
    tap.updating(torch.optim.SGD(layer.parameters()))
    (look,) = seen(DENORMAL)

    assert look["needless"] * 2 == look["values"]
    assert torch.equal(layer.weight, before) and torch.equal(torch.get_rng_state(), state)
