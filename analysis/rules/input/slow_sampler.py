"""Drawing the indices of a batch, which the main process does while the step waits, takes long."""

from feedline.analysis.facts import RuleInputs
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.formatting import seconds
from feedline.analysis.predict.change import Refused
from feedline.analysis.rules.input.input_wait import batches_per_step, input_wait, severity

RULE_ID = "slow_sampler"

#: Torch's own samplers take 0.1 to 0.4 us per index, the start of a pass over 60,000 or more samples included (docs/rules.md).
MIN_BATCH_S, MIN_INDEX_S = 0.5e-3, 2e-6


def check(facts: RuleInputs) -> Finding | None:
    """Compare the time in which indices are drawn with what torch's samplers take."""
    loader, took_s = facts.loader, input_wait(facts).sampler_s
    batches, samples = batches_per_step(facts), facts.throughput.batch_size or 0.0
    if loader is None or took_s < max(MIN_BATCH_S * batches, MIN_INDEX_S * samples):
        return None
    drawn = "sampler" if facts.setting("batch_sampler") == "none" else "batch_sampler"
    weight = severity(facts, took_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        RULE_ID,
        weight,
        message=f"{_name(facts)} takes {seconds(took_s / batches)} to draw the indices of each batch, in the main process",
        evidence=[
            Evidence("sampler_s", "drawing indices per step", took_s, "s"),
            Evidence("sampler_share", "drawing indices, share of the step", took_s / facts.step.mean_s, SHARE),
            Evidence("index_s", "drawing indices, per sample", took_s / samples if samples else 0.0, "s"),
        ],
        fix="Compute the order of an epoch once, in one call (torch.randperm, torch.multinomial, NumPy), and let the sampler return slices "
        "of it. What depends on the data, such as lengths or distances, can be computed before the training and stored.",
        how_to_check=f"Time the sampler alone: `for _ in loader.{drawn}: pass`. If a batch takes much less time there, this finding "
        "is wrong.",
        cost_s=took_s,
    )


def _name(facts: RuleInputs) -> str:
    """Of the sampler, or of the batch sampler if that is not torch's."""
    batches = facts.setting("batch_sampler")
    return str(batches if batches not in (None, "BatchSampler") else facts.setting("sampler", "the sampler"))


def change(facts: RuleInputs) -> Refused:
    """Nothing is predicted: what another sampler takes is not known."""
    return Refused("other_sampler", "How long another sampler would take is unknown.")
