"""Runs a command that cannot change files outside given folders: ``write_guard.py FOLDER... -- COMMAND``.

The kernel enforces it, by Landlock (Linux 5.13, 2021; https://docs.kernel.org/userspace-api/landlock.html), for the process and all that
it starts. Reading is not restricted. A program on its own, which imports nothing of feedline: it becomes the command.
"""

import ctypes
import os
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, on every architecture
PATH_BENEATH, VERSION, NO_NEW_PRIVS = 1, 1, 38
#: Rights of the first version: write a file, remove (folder, file), make (device, folder, file, socket, pipe, block device, link).
WRITE, ON_FILES = 1 << 1 | sum(1 << bit for bit in range(4, 13)), 1 << 1
REFER, TRUNCATE = 1 << 13, 1 << 14  # of versions 2 and 3
UNAVAILABLE = 71  # EX_OSERR


class Ruleset(ctypes.Structure):
    _fields_ = [("handled", ctypes.c_uint64)]


class Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def system_call(*arguments: object) -> int:
    """Raises OSError."""
    result = int(ctypes.CDLL(None, use_errno=True).syscall(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def version() -> int:
    """Version of the kernel's Landlock; 0: it has none, or it is switched off. From 3 on nothing can change a file's content."""
    try:
        return system_call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION))
    except OSError:
        return 0


def restrict(folders: list[str]) -> None:
    """Let this process, and all that it starts, change nothing but what is in these folders (or is one of these files).

    Raises:
        OSError: the kernel cannot do that, or a folder does not exist.
    """
    rights = WRITE | (REFER if version() >= 2 else 0) | (TRUNCATE if version() >= 3 else 0)
    asked = Ruleset(rights)
    ruleset = system_call(CREATE_RULESET, ctypes.byref(asked), ctypes.c_size_t(ctypes.sizeof(asked)), ctypes.c_uint32(0))
    for folder in folders:
        parent = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = Beneath(rights if os.path.isdir(folder) else rights & (ON_FILES | TRUNCATE), parent)
        system_call(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0))
        os.close(parent)
    if ctypes.CDLL(None, use_errno=True).prctl(NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    system_call(RESTRICT_SELF, ruleset, ctypes.c_uint32(0))
    os.close(ruleset)


def main(words: list[str]) -> None:
    at = words.index("--")
    try:
        restrict(words[:at])
    except OSError as error:
        print(f"feedline: cannot protect files from the training: {error}", file=sys.stderr)
        sys.exit(UNAVAILABLE)
    os.execv(words[at + 1], words[at + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
