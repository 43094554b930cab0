"""``feedline env``."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from feedline.cli.options import add_output
from feedline.cli.outputs import check_json, console_for, name_files, save_json
from feedline.profiler.message import few
from feedline.profiler.printable import say

if TYPE_CHECKING:
    from feedline.profiler.session.selftest import SelfTest


class EnvCommand:
    """Check what feedline can record on this machine with this PyTorch.

    Records a tiny training to try every measurement on this machine. This takes 5 to 30 s. If
    trainings can be recorded only in part, the last line starts with "Not ready". The exit code is
    0 even then.

    Examples:
        feedline env
        feedline env --json env.json
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add_output(parser, json="the result")

    def run(self, args: argparse.Namespace) -> int:
        check_json(args)
        from feedline.analysis.report.console import Console, building
        from feedline.profiler.session.selftest import PARTS, run_selftests

        screen = Console(stderr=True, quiet=args.quiet)
        if not (args.quiet or screen.is_terminal):
            say("trying every measurement takes 5 to 30 s, and longer beside other programs")
        with building(screen, [f"trying {part}" for part in PARTS]) as done, _only_errors():
            results = run_selftests(done)
        entries = [
            {"name": result.name, "works": result.works, "says": result.message}
            for result in results
        ]
        console = console_for(args)
        for result in results:
            console.print(
                f"{'yes' if result.works else 'NO ':4}{result.name:26}{result.message}",
                soft_wrap=True,
            )
        console.print()
        console.print(_summary(results), soft_wrap=True)
        if args.json is not None:
            save_json(args.json, entries)
            name_files(console, [args.json])
        return 0


def _summary(results: "Sequence[SelfTest]") -> str:
    """Return one line: whether trainings can be recorded here, what is missing, and if it matters."""
    from feedline.profiler.session.selftest import HookKind

    missing = {
        kind: [result.name for result in results if result.kind is kind and not result.works]
        for kind in HookKind
    }
    said = "; ".join(
        f"{few(names, len(names))} ({kind.value})" for kind, names in missing.items() if names
    )
    if not said:
        return "All well: everything that feedline can record works here."
    ready = "Not ready" if missing[HookKind.TRAINING] else "Ready"
    working = sum(result.works for result in results)
    return f"{ready}: {working} of {len(results)} work. Missing: {said}."


@contextmanager
def _only_errors() -> Iterator[None]:
    """Redirect what libraries print to standard error: standard output has only the result.

    Some print from C++, as gloo of torch 2.8 does.
    """
    sys.stdout.flush()
    standard_output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(standard_output, 1)
        os.close(standard_output)
