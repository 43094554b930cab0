"""What does feedline say of memory that grows: how fast, what holds it, where, and when is it full?

    python benchmarks/memory_growth.py > docs/measured/memory-growth.md

Fourteen small trainings, each of which keeps a known number of bytes, and three whose memory stops
growing. Each runs in a control group with a memory limit: once under feedline for some twenty seconds, and
once more until the kernel kills it. Control groups need root. Prints Markdown.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from faults.bench import Failed
from faults.conditions import Unavailable, place
from twins import machine, table, write_json

LIMIT_S = 240.0
BATCH, WIDTH, HIDDEN = 4, 64, 16384
MB = 1e6
ROW, HELD, READ = 4 * WIDTH * 256, 40, 160  # bytes of a kept row, batches held out, strings read
#: Larger pieces of memory have pages of their own. Otherwise what is kept lies between what is freed,
#: in holes that nothing larger fits into any more, and memory grows by more than what is kept.
PAGE, OWN_PAGES = 4096, 1 << 15
TRAINING = """
import collections
import functools
import os
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, default_collate

collate = default_collate
{above}

class Rows(Dataset):
    def __init__(self):
        self.cache = []
        {init}

    def __len__(self):
        return {batch} * {per_epoch}

    def __getitem__(self, index):
        row = torch.full(({width},), float(index % 7))
        {sample}
        return row, index % 10

    {method}


