"""How much longer does short work take right after a sleep, as in processes that wake each other?

    python benchmarks/woken.py

Makes small batches of rows, and trains on each, with sleeps of different lengths before both. The sleeps do not count. Prints Markdown.
"""

import time

import torch

ROWS, BATCH, WIDTH = 4096, 32, 64
SLEEPS_S = (0.0, 0.2e-3, 1e-3, 5e-3)
TIMES = 200


def measure(sleep_s: float, rows: torch.Tensor) -> tuple[float, float]:
    """Return how long making a batch takes, and training on it, s."""
    model = torch.nn.Linear(WIDTH, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    making = training = 0.0
    for _ in range(TIMES):
        if sleep_s:
            time.sleep(sleep_s)
        begin = time.perf_counter()
        batch = torch.stack([rows[index] for index in range(BATCH)])
        making += time.perf_counter() - begin
        if sleep_s:
            time.sleep(sleep_s)
        begin = time.perf_counter()
        model(torch.nn.functional.normalize(batch)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        training += time.perf_counter() - begin
    return making / TIMES, training / TIMES


def main() -> None:
    torch.set_num_threads(1)
    rows = torch.randn(ROWS, WIDTH)
    measure(0.0, rows)
    print("| sleep before | making a batch | training on it |")
    print("|---|---|---|")
    for sleep_s in SLEEPS_S:
        making, training = measure(sleep_s, rows)
        print(f"| {sleep_s * 1e3:g} ms | {making * 1e6:.0f} µs | {training * 1e6:.0f} µs |")


if __name__ == "__main__":
    main()
