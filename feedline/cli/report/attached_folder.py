"""``feedline report`` of a folder that ``feedline attach -o`` wrote: what was seen, once more."""

import argparse
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.outputs import check_files, console_for, name_files, save, save_json
from feedline.profiler.errors import OutputError, ScriptError

if TYPE_CHECKING:
    from feedline.analysis.report.document import Document

_RECORDED_ONLY = ("html", "with_source", "part", "ceilings", "link_bandwidth", "nccl_log")
_KNOWN = "what was seen from outside is shown as text, Markdown or JSON"


def is_attached(folder: str) -> bool:
    """Return whether a folder has what ``feedline attach`` saw."""
    from feedline.analysis.report.of_attached import ATTACHED_FILE

    return (Path(folder) / ATTACHED_FILE).is_file()


def report_attached(args: argparse.Namespace) -> int:
    """Show what was seen, as ``feedline attach`` did; lines of source are left out.

    Raises:
        ScriptError: an option needs a recording.
        RunDamaged, SchemaTooNew: it cannot be read.
        OutputError: a file cannot be written.
    """
    from feedline.analysis.report import document_markdown, document_text
    from feedline.analysis.report.json_report import plain
    from feedline.analysis.report.of_attached import document, read_attached

    for name in _RECORDED_ONLY:
        if getattr(args, name):
            raise ScriptError(f"--{name.replace('_', '-')} needs a recording: {_KNOWN}")
    if args.format == "html":
        raise ScriptError(f"--format html needs a recording: {_KNOWN}")
    check_files(args)
    seen = read_attached(Path(args.run[0]))
    shown, data, console = document(seen, lambda place: ""), plain(seen), console_for(args)
    files = [file for file in (args.output, args.json) if file is not None]
    if args.output is not None:
        save(args.output, _text(shown, data, args.output))
    elif args.format is None or args.format == "text":
        document_text.show(shown, console)
    elif not args.quiet:
        markdown = args.format == "markdown"
        console.file.write(document_markdown.render(shown) if markdown else _json(data))
    if args.json is not None:
        save_json(args.json, data)
    name_files(console, files)
    return 0


def _text(shown: "Document", data: object, file: Path) -> str:
    """Return the text of a file, whose ending chooses the format. Raises OutputError."""
    from feedline.analysis.report import document_markdown, document_text
    from feedline.analysis.report.console import Console

    if file.suffix == ".json":
        return _json(data)
    if file.suffix == ".md":
        return document_markdown.render(shown)
    if file.suffix == ".txt":
        text = io.StringIO()
        document_text.show(shown, Console(file=text, width=document_text.WIDTH, color_system=None))
        return text.getvalue()
    raise OutputError(f"{file}: {_KNOWN}: use .txt, .md or .json")


def _json(data: object) -> str:
    return json.dumps(data, indent=1) + "\n"
