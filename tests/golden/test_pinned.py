"""What a comparison with a stored report finds, and what it lets pass. And what is stored."""

import copy
import re
from pathlib import Path

import pytest
from golden.pinned import AGAIN, EXPECTED, Pinned
from golden.record import RUNS, STORED, texts
from golden.test_commands import COMMANDS
from golden.test_traces import MADE, REAL, named
from golden.visible import visible_text

MOST_BYTES = 2_200_000
PRIVATE = re.compile(
    r"(?<!\w)/(home|mnt|opt|root|srv|tmp|Users|usr|var|work)(?!\w)|password|secret|token"
)
TOLD = {
    "verdict": "Input-bound, 61 % of each step",
    "shown": None,
    "step": {"mean_s": 0.25, "stages": {"wait": 0.2, "forward": 0.05}},
    "findings": [
        {
            "cause": "decode_bound",
            "says": "decoding takes 90 %",
            "evidence": [{"what": "CPU", "value": 0.9, "unit": "share"}],
        }
    ],
    "notes": [],
    "hooks": [{"name": f"hook {number}", "attached": number > 3} for number in range(12)],
}


@pytest.fixture
def stored(tmp_path: Path) -> Pinned:
    Pinned(tmp_path, regenerate=True).numbers("run", TOLD)
    return Pinned(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told["step"].update(mean_s=0.2501), "step.mean_s: 0.25 is 0.2501 now"),
        (lambda told: told["step"]["stages"].update(loss=0.0), "+ step.stages.loss is new: 0.0"),
        (lambda told: told["step"]["stages"].pop("wait"), "- step.stages.wait is gone: it was 0.2"),
        (
            lambda told: told["findings"][0].update(cause="cold_storage"),
            "findings[].cause[0]: 'decode_bound' is 'cold_storage' now",
        ),
        (
            lambda told: told["findings"][0]["evidence"][0].update(value=1),
            "findings[decode_bound].evidence[0].value: 0.9 is 1 now",
        ),
        (
            lambda told: told["findings"].insert(0, {"cause": "swapping"}),
            "['decode_bound'] is ['swapping', 'decode_bound'] now",
        ),
        (lambda told: told["findings"].clear(), "- findings[].cause is gone"),
        (
            lambda told: told["hooks"][3].update(attached=True),
            "hooks[].attached[3]: False is True now",
        ),
        (lambda told: told["hooks"].pop(), "hooks[].attached: [False"),
        (lambda told: told.update(shown=0), "shown: None is 0 now"),
    ],
)
def test_a_number_that_moves_is_named_with_what_it_was(stored, change, message):
    told = copy.deepcopy(TOLD)
    change(told)

    with pytest.raises(AssertionError, match=re.escape(message)) as moved:
        stored.numbers("run", told)

    assert AGAIN in str(moved.value)


def test_other_words_move_no_number(stored):
    told = copy.deepcopy(TOLD)
    told["notes"] = ["the first 3 steps are excluded from the means"]
    told["verdict"] = told["findings"][0]["says"] = told["findings"][0]["evidence"][0][
        "what"
    ] = told["hooks"][0]["name"] = "x"

    stored.numbers("run", told)


def test_a_sum_in_another_order_is_the_same_number(stored):
    told = copy.deepcopy(TOLD)
    told["step"]["mean_s"] *= 1 + 1e-14

    stored.numbers("run", told)


def test_a_report_that_was_never_stored_is_new(tmp_path):
    with pytest.raises(AssertionError, match=r"\+ step.mean_s is new"):
        Pinned(tmp_path).numbers("other", TOLD)


def test_what_is_stored_anew_keeps_the_files_that_need_no_change(stored, tmp_path):
    again, before = Pinned(tmp_path, regenerate=True), (tmp_path / "run.json").stat().st_mtime_ns
    again.numbers("run", {**TOLD, "verdict": "Bound by its input"})
    again.text("run.terminal", "Bound by its input\n")

    assert (tmp_path / "run.json").stat().st_mtime_ns == before
    with pytest.raises(AssertionError, match=r"-Bound by its input\n\+Healthy"):
        stored.text("run.terminal", "Healthy\n")


def test_a_page_is_read_as_it_is_seen():
    marks = "".join(
        f'<rect data-tip="step {number}: {number}.5 ms"></rect>' for number in range(20)
    )
    page = f"""<style>b {{}}</style><p>A <b>fat</b> &lt;word&gt;</p><script>let x</script>
        <table><tr><th>stage<th>ms</tr><tr><td>wait</td><td>4.2</td></tr></table><svg aria-label="steps">{marks}<text>0 ms</text></svg>"""

    assert visible_text(page).splitlines() == [
        "A fat <word>",
        "stage | ms",
        "wait | 4.2",
        "(steps)",
        *(f"(step {number}: {number}.5 ms)" for number in range(4)),
        "[16 more like these]",
        "0 ms",
    ]


def test_stored_runs_are_small_and_name_no_place():
    files = [path for path in RUNS.rglob("*") if path.is_file()]

    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    assert [(path, found[0]) for path in files if (found := PRIVATE.search(texts(path)))] == []


def test_nothing_is_stored_that_is_not_compared():
    kinds = [
        *STORED,
        *(f"command-{name}" for name in COMMANDS),
        *(named(f"made up: {kind}") for kind in MADE),
        *map(named, REAL),
    ]

    assert {path.name.split(".")[0] for path in EXPECTED.iterdir()} <= set(kinds)
    assert {path.name for path in RUNS.iterdir()} == set(STORED)
