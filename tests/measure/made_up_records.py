"""Exact records of a run that never was: times in ns, chosen by the test."""

import numpy as np

from feedline.profiler.events import Flag, Stage, batch_key
from feedline.profiler.store.layout import BINS, FIELDS, STAGES
from feedline.profiler.store.record_columns import RECORD_DTYPE, sums_of
from feedline.profiler.store.segment_reader import Process


class MadeUp:
    """Builds the records of one process, one call a record."""

    def __init__(self, **header: object) -> None:
        self.header = {"role": "main", **header}
        self.rows: list[tuple] = []
        self.names: dict[int, str] = {}

    def span(self, stage: Stage, start: int, end: int, **fields: int) -> "MadeUp":
        record = np.zeros((), RECORD_DTYPE)
        record["stage"], record["start"], record["wall"] = stage, start, end - start
        for name, value in fields.items():
            record[name] = value
        self.rows.append(tuple(record.tolist()))
        return self

    def next(
        self,
        start: int,
        end: int,
        batch: int = 0,
        loader: int = 0,
        epoch: int = 0,
        samples: int = 2,
        flags: int = 0,
    ) -> "MadeUp":
        return self.span(
            Stage.NEXT,
            start,
            end,
            number=batch_key(epoch, batch),
            source=loader,
            extra=samples,
            flags=flags,
        )

    def end(self, start: int, end: int, loader: int = 0) -> "MadeUp":
        return self.next(start, end, loader=loader, flags=Flag.END)

    def forward(self, start: int, end: int, grad: bool = True) -> "MadeUp":
        return self.span(Stage.FORWARD, start, end, flags=Flag.GRAD if grad else 0)

    def backward(self, start: int, end: int) -> "MadeUp":
        return self.span(Stage.BACKWARD, start, end)

    def update(self, start: int, end: int, optimizer: int = 1) -> "MadeUp":
        return self.span(Stage.OPTIMIZER, start, end, number=optimizer)

    def fetched(
        self, start: int, end: int, batch: int, loader: int = 0, epoch: int = 0
    ) -> "MadeUp":
        return self.span(Stage.FETCH, start, end, number=batch_key(epoch, batch), source=loader)

    def process(self, stride: int = 1) -> Process:
        """Return it; with a larger stride, only the sums know of windows that were forgotten."""
        records = np.array(self.rows, RECORD_DTYPE)
        totals = np.zeros((STAGES, FIELDS), np.int64)
        if stride > 1:
            totals = sums_of(records)
            totals[0, 0] = stride - 1
            records = records[records["window"] & (stride - 1) == 0]
        return Process(self.header, records, self.names, totals, np.zeros((2, BINS), np.int64))
