"""Runs a case: recorded by feedline, and plainly with the program's own timers, fault and twin in
turns.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import files
from faults.cases import Fault, Healthy, Side
from faults.conditions import Place, place
from twins import in_turns

PROGRAMS = Path(__file__).parent / "programs"
TIMES = "FAULT_SUITE_TIMES"
CPUS = 2  # with more, some of the faults were none
LIMIT_S = 180.0
FEEDLINE = ("-m", "feedline", "run", "-q", "-f")
Report = dict[str, Any]
Settings = dict[str, int | bool]


class Failed(Exception):
    """A training did not end well; what it printed last is the message."""


@dataclass(frozen=True)
class Timed:
    """What a program's own timers say of a plain run, without its first step."""

    samples_per_s: float
    step_s: float
    input_share: float


@dataclass(frozen=True)
class Said:
    """A finding, as far as it is judged.

    Attributes:
        cost_s: seconds per step that it says the fault costs, about or at most.
        predicted: ``from``, ``to`` and, where it has an interval, ``low`` and ``high`` in
            samples/s; empty where the finding has none.
        refused: why there is no prediction; empty where there is one, or the report has neither.
    """

    rule_id: str
    severity: str
    message: str
    fix: str
    cost_s: float
    settings: Settings = field(default_factory=dict)
    predicted: dict[str, float] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True)
class Recorded:
    """What feedline says of a training, beside the timers of the same run.

    Attributes:
        step_s: 0 where it ended before its first step.
        findings: of what limits it, most important first.
        checks: of how it is set up, most severe first.
    """

    verdict: str
    step_s: float
    findings: list[Said]
    checks: list[Said]
    timed: Timed | None


@dataclass(frozen=True)
class Gain:
    """Plain runs with a fault and without.

    Attributes:
        settings: of the loader, that those without it had; empty: the twin's own.
    """

    settings: Settings
    pairs: list[tuple[Timed, Timed]]


def record(case: Fault | Healthy, side: Side, cache: Path, kept: Path | None = None) -> Recorded:
    """Run it under feedline.

    Args:
        kept: where the run folder stays; None: it does not.

    Raises:
        Failed: it did not end well. Unavailable: this machine cannot give its conditions.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out = folder / "report.json"
        timed = run(
            case,
            side,
            cache,
            folder,
            [*FEEDLINE, "-o", str(kept or folder / "run"), "--json", str(out)],
        )
        return recorded(json.loads(out.read_text()), timed)


def read_again(kept: Path, timed: Timed | None) -> Recorded:
    """What feedline says now of a run that was kept."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "report.json"
        ended = subprocess.run(
            [sys.executable, "-m", "feedline", "report", str(kept), "--json", str(out)],
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            raise Failed(ended.stderr[-2000:])
        return recorded(json.loads(out.read_text()), timed)


def recorded(report: Report, timed: Timed | None) -> Recorded:
    findings, checks = report["findings"], (report["convergence"] or {}).get("checks", [])
    return Recorded(
        report["verdict"],
        (report["step"] or {"mean_s": 0.0})["mean_s"],
        list(map(said, findings)),
        list(map(said, checks)),
        timed,
    )


def said(finding: Report) -> Said:
    predicted, refused = finding.get("predicted") or {}, finding.get("refused") or ""
    return Said(
        finding["cause"],
        finding["severity"],
        finding["says"],
        finding["fix"],
        finding["cost_s"] or 0.0,
        finding.get("settings", {}),
        {key: value for key, value in predicted.items() if value is not None},
        str(refused.get("reason", refused) if isinstance(refused, dict) else refused),
    )


def plain(
    case: Fault | Healthy, side: Side, cache: Path, settings: Settings | None = None
) -> Timed | None:
    """Run it without feedline, with these arguments of its loader; None: it was too short for its
    workers.

    Raises:
        Failed, Unavailable: as for ``record``.
    """
    more = (
        ["--set", ",".join(f"{name}={value}" for name, value in settings.items())]
        if settings
        else []
    )
    with tempfile.TemporaryDirectory() as name:
        return run(case, side, cache, Path(name), [], more)


def gain(case: Fault, cache: Path, settings: Settings, rounds: int) -> Gain:
    """Measure the training with its fault and without, one after the other.

    Args:
        settings: of the loader, that the finding names. The training with its fault has them then,
            or the twin, where the finding names them besides; without any, it is the training that
            is fixed as the finding advises, or the twin.
    """
    without = case.fault if settings and not case.by_twin else case.fixed or case.twin

    def measure(which: str) -> Timed | None:
        return (
            plain(case, case.fault, cache)
            if which == "fault"
            else plain(case, without, cache, settings)
        )

    pairs = [
        (found["fault"], found["without"])
        for found in in_turns(("fault", "without"), measure, rounds)
    ]
    return Gain(settings, [(before, after) for before, after in pairs if before and after])


def run(
    case: Fault | Healthy,
    side: Side,
    cache: Path,
    folder: Path,
    python: list[str],
    more: list[str] | None = None,
) -> Timed | None:
    """Run its program to its end, in these conditions."""
    for kind in case.files:
        files.of(kind, cache)
    times = folder / "times.json"
    with place(side.conditions, cache) as where:
        arguments = [*shlex.split(side.arguments.format(**where.words)), *(more or [])]
        command = [
            *where.prefix,
            *pinned(),
            sys.executable,
            *python,
            str(PROGRAMS / case.program),
            *arguments,
        ]
        environment = {
            **os.environ,
            TIMES: str(times),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "NO_ALBUMENTATIONS_UPDATE": "1",
        }
        start(case.ranks, command, where, environment, folder, side.exit_code)
    return Timed(**json.loads(times.read_text())) if times.exists() else None


def pinned() -> list[str]:
    """Words before a command that give it the first CPUs; none where there are no more."""
    cpus = sorted(os.sched_getaffinity(0))
    return [] if len(cpus) <= CPUS else ["taskset", "-c", ",".join(map(str, cpus[:CPUS]))]


def start(
    ranks: int,
    command: list[str],
    where: Place,
    environment: dict[str, str],
    folder: Path,
    exit_code: int = 0,
) -> None:
    """One process, or one for each rank, to their end.

    Raises:
        Failed: one of them did not end with this code.
    """
    if where.lab is not None:
        try:
            return where.lab.together(ranks, command, folder, LIMIT_S, environment)
        except RuntimeError as error:
            raise Failed(str(error)[-2000:]) from error
    logs = [folder / f"{rank}.log" for rank in range(ranks)]
    started = []
    for rank, log in enumerate(logs):
        with log.open("wb") as out:
            own = environment if ranks == 1 else environment | variables(rank, ranks)
            started.append(
                subprocess.Popen(
                    command, cwd=folder, env=own, stdout=out, stderr=out, start_new_session=True
                )
            )
    wait(started, logs, exit_code)


def wait(started: list["subprocess.Popen[bytes]"], logs: list[Path], exit_code: int) -> None:
    try:
        codes = [process.wait(LIMIT_S) for process in started]
    except subprocess.TimeoutExpired as error:
        raise Failed(f"it took more than {LIMIT_S:g} s") from error
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(code != exit_code for code in codes):
        raise Failed("\n".join(log.read_text(errors="replace")[-2000:] for log in logs))


def variables(rank: int, ranks: int) -> dict[str, str]:
    """As torchrun sets them."""
    place = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29531",
        "LOCAL_WORLD_SIZE": str(ranks),
        "TORCHELASTIC_RUN_ID": "faults",
    }
    return place | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
    }
