"""What is said of each program of this folder: its cause, where that was found, and what names it.

Each set of them has a file: first.py, held_out.py, and second.py to fifth.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A program with a cause.

    Attributes:
        report: where it was found.
        cause: in words.
        expected: ids of findings, any of which names it.
        line: a part of the line to name, or of several, with " | " between them; empty: any.
        says: a word that the first finding has to have; empty: its id is enough.
        ranks: processes.
        hangs: it does not end by itself.
        files: that it may have open; None: as many as the shell allows.
    """

    name: str
    report: str
    cause: str
    expected: tuple[str, ...]
    line: str = ""
    says: str = ""
    ranks: int = 1
    hangs: bool = False
    files: int | None = None


#: Findings that name a line of the program.
CODE = ("user_code", "own_code")
