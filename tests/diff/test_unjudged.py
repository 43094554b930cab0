"""``feedline check`` does not pass a limit that it cannot judge, and ``feedline diff`` says what it
cannot compare.
"""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from diff.made_up import beside, changed, quiet, stored
from golden.record import RUNS
from traces.kineto_made import kineto

from feedline.__main__ import main
from feedline.analysis.diff import budget, context
from feedline.analysis.diff.budget import Budget, check_budget
from feedline.analysis.diff.diff_runs import diff
from feedline.analysis.diff.measures import compared_run
from feedline.analysis.diff.run_diff import Quantity, RunDiff
from feedline.analysis.diff.side import Influence
from feedline.analysis.explain.model import RankGpu, Traces
from feedline.analysis.ledger.finding import Finding, Severity
from feedline.analysis.traces.trace_budget import _NO_COMMUNICATION, FIGURES

OVER, NOT_JUDGED = 77, 75


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with stored runs in it."""
    for name in ("loader", "without-loader", "killed", "ranks"):
        shutil.copytree(RUNS / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return tmp_path


def checked(budget: str, run: str = "loader", *words: str) -> int:
    Path("budget.toml").write_text(budget)
    return main(["check", run, "--budget", "budget.toml", *words])


@pytest.fixture(scope="module")
def loader():
    return quiet(stored("loader"))


def of_run(run, **changes):
    """The same run with other facts about it."""
    return replace(run, report=replace(run.report, run=replace(run.report.run, **changes)))


def against(base, run, **limits: float):
    """Outcome and message of each limit against a base."""
    diffs = {name: diff([base], [run], limit) for name, limit in limits.items()}
    found = check_budget(Budget(than_base=limits, base=("base",)), run, [base], diffs)
    return {one.id.removeprefix("than_base."): (one.outcome, one.message) for one in found}


def finding(run, rule_id: str):
    """Outcome and message of a limit on a finding."""
    (found,) = check_budget(Budget(rules=(rule_id,)), run, [], {})
    return found.outcome, found.message


@pytest.mark.parametrize(
    ("base", "said"),
    [("without-loader", "not measured in the run or in its base"), ("killed", "was killed")],
)
def test_a_base_without_what_is_compared_does_not_let_the_run_pass(folder, capsys, base, said):
    assert checked(f'base = "{base}"\n[than_base]\nsample_cpu = 0.05\n') == NOT_JUDGED
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"model": "Net"}, "model"),
        ({"ranks": 4}, "ranks 1 -> 4"),
        ({"machine": {"cpus": 64}}, "cpus 2 -> 64"),
    ],
)
def test_a_base_of_another_program_or_machine_judges_no_step(loader, facts, said):
    found = against(loader, of_run(loader, **facts), step=0.05, stage=0.05, sample_cpu=0.05)

    assert {name: outcome for name, (outcome, _) in found.items()} == {
        "step": "unknown",
        "stage": "unknown",
        "sample_cpu": "passed",
    }
    assert said in found["step"][1] and "not comparable with its base" in found["stage"][1]


def test_a_model_that_is_only_wrapped_is_the_same_model(loader):
    found = diff([loader], [of_run(loader, model="OptimizedModule")])

    assert "different" not in found.conclusion + " ".join(found.notes)


def test_a_part_that_was_not_tested_may_have_grown_by_all_that_it_takes(loader):
    run = replace(
        loader,
        measures=loader.measures
        | {"sample/decode": replace(loader.measures["sample/decode"], error=math.nan)},
    )

    outcome, said = against(loader, run, sample_cpu=0.05)["sample_cpu"]

    assert outcome == "unknown" and "would not have been seen" in said


def test_a_finding_that_three_others_may_hide_is_not_ruled_out(loader):
    asking = [one.rule_id for one in loader.report.findings if one.severity is not Severity.INFO]
    assert len(asking) == 3

    assert finding(loader, "small_files") == (
        "unknown",
        f"it may be left out: a report has at most 3 findings that ask for a change "
        f"({', '.join(asking)})",
    )
    fewer = replace(loader, report=replace(loader.report, findings=loader.report.findings[:2]))
    assert finding(fewer, "small_files") == ("passed", "no such finding")


def test_a_finding_of_traces_is_not_ruled_out_by_a_recorded_run_and_that_of_ranks_not_by_one_of_them(
    loader,
):
    assert finding(loader, "input_stall") == (
        "unknown",
        "only traces of other tools are checked for it",
    )
    assert finding(loader, "late_rank")[0] == "passed"
    assert finding(replace(loader, world=2), "late_rank")[0] == "unknown"


@pytest.mark.parametrize(
    "cause", ["memory_growth", "workers_hold_cpus", "killed_worker", "same_samples", "own_code"]
)
def test_findings_about_the_loop_and_its_end_are_judged_beside_any_number_of_others(loader, cause):
    assert finding(loader, cause) == ("passed", "no such finding")


def test_without_a_loader_nothing_is_said_of_the_input(folder, capsys):
    assert checked('[findings]\nnone_of = ["decode_bound"]\n', "without-loader") == NOT_JUDGED
    assert "not looked for: get_batch" in capsys.readouterr().out


def test_what_is_wrong_with_the_set_up_counts_although_it_is_no_finding_of_the_report(loader):
    wrong = Finding("rate_at_top", Severity.LOW, "the learning rate was never lowered")
    made = replace(
        loader,
        report=replace(
            loader.report, convergence=replace(loader.report.convergence, checks=[wrong])
        ),
    )

    assert finding(made, "rate_at_top")[0] == "exceeded"
    assert finding(loader, "rate_at_top")[0] == "passed"
    assert (
        finding(replace(loader, report=replace(loader.report, convergence=None)), "rate_at_top")[0]
        == "unknown"
    )


@pytest.mark.parametrize(
    ("stage", "outcome"),
    [("backward", "unknown"), ("compile", "passed"), ("wait", "passed"), ("forwrd", "unknown")],
)
def test_only_a_stage_that_would_have_been_seen_takes_no_time(loader, stage, outcome):
    run = replace(
        loader, measures={id: one for id, one in loader.measures.items() if id != f"stage/{stage}"}
    )

    (found,) = check_budget(Budget(at_most={f"stage_s.{stage}": 1.0}), run, [], {})

    assert found.outcome == outcome


def test_a_stage_that_its_hook_could_not_see_is_unknown(loader):
    blind = replace(
        loader,
        report=replace(
            loader.report, hooks=[replace(hook, attached=False) for hook in loader.report.hooks]
        ),
    )

    (found,) = check_budget(Budget(at_most={"stage_s.compile": 1.0}), blind, [], {})

    assert found.outcome == "unknown"


def test_a_trace_has_stages_of_its_own(folder, capsys):
    kineto(folder / "trace.json", rank=0)
    assert main(["ingest", "-q", "-o", "traced", "trace.json"]) == 0

    assert checked("min_steps = 1\n[at_most.stage_s]\nforward = 1000\n", "traced") == NOT_JUDGED
    assert main(["diff", "loader", "traced", "--json", "diff.json"]) == 0
    told = json.loads(Path("diff.json").read_text())
    assert "recorded by feedline -> another tool" in told["conclusion"]
    assert "is gone" not in told["conclusion"] and "is new" not in told["conclusion"]


def test_what_a_trace_cannot_know_is_not_called_unset(folder, capsys):
    kineto(folder / "trace.json", rank=0)
    assert main(["ingest", "-q", "-o", "traced", "trace.json"]) == 0

    assert main(["diff", "loader", "traced", "--json", "diff.json"]) == 0

    said = capsys.readouterr().out
    settings = json.loads(Path("diff.json").read_text())["settings"]
    told = {f"{one['kind']} {one['name']}": (one["before"], one["after"]) for one in settings}
    assert "loader: DataLoader -> not seen" in said and "not set" not in said
    assert "more; --json FILE has all" not in said
    assert told["loader loader"] == ("DataLoader", "not seen")
    assert told["version version"] == told["environment environment"] == ("known", "unknown")
    assert not [one for one in told if one.startswith("machine") and one != "machine gpus"]


def test_a_run_that_ended_before_it_made_a_loader_tells_nothing_of_one(folder, loader):
    path = folder / "loader" / "rank0" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"loaders": []}))

    crashed = diff([loader], [compared_run(folder / "loader")])
    other = replace(loader.report.loaders[0], settings={"num_workers": 1})
    fewer = replace(loader, report=replace(loader.report, loaders=[other]))

    assert [(one.name, one.before, one.after) for one in crashed.settings] == [
        ("loader", "DataLoader", "not seen")
    ]
    assert ("batch_size", "not set") in [
        (one.name, one.after) for one in diff([loader], [fewer]).settings
    ]


def test_a_value_that_is_no_number_is_unknown(loader):
    run = changed(loader, lambda one: math.nan if one.id == "step/mean" else 1.0)

    (found,) = check_budget(Budget(at_most={"step_mean_s": 1000.0}), run, [], {})

    assert (found.outcome, found.message) == ("unknown", "not measured")


def test_a_run_with_a_rank_that_cannot_be_read_does_not_pass(folder, capsys):
    assert checked("[at_most]\nstep_mean_s = 1000\n", "ranks") == 0
    capsys.readouterr()
    (folder / "ranks" / "rank1" / "manifest.json").write_text("{")

    assert checked("[at_most]\nstep_mean_s = 1000\n", "ranks") == NOT_JUDGED
    assert "rank 1 cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize("base", ['"loader"', '["killed", "./killed"]'])
def test_a_run_is_not_its_own_base_and_a_base_counts_once(folder, capsys, base):
    assert checked(f"base = {base}\n") == 2
    assert "given twice" in capsys.readouterr().err


def test_two_results_do_not_go_into_one_file(folder, capsys):
    assert (
        checked("[at_most]\nstep_mean_s = 1000\n", "loader", "--json", "out", "--junit", "./out")
        == 2
    )
    assert not Path("out").exists()


def test_a_rank_of_each_run_is_compared_and_it_is_said(loader):
    found = diff([loader], [of_run(loader, ranks=4)])

    assert "samples/s per rank" in found.conclusion
    assert "Steps do different work: ranks 1 -> 4." in found.conclusion
    assert any("steps of one rank each are compared" in note for note in found.notes)


def test_a_batch_of_unknown_size_has_no_samples_per_second(loader):
    unknown = replace(
        loader,
        report=replace(
            loader.report, throughput=replace(loader.report.throughput, batch_size=None)
        ),
    )

    found = diff([loader], [unknown])

    assert " steps/s" in found.conclusion and "samples/s" not in found.conclusion
    assert "batch size known -> unknown" in found.conclusion


def test_fewer_steps_than_show_how_runs_drift_are_too_few(loader):
    few = {id: replace(one, drift=math.nan) for id, one in loader.measures.items()}
    short = replace(
        loader,
        measures=few,
        report=replace(loader.report, throughput=replace(loader.report.throughput, steps=12)),
    )

    found = diff(
        [short],
        [
            changed(
                short,
                lambda one: 1.5 if one.kind == Influence.THREAD or one.id == "step/mean" else 1.0,
            )
        ],
    )

    assert found.conclusion.startswith("Too few steps to compare: A has 12, B has 12; at least 16")
    assert not [one for one in found.changed if one.clock == "wall"]


def test_a_quantity_that_one_of_several_runs_lacks_is_not_one_sides(loader):
    without = replace(
        loader, measures={id: one for id, one in loader.measures.items() if id != "step/mean"}
    )

    found = diff([loader, without], [loader, loader])

    assert found.of("step/mean").outcome == "unknown"
    assert found.conclusion.startswith("Too few steps to compare")


def test_a_stage_that_one_of_several_runs_lacks_has_the_mean_that_its_ratio_is_of(loader):
    without = replace(
        loader, measures={id: one for id, one in loader.measures.items() if id != "stage/wait"}
    )

    wait = diff([loader, without], [loader, loader]).of("stage/wait")

    assert wait.after / wait.before == pytest.approx(2.0)


def test_a_change_that_is_too_small_to_count_would_not_have_been_seen(loader):
    assert (
        "a change of less than 30 % would not have been seen"
        in diff([loader], [loader], min_change=0.3).conclusion
    )


def test_the_state_of_a_gpus_link_is_no_other_machine(loader):
    def on(*gpus: dict[str, object]):
        return of_run(loader, machine={**loader.report.run.machine, "gpus": list(gpus)})

    idle, busy = {"name": "H100", "pcie_generation": 1}, {"name": "H100", "pcie_generation": 5}

    assert diff([on(idle)], [on(busy)]).settings == []
    (other,) = diff([on(idle)], [on(busy, busy)]).settings
    assert (other.name, other.before, other.after) == ("gpus", "1 x H100", "2 x H100")


def test_traces_of_other_gpus_are_of_other_machines(loader):
    first, last = (of_run(loader, machine={"gpus": name}) for name in ("A100", "H100"))

    assert "The machines differ: gpus A100 -> H100" in diff([first], [last]).notes


def test_what_only_one_side_knows_of_its_machine_does_not_make_them_differ(loader):
    machine = dict(loader.report.run.machine)
    older = of_run(
        loader, machine={name: value for name, value in machine.items() if name != "affinity_cpus"}
    )
    newer = of_run(loader, machine={**machine, "affinity_cpus": 2, "cpu_model": "AMD EPYC 7763"})

    assert against(older, newer, step=0.05)["step"][0] == "passed"
    assert diff([older], [newer]).settings == diff([newer], [older]).settings == []


def test_another_model_of_cpu_is_another_machine(loader):
    first, last = (
        of_run(loader, machine={**loader.report.run.machine, "cpu_model": f"AMD EPYC {number}"})
        for number in (7763, 9654)
    )

    told = "cpu_model AMD EPYC 7763 -> AMD EPYC 9654"
    assert f"The machines differ: {told}" in diff([first], [last]).notes
    outcome, said = against(first, last, step=0.05)["step"]
    assert outcome == "unknown" and told in said
    assert against(first, first, step=0.05)["step"][0] == "passed"


def test_a_rate_whose_noise_leaves_no_upper_end_is_not_below_its_limit(loader):
    noisy = quiet(stored("loader"), error=0.6)
    rate = noisy.report.throughput.of_all_ranks
    limits = Budget(at_least={"samples_per_s": 2 * rate, "steps_per_s": 1e-3})

    below, above = check_budget(limits, noisy, [], {})
    (well_known,) = check_budget(Budget(at_least={"samples_per_s": 2 * rate}), loader, [], {})

    assert (below.outcome, above.outcome, well_known.outcome) == ("unknown", "passed", "exceeded")
    assert "too noisy to judge" in below.message and " or more)" in below.message


def test_a_change_that_the_machine_explains_passes_and_is_told_as_that():
    step = Quantity(
        "step/mean",
        "step",
        "step",
        "s",
        "wall",
        1.0,
        1.4,
        ratio=1.0,
        low=0.99,
        high=1.01,
        p=0.5,
        outcome="machine",
    )
    told = RunDiff(**{**vars(diff([stored("loader")], [stored("loader")])), "quantities": [step]})

    (found,) = budget._against_base(
        Budget(than_base={"step": 0.05}), stored("loader"), [stored("loader")], {"step": told}
    )

    assert (found.outcome, found.message) == (
        "passed",
        "step 1.40x, which other programs or slower CPUs explain",
    )


def ranked(**of_comm):
    """A run of two ranks with other facts about what they did together."""
    run = stored("ranks")
    return replace(
        run, report=replace(run.report, findings=[], comm=replace(run.report.comm, **of_comm))
    )


def test_a_late_rank_is_ruled_out_only_by_all_ranks_on_one_clock():
    several = ranked(clock_bound_s=1e-4)

    for rule_id in ("late_rank", "late_ranks"):
        assert finding(several, rule_id)[0] == "passed"
        assert finding(ranked(clock_bound_s=None), rule_id)[0] == "unknown"
        assert finding(replace(several, world=16), rule_id)[0] == "unknown"
    assert context.why_severity_unjudged(
        several, "high"
    ) == "" and "clocks" in context.why_severity_unjudged(ranked(clock_bound_s=None), "high")


def test_a_slow_network_is_ruled_out_only_where_its_speed_is_known():
    assert finding(ranked(network_share=None), "slow_network")[0] == "unknown"
    assert finding(ranked(network_share=0.9), "slow_network")[0] == "passed"


def test_other_programs_are_ruled_out_only_where_they_were_sampled(loader):
    few = replace(loader, report=replace(loader.report, findings=[], cpus=None))

    assert finding(few, "busy_neighbors")[0] == "unknown"
    assert finding(beside(few, 0.0), "busy_neighbors")[0] == "passed"


@pytest.mark.parametrize(
    ("rule_id", "outcome"), [("made_in_step", "unknown"), ("compute_bound", "passed")]
)
def test_only_what_is_told_for_information_is_never_left_out(loader, rule_id, outcome):
    assert finding(loader, rule_id)[0] == outcome


#: The device of a trace that computed without communication, and one that did nothing.
COMPUTED = RankGpu(
    1.0, 10.0, 80.0, 10.0, None, 0.0, 0.0, {"overlap_pct_of_comm": _NO_COMMUNICATION}
)
SILENT = RankGpu(*[None] * 7, dict.fromkeys(FIGURES, "the trace contains no device activity"))


def traced(gpu: RankGpu, *rule_ids: str):
    """A trace of one GPU."""
    run = stored("loader")
    ranks = {"0": replace(next(iter(run.report.ranks.values())), gpu=gpu)}
    found = [Finding(rule_id, Severity.INFO, "no loader in the trace") for rule_id in rule_ids]
    return replace(
        run,
        report=replace(
            run.report,
            traces=Traces([], "", [], [], [], []),
            ranks=ranks,
            findings=found,
            comm=None,
        ),
    )


def test_a_trace_of_one_gpu_that_did_not_communicate_has_no_late_rank():
    assert context.why_severity_unjudged(traced(COMPUTED), "high") == ""
    assert "wait for each other" in context.why_severity_unjudged(traced(SILENT), "high")
    assert "wait for each other" in context.why_severity_unjudged(
        replace(traced(COMPUTED), world=8), "high"
    )


def test_a_trace_without_a_loader_does_not_rule_out_an_input_stall():
    assert finding(traced(COMPUTED, "input_not_seen"), "input_stall") == (
        "unknown",
        "no loader in the trace",
    )
    assert finding(traced(COMPUTED), "input_stall")[0] == "passed"


def test_two_runs_against_one_are_an_estimate_too(loader):
    assert any("estimated, not measured" in note for note in diff([loader, loader], [loader]).notes)
