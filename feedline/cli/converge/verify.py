"""``feedline converge verify``."""

import argparse
import dataclasses
import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.arguments import at_least, finite
from feedline.cli.options import add_old_name, add_output
from feedline.cli.output import check_json, name_files, save
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import FixError
from feedline.profiler.files import results

if TYPE_CHECKING:
    from feedline.analysis.convergence.trial import Trial


LEDGER = "ledger.jsonl"


class Verify:
    """Test whether a fix helps a training, by seed and against a control.

    Trains several seeds of each arm: unchanged, with the fix, and with its control (the cheaper change that the fix has to beat). All
    branches must process the same number of samples. A fix is accepted if the improvement over both is significant at 95 % confidence.
    Each trial is appended to ledger.jsonl.

    {seed} and {checkpoint} in the arguments are replaced; the training also finds them in FEEDLINE_SEED and FEEDLINE_CHECKPOINT.

    Examples:
        feedline converge verify --fix warmup=5ep -- train.py --seed {seed}
        feedline converge verify --fix ghost_bn=32 --checkpoint a.pt -- train.py --resume {checkpoint}
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- SCRIPT ARGS", help="training script and its arguments")
        arms = parser.add_argument_group("arms")
        arms.add_argument("--fix", required=True, metavar="NAME=VALUE,...", help="fix to test, as in `feedline run --fix`")
        arms.add_argument(
            "--control", metavar="NAME=VALUE,...", help="control of equal cost, or `none` (default: the control defined by the fix)"
        )
        checkpoint = arms.add_argument("--checkpoint", type=Path, metavar="FILE", help="checkpoint that every branch starts from")
        add_old_name(arms, "--from", checkpoint)
        arms.add_argument("--seeds", type=at_least(1), default=3, metavar="N", help="number of seeds per arm (default: 3)")
        arms.add_argument("--ranks", type=at_least(1), default=1, metavar="N", help="number of ranks of each training (default: 1)")
        deciding = parser.add_argument_group("decision")
        deciding.add_argument(
            "--metric", metavar="NAME", help="metric to compare (default: the one recorded with feedline.metric(), else a loss)"
        )
        deciding.add_argument(
            "--margin", type=finite, default=0.0, metavar="DIFFERENCE", help="improvement required, in units of the metric (default: 0)"
        )
        add_output(
            parser,
            "folder of the branches' runs (default: runs/verify)",
            metavar="FOLDER",
            json="the trial",
            force="record existing branches again, and overwrite FILE",
            default=Path("runs/verify"),
        )

    def run(self, args: argparse.Namespace) -> int:
        program = args.program[1:] if args.program[:1] == ["--"] else args.program
        arms = arms_of(args.fix, args.control)
        check(program, args.checkpoint)
        check_json(args)

        from feedline.analysis.reports.console import Console
        from feedline.cli.converge.branches import Plan, begin, record
        from feedline.cli.converge.verify_text import show

        console = Console(quiet=args.quiet)
        plan = Plan(arms, program, args.checkpoint, args.seeds, args.ranks, args.output, args.force, args.metric, args.margin, args.quiet)
        unfinished, new = begin(plan)
        with unfinished.resumable(new, named=True):
            trial = record(plan, unfinished)
            show(trial, console)
            with deferred():
                write(trial, args.output, args.json, program)
        name_files(console, [args.output / LEDGER])
        return 0


def arms_of(fix: str, control: str | None) -> dict[str, str]:
    """Arm -> its ``--fix`` text. Raises FixError: a text that is none."""
    from feedline.convergence.apply import parse

    requests = parse(fix)
    if control is None:
        own = [request.fix.control.format(lr=getattr(request.setting, "lr", "")) for request in requests if request.fix.control]
        control = own[0] if len(own) == 1 else ""
    if control in ("none", fix):
        control = ""
    if control:
        try:
            parse(control)
        except FixError as error:
            raise FixError(f"control {control}: {error}; choose another with --control, or --control none") from error
    return {"baseline": "", "fix": fix, **({"control": control} if control else {})}


def check(program: list[str], checkpoint: Path | None) -> None:
    """See that there is something to run, and that it can begin where it should. Raises FixError: there is not, or it cannot."""
    if not program:
        raise FixError("no training given: add it after `--`, as in feedline converge verify --fix ... -- train.py ARGS")
    if checkpoint is not None and not checkpoint.is_file():
        raise FixError(f"checkpoint {checkpoint} does not exist")
    if checkpoint is not None and not any("{checkpoint}" in word for word in program):
        raise FixError("the training is not told which checkpoint to load: add {checkpoint} to its arguments, as in --resume {checkpoint}")


def write(trial: "Trial", folder: Path, json_file: Path | None, program: list[str]) -> None:
    """Add a line to the ledger, and write the JSON. Raises OutputError: no room."""
    from feedline.profiler.record.privacy import mask_argv

    found = {"command": mask_argv(program), **dataclasses.asdict(trial)}
    at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    results.add_line(folder, LEDGER, json.dumps({"at": at, **found}))
    if json_file is not None:
        save(json_file, json.dumps(found, indent=1) + "\n")
