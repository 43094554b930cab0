"""The folder itself, as a store: one file a sample, opened and read each time."""

import operator
import os
from pathlib import Path

from feedline.pipelines.photos import Photos
from feedline.pipelines.stores.images import HEAD_BYTES, ending
from feedline.pipelines.stores.listing import Source, list_folder, of_photos
from feedline.profiler.errors import DataError


class FileStore:
    """Reads the files of a folder. Holds nothing open, so that it goes into any process."""

    def __init__(self, source: Path | str | Photos) -> None:
        """List it; samples have the numbers that they would have in a packed store. Raises DataError: there is nothing that can be used."""
        listing = of_photos(source) if isinstance(source, Photos) else list_folder(Path(source))
        self.path = listing.root.absolute()
        self.classes = listing.classes
        self._sources = listing.sources if listing.checked else [one for one in listing.sources if is_image(self.path, one)]
        if not self._sources:
            raise DataError(f"{self.path}: none of its {len(listing.sources):,} files is a readable image")

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        """The file's bytes and its label. Raises IndexError; DataError: it cannot be read any more."""
        source = self._sources[operator.index(number)]
        try:
            with open(self.path / source.path, "rb", buffering=0) as file:
                return file.read(), source.label
        except OSError as error:
            raise DataError(f"{self.path / source.path} cannot be read ({error.strerror})") from error

    def name(self, number: int) -> str:
        """The file's path, relative to the folder."""
        return self._sources[operator.index(number)].path

    def close(self) -> None:
        """Nothing is open."""


def is_image(root: Path, source: Source) -> bool:
    """Whether a file can be read and begins as an image does."""
    try:
        with open(os.path.join(root, source.path), "rb", buffering=0) as file:
            return ending(file.read(HEAD_BYTES)) is not None
    except OSError:
        return False
