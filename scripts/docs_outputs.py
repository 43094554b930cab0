"""Run the commands whose output and pictures the documentation shows, and put what they print into the pages: `scripts/docs --record`.

A page asks for an output by a comment before a block, and for a picture by one before an image:

    <!-- output of `feedline report runs/demo` -->
    <!-- output of `feedline compare --data data/photos -o runs/compare`, from "Loaders" to "pillow-v1 " -->
    <!-- picture of `feedline report runs/demo` -->

A run folder that is not there is recorded first, by the command of the same page that makes it. An output that was printed once is kept
in runs/docs and taken from there. What cannot be run here (a trace that is not there) stays on its page as it is, and is named.
"""

import hashlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
KEPT = ROOT / "runs" / "docs"
COLUMNS = 80
MADE_BY_SCRIPT = {"runs/demo": "scripts/demo"}
REPORT_SIZE = (960, 700)  # px, of the picture of an HTML report
COLORS = 128  # of such a picture, so that it stays small
BROWSER = "chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1"

OUTPUT = re.compile(r'(<!-- output of `(.+?)`((?:, from ".+?" to ".+?")*) -->\n```text\n)(.*?)(```\n)', re.DOTALL)
PICTURE = re.compile(r"<!-- picture of `(.+?)` -->\n!\[[^\]]*\]\((.+?)\)")
CUT = re.compile(r', from "(.+?)" to "(.+?)"')
RUN = re.compile(r"runs/[\w-]+")


class CannotRun(Exception):
    """A command that has what it needs on another machine only."""


@dataclass(frozen=True)
class Page:
    """One page and its text."""

    path: Path
    text: str

    def commands(self) -> Iterator[str]:
        """Those of its blocks, lines that end with a backslash joined."""
        for line in self.text.replace("\\\n", " ").splitlines():
            line = line.strip().removeprefix("$ ")
            if line.startswith(("feedline ", "scripts/")):
                yield " ".join(line.split("  #")[0].split())

    def makes(self, run: str) -> str:
        """The command that makes a run folder."""
        wanted = re.compile(rf"(-o|--output) {re.escape(run)}( |$)")
        made = [command for command in self.commands() if wanted.search(command)]
        if run in MADE_BY_SCRIPT:
            made = [MADE_BY_SCRIPT[run], *made]
        if not made:
            raise SystemExit(f"{self.path.relative_to(ROOT)}: no command on the page makes {run}")
        return made[0]


def perform(command: str, colors: bool = False) -> str:
    """What a command prints on standard output. Raises CannotRun."""
    environment = {
        **os.environ,
        "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": str(COLUMNS),
        "LINES": "50",
        "OMP_NUM_THREADS": "1",
        **({"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"} if colors else {"NO_COLOR": "1"}),
    }
    print(f"$ {command}", flush=True)
    done = subprocess.run(command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotRun(f"`{command}` ended with {done.returncode}: {(done.stderr.strip().splitlines() or ['nothing was said'])[-1]}")
    return done.stdout


def output(page: Page, command: str, colors: bool = False) -> str:
    """What a command prints, the runs that it reads made first. Raises CannotRun."""
    made = [run for run in RUN.findall(command) if f"-o {run}" in command]
    for run in RUN.findall(command):
        if run not in made and not (ROOT / run).exists():
            output(page, page.makes(run))
    kept = KEPT / f"{hashlib.sha256(command.encode()).hexdigest()[:16]}.txt"
    if made and kept.exists():
        return kept.read_text()
    again = any((ROOT / run).exists() for run in made)
    printed = perform(command.replace(" -o ", " -f -o ", 1) if again else command, colors)
    if made:
        KEPT.mkdir(parents=True, exist_ok=True)
        kept.write_text(printed)
    return printed


def cut(text: str, parts: str) -> str:
    """The lines that a page wants of an output, an ellipsis where some are left out."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    wanted = CUT.findall(parts)
    if not wanted:
        return "\n".join(lines) + "\n"
    found = []
    for begin, end in wanted:
        first = next(number for number, line in enumerate(lines) if line.lstrip().startswith(begin))
        last = next(number for number, line in enumerate(lines[first:], first) if line.lstrip().startswith(end))
        while last + 1 < len(lines) and lines[last + 1].startswith("  "):  # what the last one goes on with
            last += 1
        found.append("\n".join(lines[first : last + 1]))
    return "\n…\n".join(found) + "\n"


def drawn(text: str, command: str) -> str:
    """A terminal with a command and its output, as SVG. Fonts are the reader's own: nothing is fetched."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False)
    console.print(Text.from_ansi(text.strip("\n")))
    fetched = re.compile(r"@font-face \{\{.*?\n    \}\}", re.DOTALL)
    form = fetched.sub("", CONSOLE_SVG_FORMAT).replace(
        "Fira Code, monospace", "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
    )
    return console.export_svg(title=f"$ {command}", theme=MONOKAI, code_format=form)


def photographed(run: str, picture: Path) -> None:
    """Take a picture of the top of a run's HTML report. Raises CannotRun."""
    from PIL import Image

    picture.parent.mkdir(exist_ok=True)
    profile = KEPT / "chromium"
    width, height = REPORT_SIZE
    page = (ROOT / run / "report.html").as_uri()
    perform(f"{BROWSER} --user-data-dir={profile} --window-size={width},{height} --screenshot={picture} {page}")
    Image.open(picture).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(picture, optimize=True)


def renewed(page: Page) -> str:
    """The page with new outputs; its pictures are drawn."""
    for command, name in PICTURE.findall(page.text):
        picture = (page.path.parent / name).resolve()
        try:
            printed = output(page, command, colors=True)
            if picture.suffix == ".svg":
                picture.write_text(drawn(printed, command))
            else:
                photographed(RUN.findall(command)[0], picture)
        except CannotRun as error:
            print(f"{name} stays as it is: {error}", file=sys.stderr)

    def block(found: "re.Match[str]") -> str:
        before, command, parts, old, after = found.groups()
        try:
            return f"{before}{cut(output(page, command), parts)}{after}"
        except CannotRun as error:
            print(f"{page.path.name}: an output stays as it is: {error}", file=sys.stderr)
        except StopIteration:
            print(f"{page.path.name}: `{command}` prints no such lines ({parts}); the old ones stay", file=sys.stderr)
        return f"{before}{old}{after}"

    return OUTPUT.sub(block, page.text)


def main() -> None:
    for path in PAGES:
        page = Page(path, path.read_text())
        new = renewed(page)
        if new != page.text:
            path.write_text(new)
            print(f"renewed {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
