"""``feedline env``."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from feedline.cli.options import add_output
from feedline.cli.outputs import check_json, console_for, name_files, save_json


class EnvCommand:
    """Check what feedline can record on this machine with this PyTorch.

    Attaches every hook to a tiny training, checks what it records, and reads every counter once.

    Examples:
        feedline env
        feedline env --json
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add_output(parser, json="the result", json_to_stdout=True)

    def run(self, args: argparse.Namespace) -> int:
        check_json(args)
        from feedline.profiler.session.selftest import run_selftests

        with _only_errors():
            results = run_selftests()
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
        if args.json is not None:
            save_json(args.json, entries)
            name_files(console, [args.json])
        return 0


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
