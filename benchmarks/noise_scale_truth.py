"""Is the noise scale that feedline sees true, and what does it cost?

    python benchmarks/noise_scale_truth.py --json out.json

Truth: the network of acceptance_table.py is trained at batch 32; at four moments its weights are held (rate 0), the exact noise scale
is worked out from every sample's own gradient, and four gloo ranks with 16 samples each go through the data for six epochs as
DistributedDataParallel, recorded; a single process that accumulates four micro-batches of 16 does the same. Samples are drawn without
replacement, so feedline's estimator is told the size of the dataset.

Cost: ResNet-18 on two gloo ranks; eight updates with the measurement, as often as it chooses to measure, and eight without take turns in
the same processes. Beside it, what the measurement takes on the first rank, timed around each of its parts.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from acceptance import data as table_data
from acceptance.model import make
from twins import Estimate, machine, table, write_json

import feedline
from feedline.analysis.convergence.read_training import read
from feedline.profiler.noise_scale import _noise_scale
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.convergence import _ConvergenceWatch
from feedline.profiler.taps.convergence.norms import GradientNormTap

MOMENTS = (0, 2, 6, 12)  # epochs at batch 32
RANKS, BATCH, EPOCHS = 4, 16, 6
COST_PAIRS, COST_UPDATES, COST_BATCH, COST_PIXELS = 40, 8, 8, 128


def exact(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """tr(Sigma) / |G|^2 from each sample's own gradient, in float64."""
    from torch.func import functional_call, grad, vmap

    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(parameters: Any, one: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, parameters, (one[None],)), label[None])

    squares, mean = 0.0, 0.0
    for rows in torch.arange(len(x)).split(256):
        found = vmap(grad(loss), (None, 0, 0))(parameters, x[rows], y[rows])
        flat = torch.cat([value.flatten(1) for value in found.values()], 1).double()
        squares, mean = squares + float(flat.square().sum()), mean + flat.sum(0)
    mean = mean / len(x)
    signal = float(mean @ mean)
    return (squares / len(x) - signal) * len(x) / (len(x) - 1) / signal


def held(weights: Path, folder: Path) -> None:
    """One rank, or the only process: go through the data with the weights held, recorded."""
    torch.set_num_threads(1)
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    saved = torch.load(weights)
    x, y = saved["x"], saved["y"]
    model: torch.nn.Module = make("none")
    model.load_state_dict(saved["model"])
    if ranks > 1:
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    generator = torch.Generator().manual_seed(1)
    with feedline.record(folder):
        for _ in range(EPOCHS):
            order = torch.randperm(len(x), generator=generator)
            for begin in range(0, len(x) - RANKS * BATCH + 1, RANKS * BATCH):
                for part in [rank] if ranks > 1 else range(RANKS):
                    rows = order[begin + part * BATCH : begin + (part + 1) * BATCH]
                    (
                        F.cross_entropy(model(x[rows]), y[rows]) / (1 if ranks > 1 else RANKS)
                    ).backward()
                optimizer.step()
                optimizer.zero_grad()
    if ranks > 1:
        del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
        dist.destroy_process_group()


