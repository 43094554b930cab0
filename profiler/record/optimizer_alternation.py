"""Which optimizers alternate within a step, from the order of their updates.

The recorder asks while updates come, the analysis once more from the records.
"""

from collections import Counter
from collections.abc import Sequence


class OptimizerAlternation:
    """Updates, and changes from one optimizer to another, added in order of time."""

    def __init__(self) -> None:
        self._made: Counter[int] = Counter()
        self._changes: Counter[tuple[int, int]] = Counter()

    def saw(self, optimizer: int, before: int | None) -> None:
        """Add an update.

        Args:
            optimizer: that made it.
            before: the optimizer of the update before, if the program asked no loader for a batch
                in between; else None.
        """
        self._made[optimizer] += 1
        if before is not None and before != optimizer:
            self._changes[before, optimizer] += 1

    def same_step(self, made: Sequence[int], optimizer: int) -> bool:
        """Return whether an update belongs to the step that these optimizers have made so far.

        A step makes an update again only behind another one, and if it is not of the optimizer with
        which the step began: SAC's steps are {critic} and {critic, actor, temperature, actor,
        temperature}.

        Args:
            made: the optimizers of the step's updates, in order. The program has asked no loader
                for a batch since the last one.
            optimizer: of the update.
        """
        first, before = made[0], made[-1]
        if optimizer in (first, before) or (
            optimizer in made and self._made[optimizer] > self._made[first]
        ):
            return False
        return self.together(before, optimizer)

    def together(self, before: int, optimizer: int) -> bool:
        """Return whether updates of these two, one directly after the other, belong to one step.

        They are where the program changes from one to the other again and again: after every second
        update at the latest of the one that makes fewer (TD3 and SAC update their actors twice in a
        row). The last round may be cut short. A single change in a whole training is that of one
        phase to the next, unless one of the two made a single update.
        """
        changes = self._changes[before, optimizer]
        fewer = min(self._made[before], self._made[optimizer])
        return fewer == 1 if changes == 1 else 2 * (changes + 1) >= fewer
