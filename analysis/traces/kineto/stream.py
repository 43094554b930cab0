"""A trace file as blocks of events.

It is unpacked as it is read, cut between events, and salvaged where it is damaged.
"""

import json
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import msgspec

from feedline.analysis.traces.kineto.event_blocks import (
    IGNORED,
    NO_ARGS,
    NONE,
    ONE,
    AnySpan,
    Args,
    Begin,
    Block,
    BlockDecoder,
    End,
    ExactSpan,
    Label,
    by_texts,
)
from feedline.analysis.traces.makers import maker_of_bytes, maker_of_lines, refusal_of
from feedline.analysis.traces.trace_columns import TraceLimits
from feedline.profiler.errors import MissingDependency, TraceDamaged

_AnyEvent = AnySpan | End | Label

_inflating: Any = zlib
_GZIP = b"\x1f\x8b"
_PACKED = 1 << 14  # of a damaged archive, what follows the last whole piece of this size is lost
_OTHER_ARCHIVES = {
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
}
# bytes of text that may become Python objects at once, which take up to 30 times as much
MAX_OBJECT_TEXT = 1 << 22
#: Behind the last event: the end of the object, or another of its keys.
_END = re.compile(rb'\}\s*\](?=\s*(?:\}|,\s*"[\w ]+"\s*:|$))')
_ENCODED = {field.name: field.encode_name for field in msgspec.structs.fields(Args)}
_RAW = {field.name for field in msgspec.structs.fields(Args) if field.type is msgspec.Raw}
_INTEGER_ARGS = {"correlation", "bytes"}
_MADE: dict[str, Any] = {"X": ExactSpan, "B": Begin, "E": End, "M": Label}
#: Between two events. In valid JSON no text can hold it (its quotes would be escaped); a list of
#: objects among the arguments can.
_BOUNDARY = re.compile(
    rb'\}\s*,\s*(?=\{\s*(?:\}|"(?:ph|name|cat|args|ts|pid|tid|dur|id|s|bp|tts|ev)"\s*:))'
)
# a quote alone begins a text that has escapes, or no end
_TOKEN = re.compile(rb'"[^"\\]*"|["[\]{},]')
_ESCAPE = re.compile(rb'["\\]')
_LIST_BEGINS = re.compile(rb"\s*:\s*\[")
_NEAR_END = 1 << 12  # bytes from the end in which the last boundary is looked for first
_DEEPEST = 1000  # brackets; an event with its shapes has five
# bytes without the boundary of two events: an event with its stack and shapes has some thousand
_MAX_EVENT_TEXT = 1 << 23
_PATIENCE = 1 << 22  # bytes, after which what looks like nothing but arguments is given up
_SPARE = 250_000  # a file with this many more entries that are not events than events is given up
_BOM = b"\xef\xbb\xbf"
_VALUE = re.compile(
    rb"\s*(null|true|false|-?\d[\d.eE+-]*|\"[^\"]*\")\s*$"
)  # of JSON, without parts
with suppress(ImportError):  # two to three times as fast
    from isal import isal_zlib as _inflating


class Inflated:
    """Iterate over the JSON of a trace in pieces of about ``size`` bytes.

    Attributes:
        cut: why the bytes end before their end, once they have been read; None: they do not.

    Raises:
        TraceDamaged: there is no such file, it is packed as something else than gzip, or it unpacks
            to more than the limit.
        MissingDependency: fsspec needs a library for this address.
    """

    def __init__(self, path: str, limits: TraceLimits, size: int) -> None:
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
                        raise TraceDamaged(
                            f"{self.path} unpacks to more than {bound:,.3g} GB: raise "
                            f"--max-events if it is a trace"
                        )
                    parts.append(part)
                    if held >= self.size:
                        yield b"".join(parts)
                        held, parts = 0, []
        except OSError as error:
            raise TraceDamaged(
                f"{self.path} cannot be read ({error.strerror or error}): pass a trace file"
            ) from error
        if parts:
            yield b"".join(parts)

    def _parts(self, file: IO[bytes]) -> Iterator[bytes]:
        first = file.read(max(map(len, _OTHER_ARCHIVES)))
        for magic, name in _OTHER_ARCHIVES.items():
            if first.startswith(magic):
                raise TraceDamaged(
                    f"{self.path} is compressed with {name}: decompress it, or compress it with "
                    f"gzip"
                )
        if first.startswith(_GZIP):
            yield from self._gunzip(file, first)
            return
        yield first
        while piece := file.read(self.size):
            yield piece

    def _gunzip(self, file: IO[bytes], packed: bytes) -> Iterator[bytes]:
        inflater = _inflating.decompressobj(wbits=31)
        while packed := packed or file.read(_PACKED):
            if inflater.eof:  # another archive may follow the first; what else follows is padding
                packed = packed if len(packed) > 1 else packed + file.read(_PACKED)
                if not packed.startswith(_GZIP):
                    return
                inflater = _inflating.decompressobj(wbits=31)
            try:
                yield inflater.decompress(packed, self.size)
            except (zlib.error, _inflating.error) as error:
                self.cut = f"its gzip data is damaged ({error})"
                return
            packed = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        if not inflater.eof:
            self.cut = "its gzip data is truncated"


