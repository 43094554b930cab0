"""The folder names profiler, analysis, pipelines and convergence stay free for the user's own
modules.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMES = ["profiler", "analysis", "pipelines", "convergence"]


def python(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_this_repository_refuses_its_bare_name(name):
    done = python("-c", f"import {name}", cwd=ROOT)

    assert done.returncode == 1
    assert f"ImportError: import feedline.{name}, not {name}" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_full_name_works_from_the_repository_root(name):
    done = python("-c", f"import feedline.{name} as m; print(m.__name__)", cwd=ROOT)

    assert (done.returncode, done.stdout) == (0, f"feedline.{name}\n"), done.stderr


def test_modules_of_those_names_beside_a_script_are_the_users_own(tmp_path):
    (tmp_path / "profiler.py").write_text("whose = 'user'")
    (tmp_path / "pipelines.py").write_text("whose = 'user'")
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis" / "__init__.py").write_text("")
    (tmp_path / "analysis" / "rules.py").write_text("whose = 'user'")
    script = tmp_path / "train.py"
    script.write_text(
        "import feedline, feedline.profiler, feedline.analysis, feedline.pipelines\n"
        "import profiler, pipelines, analysis.rules\n"
        "print(profiler.whose, pipelines.whose, analysis.rules.whose)\n"
    )

    done = python(str(script), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "user user user\n"), done.stderr
