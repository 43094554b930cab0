"""What a program under feedline has imported: what it imports itself, feedline, and next to nothing
else.
"""

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from feedline.profiler.arrivals import _ImportArrivals

LISTS = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, sep="\\n"))
"""
#: Small modules of Python's and numpy's that feedline needs, and those that argparse needs to read
#: its command line.
ALLOWED = {
    "encodings.ascii",
    "encodings.utf_16_le",  # names in stacks of wide strings
    "encodings.utf_32_le",
    "multiprocessing.queues",
    "numpy._typing._add_docstring",
    "numpy.typing",
    "resource",
    "shlex",
}


def modules(folder: Path, script: str, *before: str) -> set[str]:
    """The modules that a program has at its end."""
    (folder / "script.py").write_text(LISTS + script)
    command = [sys.executable, *before, "script.py"]
    return set(
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True
        ).stdout.split()
    )


def test_a_program_that_only_imports_torch_has_imported_what_it_has_without_feedline(
    tmp_path: Path,
) -> None:
    plain = modules(tmp_path, "import torch; print()")
    recorded = modules(
        tmp_path, "import torch; print()", "-m", "feedline", "run", "-q", "-o", "run"
    )

    more = {
        name
        for name in recorded - plain
        if name.partition(".")[0] not in ("feedline", "__editable___feedline_0_1_0_finder")
    }
    assert more <= ALLOWED
    assert "feedline.profiler.taps.training" in recorded  # it was recorded
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        ".feedline",
        "rank0",
    ]  # and no report was made of nothing


#: A later second of the program counts too: feedline has a thread of its own.
EARLY = """
import sys, time
HEAVY = {"numpy", "torch", "pandas", "pyarrow"}
print(*HEAVY & set(sys.modules), "at the start")
time.sleep(0.6)
print(*HEAVY & set(sys.modules), "later")
"""
RUN = ("-m", "feedline", "run", "-q", "-o", "run")


@pytest.mark.parametrize(
    ("before", "environ"),
    [
        ((*RUN, "script.py"), {}),
        ((*RUN, "-m", "script"), {}),
        ((*RUN, "--set", "num_workers=2", "--torch-profiler", "2:3", "script.py"), {}),
        ((*RUN, "--", sys.executable, "script.py"), {}),
        ((*RUN, "--", sys.executable, "-m", "script"), {}),
        (("script.py",), {"FEEDLINE": "1"}),
        (("recorded.py",), {}),
    ],
    ids=["script", "module", "changed", "command", "command-module", "followed", "record"],
)
def test_a_program_may_set_the_threads_of_numpy_before_it_imports_it(
    before: tuple[str, ...], environ: dict[str, str], tmp_path: Path
) -> None:
    """OMP_NUM_THREADS and its like are read when numpy or torch is imported, and never again."""
    (tmp_path / "script.py").write_text(EARLY)
    (tmp_path / "recorded.py").write_text(
        "import feedline\nwith feedline.record('run'):\n    import script\n"
    )
    ended = subprocess.run(
        [sys.executable, *before],
        cwd=tmp_path,
        env=os.environ | environ,
        check=True,
        capture_output=True,
        text=True,
    )

    assert [line.strip() for line in ended.stdout.splitlines()][:2] == ["at the start", "later"]


def test_a_program_without_torch_imports_nothing_heavy(tmp_path: Path) -> None:
    recorded = modules(tmp_path, "print()", "-m", "feedline", "run", "-q", "-o", "run")

    heavy = {
        "numpy",
        "torch",
        "wrapt",
        "asyncio",
        "importlib.metadata",
        "email",
        "pandas",
        "pyarrow",
        "rich",
        "jinja2",
        "nvtx",
        "msgspec",
    }
    assert not heavy & recorded
    assert "feedline.profiler.session.session" in recorded


def test_a_report_of_a_quiet_run_without_a_record_can_still_be_made(tmp_path: Path) -> None:
    modules(tmp_path, "print()", "-m", "feedline", "run", "-q", "-o", "run")
    made = subprocess.run(
        [sys.executable, "-m", "feedline", "report", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert made.returncode == 0 and "o training step was recorded" in " ".join(made.stdout.split())
    assert (tmp_path / "run" / "report.json").exists()


COMPACT = """
import sys
from pathlib import Path
from feedline.profiler.store.compact import compact, read_compact
from feedline.profiler.store.layout import main_segment
from feedline.profiler.store.segment import Segment

