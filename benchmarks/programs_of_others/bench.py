"""Runs a program as it is, with timers made by hand and under feedline."""

import contextlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from programs_of_others.judge import (
    INPUT_STAGES,
    OF_THE_LOADER,
    Facts,
    Said,
    Tried,
    counts_are_true,
    judge,
)
from programs_of_others.program import Counts, Program
from programs_of_others.timers import ByHand, read

LIMIT_S = 240
SHIM = Path(__file__).with_name("shim")
AS_COMMAND = ("torchrun", "accelerate", "bash", "python")


@dataclass(frozen=True)
class Outcome:
    """What one run of a program left.

    Attributes:
        others_cpus: how many CPUs were in use by others meanwhile.
    """

    code: int
    out: str
    wall_s: float
    cpu_s: float
    others_cpus: float


@dataclass(frozen=True)
class Measured:
    """Everything about one program.

    Attributes:
        problem: why it could not be measured; empty when it was.
        said: of each of its trainings.
        exact: steps are the program's own, and samples where both count them.
    """

    program: Program
    problem: str = ""
    plain: Outcome | None = None
    recorded: Outcome | None = None
    by_hand: list[ByHand] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    true: tuple[Counts, ...] = ()
    exact: bool = False
    tried: Tried | None = None
    verdict: str = ""
    why: str = ""

    @property
    def main(self) -> Said:
        """Of the training with the most steps."""
        return max(self.said, key=lambda one: one.steps)

    @property
    def facts(self) -> Facts:
        """What is known without feedline."""
        assert self.plain is not None and self.recorded is not None
        busy = self.plain.cpu_s / self.plain.wall_s / len(os.sched_getaffinity(0))
        return Facts(self.timed, busy, self.recorded.others_cpus, self.tried)

    @property
    def timed(self) -> ByHand:
        return max(self.by_hand, key=lambda one: one.updates)


class Bench:
    """Gives each program a copy of its folder, which is removed afterwards.

    Args:
        folder: to work in.
        repositories: the checkouts, by owner and name.
        kept: leave the runs there.
        tries: run programs with the settings that the first finding advises, too.
    """

    def __init__(
        self, folder: Path, repositories: Path | None, kept: bool = False, tries: bool = False
    ) -> None:
        self.folder, self.repositories, self.kept, self.tries = folder, repositories, kept, tries

    def run(self, program: Program) -> Measured:
        """Run it plainly, then recorded, each with data of its own."""
        if missing := program.missing(self.repositories):
            return Measured(program, missing)
        home = self.folder / program.name.replace("/", "_").replace(" ", "_").replace(",", "")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        try:
            return self._measured(program, home)
        finally:
            if not self.kept:
                shutil.rmtree(home)

    def _measured(self, program: Program, home: Path) -> Measured:
        plain, by_hand = self.by_hand(program, home)
        if problem := wrong_plainly(program, plain, by_hand):
            return Measured(program, problem, plain, by_hand=by_hand)
        recorded = self.outcome(program, home, {}, None, "-q", "-o", str(home / "run"))
        if recorded.code != plain.code or not (home / "run").exists():
            return Measured(
                program,
                f"exit code {recorded.code} under feedline:\n{recorded.out[-1500:]}",
                plain,
                recorded,
                by_hand,
            )
        found = Measured(
            program,
            "",
            plain,
            recorded,
            by_hand,
            said_of(home / "run"),
            program.counted(recorded.out),
        )
        tried = self.try_advice(found, home) if self.tries else None
        found = replace(found, exact=counts_are_true(found.said, found.true), tried=tried)
        verdict, why = judge(program, found.main, found.facts)
        return replace(found, verdict=verdict, why=why)

    def by_hand(
        self, program: Program, home: Path, **variables: str
    ) -> tuple[Outcome, list[ByHand]]:
        """A plain run with the timers."""
        shutil.rmtree(home / "by_hand", ignore_errors=True)
        (home / "by_hand").mkdir()
        settings = {
            "HAND_TIMERS": str(home / "by_hand"),
            "HAND_INPUT": " ".join(program.input),
            "HAND_CODE": " ".join(program.code),
            **variables,
        }
        return self.outcome(program, home, settings, SHIM), read(home / "by_hand")

    def try_advice(self, found: Measured, home: Path) -> Tried | None:
        """What the advised settings of the loader make of the step: the best of three runs with
        them over the best of three without.
        """
        settings = (
            advised(found.main.settings)
            if found.main.causes and found.main.causes[0] in OF_THE_LOADER
            else {}
        )
        if not settings:
            return None
        times: dict[str, list[float]] = {"": [], json.dumps(settings): []}
        for _ in range(3):
            for changed, walls in times.items():
                outcome, by_hand = self.by_hand(
                    found.program, home, **({"HAND_LOADER": changed} if changed else {})
                )
                if outcome.code or not by_hand:
                    return None
                walls.append(max(by_hand, key=lambda one: one.updates).step_s)
        without, with_it = (min(walls) for walls in times.values())
        return Tried(
            ", ".join(f"{name}={value}" for name, value in settings.items()), with_it / without
        )

    def outcome(
        self,
        program: Program,
        home: Path,
        variables: dict[str, str],
        shim: Path | None,
        *options: str,
    ) -> Outcome:
        """Run it once in a new copy of its folder.

        Args:
            variables: besides the program's own.
            shim: a folder for PYTHONPATH.
            options: for ``feedline run``; none: plainly.
        """
        work, root = self.copy(program, home), program.root(self.repositories)
        assert root is not None
        paths = [
            str(path)
            for path in (shim, *(root / part for part in program.on_path))
            if path is not None
        ]
        settings = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(paths),
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_CACHE": str(work / ".datasets"),
            "WANDB_MODE": "disabled",
            "MPLBACKEND": "Agg",
            **dict(program.environment),
            **variables,
        }
        begun, busy_s = time.monotonic(), machine_cpu_s()
        code, out, cpu_s = _call(_words(program, options), work / program.start, settings)
        wall_s = time.monotonic() - begun
        return Outcome(
            code, out, wall_s, cpu_s, max(0.0, machine_cpu_s() - busy_s - cpu_s) / wall_s
        )

    def copy(self, program: Program, home: Path) -> Path:
        """The program's folder with its data, below a folder of its own: some programs write beside
        themselves.
        """
        source = program.folder(self.repositories)
        assert source is not None
        top = home / "top"
        shutil.rmtree(top, ignore_errors=True)
        work = top / "checkout" / "folder" / source.name  # data may be at ../../data
        shutil.copytree(
            source,
            work,
            ignore=shutil.ignore_patterns("__pycache__", ".git", "*.gif", "*.png", "*.ipynb"),
        )
        for make in program.makes:
            make(work)
        return work


