"""webdataset: files read from tar archives, and the decoding of samples."""

import functools
import io
import tarfile
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from feedline.profiler.events import Stage
from feedline.profiler.record.detail import detail
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import collect, missing, stopwatch


def _install(tap: Tap, webdataset: ModuleType) -> None:
    tar = webdataset.tariterators
    for name in tap.free(tar, ["tar_file_iterator"]):
        tap.function(tar, name, _spanned_iterator(tar.tar_file_iterator))
    tap.method(
        webdataset.autodecode.Decoder,
        "__call__",
        Stage.DECODE,
        lambda _: (0, 0),
        "webdataset.Decoder",
    )


def _spanned_iterator(original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return a generator around the generator of a tar's files, with a span for each file."""
    timed = stopwatch(Stage.READ, lambda file: (len(file["data"]), 0))

    @functools.wraps(original)
    def tar_file_iterator(*args: Any, **kwargs: Any) -> Iterator[Any]:
        files: Any = original(*args, **kwargs)
        try:
            while True:
                write = detail.write
                try:
                    file = (
                        next(files)
                        if write is None
                        else timed(write, "webdataset.tar", next, (files,), {})
                    )
                except StopIteration:
                    return
                yield file
        finally:
            files.close()

    return tar_file_iterator


def _selftest() -> str | None:
    from webdataset import autodecode, tariterators

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(member := tarfile.TarInfo("0.txt"))
        assert member.size == 0
    archive.seek(0)
    spans = collect(lambda: list(tariterators.tar_file_iterator(archive)))
    spans += collect(lambda: autodecode.Decoder([])({"txt": b"x"}))
    return missing(spans, (Stage.READ, "webdataset.tar"), (Stage.DECODE, "webdataset.Decoder"))


LIBRARY = Library(
    "webdataset", "webdataset", "files out of tar archives, decoding", _install, _selftest
)
