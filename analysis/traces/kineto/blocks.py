"""Where a list of events begins, where it can be split, and where it ends."""

import re
from collections import deque
from collections.abc import Iterator

#: Between two events. In valid JSON no text can hold it (its quotes would be escaped); a list of objects among the arguments can.
BOUNDARY = re.compile(rb'\}\s*,\s*(?=\{\s*(?:\}|"(?:ph|name|cat|args|ts|pid|tid|dur|id|s|bp|tts|ev)"\s*:))')
_TOKEN = re.compile(rb'"[^"\\]*"|["[\]{},]')  # a quote alone begins a text that has escapes, or no end
_ESCAPE = re.compile(rb'["\\]')
_OPENS = re.compile(rb"\s*:\s*\[")
_NEAR = 1 << 12  # bytes from the end in which the last boundary is looked for first
_DEEPEST = 1000  # brackets; an event with its shapes has five


def last_boundary(buffer: bytes) -> re.Match[bytes] | None:
    """The last place at which the buffer looks as if one event ended and another began."""
    begin, width = len(buffer), _NEAR
    while begin:
        begin, width = max(0, begin - width), width * 8
        found = deque(BOUNDARY.finditer(buffer, begin), maxlen=1)
        if found:
            return found[0]
    return None


def list_begin(text: bytes) -> int | None:
    """Where the list ``traceEvents`` of the outermost object begins, behind its bracket."""
    depth = 0
    for token in _tokens(text):
        letter = text[token.start()]
        if letter in b"{[":
            depth += 1
        elif letter in b"}]":
            depth -= 1
        elif depth == 1 and token.group() == b'"traceEvents"':
            opens = _OPENS.match(text, token.end())
            if opens:
                return opens.end()
        if depth > _DEEPEST:
            break
    return None


def scan(buffer: bytes) -> tuple[int | None, int | None]:
    """Count brackets from the beginning of an event on: the last comma between two events, and the ``]`` behind the last event.

    Exact in valid JSON, at a tenth of the speed of guessing; None: there is none.
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
    """Brackets, commas, and texts without escapes; what is within texts is passed over."""
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
    while found := _ESCAPE.search(text, at):
        if text[found.start()] == 0x22:
            return found.end()
        at = found.end() + 1
    return None
