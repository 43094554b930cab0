"""What a manifest says of a run that has not ended, here and from another machine."""

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from golden.record import RUNS

from feedline.analysis.explain.reports_of_run import of_process
from feedline.profiler import proc
from feedline.profiler.session.session import machine
from feedline.profiler.store.layout import MANIFEST
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.trainings import open_run

HOUR_S = 3600.0


def read(rank: Path, home: str, ago_s: float, **changed: object) -> Manifest:
    """A manifest of this process as it is read after its files were written last."""
    pid = os.getpid()
    written = Manifest(pid=pid, pid_started=proc.started(pid), home=home)
    replace(written, **changed).write(rank)
    (rank / "main.bin").write_bytes(b"")
    for file in rank.iterdir():
        os.utime(file, (time.time() - ago_s,) * 2)
    return Manifest.read(rank)


def test_when_it_was_read_is_known_and_not_stored(tmp_path):
    before = time.time_ns()
    manifest = read(tmp_path, proc.home(), 0.0)

    assert before <= manifest.read_ns <= time.time_ns()
    assert "read_ns" not in json.loads((tmp_path / MANIFEST).read_text())


def test_processes_of_one_kernel_and_namespace_share_a_home_that_names_no_machine():
    home = proc.home()

    assert home == proc.home() and len(home) == 16
    assert os.uname().nodename not in home


@pytest.mark.parametrize(
    ("told", "model"),
    [
        (
            "processor\t: {}\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763\n\n",
            "AMD EPYC 7763",
        ),
        (
            "processor\t: {}\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n\n",
            "0x41 0xd0c",
        ),
        ("processor\t: {}\n\n", ""),
        (None, ""),
    ],
    ids=["x86", "arm", "unnamed", "no such file"],
)
def test_the_model_of_the_cpu_is_told_as_the_kernel_names_it(tmp_path, told, model):
    path = tmp_path / "cpuinfo"
    if told is not None:
        path.write_text("".join(map(told.format, range(2))))

    assert proc.cpu_model(str(path)) == model


def test_a_manifest_keeps_the_model_of_the_cpu(tmp_path):
    kept = read(tmp_path, proc.home(), 0.0, machine=machine()).machine

    assert kept.get("cpu_model", "") == proc.cpu_model()
    named = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    assert not named or named[0].endswith(f": {kept['cpu_model']}")


@pytest.mark.parametrize("ago_s", [0.0, HOUR_S])
def test_here_the_process_itself_tells(tmp_path, ago_s):
    assert read(tmp_path, proc.home(), ago_s).state == "live"
    assert read(tmp_path, proc.home(), ago_s, pid_started=1).state == "cut"


@pytest.mark.parametrize(("ago_s", "state"), [(6.0, "live"), (HOUR_S, "cut")])
def test_on_another_machine_its_files_tell(tmp_path, ago_s, state):
    """A process there has this pid, or none has: a rank of another node, a container of this one."""
    assert read(tmp_path, "another", ago_s).state == state
    assert read(tmp_path, "another", ago_s, pid_started=1).state == state
    assert read(tmp_path, "another", ago_s, ended=True).state == "finished"
    assert "silent_s" not in (tmp_path / "manifest.json").read_text()


def test_the_last_of_several_trainings_of_a_process_elsewhere_lives_as_the_process_does(tmp_path):
    shutil.copytree(RUNS / "sweep", tmp_path / "run")
    rank = tmp_path / "run" / "rank0"
    facts = json.loads((rank / "manifest.json").read_text())
    (rank / "manifest.json").write_text(json.dumps({**facts, "home": "another", "ended": False}))

    first, last = of_process(open_run(tmp_path / "run"), None)

    assert first.ranks[0].manifest.state == "finished"
    assert last.ranks[0].manifest.state == "live"
