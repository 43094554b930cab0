"""stacks.log: what is written is read back, and damaged files are refused."""

import json
import time

import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.measure.source_lines import SourceLines
from feedline.profiler.errors import RunDamaged, SchemaTooNew
from feedline.profiler.events import Stage
from feedline.profiler.files import owned
from feedline.profiler.stacks import helper
from feedline.profiler.stacks.helper import _LogFull, _StackLog
from feedline.profiler.stacks.thread_stacks import Place
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.sampled_stacks import FileState, StackFrame
from feedline.profiler.store.stack_format import LOG
from feedline.profiler.store.stacks_reader import StackTimes, read_file_states, read_stacks

STACK = (Place("/data/of/bob/train.py", "inner", 7), Place("/data/of/bob/train.py", "outer", 3))


@pytest.fixture
def folder(tmp_path):
    owned.claim(tmp_path / "rank0", "run")
    return tmp_path / "rank0"


def rank(folder) -> Rank:
    rank = Rank(folder, 0, 0, Manifest(), [])
    rank.__dict__["processes"] = []
    return rank


def test_counts_are_summed_and_frames_are_outermost_first(folder):
    log = _StackLog(folder)
    process = log.process("main", 12)
    for begin in (0, 10):
        log.add(process, "main", STACK, 4_000_000_000)
        log.group(begin, begin + 10)
    log.end()

    (main,) = read_stacks(rank(folder))
    (stack,) = main.stacks
    assert (main.kind, main.pid, main.samples, main.seconds) == ("main", 12, 2, 8.0)
    assert stack.frames == (
        StackFrame("***/train.py", 3, "outer"),
        StackFrame("***/train.py", 7, "inner"),
    )


def test_moments_of_samples_are_read_back_to_the_microsecond(folder):
    log = _StackLog(folder)
    process = log.process("main", 12)
    for begin, moment in ((1_000_000, 1_002_000), (2_000_000, 2_000_000)):
        log.add(process, "main", STACK, 5, moment)
        log.add(process, "main", STACK[:1], 5)
        log.group(begin, begin + 10)

    (main,) = read_stacks(rank(folder))
    moments = {len(stack.frames): stack.moments for stack in main.stacks}
    assert moments == {2: (1_002_000, 2_000_000), 1: ()}


def test_a_sample_belongs_to_the_phase_of_its_moment_not_of_its_stretch(folder):
    log = _StackLog(folder)
    process = log.process("main", 12)
    for moment in (1_002_000, 1_003_000, 1_008_000):
        log.add(process, "main", STACK, 5, moment)
    log.add(process, "main", STACK[:1], 5)
    log.group(1_000_000, 1_010_000)
    recorded = rank(folder)
    steps = MadeUp().forward(1_000_000, 1_001_000, grad=False)  # makes data with another model
    steps.forward(1_004_000, 1_006_000).backward(1_006_000, 1_009_000)
    recorded.__dict__["processes"] = [steps.process()]

    (main,) = read_stacks(recorded)
    found = {(one.phase, len(one.frames)): (one.samples, one.moments) for one in main.stacks}
    assert found == {
        ("start", 2): (2, (1_002_000, 1_003_000)),
        ("loop", 2): (1, (1_008_000,)),
        ("loop", 1): (1, ()),  # its moment was not kept
    }
    assert [one.seconds for one in main.stacks] == pytest.approx([10e-9, 5e-9, 5e-9])


def test_a_line_that_a_killed_helper_left_half_written_is_ignored(folder):
    log = _StackLog(folder)
    log.add(log.process("main", 12), "main", STACK, 1)
    log.group(0, 1)
    with (folder / LOG).open("a") as file:
        file.write("c\t0\t9")

    (main,) = read_stacks(rank(folder))
    assert main.samples == 1


def test_a_full_file_ends_the_sampling_and_says_so(folder, monkeypatch):
    monkeypatch.setattr(helper, "MOST_WRITTEN", 10)
    log = _StackLog(folder)
    log.add(log.process("main", 12), "main", STACK, 1)
    with pytest.raises(_LogFull):
        log.group(0, 1)

    (main,) = read_stacks(rank(folder))
    assert "full" in main.refused


