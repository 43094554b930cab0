"""``feedline env``."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Env:
    """What this machine and this torch allow, hook by hook.

    Attaches every tap to a tiny training of its own and looks whether it recorded what happened, and reads every counter once.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="as JSON on standard output")

    def run(self, args: argparse.Namespace) -> int:
        from feedline.profiler.record.selftest import run

        with only_errors():
            results = run()
        if args.json:
            import json

            print(json.dumps([result._asdict() for result in results], indent=1))
        else:
            from feedline.analysis.reports.console import Console

            console = Console()
            for result in results:
                console.print(f"{'yes' if result.works else 'NO ':4}{result.name:26}{result.says}", soft_wrap=True)
        return 0


@contextmanager
def only_errors() -> Iterator[None]:
    """Send what libraries print of themselves where errors go (gloo of torch 2.8 does, in C++): standard output has the answer alone."""
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(answer, 1)
        os.close(answer)
