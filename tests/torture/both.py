"""Runs a case plainly and under feedline, in the same place, and compares all that can be seen of
it from outside.
"""

import difflib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from torture.case import PROGRAMS, Case
from warm_python import WarmPython

LIMIT_S = 120  # for one run of a program
NOT_COMPARED = re.compile(
    r"0x[0-9a-f]{6,}"  # addresses
    r"|(?<=\[[WEI])\d+ [\d:.]+"  # the time in a line of torch's log
    r"|(?<=^[WEI])\d{4} [\d:.]+ \d+"
    r"|(?<=^USDT:)[\d: -]+"
    r"|(?<=pid[ =:])\d+|(?<=pid\(s\) )\d+"
    r"|(?<=process )\d+|(?<=Process-)\d+",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Seen:
    """What one run of a program showed.

    Attributes:
        files: those it left in its folder, path -> SHA-256.
    """

    code: int
    out: str
    err: str
    files: dict[str, str]

    @property
    def parameters(self) -> list[str]:
        """The lines with digests of parameters and of random states."""
        return [line for line in self.out.splitlines() if line.startswith("parameters ")]


@dataclass(frozen=True)
class Both:
    """A program plain and under feedline.

    Attributes:
        said: feedline's own lines.
        recorded: what the run folder holds, in words; empty: there is none that can be read.
    """

    plain: Seen
    feedline: Seen
    said: list[str]
    recorded: str


class Bench:
    """Runs cases in a folder of their own.

    Args:
        folder: empty.
        warm: for the cases that need no cold Python.
    """

    def __init__(self, folder: Path, warm: WarmPython) -> None:
        self._folder, self._warm = folder, warm
        self._work, self._place = folder / "work", folder / "place"

    def run(self, case: Case) -> Both:
        plain = self._run(case, [])
        self._work.rename(self._folder / "plain")
        if self._place.is_dir() and not self._place.is_symlink():
            shutil.rmtree(self._place)
        else:
            self._place.unlink(missing_ok=True)
        output = ["-o", str(self._folder / case.output)] if case.output else []
        feedline = self._run(case, ["-m", "feedline", "run", "-q", *output])
        said = [line for line in feedline.err.splitlines() if line.startswith("feedline:")]
        return Both(plain, without(said, feedline), said, self._recorded(case))

    def _run(self, case: Case, feedline: list[str]) -> Seen:
        self._place.mkdir()
        self._work.mkdir()
        if case.source.is_dir():
            shutil.copytree(case.source, self._work / case.source.name)
        else:
            shutil.copy(case.source, self._work)
        for beside in ("tiny.py", "under.py"):
            shutil.copy(PROGRAMS / beside, self._work)
        environment = {
            name: value
            for name, value in {**os.environ, **self._own(), **case.environment}.items()
            if value is not None
        }
        if case.before:
            subprocess.run(
                ["bash", "-ec", case.before, "bash", sys.executable],
                cwd=self._work,
                env=environment,
                check=True,
            )
        if case.is_cold:
            code, out, err = self._cold(case, case.command(feedline), environment)
        else:
            words = [
                str(self._work / word) if word in (case.source.name, "under.py") else word
                for word in case.command(feedline)
            ]
            done = self._warm.run(*words, folder=self._work, environment=environment)
            code, out, err = done.returncode, done.stdout, done.stderr
        return Seen(
            code,
            masked(out, case.varies),
            masked(err, case.varies, NOT_COMPARED.pattern),
            self._files(),
        )

    def _own(self) -> dict[str, str | None]:
        return {
            "OMP_NUM_THREADS": "1",
            "PLACE": str(self._place),
            "PYTHONSAFEPATH": None,
            "PYTHONDONTWRITEBYTECODE": None,
        }

    def _cold(
        self, case: Case, words: list[str], environment: dict[str, str]
    ) -> tuple[int, str, str]:
        """Exit code (the first that is not 0), and the outputs of all that were started, one after
        the other.
        """
        command = [sys.executable, *words]
        if case.shell:
            script = case.shell if '"$@"' in case.shell else f'{case.shell}\nexec "$@"'
            command = ["bash", "-c", script, "bash", *command]
        ran = [self._start(number, command, environment) for number in range(case.together)]
        ends = []
        for number, process in enumerate(ran):
            try:
                process.communicate(case.stdin.encode() if case.stdin else None, timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out, err = (
                (self._folder / f"{name}{number}").read_bytes().decode(errors="replace")
                for name in ("out", "err")
            )
            ends.append((process.returncode, out, err))
        return (
            next((code for code, *_ in ends if code), 0),
            "".join(out for _, out, _ in ends),
            "".join(err for *_, err in ends),
        )

    def _start(
        self, number: int, command: list[str], environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        with (
            open(self._folder / f"out{number}", "wb") as out,
            open(self._folder / f"err{number}", "wb") as err,
        ):
            return subprocess.Popen(
                command,
                cwd=self._work,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                start_new_session=True,
                # A shell's background job ignores it, and so would all that the tests start.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def _files(self) -> dict[str, str]:
        found = {}
        for path in sorted(self._work.rglob("*")) if self._work.exists() else ():
            name = path.relative_to(self._work).as_posix()
            if path.is_file() and not name.startswith("runs/") and "__pycache__" not in name:
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        self._work.mkdir(exist_ok=True)  # a program may have removed it
        return found

    def _recorded(self, case: Case) -> str:
        """What a report made of the run folder says of it."""
        folders = (
            [self._folder / case.output] if case.output else sorted((self._work / "runs").glob("*"))
        )
        return "; ".join(filter(None, map(self._report, folders)))

    def _report(self, run: Path) -> str:
        report = run / "report.json"
        if not report.exists():
            self._warm.run("-m", "feedline", "report", "-q", run, "-o", report, folder=self._folder)
        if not report.exists():
            return ""
        about = json.loads(report.read_text())
        if "trainings" in about:
            return " + ".join(
                f"{of(one['steps'], 'step')}, {of(one['samples'], 'sample')}"
                for one in about["trainings"]
            )
        steps, samples = about["throughput"]["steps"], about["throughput"]["samples"]
        state = about["run"]["state"]
        return f"{of(steps, 'step')}, {of(samples, 'sample')}" + (
            f" ({state})" if state != "finished" else ""
        )


def of(number: int | None, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


#: Since Python 3.12, of a program with several threads: feedline's sampler is one
#: (docs/recording.md).
FORK_WARNING = re.compile(
    r".*: DeprecationWarning: This process \(pid=[\d*]+\) is multi-threaded.*\n.*fork\(\).*\n"
)


def differences(case: Case, both: Both) -> list[str]:
    """What is not as it has to be, in words."""
    plain, feedline = both.plain, both.feedline
    if plain.code != case.exit:
        return [
            f"without feedline, the exit code is {plain.code}, not "
            f"{case.exit}:\n{plain.out[-1000:]}{plain.err[-2000:]}"
        ]
    found = (
        []
        if feedline.code == plain.code
        else [f"exit code {feedline.code}, without feedline {plain.code}"]
    )
    for name, ours, theirs in (
        ("standard output", feedline.out, plain.out),
        (
            "standard error",
            *(FORK_WARNING.sub("", seen.err) if case.stderr else "" for seen in (feedline, plain)),
        ),
        (
            "files",
            *(
                "\n".join(f"{name} {sha}" for name, sha in seen.files.items())
                for seen in (feedline, plain)
            ),
        ),
    ):
        if ours != theirs:
            lines = difflib.unified_diff(
                theirs.splitlines(), ours.splitlines(), "plain", "under feedline", n=1, lineterm=""
            )
            found.append("\n".join([f"{name} is not the same:", *(line[:300] for line in lines)]))
    if case.recorded and not both.recorded:
        found.append("nothing was recorded")
    return found


def masked(text: str, *patterns: str) -> str:
    """The text without what is different in every run."""
    for pattern in filter(None, patterns):
        text = re.sub(pattern, "*", text, flags=re.MULTILINE)
    return text


def without(lines: list[str], seen: Seen) -> Seen:
    """The same without feedline's own lines."""
    kept = [line for line in seen.err.splitlines(keepends=True) if line.rstrip("\n") not in lines]
    return Seen(seen.code, seen.out, "".join(kept), seen.files)
