"""Events of a text that is not quite JSON: nothing readable is lost because of what stands beside it."""

import json
import re
from typing import Any

import msgspec

from feedline.analysis.traces.kineto.blocks import BOUNDARY
from feedline.analysis.traces.kineto.schema import IGNORED, NO_ARGS, NONE, ONE, AnyEvent, Args, Begin, End, ExactSpan, Label

LARGEST = 1 << 22  # bytes of text that may become Python objects at once, which take up to 30 times as much
#: Behind the last event: the end of the object, or another of its keys.
_END = re.compile(rb'\}\s*\](?=\s*(?:\}|,\s*"[\w ]+"\s*:|$))')
_ENCODED = {field.name: field.encode_name for field in msgspec.structs.fields(Args)}
_RAW = {field.name for field in msgspec.structs.fields(Args) if field.type is msgspec.Raw}
_WHOLE = {"correlation", "bytes"}
_MADE: dict[str, Any] = {"X": ExactSpan, "B": Begin, "E": End, "M": Label}


def tolerant(block: bytes) -> tuple[list[AnyEvent], int] | None:
    """Events of a list without its brackets, and how many of its entries are none; None: it is not JSON.

    Takes what Python takes: control characters within text, NaN, bytes that are not UTF-8, a comma behind the last, any type anywhere.
    """
    if len(block) > LARGEST:
        return None
    text = block.decode("utf-8", "replace").strip().rstrip(",")
    try:
        objects = json.loads(f"[{text}]", strict=False, parse_float=str)
    except (ValueError, RecursionError):
        return None
    events = [event for entry in objects if (event := _coerced(entry)) is not None]
    return events, len(objects) - len(events)


def one_by_one(block: bytes, final: bool = False) -> tuple[list[AnyEvent], int, int | None]:
    """Each event that can be read, how many cannot, and where the list ends if it does so within the block.

    Args:
        final: nothing follows, so that what follows the list is known to be whole.
    """
    begins = [0, *(match.end() for match in BOUNDARY.finditer(block)), len(block)]
    events: list[AnyEvent] = []
    dropped = 0
    for begin, end in zip(begins, begins[1:]):
        piece = block[begin:end]
        for bracket in (None, *(match.start() + 1 for match in _END.finditer(piece))):
            found = _event(piece[:bracket])
            if found is not None:
                events.append(found)
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
    """Whether a text can follow the list of events in its object."""
    try:
        msgspec.json.decode(b'{"a": 0' + text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def _event(piece: bytes) -> AnyEvent | None:
    piece = piece.strip().rstrip(b",")
    try:
        return ONE.decode(piece)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        read = tolerant(piece)
        return read[0][0] if read and len(read[0]) == 1 else None


def _coerced(entry: Any) -> AnyEvent | None:
    """An event of whatever types a file has. An empty object is one of no use: rocprof begins its lists with it, and XProf ends them."""
    if not isinstance(entry, dict) or ("ph" not in entry and entry):
        return None
    made = _MADE.get(str(entry.get("ph")), IGNORED[0])
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
    return made(**{name: coerced[name] for name in made.__struct_fields__})


def _arguments(args: dict[str, Any]) -> Args:
    found: dict[str, Any] = {}
    for name, encoded in _ENCODED.items():
        value = args.get(encoded, args.get("Input dims") if name == "dims" else None)
        if value is None:
            continue
        if name in _RAW:
            found[name] = msgspec.Raw(json.dumps(value).encode())
        elif name in _WHOLE:
            found[name] = whole(value, -1)
        elif not isinstance(value, (list, dict)):
            found[name] = _text(value) if name == "name" else value
    return Args(**found) if found else Args()


def whole(value: Any, otherwise: int) -> int:
    """A number that 64 bits hold, of whatever a file has instead of one."""
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
