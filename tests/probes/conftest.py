"""A folder of real photographs, and the smallest plan that measures each thing once."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from planted import photos as photographs

from feedline.pipelines.photos import Photos, scan
from feedline.pipelines.probes.probe_rounds import ProbePlan, Subject
from feedline.profiler.ceilings import Ceiling

PLAN = ProbePlan(
    rounds=1, seconds=0.0, files=20, pixels=1e9, scratch_bytes=16 << 20, readers=(1, 4)
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """20 photographs of two classes, of two sizes."""
    root = tmp_path_factory.mktemp("data")
    photographs.write(root / "large", 400, 300, 10)
    photographs.write(root / "small", 120, 90, 10)
    return root


@pytest.fixture(scope="session")
def photos(folder) -> Photos:
    return scan(folder)


@pytest.fixture
def subject(folder, photos) -> Callable[..., Subject]:
    """Makes a Subject of the photographs; everything else can be given."""
    return lambda **given: Subject(
        **{"photos": photos, "folder": folder, "plan": PLAN, "batch_size": 4, **given}
    )


@pytest.fixture
def named() -> Callable[[Iterable[Ceiling]], dict[str, Ceiling]]:
    """Ceilings by name, each name once."""

    def by_name(ceilings: Iterable[Ceiling]) -> dict[str, Ceiling]:
        found = list(ceilings)
        assert len({one.name for one in found}) == len(found)
        return {one.name: one for one in found}

    return by_name


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0

    def spend(self, wall_s: float, cpu_s: float = 0.0) -> None:
        self.wall += round(wall_s * 1e9)
        self.cpu += round(cpu_s * 1e9)


@pytest.fixture
def fake_clock(monkeypatch) -> Clock:
    from feedline.pipelines.probes import probe_rounds
    from feedline.profiler import clock

    fake = Clock()
    monkeypatch.setattr(clock, "wall_ns", lambda: fake.wall)
    monkeypatch.setattr(probe_rounds, "process_cpu_ns", lambda: fake.cpu)
    return fake
