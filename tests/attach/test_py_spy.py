"""With py-spy, the same is seen as when feedline reads stacks itself."""

import pytest

from feedline.analysis.explain.attached import Attached
from feedline.profiler.attach import py_spy
from feedline.profiler.attach.same_python import OtherPython, SamePython
from feedline.profiler.attach.watch import watch


@pytest.mark.long
@pytest.mark.skipif(py_spy.program() is None, reason="py-spy is not installed")
def test_another_python_is_read_by_py_spy(start, monkeypatch):
    def refuses(self: object, pid: int) -> int:
        raise OtherPython

    monkeypatch.setattr(SamePython, "begin_in", refuses)

    watched = watch(start("slow_dataset.py", 1, "fork", 60, 5).pid, 8)
    report = Attached.of(watched).report

    assert report.reader == "py-spy"
    assert report.limit.startswith("Input-bound")
    assert any(finding.message.startswith("tokenize() takes") for finding in report.findings)
    assert [process.name for process in report.processes] == ["the main process", "worker 0"]
