"""What a killed worker's memory grew for, from its records and the gauges of a run folder."""

from types import SimpleNamespace

import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.measure.full_memory import killed_worker
from feedline.profiler.samplers.gauge_file import GaugeLegend, GaugeWriter
from feedline.profiler.store.manifest import Manifest

S = 1_000_000_000
PID = 4711
TOLD = {"pid": PID, "limit_bytes": 2_000_000_000, "kills": 1, "limit_hits": 3}


@pytest.fixture
def rank(tmp_path):
    """Make one whose worker had these bytes at each second, and made batches until these seconds."""

    def made(sizes, ends):
        path = tmp_path / "gauges.bin"
        GaugeLegend(gauges=[("memory/loader0-worker0", "B")]).write(path)
        writer = GaugeWriter(path)
        for at, size in enumerate(sizes):
            writer.append(at * S, [(0, size)])
        writer.close()
        run = MadeUp(role="worker", loader=0, worker=0, pid=PID)
        for number, end in enumerate(ends):
            begin = ends[number - 1] if number else 0
            run.fetched(int(begin * S), int(end * S), number)
        manifest = Manifest(killed=TOLD)
        return SimpleNamespace(
            workers=[run.process()], rank=SimpleNamespace(folder=tmp_path, manifest=manifest)
        )

    return made


@pytest.mark.parametrize(
    ("ends", "of_one", "kept_perhaps"),
    [((), True, True), ((7.5,), True, True), ((2.5, 5.5, 7.5), False, False)],
    ids=["in its first batch", "in its second", "later"],
)
def test_growth_in_the_first_batches_may_be_what_is_kept_of_each_sample(
    rank, ends, of_one, kept_perhaps
):
    killed = killed_worker(rank([300e6 + 150e6 * at for at in range(10)], ends))

    assert (killed.batch_bytes is not None) == of_one
    assert (killed.per_second_bytes is None) == of_one
    assert killed.kept_perhaps == kept_perhaps


def test_growth_for_the_first_of_several_batches_is_not_kept(rank):
    killed = killed_worker(rank([300e6, 900e6, *[1500e6] * 8], (2.5, 5.5, 7.5)))

    assert killed.batch_bytes == 1200e6 and killed.first_batch and not killed.kept_perhaps
