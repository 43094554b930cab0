"""``feedline whatif``."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.options import add_output
from feedline.cli.outputs import check_json, console_for, name_files, save_json
from feedline.cli.runs import add_run, chosen_run
from feedline.cli.settings import (
    LOADER,
    MACHINE,
    SAMPLE,
    add_settings,
    add_shortcuts,
    refuse_impossible,
)
from feedline.profiler.errors import ScriptError

if TYPE_CHECKING:
    from feedline.analysis.predict.limits import WhatIf

NO_PREDICTION = 1  # exit code


class WhatifCommand:
    """Predict the throughput of a recorded training with other settings.

    Simulates the DataLoader with these settings, from the recorded batches and steps. Prints
    samples/s before and after the change, with a 95 % interval, and what would limit the training
    then. The training is not run. If no prediction is possible, feedline says why, and how to get
    one.

    NAME=VALUE can be:
      num_workers, prefetch_factor, in_order, persistent_workers   of the DataLoader
      cores=N        the number of CPUs that the training may use
      decode=NAME    another image decoder, timed on up to 50 files of --data:
                     pil, simplejpeg, cv2, torchvision, dali or nvimagecodec

    Examples:
        feedline whatif runs/demo --workers 4
        feedline whatif runs/demo --set num_workers=8,prefetch_factor=4 --set cores=8
        feedline whatif runs/demo --set decode=simplejpeg --data photos
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add_run(parser)
        changed = parser.add_argument_group("what to change")
        add_settings(
            changed, {**LOADER, **MACHINE, **SAMPLE}, "settings to predict with (may be repeated)"
        )
        add_shortcuts(changed)
        changed.add_argument(
            "--fix",
            metavar="ID",
            help="predict the fix of a finding, such as too_few_workers (`feedline report RUN --full` "
            "shows the names)",
        )
        changed.add_argument(
            "--data",
            type=Path,
            metavar="DIR",
            help="image folder with one subfolder per class, for decode=NAME",
        )
        add_output(parser, json="the prediction")

    def run(self, args: argparse.Namespace) -> int:
        if not args.settings and args.fix is None:
            raise ScriptError("nothing to change: add --workers N, --set NAME=VALUE or --fix ID")
        if args.data is not None and "decode" not in args.settings:
            raise ScriptError(
                "--data is only used to measure a decoder: add --set decode=NAME, or leave it out"
            )
        check_json(args)
        args.run = chosen_run(args, "whatif")

        from feedline.analysis.report import document_text
        from feedline.analysis.report.json_report import plain
        from feedline.cli.whatif.text import document_of

        answer = _predict(args)
        console = console_for(args)
        document_text.show(document_of(answer, args.run), console)
        if args.json is not None:
            save_json(args.json, plain(answer))
            name_files(console, [args.json])
        return NO_PREDICTION if answer.refused else 0


def _predict(args: argparse.Namespace) -> "WhatIf":
    """Read the run and predict.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: as ``replayable``.
        ScriptError: the settings or the fix do not suit this training.
        DataError, MissingDependency: a decoder is to be measured, and ``--data`` has no usable
            image.
    """
    from feedline.analysis.ledger.finding import Change, Refused
    from feedline.analysis.predict.limits import WhatIf, answer
    from feedline.cli.whatif.prediction import change_of_settings, replayable

    question = WhatIf(args.settings, fix=args.fix or "")
    training = replayable(args.run)
    if isinstance(training, Refused):
        return replace(question, refused=training)
    fix = training.change_of_fix(args.fix) if args.fix is not None else Change()
    if isinstance(fix, Refused):
        return replace(question, refused=fix)
    question = replace(question, settings={**fix.settings, **args.settings})
    refuse_impossible(question.settings, training.settings)
    asked = change_of_settings(question.settings, fix, training.facts, args.data)
    if isinstance(asked, Refused):
        return replace(question, refused=asked)
    supposed = training.supposed_of_fix(args.fix) if args.fix is not None else ""
    remarks = [supposed, training.memory_remark(question.settings)]
    question = replace(
        question,
        line=asked.line,
        remarks=(*asked.remarks, *filter(None, remarks)),
        measured_interval=training.throughput.varies,
    )
    return answer(question, training.predict, asked.change, asked.workers, asked.extremes)
