"""What is written down of texts and paths that the machine or the program gave."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import feedline
from feedline.profiler import masks

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def bobs_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/bob")
    monkeypatch.setenv("USER", "bob")


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (
            "[Errno 2] No such file: '/home/bob/thesis/notes.bin'",
            "[Errno 2] No such file: '~/***.bin'",
        ),
        ("cannot read /scratch/bob/data (gone)", "cannot read ***/data (gone)"),
        ("cannot read file:/scratch/bob/train.log", "cannot read file:***/train.log"),
        (
            "/usr/lib/python3/dist-packages/torch/nn/x.py has no step",
            "dist-packages/torch/nn/x.py has no step",
        ),
        ("/proc/stat: Permission denied", "/proc/stat: Permission denied"),
        ("https://bob:pw@host/x?sig=1 did not answer", "https://*** did not answer"),
        ("login failed: password=hunter2, user: bob", "login failed: password=***, user: ***"),
        ("Authorization: Bearer abc123def", "Authorization: Bearer ***"),
        ("ghp_" + "a1B2" * 9 + " is refused", "*** is refused"),
        (
            "module 'torch' has no attribute 'x'; 12 B/s, a/b and 3 / 4",
            "module 'torch' has no attribute 'x'; 12 B/s, a/b and 3 / 4",
        ),
    ],
)
def test_a_text_loses_folders_hosts_and_tokens_and_stays_readable(said, written):
    assert masks.text(said) == written


def test_a_path_below_the_working_directory_is_relative_in_a_text(tmp_path):
    assert (
        masks.text(f"{tmp_path}/runs/mine/events.parquet cannot be read")
        == "runs/mine/events.parquet cannot be read"
    )


@pytest.mark.parametrize(
    ("file", "written"),
    [
        ("/home/bob/thesis/my_loader.py", "~/***/my_loader.py"),
        ("/scratch/tools/misc.py", "***/misc.py"),
        ("/scratch/tools/train.py", "***/train.py"),
        ("/scratch/bob.py", "***.py"),
        ("/scratch/2024-01-15.py", "***.py"),
        ("/scratch/hf_" + "a1B2" * 9 + ".py", "***.py"),
        ("/scratch/a1B2c3D4e5F6g7.py", "***.py"),
        ("/scratch/swordfish", "***"),
        ("<string>", "***"),
        ("/usr/lib/python3/dist-packages/tools/misc.py", "dist-packages/tools/misc.py"),
    ],
)
def test_a_line_to_change_has_its_file_wherever_it_is(file, written):
    assert masks.source(file) == written


def test_an_error_of_the_programs_own_code_is_told_by_its_type_alone():
    with pytest.raises(ValueError) as caught:
        exec(
            compile("def f(): raise ValueError('swordfish')\nf()", "/home/bob/train.py", "exec"), {}
        )

    assert masks.error(caught.value) == "ValueError (raised in the program's own code)"


def test_an_error_of_a_library_keeps_names_in_quotes_and_no_other_text_in_quotes():
    said = [
        failure(lambda: int("x7Kq2Zp9")),
        failure(lambda: object().fetch),
        failure(lambda: open("/home/bob/thesis.bin")),
    ]  # type: ignore[attr-defined]

    assert said == [
        "ValueError: invalid literal for int() with base 10: '***'",
        "AttributeError: 'object' object has no attribute 'fetch'",
        "FileNotFoundError: No such file or directory: ~/***.bin",
    ]


def failure(of) -> str:
    try:
        of()
    except Exception as error:
        return masks.error(error.with_traceback(None))
    raise AssertionError("it did not fail")


def test_a_run_is_where_its_owner_finds_it_again(tmp_path):
    assert masks.place(tmp_path / "runs/mine") == masks.place(Path("runs/mine")) == "runs/mine"
    assert masks.place(Path("/home/bob/runs/mine")) == "~/runs/mine"
    assert masks.place(Path("/scratch/carol/runs/mine")) == "***/mine"


def test_what_may_reach_a_run_folder_never_words_an_exception_by_itself():
    """f"{error}" of somebody's exception can hold anything: masks.error says what may be kept. What
    is printed, and what a source of gauges says of the machine, is another matter."""
    printed = {"session/selftest.py", "session/api.py", "masks.py", "samplers/source.py"}
    wording = re.compile(r"\{type\((error|raised)\)\.__name__\}|repr\(error\)|error!r")
    files = {
        str(path.relative_to(ROOT / "profiler")): path for path in (ROOT / "profiler").rglob("*.py")
    }

    assert printed <= set(files)
    assert [
        name
        for name, path in files.items()
        if name not in printed and wording.search(path.read_text())
    ] == []


def test_feedlines_own_frames_are_known_where_it_is_imported_through_a_link(tmp_path):
    linked = tmp_path / "linked" / "feedline"
    linked.mkdir(parents=True)
    for source in (Path(feedline.__file__), Path(masks.__file__).parent):
        (linked / source.name).symlink_to(source)
    program = (
        "from feedline.profiler import masks; print(masks.__file__, masks.library(masks.__file__))"
    )
    environment = {**os.environ, "PYTHONPATH": str(linked.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == [str(linked / "profiler" / "masks.py"), masks.FEEDLINE]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/sys/fs/cgroup/system.slice/actions.runner.acme-secret.box7.service", "***"),
        ("/sys/fs/cgroup/user.slice/user-1001.slice/memory.max", "***/memory.max"),
        ("/sys/fs/cgroup/cpu,cpuacct/slurm/uid_1001/cpu.cfs_quota_us", "***/cpu.cfs_quota_us"),
        ("/sys/fs/cgroup/acme/memory.service", "***"),
    ],
)
def test_control_groups_are_not_named(path, shown):
    """They are named after users, services, hosts and repositories."""
    assert masks.path(path) == f"/sys/fs/cgroup/{shown}"
    assert masks.path("/sys/fs/cgroup") == "/sys/fs/cgroup"


def test_a_text_names_no_control_group_either():
    said = masks.text("at /sys/fs/cgroup/acme.slice/cpu.max: Permission denied")

    assert said == "at /sys/fs/cgroup/***/cpu.max: Permission denied"
