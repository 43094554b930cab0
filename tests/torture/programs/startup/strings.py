"""What depends on the interpreter's settings: hashes, encodings, assertions, docstrings, buffering."""

import locale
import os
import sys

assert os.environ.get("ASSERT") is None, "assertions are on"
print(
    hash("a")
    if sys.flags.hash_randomization == 0 or os.environ.get("PYTHONHASHSEED")
    else "random",
    list({"x", "y", "z"})[:0],
)
print(
    sys.stdout.encoding,
    sys.stdout.errors,
    sys.getfilesystemencoding(),
    locale.getpreferredencoding(False),
    sys.flags,
)
print(
    __doc__ is None,
    sys.exit.__doc__ is None,
    sys.dont_write_bytecode,
    sys.stdout.line_buffering,
    sys.stdout.write_through,
)
print("Grüße 漢字".encode(sys.stdout.encoding, "replace"))
