"""``feedline check``."""

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.options import STDOUT, add_output, refuse_twice
from feedline.cli.outputs import check_file, console_for, name_files, save
from feedline.cli.runs import add_run, chosen_run
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import NotJudged, OverBudget, ScriptError
from feedline.profiler.printable import printable, say

if TYPE_CHECKING:
    from feedline.analysis.diff.budget import Budget, CheckedLimit
    from feedline.analysis.diff.run_diff import RunDiff
    from feedline.analysis.diff.side import ComparedRun


class CheckCommand:
    """Check a run against a budget: a gate for CI.

    The budget is a TOML file with limits for throughput, step time, stage times and CPU time per
    sample. It can also name findings that must not occur. A limit may be relative to a base run,
    given by the key `base`. docs/jobs/ci.md in a clone lists the keys.

    A limit counts as exceeded only if the whole 95 % interval of the value is beyond it. A value up
    to 5 % beyond passes if its interval includes the limit. Without an interval, as for step_cpu_s,
    the value decides. The exit code is 77 if a limit is exceeded. It is 75 if none is exceeded, but
    at least one could not be judged. That happens if the run is too short or too noisy, was killed,
    or did not record what the limit is about.

    Without --budget, prints a budget that this run passes. Save and edit it.

    Examples:
        feedline check runs/ci --budget budget.toml
        feedline check runs/ci    # prints a budget to start from
        feedline check runs/ci --budget budget.toml --junit feedline.xml --markdown "$GITHUB_STEP_SUMMARY"
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add_run(parser)
        parser.add_argument(
            "--budget",
            type=Path,
            metavar="FILE",
            help="TOML file with the limits (without it, one to start from is printed)",
        )
        results = parser.add_argument_group("results")
        results.add_argument(
            "--junit", type=Path, metavar="FILE", help="also write the results as JUnit XML"
        )
        results.add_argument(
            "--markdown",
            type=Path,
            metavar="FILE",
            help="also write the results as Markdown to FILE, or append them if FILE is "
            "$GITHUB_STEP_SUMMARY",
        )
        results.add_argument(
            "--github",
            action="store_true",
            help="print problems as GitHub annotations (default: if GITHUB_ACTIONS is set)",
        )
        add_output(parser, json="the results")

    def run(self, args: argparse.Namespace) -> int:
        args.run = chosen_run(args, "check")
        if args.budget is None:
            return _print_starter(args)
        appends = args.markdown is not None and str(args.markdown) == os.environ.get(
            "GITHUB_STEP_SUMMARY"
        )
        refuse_twice(
            [path for path in (args.junit, args.markdown, args.json) if path is not None], "file"
        )
        for path in (args.junit, None if appends else args.markdown, args.json):
            check_file(path, args)

        from feedline.analysis.diff.budget import check_budget
        from feedline.analysis.diff.measures import compared_run
        from feedline.analysis.report import document_text
        from feedline.cli.check.budget_file import read
        from feedline.cli.check.text import document_of, print_annotations, write

        budget = read(args.budget)
        refuse_twice([args.run, *budget.base], "run folder")
        run = compared_run(args.run)
        base = [compared_run(Path(path)) for path in budget.base]
        diffs = _against_base(budget, run, base)
        results = check_budget(budget, run, base, diffs)
        console = console_for(args)
        document_text.show(document_of(results, run), console)
        if not console.quiet and (args.github or os.environ.get("GITHUB_ACTIONS")):
            print_annotations(results, run)
        with deferred():
            written = write(results, run, diffs, args, appends)
        name_files(console, written)
        return _exit_code(results)


def _print_starter(args: argparse.Namespace) -> int:
    """Print a budget that the run holds, to be saved and edited.

    Raises:
        ScriptError: results were asked for. NotJudged: nothing can be said of the run.
    """
    save_it = f"feedline check {shlex.quote(str(args.run))} > budget.toml"
    if any((args.junit, args.markdown, args.json, args.github)):
        raise ScriptError(f"nothing to check: give --budget FILE, or make one with {save_it}")
    from feedline.analysis.diff.measures import compared_run
    from feedline.cli.check.budget_file import starter_budget

    text = starter_budget(compared_run(args.run), args.run)
    if not args.quiet:
        say(f"a budget to start from; save it with {save_it}")
    save(STDOUT, printable(text, lines=True))
    return 0


def _against_base(
    budget: "Budget", run: "ComparedRun", base: "list[ComparedRun]"
) -> "dict[str, RunDiff]":
    """Compare with the base, by limit: each limit has the smallest change that counts."""
    from feedline.analysis.diff.diff_runs import diff

    by_change = {change: diff(base, [run], change) for change in set(budget.than_base.values())}
    return {name: by_change[change] for name, change in budget.than_base.items()}


def _exit_code(results: "list[CheckedLimit]") -> int:
    """Return 0 if every limit holds.

    Raises:
        OverBudget: one is exceeded. NotJudged: none is, but one could not be judged.
    """
    from feedline.analysis.diff.budget import count_unmet

    exceeded, unknown = count_unmet(results)
    also = f"; {unknown} could not be judged" if unknown else ""
    if exceeded:
        raise OverBudget(
            f"{exceeded} of {len(results)} limits {'is' if exceeded == 1 else 'are'} exceeded{also}"
        )
    if unknown:
        raise NotJudged(
            f"{unknown} of {len(results)} limits could not be judged, so the run does not pass"
        )
    return 0
