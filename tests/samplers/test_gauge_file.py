"""The file of gauges: bounded, readable at any time, and never the end of the training."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from feedline.profiler.errors import RunDamaged, SchemaTooNew
from feedline.profiler.samplers.gauge_file import (
    _CHUNK_BYTES,
    GAUGE_ROW,
    GaugeLegend,
    GaugeWriter,
    legend_path,
)
from feedline.profiler.samplers.gauge_reader import _ROW_DTYPE, _read_legend, read_gauges

NAMES = [("cpu/machine", "1"), ("disk/read", "B/s"), ("memory/used", "B")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "gauges.bin"
    GaugeLegend(gauges=NAMES).write(path)
    return path


def test_what_was_written_is_read_back_without_closing_the_file(path: Path) -> None:
    writer = GaugeWriter(path)
    writer.append(10, [(0, 0.5), (2, 1e9)])
    writer.append(20, [(1, 3.0)])

    gauges = read_gauges(path)

    assert gauges.names == NAMES
    assert gauges.time.tolist() == [10, 10, 20]
    assert gauges.gauge.tolist() == [0, 2, 1]
    assert gauges.value.tolist() == [0.5, 1e9, 3.0]
    assert (gauges.time.dtype, gauges.value.dtype) == (np.int64, np.float64)


def test_a_closed_file_is_as_long_as_its_rows(path: Path) -> None:
    writer = GaugeWriter(path)
    writer.append(10, [(0, 0.5), (2, 1e9)])
    writer.close()

    assert path.stat().st_size == 3 * GAUGE_ROW.size
    assert len(read_gauges(path).time) == 2


def test_a_row_that_was_half_written_is_not_there(path: Path) -> None:
    writer = GaugeWriter(path)
    writer.append(10, [(0, 0.5)])
    GAUGE_ROW.pack_into(writer._map.view, writer._used, 20, 7.0, 1, 0)

    assert read_gauges(path).time.tolist() == [10]


def test_the_file_stays_below_its_bound_however_much_is_written(path: Path) -> None:
    bound = 3 * _CHUNK_BYTES
    writer = GaugeWriter(path, bound)
    sizes = set()

    for tick in range(40_000):
        writer.append(tick, [(0, 1.0), (1, 2.0), (2, 3.0)])
        sizes.add(path.stat().st_size)

    assert max(sizes) <= bound
    assert writer.thinned >= 3


@pytest.mark.parametrize("first", [0, 1])
def test_thinning_forgets_every_second_tick_as_a_whole_and_leaves_the_rest_evenly_spaced(
    path: Path, first: int
) -> None:
    writer = GaugeWriter(path, _CHUNK_BYTES)
    tick = first
    while not writer.thinned:
        writer.append(tick, [(0, float(tick)), (1, float(tick))])
        tick += 1

    gauges = read_gauges(path)
    times, rows = np.unique(gauges.time, return_counts=True)
    assert times[-1] == tick - 1
    assert set(np.diff(times)) == {2}
    assert set(rows) == {2}
    assert np.array_equal(gauges.value, gauges.time)


@pytest.mark.parametrize("often", [24, 25])
def test_thinning_keeps_half_of_each_gauge_however_rarely_it_comes(path: Path, often: int) -> None:
    """One comes every 20 ticks, two more in turns."""
    writer, tick = GaugeWriter(path, _CHUNK_BYTES), 0
    while not writer.thinned:
        rare = [(100, float(tick))] if tick % 20 == 0 else []
        writer.append(
            tick, [(gauge, 1.0) for gauge in range(often)] + [(50 + tick % 2, 1.0), *rare]
        )
        tick += 1
    writer.close()

    rows = np.frombuffer(path.read_bytes()[20:], _ROW_DTYPE)
    number = np.bincount(rows["gauge"][rows["written"] == 1], minlength=101)
    for gauge, ticks in ((0, tick), (50, tick / 2), (51, tick / 2), (100, tick / 20)):
        assert abs(number[gauge] - ticks / 2) <= 1


def test_the_only_value_of_a_gauge_stays_and_a_reader_elsewhere_sees_that_the_file_is_written(
    path: Path,
) -> None:
    writer = GaugeWriter(path, _CHUNK_BYTES)
    writer.append(0, [(0, 1.0), (7, 5.0)])
    os.utime(path, (1, 1))
    tick = 0
    while not writer.thinned:
        tick += 1
        writer.append(tick * 1_000_000, [(0, 1.0)])
    writer.close()

    rows = np.frombuffer(path.read_bytes()[20:], _ROW_DTYPE)
    assert (rows["gauge"] == 7).sum() == 1
    assert time.time() - path.stat().st_mtime < 60


def test_no_other_file_is_left_after_thinning(path: Path) -> None:
    writer = GaugeWriter(path, _CHUNK_BYTES)
    for tick in range(10_000):
        writer.append(tick, [(0, 1.0)])
    writer.close()

    assert {file.name for file in path.parent.iterdir()} == {
        ".feedline",
        "gauges.bin",
        "gauges.json",
    }


def test_a_forked_child_does_not_write_to_its_parents_file(path: Path) -> None:
    writer = GaugeWriter(path)
    writer.append(10, [(0, 0.5)])

    child = os.fork()
    if child == 0:
        status = 1
        try:
            writer.append(20, [(0, 7.0)])
            writer.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0

    assert path.stat().st_size == _CHUNK_BYTES
    assert read_gauges(path).time.tolist() == [10]


def test_a_file_that_is_there_already_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"somebody's")

    with pytest.raises(FileExistsError):
        GaugeWriter(path)

    assert path.read_bytes() == b"somebody's"


def test_a_file_that_was_killed_before_its_first_byte_has_no_rows(path: Path) -> None:
    path.write_bytes(bytes(_CHUNK_BYTES))

    assert len(read_gauges(path).time) == 0


@pytest.mark.parametrize("length", [0, 7, 19, 21, 39, 41])
def test_a_file_cut_anywhere_gives_its_whole_rows(path: Path, length: int) -> None:
    writer = GaugeWriter(path)
    writer.append(10, [(0, 0.5), (1, 0.5)])
    writer.close()
    os.truncate(path, length)

    assert len(read_gauges(path).time) == max(0, length // GAUGE_ROW.size - 1)


def test_another_kind_of_file_is_damaged_and_named(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04 something else entirely")

    with pytest.raises(RunDamaged, match="gauges.bin is not a gauge file"):
        read_gauges(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 1, "gauges": [3]}'])
def test_a_legend_that_is_damaged_is_named(path: Path, text: str) -> None:
    legend_path(path).write_text(text)

    with pytest.raises(RunDamaged, match="gauges.json cannot be read"):
        _read_legend(path)


def test_a_legend_of_a_newer_feedline_says_to_upgrade(path: Path) -> None:
    legend_path(path).write_text(json.dumps({"schema_version": 99, "gauges": []}))

    with pytest.raises(SchemaTooNew, match="update feedline"):
        _read_legend(path)


def test_a_run_without_gauges_is_told_by_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_gauges(tmp_path / "gauges.bin")


def test_reading_needs_no_torch() -> None:
    program = (
        "import sys, feedline.profiler.samplers.gauge_reader; sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


THINNED = """
import sys
from pathlib import Path
from feedline.profiler.samplers.gauge_file import GaugeWriter

writer = GaugeWriter(Path(sys.argv[1]), 64 * 1024)
for tick in range(5000):
    writer.append(tick, [(0, 1.0)])
sys.exit(not writer.thinned or "numpy" in sys.modules)
"""


def test_writing_and_thinning_need_no_numpy(path: Path) -> None:
    """A program that has not imported it may still set how many threads it uses."""
    assert subprocess.run([sys.executable, "-c", THINNED, str(path)]).returncode == 0
