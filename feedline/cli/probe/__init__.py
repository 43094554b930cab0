"""``feedline probe``."""

import argparse
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.analysis.text.formatting import counted
from feedline.cli.options import add_output, add_training
from feedline.cli.outputs import check_files, name_files, progress_bar
from feedline.cli.unfinished import Remaining, about
from feedline.pipelines.names import PROBES
from feedline.profiler.printable import say

if TYPE_CHECKING:
    from feedline.analysis.ranks.many.rank_pool import Tell
    from feedline.pipelines.probes.probe_rounds import Subject

_OF_STEPS = {"compute", "sweep"}  # parts that train the model


class ProbeCommand:
    """Measure how fast each part of this machine is by itself.

    Uses your own files, transforms and model. Without --data or --model, their
    parts are left out. Measures:
      read, decode, augment   each stage of making a sample
      transport               moving batches between processes
      copy                    copying batches to the device
      compute                 training the model at one batch size
      sweep                   the same at many batch sizes
      all_reduce              adding up gradients between processes

    Each speed comes with its spread and CPU time. If a part cannot be measured here, feedline says
    why. `feedline report RUN --ceilings FILE` shows how close a run came to these speeds.

    Examples:
        feedline probe --data photos --model train:model -o ceilings.json
        feedline probe --data photos --parts read,decode --quick
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add_training(parser.add_argument_group("training"))
        measuring = parser.add_argument_group("measuring")
        measuring.add_argument(
            "--parts",
            type=_parts_of,
            default=list(PROBES),
            metavar="PART,PART",
            help=f"measure only these parts, out of {', '.join(PROBES)}",
        )
        measuring.add_argument(
            "--quick",
            action="store_true",
            help="use fewer files and rounds, which is faster but less precise",
        )
        add_output(parser, "write the speeds to FILE as JSON")

    def run(self, args: argparse.Namespace) -> int:
        check_files(args)

        from feedline.analysis.report import document_text
        from feedline.analysis.report.console import Console
        from feedline.cli.probe.text import conclusion, document_of
        from feedline.pipelines import probes

        console = Console(quiet=args.quiet)
        measured = []
        with progress_bar(args.quiet, "reading the files"):
            subject, notes = _subject_of(args)
        expected = [
            probes.expected_s(part, bool(args.data), bool(args.model), args.quick)
            for part in args.parts
        ]
        if not args.quiet:
            say(_beforehand(args, sum(expected)))
        left = Remaining(len(args.parts), expected=expected)
        with progress_bar(args.quiet, "probing") as tell:
            for number, part in enumerate(args.parts):
                progress = partial(_progress, tell, left, number, len(args.parts))
                progress(part)
                left.begin()
                measured += probes.run_probe(subject, part, progress)
                left.end()
        ceilings = probes.all_ceilings(subject, measured, notes)
        ceilings = replace(ceilings, conclusion=conclusion(ceilings))
        document_text.show(document_of(ceilings), console)
        if args.output is not None:
            ceilings.write(args.output)
            name_files(console, [args.output])
        return 0


def _progress(tell: "Tell", left: Remaining, number: int, of: int, what: str) -> None:
    """Show what was measured last, and about how much time is left."""
    tell(f"probing: {what}{left}", number, of)


def _beforehand(args: argparse.Namespace, expected_s: float) -> str:
    """Say what is measured, and for how long."""
    from feedline.pipelines.probes.probe_rounds import ProbePlan

    plan = ProbePlan.quick() if args.quick else ProbePlan()
    shorter = "" if args.quick else "; --quick is shorter"
    return (
        f"probing {counted(len(args.parts), 'part')} takes about {about(expected_s)}: every way in "
        f"{plan.rounds} rounds of at least {plan.seconds:g} s{shorter}"
    )


def _parts_of(text: str) -> list[str]:
    """Parse the requested parts, in the order of ``PROBES``."""
    wanted = {part.strip() for part in text.split(",") if part.strip()}
    if unknown := wanted - set(PROBES):
        raise argparse.ArgumentTypeError(
            f"unknown part {', '.join(sorted(unknown))}; the parts are {', '.join(PROBES)}"
        )
    if not wanted:
        raise argparse.ArgumentTypeError(
            f"expected some of {', '.join(PROBES)}, separated by commas"
        )
    return [part for part in PROBES if part in wanted]


def _subject_of(args: argparse.Namespace) -> "tuple[Subject, list[str]]":
    """Return what to probe, and remarks on it.

    Raises:
        DataError: no image in the folder can be used. UserCodeError: the transforms or the model
            cannot be had, or a part that trains the model cannot train it.
    """
    import torch

    from feedline.pipelines import photos, user_modules
    from feedline.pipelines.probes.probe_rounds import ProbePlan, Subject
    from feedline.pipelines.probes.training_step import try_model
    from feedline.pipelines.translate.recipe import read_recipe

    plan = ProbePlan.quick() if args.quick else ProbePlan()
    data = photos.scan(args.data, limit=plan.files) if args.data else None
    transform = (
        user_modules.load_transforms(args.transforms) if args.transforms is not None else None
    )
    model = user_modules.load_model(args.model) if args.model is not None else None
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    recipe = read_recipe(transform) if transform is not None else None
    notes = (
        [
            f"{os.path.relpath(problem.path, data.root)}: {problem.message}"
            for problem in data.problems
            if problem.left_out
        ]
        if data
        else []
    )
    folder = args.data or Path.cwd()
    subject = Subject(data, transform, recipe, model, args.batch_size, device, folder, plan)
    if not _OF_STEPS.isdisjoint(args.parts):
        try_model(subject)
    return subject, notes
