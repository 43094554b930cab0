"""What happens once in a process belongs to no part of a sample, and a short run tells the parts
from enough samples, with their error.
"""

import io
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, JpegImagePlugin
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

import feedline
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.measure.costs import _CLOCKS, SampledDetails
from feedline.profiler.store.trainings import open_run

SAMPLES, BATCH, DECODE_S, AUGMENT_S, IMPORT_S = 192, 16, 2e-3, 4e-3, 1.0


class Plugin(JpegImagePlugin.JpegImageFile):
    """Takes a moment to decode, and an import when its first file is opened, as PIL's own plugins
    do.
    """

    format = "PLUGIN"

    def _open(self) -> None:
        __import__("takes_long_to_import")
        super()._open()

    def load_end(self) -> None:
        time.sleep(DECODE_S)
        super().load_end()


class Slow(v2.Transform):
    def transform(self, inpt: object, params: object) -> object:
        time.sleep(AUGMENT_S)
        return inpt


class Pictures(Dataset):
    def __init__(self) -> None:
        file = io.BytesIO()
        Image.new("RGB", (16, 16)).save(file, "JPEG")
        self.file, self.augment = file.getvalue(), Slow()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        picture = Image.open(io.BytesIO(self.file), formats=["PLUGIN"])
        picture.load()
        self.augment(picture)
        return torch.zeros(16)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "takes_long_to_import.py").write_text(f"import time\ntime.sleep({IMPORT_S})\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "takes_long_to_import", raising=False)
    # Pillow's own plugins, once per process: what registers itself in the list that is replaced
    # here would be lost with it
    Image.init()
    monkeypatch.setitem(Image.OPEN, "PLUGIN", (Plugin, None))
    monkeypatch.setattr(Image, "ID", [*Image.ID, "PLUGIN"])


@pytest.mark.parametrize("workers", [0, 2])
def test_first_use_belongs_to_no_part_of_a_sample(workers, plugin, tmp_path):
    model = torch.nn.Linear(16, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with feedline.record(tmp_path / "run"):
        for batch in DataLoader(
            Pictures(),
            BATCH,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        ):
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()

    made = recorded_report(open_run(tmp_path / "run")).workers
    cost = made.per_sample
    assert 24 <= made.samples_in_detail < SAMPLES / 2
    assert (
        cost["read"].wall_s
        < 0.2 * IMPORT_S * max(workers, 1) / SAMPLES + cost["read"].cpu_s + cost["read"].runqueue_s
    )
    assert (
        cost["total"].wall_s - cost["total"].runqueue_s
        < DECODE_S + AUGMENT_S + 0.5 * IMPORT_S * max(workers, 1) / SAMPLES + 2e-3
    )
    for stage, planted_s in (("decode", DECODE_S), ("augment", AUGMENT_S)):
        assert cost[stage].blocked_s >= 0.9 * planted_s
        assert cost[stage].error_s > 0


def details(weight: list[float], part: list[float]) -> SampledDetails:
    count, zeros = len(weight), np.zeros(len(weight))
    whole = dict.fromkeys(_CLOCKS, np.array(part) + 1.0)
    parts = {("read", "open"): dict.fromkeys(_CLOCKS, np.array(part))}
    return SampledDetails(
        np.array(weight),
        np.ones(count),
        whole,
        parts,
        {},
        {"read": zeros},
        {},
        zeros,
        zeros,
        frozenset(),
    )


def test_one_sample_does_not_tell_its_error():
    seen = details([1.0], [0.5])

    assert seen.share(seen.sum("read", "wall"), 192)[1] is None


def test_all_samples_leave_no_error():
    seen = details([1.0] * 4, [0.1, 0.5, 0.9, 0.2])

    assert seen.share(seen.sum("read", "wall"), 4)[1] == 0


@pytest.mark.parametrize("number", [4, 8, 30])
def test_twice_the_error_holds_the_truth_in_nine_of_ten_runs_however_few_samples_were_seen(number):
    random, held = np.random.default_rng(0), 0
    for _ in range(400):
        population = random.gamma(2.0, 0.5, 192)
        part = population[random.choice(192, number, replace=False)]
        seen = details([192 / number] * number, part.tolist())
        ratio, error = seen.share(part, 192)
        held += abs(ratio - population.sum() / (population + 1).sum()) <= 2 * error

    assert held >= 360
    assert error > 0
