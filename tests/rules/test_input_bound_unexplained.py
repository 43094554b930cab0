from rules.made_up import made_up_facts, waiting

from feedline.analysis.rules.input_bound_unexplained import check


def test_it_names_the_stage_that_takes_most_of_a_sample():
    finding = check(waiting(60.0))

    assert "waits for its input 37.7 % of the time, and no rule explains why" in finding.says
    assert "making batches (60.0 ms per step), and the largest part of a sample is decode (41.7 %)" in finding.says


def test_it_names_a_slow_sampler():
    assert "the largest part is the sampler (30.0 ms per step)" in check(made_up_facts(stages={"sampler": 30.0})).says


def test_it_names_starts_of_epochs_that_no_setting_spares():
    facts = made_up_facts(stages={"epoch_start": 30.0}, epochs=10, settings={"persistent_workers": True})

    assert "the start of later epochs" in check(facts).says
