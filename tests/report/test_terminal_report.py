"""The report in a terminal."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from report.made_up import VARIANTS, nasty, refused, report, unmeasured, without_steps
from report.made_up_parts import findings

from feedline.analysis.explain.headline import headline
from feedline.analysis.ledger.finding import Blame, Finding, Gain, GainKind, Severity
from feedline.analysis.measure.full_memory import FullMemory
from feedline.analysis.measure.model import Cpus, GraphBreak, Operation
from feedline.analysis.measure.stages import INPUT_STAGES
from feedline.analysis.report import phrases
from feedline.analysis.report.console import Console, building
from feedline.analysis.report.terminal import render, show

FILES = [
    Path(f"runs/resnet-0412/{name}") for name in ("report.html", "report.json", "trace.json.gz")
]
STAGE = "masking of the tokens that are predicted, per batch"  # as long as a name of a stage may be
COPIED = (
    "Report",
    "Next",
    "More",
    "HTML",
    "Test",
)  # paths and commands are not cut, so that they can be copied


def shown(
    made, width: int = 80, encoding: str = "utf-8", full: bool = False, files=(), **options
) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    show(made, Console(file=file, width=width, **options), full, files)
    return file.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize(
    ("fix", "condition", "said"),
    [
        ("Make rows.py:72 faster", "", "Make rows.py:72 faster."),
        ("Make rows.py:72 faster", "once", "Make rows.py:72 faster (once)."),
        ("Make rows.py:721 faster", "", "Make rows.py:721 faster (rows.py:72)."),
        ("Make it faster.", "once", "Make it faster (rows.py:72, once)."),
    ],
)
def test_a_fix_names_its_line_once(fix, condition, said):
    finding = Finding("x", Severity.LOW, "y", fix=fix, place="rows.py:72", condition=condition)

    assert phrases.whole_fix(finding) == said


@pytest.mark.parametrize(
    ("rule_id", "severity", "cost_s", "means"),
    [
        ("same_data", Severity.HIGH, 0.0, "the training does not do what was intended"),
        ("same_samples", Severity.HIGH, 0.0, "the training does not do what was intended"),
        ("memory_growth", Severity.LOW, 0.0, "may end a longer training"),
        ("evaluation_time", Severity.HIGH, 0.0, "costs at least 20 % of the time"),
        ("exposed_copy", Severity.LOW, 0.0, "costs 5 to 20 % of the time"),
        ("exposed_copy", Severity.INFO, 1e-3, "costs less than 5 % of the step"),
    ],
)
def test_only_a_mistake_in_the_set_up_is_said_to_be_one(rule_id, severity, cost_s, means):
    assert phrases.severity(Finding(rule_id, severity, "x", cost_s=cost_s)) == means


@pytest.mark.parametrize(("rank", "waited"), [(None, False), (0, True), (3, False)])
def test_of_traces_the_rank_shown_is_waited_for_only_if_it_is_the_late_one(rank, waited):
    made = VARIANTS["four ranks"]()
    late = replace(made.findings[0], blame=Blame(rank, "wait"))
    ranks = {
        number: replace(own, mean_s=own.mean_s * (1 + 0.1 * int(number)))
        for number, own in made.ranks.items()
    }

    said = phrases.ranks(replace(made, ranks=ranks, shown=None, findings=[late]))

    assert said.startswith(
        "Showing rank 0, which the others wait for." if waited else "Showing rank 0."
    )


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [80, 50])
def test_no_line_is_wider_than_the_terminal(variant: str, width: int, full: bool) -> None:
    lines = shown(VARIANTS[variant](), width, full=full).splitlines()

    assert max(len(line) for line in lines if not line.startswith(COPIED)) <= width
    assert [line for line in lines if line != line.rstrip()] == []


def test_all_of_a_report_names_the_programs_own_stages_and_the_operations_in_a_sample() -> None:
    made = report()
    stages = {**made.step.stages, STAGE: 2e-3}
    operations = [Operation("user", STAGE, 1e-3, 9e-4, 1)]
    made = replace(
        made,
        step=replace(made.step, stages=stages),
        workers=replace(made.workers, operations=operations),
    )

    text = "".join(shown(made, full=True).split())

    assert text.count("".join(STAGE.split())) == 2
    assert "loader0:DataLoader" in text and 'sampler="RandomSampler"' in text


def test_a_wide_terminal_does_not_make_it_wider_than_80_columns() -> None:
    assert max(len(line) for line in shown(report(), 200).splitlines()) <= 80


@pytest.mark.parametrize("full", [False, True])
def test_it_says_the_limit_the_cause_the_line_to_change_and_the_gain(full: bool) -> None:
    text = shown(report(), full=full, files=FILES)

    assert (
        """
