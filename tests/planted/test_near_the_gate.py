"""Real trainings whose input takes a little less and a little more of the step than the gate: the
first finding is the same.
"""

import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from truth import one_number

import feedline
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.store.trainings import open_run

STEPS, STEP_S = 17, 0.2
UNEVEN = [0.2, 1.8, 1.0, 1.9, 0.1, 0.4, 1.6]


class Uneven(Dataset):
    """Making a batch takes this long on average: some take next to nothing, others twice as long."""

    def __init__(self, mean_s: float) -> None:
        self.mean_s = mean_s

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(UNEVEN[index % len(UNEVEN)] * self.mean_s)
        return torch.zeros(4)


class Model(torch.nn.Linear):
    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(STEP_S)
        return super().forward(batch)


@pytest.mark.quiet
@pytest.mark.parametrize("share", [pytest.param(0.045, marks=pytest.mark.long), 0.055])
def test_the_first_finding_is_the_same_on_both_sides_of_the_gate(share, tmp_path):
    model = Model(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with feedline.record(tmp_path / "run"):
        for batch in DataLoader(Uneven(share * STEP_S), 1):
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()

    report = recorded_report(open_run(tmp_path / "run"))

    causes = [finding.rule_id for finding in report.findings]
    assert causes in (["borderline_input"], ["busy_neighbors", "borderline_input"]), report.verdict
    assert "too close to 5 %" in report.findings[-1].message
    one_number.check_run(tmp_path / "run")
