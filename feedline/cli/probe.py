"""``feedline probe``."""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.arguments import at_least
from feedline.profiler.files.output import refuse_taken

if TYPE_CHECKING:
    from feedline.pipelines.probes.subject import Subject

PARTS = ("read", "decode", "augment", "transport", "copy", "compute", "sweep", "all_reduce")


class Probe:
    """Measure what each part of this machine can do alone.

    feedline probe --data photos/train --transforms train:transform --model train:model -o ceilings.json
    feedline probe --data photos/train --only read,decode --quick

    Reading, decoding, augmenting, transport between processes, copies, compute and all-reduce, on a sample of your own files, with your own
    transforms and model; each with its spread and its CPU time. What cannot be measured here is a row that says why.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with one folder of images for each class")
        parser.add_argument("--transforms", metavar="MODULE:NAME", help="your torchvision transforms, or a function that returns them")
        parser.add_argument("--model", metavar="MODULE:NAME", help="your model: an nn.Module, its class, or a function that returns one")
        parser.add_argument("--batch-size", type=at_least(1), default=32, metavar="N", help="of the model and of transport; default 32")
        parser.add_argument("--only", type=parts_of, default=list(PARTS), metavar="PART,PART", help=f"some of {', '.join(PARTS)}")
        parser.add_argument("--quick", action="store_true", help="fewer files and rounds: a first look, with a larger spread")
        parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the ceilings as JSON")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite the file")
        parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")

    def run(self, args: argparse.Namespace) -> int:
        refuse_taken(args.output, args.force)

        from feedline.analysis.reports.console import Console
        from feedline.analysis.reports.progress import building
        from feedline.cli import probe_table
        from feedline.cli.probe_says import conclusion
        from feedline.pipelines.probes import parts

        console = Console(quiet=args.quiet)
        found = []
        with building(Console(stderr=True, quiet=args.quiet), [f"probing: {part}" for part in args.only]) as done:
            subject, notes = subject_of(args)
            for part in args.only:
                found += parts.run(subject, part)
                done()
        ceilings = parts.together(subject, found, notes)
        ceilings = replace(ceilings, conclusion=conclusion(ceilings))
        for part in probe_table.shown(ceilings):
            console.print(part)
        if args.output is not None:
            ceilings.write(args.output)
            console.print(f"  {args.output}", soft_wrap=True)
        return 0


def parts_of(text: str) -> list[str]:
    """The parts that are asked for, in the order of ``PARTS``."""
    wanted = {part.strip() for part in text.split(",") if part.strip()}
    if unknown := wanted - set(PARTS):
        raise argparse.ArgumentTypeError(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    if not wanted:
        raise argparse.ArgumentTypeError(f"name some of {', '.join(PARTS)}")
    return [part for part in PARTS if part in wanted]


def subject_of(args: argparse.Namespace) -> "tuple[Subject, list[str]]":
    """What is to be probed, and remarks on it.

    Raises:
        DataError: no image in the folder can be used. UserCodeError: the transforms or the model cannot be had.
    """
    import torch

    from feedline.pipelines import photos, user_code
    from feedline.pipelines.probes.measure import FULL, QUICK
    from feedline.pipelines.probes.subject import Subject
    from feedline.pipelines.translate.recipe import read

    plan = QUICK if args.quick else FULL
    data = photos.scan(args.data, limit=plan.files) if args.data else None
    transform = user_code.load_transforms(args.transforms) if args.transforms is not None else None
    model = user_code.load_model(args.model) if args.model is not None else None
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    recipe = read(transform) if transform is not None else None
    notes = [f"{os.path.relpath(problem.path, data.root)}: {problem.says}" for problem in data.problems if problem.left_out] if data else []
    folder = args.data or Path.cwd()
    return Subject(data, transform, recipe, model, args.batch_size, device, folder, plan), notes
