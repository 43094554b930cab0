"""``feedline ranks``."""

import argparse
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.arguments import at_least, refuse_twice
from feedline.profiler.files import output

if TYPE_CHECKING:
    from feedline.analysis.many.crew import Crew


class Ranks:
    """Who waits for whom, in a run of many ranks: each is read by itself, on all CPUs or on a Dask cluster.

    feedline ranks runs/big
    feedline ranks s3://bucket/run --dask tcp://scheduler:8786
    feedline ranks /nodes/0/run /nodes/1/run --json ranks.json

    Folders of one run; any address that fsspec reads. Ranks that are missing, restarted, killed or shorter than the others are named.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "run", nargs="+", metavar="RUN", help="a run folder, or those of its nodes: paths or addresses such as s3://..."
        )
        parser.add_argument("--dask", metavar="ADDRESS", help="work on the cluster of this scheduler")
        parser.add_argument("--processes", type=at_least(1), metavar="N", help="on this machine (default: one for each CPU)")
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result as JSON")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite the file")
        parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")

    def run(self, args: argparse.Namespace) -> int:
        output.refuse_taken(args.json, args.force)
        refuse_twice(args.run, "run folder")

        from feedline.analysis.many.reduce import reduce_ranks
        from feedline.analysis.reports.console import Console
        from feedline.cli.ranks_text import show
        from feedline.cli.work import working

        with crew_of(args) as crew, working(args.quiet, "finding ranks") as tell:
            many = reduce_ranks(args.run, crew, tell=tell)
        show(many, Console(quiet=args.quiet))
        if args.json is not None:
            output.save(args.json, json.dumps(many.plain(), indent=1))
        return 0


def crew_of(args: argparse.Namespace) -> "AbstractContextManager[Crew]":
    """Who reads the ranks."""
    from feedline.analysis.many import crew

    return crew.dask(args.dask) if args.dask else crew.local(args.processes)
