"""What Python does at its start below ``feedline run``, and what it must not do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from feedline.profiler.follow.recording_settings import ON_PATH, RecordingSettings


def python(program: str, folder: Path, *flags: str, **environ: str) -> list[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "FEEDLINE_RUN", "FEEDLINE")
    }
    command = [sys.executable, *flags, "-c", program]
    return subprocess.run(
        command, env=inherited | environ, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def recording(folder: Path) -> dict[str, str]:
    return RecordingSettings(0, str(folder / "run")).variables({})


def test_a_process_without_torch_imports_one_module_of_feedline_and_nothing_else(tmp_path):
    program = "import sys; print(*sorted(sys.modules))"
    plain = set(python(program, tmp_path)[0].split())
    followed = set(python(program, tmp_path, **recording(tmp_path))[0].split())

    parts = {
        "feedline",
        "feedline.profiler",
        "feedline.profiler.follow",
        "feedline.profiler.follow.start",
    }
    assert {name for name in followed - plain if name.startswith("feedline")} == parts
    assert len(followed - plain - parts) < 20, sorted(
        followed - plain
    )  # typing, where nothing else needs it
    assert not followed & {"json", "wrapt", "numpy", "importlib.metadata", "subprocess"}


def test_the_programs_own_sitecustomize_runs_and_sees_its_own_path(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys; sys.own = [__name__, __file__, *sys.path]"
    )
    environ = recording(tmp_path)
    path = os.pathsep.join([environ["PYTHONPATH"], str(tmp_path / "site")])
    program = "import sys, sitecustomize; print(*sys.own, sep='\\n'); print(sitecustomize.__file__)"

    plain = python(program, tmp_path, PYTHONPATH=str(tmp_path / "site"))
    followed = python(program, tmp_path, FEEDLINE_RUN=environ["FEEDLINE_RUN"], PYTHONPATH=path)

    assert followed == plain


@pytest.mark.parametrize("path", ["lib:", ":lib", "lib::other", ":", ""])
def test_the_working_directory_stays_on_the_programs_path(path, tmp_path):
    """An empty part of PYTHONPATH is that; an empty PYTHONPATH is none."""
    given = {"PYTHONPATH": path}
    followed = RecordingSettings(0, str(tmp_path / "run")).variables(given)
    program = "import sys; print(*sys.path, sep='\\n')"

    assert python(program, tmp_path, **followed) == python(program, tmp_path, **given)


def test_an_error_in_the_programs_own_sitecustomize_is_told_as_python_tells_it(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import nothing_of_that_name")
    path = os.pathsep.join([ON_PATH, str(tmp_path)])
    command = [sys.executable, "-c", "print('goes on')"]
    ended = subprocess.run(
        command, env={"PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True
    )

    assert (ended.returncode, ended.stdout) == (0, "goes on\n")
    assert "No module named 'nothing_of_that_name'" in ended.stderr


def test_feedline_0_asks_for_nothing(tmp_path):
    program = (
        "import sys; print([type(finder).__module__ for finder in sys.meta_path if "
        "type(finder).__module__.startswith('feedline')])"
    )

    assert python(program, tmp_path, FEEDLINE="0") == ["[]"]
    assert python(program, tmp_path, FEEDLINE="1") == ["['feedline.profiler.follow.start']"]


def test_a_place_on_the_path_that_is_no_text_is_left_out_of_the_settings(tmp_path):
    """As Python's own imports leave it out."""
    program = (
        "import pathlib, sys; texts = list(sys.path); sys.path.insert(0, pathlib.Path('lib')); "
        "from feedline.profiler.follow.recording_settings import RecordingSettings as Settings; "
        "Settings.of_this_process().export(); print(list(Settings.read().path) == texts)"
    )

    assert python(program, tmp_path) == ["True"]
