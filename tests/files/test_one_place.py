"""Only profiler/files writes, replaces and removes files."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("feedline", "profiler", "pipelines", "analysis", "convergence")
PLACE = ROOT / "profiler" / "files"
PLACES = {path.stem for path in PLACE.glob("*.py")}

#: Methods and functions that change what is on disk, by the last part of their name.
CHANGING = {
    "rmtree", "unlink", "rmdir", "removedirs", "rename", "renames", "move", "copyfile", "copy2", "copytree", "write_text", "write_bytes",
    "touch", "symlink_to", "hardlink_to", "symlink", "link", "mkdtemp", "mkstemp", "mkfifo", "mknod", "chmod", "chown",
    "TemporaryDirectory", "NamedTemporaryFile", "TemporaryFile",
}  # fmt: skip
#: The same, where the name alone says too little: with what stands before it.
CHANGING_OF = {
    ("os", "remove"),
    ("os", "replace"),
    ("os", "truncate"),
    ("os", "mkdir"),
    ("os", "makedirs"),
    ("os", "open"),
}
ONE_ARGUMENT = "replace"  # of a path; of a text it has two, of a dataclass it has keywords

#: Calls that are allowed elsewhere, and what they may change.
ALLOWED = {
    "profiler/clock.py: os.open": "/proc, for reading",
    "profiler/samplers/source.py: os.open": "/proc and /sys, for reading",
    "pipelines/photos.py: open": "the file that the user names to keep a scan in, which ranks lock",
    "pipelines/photos.py: os.open": "the same",
    "pipelines/stores/shards.py: os.open": "a shard, for reading",
    "pipelines/stores/destination.py: os.open": "the store's folder, to lock it",
    "pipelines/stores/packed.py: os.open": "the store's folder, to bring its names on disk",
    "pipelines/probes/read_speed.py: os.open": "images of the user, for reading",
    "analysis/ranks/many/passes.py: tempfile.TemporaryDirectory": "copies of remote files, in "
    "the folder for temporary files",
    "pipelines/probes/all_reduce.py: tempfile.TemporaryDirectory": "the meeting point of its "
    "ranks, in the folder for temporary files",
    "pipelines/probes/sweep.py: Path('/proc/self/clear_refs').write_bytes": "the kernel's peak of "
    "this process's memory, which begins anew",
    "pipelines/probes/read_speed.py: tempfile.TemporaryFile": "a file without a name on the disk "
    "that is probed",
    "profiler/session/selftest.py: tempfile.TemporaryDirectory": "its run, in the folder for "
    "temporary files",
    "profiler/session/selftest.py: tempfile.TemporaryFile": "a checkpoint without a name",
    "profiler/taps/kineto_window.py: tempfile.NamedTemporaryFile": "the export before it is "
    "masked, in the folder for temporary files",
    "profiler/taps/operations/webdataset_.py: tarfile.open": "an archive in memory, of the "
    "self-test",
    "pipelines/compare/loader_timing.py: os.open": "images of the user, for reading",
    "feedline/cli/child.py: tempfile.TemporaryDirectory": "what a training writes to {out}, in the "
    "folder for temporary files",
    "feedline/cli/verify/guard.py: tempfile.TemporaryDirectory": "what a trial of a training "
    "writes, in the folder for temporary files",
    "feedline/cli/check/text.py: open": "the summary of a step of GitHub Actions, which several "
    "commands append to",
    "feedline/cli/verify/write_guard.py: os.open": "folders that a trial may write to, to name "
    "them to the kernel",
}


def changes(path: Path) -> list[str]:
    """Calls in a module that write, replace or remove, as ``file: call``."""
    name = path.relative_to(ROOT).as_posix()
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [f"{name}: {ast.unparse(call.func)}" for call in calls if writes(call)]


def writes(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return (
            function.id in CHANGING
            or function.id == "open"
            and opens_for_writing(call.args[1:], call.keywords)
        )
    if not isinstance(function, ast.Attribute):
        return False
    owner = ast.unparse(function.value).rpartition(".")[2]
    if owner in PLACES:
        return False
    if function.attr == "open" and owner != "os":
        return opens_for_writing(call.args, call.keywords)
    if function.attr == ONE_ARGUMENT and len(call.args) == 1 and not call.keywords:
        return True
    return function.attr in CHANGING or (owner, function.attr) in CHANGING_OF


def opens_for_writing(args: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    modes = [
        value
        for value in [*args[:2], *(word.value for word in keywords if word.arg == "mode")]
        if isinstance(value, ast.Constant)
    ]
    return any(
        isinstance(mode.value, str) and len(mode.value) <= 3 and set(mode.value) & set("wax+")
        for mode in modes
    )


def test_nothing_else_in_the_product_writes_replaces_or_removes_files():
    found = [
        change
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if PLACE not in path.parents
        for change in changes(path)
    ]

    assert sorted(set(found) - set(ALLOWED)) == []


def test_every_exception_is_still_needed():
    found = {
        change
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for change in changes(path)
    }

    assert sorted(set(ALLOWED) - found) == []


def test_what_writes_is_seen(tmp_path):
    for code in (
        "open('x', 'w')",
        "Path('x').open('ab')",
        "os.remove('x')",
        "shutil.rmtree('x')",
        "path.replace(other)",
        "a.write_text('')",
    ):
        assert writes(ast.parse(code).body[0].value), code
    for code in (
        "open('x')",
        "open('x', 'rb')",
        "text.replace('a', 'b')",
        "replace(made, rank=1)",
        "files.remove(1)",
        "Image.open(x)",
    ):
        assert not writes(ast.parse(code).body[0].value), code
