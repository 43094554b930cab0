"""What the device was busy with in the steps: the union over all streams, in whole nanoseconds."""

from dataclasses import dataclass

from feedline.analysis.intervals import IntArray, clip, common, joined, length, union
from feedline.analysis.traces.kinds_of_work import BoolArray, communicates, of_kinds, on_device
from feedline.analysis.traces.trace_columns import Kind, Trace
from feedline.analysis.traces.trace_steps import Basis

NO_WORK = "the trace contains no device activity"
NO_COMMUNICATION = "no communication ran"
#: Of Gpu, for reports.
FIGURES = ("span_s", "idle_pct", "compute_pct", "other_pct", "overlap_pct_of_comm", "exposed_comm_s", "exposed_comm_pct")


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """When the device did what, as sets (intervals.py), ns. Each is the union over streams; they overlap each other.

    Attributes:
        compute: kernels other than communication.
        communication: kernels that are.
        copy: copies and sets.
        busy: any of them.
    """

    compute: IntArray
    communication: IntArray
    copy: IntArray
    busy: IntArray

    def within(self, window: Basis) -> "DeviceWork":
        """What of it lies in a window."""
        cut = (clip(part, window.begin, window.end) for part in (self.compute, self.communication, self.copy, self.busy))
        return DeviceWork(*cut)


@dataclass(frozen=True)
class Gpu:
    """Figures of all devices in the trace, in the steps. Percentages are of the span; None where ``reasons`` says why.

    Attributes:
        span_ns: the steps; without any, the whole trace. 0: the trace contains no device activity.
        busy_ns: something ran.
        compute_ns: a kernel other than communication ran.
        communication_ns: communication ran.
        hidden_ns: both did.
    """

    span_ns: int = 0
    busy_ns: int = 0
    compute_ns: int = 0
    communication_ns: int = 0
    hidden_ns: int = 0

    @property
    def span_s(self) -> float | None:
        return self.span_ns / 1e9 if self.span_ns else None

    @property
    def idle_pct(self) -> float | None:
        return self._pct(self.span_ns - self.busy_ns)

    @property
    def compute_pct(self) -> float | None:
        return self._pct(self.compute_ns)

    @property
    def other_pct(self) -> float | None:
        """Busy, but no kernel computed: communication, copies, sets."""
        return self._pct(self.busy_ns - self.compute_ns)

    @property
    def overlap_pct_of_comm(self) -> float | None:
        """Communication during which a kernel computed; percent of all communication."""
        return 100 * self.hidden_ns / self.communication_ns if self.communication_ns else None

    @property
    def exposed_comm_s(self) -> float | None:
        """Communication during which no kernel computed."""
        return (self.communication_ns - self.hidden_ns) / 1e9 if self.span_ns else None

    @property
    def exposed_comm_pct(self) -> float | None:
        return self._pct(self.communication_ns - self.hidden_ns)

    @property
    def reasons(self) -> dict[str, str]:
        """Why a figure is None."""
        if not self.span_ns:
            return dict.fromkeys(FIGURES, NO_WORK)
        return {} if self.communication_ns else {"overlap_pct_of_comm": NO_COMMUNICATION}

    def _pct(self, ns: int) -> float | None:
        return 100 * ns / self.span_ns if self.span_ns else None


def device_work(trace: Trace) -> DeviceWork:
    """When the devices of a trace did what."""
    work = on_device(trace)
    communication = communicates(trace) & work
    compute = of_kinds(trace, Kind.KERNEL) & work & ~communication
    computed, communicated, copied = (spans(trace, mask) for mask in (compute, communication, work & ~compute & ~communication))
    return DeviceWork(computed, communicated, copied, joined(computed, communicated, copied))


def spans(trace: Trace, chosen: BoolArray) -> IntArray:
    """The moments of these events: a set, ns."""
    start = trace.events["start"][chosen]
    return union(start, start + trace.events["wall"][chosen])


def gpu(work: DeviceWork, window: Basis) -> Gpu:
    """The figures of what a device did in a window."""
    if not len(work.busy):
        return Gpu()
    seen = work.within(window)
    hidden = common(seen.communication, seen.compute)
    return Gpu(window.ns, *(length(part) for part in (seen.busy, seen.compute, seen.communication, hidden)))
