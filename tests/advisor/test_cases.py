"""The eight planted cases: what kind of loss it is, what the batch is worth, and what is advised
first.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from advisor.made_up import curve, loss, run, with_curve, with_norms

from feedline.analysis.convergence.advice import _WRITTEN, is_written
from feedline.analysis.convergence.advisor import advise
from feedline.analysis.convergence.loss_kinds import _find_spike
from feedline.convergence.fixes import FIXES

SMALL = run("small", batch=32, train=0.10, held=0.30, ranks=1, norms=False)


def large(**changed):
    return run("large", **{"batch": 256, "train": 0.10, "held": 0.30, "seed": 1, **changed})


def kinds(found, name="large"):
    return [verdict.kind for verdict in found.verdicts if verdict.run == name]


def fixes(found):
    return [advice.fix.partition("=")[0] for advice in found.advice]


def test_a_training_loss_that_stays_behind_is_a_deficit_and_the_rate_comes_first():
    found = advise([SMALL, large(train=0.9, held=1.0)])

    assert kinds(found) == ["deficit"]
    assert fixes(found)[:2] == ["lr_rule", "longer"]
    assert not {"ghost_bn", "gradient_noise"} & set(fixes(found))


@pytest.mark.parametrize("times", [1, 8])
def test_a_training_loss_that_is_a_sum_is_not_compared_between_batches(times):
    """A sum over samples, or over micro-batches that the program does not divide by."""
    behind = large(train=0.9, held=1.0)
    summed = with_curve(behind, "train loss", times * behind.curves["train loss"].values)

    found = advise([SMALL, summed])

    assert kinds(found) == (["deficit"] if times == 1 else ["unknown"])
    assert ("lr_rule" in fixes(found)) == (times == 1)
    assert any("grows with the batch" in need for need in found.needs) == (times > 1)


def test_an_accuracy_is_compared_where_the_training_loss_is_a_sum():
    worse = with_curve(large(), "val acc", [0.6])
    summed = with_curve(worse, "train loss", 8 * worse.curves["train loss"].values)

    found = advise([with_curve(SMALL, "val acc", [0.9]), summed])

    assert [(one.kind, one.suspected) for one in found.verdicts] == [("generalisation_gap", True)]


def test_an_evaluation_that_recalibration_mends_is_a_statistics_lag():
    behind = with_curve(large(held=0.8), "eval loss recalibrated", [0.33])

    found = advise([SMALL, behind])

    assert kinds(found) == ["statistics_lag"]
    assert fixes(found)[0] == "recalibrate_bn"


def test_a_gap_on_held_out_data_alone_is_a_generalisation_gap_and_only_there_noise_is_advised():
    found = advise([SMALL, large(held=0.6)])

    assert kinds(found) == ["generalisation_gap"]
    assert fixes(found)[:2] == ["ghost_bn", "gradient_noise"]


def test_a_loss_that_breaks_out_is_an_instability():
    values = large().curves["train loss"].values.copy()
    values[60:100] += np.linspace(0, 6, 40)

    found = advise([SMALL, with_curve(large(), "train loss", values)])

    assert kinds(found) == ["instability"]
    assert fixes(found)[0] == "warmup"


def test_an_early_bump_that_was_made_good_is_no_instability():
    values = np.concatenate(
        [np.linspace(2.3, 1.6, 60), np.linspace(1.6, 2.0, 20), np.linspace(2.0, 0.2, 400)]
    )
    late = np.concatenate(
        [np.linspace(2.3, 1.6, 60), np.linspace(1.6, 2.0, 20), np.linspace(2.0, 1.5, 400)]
    )

    assert _find_spike(curve(values, 32)) is None
    assert _find_spike(curve(late, 32)) is not None  # half of what it came down in all


def test_a_loss_that_is_lost_is_an_instability_too():
    values = large().curves["train loss"].values.copy()
    values[60:] = np.inf

    found = advise([SMALL, with_curve(large(), "train loss", values)])

    assert kinds(found) == ["instability"]
    assert not found.stopped


def test_a_batch_far_above_the_critical_one_is_advised_to_shrink_or_grow_late():
    found = advise([run("large", batch=2048, scale=100.0, epochs=96)])

    assert found.price.where == "far above"
    assert found.advice[0].id == "smaller_batch"
    assert fixes(found) == ["", "batch_growth"]


def test_a_batch_far_below_the_critical_one_is_advised_to_grow():
    found = advise([run("large", batch=64, scale=2000.0, epochs=40)])

    assert found.price.where == "far below"
    assert [(advice.id, advice.fix, advice.verify) for advice in found.advice] == [
        ("larger_batch", "", "")
    ]
    assert "for twice the batch, multiply the learning rate by 2" in found.advice[0].what


def test_the_wrong_sampler_stops_every_other_advice():
    wrong = with_norms(large(train=0.9), small_sq=large().norms.big_sq)

    found = advise([SMALL, wrong])

    assert [(name, finding.rule_id) for name, finding in found.findings] == [("large", "same_data")]
    assert found.stopped and not found.advice


def test_a_healthy_pair_is_told_so_and_nothing_is_advised():
    found = advise([SMALL, large(scale=256.0)])

    assert kinds(found) == ["healthy"]
    assert (found.findings, found.advice) == ([], [])


@pytest.mark.parametrize("seed", range(20))
def test_another_seed_is_no_other_kind(seed):
    twin = run(
        "large",
        train=0.1 + 0.004 * (-1) ** seed,
        held=0.30 + 0.01 * (-1) ** seed,
        seed=100 + seed,
        scale=256.0,
    )

    assert kinds(advise([SMALL, twin])) == ["healthy"]


def test_one_run_alone_says_what_it_needs():
    found = advise([large()])

    assert kinds(found) == ["unknown"]
    assert any("smaller batch" in need for need in found.needs)


def test_few_updates_with_batch_norm_are_only_suspected_of_a_lag():
    brief = run("large", batch=2048, train=0.1, held=0.6, epochs=12, scale=3000.0)

    lag, gap = advise([SMALL, brief]).verdicts

    assert (lag.kind, lag.suspected, gap.kind, gap.suspected) == (
        "statistics_lag",
        True,
        "generalisation_gap",
        True,
    )


def test_an_accuracy_counts_before_a_loss_that_overfitting_raises():
    sure = with_curve(
        with_curve(large(held=0.6), "val accuracy", [0.5, 0.925]), "eval loss", [2.3, 0.6]
    )
    reference = with_curve(SMALL, "val accuracy", [0.6, 0.927])

    assert kinds(advise([reference, sure])) == ["healthy"]


def test_runs_are_compared_where_both_had_as_many_samples():
    long = run("large", batch=256, train=0.10, held=0.3, epochs=24, seed=3)

    (verdict,) = advise([SMALL, long]).verdicts

    assert verdict.samples == SMALL.samples
    assert any("the same number of samples" in need for need in verdict.needs)


def test_seeds_of_one_training_widen_the_margin():
    spread = [
        run(f"small{seed}", batch=32, train=train, held=0.3, ranks=1, norms=False, seed=seed)
        for seed, train in enumerate((0.0, 0.2, 0.4))
    ]

    assert kinds(advise([*spread, large(train=0.5)])) == ["unknown"]
    assert kinds(advise([*spread, large(train=1.5)])) == ["deficit"]


def test_seeds_of_the_larger_batch_get_the_advice_that_one_of_them_gets():
    seeds = [run(f"large{seed}", batch=256, train=0.9, held=1.0, seed=seed) for seed in (1, 2, 3)]

    assert fixes(advise([SMALL, *seeds])) == fixes(advise([SMALL, seeds[0]]))
    assert fixes(advise([SMALL, *seeds]))[:2] == ["lr_rule", "longer"]


def test_the_same_in_any_order():
    cases = [large(train=0.9), SMALL]

    assert advise(cases) == advise(cases[::-1])


def test_every_advice_has_a_control_and_every_fix_a_line_that_verifies_it():
    for found in (
        advise([SMALL, large(train=0.9)]),
        advise([SMALL, large(held=0.6)]),
        advise([run(batch=2048)]),
    ):
        assert found.advice
        for advice in found.advice:
            assert advice.control and advice.why
            assert bool(advice.verify) == bool(advice.fix and not is_written(advice.fix))
            assert not advice.verify or (
                advice.fix in advice.verify
                and "{seed}" in advice.verify
                and "{arm}" in advice.verify
            )


def test_fixes_without_a_command_are_those_that_cannot_be_applied_from_outside():
    assert sorted(_WRITTEN) == sorted(fix.name for fix in FIXES if fix.attach is None)


@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        *((kind, []) for kind in ("AdamW", "Adamax", "FusedAdam", "Adafactor", "PagedAdamW8bit")),
        ("Sophia", [{"lr": 0.1, "betas": [0.9, 0.99]}]),
    ],
)
def test_adam_and_its_kin_are_given_the_square_root(kind, groups):
    adam = {"optimizers": [{"kind": kind, "module": "optimizers", "groups": groups}]}

    assert (
        advise([SMALL, large(train=0.9, setup=adam)]).advice[0].fix == "lr_rule=sqrt:8,warmup=2.4ep"
    )


def test_sgd_is_given_the_noise_scale_rule_where_the_noise_is_known_and_the_linear_one_where_it_is_not():
    known, unknown = (
        advise([SMALL, large(train=0.9, norms=norms)]).advice[0].fix for norms in (True, False)
    )

    assert (
        known.startswith("lr_rule=noise:batch_factor=8:critical_batch=")
        and ":base_batch=32" in known
    )
    assert unknown == "lr_rule=linear:8,warmup=2.4ep"


def test_a_model_without_normalisation_is_advised_to_get_some_and_no_ghost():
    bare = {"norms": {}}

    deficit, gap = (
        advise([SMALL, large(train=0.9, setup=bare)]),
        advise([SMALL, large(held=0.6, setup=bare)]),
    )

    assert "normalisation" in [advice.id for advice in deficit.advice]
    assert "ghost_bn" not in fixes(gap)


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script:DeprecationWarning"
)  # torch.distributed.optim itself, which local SGD is from
def test_every_fix_that_is_advised_can_be_asked_for():
    from feedline.convergence.fixes import FIXES

    known = {fix.name: fix for fix in FIXES}
    cases = (
        [SMALL, large(train=0.9)],
        [SMALL, large(held=0.6)],
        [SMALL, with_curve(large(), "train loss", [np.nan] * 192)],
    )
    advised = [advice.fix for case in cases for advice in advise(list(case)).advice if advice.fix]

    assert len(advised) > 8
    for name, _, value in (
        part.partition("=") for fix in advised for part in re.split(r",(?=[a-z])", fix)
    ):
        known[name].parse(value)


def test_runs_without_sizes_curves_or_norms_are_answered():
    empty = replace(
        run(norms=False), curves={}, batch=None, setup={}, samples_per_epoch=None, step_s=None
    )

    for case in ([empty], [SMALL, empty], [empty, empty]):
        found = advise(case)
        assert not found.advice and found.needs


def test_a_run_shorter_than_one_window_is_answered():
    short = replace(
        large(),
        curves={"train loss": with_curve(large(), "x", loss(0.1, 3)).curves["x"]},
        updates=3,
    )

    assert advise([SMALL, short]).verdicts


def test_a_loss_of_twelve_points_in_a_noisy_accuracy_is_not_called_healthy():
    reference = with_curve(
        SMALL, "test accuracy", [0.761, 0.841, 0.843, 0.856, 0.902, 0.907, 0.919, 0.925, 0.923]
    )  # of mnist1d, as recorded
    behind = with_curve(
        large(), "test accuracy", [0.372, 0.293, 0.332, 0.461, 0.646, 0.606, 0.739, 0.743, 0.806]
    )

    assert kinds(advise([reference, behind])) == ["unknown"]


def lengths(found):
    """Epochs of every warm-up that is advised."""
    return [
        float(length)
        for advice in found.advice
        for length in re.findall(r"warmup=([\d.]+)ep", f"{advice.fix} {advice.control_fix}")
    ]


@pytest.mark.parametrize("epochs", [1, 2, 5, 12, 25, 90])
def test_no_warm_up_takes_more_than_a_fifth_of_the_training(epochs):
    small = run("small", batch=32, train=0.10, held=0.30, ranks=1, norms=False, epochs=epochs)
    behind = large(train=0.9, epochs=epochs)
    adrift = with_curve(large(epochs=epochs), "train loss", [np.nan] * behind.updates)

    found = [*lengths(advise([small, behind])), *lengths(advise([small, adrift]))]

    assert len(found) >= 2 and max(found) <= min(5, epochs / 5 * 1.001)


def test_a_warm_up_of_unknown_epochs_is_given_in_samples_and_one_of_unknown_length_not_at_all():
    behind = large(train=0.9)

    in_samples = advise([SMALL, replace(behind, samples_per_epoch=None)]).advice[0]
    unknown = advise([SMALL, replace(behind, samples_per_epoch=None, samples_known=False)]).advice[
        0
    ]

    assert (
        in_samples.fix.endswith(",warmup=9800")
        and "a warm-up over 9,800 samples" in in_samples.what
    )
    assert "warmup" not in unknown.fix


def test_a_training_that_warms_up_already_is_not_told_to():
    rates = np.concatenate([np.linspace(0.001, 0.08, 20), np.linspace(0.08, 0.0, 172)])

    found = advise([SMALL, with_curve(large(train=0.9), "lr", rates)])

    assert fixes(found)[0] == "lr_rule" and not lengths(found)
    assert not lengths(advise([SMALL, replace(large(train=0.9), fixes="warmup=1ep")]))


@pytest.mark.parametrize(
    ("rate", "rest"),
    [(0.08, "lr_rule=linear:8,warmup=2.4ep"), (0.16, "lr_rule=linear:4,warmup=2.4ep")],
)
def test_the_rule_gives_what_the_learning_rate_lacks(rate, rest):
    behind = with_curve(large(train=0.9, norms=False), "lr", np.linspace(rate, 0, 192))

    assert advise([SMALL, behind]).advice[0].fix == rest


def test_a_learning_rate_that_is_scaled_already_is_not_scaled_again():
    behind = with_curve(large(train=0.9, norms=False), "lr", np.linspace(0.64, 0, 192))

    assert not [
        advice
        for advice in advise([SMALL, behind]).advice
        if "lr_rule" in advice.fix or "lr_rule" in advice.control_fix
    ]


@pytest.mark.parametrize(("rate", "times"), [(0.08, None), (0.64, "0.354")])
def test_an_unstable_training_is_only_told_to_lower_its_learning_rate(rate, times):
    unstable = with_curve(
        with_curve(large(), "train loss", [np.nan] * 192), "lr", np.linspace(rate, 0, 192)
    )

    rules = [advice.fix for advice in advise([SMALL, unstable]).advice if advice.id == "sqrt_rule"]

    assert rules == ([] if times is None else [f"lr_rule=linear:{times},warmup=2.4ep"])


def test_a_control_that_is_not_advised_is_not_tried_either():
    """LARC's own would warm up for five epochs."""
    (larc,) = [
        advice
        for advice in advise([with_curve(run(epochs=2), "train loss", [np.nan] * 32)]).advice
        if advice.id == "larc"
    ]
    (warm,) = [
        advice
        for advice in advise([SMALL, with_curve(large(), "train loss", [np.nan] * 192)]).advice
        if advice.id == "larc"
    ]

    assert larc.control_fix == "warmup=0.4ep" and "--control warmup=0.4ep" in larc.verify
    assert "warmup=2.4ep" in warm.control_fix
    already = replace(run(), fixes="warmup=1ep")
    (bare,) = [
        advice
        for advice in advise([with_curve(already, "train loss", [np.nan] * 192)]).advice
        if advice.id == "larc"
    ]
    assert "--control none" in bare.verify


