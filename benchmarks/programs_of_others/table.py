"""The rows of docs/measured/programs-of-others.md."""

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from programs_of_others.bench import Measured
from programs_of_others.judge import DOUBTFUL, FALSE, OTHERS, TRUE, UNKNOWN, judge
from programs_of_others.manifest.unseen import UNSEEN
from programs_of_others.manifest.unseen_second import UNSEEN_SECOND

TEXT = """\
# Programs from other repositories

Unmodified programs from public repositories and packages, on small synthetic data (`benchmarks/programs_of_others` contains no copy of
them). Each runs twice: under `feedline run`, and without it but with hand-written timers around the batches of its loaders (or the function
that makes them), forward, backward and optimizer. A `sitecustomize` independent of feedline installs the timers.

- **Steps, samples**: the program's own counts, from its options, checked with the updates that the timers count and, if it prints one
  line per step, against those lines; then feedline's count if it differs. `-`: the program has none, as with a whole graph in each step.
  `unknown`: feedline reports it as unknown, because no loader feeds the steps.
- **Input**: its share of the steps after the first, from the timers and from feedline, in two different runs.
- **Verdict**: true, unknown (feedline says that it does not know), doubtful, or false. True: the timers confirm feedline's share,
  the cause is possible (no files if samples are in memory, no busy CPUs if the program leaves them free), and the step is not
  slower with the advised loader settings (`--try`). False: the timers show the opposite, the cause is impossible, the advice makes the step
  more than 5 % slower, or a share is above 100 %.
- **And then**: if the first finding names other programs on the machine, the next finding, judged in the same way.

    python benchmarks/programs_of_others/run.py --repositories FOLDER --try > docs/measured/programs-of-others.md

"""
HEAD = (
    "| program | steps | samples | input, by hand / feedline | first finding | verdict | and "
    "then |\n|---|---|---|---|---|---|---|"
)


def page(measured: Sequence[Measured]) -> str:
    """All of it."""
    import torch

    ran = [one for one in measured if not one.problem]
    verdicts = Counter(one.verdict for one in ran)
    exact = sum(one.exact for one in ran)
    unknown = sum(
        None not in (count for _, count in one.true) and None in (said.samples for said in one.said)
        for one in ran
    )
    kinds = ", ".join(f"{kind} in {verdicts[kind]}" for kind in (TRUE, UNKNOWN, DOUBTFUL, FALSE))
    beside = [one for one in ran if one.main.causes[:1] and one.main.causes[0] in OTHERS]
    nexts = Counter(judgement for one in beside if (judgement := besides(one)[0]))
    after = ", ".join(f"{kind} in {nexts[kind]}" for kind in (TRUE, UNKNOWN, DOUBTFUL, FALSE))
    lines = [
        TEXT
        + f"Python {platform.python_version()}, torch {torch.__version__}, {platform.system()}.\n",
        f"**{len(ran)} programs: steps and samples are right in {exact}, in {unknown} of which "
        f"feedline says that the samples are unknown; "
        f"the verdict is {kinds}.**{_of_neighbors(len(beside), after)}\n",
        *_of_unseen(ran),
        HEAD,
        *(row(one) for one in ran),
    ]
    if failed := [one for one in measured if one.problem]:
        lines += [
            "\nNot measured:\n",
            *(f"- {one.program.name}: {one.problem.splitlines()[0]}" for one in failed),
        ]
    return "\n".join(lines)


def _of_unseen(ran: Sequence[Measured]) -> list[str]:
    """A paragraph on the programs that no rule was adjusted to; none without them."""
    names = {program.name for program in (*UNSEEN, *UNSEEN_SECOND)}
    own = [one for one in ran if one.program.name in names]
    verdicts = Counter(one.verdict for one in own)
    kinds = ", ".join(f"{kind} in {verdicts[kind]}" for kind in (TRUE, UNKNOWN, DOUBTFUL, FALSE))
    chosen = (
        f"{len(own)} of them were chosen, and what is true of them was written down, before "
        f"feedline was run on any of them"
    )
    return (
        [
            f"{chosen}: steps and samples are right in {sum(one.exact for one in own)}; the "
            f"verdict is {kinds}.\n"
        ]
        if own
        else []
    )


def _of_neighbors(number: int, after: str) -> str:
    return (
        f" In {number} the first finding names the neighbors; the next finding, where there is "
        f"one, is {after}."
        if number
        else ""
    )


def row(one: Measured) -> str:
    """A line of the table."""
    steps = pair(sum(steps for steps, _ in one.true), sum(said.steps for said in one.said))
    true, said = whole(samples for _, samples in one.true), whole(said.samples for said in one.said)
    samples = "-" if true is None else f"{true:,}, unknown" if said is None else pair(true, said)
    shares = f"{one.timed.input_share:.1%} / {one.main.share:.1%}"
    rule_id = f"`{(one.main.causes or ('none',))[0]}`"
    verdict = one.verdict if one.verdict == TRUE else f"**{one.verdict}**"
    cells = [
        f"{one.program.name} ({one.program.counts})",
        steps,
        samples,
        shares,
        rule_id,
        f"{verdict}: {one.why}",
        then(one),
    ]
    return f"| {' | '.join(cells)} |"


def besides(one: Measured) -> tuple[str, str]:
    """What is to be said of the finding after one that names the neighbors, and why; empty where
    there is none.
    """
    causes = one.main.causes
    if len(causes) < 2 or causes[0] not in OTHERS:
        return "", ""
    return judge(one.program, replace(one.main, causes=causes[1:], verdict=""), one.facts)


def then(one: Measured) -> str:
    """The same as a cell."""
    judgement, why = besides(one)
    return (
        f"`{one.main.causes[1]}`: {judgement if judgement == TRUE else f'**{judgement}**'}, {why}"
        if judgement
        else ""
    )


def whole(counts: Iterable[int | None]) -> int | None:
    """Their sum, where all are known."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


def pair(true: int, said: int) -> str:
    """One number where both agree."""
    return f"{said:,}" if true == said else f"**{true:,} / {said:,}**"
