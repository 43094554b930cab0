"""What is shown while a report is built."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, Progress

from feedline.analysis.report.console import Console, Count, Words


@contextmanager
def building(console: Console, steps: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Show which of the steps is being done; the display goes away at the end.

    It prints nothing if the console is not a terminal.

    Args:
        steps: what is done, in order, e.g. ``["reading the run", "cutting steps"]``.

    Yields:
        A function to call each time a step is done.
    """
    columns = (Words("{task.description}"), BarColumn(bar_width=20), Count())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(steps[0] if steps else "", total=len(steps))
        done = 0

        def advance() -> None:
            nonlocal done
            done = min(done + 1, len(steps))
            progress.update(
                task, completed=done, description=steps[min(done, len(steps) - 1)] if steps else ""
            )

        yield advance