def test_what_another_benchmark_gained_is_not_promised():
    cases = (
        [SMALL, large(train=0.9, setup={"norms": {}})],
        [SMALL, large(held=0.6)],
        [run("large", batch=2048, epochs=96)],
    )

    for case in cases:
        assert not [
            advice.gain
            for advice in advise(list(case)).advice
            if re.search("benchmark|MNIST|accuracy", advice.gain)
        ]


def test_no_batch_is_advised_that_leaves_a_handful_of_updates():
    brief = run("brief", batch=64, scale=20_000.0, epochs=5)
    long = run("long", batch=64, scale=20_000.0, epochs=40)

    (larger,) = [advice for advice in advise([brief]).advice if advice.id == "larger_batch"]
    assert "up to 205:" in larger.what  # a hundredth of 20,480 samples
    assert "up to 1,638:" in advise([long]).advice[0].what
    assert "larger_batch" not in [
        advice.id for advice in advise([run("few", batch=256, scale=20_000.0, epochs=5)]).advice
    ]


def test_no_batch_grows_in_a_training_that_is_too_short_for_it_or_has_none_to_divide():
    assert "batch_growth" not in fixes(advise([run("large", batch=2048, epochs=2)]))
    assert "batch_growth" not in [
        advice.id for advice in advise([run("tiny", batch=4, scale=0.5, ranks=2)]).advice
    ]


