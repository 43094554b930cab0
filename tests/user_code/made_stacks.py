"""Made-up sampled stacks: what torch, feedline and a program look like in them."""

from feedline.profiler.store.sampled_stacks import ProcessStacks, SampledStack, StackFrame

TORCH = "/venv/lib/python3.11/site-packages/torch/"
LIBRARIES = "/venv/lib/python3.11/site-packages/"
PYTHON = "/usr/lib/python3.11/"
FEEDLINE = "/venv/lib/python3.11/site-packages/feedline/profiler/"

Frame = tuple[str, int, str]

FETCHING: list[Frame] = [
    (PYTHON + "multiprocessing/process.py", 108, "run"),
    (TORCH + "utils/data/_utils/worker.py", 349, "_worker_loop"),
    (FEEDLINE + "taps/fetch.py", 92, "fetch"),
    (TORCH + "utils/data/_utils/fetch.py", 52, "fetch"),
]
COLLATING: list[Frame] = [*FETCHING, (FEEDLINE + "taps/fetch.py", 150, "collate")]
IDLE: list[Frame] = [*FETCHING[:2], (PYTHON + "multiprocessing/queues.py", 103, "get")]
LOOP: list[Frame] = [
    (FEEDLINE + "../cli/program.py", 60, "run"),
    ("train.py", 90, "<module>"),
    ("train.py", 70, "main"),
]
FORWARD: list[Frame] = [
    (TORCH + "nn/modules/module.py", 1773, "_wrapped_call_impl"),
    (TORCH + "nn/modules/module.py", 1784, "_call_impl"),
]
BACKWARD: list[Frame] = [
    (TORCH + "_tensor.py", 630, "backward"),
    (TORCH + "autograd/__init__.py", 364, "backward"),
]
STEP: list[Frame] = [(TORCH + "optim/sgd.py", 120, "step")]
WAIT: list[Frame] = [(TORCH + "utils/data/dataloader.py", 730, "__next__")]


def stack(frames: list[Frame], samples: int, phase: str = "loop") -> SampledStack:
    """A stack of the main thread that stands for 10 ms each time."""
    return SampledStack(
        phase, "main", tuple(StackFrame(*frame) for frame in frames), samples, samples * 0.01
    )


def process(kind: str, *stacks: SampledStack) -> ProcessStacks:
    """A process with these stacks."""
    samples = sum(one.samples for one in stacks)
    return ProcessStacks(kind, kind, 7, samples * 0.01, samples, "", stacks)


def training(*others: SampledStack) -> ProcessStacks:
    """A main process that computes: 100 samples of forward, 200 of backward, 20 of the optimizer."""
    return process(
        "main",
        stack([*LOOP[:-1], ("train.py", 71, "main"), *FORWARD], 100),
        stack([*LOOP[:-1], ("train.py", 72, "main"), *BACKWARD], 200),
        stack([*LOOP[:-1], ("train.py", 73, "main"), *STEP], 20),
        *others,
    )
