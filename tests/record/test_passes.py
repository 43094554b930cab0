"""What passes over a loader show of its dataset: workers that yield the same, and attributes that
the program changes between passes.
"""

import itertools
import pathlib
import time

import pytest
import torch
from recording_schedule.conftest import one_thread as one_thread
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info

import feedline
from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.reports_of_run import training_input
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Change, Severity
from feedline.analysis.rules.input import slow_first_batch, slow_sampler
from feedline.analysis.rules.input.too_few_workers import NOT_SPLIT
from feedline.profiler.events import Stage
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps.loader_settings import _asks_for_worker, attributes, changed


class Stream(IterableDataset):
    """Yields all of its numbers in each worker, or a part of them."""

    def __init__(self, split: bool) -> None:
        self.split = split

    def __iter__(self):
        worker = get_worker_info()
        first, apart = (
            (worker.id, worker.num_workers) if self.split and worker is not None else (0, 1)
        )
        return (torch.full((4,), float(number)) for number in range(first, 640, apart))


class Unaware(IterableDataset):
    def __iter__(self):
        return (torch.rand(4) for _ in range(64))


class Lessons(Dataset):
    """Samples that become harder from pass to pass."""

    epoch = 0
    opened = None

    def __init__(self) -> None:
        self.lessons: list[int] = []

    def __len__(self):
        return 64

    def __getitem__(self, index):
        self.opened = self.opened or object()  # as a file that is opened where it is first read
        return torch.full((4,), float(self.epoch))


def run(
    folder: pathlib.Path, loader: "DataLoader | Parts", between=lambda epoch: None, epochs: int = 2
) -> pathlib.Path:
    """Train on a loader."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with feedline.record(folder, strict=True):
        for epoch in range(epochs):
            between(epoch)
            for x in loader:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
    return folder


def facts_of(folder: pathlib.Path) -> RuleInputs:
    facts = training_input(open_run(folder)).facts
    assert facts is not None
    return facts


@pytest.mark.parametrize("split", [False, True])
def test_workers_that_yield_the_same_batches_are_seen(tmp_path, split):
    folder = run(tmp_path / "run", DataLoader(Stream(split), 16, num_workers=2))

    made = training_input(open_run(folder))
    assert made.facts is not None and made.predictions is not None
    assert (made.facts.same_samples is None, made.facts.may_be_split) == (split, split)
    more = made.predictions.of(Change(settings={"num_workers": 4}), interval=False)
    assert (more == NOT_SPLIT) is not split
    first = diagnose(made.facts)[0]
    assert (first.rule_id == "same_samples") is not split


@pytest.mark.parametrize(("stream", "asks"), [(Stream(False), True), (Unaware(), False)])
def test_a_stream_that_never_asks_for_its_worker_is_not_split(tmp_path, stream, asks):
    facts = facts_of(run(tmp_path / "run", DataLoader(stream, 16)))

    assert facts.setting("asks_for_worker") is asks
    assert facts.may_be_split is asks and facts.same_samples is None


def test_what_a_function_of_the_program_or_a_dataset_inside_asks_counts():
    class Inside(IterableDataset):
        def __init__(self, source):
            self.sources = [source]

        def __iter__(self):
            return iter(self.sources[0])

    class ByFunction(IterableDataset):
        def __iter__(self):
            return part_of(range(64))

    assert _asks_for_worker(Inside(Stream(True))) is True
    assert _asks_for_worker(ByFunction()) is True
    assert _asks_for_worker(Inside(Unaware())) is False


def part_of(numbers):
    return iter(numbers) if get_worker_info() is None else iter(())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data, epoch: setattr(data, "epoch", epoch), ["epoch"]),
        (lambda data, epoch: data.lessons.append(epoch), ["lessons"]),
        (lambda data, epoch: None, []),
    ],
)
def test_attributes_that_the_loop_changes_between_passes_are_named(tmp_path, workers, change, told):
    data = Lessons()
    data.epoch = 0

    facts = facts_of(
        run(
            tmp_path / "run",
            DataLoader(Subset(data, range(32)), 8, num_workers=workers),
            lambda epoch: change(data, epoch),
        )
    )

    assert facts.setting("dataset_changes") == told
    assert str(facts.setting("sample_code")).startswith(
        "Lessons.__getitem__ (tests/record/test_passes.py:"
    )


def test_another_dataset_for_each_pass_is_told_as_a_change(tmp_path):
    loader, data = DataLoader(Lessons(), 8, num_workers=1), [Lessons() for _ in range(2)]

    facts = facts_of(
        run(
            tmp_path / "run",
            loader,
            lambda epoch: object.__setattr__(loader, "dataset", data[epoch]),
        )
    )

    assert facts.dataset_changes == [""]


def test_objects_that_a_dataset_holds_are_looked_into_and_odd_ones_cost_nothing():
    class Jitter:
        strength = 0.0

    class Odd:
        __slots__ = ()

        def __getattr__(self, name):
            raise RuntimeError(name)

    data = Lessons()
    data.transform, data.odd, data.tensor = Jitter(), Odd(), torch.zeros(3)
    assert (before := attributes(data)) is not None
    data.transform.strength = 0.5
    data.tensor[0] = 1.0

    assert (after := attributes(data)) is not None
    assert changed(before, after) == ["tensor", "transform.strength"]


def test_a_dataset_of_very_many_attributes_is_not_said_to_be_unchanged():
    data = Lessons()
    vars(data).update((f"part{number}", number) for number in range(300))

    assert attributes(data) is None


class Buffered(IterableDataset):
    """Fills a buffer before it yields its first number."""

    def __iter__(self):
        time.sleep(0.4)
        yield from (torch.full((4,), float(number)) for number in range(64))


@pytest.mark.parametrize("stay", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_first_batch_that_takes_long_is_the_streams_own_whether_workers_stay_or_not(
    tmp_path, stay
):
    loader = DataLoader(Buffered(), 4, num_workers=1, persistent_workers=stay)
    facts = facts_of(run(tmp_path / "run", loader, epochs=4))

    assert facts.first_made_s is not None and facts.first_made_s > 0.4
    finding = slow_first_batch._check(facts)
    assert finding is not None and finding.severity is Severity.HIGH
    assert diagnose(facts)[0].rule_id == "slow_first_batch"


class Many(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.full((4,), index % 7, dtype=torch.float32)


def test_a_sampler_that_makes_the_order_of_a_pass_is_told_from_one_that_is_slow(tmp_path):
    """Passes that end early still pay for the order of all samples."""
    loader = DataLoader(Many(), 16, shuffle=True)
    folder = run(tmp_path / "run", Parts(loader, 12), epochs=3)

    facts = facts_of(folder)
    drawing = open_run(folder).ranks[0].main.of(Stage.SAMPLER)["wall"].sum() / 1e9
    assert facts.order_s is not None and 0.8 * drawing <= 3 * facts.order_s <= drawing
    assert slow_sampler._at_once(facts, facts.step.stages["sampler"]) and slow_sampler._of_torch(
        facts
    )
    finding = slow_sampler._check(facts)
    assert (
        finding is not None
        and "at the beginning of each pass" in finding.message
        and "1,000,000 samples" in finding.more[0]
    )
    assert finding.fix.startswith("Set replacement=True")
    assert finding.condition == "only if samples may repeat within a pass"
    assert finding.fix_more == slow_sampler._ONLY_THOSE


class Parts:
    """The first batches of a loader, pass by pass."""

    def __init__(self, loader: DataLoader, batches: int) -> None:
        self.loader, self.batches = loader, batches

    def __iter__(self):
        return itertools.islice(self.loader, self.batches)
