"""A progress bar for work that consists of parts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feedline.analysis.ranks.many.rank_pool import Tell


@contextmanager
def working(quiet: bool, first: str = "starting") -> "Iterator[Tell]":
    """A progress bar on standard error if it is a terminal; call what is yielded to move it: (what, done, of)."""
    from rich.progress import BarColumn, Progress

    from feedline.analysis.report.console import Console, Count, Words

    told = Console(stderr=True, quiet=quiet)
    columns = (Words("{task.description}"), BarColumn(bar_width=20), Count())
    with Progress(*columns, console=told, transient=True, disable=not told.is_terminal) as shown:
        bar = shown.add_task(first, total=None)
        yield lambda what, done, of: shown.update(bar, description=what, completed=done, total=of)
