"""The events of a trace one block at a time, and the text around them."""

import re
from collections.abc import Iterable, Iterator
from typing import NoReturn

from feedline.analysis.traces.kineto.blocks import last_boundary, list_begin, scan
from feedline.analysis.traces.kineto.decode import Block, Decoder, by_texts
from feedline.analysis.traces.kineto.salvage import one_by_one, tolerant
from feedline.analysis.traces.kineto.schema import IGNORED
from feedline.analysis.traces.makers import of_bytes, of_lines, refusal
from feedline.profiler.errors import TraceDamaged

_LARGEST = 1 << 23  # bytes without the boundary of two events: an event with its stack and shapes has some thousand
_PATIENCE = 1 << 22  # bytes, after which what looks like nothing but arguments is given up
_SPARE = 250_000  # a file with this many more entries that are not events than events is given up
_BOM = b"\xef\xbb\xbf"


class Blocks:
    """Iterate over the events of a file.

    Args:
        pieces: the bytes of the file; a block is about as long as a piece.
        path: for messages.

    Attributes, once all has been read:
        head, tail: the JSON object around the list: up to and with its ``[``, and from its ``]`` on. Empty for a bare list.
        whole: the list has an end.
        dropped: entries that no reading makes an event of.

    Raises:
        TraceDamaged: there is no list of events, or what looks like one event is larger than LARGEST.
    """

    def __init__(self, pieces: Iterable[bytes], path: str) -> None:
        self._pieces, self.path = iter(pieces), path
        self.head, self.tail = b"", b""
        self.whole, self.dropped = False, 0
        self._decode = Decoder()

    def __iter__(self) -> Iterator[Block]:
        read = 0
        for block in self._blocks():
            read += len(block.spans)
            if self.dropped > read + _SPARE:
                raise TraceDamaged(f"{self.path} is not a trace: {self.dropped:,} entries of its list are not events, {read:,} are")
            yield block

    def _blocks(self) -> Iterator[Block]:
        buffer = self._after_head()
        for piece in self._pieces:
            if self.whole:
                self.tail += piece if len(self.tail) < _LARGEST else b""
                continue
            buffer += piece
            boundary = last_boundary(buffer)
            if boundary:
                block = self._decode(buffer[: boundary.start() + 1])
                if block:
                    buffer = buffer[boundary.end() :]
                    yield block
                    continue
            if boundary or len(buffer) > _LARGEST:
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
            enough = 2 * len(head)  # looking again for every piece would take the square of their number
            begin = head.lstrip()[:1]
            if begin == b"[":
                if maker := of_lines(head):
                    raise TraceDamaged(refusal(self.path, maker))
                return head[head.index(b"[") + 1 :]
            if begin not in (b"{", b""):
                self._refuse(head, "it is neither JSON nor gzipped JSON. Pass a file written by torch.profiler")
            if list_begin(head) or len(head) > _LARGEST:
                break
        at = list_begin(head)
        if at is None:
            self._refuse(head, "it has no `traceEvents` list. Pass a file written by torch.profiler")
        self.head = head[:at]
        return head[at:]

    def _refuse(self, head: bytes, why: str) -> NoReturn:
        """Raises: TraceDamaged: with who wrote the file, if that is known."""
        maker = of_bytes(head)
        raise TraceDamaged(f"{self.path} is not a trace: {why}" if maker is None else refusal(self.path, maker))

    def _doubtful(self, buffer: bytes, boundary: re.Match[bytes] | None) -> tuple[Block, bytes]:
        """Events of a buffer that could not be split by guessing, and what is left of it."""
        comma, bracket = scan(buffer)
        end = comma if bracket is None else bracket
        if end is not None:
            block = self._read(buffer[:end])
            if block:
                return block, self._rest(buffer, end, bracket is not None)
        if not boundary:
            raise TraceDamaged(f"{self.path} has no event in {_LARGEST >> 20} MB of text: it is damaged, or not written by torch.profiler")
        events, dropped, bracket = one_by_one(buffer[: boundary.start() + 1])
        if len(buffer) < _PATIENCE and all(type(event) is IGNORED[0] for event in events):
            return by_texts([]), buffer  # objects among the arguments of an event that is not yet whole look like events
        self.dropped += dropped
        return by_texts(events), self._rest(buffer, boundary.end() if bracket is None else bracket, bracket is not None)

    def _last(self, buffer: bytes) -> Iterator[Block]:
        """Events of what is left when the file is over, whether the list has ended in it or not."""
        boundary = last_boundary(buffer)
        begin = boundary.end() if boundary else 0
        _, bracket = scan(buffer[begin:])
        if bracket is not None:
            block = self._decode(buffer[: begin + bracket])
            if block:
                self._rest(buffer, begin + bracket, True)
                yield block
                return
        comma, bracket = scan(buffer)
        block = self._read(buffer[:bracket])
        if block:
            self._rest(buffer, bracket or 0, bracket is not None)
            yield block
            return
        if comma is not None and (block := self._read(buffer[:comma])):
            yield block
            buffer = self._rest(buffer, comma, False)
        events, dropped, bracket = one_by_one(buffer, final=True)
        self._rest(buffer, bracket or 0, bracket is not None)
        self.dropped += dropped - (bracket is None and dropped > 0)  # what the end of the file cut is not counted
        yield by_texts(events)

    def _read(self, text: bytes) -> Block | None:
        block = self._decode(text)
        if block:
            return block
        read = tolerant(text)
        if read is None:
            return None
        self.dropped += read[1]
        return by_texts(read[0])

    def _rest(self, buffer: bytes, end: int, whole: bool) -> bytes:
        if whole:
            self.whole, self.tail = True, buffer[end:]
            return b""
        return buffer[end:].removeprefix(b",")
