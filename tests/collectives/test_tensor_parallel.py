"""Tensor parallelism all-reduces activations in backward: they are not gradients of parameters."""

from collectives.launching import launch, say_what_went_wrong
from text.breath import advised

from feedline.analysis.explain import diagnose
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.store.trainings import open_run


def test_activations_reduced_in_backward_are_not_told_to_be_sent_less_often(
    tmp_path, monkeypatch, warm_python
):
    monkeypatch.setattr(diagnose, "MAX_FINDINGS", 10)  # on a busy machine, others may cost more
    say_what_went_wrong(launch(tmp_path, "tensor_parallel.py", 2, warm=warm_python))

    report = recorded_report(open_run(tmp_path / "run"))

    assert ("all_reduce", "backward") in [(one.name, one.phase) for one in report.comm.exposed["0"]]
    (found,) = [one for one in report.findings if one.rule_id == "exposed_communication"]
    told = f"{found.message} {advised(found)} {found.how_to_check} {found.action}"
    assert not [
        word
        for word in ("gradient", "no_sync", "hook", "bucket_cap_mb", "accumulat")
        if word in told
    ]
