"""What is in the tree is in the wheel: setup.cfg lists packages and data files by hand."""

import configparser
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "feedline": "feedline",
    **{name: f"feedline/{name}" for name in ("profiler", "analysis", "pipelines", "convergence")},
}


START = "feedline.pth"  # beside the packages: scripts/build_backend.py


def tree() -> set[str]:
    """Every file of the package's folders but what is to be read in the repository, under its name
    in a wheel.
    """
    files = set()
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md":
                files.add(f"{package}/{path.relative_to(ROOT / folder).as_posix()}")
    return files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """A wheel built from an sdist built from a copy of the tree, so that nothing of an earlier
    build gets in.
    """
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "scripts").mkdir()
    for name in (
        "setup.cfg",
        "pyproject.toml",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
        "scripts/build_backend.py",
    ):
        shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copy)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_wheel_holds_exactly_the_files_of_the_tree(wheel):
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name} - {START}

    assert sorted(tree() - packed) == []
    assert sorted(packed - tree()) == []


def test_the_wheel_keeps_the_range_of_torch_open(wheel):
    metadata = wheel.read(
        next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    ).decode()

    assert "Requires-Dist: torch>=2.8\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata


def test_every_package_that_setup_cfg_asks_for_is_pinned():
    config = configparser.RawConfigParser()
    config.read(ROOT / "setup.cfg")
    lists = [
        config["options"]["install_requires"],
        *(
            config["options.extras_require"][name]
            for name in ("converge", "demo", "docs", "test", "programs", "bench")
        ),
    ]
    asked = {
        line.split(">=")[0].partition(";")[0].strip()
        for text in lists
        for line in text.split()
        if "[" not in line
    }
    pinned = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }

    assert {name.lower() for name in asked} <= pinned


def test_an_installed_wheel_begins_feedline_where_it_is_asked_for_and_leaves_with_pip(
    wheel, tmp_path
):
    target = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
        "--target",
        str(target),
        str(wheel.filename),
    ]
    subprocess.run(install, check=True)
    program = (
        "import site, sys; site.addsitedir(sys.argv[1]); "
        "print(type(sys.meta_path[0]).__module__ == 'feedline.profiler.follow.start')"
    )

    def begins(**environ):
        command = [sys.executable, "-S", "-c", program, str(target)]
        return subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    record = next(target.glob("feedline-*.dist-info")) / "RECORD"
    assert (begins(), begins(FEEDLINE="0"), begins(FEEDLINE="1")) == ("False", "False", "True")
    assert f"{START},sha256=" in record.read_text()
