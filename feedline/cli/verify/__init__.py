"""``feedline verify``."""

import argparse
import json
import re
import shlex
from pathlib import Path
from typing import Any

from feedline.cli.options import add_output, at_least, finite
from feedline.cli.outputs import check_json, console_for, save
from feedline.cli.parser import Parser
from feedline.cli.runs import run_path
from feedline.cli.settings import OVERRIDES, Value, add_settings, as_typed
from feedline.profiler.errors import FixError, ScriptError
from feedline.profiler.masks import MASK

_PAIRS, _SEEDS = 3, 3
_EXAMPLE: dict[str, Value] = {"num_workers": 4}
#: How parsers of command lines tell of an option that they do not know: argparse, and click.
_UNKNOWN_OPTION = re.compile(
    r"exit code 2\b.*(?:unrecognized arguments|No such option):? (.*)", re.S
)


_OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")


class VerifyCommand:
    """Run a training with and without a change, and say whether the change helps.

    Your source files are not edited. A change is accepted (exit code 0) if the training is better by
    --margin, with 95 % confidence. It is rejected (77) if surely below that (large-batch fixes:
    surely worse), or if the training fails with it. Otherwise, the trial is inconclusive (75).

    `feedline verify RUN` alone prints the command that tests the fix of RUN's report. `feedline
    verify` alone lists all earlier trials, which runs/verify/ledger.jsonl keeps.

    DATALOADER SETTINGS: --set NAME=VALUE, or --fix with the name of a finding of RUN

    Runs the training in pairs, with and without the change. A run usually takes at most 20 s, plus
    its start. Prints the measured and the predicted throughput, and a diff of the lines to change.
    Without RUN, feedline first records the training. After Ctrl-C, the same command keeps the
    complete runs. A new trial replaces the runs of the one before, and the ledger stays.

    In the training's arguments, feedline replaces {out} with a new, empty folder for each run. The
    training can write only there, to temporary folders and caches, and to folders that --writable
    names. A training that writes elsewhere fails. W&B and MLflow are offline.

    LARGE-BATCH FIXES: --fix NAME=VALUE, as in `feedline run`

    Trains to the end with several seeds, with and without the fix. A fix that replaces the optimizer
    must also beat its control: a simpler change of equal cost, also trained. feedline checks that
    all runs process the same number of samples.

    These runs can overwrite your files, so give each run its own folder. {out} is removed after the
    run, and out/{arm}-{seed} stays. In the training's arguments, feedline replaces {arm} with
    baseline, fix or control, and {seed} and {checkpoint} with their values.

    The training can also read these values from FEEDLINE_OUT, FEEDLINE_ARM, FEEDLINE_SEED and
    FEEDLINE_CHECKPOINT. FEEDLINE_OUT is also set with DataLoader settings.

    Examples:
        feedline verify runs/one --fix too_few_workers -- train.py --output-dir {out}
        feedline verify runs/one --set num_workers=4 -- train.py --output-dir {out}
        feedline verify --fix warmup=5ep --seeds 3 -- train.py --seed {seed} --output-dir out/{arm}-{seed}
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "run_folder",
            type=run_path,
            nargs="?",
            metavar="RUN",
            help="run folder of the unchanged training (give the training itself after `--`)",
        )
        changing = parser.add_argument_group("change")
        changing.add_argument(
            "--fix",
            metavar="FIX",
            help="name of a finding, such as too_few_workers (`feedline report RUN --full` shows "
            "them), or large-batch fixes, such as warmup=5ep,lr_rule=sqrt",
        )
        add_settings(
            changing,
            OVERRIDES,
            "arguments of the training's DataLoader, as in `feedline run --set`",
        )
        changing.add_argument(
            "--ranks",
            type=at_least(1),
            default=1,
            metavar="N",
            help="ranks of each run (default: 1, even if RUN had more). feedline starts torchrun",
        )
        speed = parser.add_argument_group("DataLoader settings")
        speed.add_argument(
            "--pairs",
            type=at_least(2),
            default=_PAIRS,
            metavar="N",
            help=f"number of pairs of runs (default: {_PAIRS})",
        )
        speed.add_argument(
            "--steps",
            type=at_least(2),
            metavar="N",
            help="steps of each run (default: enough to know its throughput to 3 %%, usually at most 20 s)",
        )
        speed.add_argument(
            "--writable",
            type=Path,
            action="append",
            default=[],
            metavar="DIR",
            help="folder whose files the runs may change, or / for all (may be repeated)",
        )
        _add_seeds(parser)
        _add_deciding(parser)

    def run(self, args: argparse.Namespace) -> int:
        try:
            return self._verify(args)
        except ScriptError as error:
            if option := self._given_to_the_training(str(error)):
                hint = f"{option} is an option of feedline verify: put it before --"
                raise ScriptError(*error.args, hint) from error
            raise

    def _given_to_the_training(self, failed: str) -> str:
        """Return the option of this command that a training failed on; empty: it did not."""
        parser = Parser(add_help=False)
        self.prepare_parser(parser)
        own = set(_OPTION.findall(parser.format_help()))
        refused = _UNKNOWN_OPTION.search(failed)
        words = refused[1].split() if refused else []
        given = (word.strip("'\"").partition("=")[0] for word in words)
        return next((name for name in given if name in own), "")

    def _verify(self, args: argparse.Namespace) -> int:
        from feedline.analysis.explain.speed_trial import lines

        check_json(args)
        given = (args.fix, args.settings, args.program, args.run_folder, args.steps, args.writable)
        if not any(given) and (entries := lines(args.output)):
            return _show_earlier(entries, args)
        if args.fix is None and not args.settings:
            raise ScriptError(_without_change(args))
        if args.fix is not None and args.settings:
            raise ScriptError("--fix cannot be combined with --set: verify one change at a time")
        if not args.program:
            raise FixError(f"no training given: add it after `--`, as in {_example(args)}")
        if args.fix is not None and not _is_finding(args.fix):
            from feedline.cli.verify.seeds import verify_by_seed

            if args.run_folder is not None:
                raise ScriptError(
                    f"--fix {args.fix} takes no RUN: the unchanged training is one of its arms"
                )
            if args.steps is not None or args.writable:
                raise ScriptError(
                    "--steps and --writable are for DataLoader settings: large-batch runs train "
                    "to the end and may write anywhere"
                )
            return verify_by_seed(args, args.program)
        if any(
            option is not None
            for option in (args.checkpoint, args.control, args.metric, args.better)
        ):
            raise ScriptError(
                "--checkpoint, --control, --metric and --better need --fix NAME=VALUE of a fix for "
                "large batches"
            )
        from feedline.cli.verify.pairs import verify_by_pairs

        return verify_by_pairs(args, args.program)


def _without_change(args: argparse.Namespace) -> str:
    """Say what to type: the command that tests the fix of RUN's report, if it has such a fix."""
    if args.run_folder is None or args.program:
        return f"nothing to verify: say what to change, as in {_example(args)}"
    from feedline.analysis.explain.reports_of_run import report_of
    from feedline.analysis.rules import is_applied_outside
    from feedline.profiler.store.trainings import open_run, require_one_training

    report = report_of(require_one_training(open_run(args.run_folder)))
    top = next((it for it in report.findings if it.rule_id == report.verdict.finding), None)
    if top is None or not is_applied_outside(top):
        return (
            f"the report of {args.run_folder} has no fix that can be tested from outside: say what "
            f"to change, as in {_example(args)}"
        )
    args.fix, args.ranks = top.rule_id, len(report.ranks)
    args.program, missing = _program_of(report.run.command)
    return f"to test the fix of this report: {_example(args)}{missing}"


