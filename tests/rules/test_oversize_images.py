import pytest
from rules.made_up import made_up_facts, waiting
from rules.test_page_faults import GLIBC, MAPPED, SLOW, decoding

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules.input.oversize_images import _change, _check

LARGE = {"decoded_pixels": 1_800_000.0, "output_pixels": 64.0 * 64.0}


def test_pictures_decoded_far_larger_than_used_are_a_finding():
    finding = _check(waiting(60.0, sample={"decode": (17.2, 0.0, 0.0)}, maker=LARGE))

    assert (finding.rule_id, finding.severity) == ("oversize_images", Severity.HIGH)
    assert finding.cost_s == pytest.approx(60e-3 * 17.5 / 20 * (1 - 4096 / 1.8e6))
    assert "439 times as many pixels" in finding.message


def test_resizing_is_part_of_its_cost():
    with_resize = _check(
        waiting(maker=LARGE, operations={"augment/torchvision.transforms.v2.Resize": 1.2})
    )

    assert with_resize.cost_s - _check(waiting(maker=LARGE)).cost_s == pytest.approx(
        60e-3 * 1.2 / 4.8, rel=0.01
    )


def test_small_images_are_spared_the_page_faults_of_large_ones():
    facts = decoding(waiting(traffic=MAPPED, maker=LARGE, **SLOW, **GLIBC))

    left = 4096 / 1.8e6
    assert _change(facts).stages["dataset"].cpu == pytest.approx(1 - (1 - left) * (6.3 - 0.3) / 20)
    assert _change(facts).stages["decode"].cpu == pytest.approx(left)
    assert _change(waiting(maker=LARGE)).stages["dataset"].cpu == 1


def test_it_is_only_information_where_decoding_costs_little():
    cheap = {"decode": (0.1, 0.0, 0.0), "read": (0.0, 0.0, 0.0), "dataset": (12.0, 0.0, 0.0)}

    assert _check(waiting(sample=cheap, maker=LARGE)).severity is Severity.INFO


@pytest.mark.parametrize(
    "maker", [{"decoded_pixels": 4 * 50_176}, {"decoded_pixels": None}, {"output_pixels": 0}]
)
def test_it_is_silent_up_to_four_times_the_pixels_and_where_they_are_unknown(maker):
    assert _check(waiting(maker=maker)) is None


def test_a_healthy_training_decodes_what_it_uses():
    assert _check(made_up_facts()) is None