def cost(out: Path) -> None:
    """Seconds of eight updates with and without the measurement, in turns, on one rank of two."""
    from torchvision.models import resnet18

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(resnet18())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = (
        torch.randn(COST_BATCH, 3, COST_PIXELS, COST_PIXELS),
        torch.randint(1000, (COST_BATCH,)),
    )
    pairs: list[dict[str, tuple[float, float]]] = []
    with tempfile.TemporaryDirectory() as folder, feedline.record(Path(folder) / "run"):
        watch = recorder.convergence
        assert isinstance(watch, _ConvergenceWatch)
        inside = timed_inside(watch.norms)
        for number in range(2 * (COST_PAIRS + 2)):
            how = ("with", "without")[(number + number // 2) % 2]
            recorder.convergence = watch if how == "with" else None
            dist.barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(COST_UPDATES):
                F.cross_entropy(model(images), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
            taken = time.perf_counter() - wall, time.process_time() - cpu
            if how == "without":
                watch.norms._began += taken[0]  # it may cost a share of the time that it was there
            if number % 2 == 0:
                pairs.append({})
            pairs[-1][how] = taken
        recorder.convergence = watch
    del model
    dist.destroy_process_group()
    if os.environ["RANK"] == "0":
        share = sum(inside) / sum(pair["with"][0] for pair in pairs)
        out.write_text(json.dumps({"pairs": pairs[2:], "inside": share}))


def timed_inside(norms: GradientNormTap) -> list[float]:
    """Grows by the seconds that each part of the measurement takes."""
    guarded, seconds = norms.guarded, list[float]()

    def timed(*args: Any) -> None:
        begun = time.perf_counter()
        guarded(*args)
        seconds.append(time.perf_counter() - begun)

    norms.guarded = timed  # type: ignore[method-assign]
    return seconds


def together(ranks: int, *arguments: str) -> None:
    """Run this program on so many ranks."""
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port = listening.getsockname()[1]
    place = {
        "WORLD_SIZE": ranks,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": 1,
    }
    processes = []
    for rank in range(ranks):
        named = {**place, "RANK": rank, "LOCAL_RANK": rank} if ranks > 1 else {}
        environment = {**os.environ, **{name: str(value) for name, value in named.items()}}
        processes.append(subprocess.Popen([sys.executable, __file__, *arguments], env=environment))
    assert [process.wait() for process in processes] == [0] * ranks


def moments(folder: Path) -> list[dict[str, object]]:
    """The truth and both estimates at every moment."""
    data = table_data.make()
    x, y = data.x, data.y
    torch.manual_seed(0)
    model = make("none")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator, rows, done = torch.Generator().manual_seed(0), [], 0
    for moment in MOMENTS:
        for _ in range(moment - done):
            for part in torch.randperm(len(x), generator=generator).split(32):
                optimizer.zero_grad()
                F.cross_entropy(model(x[part]), y[part]).backward()
                optimizer.step()
        done = moment
        weights = folder / f"{moment}.pt"
        torch.save({"model": model.state_dict(), "x": x, "y": y}, weights)
        row: dict[str, object] = {"epoch": moment, "exact": exact(model, x, y)}
        for name, ranks in (("ddp", RANKS), ("accumulation", 1)):
            run = folder / f"{moment}-{name}"
            together(ranks, "--held", str(weights), str(run))
            norms = read(run).norms
            assert norms is not None and norms.how == name
            found = _noise_scale(norms.small_sq, norms.big_sq, norms.b, norms.B, data_set=len(x))
            row[name] = [found.value, found.low, found.high, found.updates]
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--held", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--cost", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.held:
        held(*map(Path, args.held))
        return
    if args.cost:
        cost(args.cost)
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = moments(Path(folder))
        together(2, "--cost", str(Path(folder) / "cost.json"))
        costs = json.loads((Path(folder) / "cost.json").read_text())
        pairs = costs["pairs"]
    shown = [["epoch", "exact", "4 ranks x 16", "inside", "accumulation 4 x 16", "inside"]]
    for row in rows:
        cells = [str(row["epoch"]), f"{row['exact']:.1f}"]
        for name in ("ddp", "accumulation"):
            value, low, high, _ = row[name]  # type: ignore[misc]
            number = "not measurable" if value is None else f"{value:.1f}"
            ends = [
                f"{low:.1f}" if low is not None else "",
                f"{high:.1f}" if high is not None else "",
            ]
            inside = (low is None or low <= row["exact"]) and (high is None or row["exact"] <= high)
            cells += [f"{number} [{ends[0]}, {ends[1]}]", "yes" if inside else "no"]
        shown.append(cells)
    ratios = {
        name: Estimate.of([pair["with"][at] / pair["without"][at] - 1 for pair in pairs])
        for at, name in enumerate(("wall", "CPU"))
    }
    print(f"{machine()}\n\n{table(shown)}\n\nadded to an update of ResNet-18 on two ranks, percent")
    for name, estimate in ratios.items():
        print(f"{name}: {estimate.text(100)} ({estimate.pairs} pairs)")
    print(f"its parts, timed: {100 * costs['inside']:.2f} % of wall time")
    write_json(args.json, moments=rows, **costs)


if __name__ == "__main__":
    main()
