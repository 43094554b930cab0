"""Every event of traces that others made arrives, with the time that its file has."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import TRACES

from feedline.analysis.traces.kineto.kineto_reader import read_kineto
from feedline.analysis.traces.trace_columns import Kind, Trace

FILES = sorted(TRACES.rglob("*.json.gz"))
KINDS = {  # what these files have, spelled as they spell it
    "Operator": Kind.OPERATOR,
    "cpu_op": Kind.OPERATOR,
    "Kernel": Kind.KERNEL,
    "kernel": Kind.KERNEL,
    "Memcpy": Kind.COPY,
    "gpu_memcpy": Kind.COPY,
    "Memset": Kind.SET,
    "gpu_memset": Kind.SET,
    "Runtime": Kind.RUNTIME,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "python_function": Kind.PYTHON,
    "overhead": Kind.OVERHEAD,
    "Trace": Kind.OTHER,
}
STREAMS = (Kind.KERNEL, Kind.COPY, Kind.SET, Kind.DEVICE_ANNOTATION)

pytestmark = pytest.mark.skipif(not FILES, reason=f"the traces are not in {TRACES}")


def plainly(file: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(file.read_bytes()), strict=False, parse_float=Decimal)


def ns(microseconds: Decimal | int) -> int:
    exact = Decimal(microseconds) * 1000
    assert exact == int(exact)
    return int(exact)


@pytest.fixture(scope="module", params=FILES, ids=lambda file: file.name[:40])
def both(request: pytest.FixtureRequest) -> tuple[Trace, dict[str, Any]]:
    """A file as it is read, and as plain JSON."""
    return read_kineto(str(request.param)), plainly(request.param)


def times(trace: Trace, kind: Kind) -> tuple[int, int, int]:
    events = trace.events[trace.events["kind"] == kind]
    return (
        len(events),
        int(events["start"].sum()) + len(events) * trace.origin_ns,
        int(events["wall"].sum()),
    )


def test_events_names_and_times_are_those_of_the_file(both):
    trace, plain = both
    base = plain.get("baseTimeNanoseconds", 0)
    spans = [event for event in plain["traceEvents"] if event["ph"] == "X"]

    expected = {kind: [event for event in spans if KINDS[event["cat"]] == kind] for kind in Kind}
    for kind, events in expected.items():
        start = sum(ns(event["ts"]) + base for event in events)
        assert times(trace, kind) == (
            len(events),
            start,
            sum(ns(event["dur"]) for event in events),
        ), kind
        names = Counter(
            trace.names[number] for number in trace.events["name"][trace.events["kind"] == kind]
        )
        assert names == Counter(event["name"] for event in events), kind
    assert trace.notes == []


def test_streams_correlations_and_bytes_are_those_of_the_file(both):
    trace, plain = both
    spans = [event for event in plain["traceEvents"] if event["ph"] == "X"]

    device = np.isin(trace.events["kind"], STREAMS)
    read = Counter(
        (trace.tracks[track].device, trace.tracks[track].thread)
        for track in trace.events["track"][device]
    )
    expected = Counter(
        (event["pid"], str(event["args"].get("stream", event["tid"])))
        for event in spans
        if KINDS[event["cat"]] in STREAMS
    )
    assert read == expected
    correlations = Counter(event.get("args", {}).get("correlation", -1) for event in spans)
    assert Counter(trace.events["correlation"].tolist()) == correlations
    copied = [
        event["args"]["bytes"] for event in spans if KINDS[event["cat"]] in (Kind.COPY, Kind.SET)
    ]
    assert sorted(trace.events["nbytes"][trace.events["nbytes"] >= 0].tolist()) == sorted(copied)


def test_shapes_are_those_of_the_file(both):
    trace, plain = both
    expected: Counter[str] = Counter()
    for event in plain["traceEvents"]:
        args = event.get("args", {})
        sizes = args.get("Input Dims", args.get("Input dims"))
        if event["ph"] == "X" and sizes is not None:
            flat = [
                size
                for sizes_ in sizes
                for size in (sizes_ if sizes_ and isinstance(sizes_[0], list) else [sizes_])
            ]
            expected[json.dumps(flat)] += 1
    shapes = trace.events["shape"][trace.events["shape"] >= 0]
    assert (
        Counter(json.dumps([list(size) for size in trace.shapes[shape].inputs]) for shape in shapes)
        == expected
    )


def test_events_are_in_order(both):
    events = both[0].events
    keys = list(
        zip(
            events["start"].tolist(),
            (-events["wall"]).tolist(),
            events["track"].tolist(),
            events["name"].tolist(),
        )
    )
    assert keys == sorted(keys)
    assert keys[0][0] == 0


def test_what_a_collective_says_of_itself_is_kept():
    (file,) = (file for file in FILES if "nccl_args" in file.name)
    trace = read_kineto(str(file))
    kernels = trace.events[
        (trace.events["kind"] == Kind.KERNEL) & (trace.events["collective"] >= 0)
    ]
    said = Counter(trace.collectives[number].operation for number in kernels["collective"])
    plain = [
        event["args"]
        for event in plainly(file)["traceEvents"]
        if event.get("cat") == "kernel" and "Collective name" in event["args"]
    ]
    assert said == Counter(args["Collective name"] for args in plain)
    largest = max(
        (trace.collectives[number] for number in kernels["collective"]),
        key=lambda one: one.elements_in or 0,
    )
    assert largest.elements_in == max(args["In msg nelems"] for args in plain)
    assert (largest.group, largest.ranks, largest.size) == ("0", (0, 1), 2)
    assert trace.groups == {"0": (0, 1)}


def test_ranks_that_files_have_are_known(both):
    trace, plain = both
    said = plain.get("distributedInfo", {})
    assert (trace.rank, trace.world_size) == (said.get("rank"), said.get("world_size"))
    assert trace.devices == {
        device["id"]: device["name"] for device in plain.get("deviceProperties", [])
    }
