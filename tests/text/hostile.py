"""Names that a terminal would obey, that rich would take for markup, and that a reader cannot see;
and what may reach either.
"""

import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"  # OSC 52: puts "evil" into the clipboard
CLEAR, TITLE, C1 = "\x1b[2J", "\x1b]0;owned\x07", "\x9b2J"
BIDI, UNSEEN = "\u202egnp.", "\u200b\ufeff\u2066"
MARKUP = "[red]r[/][link=http://evil]l[/link]:smile:"
NAME = f"n{CLIPBOARD}{CLEAR}{TITLE}{C1}{BIDI}{UNSEEN}{MARKUP}"  # everything at once
NOT_UTF8 = os.fsdecode(b"\xff")

#: What rich itself writes: colors, the cursor and lines that it erases. Hostile names hold none of
#: these.
OF_RICH = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[[0-9]*[ABK]|\r")


def unsafe(text: str) -> set[str]:
    """Characters that are obeyed or not seen, but for line feeds and tabs."""
    return {
        c
        for c in text
        if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }


def in_terminal(*command: object, folder: Path, columns: int = 80) -> tuple[int, str]:
    """Run a command whose three streams are a terminal.

    Returns its exit code and all it wrote, bytes that are not UTF-8 as surrogates.
    """
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLUMNS": str(columns),
        "OMP_NUM_THREADS": "1",
        "PYTHONIOENCODING": "utf-8",
    }
    words = [os.fsencode(str(word)) for word in command]
    process = subprocess.Popen(
        words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the last process that had the terminal has ended
            break
        if not part:
            break
        said += part
    os.close(ours)
    return process.wait(), said.decode("utf-8", "surrogateescape")


def feedline(*arguments: object, folder: Path) -> tuple[int, str]:
    """``feedline ARGUMENTS`` in a terminal."""
    return in_terminal(sys.executable, "-m", "feedline", *arguments, folder=folder)


EACH = """
import json, sys
from feedline.__main__ import main
for words in json.load(open(sys.argv[1])):
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    print(f"<ended {code}>", flush=True)
"""


def each(commands: Sequence[Sequence[object]], folder: Path) -> list[tuple[int, str]]:
    """The same for several, in one process."""
    task = folder / "commands.json"
    task.write_text(json.dumps([[str(word) for word in words] for words in commands]))
    _, said = in_terminal(sys.executable, "-c", EACH, task, folder=folder)
    parts = re.split(r"<ended (\d+)>\r\n", said)
    assert len(parts) == 2 * len(commands) + 1, said
    return [(int(code), text) for text, code in zip(parts[::2], parts[1::2])]


def plain(said: str) -> str:
    """What a terminal shows, without the sequences that rich makes."""
    return OF_RICH.sub("", said)


def one_line(said: str) -> str:
    """The same where lines are folded, to look for a long text."""
    return re.sub(r"\s+", "", plain(said))
