"""``feedline converge``."""

import argparse
from typing import TYPE_CHECKING

from feedline.cli.converge.advise import Advise
from feedline.cli.converge.table import Table
from feedline.cli.converge.verify import Verify

if TYPE_CHECKING:
    from feedline.cli.commands import Command

COMMANDS: dict[str, "type[Command]"] = {"advise": Advise, "verify": Verify, "table": Table}


class Converge:
    """What a larger batch costs, which fix to try first, and whether it holds.

    feedline converge advise runs/batch32 runs/batch256    what kind of loss it is, what the batch costs, what to try
    feedline converge verify --fix warmup=5ep -- train.py  branches with and without the fix, and with its control
    feedline converge table                                every fix on a small training, here, against its control
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
        for name, kind in COMMANDS.items():
            about = (kind.__doc__ or "").strip()
            sub = commands.add_parser(
                name, help=about.split("\n")[0], description=about, formatter_class=argparse.RawDescriptionHelpFormatter
            )
            command = kind()
            command.prepare_parser(sub)
            sub.set_defaults(act=command.run)

    def run(self, args: argparse.Namespace) -> int:
        raise AssertionError("one of its commands is run")
