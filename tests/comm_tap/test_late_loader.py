"""A rank whose loader decodes larger images: it is named, with the decoding, and the network is not blamed."""

from comm_tap.launching import launch, say_what_went_wrong

from feedline.analysis.build import build
from feedline.analysis.scaling.late import late_of
from feedline.analysis.scaling.measured import point_of
from feedline.profiler.store.read import Run


def test_the_rank_that_decodes_larger_images_is_named_with_its_decoding(tmp_path):
    say_what_went_wrong(launch(tmp_path, "larger_images.py", 3))
    run = Run.open(tmp_path / "run")

    report = build(run)

    first = report.findings[0]
    assert first.cause == "late_rank" and first.severity == "high"
    assert (first.blame.rank, first.blame.phase, first.blame.part) == (2, "wait", "decode")
    assert "The network is not the cause" in first.says
    waits = [report.ranks[str(rank)]["comm"]["exposed_wait_s"] for rank in range(3)]
    assert min(waits[:2]) > 5 * waits[2]
    assert late_of([run], point_of([run])).startswith("with 3 ranks, rank 2 is ")  # what `feedline scale` says of it
