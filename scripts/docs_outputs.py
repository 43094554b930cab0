"""Put what commands print, and their pictures, into the documentation's pages.

A page asks for an output by a comment before a block, and for a picture by one before an image:

    <!-- output of `feedline report runs/demo` -->
    <!-- output of `feedline compare --data data/photos -o runs/compare`, from "Loaders" to "pillow-v1 " -->
    <!-- output of `feedline report runs/demo --full`, from "Mean step" to "sum" -->
    <!-- picture of `feedline report runs/demo` -->

Runs that are read are kept in docs/recorded, so that a page shows what feedline says of them today,
and the site has their reports. A run that is not kept, or named after --anew, is recorded by the
command of a page that makes it (of an ingested trace, the report is kept). Commands run in
runs/docs, apart from other runs. What cannot be run here (a trace that is not there) stays on its
page, and is named.
"""

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
RECORDED = ROOT / "docs" / "recorded"
COLUMNS = 80
LIMIT_S = 300  # of one command
REPORT_SIZE = (960, 700)  # px, of the picture of an HTML report
COLORS = 128  # of such a picture, so that it stays small
SHOWS = "Description"  # keyword of the text in it (PNG specification, 11.3.3.2)
BROWSER = (
    "chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1"
)

OUTPUT = re.compile(
    r'(<!-- output of `(.+?)`((?:, from ".+?" to ".+?")*) '
    r"-->\n```text\n)(.*?)(```\n)",
    re.DOTALL,
)
PICTURE = re.compile(r"<!-- picture of `(.+?)` -->\n!\[[^\]]*\]\((.+?)\)")
CUT = re.compile(r', from "(.+?)" to "(.+?)"')
RUN = re.compile(r"runs/[\w-]+")
DATA = re.compile(r"data/[\w-]+")


class CannotRun(Exception):
    """A command that has what it needs on another machine only."""


class Kept(Exception):
    """A command whose run is kept, with the output that is on its page."""


@dataclass(frozen=True)
class Page:
    """One page and its text."""

    path: Path
    text: str

    def commands(self) -> Iterator[str]:
        """Return its commands, then those of scripts/demo, which every page may mention."""
        for line in self.text.replace("\\\n", " ").splitlines():
            line = line.strip().removeprefix("$ ")
            if line.startswith(("feedline ", "python examples/")):
                yield " ".join(line.split("  #")[0].split())
        for line in (ROOT / "scripts" / "demo").read_text().splitlines():
            if line.startswith(".venv/bin/"):
                yield line.removeprefix(".venv/bin/").replace(" -f ", " ").removesuffix(' "$@"')

    def shown(self) -> list[str]:
        """Return the commands whose output or picture it shows."""
        return [command for _, command, *_ in OUTPUT.findall(self.text)] + [
            command for command, _ in PICTURE.findall(self.text)
        ]

    def reads(self) -> set[str]:
        """Return the runs that these read."""
        return {
            run
            for command in self.shown()
            for run in RUN.findall(command)
            if run not in made_by(command)
        }

    def makes(self, run: str) -> str:
        """Return the command that makes a run folder."""
        return next(
            (command for command in self.commands() if run in made_by(command)),
            "",
        ) or sys.exit(f"{self.path.relative_to(ROOT)}: no command on the page makes {run}")

    def makes_data(self, folder: str) -> str | None:
        """Return the command that makes photographs; None: the page has none."""
        return next(
            (
                command
                for command in self.commands()
                if command.startswith(f"python examples/photos.py {folder} ")
            ),
            None,
        )


def made_by(command: str) -> list[str]:
    """Return the run folders that a command makes."""
    return re.findall(r"(?:-o|--output) (runs/[\w-]+)", command)


