"""Forwards whose graph is gone before any backward, in real ones."""

import pytest
import torch
from torch import nn

from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.taps.graphs import GraphTap
from feedline.profiler.taps.patch import Patches


class Updates:
    """As much of a convergence tap as the tap of graphs asks for."""

    updates = 0


@pytest.fixture
def segment(tmp_path, monkeypatch):
    segment = Segment(tmp_path / "main.seg", {"role": "main"})
    recorder.open_main(segment)
    segment.add(Stage.FORWARD, 1, 1)  # it trains
    monkeypatch.setattr(recorder, "convergence", Updates())
    tap = GraphTap()
    tap.attach(Patches())
    yield segment
    tap.stop()
    recorder.close()


class Net(nn.Module):
    """Keeps what a layer gave, as a hook does."""

    def __init__(self, keeps):
        super().__init__()
        self.first, self.last, self.keeps = nn.Linear(8, 8), nn.Linear(8, 4), keeps
        self.kept = None

    def forward(self, x):
        hidden = self.first(x).relu()
        if self.keeps:
            self.kept = hidden
        begun = clock.wall_ns()
        result = {"logits": self.last(hidden)}
        recorder.graphs.forwarded(result, begun)
        return result


def scores(model):
    return model(torch.randn(2, 8))["logits"]


def looks(segment, step, keeps=False):
    """Updates of which each is one step, and then a backward; returns what was recorded."""
    model = Net(keeps)
    for update in range(40):
        recorder.convergence.updates = update
        loss = step(model)
        recorder.graphs.backward()
        loss.backward()
    return read_segment(segment.path).view(Stage.DROPPED)


def twice(model):
    loss = scores(model).mean()
    loss = scores(model).mean()
    return loss


def test_a_forward_whose_result_is_overwritten_is_seen_in_each_look(segment):
    records = looks(segment, twice)

    assert len(records) > 8
    assert set(records["forwards"]) == {2} and set(records["dropped"]) == {1}
    assert (0 < records["wall"]).all() and (records["wall"] < records["of_all"]).all()


def test_a_result_that_is_only_detached_is_seen_as_well(segment):
    records = looks(segment, lambda model: (scores(model) - scores(model).detach()).mean())

    assert set(records["dropped"]) == {1}


@pytest.mark.parametrize(
    "step",
    [
        lambda model: scores(model).mean(),
        lambda model: scores(model).mean() + scores(model).mean(),
        lambda model: torch.stack([scores(model) for _ in range(3)]).square().mean(),
    ],
    ids=["one", "two", "three"],
)
def test_forwards_that_are_learned_from_are_not_dropped(segment, step):
    records = looks(segment, step)

    assert len(records) > 8 and not records["dropped"].any()


def test_a_forward_of_which_only_a_feature_is_kept_is_learned_from(segment):
    def feature(model):
        scores(model)
        return model.kept.mean()

    assert not looks(segment, feature, keeps=True)["dropped"].any()


def test_a_forward_without_gradients_has_no_graph_to_drop(segment):
    def baseline(model):
        with torch.no_grad():
            base = scores(model)
        return (scores(model) - base).mean()

    records = looks(segment, baseline)

    assert set(records["forwards"]) == {1} and not records["dropped"].any()
