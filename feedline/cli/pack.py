"""``feedline pack``."""

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.options import add_output
from feedline.profiler.errors import Interrupted
from feedline.profiler.message import few

if TYPE_CHECKING:
    from feedline.pipelines.stores import Packed, Progress

STORE_KINDS = ("lmdb", "recordio", "tar", "tfrecord")
_MAX_NAMED_CLASSES = 3
_MAX_FILES_LEFT_OUT = 10  # files left out that are printed; all are in the store's manifest.json


class PackCommand:
    """Pack an image folder into one store that is faster to read.

    Images are stored as they are, not encoded again. Files that are not images or cannot be read are
    named and left out. The label of an image is its class folder. If DIR has label tables or
    per-image label files, pack stops. With --unlabeled, it packs the images without those labels.

    After an interruption, the same command without -f continues where it stopped. An incomplete
    store cannot be opened. With -f, a complete store is replaced once the new one beside it is
    complete (with --verify: read back). Until then, it is unchanged. Both must fit on the disk. An
    interrupted replacement starts over.

    Examples:
        feedline pack photos -o photos.lmdb --kind lmdb
        feedline pack photos -o photos.wds --kind tar --verify
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "data", type=Path, metavar="DIR", help="image folder with one subfolder per class"
        )
        packing = parser.add_argument_group("packing")
        packing.add_argument(
            "--kind",
            choices=STORE_KINDS,
            required=True,
            help="LMDB, MXNet RecordIO, WebDataset (tar) or TFRecord",
        )
        packing.add_argument(
            "--verify", action="store_true", help="read the whole store back and compare checksums"
        )
        packing.add_argument(
            "--unlabeled",
            action="store_true",
            help="ignore labels in tables and per-image files. Class folders stay labels",
        )
        packing.add_argument(
            "--strict", action="store_true", help="stop at the first file that cannot be packed"
        )
        add_output(
            parser,
            "folder to create (new, empty, or left by an interrupted pack of the same images)",
            metavar="STORE",
            force="replace a store, or a part of one, in this folder",
            required=True,
        )

    def run(self, args: argparse.Namespace) -> int:
        from feedline.pipelines.stores import pack

        unreadable = "refuse" if args.strict else "skip"
        begun, old = False, _manifest_inode(args.output)

        def note(progress: "Progress") -> None:
            nonlocal begun
            begun = begun or progress.doing != "checking"
            shown(progress)

        try:
            with _progress_bar(args.quiet) as shown:
                done = pack(
                    args.data,
                    args.output,
                    args.kind,
                    unreadable=unreadable,
                    unlabeled=args.unlabeled,
                    force=args.force,
                    read_back=args.verify,
                    progress=note,
                )
        except KeyboardInterrupt as error:
            if args.force and old is not None and _manifest_inode(args.output) == old:
                raise Interrupted(
                    f"interrupted: {args.output} is unchanged: run the same command again to start "
                    f"over"
                ) from error
            # a second -f would remove what was packed
            without = ", without -f," if args.force and begun else ""
            raise Interrupted(
                f"interrupted: run the same command again{without} to continue ({args.output})"
            ) from error
        if not args.quiet:
            from feedline.analysis.report.console import Console

            console = Console()
            for line in _summary(done):
                console.print(line, soft_wrap=True)
            if args.verify:
                console.print(
                    f"  verified: {done.samples:,} of {done.samples:,} samples match their checksums",
                    soft_wrap=True,
                )
        return 0


def _manifest_inode(folder: Path) -> int | None:
    """Return what tells a complete store in a folder from a later one; None: there is none."""
    try:
        return (folder / "manifest.json").stat().st_ino
    except OSError:
        return None


def _summary(done: "Packed") -> list[str]:
    """Return lines on what was packed and what was left out."""
    lines = [
        f"{done.path}: {done.samples:,} images, {done.bytes / 1e6:,.1f} MB, packed as {done.kind} "
        f"into {done.stored_bytes / 1e6:,.1f} MB"
    ]
    if done.resumed_at == done.samples:
        lines.append("  already complete: nothing to do")
    elif done.resumed_at:
        lines.append(f"  continued after the {done.resumed_at:,} samples that were already packed")
    lines += [f"  {line}" for line in _label_lines(done)]
    lines += [
        f"  not all of the old store could be removed: the rest is in {path}" for path in done.old
    ]
    if done.left_out:
        kinds = Counter(
            re.split(r"[,(:]| after ", entry.message)[0].strip() for entry in done.left_out
        )
        lines.append(
            f"  left out: {len(done.left_out):,} "
            f"({', '.join(f'{number:,} {kind}' for kind, number in kinds.most_common())})"
        )
        lines += [
            f"    {entry.path}: {entry.message}" for entry in done.left_out[:_MAX_FILES_LEFT_OUT]
        ]
        if len(done.left_out) > _MAX_FILES_LEFT_OUT:
            lines.append(
                f"    and {len(done.left_out) - _MAX_FILES_LEFT_OUT:,} more, in "
                f"{done.path / 'manifest.json'}"
            )
        if done.resumed_at == done.samples:
            lines.append("    If any of them was repaired since, pack again with -f.")
    return lines


def _label_lines(done: "Packed") -> list[str]:
    """Return lines on the labels that the store has, and on those that it does not have."""
    from feedline.analysis.text.formatting import counted

    lines = [
        f"labels: {len(done.classes):,} classes"
        if len(done.classes) > 1
        else f"labels: none, all images are of one class ({done.classes[0]})"
    ]
    lines += [f"labels not packed: {label.message}" for label in done.lost]
    if done.empty:
        lines.append(
            f"classes without an image: {len(done.empty):,} "
            f"({few(done.empty, _MAX_NAMED_CLASSES)}); they keep their labels"
        )
    if done.below:
        below, take = ("a folder", "takes") if done.below == 1 else ("folders", "take")
        lines.append(
            f"{counted(done.below, 'file')} in {below} below a class folder {take} its label"
        )
    if done.linked:
        are, they = (
            ("are symbolic links", "they lead")
            if done.linked != 1
            else ("is a symbolic link", "it leads")
        )
        lines.append(f"{counted(done.linked, 'file')} {are}; what {they} to is packed")
    return lines


@contextmanager
def _progress_bar(quiet: bool) -> Iterator["Callable[[Progress], None]"]:
    """Show a progress bar on standard error if it is a terminal."""
    from rich import progress as rich

    from feedline.analysis.report.console import Console, Words

    console = Console(stderr=True, quiet=quiet)
    words = (
        Words("{task.description:9}"),
        rich.BarColumn(bar_width=30),
        Words("{task.fields[text]}"),
    )
    with rich.Progress(
        *words,
        rich.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None, text="")

        def show(progress: "Progress") -> None:
            text = f"{progress.done:,} of {progress.total:,} files, {progress.bytes / 1e6:,.0f} MB"
            bar.update(
                task,
                description=progress.doing,
                completed=progress.done,
                total=progress.total,
                text=text,
            )

        yield show
