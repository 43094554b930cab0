"""Any trace is read as it was written."""

from hypothesis import HealthCheck, given, settings
from traces.kineto.writing import write_kineto
from traces.strategies import content, traces

from feedline.analysis.traces.kineto.read import read_kineto

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@same_folder
@given(trace=traces())
def test_a_written_trace_is_read_as_it_was(tmp_path, trace):
    write_kineto(trace, tmp_path / "t.json")
    read = read_kineto(str(tmp_path / "t.json"))
    assert content(read) == content(trace)
    assert read.notes == []
