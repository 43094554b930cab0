import pytest
from rules.made_up import made_up_facts, waiting, without_workers

from feedline.analysis.finding import Severity
from feedline.analysis.rules.input.decode_bound import IMAGES, OTHERS, change, check


def test_decode_that_takes_most_of_the_cpu_is_a_finding():
    finding = check(waiting(60.0, sample={"decode": (8.4, 0.0, 0.0)}))

    assert (finding.rule_id, finding.severity) == ("decode_bound", Severity.HIGH)
    assert finding.cost_s == pytest.approx(60e-3 * 8.4 / 11.2)
    assert "75.0 % of the CPU time per sample (8.40 ms)" in finding.message


def test_decoders_of_images_are_named_only_where_pixels_were_decoded():
    decoding = {"decode": (8.4, 0.0, 0.0)}
    images, audio = waiting(60.0, sample=decoding), waiting(60.0, sample=decoding, maker={"decoded_pixels": 0.0})

    assert (check(images).fix, check(audio).fix) == (IMAGES, OTHERS)
    assert "whatif" in change(images).message
    assert "whatif" not in change(audio).message  # it measures decoders of images


def test_it_is_silent_just_below_half_of_the_cpu():
    assert check(waiting(sample={"decode": (2.7, 0.0, 0.0)})) is None


def test_it_is_silent_where_samples_are_mostly_blocked_elsewhere():
    assert check(waiting(sample={"decode": (4.0, 0.0, 0.0), "read": (0.3, 0.0, 12.0)})) is None


def test_without_workers_it_costs_its_own_time_in_the_step():
    finding = check(without_workers(sample={"decode": (8.4, 0.0, 0.0)}))

    assert finding.cost_s == pytest.approx(32 * 8.4e-3)


def test_where_the_cpus_are_full_it_costs_its_share_of_cpu_time():
    queueing = {"decode": (8.4, 0.0, 0.0), "dataset": (0.5, 5.6, 0.0)}  # three quarters of the CPU time, half of the wall time

    assert check(waiting(60.0, sample=queueing)).cost_s == pytest.approx((60e-3 + 0.4e-3) * 8.4 / 11.2)  # 0.4 ms of transport, too


def test_wall_time_serves_where_cpu_time_was_not_measured():
    facts = waiting(sample={"decode": (8.4, 0.0, 0.0)})
    unmeasured = {name: cost.__class__(cost.wall_s, None, None, None, None, None) for name, cost in facts.workers.per_sample.items()}

    assert check(waiting(maker={"per_sample": unmeasured})).evidence[0].value == pytest.approx(0.75)


def test_a_healthy_training_is_not_decode_bound():
    assert check(made_up_facts()) is None
