"""The bytes of a trace file, wherever it lies, unpacked as they are read."""

import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from feedline.analysis.traces.kineto.limits import Limits
from feedline.profiler.errors import MissingDependency, TraceDamaged

inflating: Any = zlib
with suppress(ImportError):  # two to three times as fast
    from isal import isal_zlib as inflating

_GZIP = b"\x1f\x8b"
_PACKED = 1 << 14  # of a damaged archive, what follows the last whole piece of this size is lost
_OTHERS = {b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


class Inflated:
    """Iterate over the JSON of a trace in pieces of about ``size`` bytes.

    Attributes:
        cut: why the bytes end before their end, once they have been read; None: they do not.

    Raises:
        TraceDamaged: there is no such file, it is packed as something else than gzip, or it unpacks to more than the limit.
        MissingDependency: fsspec needs a library for this address.
    """

    def __init__(self, path: str, limits: Limits, size: int) -> None:
        self.path, self.limits, self.size = path, limits, size
        self.cut: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        total, held, parts = 0, 0, []
        try:
            with _opened(self.path) as file:
                for part in self._parts(file):
                    total, held = total + len(part), held + len(part)
                    if total > self.limits.inflated_bytes:
                        bound = self.limits.inflated_bytes / 1e9
                        raise TraceDamaged(f"{self.path} unpacks to more than {bound:,.3g} GB: raise --max-events if it is a trace")
                    parts.append(part)
                    if held >= self.size:
                        yield b"".join(parts)
                        held, parts = 0, []
        except OSError as error:
            raise TraceDamaged(f"{self.path} cannot be read ({error.strerror or error}): pass a trace file") from error
        if parts:
            yield b"".join(parts)

    def _parts(self, file: IO[bytes]) -> Iterator[bytes]:
        first = file.read(max(map(len, _OTHERS)))
        for magic, name in _OTHERS.items():
            if first.startswith(magic):
                raise TraceDamaged(f"{self.path} is compressed with {name}: decompress it, or compress it with gzip")
        if first.startswith(_GZIP):
            yield from self._gunzip(file, first)
            return
        yield first
        while piece := file.read(self.size):
            yield piece

    def _gunzip(self, file: IO[bytes], packed: bytes) -> Iterator[bytes]:
        inflater = inflating.decompressobj(wbits=31)
        while packed := packed or file.read(_PACKED):
            if inflater.eof:  # another archive may follow the first; what else follows is padding
                packed = packed if len(packed) > 1 else packed + file.read(_PACKED)
                if not packed.startswith(_GZIP):
                    return
                inflater = inflating.decompressobj(wbits=31)
            try:
                yield inflater.decompress(packed, self.size)
            except (zlib.error, inflating.error) as error:
                self.cut = f"its gzip data is damaged ({error})"
                return
            packed = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        if not inflater.eof:
            self.cut = "its gzip data is truncated"


def _opened(path: str) -> IO[bytes]:
    """A local file, or one of any file system that fsspec knows.

    Raises:
        OSError: it cannot be opened. TraceDamaged: fsspec knows no such address. MissingDependency: fsspec needs a library for it.
    """
    if "://" not in path:
        return Path(path).open("rb")
    try:
        import fsspec

        return cast(IO[bytes], cast(Any, fsspec.open(path, "rb")).open())
    except ImportError as error:
        raise MissingDependency(f"{path} needs a library that is not installed ({error})") from error
    except ValueError as error:
        raise TraceDamaged(f"{path} is not a URL that fsspec supports ({error})") from error
