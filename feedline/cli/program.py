"""Runs a user's script or module as Python does.

It has the same ``__main__``, sys.argv, sys.path[0], exit code and traceback.
"""

import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from feedline.profiler.errors import ScriptError, leave_out_us
from feedline.profiler.fail_open import fail_open
from feedline.profiler.session.ending import exit_code_of, text_of


class PackageFailed(Exception):
    """Raised from the error with which the package of the module to run ended its import."""


@dataclass(frozen=True)
class Program:
    """Compiled code, and the module in which it runs."""

    code: CodeType
    module: ModuleType
    argv: list[str]
    path0: str

    def run(self) -> None:
        """Run it as ``__main__``. Raises what it raises, including SystemExit."""
        sys.argv[:] = self.argv
        if not _safe_path():
            sys.path[0] = self.path0
        sys.modules["__main__"] = self.module
        exec(self.code, self.module.__dict__)


def _safe_path() -> bool:
    """Return whether Python was started (-I, -P) without a script's folder on sys.path."""
    return bool(sys.flags.isolated or getattr(sys.flags, "safe_path", False))


def from_script(script: str, args: list[str]) -> Program:
    """Load a program from a file of source or byte code, or a folder or zip file.

    A folder or zip file has a ``__main__``.

    Raises:
        ScriptError: there is no such file.
        SyntaxError: Python's own.
    """
    path = os.path.join(os.getcwd(), script)  # as Python does: absolute, not normalized
    if (finder := pkgutil.get_importer(path)) is not None:
        return _from_package(finder, script, args)
    try:
        with io.open_code(path) as file:
            compiled = pkgutil.read_code(file)
            file.seek(0)  # behind what would be the mark of byte code
            source = file.read()
    except OSError as error:
        raise ScriptError(
            f"cannot open the script {script} ({error.strerror}): give the path of the training "
            f"script, followed by its arguments"
        ) from error
    module = ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__.update(__file__=path, __cached__=None, __loader__=loader, __builtins__=builtins)
    code = compiled or compile(source, path, "exec", dont_inherit=True)
    return Program(code, module, [script, *args], os.path.dirname(os.path.realpath(script)))


def _from_package(finder: Any, script: str, args: list[str]) -> Program:
    spec = finder.find_spec("__main__")
    if spec is None:
        raise ScriptError(
            f"{script} contains no __main__.py: give the path of the training script, followed by "
            f"its arguments"
        )
    module = ModuleType("__main__")
    module.__dict__.update(
        __file__=spec.origin,
        __loader__=spec.loader,
        __spec__=spec,
        __package__="",
        __cached__=spec.cached,
        __builtins__=builtins,
    )
    return Program(spec.loader.get_code("__main__"), module, [script, *args], script)


def from_module(name: str, args: list[str]) -> Program:
    """Load a program from an importable module or a package with ``__main__``, as ``python -m``.

    Raises:
        ScriptError: there is no such module.
        PackageFailed: its package raised an error, which Python would show.
    """
    if not _safe_path():
        sys.path[0] = os.getcwd()
    try:
        spec = _spec_of(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = _spec_of(f"{name}.__main__")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ScriptError(
            f"cannot find the module {name} ({error}): write its name as for `python -m`"
        ) from error
    code = spec.loader.get_code(spec.name) if spec and hasattr(spec.loader, "get_code") else None  # type: ignore[union-attr]
    if spec is None or code is None:
        raise ScriptError(
            f"module {name} does not exist or cannot be run: write its name as for `python -m`, "
            f"or give the path of a script without -m"
        )
    module = ModuleType("__main__")
    module.__dict__.update(
        __file__=spec.origin,
        __loader__=spec.loader,
        __spec__=spec,
        __package__=spec.parent,
        __cached__=spec.cached,
        __builtins__=builtins,
    )
    return Program(code, module, [str(spec.origin), *args], os.getcwd())


def _spec_of(name: str) -> importlib.machinery.ModuleSpec | None:
    """Return where a module is found; None: there is none.

    Its package is imported before, as ``find_spec`` would hide whose error that raises.

    Raises:
        ImportError, AttributeError, TypeError, ValueError: its package does not exist or is none.
        PackageFailed: its package raised an error.
    """
    package = name.rpartition(".")[0]
    try:
        if package:
            __import__(package)
    except BaseException as error:
        missing = isinstance(error, ImportError) and error.name
        if not missing or not f"{package}.".startswith(f"{missing}."):
            trace = error.__traceback__
            # by the base, as a class may mean anything by it
            raise PackageFailed from BaseException.with_traceback(error, trace and trace.tb_next)
    return importlib.util.find_spec(name)


def threads_go_on() -> bool:
    """Return whether Python would wait at its end for threads that the program started."""
    main = threading.main_thread()
    return any(thread is not main and not thread.daemon for thread in threading.enumerate())


def wait_for_threads() -> None:
    """Wait for the program's threads as Python does at its end; Ctrl-C ends the waiting.

    The main thread has ended for them: some wait for that.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException as error:
        threading._shutdown = lambda: None  # type: ignore[attr-defined]  # Python waits once, too
        print(f"Exception ignored in: {threading!r}", file=sys.stderr)
        inner = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, inner)


def show(error: BaseException | None) -> None:
    """Print what Python would print at this end."""
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(text_of(error.code), file=sys.stderr)
    elif error is not None:
        with fail_open:
            leave_out_us(error)
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except Exception:
            sys.__excepthook__(type(error), error, error.__traceback__)
    # closed, or replaced by something that has no flush; Python says so itself at its end
    with suppress(Exception):
        sys.stdout.flush()


def exit_like(error: BaseException | None) -> int:
    """Return the exit code to end with.

    Raises:
        KeyboardInterrupt: the program was interrupted. Python then ends by the signal itself, after
            ``atexit``; all was printed before.
    """
    if isinstance(error, KeyboardInterrupt):
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt
    return exit_code_of(error) & 0xFF
