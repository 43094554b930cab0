"""What only a real GPU can tell. ``scripts/gpu-check`` runs these and measures more."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).with_name("training.py")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def train(folder: Path, *options: str, program: tuple[str, ...] = ()) -> tuple[str, dict]:
    out = folder / "out.json"
    command = [
        sys.executable,
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        folder / "run",
        "--json",
        out,
        *options,
        PROGRAM,
        *program,
    ]
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    return done.stdout, json.loads(out.read_text())


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    return *train(folder, "--torch-profiler", "6:3"), folder / "run"


def test_every_stage_is_timed(watched):
    _, report, _ = watched

    assert set(report["step"]["gpu_stages"]) == {
        "copy",
        "forward",
        "backward",
        "gradients",
        "optimizer",
    }
    assert all(seconds > 0 for seconds in report["step"]["gpu_stages"].values())


def test_no_stage_takes_the_gpu_longer_than_the_run(watched):
    _, report, _ = watched

    assert sum(report["step"]["gpu_stages"].values()) < 2 * report["step"]["mean_s"]


def test_parameters_are_bit_identical(watched):
    printed, *_ = watched

    assert (
        printed
        == subprocess.run(
            [sys.executable, PROGRAM], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    )


def test_the_window_holds_kernels(watched):
    *_, run = watched

    events = json.loads(gzip.open(run / "rank0" / "kineto.json.gz").read())["traceEvents"]
    assert any(event.get("cat") == "kernel" for event in events)


def test_a_training_on_the_cpu_gets_no_context_from_feedline(tmp_path):
    program = tmp_path / "cpu.py"
    program.write_text(
        f"import runpy, sys, torch; sys.argv = ['training.py', 'cpu']; "
        f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n"
        "print('context:', torch.cuda.is_initialized())\n"
    )
    out = tmp_path / "out.json"
    command = [
        sys.executable,
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        tmp_path / "run",
        "--json",
        out,
        program,
    ]
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )

    assert "context: False" in done.stdout
    assert json.loads(out.read_text())["step"]["gpu_stages"] is None
