"""The helper and a process that it can't read for a moment."""

import json
import subprocess
import sys
import time

from feedline.profiler import proc
from feedline.profiler.files import owned
from feedline.profiler.stacks import helper, targets
from feedline.profiler.stacks.helper import _StackLog
from feedline.profiler.stacks.interpreter_layout import find_layout
from feedline.profiler.stacks.stack_sampler import _start_helper
from feedline.profiler.stacks.targets import TARGETS
from feedline.profiler.store.stack_format import LOG
from feedline.profiler.store.stack_format import helper_of as helper_pid

SLEEPER = """
import time
from feedline.profiler.stacks.interpreter_layout import code_type, thread_states
print(thread_states()[-1], code_type(), flush=True)
time.sleep(60)
"""
NOBODYS = 8  # an address that is nobody's


def test_failed_reads_do_not_drop_a_process_that_lives_unless_all_fail(tmp_path):
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as sleeper:
        state, code = map(int, sleeper.stdout.readline().split())
        try:
            sampler, process = helper_of(tmp_path, sleeper.pid, state, code)
            process.state = NOBODYS
            sample(sampler, process, times=helper._MAX_FAILED - 1)
            process.state = state
            sample(sampler, process, times=1)
            process.state = NOBODYS
            sample(sampler, process, times=helper._MAX_FAILED - 1)
            assert sampler._processes
            sample(sampler, process, times=1)
            assert not sampler._processes
        finally:
            sleeper.kill()


def test_a_path_that_the_program_put_on_sys_path_keeps_no_helper_from_starting(
    tmp_path, monkeypatch
):
    owned.claim(tmp_path / "rank0", "run")
    monkeypatch.setattr(sys, "path", [tmp_path / "lib", *sys.path])

    _start_helper(tmp_path / "rank0", json.dumps(find_layout().as_json()), None)
    try:
        deadline = time.monotonic() + 60
        while not helper_pid(tmp_path / "rank0" / LOG) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert helper_pid(tmp_path / "rank0" / LOG)
    finally:
        targets.end(tmp_path / "rank0")


def helper_of(folder, pid, state, code):
    said = {"name": "main", "pid": pid, "started": proc.started(pid), "ours": []}
    (folder / TARGETS).write_text(json.dumps(said | {"code_type": code, "state": state}) + "\n")
    sampler = helper._Helper(folder, pid, said["started"], find_layout(), 100.0)
    sampler._log = _StackLog(folder)
    sampler._hear(time.perf_counter_ns())
    (process,) = sampler._processes.values()
    return sampler, process


def sample(sampler, process, times):
    for _ in range(times):
        process.due_ns = 0
        sampler._sample(time.perf_counter_ns())
