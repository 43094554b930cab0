"""``feedline verify``."""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from feedline.cli.options import add_output, at_least, finite
from feedline.cli.outputs import check_json, console_for, save
from feedline.cli.runs import run_path
from feedline.cli.settings import OVERRIDES, Value, add_settings, as_typed
from feedline.profiler.errors import FixError, ScriptError

_PAIRS, _SEEDS = 3, 3
_EXAMPLE: dict[str, Value] = {"num_workers": 4}


class VerifyCommand:
    """Run a training with and without a change, and say whether the change helps.

    The change is applied without editing files. It is accepted if, at 95 % confidence, the
    improvement exceeds --margin and that of its control, if it has one. Exit codes: 0 accepted, 77
    rejected, 75 inconclusive. Each trial is appended to ledger.jsonl; the report of RUN mentions it,
    and `feedline verify` alone lists all.

    Changes of the DataLoader (--set, or --fix with a finding of RUN) are tried in pairs of short
    runs. The measured throughput is shown beside the one predicted from RUN; without RUN, the
    training is recorded first. The lines to change in your program are printed as a diff. Each run
    ends after about 20 s of steps, and replaces that of an earlier trial. It can write only to
    {out}, to temporary folders and to caches (and to what --writable names), so that it overwrites
    no file of yours; W&B and MLflow are offline in these runs. --fix page_faults is tried in the
    same way, with the environment variables that the finding names.

    Fixes for large batches (--fix NAME=VALUE, as in `feedline run --fix`) are tried in full
    training runs, several seeds per arm: unchanged, with the fix, and with its control (a change of
    equal cost that the fix has to beat). All must process the same number of samples, and they
    write where they always do. {arm}, {seed} and {checkpoint} in the arguments are replaced by each
    run's values; {arm} and {seed} together give each run an output folder of its own.

    The values of {out}, {arm}, {seed} and {checkpoint} are also in the environment variables
    FEEDLINE_OUT, FEEDLINE_ARM, FEEDLINE_SEED and FEEDLINE_CHECKPOINT.

    Examples:
        feedline verify runs/one --set num_workers=4 -- train.py --output-dir {out}
        feedline verify runs/one --fix too_few_workers -- train.py
        feedline verify --fix warmup=5ep --seeds 3 -- train.py --seed {seed} --output-dir out/{arm}-{seed}
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "run_folder",
            type=run_path,
            nargs="?",
            metavar="RUN",
            help="run folder of the unchanged training; a training goes after `--`",
        )
        changing = parser.add_argument_group("change")
        changing.add_argument(
            "--fix",
            metavar="NAME=VALUE,...",
            help="fix for large batches; or the id of a finding, such as too_few_workers",
        )
        add_settings(
            changing,
            OVERRIDES,
            "arguments of the training's DataLoader, as in `feedline run --set`",
        )
        speed = parser.add_argument_group("changes of the DataLoader")
        speed.add_argument(
            "--pairs",
            type=at_least(2),
            default=_PAIRS,
            metavar="N",
            help=f"pairs of runs, with and without the change (default: {_PAIRS})",
        )
        speed.add_argument(
            "--steps",
            type=at_least(2),
            metavar="N",
            help="steps of each run (default: enough for an interval of 3 %%, within 20 s)",
        )
        speed.add_argument(
            "--writable",
            type=Path,
            action="append",
            default=[],
            metavar="DIR",
            help="folder whose files the runs may change; may be repeated; / for all",
        )
        _add_arms(parser)
        _add_deciding(parser)

    def run(self, args: argparse.Namespace) -> int:
        from feedline.analysis.explain.tried import lines

        check_json(args)
        given = (args.fix, args.settings, args.program, args.run_folder, args.steps, args.writable)
        if not any(given) and (entries := lines(args.output)):
            return _show_earlier(entries, args)
        if args.fix is None and not args.settings:
            raise ScriptError(f"nothing to verify: say what to change, as in {_example(args)}")
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
            return verify_by_seed(args, args.program)
        if args.checkpoint is not None or args.control is not None or args.metric is not None:
            raise ScriptError(
                "--checkpoint, --control and --metric need --fix NAME=VALUE of a fix for large "
                "batches"
            )
        from feedline.cli.verify.pairs import verify_by_pairs

        return verify_by_pairs(args, args.program)


def _example(args: argparse.Namespace) -> str:
    """Return the command line with what is missing in it."""
    change = ["--fix", args.fix] if args.fix else ["--set", as_typed(args.settings or _EXAMPLE)]
    run = [str(args.run_folder)] if args.run_folder else []
    program = args.program or ["train.py"]
    return shlex.join(["feedline", "verify", *run, *change, "--", *program])


def _show_earlier(entries: list[dict[str, Any]], args: argparse.Namespace) -> int:
    """List earlier trials."""
    from feedline.analysis.explain.tried import read
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


def _add_arms(parser: argparse.ArgumentParser) -> None:
    """Add the options for arms by seed."""
    arms = parser.add_argument_group("arms")
    arms.add_argument(
        "--control",
        metavar="NAME=VALUE,...",
        help="control of equal cost, or `none` (default: the control defined by the fix)",
    )
    arms.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="checkpoint that every branch starts from"
    )
    arms.add_argument(
        "--seeds",
        type=at_least(1),
        default=_SEEDS,
        metavar="N",
        help=f"number of seeds per arm (default: {_SEEDS})",
    )
    arms.add_argument(
        "--ranks",
        type=at_least(1),
        default=1,
        metavar="N",
        help="number of ranks of each training (default: 1)",
    )
    arms.add_argument(
        "--metric",
        metavar="NAME",
        help="metric to compare; lower is better for losses, errors, perplexities, and wer, rmse "
        "and the like (default: the alphabetically "
        "first name passed to feedline.metric(), else a loss)",
    )


def _add_deciding(parser: argparse.ArgumentParser) -> None:
    """Add the decision and the output."""
    deciding = parser.add_argument_group("decision")
    deciding.add_argument(
        "--margin",
        type=finite,
        metavar="DIFFERENCE",
        help="improvement required: of the throughput in %% (default: 2), of a metric in its unit "
        "(default: 0)",
    )
    add_output(
        parser,
        "folder of the runs (default: runs/verify)",
        metavar="FOLDER",
        json="the trial",
        force="record all runs again, and overwrite FILE",
        default=Path("runs/verify"),
    )
