"""Files that are cut, broken or malicious: what can be read is read, the rest is said, and nothing
takes the machine down.
"""

import gzip
import resource
import zlib

import pytest
from traces.kineto.making import TS, event, read, rows, text

from feedline.analysis.traces.kineto import stream
from feedline.analysis.traces.kineto.kineto_reader import read_kineto
from feedline.analysis.traces.trace_columns import TraceLimits
from feedline.profiler.errors import TraceDamaged

MANY = [
    event(f"op{number % 7}", TS + number, args={"External id": number}) for number in range(5000)
]


def test_names_with_newlines_and_control_characters_are_kept(tmp_path):
    odd = f'{{"ph": "X", "name": "line one\nline two\t\x01", "pid": 1, "tid": 1, "ts": {TS}, "dur": 1}}'
    trace = read(tmp_path, text(event(), odd, event()))
    assert "line one\nline two\t\x01" in trace.names
    assert (len(trace.events), trace.notes) == (3, [])


@pytest.mark.parametrize("piece", [60, 1 << 19])
@pytest.mark.parametrize("bad", ['<string> "quoted"(1)', 'one " quote', '"', '}, {"'])
def test_a_name_with_quotes_costs_only_its_event(tmp_path, bad, piece):
    odd = f'{{"ph": "X", "name": "{bad}", "pid": 1, "tid": 1, "ts": {TS}, "dur": 1}}'
    trace = read(
        tmp_path,
        text(*MANY[:20], odd, *MANY[20:40], odd, MANY[40], distributedInfo={"rank": 2}),
        piece=piece,
    )
    assert len(trace.events) == 41
    assert trace.rank == 2
    assert trace.notes[0].endswith("left out: not readable")


def test_a_bad_event_at_the_end_costs_neither_the_others_nor_the_rank(tmp_path):
    odd = '{"ph": "X", "name": "one " quote", "pid": 1, "tid": 1, "ts": 5, "dur": 1}'
    whole = text(*MANY[:5], odd)[:-1] + ', "distributedInfo": {"rank": 3, "world_size": 4}}'
    trace = read(tmp_path, whole)
    assert (len(trace.events), trace.rank, trace.notes) == (
        5,
        3,
        ["1 event was left out: not readable"],
    )


def test_bytes_that_are_no_text_cost_no_event(tmp_path):
    content = text(event("name ?"), event()).encode().replace(b"?", b"\xff\xfe")
    assert len(read(tmp_path, content).events) == 2


def test_not_a_number_is_no_time(tmp_path):
    trace = read(
        tmp_path, text(event(), '{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": NaN, "dur": 1}')
    )
    assert (len(trace.events), trace.notes) == (1, ["1 event was left out: not readable"])


def test_a_comma_behind_the_last_event_does_no_harm(tmp_path):
    assert (
        len(
            read(
                tmp_path, '{"traceEvents": [' + '{"ph": "X", "name": "a", "ts": 1},' * 3 + "]}"
            ).events
        )
        == 3
    )


def test_a_packed_file_is_known_by_its_content(tmp_path):
    assert len(read(tmp_path, gzip.compress(text(event()).encode()), "trace.json").events) == 1
    assert len(read(tmp_path, text(event()), "trace.json.gz").events) == 1


def test_without_isal_the_standard_library_unpacks(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "_inflating", zlib)
    packed = gzip.compress(text(*MANY).encode())
    assert len(read(tmp_path, packed + packed[:10] + b"\0", piece=1000).events) == 5000


def test_two_archives_in_one_file_are_one_trace(tmp_path):
    content = text(*MANY).encode()
    packed = gzip.compress(content[:70_000]) + gzip.compress(content[70_000:]) + b"\0" * 512
    trace = read(tmp_path, packed)
    assert (len(trace.events), trace.notes) == (5000, [])


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_of_a_cut_archive_what_was_there_is_kept_and_the_cut_is_said(tmp_path, share):
    packed = gzip.compress(text(*MANY).encode())
    trace = read(tmp_path, packed[: int(len(packed) * share)])
    assert share * 4000 < len(trace.events) < 5000
    assert trace.notes[0].startswith("the trace is truncated (its gzip data is truncated)")
    assert rows(trace)[0] == ("op0", TS * 1000, 5000)