Input-bound: Input takes 53 % of each step.
  Images are decoded to 9 times as many pixels as the model sees.
  Fix     Store the images near the training size, or decode only the crop.
          train.py:41
          Only if no larger crop is taken later.
  Gain    176 -> 262 samples/s (248 to 277)
"""
        in text
    )
    last = ["Report  runs/resnet-0412/report.html"]
    last += [] if full else ["More    feedline report runs/resnet-0412 --full"]
    assert text.splitlines()[-len(last) :] == last


def test_a_place_stands_at_the_end_of_the_line_that_it_is_about() -> None:
    verdict = replace(report().verdict, fix="num_workers=2, persistent_workers=True")

    text = shown(replace(report(), verdict=verdict))

    line = next(line for line in text.splitlines() if line.startswith("  Fix"))
    assert line == f"{'  Fix     num_workers=2, persistent_workers=True':<69}train.py:41"


def test_a_gain_says_how_sure_it_is() -> None:
    assert "\n  Gain    176 -> about 298 samples/s\n" in shown(refused())
    bound = replace(report().verdict, gain=Gain(GainKind.AT_MOST, "steps/s", 5.5, 9.04))
    assert "Gain    5.50 -> at most 9.04 steps/s" in shown(replace(report(), verdict=bound))
    part = replace(report().verdict, gain=Gain(GainKind.AT_LEAST, "steps/s", 5.5, 9.04))
    assert "Gain    5.50 -> at least 9.04 steps/s" in shown(replace(report(), verdict=part))
    unknown = replace(report().verdict, gain=Gain(GainKind.UNKNOWN, "steps/s"))
    assert "Gain    unknown" in shown(replace(report(), verdict=unknown))
    none = replace(report().verdict, gain=replace(report().verdict.gain, low=170.0))
    assert "(170 to 277, perhaps no gain)" in shown(replace(report(), verdict=none))


def test_where_a_gain_is_not_predicted_the_whole_report_says_why() -> None:
    text = " ".join(render(refused()).split())

    assert (
        "Gain 176 -> about 298 samples/s without this cost (an estimate from its share of the "
        "time). How fast images" in text
    )


def test_all_of_a_report_says_of_each_finding_what_its_fix_gives_or_the_cause_costs() -> None:
    predicted, unknown = (" ".join(render(made).split()) for made in (report(), refused()))

    assert (
        "Gain 176 -> 262 samples/s (248 to 277); above the next limit (all CPUs), which this fix "
        "also raises. Check" in predicted
    )
    assert "about 298" not in predicted
    assert (
        "Gain 176 -> about 298 samples/s without this cost (an estimate from its share of the "
        "time). How fast images" in unknown
    )
    # of two findings; the third is information
    assert unknown.count("an estimate from its share") == 2
    assert "Not predicted." not in unknown


def test_the_html_report_is_offered_where_it_was_not_just_written() -> None:
    offer = "HTML    feedline report runs/resnet-0412 --html"

    assert offer in shown(report(), full=True)
    assert "HTML" not in shown(report(), full=True, files=FILES)


def test_a_trial_is_offered_only_where_it_can_be_made() -> None:
    offer = "Test    feedline verify runs/resnet-0412"
    first = replace(report().findings[0], settings={"num_workers": 4})
    workers = replace(first, rule_id="too_few_workers")
    of_workers = replace(report().verdict, finding="too_few_workers")

    assert offer in shown(replace(report(), findings=[workers], verdict=of_workers))
    assert "Test" not in shown(report())  # its fix is not an argument of the loader
    assert "Test" not in shown(replace(report(), findings=[first])), "only a part of it is"


def test_all_of_it_begins_with_the_verdict_and_ends_with_the_files() -> None:
    text = render(report())

    titles = [
        "Input-bound",
        "176 samples/s",
        "Mean step",
        "Why the main process",
        "One sample",
        "Findings",
        "Hooks that could not",
        "Notes",
        "HTML",
    ]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)


def test_what_has_nothing_to_say_is_left_out() -> None:
    for text in (shown(without_steps()), render(without_steps())):
        assert "No rule found" not in text and "Mean step" not in text and "Findings" not in text
    assert "One sample" not in render(VARIANTS["no workers"]())
    assert "not measured" not in shown(VARIANTS["training without scale"]())


def test_others_that_ask_for_a_change_are_a_line_each() -> None:
    text = shown(report())

    assert "\nAlso    convert to float per batch  176 -> 190\n" in text
    assert "smaller images" not in text  # the verdict is its own
    assert "keep the workers" not in text  # asks for no change


@pytest.mark.parametrize(
    ("after", "free", "said"),
    [
        (1.02, 0.1, ""),
        (1.5, 0.1, "The CPU time that this frees makes the rest faster too."),
        (1.5, 14.0, "The rest of the step gets faster too."),
        (1.5, None, "The rest of the step gets faster too."),
    ],
)
def test_a_gain_above_a_step_without_input_says_what_it_supposes(after, free, said) -> None:
    """Of freed CPUs only where they were full."""
    run = replace(report(), cpus=Cpus(16.0, None, 16.0, own=2.0, others=0.0, free=free))
    inside = sum(s for name, s in run.step.stages.items() if name in INPUT_STAGES)
    without = 100 / (1 - inside / run.step.mean_s)
    gained = Gain(GainKind.ABOUT, "samples/s", 100, after * without)

    text = shown(replace(run, verdict=replace(run.verdict, gain=gained)))

    lines = [line.strip() for line in text.splitlines() if "faster too." in line]
    assert lines == ([said] if said else [])


@pytest.mark.parametrize("rule", ["user_code", "too_few_workers"])
def test_a_prediction_says_what_it_supposes_where_its_fix_does_not(rule) -> None:
    gained = Gain(GainKind.PREDICTED, "samples/s", 176, 180, low=170, high=190)
    first = replace(report().findings[0], rule_id=rule, gain=gained)
    verdict = replace(report().verdict, finding=rule, gain=gained)

    for text in (shown, render):
        said = " ".join(text(replace(report(), findings=[first], verdict=verdict)).split())
        assert ("if it took half the time" in said) == (rule == "user_code")


def test_another_change_says_what_its_prediction_supposes() -> None:
    gained = Gain(GainKind.PREDICTED, "samples/s", 176, 180, low=170, high=190)
    first, other, *_ = report().findings
    slow = replace(other, rule_id="user_code", gain=gained, fix="", action="speed up place()")

    said = " ".join(shown(replace(report(), findings=[first, slow])).split())

    assert "176 -> 180 if it took half the time" in said


def test_one_fix_of_two_findings_is_a_single_line() -> None:
    same = Finding("same_data", Severity.HIGH, "both ranks train on the same samples")
    whole = Finding(
        "whole_data_on_every_rank", Severity.HIGH, "each draws all", fix="Use a sampler."
    )

    assert "use a sampler" in shown(replace(report(), findings=[*findings(), whole]))
    assert "use a sampler" not in shown(replace(report(), findings=[*findings(), same, whole]))


def test_a_run_that_failed_says_so_before_its_verdict() -> None:
    run = replace(report().run, exit_code=3)
    failed = replace(report(), run=run, headline=headline(run, report().throughput.steps))

    for text in (shown(failed), render(failed)):
        assert "The training ended with exit code 3 after 1,200 steps." in text
        assert text.index("exit code 3 after") < text.index("Input-bound")
    assert "killed or crashed" in render(unmeasured())


def test_the_step_names_other_and_its_sum() -> None:
    lines = [line.split() for line in render(report()).splitlines()]

    assert ["other", "1.4", "0.8", "%"] in lines
    assert ["sum", "181.4", "100.0", "%"] in lines


def test_a_finding_has_its_evidence_and_its_fix() -> None:
    text = render(refused())

    assert "1. HIGH  oversize_images  costs about 73.9 ms per step (40.7 %)" in text
    assert "  Seen    decode CPU per sample: 7.92 ms" in text
    assert "  Fix     Store the images near the training size" in text


def test_refused_hooks_are_told_only_where_something_was_lost() -> None:
    text = render(report())

    assert "cv2.imread: cv2 was imported as `from cv2 import imread`" in text
    assert "gpu:" not in text


def test_no_color_code_is_written_to_a_file() -> None:
    assert "\x1b" not in render(report())


def test_color_is_used_in_a_terminal_and_says_nothing_more() -> None:
    colored = shown(report(), full=True, force_terminal=True, color_system="standard")

    assert "\x1b[" in colored
    assert "HIGH" in colored


def test_an_escape_sequence_or_markup_in_a_name_does_nothing() -> None:
    text = shown(nasty(), full=True, force_terminal=True, color_system=None)

    assert "\x1b[31m" not in text
    assert "\\x1b[31mred" in text
    assert "[bold]q" in text


def test_a_terminal_that_knows_only_ascii_gets_ascii() -> None:
    text = shown(report(), encoding="ascii")

    assert "####" in text
    assert "resnet-0412 | 1,200 steps of 181 ms | 176 samples/s" in text


def test_parts_that_are_missing_are_said_in_words() -> None:
    assert "The run never made a training step." in render(without_steps())
    assert "killed or crashed" in render(unmeasured())


def test_the_next_command_of_a_run_without_steps_looks_for_what_was_not_seen() -> None:
    """Where a loader was seen, or all hooks were attached, the machine is not why."""
    seen = without_steps()
    unseen = replace(seen, loaders=[])
    attached = replace(unseen, hooks=[hook for hook in seen.hooks if hook.attached])

    assert "\nNext    feedline env  # what can be recorded" in render(unseen)
    assert "feedline env" not in render(seen) + render(attached)


def test_progress_shows_each_step_in_a_terminal_and_goes_away() -> None:
    file = io.StringIO()
    with building(
        Console(file=file, force_terminal=True, width=60), ["reading", "drawing"]
    ) as done:
        done()
        done()

    assert "drawing" in file.getvalue()
    assert "2/2" in file.getvalue()


def test_progress_is_silent_where_nobody_looks() -> None:
    file = io.StringIO()
    with building(Console(file=file), ["reading"]) as done:
        done()

    assert file.getvalue() == ""


@pytest.mark.parametrize(
    ("ended_by", "memory", "said"),
    [
        (
            "",
            FullMemory(1.95e9, 2e9, False),
            "Probably memory was full: at last, its control group used 1.95 GB of 2.00 GB.",
        ),
        (
            "SIGKILL",
            FullMemory(15.8e9, 16e9, True),
            "Probably memory was full: at last, the machine used 15.8 GB of 16.0 GB.",
        ),
        ("", None, "Usual causes: out of memory, kill -9, a segmentation fault."),
        ("SIGTERM", FullMemory(1.95e9, 2e9, False), ""),
    ],
)
def test_a_run_that_was_cut_says_whether_its_memory_was_nearly_full(ended_by, memory, said) -> None:
    run = replace(report().run, state="cut", exit_code=None, ended_by=ended_by)

    line = headline(run, 40, memory=memory)

    assert said in line and ("full" in line) == ("full" in said)


def test_lines_at_which_compiled_graphs_end_are_in_all_of_a_report() -> None:
    breaks = [GraphBreak("forward", "model.py:14", "Data-dependent branching", 2)]
    made = replace(report(), graph_breaks=breaks)

    assert "model.py:14" in shown(made, full=True)
    assert "model.py:14" not in shown(made) and "Graph breaks" not in shown(report(), full=True)
