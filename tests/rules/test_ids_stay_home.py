"""What the engine does with a finding follows from what its rule declares, never from its id."""

import ast
from pathlib import Path

import pytest

from feedline.analysis.convergence.checks import ASIDE, GRAVE, STOPS
from feedline.analysis.rules import BY_ID

ANALYSIS = Path(__file__).resolve().parents[2] / "analysis"
#: Where ids are at home: the rules and their registry, and the checks of a training's set-up.
HOMES = (ANALYSIS / "rules", ANALYSIS / "convergence" / "checks")
IDS = {*BY_ID, *GRAVE, *STOPS, *ASIDE}
#: Ids that are also names of stages, clocks, fields and parts of a step.
WORDS = {"blocked", "own_code", "user_code", "exposed_copy", "synchronisation", "not_finite"}
#: File -> why it may name ids.
ALLOWED = {
    "explain/late_launch.py": "makes a finding of its own, of ranks of several launches",
    "explain/attached.py": "makes findings of its own, of a training that was not recorded",
}


def named_ids(source: str) -> list[str]:
    """Ids that code names: as text, in comparisons whatever they are, or as a rule's constant."""
    tree = ast.parse(source)
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in IDS - WORDS
    ]
    compared = [
        constant.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and "rule_id" in ast.unparse(node)
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant) and constant.value in WORDS
    ]
    constants = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "RULE_ID"
    ]
    imported = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == "RULE_ID"
    ]
    return [*texts, *compared, *constants, *imported]


@pytest.mark.parametrize(
    "source",
    [
        'if finding.rule_id == "decode_bound": pass',
        'full = "cpu_saturated" in causes',
        'late = finding.rule_id in ("blocked", "x")',
        "same = finding.rule_id == too_short.RULE_ID",
        "from feedline.analysis.rules.input.too_short import RULE_ID",
    ],
)
def test_a_named_id_is_noticed(source):
    assert named_ids(source)


def test_code_outside_the_rules_names_no_rule():
    files = [path for path in ANALYSIS.rglob("*.py") if not any(map(path.is_relative_to, HOMES))]
    named = {
        name: ids
        for path in files
        if (ids := named_ids(path.read_text()))
        and (name := path.relative_to(ANALYSIS).as_posix()) not in ALLOWED
    }
    assert named == {}
