"""What a rule declares: rows that it claims, the effort of its fix, and what that lifts."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from feedline.analysis.ledger.finding import Change, Finding, Refused
from feedline.analysis.ranks.communication import Prediction

#: What a roof is.
_ROOF_KINDS = (
    "device",  # its peak over the run's FLOP per sample
    "step",  # the step without waiting for a batch
    "gpu",  # the GPU's work for a step
    "turns",  # no workers: making a batch and computing on it take turns
    "workers",  # all workers busy
    "cores",  # all CPUs busy
    "stage",  # one stage alone
    "ceiling",  # measured apart: disk, transport, copy
    "loader",  # another loader, of a comparison
)

F = TypeVar("F")

#: Kinds of limits that the usual fix of an input finding lifts: it makes a sample cheaper.
CHEAPER = frozenset({"workers", "turns", "cores"})

#: Batches are made on more CPUs at once or wait for less: each takes as much CPU time as before.
AS_MUCH_CPU = frozenset({"workers", "turns"})

#: The training loop or its model has less to compute: the step is shorter, and needs less of the CPUs.
LESS_TO_COMPUTE = frozenset({"step", "cores"})

#: Of a fix whose cost no limit of the host changes: the sentence says it as well.
EVERY_LIMIT = frozenset(_ROOF_KINDS) - {"gpu"}


class Effort(enum.Enum):
    """What a fix asks for.

    The value is what it must give, against a setting, to be told first (docs/rules/engine.md).
    """

    SETTING = 1.0  # of the loader
    ENVIRONMENT = 1.25  # a variable, another program
    CODE = 1.5
    DATA = 2.5  # to be written in another form, or to another place: a copy of it, and hours
    HARDWARE = 3.0


class Time(enum.IntEnum):
    """What a claim's time is.

    What is less than work goes ahead of the work that takes long because of it.
    """

    WORK = 0
    NEEDLESS = 1  # work for nothing: pixels that are thrown away, memory that is mapped again
    # no work: samples wait, or take many times what their bytes need; a setting would only hide it
    IDLE = 2


class Statement(enum.Enum):
    """What a finding states about the whole run, beside the cause that it names."""

    UNKNOWN = "what limits it cannot be said"
    INPUT_UNSEEN = "the input was not seen"
    INPUT_BORDERLINE = "the input is about as much as what counts"
    INPUT_IN_STEP = "the step makes its own input"
    NOT_HELD = "the input does not hold it back"
    DEVICE_BUSY = "the device computes nearly all the time"
    CPUS_FULL = "the CPUs are full"


class Needs(enum.Enum):
    """What a run must show besides, or the silence of a rule proves nothing."""

    CLOCKS = "clocks of the ranks that can be compared"
    NETWORK = "how fast the network should be"
    TRACED_INPUT = "the waits for input of a trace"
    OTHER_PROGRAMS = "the CPU use of other programs"


class Waste(enum.Enum):
    """Needless work of a sample that a fix can end."""

    PIXELS = "pixels that are decoded and thrown away"
    PAGE_FAULTS = "memory that is given back and mapped again"


@dataclass(frozen=True)
class Rule(Generic[F]):
    """One cause: how it is found, and what its fix changes.

    explain/diagnose.py decides which findings are told, and in which order.

    Attributes:
        rule_id: the id of its finding.
        check: returns the finding, or None.
        change: what the fix changes: in the loader, which is replayed, or in how ranks meet, which
            has been replayed. Or why that is not known.
        effort: of the fix.
        claims: patterns of the rows of the ledger (``sample/decode/cpu``) whose time it explains.
        time: what the time that it claims is.
        of_input: it makes steps wait for their input: a verdict says for how long they do.
        bound: what a verdict calls a training that it holds back; empty: input-bound.
        in_part: whether what it is called depends on how much of the step it costs.
        asks_for_more: its fix is another recording.
        by_settings: what is predicted are the settings that the finding names, and nothing else.
        by_variables: its fix is variables of the environment, and nothing else.
        lifts: kinds of limits that its fix lifts. The GPU's work holds the copies to it.
        action: what its fix does, in a few words, for a list of changes; empty: it names no change.
        supposing: what an estimate of its gain supposes.
        predicting: what a prediction of its gain supposes; empty: its fix, as it stands.
        states: what its finding states about the whole run.
        needs: what its silence proves nothing without.
        ends: needless work that its fix ends. Predicted together with a fix that ends more, it
            would count twice.
        without_gain_of_workers: a sentence for its fix where more workers are predicted not to
            be faster.
        bound_or_input: ``bound`` of a trace that does not show whether it waits for data.
        of_others: what it claims is the load of other programs: it never goes first beside as
            grave a cause in the training itself that explains enough.
        names_error: its fix begins with the error of a training that failed.
        ends_training: what it names ends a longer training: where it is grave, it is told first,
            though it takes no time.
        outside_steps: what it names lies outside the steps: it is told before any cause inside a
            step where that is half of the time, or more than any such cause costs.
        free: the change that removes all time of what the finding names: a bound of its gain.
            None: ``change`` already removes it, or no such bound is known.
    """

    rule_id: str
    check: Callable[[F], Finding | None]
    change: Callable[[F], Change | Prediction | Refused]
    effort: Effort = Effort.CODE
    claims: tuple[str, ...] = ()
    time: Time = Time.WORK
    of_input: bool = False
    bound: str = ""
    in_part: bool = True
    asks_for_more: bool = False
    by_settings: bool = False
    by_variables: bool = False
    lifts: frozenset[str] = CHEAPER
    action: str = ""
    supposing: str = "without this cost"
    predicting: str = ""
    states: Statement | None = None
    needs: Needs | None = None
    ends: frozenset[Waste] = frozenset()
    without_gain_of_workers: str = ""
    bound_or_input: str = ""
    of_others: bool = False
    names_error: bool = False
    ends_training: bool = False
    outside_steps: bool = False
    free: Callable[[F], Change | Refused] | None = None
