"""Counts the samples that a training has seen: those in the batches that loaders handed over for it.

Where no loader feeds the training, rows that its model was given stand for them. A row need not be a sample (nodes of a graph, time steps,
the second pass of a GAN), so that such a number compares moments of one training and is not a number of samples.

    NEXT                    samples are on their way
    forward that trains     as many of them as the model has rows are trained on: accumulation takes several batches first
    forward that does not   the batch was one to evaluate on, unless a forward that trains comes before the next one
    update                  all that are on their way were trained on
"""


class SampleCount:
    """Counts samples on this rank.

    Attributes:
        steps: updates, those of optimizers that take turns as one.
        last: samples of the last batch that a loader returned; 0: unknown.
    """

    def __init__(self) -> None:
        self.steps = self._updates = self.last = 0
        self._trained = self._rows = self._batches = 0
        # samples, batches, and batches of unknown size
        self._coming = self._batches_coming = self._opaque = 0
        self._inferred = self._unknown = False
        self._asked = True
        self._group: set[int] = set()  # optimizers that have made their update of this step
        self._paused_at = 0, 0  # updates and rows at the end of the last pause
        self._rate = 0.0  # rows per update before it

    @property
    def number(self) -> int:
        """The count so far; rows of the model's input if no loader has fed the training."""
        return self._trained if self._batches else self._rows

    @property
    def known(self) -> bool:
        """Whether the count is in samples.

        A loader feeds the steps then, and the size of each batch is known.
        """
        return self._batches > 0 and not self._unknown and 2 * self._batches >= self.steps

    def handed_over(self, samples: int) -> None:
        """Note that a loader has returned a batch; 0: its size is unknown."""
        if self._inferred:
            self._coming = self._batches_coming = self._opaque = 0
        self._asked, self._inferred, self.last = True, False, samples
        self._coming += samples
        self._batches_coming += 1
        self._opaque += not samples

    def inferred(self) -> None:
        """Note that a model was called outside training."""
        self._inferred = True

    def forwarded(self, rows: int) -> None:
        """Note that a model was called in training; 0: its input has no rows."""
        self._inferred = False
        self._rows += rows
        self._train_on(min(rows, self._coming) if rows else self._coming)

    def updated(self, optimizer: int) -> None:
        """Note that an optimizer is about to step."""
        self._updates += 1
        if self._asked or optimizer in self._group:
            self.steps += 1
            self._group.clear()
        self._asked = False
        self._group.add(optimizer)
        if not self._inferred:
            self._train_on(self._coming)

    def _train_on(self, samples: int) -> None:
        batches = self._batches_coming
        self._unknown = self._unknown or self._opaque > 0
        self._coming -= samples  # a loader in a thread of its own may add to it at any moment
        self._batches_coming -= batches
        self._trained += samples
        self._batches += batches

    def paused(self, updates: int, steps: int, batches: int, samples: int) -> None:
        """Note that steps were only counted.

        Args:
            updates: that were made in them.
            steps: that they make.
            batches: that loaders handed over for them.
            samples: in these.
        """
        self._rate = self._rows_per_update()
        self._rows += round(self._rate * updates)
        self._unknown = self._unknown or batches > 0 and not samples
        self._trained += samples
        self._batches += batches
        self.steps += steps
        self._updates += updates
        self._paused_at = self._updates, self._rows

    def with_pause(self, updates: int, samples: int) -> int:
        """Return ``number`` in the middle of a pause, of which so much has passed."""
        return (
            self._trained + samples
            if self._batches
            else self._rows + round(self._rows_per_update() * updates)
        )

    def _rows_per_update(self) -> float:
        """Return the rows per update since the last pause.

        Where nothing was seen since, they are those from before it.
        """
        updates, rows = self._paused_at
        made = self._updates - updates
        return (self._rows - rows) / made if made else self._rate
