"""What trials of a training share: the command of one run, its placeholders, and the ledger."""

import datetime
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from feedline.analysis.explain.tried import LEDGER
from feedline.cli.output import save
from feedline.profiler.files import results
from feedline.profiler.record.privacy import mask_argv


def command(run: Path, options: list[str], program: list[str], ranks: int) -> list[str]:
    """The command line that records one run of a training.

    Args:
        options: of ``feedline run``.
        program: script or ``-m module``, and its arguments; or ``--`` and a command.
        ranks: processes, under torchrun from 2 on.
    """
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    return [sys.executable, *launcher, "-m", "feedline", "run", "-q", "-f", "--strict", "-o", str(run), *options, *program]


def filled(word: str, words: Mapping[str, str]) -> str:
    """An argument with its placeholders replaced."""
    for name, value in words.items():
        word = word.replace(name, value)
    return word


def write(found: Mapping[str, object], folder: Path, json_file: Path | None, program: list[str], **more: object) -> None:
    """Add a line to the ledger, and write the JSON.

    Args:
        more: only for the JSON.

    Raises:
        OutputError: no room.
    """
    told = {"command": mask_argv(program), **found}
    at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    results.add_line(folder, LEDGER, json.dumps({"at": at, **told}))
    if json_file is not None:
        save(json_file, json.dumps({**told, **more}, indent=1) + "\n")
