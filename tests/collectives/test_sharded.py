"""FSDP2 moves parameters and gradients: what of both no backward covers is told by what moved."""

import pytest
from collectives.launching import launch, say_what_went_wrong

from feedline.analysis.explain import diagnose
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.store.trainings import open_run


def test_gathered_parameters_are_not_called_gradients(tmp_path, monkeypatch, warm_python):
    monkeypatch.setattr(
        diagnose, "MAX_FINDINGS", 10
    )  # on a busy machine, three others may cost more
    say_what_went_wrong(launch(tmp_path, "sharded.py", 2, warm=warm_python))

    report = recorded_report(open_run(tmp_path / "run"))

    for rank, kinds in report.comm.exposed.items():
        comm = report.ranks[rank].comm
        assert sum(one.transfer_s for one in kinds) == pytest.approx(comm.exposed_transfer_s)
        assert ("all_gather", "forward") in [(one.name, one.phase) for one in kinds]
    (found,) = [one for one in report.findings if one.rule_id == "exposed_communication"]
    assert found.message.startswith("collectives not overlapped with backward take ") and any(
        "all_gather in forward " in more for more in found.more
    )
    assert "gradients" not in found.message
    assert "no_sync" not in " ".join([found.fix, *found.fix_more])