def _opened(path: str) -> IO[bytes]:
    """Return a local file, or one of any file system that fsspec knows.

    Raises:
        OSError: it cannot be opened. TraceDamaged: fsspec knows no such address. MissingDependency:
            fsspec needs a library for it.
    """
    if "://" not in path:
        return Path(path).open("rb")
    try:
        import fsspec

        return cast(IO[bytes], cast(Any, fsspec.open(path, "rb")).open())
    except ImportError as error:
        raise MissingDependency(
            f"{path} needs a library that is not installed ({error})"
        ) from error
    except ValueError as error:
        raise TraceDamaged(f"{path} is not a URL that fsspec supports ({error})") from error


def _tolerant(block: bytes) -> tuple[list[_AnyEvent], int] | None:
    """Return events of a list without its brackets, and how many of its entries are none.

    None: it is not JSON.

    Takes what Python takes: control characters within text, NaN, bytes that are not UTF-8, a comma
    behind the last, any type anywhere.
    """
    if len(block) > MAX_OBJECT_TEXT:
        return None
    text = block.decode("utf-8", "replace").strip().rstrip(",")
    try:
        objects = json.loads(f"[{text}]", strict=False, parse_float=str)
    except (ValueError, RecursionError):
        return None
    events = [event for entry in objects if (event := _coerced(entry)) is not None]
    return events, len(objects) - len(events)


def _one_by_one(block: bytes, final: bool = False) -> tuple[list[_AnyEvent], int, int | None]:
    """Decode each event that can be read.

    Say how many cannot, and where the list ends if it does so within the block.

    Args:
        block: text of the list, without the beginning that was read.
        final: nothing follows, so that what follows the list is known to be whole.
    """
    begins = [0, *(match.end() for match in _BOUNDARY.finditer(block)), len(block)]
    events: list[_AnyEvent] = []
    dropped = 0
    for begin, end in zip(begins, begins[1:]):
        piece = block[begin:end]
        for bracket in (None, *(match.start() + 1 for match in _END.finditer(piece))):
            event = _event(piece[:bracket])
            if event is not None:
                events.append(event)
                if bracket is not None:
                    return events, dropped, begin + piece.index(b"]", bracket)
                break
        else:
            dropped += 1
    if final and dropped:
        for match in _END.finditer(block, begins[-2]):
            if _is_rest(block[match.end() :]):
                return events, dropped, match.end() - 1
    return events, dropped, None


