"""Looks for secrets in every file of a folder: as they are, encoded, packed, in columns and
metadata of Parquet, and in parts.
"""

import base64
import binascii
import gzip
import html
import json
import re
import urllib.parse
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq

PART = 10  # names are cut in records: a beginning or an end of a secret is one as well
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")


def leaks(folder: Path, secrets: Mapping[str, str]) -> dict[str, set[str]]:
    """Which secrets are in the folder: what they are -> the files they are in."""
    forms = {what: list(encoded(secret)) for what, secret in secrets.items()}
    found: dict[str, set[str]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        named = str(path.relative_to(folder))
        for data in [named.encode(), *contents(path.read_bytes(), path)]:
            for what, those in forms.items():
                if any(form in data for form in those):
                    found.setdefault(what, set()).add(named)
    return found


def encoded(secret: str) -> Iterator[bytes]:
    """How a secret, its beginning and its end may stand in a file."""
    for text in {secret, secret[:PART], secret[-PART:]}:
        quoted = {
            text,
            urllib.parse.quote(text, safe=""),
            html.escape(text),
            json.dumps(text)[1:-1],
            repr(text)[1:-1],
        }
        for form in quoted:
            yield form.encode()
            yield form.encode("utf-16-le")
            yield form.encode("utf-16-be")
        yield text.encode().hex().encode()
    for shift in range(3):  # what of its base64 does not depend on the bytes around it
        whole = base64.b64encode(b"\0" * shift + secret.encode()).decode().rstrip("=")
        yield whole[shift + (shift > 0) : -2].encode()


def contents(data: bytes, path: Path | None = None) -> Iterator[bytes]:
    """The data, and what is packed in it."""
    yield data
    if data[:2] == b"\x1f\x8b":
        yield from contents(unpacked(data))
    if path is not None and data[:4] == b"PAR1":
        yield from map(bytes, columns(path))
    for run in _BASE64.findall(data):
        try:
            inside = base64.b64decode(run + b"=" * (-len(run) % 4))
        except binascii.Error:
            continue
        yield inside
        if inside[:2] == b"\x1f\x8b":
            yield unpacked(inside)


def unpacked(data: bytes) -> bytes:
    """A gzip file, or what is there of one that was cut off."""
    try:
        return gzip.decompress(data)
    except EOFError:
        return zlib.decompressobj(31).decompress(data)


def columns(path: Path) -> Iterable[bytes]:
    """Every value and all metadata of a Parquet file."""
    with pq.ParquetFile(path) as file:
        for key, value in (file.schema_arrow.metadata or {}).items():
            yield key + b"=" + value
        yield repr(file.schema_arrow).encode()
        for column in file.read().itercolumns():
            for chunk in column.chunks:
                yield "\n".join(map(str, chunk.to_pylist())).encode("utf-8", "surrogatepass")
                for buffer in chunk.buffers():
                    if buffer is not None:
                        yield buffer.to_pybytes()
