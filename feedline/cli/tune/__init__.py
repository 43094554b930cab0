"""``feedline tune``."""

import argparse
import dataclasses
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedline.cli.options import add_output, at_least, positive
from feedline.cli.outputs import check_files, console_for, name_files, progress_bar, save, save_json
from feedline.cli.runs import add_run, chosen_run
from feedline.cli.settings import MAX_WORKERS
from feedline.cli.unfinished import about
from feedline.cli.whatif import NO_PREDICTION
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import OutputError
from feedline.profiler.printable import say

if TYPE_CHECKING:
    from feedline.analysis.ledger.finding import Refused
    from feedline.analysis.predict.search import Limits, Search, Searcher, Tuning
    from feedline.cli.whatif.prediction import Replayable

_PAGES = (".html", ".htm")


class TuneCommand:
    """Find the best DataLoader settings for a recorded training.

    Tries values of num_workers, prefetch_factor and persistent_workers that the CPUs and the memory
    allow. The training is not run: feedline simulates the DataLoader, from the recorded batches and
    steps. Among settings within 2 % of the best throughput, it chooses the one with the fewest
    workers. in_order=False reorders batches, so feedline predicts its throughput but does not choose
    it.

    Examples:
        feedline tune runs/demo
        feedline tune runs/demo --cores 8 --memory 16GB -o tune.html
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add_run(parser)
        limits = parser.add_argument_group("limits")
        limits.add_argument(
            "--max-workers",
            type=at_least(0, MAX_WORKERS),
            metavar="N",
            help="largest num_workers to try (default: 2 per CPU, at least 4)",
        )
        limits.add_argument(
            "--cores",
            type=positive,
            metavar="N",
            help="CPUs that the training may use (default: as recorded)",
        )
        limits.add_argument(
            "--memory",
            type=_byte_count,
            metavar="SIZE",
            help="memory for the workers and their batches, such as 8GB (default: as available "
            "during the run)",
        )
        add_output(
            parser,
            "write the result with a plot to FILE, which ends in .html",
            json="the result",
        )

    def run(self, args: argparse.Namespace) -> int:
        _check_outputs(args)
        args.run = chosen_run(args, "tune")

        from feedline.analysis.ledger.finding import Refused
        from feedline.analysis.predict.search import Tuning
        from feedline.analysis.report import document_text
        from feedline.cli.tune.text import document_of
        from feedline.cli.whatif.prediction import replayable

        training = replayable(args.run)
        tuning = (
            Tuning(refused=training) if isinstance(training, Refused) else _tuned(training, args)
        )
        console = console_for(args)
        document_text.show(document_of(tuning, args.run), console)
        with deferred():
            name_files(console, _write(tuning, args))
        return NO_PREDICTION if tuning.refused else 0


def _check_outputs(args: argparse.Namespace) -> None:
    """Check, before any work, where the results go. Raises OutputError."""
    if args.output is not None and args.output.suffix.lower() not in _PAGES:
        raise OutputError(
            f"{args.output}: the result is written as a page: name it "
            f"{args.output.with_suffix('.html')}"
        )
    check_files(args)


def _tuned(training: "Replayable", args: argparse.Namespace) -> "Tuning":
    """Search, say before how long that takes, and measure it."""
    from feedline.analysis.ledger.finding import Refused
    from feedline.analysis.ledger.view import loader_call
    from feedline.analysis.ledger.view.cpus import crowded
    from feedline.analysis.predict.search import Searcher, Tuning

    began = time.monotonic()
    memory = training.memory
    limits = _limits_of(training, args)
    epochs = 1 if training.facts.loader_made_again else training.facts.epochs
    searcher = Searcher(training.predict, training.settings, epochs, limits, memory)
    search = _search(searcher, args.quiet)
    if isinstance(search, Refused):
        return Tuning(limits=limits, memory=memory, refused=search)
    more = search.best.workers > search.now.workers
    line = (
        loader_call.line_to_change(training.facts, dict(search.changes)) if search.changes else ""
    )
    return Tuning(
        search,
        limits,
        memory,
        line,
        time.monotonic() - began,
        measured_interval=training.throughput.varies,
        remarks=tuple(filter(None, [crowded(training.facts)])) if more else (),
    )


def _search(searcher: "Searcher", quiet: bool) -> "Search | Refused":
    """Search; how long the first prediction took says how long all of them take."""
    began = time.monotonic()
    searcher.present()
    most = searcher.at_most
    if not quiet:
        at_most_s = most * (time.monotonic() - began)
        say(f"replaying up to {most} settings takes up to about {about(at_most_s)}")
    with progress_bar(quiet, "replaying settings") as tell:
        searcher.tell = lambda done: tell("replaying settings", min(done, most), most)
        return searcher.search()


def _limits_of(training: "Replayable", args: argparse.Namespace) -> "Limits":
    """Return the limits of the command line, or else of the machine as recorded."""
    from feedline.analysis.predict.search import Limits, recorded_settings, usual_most

    now = recorded_settings(training.settings)
    cpus = args.cores or training.facts.effective_cpus
    usual = usual_most(cpus, now.get("num_workers", 0))
    workers = usual if args.max_workers is None else args.max_workers
    room, shared = training.room
    return Limits(
        min(workers, MAX_WORKERS), args.cores, room if args.memory is None else args.memory, shared
    )


def _flat(tuning: "Tuning") -> dict[str, object]:
    """Return the result as it is written: the search beside its limits, without a level between."""
    values: dict[str, Any] = {
        field.name: getattr(tuning, field.name) for field in dataclasses.fields(tuning)
    }
    search = values.pop("search")
    return {
        **(
            {field.name: getattr(search, field.name) for field in dataclasses.fields(search)}
            if search
            else {}
        ),
        **values,
    }


def _write(tuning: "Tuning", args: argparse.Namespace) -> list[Path]:
    """Write the page and the JSON that were requested, or print the JSON; return the files."""
    from feedline.analysis.report.json_report import plain
    from feedline.cli.tune.text import render

    value = plain(_flat(tuning))
    written: list[Path] = []
    if args.json is not None:
        save_json(args.json, value)
        written.append(args.json)
    if args.output is not None and tuning.search is not None:
        save(args.output, render(tuning))
        written.insert(0, args.output)
    return written


def _byte_count(text: str) -> float:
    """Parse ``8GB`` or ``512MB`` (powers of 1000) or ``8GiB`` (powers of 1024) into bytes.

    The unit is required.
    """
    parts = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?) ?([kKMGT]?)(i?)B", text.strip())
    if parts is None or (parts[3] and not parts[2]):
        raise argparse.ArgumentTypeError(
            f"expected a size with its unit, such as 8GB or 512MB, got {text[:40]!r}"
        )
    power = "kMGT".index(parts[2].replace("K", "k")) + 1 if parts[2] else 0
    return positive(parts[1]) * float(1024 if parts[3] else 1000) ** power
