"""One odd program in one environment: how it is started plainly and under feedline, and what of it
has to be the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Case:
    """A row of the matrix.

    Attributes:
        program: file or folder below ``programs``; the first line of its docstring says what is
            odd.
        label: sets it apart from other cases of the same program.
        args: the program's arguments.
        named: what the command line names instead of the program's file, where ``shell`` makes it.
        module: start it as ``python -m``.
        flags: of the interpreter.
        launcher: what starts the interpreter's program, as in ``-m torch.distributed.run``.
        environment: variables to set; None: to remove.
        before: shell that prepares the program's folder; ``$PLACE`` is where the run folder is
            made.
        shell: bash in which ``"$@"`` is the command (without one, it comes at the end).
        mounts: shell that changes the mounts, for this program only.
        limits: resource limits (NOFILE, FSIZE, ...) and UMASK.
        stdin: the text on its standard input.
        exit: the expected exit code; negative: the signal.
        cold: needs an interpreter of its own. So does whatever has flags, a launcher or a shell.
        together: how many of them start at the same moment.
        output: the run folder; empty: feedline's own choice.
        recorded: whether something must have been recorded: a run folder that a report can be made
            of.
        quick: one of those in scripts/test.
        needs: modules without which it cannot run.
        python: the first version of Python that it is about.
        stderr: whether standard error is compared.
        varies: regular expression; what it matches in the output is not compared.
    """

    program: str
    label: str = ""
    args: tuple[str, ...] = ()
    named: str = ""
    module: bool = False
    flags: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    before: str = ""
    shell: str = ""
    mounts: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    stdin: str = ""
    exit: int = 0
    cold: bool = False
    together: int = 1
    output: str = "place/run"
    recorded: bool = True
    quick: bool = False
    needs: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 10)
    stderr: bool = True
    varies: str = ""

    @property
    def name(self) -> str:
        """Of the row and of the test."""
        return Path(self.program).with_suffix("").as_posix() + (
            f" ({self.label})" if self.label else ""
        )

    @property
    def source(self) -> Path:
        """The program's file or folder."""
        return PROGRAMS / self.program

    @property
    def is_cold(self) -> bool:
        return bool(
            self.cold
            or self.flags
            or self.launcher
            or self.shell
            or self.stdin
            or self.together > 1
        )

    def command(self, feedline: list[str]) -> list[str]:
        """What follows ``python``.

        Args:
            feedline: what stands before the program, ``-m feedline run`` and its options; empty:
                plain.
        """
        program = self.named or Path(self.program).name
        start = ["-m", program] if self.module else [program]
        limits = [f"{name}={value}" for name, value in self.limits.items()]
        under = ["under.py", self.mounts, *limits, "--"] if self.mounts or limits else []
        return [*self.flags, *self.launcher, *under, *feedline, *start, *self.args]
