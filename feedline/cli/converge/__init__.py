"""``feedline converge``."""

import argparse

from feedline.cli.converge.advise import Advise
from feedline.cli.parser import Command, Parser, overview

COMMANDS: dict[str, type[Command]] = {"advise": Advise}


class Converge:
    """Train with large batches: what a batch costs, and which fix to try first."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        assert isinstance(parser, Parser)
        parser.description = f"{parser.description}\n\n{overview({'commands:': COMMANDS})}"
        parser.add_commands(COMMANDS)

    def run(self, args: argparse.Namespace) -> int:
        raise AssertionError("one of its commands is run")
