"""Two passes over a loader that is not torch's: other_loaders.py nodes|grain|torchrl|ray"""

import sys

import numpy as np
import torch

SAMPLES, BATCH, PASSES = 40, 8, 2


def made(number):
    return {"x": np.full(4, number, np.float32)}


def nodes():
    from torchdata import nodes as graph

    rows = graph.ParallelMapper(graph.IterableWrapper(range(SAMPLES)), made, 2, method="thread")
    batches = graph.Batcher(rows, BATCH)
    return graph.Loader(graph.Mapper(batches, torch.utils.data.default_collate))


def grain():
    import grain as library

    return library.MapDataset.source(range(SAMPLES)).map(made).batch(BATCH).to_iter_dataset()


def torchrl():
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement

    storage, sampler = LazyTensorStorage(SAMPLES), SamplerWithoutReplacement()
    buffer = ReplayBuffer(storage=storage, sampler=sampler, batch_size=BATCH, prefetch=2)
    buffer.extend(TensorDict({"x": torch.ones(SAMPLES, 4)}, [SAMPLES]))
    return buffer


def ray():
    import ray as library

    library.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    library.data.DataContext.get_current().enable_progress_bars = False
    rows = library.data.from_items([{"number": number} for number in range(SAMPLES)])
    return rows.map(lambda row: made(row["number"])).iter_torch_batches(batch_size=BATCH)


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    loader = {"nodes": nodes, "grain": grain, "torchrl": torchrl, "ray": ray}[sys.argv[1]]()
    for number in range(PASSES):
        samples = 0
        for batch in loader:
            x = torch.as_tensor(batch["x"])
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            samples += len(x)
        print("pass", number, "samples", samples, f"{model.weight.sum().item():.6f}")
