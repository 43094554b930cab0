"""Common parts of reading all packed formats."""

import operator
import zlib
from pathlib import Path

from feedline.pipelines.stores.index import INDEX, PATHS, Index
from feedline.pipelines.stores.manifest import Manifest, redo
from feedline.profiler.errors import StoreDamaged


class IndexedStore:
    """A packed store. The index is read at once; data files are opened in each process when it first reads from them."""

    def __init__(self, path: Path | str) -> None:
        """Open it.

        Raises:
            StoreDamaged: it is not whole, or a file of it is gone, cut off, or (the index) not what was written.
            SchemaTooNew: a newer feedline packed it.
        """
        self.path = Path(path).absolute()
        self.manifest = Manifest.read(self.path)
        self.classes = self.manifest.classes
        for name in (INDEX, PATHS):
            self._check_length(name)
            if zlib.crc32((self.path / name).read_bytes()) != self.manifest.files[name].crc32:
                raise StoreDamaged(f"{self.path / name} does not match its checksum: {redo(self.path)}")
        self.index = Index.load(self.path)
        for name in self.manifest.files:
            self._check_length(name)
        records = self.index.records
        self._start, self._bytes, self._label = records["start"] + records["skip"], records["bytes"], records["label"]

    def __len__(self) -> int:
        return len(self._label)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        """The original file's bytes and its label. Raises IndexError; StoreDamaged if the bytes cannot be read."""
        number = operator.index(number)
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        try:
            return self._read(number), int(self._label[number])
        except (OSError, ValueError) as error:
            raise StoreDamaged(f"{self.path}: sample {number}, {self.name(number)}: {error}: {redo(self.path)}") from error

    def __reduce__(self) -> tuple[type, tuple[Path]]:
        return type(self), (self.path,)

    def __del__(self) -> None:
        self.close()

    def name(self, number: int) -> str:
        """The original file's path, relative to the folder that was packed."""
        return self.index.path(number)

    def close(self) -> None:
        """Close what is open in this process; reading opens it again."""

    def damage(self, number: int) -> str | None:
        """What is wrong with a sample by its checksums, or None."""
        raise NotImplementedError

    def damaged_file(self) -> str | None:
        """A damaged file that no sample's checksum reveals, or None."""
        return None

    def _read(self, number: int) -> bytes:
        """Raises OSError, ValueError."""
        raise NotImplementedError

    def _cut(self, name: str, length: int) -> str:
        """Which samples are lost where a data file is shorter than it was, or nothing."""
        return ""

    def _check_length(self, name: str) -> None:
        file = self.path / name
        expected = self.manifest.files[name].bytes
        try:
            length = file.stat().st_size
        except OSError as error:
            raise StoreDamaged(f"{file} is missing ({error.strerror}): {redo(self.path)}") from error
        if length != expected:
            cut = self._cut(name, length) if name not in (INDEX, PATHS) else ""
            raise StoreDamaged(f"{file} has {length:,} bytes, not the {expected:,} that were written{cut}: {redo(self.path)}")
