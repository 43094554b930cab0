"""The result of a table, and its JSON."""

import math
from dataclasses import asdict, dataclass, field

from acceptance.arms import Arm
from acceptance.gates import Gate
from acceptance.statistics import Difference
from acceptance.train import Run

SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """An arm with its trainings, in the order of their seeds.

    Attributes:
        test_mean, test_sd: test accuracy over the seeds, percent and points; no spread of one seed:
            None.
        train_loss: mean over the seeds; None where a training diverged.
    """

    arm: Arm
    runs: list[Run]
    test_mean: float
    test_sd: float | None
    train_loss: float | None

    @property
    def diverged(self) -> list[int]:
        """Seeds whose loss became infinite or NaN."""
        return [run.seed for run in self.runs if not math.isfinite(run.train_loss)]


@dataclass(frozen=True)
class Comparison:
    """The difference between two arms.

    Attributes:
        letter, against: of both.
        family: "control": one of the questions that the table was made for; "reference": against
            the small batch with batch norm.
        difference: of the test accuracies, points.
        p_holm: corrected for the number of comparisons in the family; None where the difference has
            no p.
        samples_ratio: samples that the arm was trained on, of those of the other: not 1 means that
            budgets are not equal.
    """

    letter: str
    against: str
    family: str
    difference: Difference
    p_holm: float | None
    samples_ratio: float


@dataclass(frozen=True)
class Claim:
    """A sentence, and whether the p values support it."""

    message: str
    supported: bool


@dataclass(frozen=True)
class Table:
    """The whole table.

    Attributes:
        seeds: that were asked for; a row can have fewer if it was interrupted.
        settings, versions: what the figures depend on.
    """

    rows: list[Row]
    comparisons: list[Comparison]
    gates: list[Gate]
    claims: list[Claim]
    seeds: list[int]
    settings: dict[str, object]
    versions: dict[str, str]
    wall_s: float
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)

    def against_control(self, row: Row) -> Comparison | None:
        """The first comparison of an arm."""
        return next(
            (
                one
                for one in self.comparisons
                if (one.letter, one.against) == (row.arm.letter, row.arm.control)
            ),
            None,
        )

    def plain(self) -> dict[str, object]:
        """Plain data for JSON.

        ``arms`` by letter; accuracies in percent; None for missing figures.
        """
        found = {
            "schema": SCHEMA,
            "seeds": self.seeds,
            "interrupted": self.interrupted,
            "arms": {row.arm.letter: self._row(row) for row in self.rows},
            "comparisons": [{**asdict(one), **asdict(one.difference)} for one in self.comparisons],
            "gates": [asdict(gate) for gate in self.gates],
            "claims": [asdict(claim) for claim in self.claims],
            "notes": self.notes,
            "settings": self.settings,
            "versions": self.versions,
            "wall_s": self.wall_s,
        }
        for one in found["comparisons"]:  # type: ignore[attr-defined]
            del one["difference"]
        return _finite(found)  # type: ignore[return-value]

    def _row(self, row: Row) -> dict[str, object]:
        first = self.against_control(row)
        arm = asdict(row.arm)
        del arm["core"]
        return {
            **arm,
            "test_mean": row.test_mean,
            "test_sd": row.test_sd,
            "train_loss": row.train_loss,
            "p_vs_control": first.difference.p if first else None,
            "p_vs_control_holm": first.p_holm if first else None,
            "updates": row.runs[0].updates,
            "seeds": [run.seed for run in row.runs],
            "test": [run.test for run in row.runs],
            "train_losses": [run.train_loss for run in row.runs],
            "diverged": row.diverged,
            "cpu_s": sum(run.cpu_s for run in row.runs),
        }


def _finite(value: object) -> object:
    """JSON has no NaN and no infinity."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
