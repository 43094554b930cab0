"""Losses and norms of a training on a GPU: the same numbers as on a CPU, and nobody waits for the
device.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import feedline
from feedline.analysis.convergence.read_training import read
from feedline.convergence.fixes.lamb import Lamb
from feedline.convergence.fixes.lars import Lars

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
UPDATES, MICROS = 12, 2


def train(device, between=lambda: None):
    """Two micro-batches an update."""
    torch.manual_seed(0)
    net = torch.nn.Linear(5, 3).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(3)
    data = [
        (torch.randn(4, 5, generator=generator).to(device), torch.arange(4).to(device) % 3)
        for _ in range(UPDATES * MICROS)
    ]
    between()
    for number, (inputs, labels) in enumerate(data, 1):
        (F.cross_entropy(net(inputs), labels) / MICROS).backward()
        if number % MICROS == 0:
            optimizer.step()
            optimizer.zero_grad()


def test_losses_and_norms_are_those_of_the_cpu(tmp_path):
    runs = []
    for device in ("cpu", "cuda"):
        with feedline.record(tmp_path / device):
            train(device)
            torch.cuda.synchronize()
        runs.append(read(tmp_path / device))
    cpu, gpu = runs

    seen = np.isin(cpu.curves["train loss"].updates, gpu.curves["train loss"].updates)
    assert seen.sum() >= UPDATES - 2
    np.testing.assert_allclose(
        gpu.curves["train loss"].values, cpu.curves["train loss"].values[seen], rtol=1e-4
    )
    both, at_cpu, at_gpu = np.intersect1d(cpu.norms.updates, gpu.norms.updates, return_indices=True)
    assert len(both)
    np.testing.assert_allclose(gpu.norms.small_sq[at_gpu], cpu.norms.small_sq[at_cpu], rtol=1e-3)
    np.testing.assert_allclose(gpu.norms.big_sq[at_gpu], cpu.norms.big_sq[at_cpu], rtol=1e-3)


def test_no_update_waits_for_the_device(tmp_path):
    with feedline.record(tmp_path / "run"):
        try:
            train("cuda", between=lambda: torch.cuda.set_sync_debug_mode("error"))
        finally:
            torch.cuda.set_sync_debug_mode("default")

    assert read(tmp_path / "run").why == ""


@pytest.mark.parametrize("kind", [Lars, Lamb])
def test_no_step_of_an_optimizer_waits_for_the_device(kind):
    net = torch.nn.Linear(5, 3).cuda()
    optimizer = kind(net.parameters(), lr=0.1)
    net(torch.ones(4, 5, device="cuda")).sum().backward()
    optimizer.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_step_that_is_captured_as_a_graph_is_left_alone(tmp_path):
    with feedline.record(tmp_path / "run"):
        net = torch.nn.Linear(5, 3).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        inputs, graph = torch.ones(4, 5, device="cuda"), torch.cuda.CUDAGraph()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                net(inputs).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(graph):
            net(inputs).sum().backward()
            optimizer.step()
        before = net.weight.clone()
        graph.replay()
        torch.cuda.synchronize()

    assert not torch.equal(before, net.weight)
