"""What recorded steps say of those that were only counted."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from feedline.analysis.measure.counted_steps import Counted, Estimate, RestSamples
from feedline.analysis.measure.noise import unseen

US = 1_000


def estimate(counted_us: int) -> Estimate:
    """Four steps of 1,500 us, of which recording takes 990 us around the calls that it records."""
    counted = Counted(
        start=np.array([0]),
        end=np.array([100 * counted_us * US]),
        steps=np.array([100]),
        taken={},
        cost_ns=990.0 * US,
    )
    wall = np.full(4, 1500.0 * US)
    return Estimate(
        counted,
        alike=np.ones(4, bool),
        alone=np.zeros(4, bool),
        cost_ns=990.0 * US,
        lies={"other": 1.0},
        wall=wall,
        window=np.arange(4),
        longer=True,
    )


@pytest.mark.parametrize(("counted_us", "share"), [(900, 0.0), (2000, 0.5)])
def test_what_is_in_no_stage_is_what_the_stages_lack(counted_us, share):
    """Batches that the loop makes take 1,000 us of each step: more than recording leaves of it."""
    steps, of_input = estimate(counted_us), np.full(4, 1000.0 * US)
    stages = {"input": of_input, "other": 1500.0 * US - of_input}

    means = steps.means(stages)

    assert steps.unattributed_share(stages) == pytest.approx(share)
    assert means.get("unattributed", 0.0) == pytest.approx(share * counted_us * US)
    assert sum(means.values()) == pytest.approx(counted_us * US)
    assert replace(steps, longer=False).unattributed_share(stages) == 0.0


def waiting(share: float, odd_steps: int = 4) -> dict[str, np.ndarray]:
    """Stages of steps that wait for that part of the time."""
    wall = np.full(odd_steps, 1500.0 * US)
    return {
        "wait": share * wall,
        "forward": 0.4 * (1 - share) * wall,
        "other": 0.6 * (1 - share) * wall,
    }


def seen(share: float, samples: int, of_model: float = 0.4) -> RestSamples:
    """Samples: of the input, and of the rest those in the model."""
    return RestSamples(samples, round(share * samples), round((1 - share) * of_model * samples))


def test_samples_that_show_clearly_more_input_tell_its_share():
    """Recording took it from the wait: the others keep their proportions, and the sum stays."""
    stages = waiting(0.6)
    steps = replace(estimate(1500), cost_ns=0.0, longer=False).corrected(stages, seen(0.85, 400))

    means, drawn = steps.means(stages), steps.drawn(stages)

    assert means["wait"] == pytest.approx(0.85 * 1500 * US)
    assert means["forward"] / means["other"] == pytest.approx(2 / 3)
    assert sum(means.values()) == pytest.approx(1500 * US)
    low, high = np.quantile(drawn["wait"], (0.025, 0.975))
    assert low < 0.85 < high and 0.05 < high - low < 0.09, "400 samples: 0.85 +- 0.035"


@pytest.mark.parametrize(
    ("share", "samples"), [(0.64, 10_000), (0.85, 4), (0.3, 10_000)], ids=["little", "few", "less"]
)
def test_samples_that_do_not_show_clearly_more_input_change_nothing(share, samples):
    stages, steps = waiting(0.6), replace(estimate(1500), cost_ns=0.0, longer=False)

    assert steps.corrected(stages, seen(share, samples)) == steps


def test_without_a_wait_or_beside_it_there_is_nothing_to_correct():
    steps = replace(estimate(1500), cost_ns=0.0, longer=False)
    alone, whole = {"forward": np.full(4, 1500.0 * US)}, {"wait": np.full(4, 1500.0 * US)}

    assert steps.corrected(alone, seen(0.5, 400)) == steps
    assert steps.corrected(whole, seen(0.5, 400)) == steps


@pytest.mark.parametrize(("input_share", "seen_input"), [(0.6, 0.6), (0.0, 0.0), (0.6, 0.85)])
def test_samples_that_show_clearly_more_of_the_model_take_it_from_outside(input_share, seen_input):
    """Work of the hooks around a model's calls lies in no stage: 60 % of the rest, of which samples
    see 10 %."""
    stages = waiting(input_share)
    seen_model = seen(seen_input, 4000, of_model=0.9)
    steps = replace(estimate(1500), cost_ns=0.0, longer=False).corrected(stages, seen_model)

    means, drawn = steps.means(stages), steps.drawn(stages)

    rest = (1 - seen_input) * 1500 * US
    assert means["wait"] == pytest.approx(seen_input * 1500 * US)
    assert means["other"] == pytest.approx(0.1 * rest)
    assert means["forward"] == pytest.approx(0.9 * rest)
    low, high = np.quantile(drawn["other"], (0.025, 0.975))
    assert low < 0.1 * (1 - seen_input) < high < 2 * low


def test_what_samples_cannot_tell_from_the_loops_own_lines_keeps_its_proportion_to_the_model():
    """A copy is in no function of torch's that tells it."""
    wall = np.full(4, 1500.0 * US)
    stages = {"forward": 0.4 * wall, "copy": 0.1 * wall, "other": 0.5 * wall}
    steps = replace(estimate(1500), cost_ns=0.0, longer=False)

    means = steps.corrected(stages, seen(0.0, 4000, of_model=0.6)).means(stages)

    assert means["forward"] == pytest.approx(0.6 * 1500 * US)
    assert means["copy"] / means["forward"] == pytest.approx(1 / 4)
    assert means["other"] == pytest.approx(0.25 * 1500 * US)


