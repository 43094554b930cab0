"""The acceptance table in the terminal, 80 columns wide."""

from collections.abc import Sequence

from acceptance.gates import Gate
from acceptance.result import Row, Table
from feedline.analysis.report.document import Document, Items, Note
from feedline.analysis.report.document import Table as Grid
from feedline.analysis.text.formatting import BLANK, duration


def document_of(table: Table) -> Document:
    """All of it."""
    return Document(
        (
            Note(about(table)),
            arms(table),
            Note("mean ± standard deviation over the seeds; p: Welch's test against the control"),
            gates(table.gates),
            *(Items(tuple(message), title) for title, message in statements(table)),
        )
    )


def about(table: Table) -> str:
    """What was trained."""
    seeds = f"{len(table.seeds)} seeds" if len(table.seeds) != 1 else "one seed"
    return (
        f"MNIST-1D, {len(table.rows)} arms, {seeds}, {duration(table.wall_s)}. Batch 32 stands "
        f"for one GPU, 256 for eight."
    )


def arms(table: Table) -> Grid:
    """A row per arm."""
    heads = ("", "test %", "train loss", "control", "points", "p")
    rows = tuple(
        (f"{row.arm.letter:2} {row.arm.name}", test(row), loss(row), *against(table, row))
        for row in table.rows
    )
    return Grid(rows, heads, "Arms", frozenset(range(1, len(heads))))


def test(row: Row) -> str:
    """``87.3 ± 1.9``"""
    return (
        f"{row.test_mean:.1f}"
        if row.test_sd is None
        else f"{row.test_mean:.1f} ± {row.test_sd:.1f}"
    )


def loss(row: Row) -> str:
    """``0.19``"""
    return "diverged" if row.train_loss is None else f"{row.train_loss:.2f}"


def against(table: Table, row: Row) -> tuple[str, str, str]:
    """Control, points, p; blank where there is none."""
    found = table.against_control(row)
    if found is None:
        return "", "", ""
    p = found.difference.p
    return (
        found.against,
        f"{found.difference.mean:+.1f}",
        BLANK if p is None else "<.001" if p < 0.001 else f"{p:.3f}",
    )


def gates(found: Sequence[Gate]) -> Grid:
    """A row per gate."""
    rows = tuple(
        (gate.message, BLANK if gate.figure is None else f"{gate.figure:.1f}", came_out(gate))
        for gate in found
    )
    return Grid(rows, title="Gates", right=frozenset({1}))


def came_out(gate: Gate) -> str:
    """The result of a gate in one word."""
    return "not asked" if gate.passed is None else "pass" if gate.passed else "FAIL"


def statements(table: Table) -> list[tuple[str, list[str]]]:
    """(title, sentences) of each part that has content."""
    questions = sum(one.family == "control" for one in table.comparisons)
    parts = [
        (
            f"Supported (p < 0.05 after Holm's correction for {questions} questions)",
            [one.message for one in table.claims if one.supported],
        ),
        ("Not supported", [one.message for one in table.claims if not one.supported]),
        ("Notes", table.notes),
    ]
    return [(title, message) for title, message in parts if message]
