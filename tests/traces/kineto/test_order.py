"""Neither the order of events in a file nor where it is split into pieces makes a difference."""

import gzip
import json
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traces.kineto_writer import write_kineto
from traces.strategies import content, traces

from feedline.analysis.traces.kineto.kineto_reader import read_kineto

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@same_folder
@given(trace=traces(), seed=st.integers(0, 2**32))
def test_the_order_of_events_in_the_file_does_not_matter(tmp_path, trace, seed):
    path = tmp_path / "t.json"
    write_kineto(trace, path)
    plain = json.loads(path.read_bytes())
    random.Random(seed).shuffle(plain["traceEvents"])
    path.write_text(json.dumps(plain))
    assert content(read_kineto(str(path))) == content(trace)


@same_folder
@given(
    trace=traces(most=12),
    piece=st.integers(1, 400),
    packed=st.booleans(),
    indent=st.sampled_from([None, 0, 2]),
)
def test_where_the_file_is_split_does_not_matter(tmp_path, trace, piece, packed, indent):
    path = tmp_path / "t.json"
    write_kineto(trace, path)
    written = json.dumps(json.loads(path.read_bytes()), indent=indent).encode()
    path.write_bytes(gzip.compress(written) if packed else written)
    assert content(read_kineto(str(path), piece=piece)) == content(trace)
