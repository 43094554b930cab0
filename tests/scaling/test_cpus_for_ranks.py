"""What is said where ranks outnumber the CPUs, or would."""

from types import SimpleNamespace

import pytest

from feedline.analysis.scaling.launch_points import _crowded


def run(ranks, cpus, **machine):
    """A run of so many ranks on a host."""
    about = {"effective_cpus": cpus, **machine}
    return SimpleNamespace(
        ranks={
            rank: SimpleNamespace(
                manifest=SimpleNamespace(machine=about, place={"local_rank": rank})
            )
            for rank in range(ranks)
        }
    )


@pytest.mark.parametrize(
    ("ranks", "cpus", "machine", "said"),
    [
        (4, 2, {}, "4 ranks shared 2 CPUs"),
        (2, 2, {}, "predictions for more than 2 ranks suppose a CPU for each"),
        (2, 16, {}, None),
        (2, None, {}, None),
        (2, 2, {"gpus": ["one", "two"]}, None),
    ],
)
def test_cpus_that_ranks_share_or_would_share_are_said(ranks, cpus, machine, said):
    notes = _crowded([run(ranks, cpus, **machine)])

    assert [note.startswith(said) for note in notes] == ([True] if said else [])
