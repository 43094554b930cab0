"""Calls are observed, and the program does not see by whom."""

import sys

import pytest

from feedline.profiler.taps.own_code.python_calls import CallTimes

BUILTIN = sys.gettrace


@pytest.fixture
def calls():
    found = CallTimes()
    yield found
    found.end()


def test_a_program_that_asks_for_a_trace_function_is_told_of_none(calls):
    assert calls.on()
    seen = sys.gettrace()
    calls.off()

    assert seen is None

    calls.end()
    assert sys.gettrace is BUILTIN


def test_a_trace_function_of_the_program_is_still_told(calls):
    def own(frame, event, value):
        return None

    assert calls.on()
    before = sys.gettrace()
    sys.settrace(own)
    seen = sys.gettrace()
    sys.settrace(before)
    calls.off()

    assert seen is own and sys.gettrace() is None


def test_a_debugger_stops_at_lines_of_a_function_that_was_called_meanwhile(calls):
    lines = []

    def debugger(frame, event, value):
        lines.append(event)
        return debugger

    def goes_on():
        calls.off()
        sys._getframe().f_trace = debugger
        sys.settrace(debugger)
        first = 1
        second = first + 1
        sys.settrace(None)
        return second

    assert calls.on()
    goes_on()

    assert lines.count("line") >= 3
