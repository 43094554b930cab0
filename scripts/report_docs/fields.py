"""What each field of the JSON report means, read from the docstrings of its dataclasses.

The schema's descriptions and the tables in docs/report.md are made from it. A field's line under
``Attributes:`` is its meaning, then ``Unit: s.`` if it has one, then ``None: ...``, when it is
null:

    mean_s: Mean time of a step. Unit: s. None: the rank made no step.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

from feedline.analysis.convergence import training_record as convergence
from feedline.analysis.explain import model as report
from feedline.analysis.ledger import finding
from feedline.analysis.ledger import table as ledger
from feedline.analysis.measure import model as measured
from feedline.analysis.measure import step_model as step
from feedline.analysis.measure import user_code
from feedline.analysis.ranks import communication as ranks
from feedline.analysis.report.json_report import key_of
from feedline.analysis.traces import launching

_LINE = re.compile(r"(\w+): (.+?)\.(?: Unit: (.+?)\.)?(?: None: (.+)\.)?")

#: In the order of docs/report.md.
TYPES: tuple[type, ...] = (
    report.Report,
    measured.RunInfo,
    measured.Throughput,
    step.StepSummary,
    ledger.Ledger,
    ledger.LedgerTable,
    ledger.LedgerRow,
    step.OwnCode,
    step.OwnFunction,
    step.GarbageCollection,
    step.PeriodicStall,
    measured.MemoryGrowth,
    measured.GraphBreak,
    user_code.UserCode,
    user_code.UserFunction,
    user_code.CodeLine,
    launching.GpuWork,
    step.Sampled,
    step.Flop,
    step.StepSeries,
    measured.Workers,
    measured.Cost,
    measured.Operation,
    measured.Loader,
    measured.Gauge,
    measured.Cpus,
    report.Hook,
    report.Roofline,
    report.ThroughputBound,
    report.Sweep,
    report.RankSummary,
    ranks.RankParts,
    report.RankGpu,
    report.RankInput,
    ranks.CollectiveKind,
    ranks.LateRank,
    ranks.Prediction,
    ranks.Communication,
    ranks.ExposedKind,
    report.Verdict,
    report.Traces,
    report.TraceFile,
    report.KernelTime,
    report.OperatorTime,
    report.CopyTime,
    convergence.ConvergenceSummary,
    convergence.CurvePoints,
    convergence.NoiseOverTraining,
    convergence.NoiseWindow,
    convergence.BatchPrice,
    convergence.TimeToTarget,
    finding.Finding,
    finding.Gain,
    finding.PredictedRate,
    finding.Blame,
    finding.Evidence,
)


class Field(NamedTuple):
    """One field: its meaning, its unit ("" for text and structures), and when it is null."""

    meaning: str
    unit: str
    null: str

    def text(self) -> str:
        """Return all three in one line."""
        unit = f" Unit: {self.unit}." if self.unit else ""
        null = f" Null: {self.null}." if self.null else ""
        return f"{self.meaning}.{unit}{null}"


def fields_of(cls: type) -> dict[str, Field]:
    """Return the described fields of a dataclass by their JSON key.

    Raises ValueError for a line that cannot be read.
    """
    fields = {field.name: key_of(field) for field in dataclasses.fields(cls)}
    described = {}
    for line in _attributes(cls):
        parts = _LINE.fullmatch(line)
        if parts is None or parts[1] not in fields:
            raise ValueError(f"{cls.__name__}: cannot read {line!r}")
        described[fields[parts[1]]] = Field(parts[2], parts[3] or "", parts[4] or "")
    return described


def _attributes(cls: type) -> Iterator[str]:
    """Yield the lines under ``Attributes:``, continued ones joined."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    for line in re.split(r"\n {4}(?! )", "\n" + text):
        if line:
            yield " ".join(line.split())


#: Name of a dataclass -> its fields by JSON key.
FIELDS = {cls.__name__: fields_of(cls) for cls in TYPES}
