"""The terminal: the one place where what feedline says goes to it through rich."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Literal

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.segment import Segment
from rich.text import Text

from feedline.profiler.printable import printable

_ASCII = str.maketrans({"█": "#", "×": "x", "·": "|", "–": "-", "…": "~", "µ": "u", "±": "~"})


class Console(rich.console.Console):
    """Shows text as it is: no markup, no ``:emoji:``, no highlighting.

    There is nothing in it that a terminal would act on. Escape sequences are those that rich makes
    itself. Strings are made printable before they are measured, so that tables stay straight;
    segments once more, whatever they were made of. A terminal that does not know every character
    gets others in their place.
    """

    def __init__(
        self,
        *,
        stderr: bool = False,
        quiet: bool = False,
        file: IO[str] | None = None,
        width: int | None = None,
        force_terminal: bool | None = None,
        color_system: Literal["auto", "standard", "256", "truecolor", "windows"] | None = "auto",
    ) -> None:
        super().__init__(
            stderr=stderr,
            quiet=quiet,
            file=file,
            width=width,
            force_terminal=force_terminal,
            color_system=color_system,
            markup=False,
            emoji=False,
            highlight=False,
        )

        # after the layout: nothing is cropped for what it is written as
        if self._poor and isinstance(self.file, io.TextIOWrapper):
            self.file.reconfigure(errors="backslashreplace")

    @property
    def _poor(self) -> bool:
        return not self.encoding.startswith("utf")

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(
            printable(text), **{**options, "markup": False, "emoji": False, "highlight": False}
        )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                text = printable(segment.text, lines=True)
                yield Segment(text.translate(_ASCII) if self._poor else text, segment.style)


class Count(ProgressColumn):
    """A column of a progress bar: ``3/8``; nothing as long as the whole is not known."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.completed:.0f}/{task.total:.0f}")


class Words(TextColumn):
    """A column of a progress bar: text as it is, in one line."""

    def render(self, task: Task) -> Text:
        return Text(printable(self.text_format.format(task=task)))


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
