"""Recalibration as ``--fix recalibrate_bn=VALUE``, which prints the lines to add: it comes after a training, so nothing is attached."""

from feedline.convergence.fix import Fix

VALUE = "50 (batches)"


def parse(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number of batches: expected {VALUE}")
    return int(text)


def lines(batches: int) -> str:
    return (
        "import itertools\n\n"
        "from feedline.convergence.fixes.recalibrate_bn import recalibrate\n\n"
        f"recalibrate(model, itertools.islice(loader, {batches}))  # before each evaluation, and before the model is kept"
    )


FIX = Fix(
    name="recalibrate_bn",
    value=VALUE,
    says="statistics of batch norm for inference, exact over some batches of the training set",
    control="",
    parse=parse,
    lines=lines,
    attach=None,
)