def main(counter, most, step_s):
    loader = DataLoader(Rows(), {batch}, collate_fn=collate, **{loader})
    model = nn.Sequential(nn.Linear({width}, {hidden}), nn.ReLU(), nn.Linear({hidden}, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    kept, bounded, made = [], collections.deque(maxlen=1500), 0
    held = [torch.ones({batch}, {width}) for _ in range({held})]
    while True:
        for rows, labels in loader:
            loss = cross_entropy(model(rows), labels)
            optimizer.zero_grad()
            loss.backward({backward})
            optimizer.step()
            {step}
            made += 1
            os.pwrite(counter, b"%d" % made, 0)
            time.sleep(step_s)
            if made == most:
                return
        {epoch}


if __name__ == "__main__":
    torch.set_num_threads(1)
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    main(file, int(sys.argv[2]), float(sys.argv[3]) / 1e3)
"""
EVALUATE = """
PREDICTIONS = []

def evaluate(model, held):
    with torch.no_grad():
        for rows in held:
            PREDICTIONS.append(model[:2](rows))  # kept
"""
COLLATE = """
SEEN = []

def collate(rows):
    SEEN.append(torch.stack([row for row, _ in rows]).repeat(256, 1))  # kept
    return default_collate(rows)
"""
CACHED = """@functools.lru_cache(maxsize=None)
    def read(self, index):  # kept
        return torch.full((64, 256), float(index))"""
RECORD = '{"names": [f"{made}-{k:05}" for k in range(1000)], "scores": [made + k / 8 for k in range(1000)]}'
#: Bytes of a string of 60 characters: a pool of Python's allocator has a head and blocks of 112.
STRING = 16384 / ((16384 - 48) // 112)
LOOK = f"len(self.names[index * {READ} : (index + 1) * {READ}])"


def mapped(nbytes: int) -> int:
    """Bytes of a large piece in pages of its own."""
    return (nbytes // PAGE + 1) * PAGE


#: Kept of a model's step: what the activation returned, its rows, log-probabilities and labels.
GRAPH = mapped(4 * BATCH * HIDDEN) + 4 * BATCH * (WIDTH + 10) + 8 * BATCH


def size_of_record() -> int:
    """Bytes of the objects that are kept of a step, in blocks of 16 as Python allocates them."""
    record = eval(RECORD, {"made": 12345})
    parts = [part for values in record.values() for part in values]
    return sum(-(-sys.getsizeof(part) // 16) * 16 for part in [record, *record.values(), *parts])


@dataclass(frozen=True)
class Case:
    """A training that keeps something.

    Attributes:
        bytes_per_step: that it keeps; 0: its memory stops growing.
        who, holder: what the report has to say.
        mb: limit of the control group.
        steps: that are recorded.
        code: pieces of the training. The line that keeps is marked with ``# kept``, one that starts
            evaluations, which is as right, with ``# starts``.
    """

    name: str
    what: str
    bytes_per_step: float
    who: str
    holder: str
    mb: int
    steps: int = 2400
    step_ms: float = 8.0
    workers: int = 0
    start: str = "fork"
    per_epoch: int = 1200
    code: dict[str, str] = field(default_factory=dict)

    def program(self) -> str:
        """Return its source."""
        how: dict[str, object] = {"num_workers": self.workers}
        if self.workers:
            how |= {"persistent_workers": True, "multiprocessing_context": self.start}
        names = ("above", "init", "sample", "method", "backward", "step", "epoch")
        empty = dict.fromkeys(names, "") | dict.fromkeys(
            ("init", "sample", "step", "epoch"), "pass"
        )
        return TRAINING.format(
            **(empty | self.code),
            batch=BATCH,
            width=WIDTH,
            hidden=HIDDEN,
            held=HELD,
            per_epoch=self.per_epoch,
            loader=how,
        )

    def lines(self) -> set[int]:
        """Return the lines that are right as the place."""
        lines = enumerate(self.program().splitlines(), 1)
        return {number for number, line in lines if "# kept" in line or "# starts" in line}


def in_main(name: str, what: str, bytes_per_step: float, holder: str, mb: int, **more: Any) -> Case:
    return Case(name, what, bytes_per_step, "main", holder, mb, **more)


def in_workers(
    name: str, what: str, mb: int, workers: int, kept: int = BATCH * mapped(ROW), **more: Any
) -> Case:
    return Case(name, what, kept, "workers", "own", mb, workers=workers, **more)


KEEP_ROW = {"sample": "self.cache.append(row.repeat(256))  # kept"}
CASES = [
    in_main("graphs", "losses with their graphs", GRAPH, "graphs", 1200,
            code={"step": "kept.append(loss)  # kept", "backward": "retain_graph=True"}),
    in_main("tensors", "a tensor of each step", mapped(1 << 18), "pieces", 1200,
            code={"step": "kept.append(torch.ones(1 << 16))  # kept"}),
    in_main("objects", "a dict of lists of strings and floats", size_of_record(), "objects", 1000,
            code={"step": f"kept.append({RECORD})  # kept"}),
    in_main("arrays", "a NumPy array of each step", mapped(1 << 18), "pieces", 1200,
            code={"step": "kept.append(np.ones((256, 256), np.float32))  # kept"}),
    in_workers("cache_1", "a list in the data set, one worker", 1200, 1, code=KEEP_ROW),
    in_workers("cache_4", "a list in the data set, four workers", 1400, 4, code=KEEP_ROW),
    Case("copied", "strings of a list that two workers read", BATCH * READ * STRING, "workers", "copies",
         1100, workers=2, per_epoch=6000,
         code={"init": 'self.names = [f"{number:060}" for number in range(3_840_000)]', "sample": LOOK}),
    in_workers("lru_cache", "results of a function with lru_cache", 1250, 2, per_epoch=9000,
               code={"method": CACHED, "sample": "self.read(index)"}),
    in_workers("collate", "a copy of each batch in collate", 1250, 2, mapped(BATCH * ROW), code={"above": COLLATE}),
    in_main("epoch", "an array at the end of each epoch", 40 * MB / 400, "pieces", 900, per_epoch=400,
            steps=3300, code={"epoch": "kept.append(np.ones(10_000_000, np.float32))  # kept"}),
    in_main("evaluation", "what the model returns in evaluations", HELD * mapped(4 * BATCH * HIDDEN) / 250,
            "pieces", 600, steps=2900,
            code={"above": EVALUATE, "step": "made % 250 or evaluate(model, held)  # starts"}),
    in_main("small", "a string of 20 kB of each step", 20_049, "pieces", 400, steps=3000,
            code={"step": 'kept.append(f"{made:<20000}")  # kept'}),
    in_main("large", "2 MB of each step", mapped(1 << 21), "pieces", 2300, steps=700, per_epoch=300, step_ms=30,
            code={"step": "kept.append(torch.ones(1 << 19))  # kept"}),
    in_workers("spawned", "a list in the data set, two spawned workers", 1600, 2, start="spawn",
               code=KEEP_ROW),
]  # fmt: skip
WELL = [
    Case("warm_cache", "a cache that is full after the first of two passes", 0, "", "", 1500, workers=2,
         code={"init": "self.cache = {}", "sample": "self.cache[index] = row.repeat(256)"}),
    Case("bounded", "a buffer that is full after 1,500 of 2,400 steps", 0, "", "", 1500,
         code={"step": "bounded.append(torch.ones(1 << 16))"}),
    Case("allocator", "tensors of changing size, none of which is kept", 0, "", "", 1500,
         code={"step": "torch.ones(2_000_000 + made * 7919 % 5_000_000)"}),
]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What was said of a training, and what came.

    Attributes:
        who, holder, place: of what grows most; empty: unknown, or nothing grows.
        per_step, low, high: bytes.
        told: whether the finding is there.
        left: steps until memory is full, counted from the end of the recorded ones; None: not told.
        killed_after: steps that it made until it was killed; None: not run.
    """

    name: str
    who: str
    holder: str
    place: str
    per_step: float
    low: float
    high: float
    told: bool
    left: float | None
    killed_after: int | None


def outcome(case: Case, folder: Path, again: bool) -> Outcome:
    """Run a training twice.

    Args:
        again: only read what an earlier run left.

    Raises:
        Failed: it did not end well.
    """
    report, counter = folder / "report.json", folder / "killed"
    if not again:
        recorded = ["run", "-q", "-f", "-o", str(folder / "run"), "--json", str(report)]
        (folder / "train.py").write_text(case.program())
        start(case, folder, recorded, folder / "steps", case.steps, case.step_ms)
        if case.bytes_per_step:
            until = ["run", "-q", "-f", "-o", str(folder / "until")]
            start(case, folder, until, counter, -1, min(case.step_ms, 2.0))
    if not report.exists():
        raise Failed(f"{case.name}: no report")
    killed_after = int(counter.read_text()) if counter.exists() else None
    return read(case, json.loads(report.read_text()), killed_after)


def start(
    case: Case, folder: Path, how: list[str], counter: Path, steps: int, step_ms: float
) -> None:
    """Run it in its control group, to its end or until it is killed.

    Raises:
        Failed: it ended in another way.
    """
    with place((f"memory:{case.mb}",), folder) as where, (folder / "log").open("wb") as log:
        command = [*where.prefix, sys.executable, "-m", "feedline", *how, str(folder / "train.py")]
        started = subprocess.Popen(
            [*command, str(counter), str(steps), str(step_ms)],
            cwd=folder,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(OWN_PAGES)},
            stdout=log,
            stderr=log,
        )
        try:
            code = started.wait(LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{case.name}: it took more than {LIMIT_S:g} s") from error
        finally:
            with suppress(ProcessLookupError):  # workers may be left
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    if (code == 0) != (steps > 0):
        raise Failed(f"{case.name}: {(folder / 'log').read_text(errors='replace')[-2000:]}")


def read(case: Case, report: dict[str, Any], killed_after: int | None) -> Outcome:
    """Return what a report says."""
    grown = max(report["memory_growth"], key=lambda one: one["per_step_bytes"], default=None)
    findings = [one for one in report["findings"] if one["cause"] == "memory_growth"]
    if grown is None:
        return Outcome(case.name, "", "", "", 0, 0, 0, bool(findings), None, killed_after)
    return Outcome(
        case.name,
        grown["who"],
        grown["holder"] or "",
        findings[0]["place"] if findings else "",
        grown["per_step_bytes"],
        grown["low_bytes"],
        grown["high_bytes"],
        bool(findings),
        grown["steps_left"],
        killed_after,
    )


@dataclass(frozen=True)
class Judged:
    """An outcome beside what is true."""

    case: Case
    outcome: Outcome

    @property
    def rate(self) -> float:
        """Growth per step said over the planted one."""
        return self.outcome.per_step / self.case.bytes_per_step

    @property
    def held(self) -> bool:
        """Whether it says what holds it, and in which process."""
        return (self.outcome.who, self.outcome.holder) == (self.case.who, self.case.holder)

    @property
    def line(self) -> str:
        """Whether the line is right; where there is none to tell, a blank."""
        lines, place = self.case.lines(), self.outcome.place
        if not place:
            return "no line" if lines else ""
        return "yes" if int(place.rpartition(":")[2]) in lines else f"**{place}**"

    @property
    def ends(self) -> float | None:
        """Steps from the beginning to the limit, said over those that were made."""
        left, killed_after = self.outcome.left, self.outcome.killed_after
        if left is None or not killed_after:
            return None
        return (self.case.steps + left) / killed_after


HEAD = (
    "what is kept",
    "planted, per step",
    "said",
    "error",
    "held by",
    "right",
    "line",
    "killed after",
    "said",
    "error",
)


def row(judged: Judged) -> list[str]:
    """Return the row of the table."""
    case, said = judged.case, judged.outcome
    if not said.told:
        return [case.what, kb(case.bytes_per_step), "nothing", "", "", "**no**", "", "", "", ""]
    ends = judged.ends
    return [
        case.what,
        kb(case.bytes_per_step),
        f"{kb(said.per_step)} ({said.low / 1e3:,.1f} to {said.high / 1e3:,.1f})",
        f"{100 * (judged.rate - 1):+.1f} %",
        f"{said.who}: {said.holder or 'unknown'}",
        "yes" if judged.held else "**no**",
        judged.line,
        f"{said.killed_after:,} steps" if said.killed_after else "",
        f"{case.steps + said.left:,.0f}" if said.left is not None else "",
        f"{100 * (ends - 1):+.0f} %" if ends else "",
    ]


def kb(nbytes: float) -> str:
    return f"{nbytes / 1e3:,.1f} kB"


def page(outcomes: list[Outcome], failed: list[str]) -> str:
    by_name = {one.name: one for one in outcomes}
    judged = [Judged(case, by_name[case.name]) for case in CASES if case.name in by_name]
    told = [one for one in judged if one.outcome.told]
    well = [(case, by_name[case.name]) for case in WELL if case.name in by_name]
    about = machine()
    near = sum(abs(one.rate - 1) <= 0.05 for one in told)
    ends = [one.ends for one in told if one.ends]
    lines = [
        "# Memory that grows",
        "",
        "    python benchmarks/memory_growth.py",
        "",
        "Small trainings that keep a known number of bytes, in a control group with a memory limit. Each was recorded for",
        "some twenty seconds, and then run again until the kernel killed it. Planted is what the kept objects take by",
        "arithmetic, without the nodes of graphs. The end is told as the recorded steps and those that are said to be left.",
        "",
        f"Told: {len(told)} of {len(judged)}. Growth within 5 %: {near}. What holds it is right: "
        f"{sum(one.held for one in told)}. Line right: {sum(one.line == 'yes' for one in told)},",
        f"wrong: {sum(one.line.startswith('*') for one in told)}. End within 15 %: "
        f"{sum(abs(end - 1) <= 0.15 for end in ends)} of {len(ends)}. torch {about['torch']}, {about['cpu']}, "
        f"{about['cores']} cores.",
        "",
        table([HEAD, *map(row, judged)]),
        "",
        "Trainings whose memory stops growing:",
        "",
        *(
            f"- {case.what}: {'**accused**' if said.told else 'nothing is said'}"
            for case, said in well
        ),
        *(f"\nNot measured: {reason}" for reason in failed),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--kept", type=Path, help="folder where the run folders stay")
    parser.add_argument("--read-again", action="store_true", help="only read what is in --kept")
    parser.add_argument("--json", type=Path, help="every figure")
    given = parser.parse_args()
    wanted = [name for name in given.only.split(",") if name]
    outcomes, failed = [], []
    with tempfile.TemporaryDirectory() as scratch:
        root = (given.kept or Path(scratch)).resolve()
        for case in [one for one in [*CASES, *WELL] if not wanted or one.name in wanted]:
            folder = root / case.name
            folder.mkdir(parents=True, exist_ok=True)
            try:
                outcomes.append(outcome(case, folder, given.read_again))
            except (Failed, Unavailable) as error:
                failed.append(str(error).splitlines()[0])
                print(error, file=sys.stderr, flush=True)
            else:
                print(outcomes[-1], case.bytes_per_step, file=sys.stderr, flush=True)
    write_json(given.json, outcomes=[asdict(one) for one in outcomes])
    print(page(outcomes, failed))


if __name__ == "__main__":
    main()