@dataclass
class Workshop:
    """The folder in which commands run, with the kept runs, the examples and the data in it.

    Attributes:
        folder: its ``runs`` begin with the kept ones.
        kept: runs that were there at the beginning.
        made: those that were recorded since.
        printed: what commands printed.
    """

    folder: Path
    kept: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    printed: dict[tuple[str, bool], str] = field(default_factory=dict)

    def open(self, anew: set[str]) -> None:
        """Set the folder up, without the runs that are to be recorded anew."""
        for name in ("runs", "examples"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "runs").mkdir(parents=True)
        (ROOT / "data").mkdir(exist_ok=True)
        shutil.copytree(ROOT / "examples", self.folder / "examples")
        if not (self.folder / "data").exists():
            (self.folder / "data").symlink_to(ROOT / "data")
        for run in RECORDED.glob("*/"):
            if f"runs/{run.name}" not in anew:
                shutil.copytree(run, self.folder / "runs" / run.name)
                self.kept.add(f"runs/{run.name}")

    def output(self, page: Page, command: str, colors: bool = False) -> str:
        """Return what a command prints; first make the runs and photographs that it reads.

        Raises CannotRun, Kept.
        """
        if (command, colors) in self.printed:
            return self.printed[command, colors]
        if self.kept.intersection(made_by(command)):
            raise Kept(command)
        for folder in DATA.findall(command):
            made = page.makes_data(folder)  # which keeps the files that are there
            if made and made != command:
                self.output(page, made)
        for run in RUN.findall(command):
            if run not in made_by(command) and not (self.folder / run).exists():
                self.output(page, page.makes(run))
        self.printed[command, colors] = self.perform(command, colors)
        self.made.update(made_by(command))
        return self.printed[command, colors]

    def perform(self, command: str, colors: bool = False) -> str:
        """Return what a command prints on standard output. Raises CannotRun."""
        environment = {
            **os.environ,
            "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": str(COLUMNS),
            "LINES": "50",
            "OMP_NUM_THREADS": "1",
            **(
                {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"}
                if colors
                else {"NO_COLOR": "1"}
            ),
        }
        print(f"$ {command}", flush=True)
        within = ["timeout", str(LIMIT_S), "bash", "-c", command]
        done = subprocess.run(
            within, cwd=self.folder, env=environment, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise CannotRun(
                f"`{command}` ended with {done.returncode}: "
                f"{(done.stderr.strip().splitlines() or ['nothing was said'])[-1]}"
            )
        return done.stdout

    def photograph(self, run: str, picture: Path) -> None:
        """Take a picture of the top of a run's HTML report, with its verdict as a text in the file.

        Raises CannotRun.
        """
        from PIL import Image
        from PIL.PngImagePlugin import PngInfo

        picture.parent.mkdir(exist_ok=True)
        width, height = REPORT_SIZE
        page = (self.folder / run / "report.html").as_uri()
        self.perform(
            f"{BROWSER} --user-data-dir={self.folder / 'chromium'} --window-size={width},{height} "
            f"--screenshot={picture} {page}"
        )
        about = PngInfo()
        about.add_text(
            SHOWS, json.loads((self.folder / run / "report.json").read_text())["verdict"]["limit"]
        )
        Image.open(picture).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(
            picture, optimize=True, pnginfo=about
        )

    def keep(self, run: str) -> None:
        """Put a run into docs/recorded, or the report of one that was made of traces.

        Nothing in it says where it was made.
        """
        sys.path.insert(0, str(ROOT / "tests"))
        from golden.record import refuse_traces_of_here, scrub

        source, kept = self.folder / run, RECORDED / Path(run).name
        RECORDED.mkdir(exist_ok=True)
        if not any(source.rglob("events.parquet")):  # the trace itself is not the repository's
            if any(f"](recorded/{kept.name}.html)" in path.read_text() for path in PAGES):
                shutil.copy(source / "report.html", kept.with_suffix(".html"))
            return
        findings = json.loads((source / "report.json").read_text())["findings"]
        if findings and findings[0]["cause"] == "busy_neighbors":
            print(
                f"{run} shows other programs more than itself: record it again when they have "
                f"ended",
                file=sys.stderr,
            )
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(source, kept)
        scrub(kept)
        refuse_traces_of_here(kept, self.folder)


def cut(text: str, parts: str) -> str:
    """Return the lines that a page wants of an output; all, if it names none.

    An ellipsis stands for those left out.
    """
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    excerpts = []
    for begin, end in CUT.findall(parts):
        first = next(number for number, line in enumerate(lines) if line.lstrip().startswith(begin))
        last = next(
            number
            for number, line in enumerate(lines[first:], first)
            if line.lstrip().startswith(end)
        )
        while last + 1 < len(lines) and lines[last + 1].startswith(
            "  "
        ):  # what the last one goes on with
            last += 1
        excerpts.append("\n".join(lines[first : last + 1]))
    return "\n…\n".join(excerpts or ["\n".join(lines)]) + "\n"


def draw(text: str, command: str) -> str:
    """Draw a terminal with a command and its output, as SVG.

    Fonts are the reader's own: nothing is fetched.
    """
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    console.print(Text.from_ansi(text.strip("\n")))
    fetched = re.compile(r"@font-face \{\{.*?\n    \}\}", re.DOTALL)
    form = fetched.sub("", CONSOLE_SVG_FORMAT).replace(
        "Fira Code, monospace", "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
    )
    return console.export_svg(title=f"$ {command}", theme=MONOKAI, code_format=form)


def renew(page: Page, shop: Workshop) -> str:
    """Return the page with new outputs; its pictures are drawn."""
    for command, name in PICTURE.findall(page.text):
        picture = (page.path.parent / name).resolve()
        try:
            printed = shop.output(page, command, colors=picture.suffix == ".svg")
            if picture.suffix == ".svg":
                picture.write_text(draw(printed, command))
            else:
                shop.photograph(RUN.findall(command)[0], picture)
        except CannotRun as error:
            print(f"{name} stays as it is: {error}", file=sys.stderr)

    def block(found: "re.Match[str]") -> str:
        before, command, parts, old, after = found.groups()
        try:
            return f"{before}{cut(shop.output(page, command), parts)}{after}"
        except Kept:
            pass
        except CannotRun as error:
            print(f"{page.path.name}: an output stays as it is: {error}", file=sys.stderr)
        except StopIteration:
            print(
                f"{page.path.name}: `{command}` prints no such lines ({parts}); the old ones stay",
                file=sys.stderr,
            )
        return f"{before}{old}{after}"

    return OUTPUT.sub(block, page.text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--anew",
        nargs="+",
        default=[],
        metavar="PAGE",
        help="record the runs of these pages (gallery, jobs/late-rank) again; all: of every page",
    )
    args = parser.parse_args()

    pages = [Page(path, path.read_text()) for path in PAGES]
    read = {
        str(page.path.relative_to(ROOT / "docs").with_suffix("")): page.reads() for page in pages
    }
    wanted = list(read) if "all" in args.anew else args.anew
    if unknown := sorted(set(wanted) - set(read)):
        parser.error(f"there is no page {', '.join(unknown)}")
    shop = Workshop(ROOT / "runs" / "docs")
    shop.open(anew=set().union(*(read[name] for name in wanted)))
    for page in pages:
        new = renew(page, shop)
        if new != page.text:
            page.path.write_text(new)
            print(f"renewed {page.path.relative_to(ROOT)}")
    for run in sorted(shop.made & set().union(*read.values())):
        shop.keep(run)


if __name__ == "__main__":
    main()