folder = Path(sys.argv[1])
segment = Segment(main_segment(folder), {"role": "main", "pid": 1})
for number in range(1000):
    segment.add(29, 10 * number, number)
segment.close()
compact(folder)
(process,) = read_compact(folder)
assert process.records["start"].tolist() == list(range(0, 10000, 10)) and process.records["wall"].sum() == 499500
print(*sys.modules, sep="\\n")
"""


def test_records_are_compacted_and_read_back_without_pandas(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", COMPACT, str(tmp_path)], check=True, capture_output=True, text=True
    )

    assert "pyarrow" in ended.stdout.split() and "pandas" not in ended.stdout.split()


@pytest.fixture
def arrivals() -> Iterator[_ImportArrivals]:
    """Of this test alone; nothing of it stays in sys.meta_path."""
    before = list(sys.meta_path)
    yield (made := _ImportArrivals())
    sys.meta_path[:] = before
    del made


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module that can be imported under the name awaited_one."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path / "awaited_one.py"
    sys.modules.pop("awaited_one", None)


def test_a_module_is_told_of_when_it_has_run_and_has_a_loader_of_its_own(
    arrivals: _ImportArrivals, module: Path
) -> None:
    module.write_text("loader, value = __loader__, 1\n")
    seen: list[tuple[ModuleType, int]] = []
    arrivals.when_imported("awaited_one", lambda one: seen.append((one, one.value)))

    assert (
        importlib.util.find_spec("awaited_one") is not None and not seen
    )  # to look for it is not to import it
    made = importlib.import_module("awaited_one")

    assert seen == [(made, 1)]
    own = importlib.machinery.SourceFileLoader
    assert type(made.__loader__) is type(made.__spec__.loader) is type(made.loader) is own


def test_a_module_whose_import_failed_is_awaited_again(
    arrivals: _ImportArrivals, module: Path
) -> None:
    module.write_text("raise ValueError('not yet')\n")
    seen: list[ModuleType] = []
    arrivals.when_imported("awaited_one", seen.append)
    with pytest.raises(ValueError, match="not yet"):
        importlib.import_module("awaited_one")
    assert not seen

    module.write_text("value = 'longer than before'\n")
    importlib.invalidate_caches()

    assert seen == [] and importlib.import_module("awaited_one") is seen[0]


def test_a_module_that_is_there_is_told_of_at_once_and_one_waited_for_no_more_never(
    arrivals: _ImportArrivals, module: Path
) -> None:
    module.write_text("")
    seen: list[ModuleType] = []
    wait_no_more = arrivals.when_imported("awaited_one", seen.append)
    assert arrivals in sys.meta_path
    wait_no_more()
    assert arrivals not in sys.meta_path

    made = importlib.import_module("awaited_one")
    assert not seen
    arrivals.when_imported("awaited_one", seen.append)
    assert seen == [made]


def test_a_lazy_module_is_told_of_when_it_runs(arrivals: _ImportArrivals, module: Path) -> None:
    module.write_text("value = 1\n")
    seen: list[ModuleType] = []
    arrivals.when_imported("awaited_one", seen.append)
    spec = importlib.util.find_spec("awaited_one")
    assert spec is not None and spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    lazy = importlib.util.module_from_spec(spec)
    sys.modules["awaited_one"] = lazy
    spec.loader.exec_module(lazy)
    assert not seen

    assert lazy.value == 1 and seen == [lazy]
