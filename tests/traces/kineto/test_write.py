"""What is written is what was there, and other readers of Kineto's JSON can take it."""

import gzip
import json

from hypothesis import HealthCheck, given, settings
from traces.kineto_writer import write_kineto
from traces.strategies import content, traces

from feedline.analysis.traces.kineto.kineto_reader import read_kineto

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@same_folder
@given(trace=traces())
def test_a_written_trace_is_read_as_it_was(tmp_path, trace):
    write_kineto(trace, tmp_path / "t.json")
    read = read_kineto(str(tmp_path / "t.json"))
    assert content(read) == content(trace)
    assert read.notes == []


@same_folder
@given(trace=traces(most=5))
def test_it_is_plain_json_whose_times_a_double_holds(tmp_path, trace):
    write_kineto(trace, tmp_path / "t.json.gz")
    plain = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    spans = [event for event in plain["traceEvents"] if event["ph"] == "X"]
    starts = sorted(
        round(event["ts"] * 1000) + plain["baseTimeNanoseconds"] - trace.origin_ns
        for event in spans
    )
    assert starts == trace.events["start"].tolist()


@same_folder
@given(trace=traces(most=5))
def test_the_same_trace_gives_the_same_bytes(tmp_path, trace):
    for name in ("a.json.gz", "b.json.gz"):
        write_kineto(trace, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