def _program_of(command: list[str]) -> tuple[list[str], str]:
    """Return a recorded training as it is typed, and what the recording does not have of it."""
    if not command or Path(command[0]).suffix != ".py":
        return ["SCRIPT", "..."], ""
    if any(MASK in word for word in command):
        return command, f" (replace each {MASK} by what you typed there)"
    # it has no arguments, or they were not recorded
    return command, " (add the arguments of the script, if it has any)" * (len(command) == 1)


def _example(args: argparse.Namespace) -> str:
    """Return the command line with what is missing in it."""
    change = ["--fix", args.fix] if args.fix else ["--set", as_typed(args.settings or _EXAMPLE)]
    run = [str(args.run_folder)] if args.run_folder else []
    ranks = ["--ranks", str(args.ranks)] if args.ranks > 1 else []
    program = args.program or ["train.py"]
    return shlex.join(["feedline", "verify", *run, *change, *ranks, "--", *program])


def _show_earlier(entries: list[dict[str, Any]], args: argparse.Namespace) -> int:
    """List earlier trials."""
    from feedline.analysis.explain.speed_trial import read
    from feedline.analysis.report import document_text
    from feedline.cli.verify.text import document_of_earlier

    if args.json is not None:
        save(args.json, json.dumps(entries, indent=1) + "\n")
    document_text.show(document_of_earlier(read(entries)), console_for(args))
    return 0


def _is_finding(fix: str) -> bool:
    """Return whether a fix is that of a finding; else it is one for large batches."""
    from feedline.analysis.rules import BY_ID

    return fix in BY_ID


def _add_seeds(parser: argparse.ArgumentParser) -> None:
    """Add the options for trials by seed."""
    seeds = parser.add_argument_group("large-batch fixes")
    seeds.add_argument(
        "--control",
        metavar="NAME=VALUE,...",
        help="fixes of the control runs, or `none` (default: what the fix defines, if any)",
    )
    seeds.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="checkpoint that each run starts from"
    )
    seeds.add_argument(
        "--seeds",
        type=at_least(1),
        default=_SEEDS,
        metavar="N",
        help=f"number of seeds (default: {_SEEDS})",
    )
    seeds.add_argument(
        "--metric",
        metavar="NAME",
        help="metric to compare (default: the alphabetically first feedline.metric whose name shows "
        "what is better, else the evaluation loss, else the training loss)",
    )
    seeds.add_argument(
        "--better",
        choices=("higher", "lower"),
        help="which values of --metric are better (default: by its name, such as higher for accuracy)",
    )


def _add_deciding(parser: argparse.ArgumentParser) -> None:
    """Add the decision and the output."""
    deciding = parser.add_argument_group("decision")
    deciding.add_argument(
        "--margin",
        type=finite,
        metavar="DIFFERENCE",
        help="required improvement, in %% of the throughput (default: 2) or in the metric's unit "
        "(default: 0)",
    )
    add_output(
        parser,
        "folder of the runs (default: runs/verify)",
        metavar="FOLDER",
        json="the trial",
        force="start over after Ctrl-C, replace the runs of a finished large-batch trial, and "
        "overwrite the --json file",
        default=Path("runs/verify"),
    )
