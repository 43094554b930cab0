"""``feedline pack``."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler.errors import Interrupted

if TYPE_CHECKING:
    from feedline.pipelines.stores import Packed, Progress

KINDS = ("lmdb", "recordio", "tar", "tfrecord")
NAMED = 10  # files left out that are printed; all are in the store's manifest.json


class Pack:
    """Pack a folder of images into one store that reads fast.

    feedline pack data/train -o train.lmdb --kind lmdb
    feedline pack data/train -o train.wds --kind tar --verify

    DIR has a folder per class. Files keep their bytes. A pack that was killed continues where it stopped when the same command is given
    again; until it is whole, nothing opens the store. What is no image or cannot be read is named and left out.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("data", type=Path, metavar="DIR", help="a folder with a folder of images per class")
        parser.add_argument("-o", "--output", type=Path, metavar="STORE", required=True, help="folder to write, new or empty")
        parser.add_argument("--kind", choices=KINDS, required=True, help="lmdb, WebDataset tar, MXNet RecordIO, TFRecord")
        parser.add_argument("--verify", action="store_true", help="read all back afterwards and compare with the checksums")
        parser.add_argument("--strict", action="store_true", help="end at the first file that cannot be packed")
        parser.add_argument("-f", "--force", action="store_true", help="start over where there is a store or a part of one")
        parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")

    def run(self, args: argparse.Namespace) -> int:
        from feedline.pipelines.stores import pack, verify

        unreadable = "refuse" if args.strict else "skip"
        try:
            with progress_bar(args.quiet) as show:
                done = pack(args.data, args.output, args.kind, unreadable=unreadable, force=args.force, progress=show)
                verified = verify(args.output, show) if args.verify else None
        except KeyboardInterrupt as error:
            raise Interrupted(f"interrupted: the same command continues where it stopped ({args.output})") from error
        if not args.quiet:
            from feedline.analysis.reports.console import Console

            console = Console()
            for line in summary(done):
                console.print(line, soft_wrap=True)
            if verified is not None:
                console.print(f"  verified: {verified.samples:,} of {done.samples:,} samples are what was packed", soft_wrap=True)
        return 0


def summary(done: "Packed") -> list[str]:
    """What was packed and what was not, in lines."""
    lines = [
        f"{done.path}: {done.samples:,} images, {done.bytes / 1e6:,.1f} MB, packed as {done.kind} into {done.stored_bytes / 1e6:,.1f} MB"
    ]
    if done.resumed_at == done.samples:
        lines.append("  was whole already: nothing to do")
    elif done.resumed_at:
        lines.append(f"  went on after the {done.resumed_at:,} samples that an earlier pack had left")
    if done.left_out:
        lines.append(f"  left out: {len(done.left_out):,}")
        lines += [f"    {entry.path}: {entry.says}" for entry in done.left_out[:NAMED]]
        if len(done.left_out) > NAMED:
            lines.append(f"    and {len(done.left_out) - NAMED:,} more, in {done.path / 'manifest.json'}")
    return lines


@contextmanager
def progress_bar(quiet: bool) -> Iterator["Callable[[Progress], None]"]:
    """A bar on standard error while it is a terminal; elsewhere nothing."""
    from rich import progress as rich

    from feedline.analysis.reports.console import Console, Words

    console = Console(stderr=True, quiet=quiet)
    words = (Words("{task.description:9}"), rich.BarColumn(bar_width=30), Words("{task.fields[text]}"))
    with rich.Progress(
        *words, rich.TimeRemainingColumn(), console=console, transient=True, disable=quiet or not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None, text="")

        def show(progress: "Progress") -> None:
            text = f"{progress.done:,} of {progress.total:,} files, {progress.bytes / 1e6:,.0f} MB"
            bar.update(task, description=progress.doing, completed=progress.done, total=progress.total, text=text)

        yield show
