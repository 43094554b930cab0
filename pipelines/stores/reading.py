"""Reads the files to be packed, some of them ahead of writing."""

import os
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from feedline.pipelines.stores.images import HEAD_BYTES, ending, is_cut_off
from feedline.pipelines.stores.listing import Listing, Source
from feedline.pipelines.stores.protocol import LeftOut

_THREADS = 4
_AHEAD = 16  # files held in memory at a time: enough for a disk with a queue, and a gigabyte where each has 64 MB


@dataclass(frozen=True)
class Image:
    """A file's content, and the extension for it."""

    value: bytes
    ending: str


def read_ahead(listing: Listing, first: int, max_bytes: int) -> Generator[tuple[int, Image | LeftOut], None, None]:
    """All files from number ``first`` on, in order: the content of each, or why it cannot be used."""
    with ThreadPoolExecutor(_THREADS, "feedline-pack") as threads:
        waiting: deque[tuple[int, Future[Image | LeftOut]]] = deque()
        try:
            for number in range(first, len(listing.sources)):
                waiting.append((number, threads.submit(read, listing, listing.sources[number], max_bytes)))
                if len(waiting) >= _AHEAD:
                    ready, future = waiting.popleft()
                    yield ready, future.result()
            while waiting:
                ready, future = waiting.popleft()
                yield ready, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def read(listing: Listing, source: Source, max_bytes: int) -> Image | LeftOut:
    """A file's content, or why it cannot be used. Files that are not images are not read to the end."""
    try:
        with open(os.path.join(listing.root, source.path), "rb", buffering=0) as file:
            head = file.read(HEAD_BYTES)
            kind = ending(head)
            if not head:
                return LeftOut(source.path, "zero bytes")
            if kind is None and not listing.checked:
                return LeftOut(source.path, "not an image, by its content")
            if source.bytes > max_bytes:
                return LeftOut(source.path, f"{source.bytes:,} bytes, and the format holds {max_bytes:,}")
            value = head + file.readall()
    except OSError as error:
        return LeftOut(source.path, f"cannot be read ({error.strerror})")
    if len(value) != source.bytes:
        return LeftOut(source.path, f"changed while it was packed: {len(value):,} bytes, {source.bytes:,} when it was listed")
    if is_cut_off(value, kind):
        return LeftOut(source.path, f"the file ends too early, after {len(value):,} bytes: copy it again from its source")
    return Image(value, kind or os.path.splitext(source.path)[1][1:].lower()[:8] or "bin")