def _words(program: Program, options: tuple[str, ...]) -> list[str]:
    words = shlex.split(program.words)
    if not options:
        return words if words[0] in AS_COMMAND else ["python", *words]
    return ["feedline", "run", *options, *(["--"] if words[0] in AS_COMMAND else []), *words]


def _call(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str, float]:
    """Exit code, 124 where it took too long; what it printed; its CPU seconds."""
    out, before = folder / ".printed", resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(out, "wb") as file:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = 124
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(LIMIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left running, too
        process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        code,
        out.read_bytes().decode(errors="replace"),
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )


def machine_cpu_s() -> float:
    """CPU seconds of all processes of the machine since it started."""
    used = psutil.cpu_times()
    return float(used.user + used.nice + used.system)


def advised(settings: dict[str, int | bool]) -> dict[str, Any]:
    """Arguments of a DataLoader that follow a finding's fix; without workers, those go that need
    some.
    """
    without = settings.get("num_workers") == 0
    return {
        **settings,
        **({"prefetch_factor": None, "persistent_workers": False} if without else {}),
    }


def wrong_plainly(program: Program, plain: Outcome, by_hand: list[ByHand]) -> str:
    """Why a plain run is not what the manifest says; empty where it is."""
    if plain.code:
        return f"exit code {plain.code} without feedline:\n{plain.out[-1500:]}"
    steps = sum(steps for steps, _ in program.counted(plain.out))
    updates = sum(one.updates for one in by_hand)
    if updates != (steps if program.updates is None else program.updates):
        return (
            f"{updates} updates by hand ({[one.updates for one in by_hand]}), {steps} steps by "
            f"what is known of it"
        )
    printed = (
        len(re.findall(program.printed, plain.out, re.MULTILINE))
        if program.printed is not None and program.trainings
        else steps
    )
    return f"it printed {printed} steps, {steps} by its options" if printed != steps else ""


def said_of(path: Path) -> list[Said]:
    """What feedline says of each training in a run folder."""
    from feedline.analysis.explain.reports_of_run import recorded_report
    from feedline.analysis.rules import LOOP
    from feedline.profiler.store.trainings import split_run, trainings

    found = []
    for one in (part for training in trainings(path) for part in split_run(training.run)):
        report = recorded_report(one)
        (path / f"report{len(found)}.json").write_text(json.dumps(asdict(report), default=str))
        stages = report.step.stages if report.step is not None else {}
        mean_s = report.step.mean_s if report.step is not None else 0.0
        share = (
            sum(value for name, value in stages.items() if name in INPUT_STAGES) / mean_s
            if mean_s
            else 0.0
        )
        about = report.throughput
        samples = about.samples if about.samples or about.samples_per_s is not None else None
        first = report.findings[0].settings if report.findings else {}
        causes = tuple(finding.rule_id for finding in report.findings)
        others_known = report.cpus is not None and report.cpus.others is not None
        own = report.step.own_code if report.step is not None else None
        outside = (
            (own.s + stages.get("gradients", 0.0)) / mean_s if own is not None and mean_s else 0.0
        )
        functions = (
            {one.name: one.s / mean_s for one in own.functions}
            if own is not None and mean_s
            else {}
        )
        away = next(
            (
                one.value
                for finding in report.findings
                for one in finding.evidence
                if one.id == "evaluation_share"
            ),
            0.0,
        )
        known = (others_known, outside, functions, away)
        found.append(
            Said(
                about.steps,
                samples,
                str(report.verdict),
                causes,
                first,
                share,
                mean_s,
                tuple(report.notes),
                *known,
                tuple(cause for cause in causes if cause in {rule.rule_id for rule in LOOP}),
            )
        )
    return found