@pytest.mark.parametrize(
    ("of_model", "samples"),
    [(0.44, 10_000), (0.5, 100), (0.2, 10_000)],
    ids=["little", "few", "less"],
)
def test_samples_that_do_not_show_clearly_more_of_the_model_change_nothing(of_model, samples):
    stages, steps = waiting(0.0), replace(estimate(1500), cost_ns=0.0, longer=False)

    assert steps.corrected(stages, seen(0.0, samples, of_model)) == steps


def test_something_always_remains_outside():
    stages = waiting(0.0)
    steps = replace(estimate(1500), cost_ns=0.0, longer=False)

    means = steps.corrected(stages, seen(0.0, 1000, of_model=0.999)).means(stages)

    assert means["other"] == pytest.approx(0.05 * 0.6 * 1500 * US)


def test_a_loss_that_is_a_module_keeps_its_proportion_to_the_model():
    wall = np.full(4, 1500.0 * US)
    stages = {
        "forward": 0.2 * wall,
        "loss": 0.3 * wall,
        "backward": 0.2 * wall,
        "other": 0.3 * wall,
    }
    steps = replace(estimate(1500), cost_ns=0.0, longer=False)

    means = steps.corrected(stages, seen(0.0, 4000, of_model=0.9)).means(stages)

    assert means["other"] == pytest.approx(0.1 * 1500 * US)
    assert means["loss"] / means["forward"] == pytest.approx(1.5)


def test_what_may_be_input_is_without_what_recording_added_between_spans():
    """Recording takes 990 us of each recorded step, none of the counted ones."""
    stages = {name: np.full(4, us * US) for name, us in (("forward", 300.0), ("other", 1200.0))}
    rank = SimpleNamespace(
        estimate=replace(estimate(510), longer=False),
        first=0,
        stages=stages,
        steps=SimpleNamespace(
            wall=np.full(4, 1500 * US),
            unclaimed=np.full(4, 1260 * US),  # 60 us of the forward too
            resident=np.ones(4, bool),
        ),
    )

    found = unseen(rank)

    assert found.share == pytest.approx(1260 / 1500 - (1200 / 1500 - 210 / 510))
    assert found.share == pytest.approx(found.high)