def _is_rest(text: bytes) -> bool:
    """Tell whether a text can follow the list of events in its object."""
    try:
        msgspec.json.decode(b'{"a": 0' + text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def _event(piece: bytes) -> _AnyEvent | None:
    piece = piece.strip().rstrip(b",")
    try:
        return ONE.decode(piece)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        read = _tolerant(piece)
        return read[0][0] if read and len(read[0]) == 1 else None


def _coerced(entry: Any) -> _AnyEvent | None:
    """Return an event of whatever types a file has.

    An empty object is one of no use: rocprof begins its lists with it, and XProf ends them.
    """
    if not isinstance(entry, dict) or ("ph" not in entry and entry):
        return None
    kind = _MADE.get(str(entry.get("ph")), IGNORED[0])
    args = entry.get("args")
    coerced = {
        "cat": _text(entry.get("cat")),
        "name": _text(entry.get("name")),
        "pid": _text(entry.get("pid")),
        "tid": _text(entry.get("tid")),
        "args": _arguments(args) if isinstance(args, dict) else NO_ARGS,
        "ts": _number(entry.get("ts")),
        "dur": _number(entry.get("dur", 0)),
    }
    return kind(**{name: coerced[name] for name in kind.__struct_fields__})


def _arguments(args: dict[str, Any]) -> Args:
    arguments: dict[str, Any] = {}
    for name, encoded in _ENCODED.items():
        value = args.get(encoded, args.get("Input dims") if name == "dims" else None)
        if value is None:
            continue
        if name in _RAW:
            arguments[name] = msgspec.Raw(json.dumps(value).encode())
        elif name in _INTEGER_ARGS:
            arguments[name] = as_int(value, -1)
        elif not isinstance(value, (list, dict)):
            arguments[name] = _text(value) if name == "name" else value
    return Args(**arguments) if arguments else Args()


def as_int(value: Any, otherwise: int) -> int:
    """Return a number that 64 bits hold, of whatever a file has instead of one."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return number if -(1 << 63) <= number < 1 << 63 else otherwise


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return text.encode("utf-8", "replace").decode()


def _number(value: Any) -> msgspec.Raw:
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        return msgspec.Raw(str(value).encode())
    return NONE


def _last_boundary(buffer: bytes) -> re.Match[bytes] | None:
    """Return the last place at which the buffer looks as if one event ended and another began."""
    begin, width = len(buffer), _NEAR_END
    while begin:
        begin, width = max(0, begin - width), width * 8
        last = deque(_BOUNDARY.finditer(buffer, begin), maxlen=1)
        if last:
            return last[0]
    return None


def _list_begin(text: bytes) -> int | None:
    """Return where the list ``traceEvents`` of the outermost object begins, behind its bracket."""
    depth = 0
    for token in _tokens(text):
        letter = text[token.start()]
        if letter in b"{[":
            depth += 1
        elif letter in b"}]":
            depth -= 1
        elif depth == 1 and token.group() == b'"traceEvents"':
            opens = _LIST_BEGINS.match(text, token.end())
            if opens:
                return opens.end()
        if depth > _DEEPEST:
            break
    return None


def _scan(buffer: bytes) -> tuple[int | None, int | None]:
    """Count brackets from the beginning of an event on.

    That finds the last comma between two events, and the ``]`` behind the last event. It is exact
    in valid JSON, at a tenth of the speed of guessing; None: there is none.
    """
    depth, comma = 0, None
    for token in _tokens(buffer):
        letter = buffer[token.start()]
        if letter in b"{[":
            depth += 1
        elif letter in b"}]":
            depth -= 1
            if depth < 0:
                return comma, token.start()
        elif letter == 0x2C and depth == 0:
            comma = token.start()
        if depth > _DEEPEST:
            break
    return comma, None


def _tokens(text: bytes) -> Iterator[re.Match[bytes]]:
    """Yield brackets, commas, and texts without escapes.

    What is within texts is passed over.
    """
    at: int | None = 0
    while at is not None:
        for token in _TOKEN.finditer(text, at):
            if token.end() - token.start() == 1 and text[token.start()] == 0x22:
                at = _text_end(text, token.end())
                break
            yield token
        else:
            return


def _text_end(text: bytes, at: int) -> int | None:
    while escape := _ESCAPE.search(text, at):
        if text[escape.start()] == 0x22:
            return escape.end()
        at = escape.end() + 1
    return None


class Blocks:
    """Iterate over the events of a file.

    Args:
        pieces: the bytes of the file; a block is about as long as a piece.
        path: for messages.

    Attributes, once all has been read:
        head, tail: the JSON object around the list: up to and with its ``[``, and from its ``]``
            on. Empty for a bare list.
        whole: the list has an end.
        dropped: entries that no reading makes an event of.

    Raises:
        TraceDamaged: there is no list of events, or what looks like one event is larger than
            _MAX_EVENT_TEXT.
    """

    def __init__(self, pieces: Iterable[bytes], path: str) -> None:
        self._pieces, self.path = iter(pieces), path
        self.head, self.tail = b"", b""
        self.whole, self.dropped = False, 0
        self._decode = BlockDecoder()

    def __iter__(self) -> Iterator[Block]:
        read = 0
        for block in self._blocks():
            read += len(block.spans)
            if self.dropped > read + _SPARE:
                raise TraceDamaged(
                    f"{self.path} is not a trace: {self.dropped:,} entries of its list are not "
                    f"events, {read:,} are"
                )
            yield block

    def _blocks(self) -> Iterator[Block]:
        buffer = self._after_head()
        for piece in self._pieces:
            if self.whole:
                self.tail += piece if len(self.tail) < _MAX_EVENT_TEXT else b""
                continue
            buffer += piece
            boundary = _last_boundary(buffer)
            if boundary:
                block = self._decode(buffer[: boundary.start() + 1])
                if block:
                    buffer = buffer[boundary.end() :]
                    yield block
                    continue
            if boundary or len(buffer) > _MAX_EVENT_TEXT:
                block, buffer = self._doubtful(buffer, boundary)
                yield block
        if not self.whole:
            yield from self._last(buffer)

    def _after_head(self) -> bytes:
        """Read up to the list of events: what follows its bracket."""
        head, enough = b"", 0
        for piece in self._pieces:
            head = (head + piece).removeprefix(_BOM)
            if len(head) < enough:
                continue
            # looking again for every piece would take the square of their number
            enough = 2 * len(head)
            begin = head.lstrip()[:1]
            if begin == b"[":
                if maker := maker_of_lines(head):
                    raise TraceDamaged(refusal_of(self.path, maker))
                return head[head.index(b"[") + 1 :]
            if begin not in (b"{", b""):
                why = (
                    "it holds no events"
                    if _VALUE.fullmatch(head)
                    else "it is neither JSON nor gzipped JSON"
                )
                self._refuse(head, f"{why}. Pass a file written by torch.profiler")
            if _list_begin(head) or len(head) > _MAX_EVENT_TEXT:
                break
        at = _list_begin(head)
        if at is None:
            self._refuse(
                head, "it has no `traceEvents` list. Pass a file written by torch.profiler"
            )
        self.head = head[:at]
        return head[at:]

    def _refuse(self, head: bytes, why: str) -> NoReturn:
        """Refuse a file, and say who wrote it, if that is known.

        Raises TraceDamaged, always.
        """
        maker = maker_of_bytes(head)
        raise TraceDamaged(
            f"{self.path} is not a trace: {why}" if maker is None else refusal_of(self.path, maker)
        )

    def _doubtful(self, buffer: bytes, boundary: re.Match[bytes] | None) -> tuple[Block, bytes]:
        """Return events of a buffer that could not be split by guessing, and what is left of it."""
        comma, bracket = _scan(buffer)
        end = comma if bracket is None else bracket
        if end is not None:
            block = self._read(buffer[:end])
            if block:
                return block, self._rest(buffer, end, bracket is not None)
        if not boundary:
            raise TraceDamaged(
                f"{self.path} has no event in {_MAX_EVENT_TEXT >> 20} MB of text: it is damaged, "
                f"or not written by torch.profiler"
            )
        events, dropped, bracket = _one_by_one(buffer[: boundary.start() + 1])
        if len(buffer) < _PATIENCE and all(type(event) is IGNORED[0] for event in events):
            # objects among the arguments of an event that is not yet whole look like events
            return (by_texts([]), buffer)
        self.dropped += dropped
        return by_texts(events), self._rest(
            buffer, boundary.end() if bracket is None else bracket, bracket is not None
        )

    def _last(self, buffer: bytes) -> Iterator[Block]:
        """Return the events of what is left when the file is over.

        The list may have ended in it or not.
        """
        boundary = _last_boundary(buffer)
        begin = boundary.end() if boundary else 0
        _, bracket = _scan(buffer[begin:])
        if bracket is not None:
            block = self._decode(buffer[: begin + bracket])
            if block:
                self._rest(buffer, begin + bracket, True)
                yield block
                return
        comma, bracket = _scan(buffer)
        block = self._read(buffer[:bracket])
        if block:
            self._rest(buffer, bracket or 0, bracket is not None)
            yield block
            return
        if comma is not None and (block := self._read(buffer[:comma])):
            yield block
            buffer = self._rest(buffer, comma, False)
        events, dropped, bracket = _one_by_one(buffer, final=True)
        self._rest(buffer, bracket or 0, bracket is not None)
        # what the end of the file cut is not counted
        self.dropped += dropped - (bracket is None and dropped > 0)
        yield by_texts(events)

    def _read(self, text: bytes) -> Block | None:
        block = self._decode(text)
        if block:
            return block
        read = _tolerant(text)
        if read is None:
            return None
        self.dropped += read[1]
        return by_texts(read[0])

    def _rest(self, buffer: bytes, end: int, whole: bool) -> bytes:
        if whole:
            self.whole, self.tail = True, buffer[end:]
            return b""
        return buffer[end:].removeprefix(b",")
