"""Which line of a program made a loader: that of the call, through whatever library it goes."""

from typing import Any

import pytest

from feedline.profiler.taps.source_names import CallSites

INSTALLED = "/env/lib/python3.11/site-packages"


class Loader:
    def __init__(self, dataset: object) -> None:
        self.dataset = dataset


@pytest.fixture
def sites(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    sites = CallSites()
    monkeypatch.setattr(Loader, "__init__", sites.watched(Loader.__init__))
    return sites


def run(source: str, file: object, **names: Any) -> dict[str, Any]:
    names |= {"Loader": Loader}
    exec(compile(source, str(file), "exec"), names)
    return names


def test_the_line_is_that_of_the_call(sites, tmp_path):
    made = run("\n\nloader = Loader(\n    [1],\n)", tmp_path / "src" / "data.py")

    assert sites.of(made["loader"]) == {"made_at": "src/data.py:3"}


def test_a_library_that_makes_it_is_named_with_the_line_that_calls_the_library(sites, tmp_path):
    library = run("def train(data): return Loader(data)", f"{INSTALLED}/transformers/trainer.py")
    made = run("loader = train([1])", tmp_path / "train.py", train=library["train"])

    assert sites.of(made["loader"]) == {"made_at": "train.py:1", "made_by": "transformers"}


@pytest.mark.parametrize(
    "fabric", ["lightning/fabric/utilities/data.py", "lightning_fabric/utilities/data.py"]
)
def test_what_wraps_every_call_is_not_its_maker(sites, tmp_path, fabric):
    wrapper = run("def wrapped(data): return Loader(data)", f"{INSTALLED}/{fabric}")
    made = run("loader = wrapped([1])", tmp_path / "train.py", wrapped=wrapper["wrapped"])

    assert sites.of(made["loader"]) == {"made_at": "train.py:1"}


def test_a_loader_that_a_library_rebuilds_is_the_programs_own(sites, tmp_path):
    library = run(
        "def prepare(loader): return Loader(loader.dataset)",
        f"{INSTALLED}/accelerate/data_loader.py",
    )
    made = run(
        "own = Loader([1])\nother = Loader([2])\n\nloader = prepare(own)",
        tmp_path / "train.py",
        prepare=library["prepare"],
    )

    assert sites.of(made["loader"]) == {"made_at": "train.py:1"}


def test_a_file_outside_the_working_folder_keeps_its_name(sites):
    assert sites.of(run("loader = Loader([1])", "/elsewhere/my_loader.py")["loader"]) == {
        "made_at": "***/my_loader.py:1"
    }


@pytest.mark.parametrize("file", ["<stdin>", "/elsewhere/2024-01-15.py"])
def test_a_file_whose_name_is_masked_is_no_place(sites, file):
    assert sites.of(run("loader = Loader([1])", file)["loader"]) == {}


def test_loaders_from_before_and_those_that_cannot_be_hashed_have_no_line(sites):
    class Unhashable(Loader):
        __hash__ = None  # type: ignore[assignment]

    assert sites.of(object()) == sites.of(Unhashable([1])) == {}
