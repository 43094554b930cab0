"""A trace that torch.profiler writes here and now, on a machine without a GPU."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from feedline.analysis.traces.kineto.kineto_reader import read_kineto
from feedline.analysis.traces.rank_trace import RankTrace, summarise
from feedline.analysis.traces.trace_columns import Kind

STEPS, BATCH, INPUTS, OUTPUTS = 3, 16, 64, 32


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RankTrace:
    path = tmp_path_factory.mktemp("trace") / "own.json.gz"
    model = torch.nn.Linear(INPUTS, OUTPUTS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.zeros(BATCH * STEPS, INPUTS)), BATCH
    )
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for (batch,) in batches:
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return summarise(read_kineto(str(path)))


def test_without_a_schedule_there_is_no_profiler_step_and_the_optimizer_ends_the_steps(recorded):
    assert recorded.steps.by == "optimizer"
    assert len(recorded.steps) == STEPS - 1


def test_its_loader_is_seen_and_a_stall_of_no_device_is_not_claimed(recorded):
    assert recorded.input.calls == STEPS - 1
    assert 0 < recorded.input.loader_pct < 100
    assert (
        recorded.input.stall_pct is None
        and "no device activity" in recorded.input.reasons["stall_pct"]
    )
    assert recorded.gpu.idle_pct is None


def test_its_budget_knows_input_and_compute(recorded):
    shares = recorded.budget.shares

    assert shares["input"] > 0 and shares["compute"] > 0
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)


def test_its_operators_cost_what_they_must(recorded):
    found = {row.name: row for row in recorded.calls if row.kind == Kind.OPERATOR}

    assert found["aten::addmm"].flop == (STEPS - 1) * 2 * BATCH * INPUTS * OUTPUTS
    assert (
        found["aten::mm"].flop == (STEPS - 1) * 2 * BATCH * INPUTS * OUTPUTS
    )  # the weight's gradient; the batch needs none
    assert found["aten::addmm"].own_ns <= found["aten::linear"].total_ns