@pytest.mark.parametrize("where", range(90, 700, 61))
def test_of_cut_json_every_whole_event_is_kept(tmp_path, where):
    content = text(*MANY[:10])[:where]
    whole = content.count("}}")
    if not whole:
        with pytest.raises(TraceDamaged, match="truncated before the first"):
            read(tmp_path, content)
        return
    trace = read(tmp_path, content)
    assert len(trace.events) == whole
    assert trace.notes[0].startswith("the trace is truncated (its list of events is not closed)")


def test_a_damaged_archive_keeps_what_came_before(tmp_path):
    packed = bytearray(
        gzip.compress(text(*(event(f"{number * 7919:x}") for number in range(50_000))).encode())
    )
    packed[len(packed) // 2 : len(packed) // 2 + 64] = b"\xff" * 64
    trace = read(tmp_path, bytes(packed))
    assert 15_000 < len(trace.events) < 50_000
    assert "truncated" in trace.notes[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no `traceEvents` list"),
        (b"hello", "neither JSON nor"),
        (b"\x89PNG\r\n", "neither JSON nor"),
        (b"null\n", "it holds no events"),
        (b"PK\x03\x04 and more", "compressed with zip"),
        (b"{}", "no `traceEvents` list"),
        (b'{"traceEvents": {}}', "no `traceEvents` list"),
        (b'{"nested": {"traceEvents": [{"ph": "X", "ts": 1}]}}', "no `traceEvents` list"),
        (b'{"traceEvents": []}', "contains no event"),
        (b'{"traceEvents": [', "truncated before the first"),
        (b"[]", "contains no event"),
        pytest.param(
            gzip.compress(b'{"traceEvents": [{"ph": "X"')[:-20], "trace", id="a gzip that is cut"
        ),
    ],
)
def test_what_is_no_trace_is_refused_with_its_name(tmp_path, content, said):
    with pytest.raises(TraceDamaged, match=said) as error:
        read(tmp_path, content)
    assert "trace.json" in str(error.value)


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(TraceDamaged, match="cannot be read"):
            read_kineto(str(path))


def test_a_trace_elsewhere_is_read_through_fsspec():
    import fsspec

    with fsspec.open("memory://bucket/rank3.json.gz", "wb") as file:
        file.write(gzip.compress(text(event()).encode()))
    trace = read_kineto("memory://bucket/rank3.json.gz")
    assert (trace.source, len(trace.events)) == ("rank3.json.gz", 1)
    address = "memory://bucket/rank3.json.gz?sv=2022&sig=Zm9vYmFy%3D"
    with fsspec.open(address, "wb") as file:
        file.write(gzip.compress(text(event()).encode()))
    assert read_kineto(address).source == "rank3.json.gz", "a signature is a secret"
    for path in ("memory://bucket/none.json", "nothing://at/all.json"):
        with pytest.raises(TraceDamaged):
            read_kineto(path)


def test_limits_name_the_option_that_raises_them(tmp_path):
    content = gzip.compress(text(*MANY).encode())
    for limits in (
        TraceLimits(events=100),
        TraceLimits(inflated_bytes=10_000),
        TraceLimits(text_bytes=100),
    ):
        with pytest.raises(TraceDamaged, match="--max-events"):
            read(tmp_path, content, limits=limits)


BOMBS = {
    "brackets": b'{"traceEvents": [' + b"[" * 20_000_000,
    "nested arguments": b'{"traceEvents": [{"ph": "X", "ts": 1, "args": {"a": ' + b"[" * 20_000_000,
    "one text": b'{"traceEvents": [{"ph": "X", "ts": 1, "name": "' + b"a" * 20_000_000,
    "backslashes": b'{"traceEvents": [{"ph": "X", "ts": 1, "name": "' + b"\\\\" * 10_000_000,
    "spaces": b" " * 20_000_000,
    "spaces in the list": b'{"traceEvents": [' + b" " * 20_000_000,
    "nothings": b'{"traceEvents": [' + b"{}," * 6_500_000,
    "a shape": b'{"traceEvents": [{"ph": "X", "ts": 1, "args": {"Input Dims": ['
    + b"[]," * 6_500_000
    + b"[]]}}]}",
    "behind": b'{"traceEvents": [{"ph": "X", "ts": 1}], "a": [' + b"[]," * 6_500_000,
}


SLOW_BOMBS = ("nothings", "a shape")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.long] * (one in SLOW_BOMBS)) for one in BOMBS]
)
def test_a_bomb_takes_neither_the_memory_nor_the_day(tmp_path, name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        trace = read(tmp_path, gzip.compress(BOMBS[name], 1))
        assert len(trace.events) == 1
    except TraceDamaged:
        pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KB
