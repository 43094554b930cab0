"""Batch growth as ``--fix batch_growth=VALUE``, which prints the lines to add: a loader and its loop belong to the program."""

from dataclasses import dataclass

from feedline.convergence.fix import Fix

VALUE = "32,6=128,9=512 (samples of a rank at first, and from epoch 6 and 9 on)"


@dataclass(frozen=True)
class Setting:
    """stages: (first epoch, samples)."""

    stages: tuple[tuple[int, int], ...]


def parse(text: str) -> Setting:
    parts = [part.partition("=") for part in f"0={text.strip()}".split(",")]
    try:
        stages = tuple((int(epoch), int(batch)) for epoch, _, batch in parts)
    except ValueError:
        stages = ()
    epochs = [epoch for epoch, _ in stages]
    if not stages or epochs != sorted(set(epochs)) or min(batch for _, batch in stages) < 1:
        raise ValueError(f"{text!r} is not a batch schedule: expected {VALUE}")
    return Setting(stages)


def lines(setting: Setting) -> str:
    return (
        "from feedline.convergence.fixes.batch_growth import GrowingBatchSampler, SamplesSchedule\n\n"
        f"sampler = GrowingBatchSampler(sampler, stages={list(setting.stages)})  # of a DistributedSampler on several ranks\n"
        "loader = DataLoader(data, batch_sampler=sampler)\n"
        "schedule = SamplesSchedule(optimizer, factor_of_samples)  # in place of a scheduler that counts steps\n"
        "# before each epoch:\n"
        "sampler.set_epoch(epoch)\n"
        "# after each optimizer.step():\n"
        "sampler.count(len(batch))\n"
        "schedule.step(len(batch))  # times the number of ranks"
    )


FIX = Fix(
    name="batch_growth",
    value=VALUE,
    says="a batch that grows where the rate would decay: the same noise in fewer updates",
    control="",
    parse=parse,
    lines=lines,
    attach=None,
)
