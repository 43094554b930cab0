"""How well "what workers lack in any order" (S / W - C) divides a wait: replays of DataLoader's dispatch, ordered and not.

    python benchmarks/wait_split.py

rules/input/input_wait.py gives a wait to too few workers up to S / W - C and the rest to the order of the batches. For each replay this
compares that rest with what in_order=False wins, both as a share of the wait. S: making a batch, C: the step without waiting, W: workers.
"""

import itertools
import math
import random
from statistics import mean

from feedline.analysis.predict.loader_replay import Pass, Setting, Task, replay

BATCHES, STEP_S = 6000, 1.0


def replayed(making_s: list[float], workers: int, in_order: bool) -> tuple[float, float]:
    """Seconds per step, and the share of requests that found a batch ready.

    Nothing competes for a CPU.
    """
    batches = [Task(0.0, seconds) for seconds in making_s]
    ends = replay(
        Setting(workers, in_order=in_order),
        Pass(batches, [Task(0.0, STEP_S)] * len(batches)),
        cpus=1.0,
    ).ends_s
    ready = sum(end - before < STEP_S + 1e-6 for before, end in itertools.pairwise([0.0, *ends]))
    return ends[-1] / len(ends), ready / len(ends)


def batches(kind: str, mean_s: float, rng: random.Random) -> list[float]:
    """Times to make batches: "cv0.3" is lognormal with that coefficient of variation; in "p0.05x10"
    one in 20 takes ten times as long.
    """
    if kind.startswith("cv"):
        sigma = math.sqrt(math.log(1 + float(kind[2:]) ** 2))
        return [mean_s * rng.lognormvariate(-sigma * sigma / 2, sigma) for _ in range(BATCHES)]
    share, factor = map(float, kind[1:].split("x"))
    base = mean_s / (1 - share + share * factor)
    return [base * (factor if rng.random() < share else 1) for _ in range(BATCHES)]


def main() -> None:
    rng, above = random.Random(1), []
    for workers, load, kind in itertools.product(
        (2, 4, 8),
        (0.8, 1.0, 1.15, 1.3, 1.5, 2, 4),
        ("cv0.05", "cv0.3", "cv0.6", "p0.05x10", "p0.02x20"),
    ):
        making_s = batches(kind, load * workers, rng)
        (ordered_s, ready), (unordered_s, _) = (
            replayed(making_s, workers, True),
            replayed(making_s, workers, False),
        )
        wait = ordered_s - STEP_S
        if wait / ordered_s < 0.05:
            continue
        rest = wait - min(wait, max(0.0, mean(making_s) / workers - STEP_S))
        won = ordered_s - unordered_s
        above.append((rest - won) / wait)
        shares = f"wait {wait / ordered_s:6.1%}  rest {rest / wait:6.1%}  won {won / wait:6.1%}"
        seen = f"idle {1 - mean(making_s) / workers / ordered_s:6.1%}  ready {ready:6.1%}"
        print(f"W {workers}  S/(W C) {load:<4}  {kind:<9} {shares}  {seen}")
    print(
        f"{len(above)} replays: the rest less what in_order=False wins is {mean(above):.1%} of "
        f"the wait on average,",
        end=" ",
    )
    print(f"from {min(above):.1%} to {max(above):.1%}")


if __name__ == "__main__":
    main()
