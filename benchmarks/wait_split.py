"""How well "what workers lack in any order" (S / W - C) divides a wait: replays of DataLoader's dispatch, ordered and not.

    python benchmarks/wait_split.py

rules/input/input_wait.py gives a wait to too few workers up to S / W - C and the rest to the order of the batches. For each replay this
compares that rest with what in_order=False wins, both as a share of the wait. S: making a batch, C: the step without waiting, W: workers.
"""

import itertools
import math
import random
from statistics import mean

BATCHES, PREFETCH = 6000, 2


def replay(making: list[float], compute: float, workers: int, in_order: bool) -> tuple[float, float]:
    """Seconds a step, and the share of requests that found a batch ready.

    torch 2.13's dispatch: round-robin, PREFETCH batches a worker, a new index for each batch that is returned.
    """
    free, outstanding, ready = [0.0] * workers, [0] * workers, {}
    turn, sent, now, found = itertools.cycle(range(workers)), 0, 0.0, 0
    made_by: dict[int, int] = {}

    def send() -> None:
        nonlocal sent
        worker = next((w for w in itertools.islice(turn, workers) if in_order or outstanding[w] < PREFETCH), None)
        if worker is None or sent == len(making):
            return
        free[worker] = ready[sent] = max(now, free[worker]) + making[sent]
        outstanding[worker] += 1
        made_by[sent] = worker
        sent += 1

    for _ in range(workers * PREFETCH):
        send()
    for number in range(len(making)):
        batch = number if in_order else min(ready, key=ready.__getitem__)
        found += ready[batch] <= now
        now = max(now, ready.pop(batch))
        outstanding[made_by[batch]] -= 1
        send()
        now += compute
    return now / len(making), found / len(making)


def batches(kind: str, mean_s: float, rng: random.Random) -> list[float]:
    """Times to make batches: "cv0.3" is lognormal with that coefficient of variation; in "p0.05x10" one in 20 takes ten times as long."""
    if kind.startswith("cv"):
        sigma = math.sqrt(math.log(1 + float(kind[2:]) ** 2))
        return [mean_s * rng.lognormvariate(-sigma * sigma / 2, sigma) for _ in range(BATCHES)]
    share, factor = map(float, kind[1:].split("x"))
    base = mean_s / (1 - share + share * factor)
    return [base * (factor if rng.random() < share else 1) for _ in range(BATCHES)]


def main() -> None:
    rng, above = random.Random(1), []
    for workers, load, kind in itertools.product(
        (2, 4, 8), (0.8, 1.0, 1.15, 1.3, 1.5, 2, 4), ("cv0.05", "cv0.3", "cv0.6", "p0.05x10", "p0.02x20")
    ):
        making = batches(kind, load * workers, rng)
        (ordered, ready), (unordered, _) = replay(making, 1.0, workers, True), replay(making, 1.0, workers, False)
        wait = ordered - 1
        if wait / ordered < 0.05:
            continue
        rest = wait - min(wait, max(0.0, mean(making) / workers - 1))
        won = ordered - unordered
        above.append((rest - won) / wait)
        shares = f"wait {wait / ordered:6.1%}  rest {rest / wait:6.1%}  won {won / wait:6.1%}"
        seen = f"idle {1 - mean(making) / workers / ordered:6.1%}  ready {ready:6.1%}"
        print(f"W {workers}  S/(W C) {load:<4}  {kind:<9} {shares}  {seen}")
    print(f"{len(above)} replays: the rest less what in_order=False wins is {mean(above):.1%} of the wait on average,", end=" ")
    print(f"from {min(above):.1%} to {max(above):.1%}")


if __name__ == "__main__":
    main()
