"""Runs a command that cannot change files outside given folders.

``write_guard.py FOLDER... -- COMMAND``; with ``/`` it may change all.

The kernel enforces it, by Landlock (Linux 5.13, 2021;
https://docs.kernel.org/userspace-api/landlock.html), for the process and all that it starts. From
Linux 6.12 on they cannot signal other processes either. Reading is not restricted, nor are
permissions and times of files. A program on its own, which imports nothing of feedline: it becomes
the command.
"""

import ctypes
import os
import signal
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, on every architecture
_PATH_BENEATH, _VERSION = 1, 1
_PARENT_DEATH_SIGNAL, _NO_NEW_PRIVS = 1, 38  # of prctl
#: Rights of the first version: write a file, remove (folder, file), make (device, folder, file,
#: socket, pipe, block device, link).
_WRITE, _ON_FILES = 1 << 1 | sum(1 << bit for bit in range(4, 13)), 1 << 1
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # of versions 2 and 3
_SIGNALS = 1 << 1  # of version 6: only to processes that are restricted as well
_UNAVAILABLE = 71  # EX_OSERR
EVERYTHING = "/"


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def _system_call(*arguments: object) -> int:
    """Call the kernel. Raises OSError."""
    result = int(ctypes.CDLL(None, use_errno=True).syscall(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _process_control(option: int, value: int) -> None:
    """Call ``prctl``. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def version() -> int:
    """Return the version of the kernel's Landlock; 0: it has none, or it is off.

    From 3 on nothing can change a file's content.
    """
    try:
        return _system_call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    except OSError:
        return 0


def _restrict(folders: list[str]) -> None:
    """Let this process, and all that it starts, change nothing but these folders and files.

    Raises:
        OSError: the kernel cannot do that, or a folder does not exist.
    """
    known = version()
    rights = _WRITE | (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0)
    # an older kernel takes a longer structure whose end is zero
    requested = _Ruleset(rights, 0, _SIGNALS if known >= 6 else 0)
    ruleset = _system_call(
        _CREATE_RULESET,
        ctypes.byref(requested),
        ctypes.c_size_t(ctypes.sizeof(requested)),
        ctypes.c_uint32(0),
    )
    for folder in folders:
        parent = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = _Beneath(
            rights if os.path.isdir(folder) else rights & (_ON_FILES | _TRUNCATE), parent
        )
        _system_call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0))
        os.close(parent)
    _process_control(_NO_NEW_PRIVS, 1)
    _system_call(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0))
    os.close(ruleset)


def main(words: list[str]) -> None:
    at = words.index("--")
    try:
        # a trial does not outlive a killed feedline
        _process_control(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if EVERYTHING not in words[:at]:
            _restrict(words[:at])
    except OSError as error:
        print(f"feedline: cannot protect files from the training: {error}", file=sys.stderr)
        sys.exit(_UNAVAILABLE)
    os.execv(words[at + 1], words[at + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
