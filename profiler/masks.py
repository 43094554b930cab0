"""Masks texts and paths before they are written: tokens, hosts, users and folders are replaced by MASK.

This is the net for what feedline itself says: why a hook could not be attached, which file could not be read. What the program was given
(its arguments, its environment) is held to a stricter rule in record/privacy.py.
"""

import os
import re
from pathlib import Path
from types import TracebackType

from feedline.profiler.plain import is_name, is_plain

MASK = "***"
PYTHON, FEEDLINE = "python", "feedline"  # as libraries

#: Tokens known by their prefix alone: GitHub, GitLab, AWS, Slack, SendGrid and JWT as in detect-secrets 1.5, the others as seen in use.
#: Lengths are lower bounds on purpose, and still long enough for ordinary names (``sk-learn``, ``global-batch``) to pass.
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      gh[opsur]_[A-Za-z0-9]{20,} | github_pat_\w{20,}                             # GitHub
    | gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-[\w-]{20,}                     # GitLab
    | hf_[A-Za-z0-9]{20,}                                                         # Hugging Face
    | sk-[A-Za-z0-9]{20,} | sk-(?:proj|svcacct|admin|ant|or-v1)-[\w-]{16,}        # OpenAI, Anthropic, OpenRouter
    | [sr]k_(?:live|test)_[A-Za-z0-9]{16,}                                        # Stripe
    | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])                             # AWS
    | eyJ[\w-]{8,999}\.[\w-]{8,}(?:\.[\w-]*)?                                     # JSON Web Token
    | xox[a-z]-[\w-]{10,} | xapp-[\w-]{10,}                                       # Slack
    | AIza[\w-]{35} | ya29\.[\w-]{16,}                                            # Google
    | nvapi-[\w-]{20,} | wandb_v\d_\w{20,} | r8_[A-Za-z0-9]{30,} | gsk_[A-Za-z0-9]{30,}   # NVIDIA, W&B, Replicate, Groq
    | npm_[A-Za-z0-9]{30,} | pypi-A[\w-]{40,} | SG\.[\w-]{16,64}\.[\w-]{16,}       # npm, PyPI, SendGrid
    )""",
    re.VERBOSE,
)
_PRIVATE_KEY = re.compile(r"""(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^"']*?(-----END|(?=["'])|\Z)""")
_BEARER = re.compile(r"""\b(bearer\s+(?=\S{6})|authorization["']?\s*[:=]\s*["']?(?:[a-z]+\s+)?)[^\s"',]+""", re.IGNORECASE)
_URL = re.compile(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{0,20}://)[^\s'\"<>]+", re.IGNORECASE)  # its host and folders may be private too
_PAIR = re.compile(
    r"""((?:pass(?:word|wd|phrase)?|pwd|secret|token|key|credentials?|auth|login|user(?:name)?)s?["']?\s{0,8}(?:=|:|%3D)\s{0,8}["']?)"""
    r"""[^\s"',;&}]+""",
    re.IGNORECASE,
)
_PATH = re.compile(r"""(?<=['"])/[^'"\\\n]+(?=['"])|(?<![\w~.*/%-])(?!//\*{3})/+[^\s'":,;()<>|\\]+""")
_QUOTED = re.compile(r"""'([^'\n]{1,300})'|"([^"\n]{1,300})\"""")

_SYSTEM = ("/proc/", "/sys/", "/dev/")
_LIBRARY = re.compile(r".*?/((?:site|dist)-packages/.*|python3\.\d+/.*)")
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/(\w+)")
_ENDING = re.compile(r"(?:\.[a-z][a-z0-9]{0,10}){1,2}\Z", re.IGNORECASE)


def text(said: str) -> str:
    """A text with MASK in place of known tokens, URLs except their scheme, values of secret names, and folders (as in ``path``)."""
    said = _PRIVATE_KEY.sub(rf"\1{MASK}\2", said)
    said = _URL.sub(rf"\1{MASK}", said)
    said = _BEARER.sub(rf"\1{MASK}", said)
    said = _PAIR.sub(rf"\1{MASK}", said)
    said = _SHAPES.sub(MASK, said)
    for folder in filter(None, (_here(), _home())):  # also where blanks are in it
        said = re.sub(rf"{re.escape(folder)}/[^\s'\":,;()<>|\\]*", lambda found: path(found[0]), said)
    return _PATH.sub(lambda found: path(found[0]), said)


def token(text: str) -> str:
    """A text with MASK in place of known tokens only."""
    return _SHAPES.sub(MASK, text)


def path(name: str | Path) -> str:
    """A path without the folders that identify a machine or user.

    Below the working directory it is relative to it; of one in an installed library, what is below ``site-packages``; ``/proc``, ``/sys``
    and ``/dev`` stay. Of any other the last part stays where its words are plainly harmless, or else its ending: ``***/imagenet``,
    ``***.pt``, ``~`` in place of a home folder. Parts that look like a user or a token become MASK.
    """
    full = os.path.normpath(os.path.expanduser(str(name)))
    if not os.path.isabs(full) and not full.startswith(("..", "~")):
        return _parts(full)
    if full == "/" or f"{full}/".startswith(_SYSTEM):
        return full
    if library := _LIBRARY.match(full):
        return library[1]
    here, home = _here(), _home()
    if here and _is_below(full, here):
        return _parts(os.path.relpath(full, here))
    if home and full == home:
        return "~"
    start = "~/" if home and _is_below(full, home) else ""
    last = os.path.basename(full)
    return f"{start}{MASK}/{last}" if is_plain(last) else f"{start}{MASK}{ending(last)}"


def source(file: str) -> str:
    """A file of Python code, as ``path``, but with its own name as below the working directory: names of functions stay, too, and a line to
    change is of no use without its file.
    """
    shown, last = path(file), os.path.basename(file)
    stem, is_code = os.path.splitext(last)
    masked = os.path.basename(shown).startswith(MASK)
    if not masked or is_code != ".py" or not (stem.isidentifier() and is_name(stem)) or stem in _users() or token(last) != last:
        return shown
    return f"{'~/' if shown.startswith('~/') else ''}{MASK}/{last}"


def place(run: Path) -> str:
    """Where a run folder is, so that its owner recognises it: relative to the working directory, or with ``~`` for a home folder."""
    full, here, home = os.path.abspath(run), _here(), _home()
    if here and _is_below(full, here):
        return os.path.relpath(full, here)
    if home and _is_below(full, home):
        return "~/" + os.path.relpath(full, home)
    return f"{MASK}/{os.path.basename(full)}"


def ending(name: str) -> str:
    """The known extension of a file name, such as ``.yaml`` or ``.tar.gz``; else empty."""
    found = _ENDING.search(name)
    return found[0] if found and all(is_plain(part) for part in found[0].strip(".").split(".")) else ""


def error(raised: BaseException) -> str:
    """An exception as text. If the program's own code raised it, only its type, because its message can contain anything.

    In the others what stands in quotes stays where it looks like a name (``has no attribute 'fetch'``).
    """
    kind = type(raised).__name__
    if isinstance(raised, OSError) and raised.strerror:
        return f"{kind}: {raised.strerror}" + (
            f": {path(os.fsdecode(raised.filename))}" if isinstance(raised.filename, (str, bytes)) else ""
        )
    if _is_of_the_program(raised.__traceback__):
        return f"{kind} (raised in the program's own code)"
    said = str(raised)
    return f"{kind}: {text(_QUOTED.sub(_quoted, said))}" if said else kind


def _quoted(found: re.Match[str]) -> str:
    inside = found[1] or found[2]
    kept = inside if is_plain(inside) or is_name(inside) or inside.startswith("/") else MASK
    return f"{found[0][0]}{kept}{found[0][0]}"


def library(file: str) -> str:
    """The installed library that a source file belongs to, such as ``torch``, or PYTHON or FEEDLINE; empty for the program's own files."""
    if file.startswith(_OURS):
        return FEEDLINE
    if found := _PACKAGE.match(file):
        return found[1]
    return PYTHON if file.startswith("<frozen") or _LIBRARY.match(file) else ""


def _is_of_the_program(trace: TracebackType | None) -> bool:
    """Whether a frame of it is in no installed library, nor in feedline."""
    while trace is not None:
        if not library(trace.tb_frame.f_code.co_filename):
            return True
        trace = trace.tb_next
    return False


def _parts(relative: str) -> str:
    """A relative path with its parts that look like a user or a token masked."""
    users = _users()
    shown = []
    for part in relative.split("/"):
        harmless = is_name(part.strip(".")) or is_plain(part)
        shown.append(part if harmless and part not in users else MASK + ending(part))
    return "/".join(shown)


def _is_below(full: str, folder: str) -> bool:
    return full == folder or full.startswith(folder + "/")


def _here() -> str | None:
    """The working directory; None where names below it say more than it hides: the root, or a folder that home folders lie in."""
    try:
        here = os.getcwd()
    except OSError:
        return None
    home = _home()
    return None if here == "/" or home is not None and home.startswith(here + "/") else here


def _home() -> str | None:
    home = os.path.expanduser("~")
    return os.path.normpath(home) if os.path.isabs(home) and home != "/" else None


def _users() -> set[str]:
    home = _home()
    return {name for name in (os.environ.get("USER"), os.environ.get("LOGNAME"), home and os.path.basename(home)) if name}


_PARTS = ("profiler", "feedline", "analysis", "pipelines", "convergence", "cli")
#: As imported, and where links lead: Python names a source file by the path that it was found under.
_OURS = tuple(f"{root / part}/" for root in {Path(__file__).parent.parent, Path(__file__).resolve().parent.parent} for part in _PARTS)
