"""What was measured, in a file that an interrupted suite continues."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from faults.bench import Gain, Recorded, Said, Settings, Timed
from faults.cases import Fault
from faults.judge import Judged
from twins import machine


@dataclass
class OfFault:
    """Attributes:
    gains: one for each advice that its recordings led to.
    """

    recorded: list[Recorded] = field(default_factory=list)
    twins: list[Recorded] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)

    def gain(self, settings: Settings) -> Gain | None:
        """What was measured with these settings of the loader."""
        return next((gain for gain in self.gains if gain.settings == settings), None)


@dataclass
class Results:
    """Attributes:
    problems: case -> why it was not measured.
    """

    faults: dict[str, OfFault] = field(default_factory=dict)
    healthy: dict[str, list[Recorded]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | None) -> "Results":
        """Empty where there is no such file."""
        if path is None or not path.exists():
            return cls()
        kept = json.loads(path.read_text())
        return cls(
            {name: of_fault(one) for name, one in kept["faults"].items()},
            {name: list(map(recorded, runs)) for name, runs in kept["healthy"].items()},
        )

    def write(self, path: Path | None) -> None:
        if path is not None:
            path.write_text(json.dumps({"machine": machine(), **asdict(self)}, indent=1))

    def judged(self, faults: list[Fault]) -> list[Judged]:
        """Each recording of a fault, with the twin that was recorded beside it."""
        found = []
        for fault in faults:
            of = self.faults.get(fault.name, OfFault())
            twins = [*of.twins, *[None] * len(of.recorded)]
            for one, twin in zip(of.recorded, twins, strict=False):
                judged = Judged(fault.name, fault.expected, fault.names, one, twin)
                found.append(replace(judged, gain=of.gain(judged.settings)))
        return found


def of_fault(kept: dict[str, Any]) -> OfFault:
    gains = [
        Gain(one["settings"], [(Timed(**before), Timed(**after)) for before, after in one["pairs"]])
        for one in kept["gains"]
    ]
    return OfFault(list(map(recorded, kept["recorded"])), list(map(recorded, kept["twins"])), gains)


def recorded(kept: dict[str, Any]) -> Recorded:
    timed = Timed(**kept["timed"]) if kept["timed"] else None
    findings, checks = (
        [Said(**finding) for finding in kept[name]] for name in ("findings", "checks")
    )
    return Recorded(kept["verdict"], kept["step_s"], findings, checks, timed)