def test_ghosts_are_not_advised_where_batch_norm_sees_no_more():
    seen = {"batch_norms": [{"layers": 3, "synced": 0, "samples": 32, "gpu": False}]}

    assert "ghost_bn" not in fixes(advise([SMALL, large(held=0.6, setup=seen)]))
    assert "ghost_bn" in fixes(
        advise(
            [
                SMALL,
                large(
                    held=0.6, setup={"batch_norms": [{**seen["batch_norms"][0], "samples": 128}]}
                ),
            ]
        )
    )


def test_a_training_that_diverged_is_told_nothing_of_its_batch_size():
    values = large().curves["train loss"].values.copy()
    values[60:] = np.geomspace(1, 1e33, 132)

    found = advise([with_curve(large(), "train loss", values)])

    assert kinds(found) == ["instability"]
    assert found.price.where == "unknown" and "diverged" in found.noise.why
    assert not {"smaller_batch", "larger_batch", "batch_growth"} & {
        advice.id for advice in found.advice
    }


def test_nothing_is_compared_with_a_reference_that_diverged():
    values = SMALL.curves["train loss"].values.copy()
    values[500:] = np.geomspace(1, 1e33, len(values) - 500)

    found = advise([with_curve(SMALL, "train loss", values), large()])

    assert kinds(found, "small") == ["instability"] and kinds(found) == ["unknown"]
