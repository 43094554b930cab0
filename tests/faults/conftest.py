"""Programs that end badly, machines that lack something, and run folders that were damaged."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any

import pytest
from warm_python import Program, WarmPython

from feedline.profiler.samplers.processes import descendants

FEEDLINE = [sys.executable, "-m", "feedline"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("PYTHONSAFEPATH", None)  # with it, a script could not import what lies beside it

#: A training that writes down each update that it has finished, through a file opened with
#: O_APPEND: what is written survives SIGKILL.
TRAINING = """
    import os, signal, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    log = os.open("updates", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    class Numbers(Dataset):
        made = os.open("samples", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def __len__(self):
            return SAMPLES

        def __getitem__(self, index):
            time.sleep(0.001)
            x = torch.full((8,), index / SAMPLES)
            os.write(self.made, b"%d\\n" % index)
            return x

    SAMPLES = int(sys.argv[1])

    if __name__ == "__main__":
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(2):
            for x in DataLoader(Numbers(), batch_size=4, num_workers=2):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
                os.write(log, b"update\\n")
        print("trained")
"""


@dataclass
class Workshop:
    """A folder with programs in it, and ways to run them.

    Attributes:
        folder: where programs lie and run.
        run: the run folder.
        json: the report of ``recorded``.
        warm: for programs that need torch, and whose beginning is not what is tested.
    """

    folder: Path
    warm: WarmPython
    started: list[Popen[str]] = field(default_factory=list)

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def json(self) -> Path:
        return self.folder / "out.json"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def training(self) -> Path:
        return self.write("train.py", TRAINING)

    def execute(
        self, *command: object, environment: Mapping[str, str] = ENVIRONMENT
    ) -> CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def plain(self, *program: object) -> CompletedProcess[str]:
        return self.execute(sys.executable, *program)

    def recorded(
        self, *program: object, options: tuple[str, ...] = ("-q", "-f")
    ) -> CompletedProcess[str]:
        return self.execute(
            *FEEDLINE, "run", *options, "-o", self.run, "--json", self.json, *program
        )

    def recorded_warm(
        self,
        *program: object,
        options: tuple[str, ...] = ("-q", "-f"),
        environment: Mapping[str, str] = ENVIRONMENT,
    ) -> CompletedProcess[str]:
        places = ("-o", self.run, "--json", self.json)
        return self.warm.run(
            "-m",
            "feedline",
            "run",
            *options,
            *places,
            *program,
            folder=self.folder,
            environment=environment,
        )

    def feedline(self, *words: object) -> CompletedProcess[str]:
        """A command that records nothing."""
        return self.warm.run("-m", "feedline", *words, folder=self.folder, environment=ENVIRONMENT)

    def start(self, *command: object) -> Popen[str]:
        """Start a command and go on; it ends with the test."""
        process = Popen(
            [str(part) for part in command],
            cwd=self.folder,
            env=ENVIRONMENT,
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            start_new_session=True,
            # A shell's background job ignores it, and so would all that the tests start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.started.append(process)
        return process

    def start_warm(self, *program: object) -> Program:
        """``feedline run`` of a program, which goes on."""
        options = ("run", "-q", "-o", self.run, "--json", self.json)
        return self.warm.start(
            "-m", "feedline", *options, *program, folder=self.folder, environment=ENVIRONMENT
        )

    def report(self) -> dict[str, Any]:
        """The report that ``feedline run`` left."""
        return json.loads(self.json.read_text())

    def report_again(self) -> dict[str, Any]:
        """What ``feedline report`` says of the run folder as it is now."""
        file = self.folder / "again.json"
        done = self.feedline("report", "-q", self.run, "-f", "-o", file)
        assert done.returncode == 0, done.stderr
        return json.loads(file.read_text())

    def lines(self, name: str) -> int:
        path = self.folder / name
        return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture
def workshop(tmp_path: Path, warm_python: WarmPython):
    shop = Workshop(tmp_path, warm_python)
    yield shop
    for process in shop.started:
        if process.poll() is None:
            kill_tree(process.pid)
        # to the end of what it printed: whoever of the tree still lived would be waited for
        process.communicate()


def kill_tree(pid: int) -> None:
    """SIGKILL a process and every one below it. They are stopped first: a worker forked in the
    middle of the killing would be missed, and torch's worker ends by itself only if its parent
    lived when it looked first."""
    stopped: set[int] = set()
    while tree := {pid, *descendants(pid)} - stopped:
        for one in tree:
            send(one, signal.SIGSTOP)
        stopped |= tree
    for one in stopped:
        send(one, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that may have ended just now."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@pytest.fixture(scope="session")
def run_of_five_steps(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    """A finished run folder, to be copied."""
    shop = Workshop(tmp_path_factory.mktemp("five"), warm_python)
    script = shop.write(
        "train.py",
        """
        import torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            model(torch.randn(8, 4)).mean().backward()
            optimizer.step()
        """,
    )
    done = shop.recorded_warm(script)
    assert done.returncode == 0, done.stderr
    return shop.run


InOwnMounts = Callable[..., list[str]]


@pytest.fixture(scope="session")
def own_mounts() -> InOwnMounts:
    """Gives the command that runs another one where a shell script has changed the mounts: for that
    command only.
    """
    base = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare command here")
    tried = subprocess.run(
        [*base, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True
    )
    if tried.returncode:
        pytest.skip(f"a program cannot have mounts of its own here: {tried.stderr.strip()}")

    def command(script: str, *arguments: object) -> list[str]:
        return [*base, "sh", "-c", script, "sh", *map(str, arguments)]

    return command