def test_the_state_of_a_file_of_the_program_is_kept_once_and_of_no_other(
    folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("step()\n")
    about = (tmp_path / "train.py").stat()
    elsewhere = Place(json.__file__, "loads", 5)
    log = _StackLog(folder)
    process = log.process("main", 12)
    log.add(process, "main", (elsewhere, Place("train.py", "main", 1)), 1)
    log.add(process, "main", (Place("train.py", "main", 2), *STACK), 1)
    log.group(0, 1)

    assert read_file_states(rank(folder)) == {
        "train.py": FileState(about.st_mtime_ns, about.st_size)
    }
    assert (folder / LOG).read_text().count("\nw\t") == 1


def test_files_that_are_masked_alike_are_told_apart_and_read_each_for_itself(
    folder, tmp_path, monkeypatch
):
    project, log = tmp_path / "project", _StackLog(folder)
    process = log.process("main", 12)
    for part in ("a", "b"):
        (project / part).mkdir(parents=True)
        (project / part / "utils.py").write_text(f"def load():\n    return '{part}'\n")
        place = Place(str(project / part / "utils.py"), "load", 2)
        log.add(process, "main", (place, place._replace(line=1)), 1)
    log.group(0, 1)

    (main,) = read_stacks(rank(folder))
    names = [{frame.file for frame in stack.frames} for stack in main.stacks]
    assert names == [{"***/utils.py"}, {"***/2/utils.py"}]
    folders = [project / "a", project / "b"]
    source = SourceLines(time.time() + 1, folders, read_file_states(rank(folder)))
    assert [source(name, 2, "load") for (name,) in names] == ["return 'a'", "return 'b'"]


def test_a_folder_whose_name_is_not_utf_8_ends_no_log(folder):
    log = _StackLog(folder)
    process = log.process("main", 12)
    for file in ("/data/caf\udce9/train.py", "caf\ud800/train.py", "<caf\ud800>"):
        log.add(process, "main", (Place(file, "main", 3),), 1)
    log.group(0, 1)

    (main,) = read_stacks(rank(folder))
    assert [stack.frames[0].line for stack in main.stacks] == [3, 3, 3]
    assert main.stacks[0].frames[0].file == "***/train.py"


def test_stretches_that_begin_before_a_moment_are_left_out(folder):
    log = _StackLog(folder)
    process = log.process("main", 12)
    for begin, stack in ((0, STACK), (10, STACK[1:]), (20, STACK[1:])):
        log.add(process, "main", stack, 1)
        log.group(begin, begin + 10)

    times = StackTimes.of(rank(folder))

    assert times is not None and times.until == 30
    (main,) = times.between(5, 30)
    assert [(len(stack.frames), stack.samples) for stack in main.stacks] == [(1, 2)]
    assert times.between(30, 40) == ()


def test_a_run_without_stacks_has_none(folder):
    assert read_stacks(rank(folder)) == ()


@pytest.mark.parametrize(
    "text", ["x\n", "feedline-stacks 1 2\nc\t5\t1\t1\n", "feedline-stacks 1 2\nf\tx\n"]
)
def test_a_damaged_file_is_refused(folder, text):
    (folder / LOG).write_text(text)

    with pytest.raises(RunDamaged):
        read_stacks(rank(folder))


def test_a_newer_file_is_refused(folder):
    (folder / LOG).write_text("feedline-stacks 2 1\n")

    with pytest.raises(SchemaTooNew):
        read_stacks(rank(folder))


def test_workers_that_start_while_others_live_have_stacks_of_their_own(folder):
    """The program asks for a new iterator while it holds the old one: their segment has a suffix."""
    log = _StackLog(folder)
    recorded, segments = rank(folder), ("loader0-worker0", "loader0-worker0.1")
    workers = []
    for pid, segment in enumerate(segments, 12):
        log.add(log.process(segment, pid), "main", STACK[pid - 12 :], 5, 1_008_000)
        of_worker = {"role": "worker", "loader": 0, "worker": 0, "pid": pid, "segment": segment}
        steps = MadeUp(**of_worker).span(Stage.FETCH, 1_004_000, 1_009_000)
        workers.append(steps.process())
    log.group(1_000_000, 1_010_000)
    recorded.__dict__["processes"] = workers

    found = {
        one.process: [(s.phase, len(s.frames)) for s in one.stacks] for one in read_stacks(recorded)
    }
    assert found == {segments[0]: [("loop", 2)], segments[1]: [("loop", 1)]}


def test_what_was_seen_after_a_moment_is_left_out_of_the_stretch_that_it_lies_in(folder):
    """As the end of a program that waited for long before it failed."""
    log = _StackLog(folder)
    process = log.process("main", 12)
    log.add(process, "main", STACK, 5, 1_002_000)
    log.add(process, "main", STACK[:1], 5, 1_008_000)
    log.group(1_000_000, 1_010_000)

    (main,) = StackTimes.of(rank(folder)).between(1_000_000, 1_005_000)

    assert [len(stack.frames) for stack in main.stacks] == [2]
