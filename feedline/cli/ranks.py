"""``feedline report --by-rank``."""

import argparse
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from feedline.cli.arguments import refuse_twice
from feedline.cli.output import check_json, save_json

if TYPE_CHECKING:
    from feedline.analysis.ranks.many.rank_pool import RankPool


def show_ranks(args: argparse.Namespace) -> int:
    """Compare the ranks of a run; ``run`` holds its folders. Raises FeedlineError."""
    check_json(args)
    refuse_twice(args.run, "run folder")

    from feedline.analysis.ranks.many.reduce import reduce_ranks
    from feedline.analysis.report.console import Console
    from feedline.analysis.report.json_report import plain
    from feedline.cli.ranks_text import show
    from feedline.cli.work import working

    with pool_of(args) as pool, working(args.quiet, "finding ranks") as tell:
        many = reduce_ranks(args.run, pool, tell=tell)
    show(many, Console(quiet=args.quiet))
    if args.json is not None:
        save_json(args.json, plain(many))
    return 0


def pool_of(args: argparse.Namespace, parts: int | None = None) -> "AbstractContextManager[RankPool]":
    """The workers that read the ranks: this process, others on this machine, or a Dask cluster.

    Args:
        parts: of the work; None: not known yet.
    """
    from feedline.analysis.ranks.many import rank_pool

    if args.dask:
        return rank_pool.dask(args.dask)
    return rank_pool.here() if parts == 1 or (parts is not None and args.processes == 1) else rank_pool.local(args.processes)
