"""Ways to end: sys.exit with numbers, texts and other objects; exceptions with notes, groups,
causes, loops of causes, and more.
"""

import builtins
import os
import sys
import threading


class Base(BaseException):
    pass


class Odd(Exception):
    def __str__(self):
        raise RuntimeError("cannot say")


class Falsy(int):
    def __bool__(self):
        return False


def deep(n):
    return deep(n + 1)


def noted():
    error = ValueError("noted")
    error.__notes__ = ["first note", "second note"]
    raise error


def grouped():
    group = getattr(builtins, "ExceptionGroup", None)
    raise (
        group("several", [ValueError(1), group("inner", [KeyError("k")])])
        if group
        else ValueError("several")
    )


def caused():
    try:
        try:
            {}["k"]
        except KeyError:
            raise ValueError("second")  # noqa: B904
    except ValueError as error:
        raise RuntimeError("third") from error


def circular():
    a, b = ValueError("a"), ValueError("b")
    a.__context__, b.__context__ = b, a
    raise a


def in_thread():
    thread = threading.Thread(target=sys.exit, args=(5,))
    thread.start()
    thread.join()
    thread = threading.Thread(target=lambda: 1 / 0, name="worker")
    thread.start()
    thread.join()


def hooked():
    sys.excepthook = lambda kind, error, trace: print("hooked", kind.__name__, error)
    raise ValueError("to the hook")


def unraisable():
    class Loud:
        def __del__(self):
            raise ValueError("in del")

    Loud()


def nested_exit():
    try:
        sys.exit(3)
    finally:
        try:
            raise SystemExit(4)
        except SystemExit:
            pass


def syntax():
    exec(compile("x = (1,\n  2 3)\n", "made.py", "exec"))


def raises(error):
    raise error


ENDS = {
    "text": lambda: sys.exit("a text ünïcode"),
    "none": lambda: sys.exit(None),
    "true": lambda: sys.exit(True),
    "300": lambda: sys.exit(300),
    "-1": lambda: sys.exit(-1),
    "big": lambda: sys.exit(2**70),
    "tuple": lambda: sys.exit((1, 2)),
    "float": lambda: sys.exit(1.5),
    "falsy": lambda: sys.exit(Falsy(7)),
    "odd text": lambda: sys.exit(Odd()),
    "quit": lambda: quit(12),
    "notes": noted,
    "group": grouped,
    "causes": caused,
    "circular": circular,
    "base": lambda: raises(Base("of my own")),
    "odd": lambda: raises(Odd()),
    "generator exit": lambda: raises(GeneratorExit("left")),
    "interrupt": lambda: raises(KeyboardInterrupt("by hand")),
    "recursion": lambda: deep(0),
    "memory": lambda: raises(MemoryError("full")),
    "stop": lambda: raises(StopIteration(3)),
    "os error": lambda: open("nothing/there"),
    "unicode": lambda: "\udc80".encode(),
    "class": lambda: raises(ValueError),
    "thread": in_thread,
    "hook": hooked,
    "unraisable": unraisable,
    "nested": nested_exit,
    "syntax": syntax,
    "assert": lambda: raises(AssertionError),
    "exit in del": lambda: os._exit(11),
    "import": lambda: __import__("no_such_module_at_all"),
}
ENDS[sys.argv[1]]()
