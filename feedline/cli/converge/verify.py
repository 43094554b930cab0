"""``feedline converge verify``."""

import argparse
import dataclasses
import datetime
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.arguments import at_least, finite
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import FixError
from feedline.profiler.files import output, results

if TYPE_CHECKING:
    from feedline.analysis.convergence.trial import Trial


LEDGER = "ledger.jsonl"


class Verify:
    """Does a fix hold on this training? Branches from one checkpoint with it, without it and with its control, by seed.

    feedline converge verify --fix warmup=5ep,lr_rule=sqrt:8 -- train.py --seed {seed}
    feedline converge verify --fix ghost_bn=32 --from last.pt -- train.py --resume {checkpoint} --seed {seed}

    {seed} and {checkpoint} in the arguments are replaced; the training also finds them as FEEDLINE_SEED and FEEDLINE_CHECKPOINT. All
    branches must train on equally many samples. Accepted is what 95 % confidence over the seeds supports, against the training as it is
    and against the control; each trial becomes a line of the ledger.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--fix", required=True, metavar="NAME=VALUE,...", help="what to try, as for `feedline run --fix`")
        parser.add_argument("--control", metavar="NAME=VALUE,...", help="arm at equal budget (default: the fix's own; none: no control)")
        parser.add_argument("--from", dest="checkpoint", type=Path, metavar="CKPT", help="what every branch begins from")
        parser.add_argument("--seeds", type=at_least(1), default=3, metavar="N", help="branches of each arm (default 3)")
        parser.add_argument("--metric", metavar="NAME", help="what decides (default: the program's feedline.metric, else a loss)")
        parser.add_argument("--margin", type=finite, default=0.0, help="minimum improvement required to accept, in the metric's unit")
        parser.add_argument("--ranks", type=at_least(1), default=1, metavar="N", help="processes of each branch, under torchrun")
        parser.add_argument("-o", "--output", type=Path, default=Path("runs/verify"), metavar="DIR", help="where the branches' runs go")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite older branches there")
        parser.add_argument("--json", type=Path, metavar="FILE", help="write the trial as JSON")
        parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- SCRIPT ARGS", help="the training")

    def run(self, args: argparse.Namespace) -> int:
        program = args.program[1:] if args.program[:1] == ["--"] else args.program
        arms = arms_of(args.fix, args.control)
        check(program, args.checkpoint, args.json, args.force)

        from feedline.analysis.reports.console import Console
        from feedline.cli.converge.branches import Plan, begin, record
        from feedline.cli.converge.verify_text import show

        console = Console()
        plan = Plan(arms, program, args.checkpoint, args.seeds, args.ranks, args.output, args.force, args.metric, args.margin)
        unfinished, new = begin(plan)
        with unfinished.resumable(new, named=True):
            trial = record(plan, unfinished)
            show(trial, console)
            with deferred():
                write(trial, args.output, args.json, program)
        console.print(f"  {os.path.relpath(args.output / LEDGER)}", soft_wrap=True)
        return 0


def arms_of(fix: str, control: str | None) -> dict[str, str]:
    """Arm -> its ``--fix`` text.

    Raises:
        FixError: a text that is none.
    """
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
            raise FixError(f"the control {control}: {error}; give one with --control, or --control none") from error
    return {"baseline": "", "fix": fix, **({"control": control} if control else {})}


def check(program: list[str], checkpoint: Path | None, json_file: Path | None, force: bool) -> None:
    """See that there is something to run, and that it can begin where it should.

    Raises:
        FixError: there is not, or it cannot. OutputError: the JSON cannot be written.
    """
    if not program:
        raise FixError("nothing to run: feedline converge verify --fix ... -- train.py ARGS")
    if checkpoint is not None and not checkpoint.is_file():
        raise FixError(f"there is no checkpoint {checkpoint}")
    if checkpoint is not None and not any("{checkpoint}" in word for word in program):
        raise FixError(
            "the training must be told where the checkpoint is: put {checkpoint} among its arguments, as in --resume {checkpoint}"
        )
    output.refuse_taken(json_file, force)


def write(trial: "Trial", folder: Path, json_file: Path | None, program: list[str]) -> None:
    """Add a line to the ledger, and write the JSON.

    Raises:
        OutputError: no room.
    """
    from feedline.profiler.record.privacy import mask_argv

    found = {"command": mask_argv(program), **dataclasses.asdict(trial)}
    at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    results.add_line(folder, LEDGER, json.dumps({"at": at, **found}))
    if json_file is not None:
        output.save(json_file, json.dumps(found, indent=1) + "\n")
