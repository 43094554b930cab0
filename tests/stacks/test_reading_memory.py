"""A stack that is read out of memory, beside the true one."""

import argparse
import inspect
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from types import CodeType

import pytest

from feedline.profiler.stacks.interpreter_layout import (
    Layout,
    code_type,
    find_layout,
    thread_states,
)
from feedline.profiler.stacks.memory_access import ProcessMemory
from feedline.profiler.stacks.thread_stacks import (
    _FRAME_BYTES,
    StackReader,
    Torn,
    _line_at,
    reads_truly,
)


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


@pytest.mark.parametrize("module", [argparse, inspect, json.decoder, subprocess])
def test_each_instruction_has_its_line(module):
    with open(module.__file__) as file:
        source = file.read()
    for code in codes(compile(source, module.__file__, "exec")):
        for number, (line, *_) in enumerate(code.co_positions()):
            read = _line_at(code.co_linetable, code.co_firstlineno, 2 * number)
            assert read == (line or 0), (code, number)


@pytest.fixture
def state_of():
    """Finds the state of a thread of this process, by its native id."""
    layout, memory = find_layout(), ProcessMemory(os.getpid())

    def found(native):
        (state,) = (
            state
            for state in thread_states()
            if memory.words(state, 96)[layout.state_thread_words] == native
        )
        return state

    return found


class Ünï:
    def метод(self, numbers):
        return list(map(lambda number: next(numbers), [1]))  # noqa: C417  # called from C


def numbers_after(gate):
    gate.wait()
    yield 1


def nested(depth, gate):
    if depth:
        return nested(depth - 1, gate)
    return sorted([1], key=lambda _: Ünï().метод(numbers_after(gate)))


@pytest.mark.parametrize("depth", [0, 40, 150])
def test_a_stack_through_c_code_and_generators_is_read_as_it_is(depth, state_of):
    layout, memory = find_layout(), ProcessMemory(os.getpid())
    gate = threading.Event()
    thread = threading.Thread(target=nested, args=(depth, gate))
    thread.start()
    try:
        time.sleep(0.2)
        native = thread.native_id
        read = StackReader(memory, layout, code_type()).stack(native, state_of(native))
        frame = sys._current_frames()[thread.ident]
        true = [
            (entry.filename, entry.name, entry.lineno)
            for entry in reversed(traceback.extract_stack(frame))
        ]
    finally:
        gate.set()
        thread.join()

    assert [(place.file, place.function, place.line) for place in read] == true


def test_a_file_in_a_folder_whose_name_is_not_utf_8_is_read(state_of):
    file = os.fsdecode(b"/data/caf\xe9/train.py")
    names: dict = {}
    exec(compile("def waits(gate):\n    gate.wait()", file, "exec"), names)
    gate = threading.Event()
    thread = threading.Thread(target=names["waits"], args=(gate,))
    thread.start()
    try:
        time.sleep(0.2)
        memory, layout = ProcessMemory(os.getpid()), find_layout()
        state = state_of(thread.native_id)
        read = StackReader(memory, layout, code_type()).stack(thread.native_id, state)
    finally:
        gate.set()
        thread.join()

    assert (file, "waits", 2) in read


def test_a_frame_at_the_end_of_memory_is_a_torn_stack(state_of):
    class Ends(ProcessMemory):
        """It ends within each frame."""

        def read(self, address, size):
            data = super().read(address, size)
            return data[:16] if size == _FRAME_BYTES else data

    own = threading.get_native_id()
    layout = replace(find_layout(), state_chunk_words=-1)

    with pytest.raises(Torn):
        StackReader(Ends(os.getpid()), layout, code_type()).stack(own, state_of(own))


def test_a_layout_that_is_wrong_is_noticed():
    layout = find_layout()
    assert reads_truly(layout)

    try:
        read = reads_truly(replace(layout, code_first_line=layout.code_first_line + 4))
    except (Torn, LookupError):
        read = False
    assert not read


def test_a_layout_survives_json():
    layout = find_layout()

    assert Layout.of_json(json.loads(json.dumps(layout.as_json()))) == layout


def test_a_state_that_is_another_threads_is_refused():
    layout, memory = find_layout(), ProcessMemory(os.getpid())

    with pytest.raises(LookupError):
        StackReader(memory, layout, code_type()).stack(1, thread_states()[-1])


def test_threads_that_end_meanwhile_leave_no_wrong_state():
    main, ends = thread_states()[-1], time.monotonic() + 2
    churning = [threading.Thread(target=short_threads, args=(ends,)) for _ in range(4)]
    for thread in churning:
        thread.start()

    wrong = 0
    while time.monotonic() < ends:
        wrong += thread_states()[-1] != main
    for thread in churning:
        thread.join()

    assert wrong == 0


def short_threads(ends):
    while time.monotonic() < ends:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
