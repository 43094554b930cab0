"""The late rank in `feedline scale`: of any number of ranks, with the number and the words of
`feedline report`.
"""

from dataclasses import dataclass, replace

from ranks.made_up import Training, always, train

from feedline.analysis.explain import late_launch
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.ranks.comparison import _compare_collectives
from feedline.analysis.scaling.efficiency import Point
from feedline.analysis.scaling.launch_points import _point_of
from feedline.analysis.text.formatting import seconds
from feedline.profiler.store.trainings import open_run

RANKS, STEPS, LATE = 10, 24, 7


def test_one_of_ten_ranks_that_is_always_late_is_named(synthetic, tmp_path, monkeypatch):
    """Its lateness costs nothing here: steps of made-up ranks have one length, so the least that
    matters is set to 0.
    """

    @dataclass(frozen=True)
    class Always(synthetic.Plan):
        def late_rank(self, step):
            return LATE

    for number in range(RANKS):
        synthetic.write_rank(tmp_path / "run", Always(RANKS, STEPS, 4, per_host=RANKS), number)
    monkeypatch.setattr(late_launch, "_MATTERS", 0.0)
    run = open_run(tmp_path / "run")

    said = late_launch.late_of([run], RANKS, _point_of([run]).step_s)

    assert said.startswith(
        f"with {RANKS} ranks, rank {LATE} is {seconds(recorded_report(run).comm.late[0].late_s)} late in "
    )


def test_what_it_costs_is_what_the_report_says_and_an_estimate_only_where_the_replay_refuses():
    comm = _compare_collectives(
        train(Training(ranks=12, late=always(LATE, range(30), "wait", 40.0))).ranks
    ).communication
    point = Point(12, 1000.0, batch=20.0)
    (told,) = [one for one in comm.what_if if (one.id, one.value) == ("rank_on_time", LATE)]
    (worst,) = comm.late

    refused = replace(comm, what_if=[], late=[replace(worst, cost_s=None)])

    assert (
        f"the replay predicts that {seconds(told.gain_s)} of each 240 ms step can be saved ("
        in late_launch._sentence(comm, point.ranks, point.step_s)
    )
    assert "about" not in late_launch._sentence(comm, point.ranks, point.step_s)
    assert (
        f": about {seconds(worst.waited_s)} of each 240 ms step can be saved"
        in late_launch._sentence(refused, point.ranks, point.step_s)
    )
