"""A run that does not exist, beside one of a similar name."""

import pytest

from feedline.profiler.errors import RunNotFound
from feedline.profiler.store.run_folder import Run


@pytest.mark.parametrize("typed", ["bas", "runs/bsae"])
def test_a_run_with_a_similar_name_is_suggested(tmp_path, monkeypatch, typed):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/base/rank0").mkdir(parents=True)
    (tmp_path / "runs/bases.txt").write_text("no run")
    (tmp_path / "runs/other/rank0").mkdir(parents=True)

    with pytest.raises(RunNotFound, match=f"no run folder {typed} .did you mean runs/base[?]."):
        Run.of_folder(tmp_path.relative_to(tmp_path) / typed)
